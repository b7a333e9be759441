//! Asks the cluster: a member, and if that does not answer in time the next one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rt::{BoxFuture, Rt};

use super::endpoints::Rotation;
use super::kv::{ANSWER_BYTES_MAX, AUTHENTICATE_PATH, Outcome, TXN_PATH, Txn, authenticate, refusal, token};
use crate::owner::store::Unavailable;

/// Time for one attempt. A proposal that is lost with the cluster's leader is answered after seven seconds only.
const ATTEMPT: Duration = Duration::from_millis(400);
/// Statuses of HTTP for somebody who has to show a (new) token. etcd's own code for it comes as 401.
const UNAUTHORIZED: u16 = 401;
/// The status when all is well.
const OK: u16 = 200;

/// Posts to the members of a cluster.
pub trait Transport: Send + Sync + 'static {
    /// The members' names, for people; at least one.
    fn members(&self) -> &[String];

    /// Posts `body` to `path` of a member; gives HTTP's status and what was said, of at most `bytes_max` bytes. `token` is
    /// a secret that goes along. Has no deadline.
    fn post<'a>(
        &'a self,
        member: usize,
        path: &'a str,
        token: Option<&'a str>,
        body: Bytes,
        bytes_max: usize,
    ) -> BoxFuture<'a, io::Result<(u16, Bytes)>>;
}

/// A user of etcd. Not to be printed.
pub struct Credentials {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

/// Why one attempt brought nothing.
enum Failed {
    /// Another member may do better.
    Member(String),
    /// No member will.
    Refused(String),
    /// The token does not count any more.
    Token,
}

pub(super) struct Client {
    rt: Rt,
    transport: Arc<dyn Transport>,
    credentials: Option<Credentials>,
    rotation: Mutex<Rotation>,
    token: Mutex<Option<Arc<str>>>,
    /// The cluster that answered first: one process never believes two.
    cluster: Mutex<Option<u64>>,
}

impl Client {
    pub fn new(rt: &Rt, transport: Arc<dyn Transport>, credentials: Option<Credentials>) -> Client {
        let rotation = Mutex::new(Rotation::new(transport.members().len()));
        Client {
            rt: rt.clone(),
            transport,
            credentials,
            rotation,
            token: Mutex::default(),
            cluster: Mutex::default(),
        }
    }

    /// Asks as many members as there are, at most once each. A transaction may have been carried out although there is no
    /// answer, and has to be one that may come twice.
    pub async fn txn(&self, txn: &Txn) -> Result<Outcome, Unavailable> {
        let attempts = self.rotation.lock().count();
        let body = txn.encode();
        let mut why = String::new();
        for _ in 0..attempts {
            let member = self.rotation.lock().pick(self.rt.now().0);
            let failed = match self.rt.timeout(ATTEMPT, self.attempt(member, txn, &body)).await {
                Some(Ok(outcome)) => {
                    self.rotation.lock().answered(member);
                    return Ok(outcome);
                }
                Some(Err(failed)) => failed,
                None => Failed::Member(format!("no answer within {} ms", ATTEMPT.as_millis())),
            };
            let name = self.transport.members().get(member).map_or("?", String::as_str);
            match failed {
                Failed::Refused(text) => return Err(Unavailable(format!("etcd at {name} refuses: {text}"))),
                Failed::Token => why = format!("etcd at {name} does not accept its own token"),
                Failed::Member(text) => {
                    self.rotation.lock().failed(self.rt.now().0, member);
                    why = format!("etcd at {name}: {text}");
                }
            }
        }
        Err(Unavailable(why))
    }

    async fn attempt(&self, member: usize, txn: &Txn, body: &Bytes) -> Result<Outcome, Failed> {
        match self.attempt_once(member, txn, body).await {
            Err(Failed::Token) => {
                *self.token.lock() = None;
                self.attempt_once(member, txn, body).await
            }
            result => result,
        }
    }

    async fn attempt_once(&self, member: usize, txn: &Txn, body: &Bytes) -> Result<Outcome, Failed> {
        let token = self.token(member).await?;
        let posted =
            self.transport.post(member, TXN_PATH, token.as_deref(), body.clone(), ANSWER_BYTES_MAX).await;
        let (status, said) = posted.map_err(|error| Failed::Member(cause(&error)))?;
        if status != OK {
            return Err(self.refused(status, &said));
        }
        let outcome = Outcome::decode(txn, &said).map_err(Failed::Member)?;
        let mut cluster = self.cluster.lock();
        let known = *cluster.get_or_insert(outcome.cluster);
        if known != outcome.cluster {
            return Err(Failed::Member(format!(
                "it belongs to cluster {:x}, and the others to {known:x}; name members of one cluster only",
                outcome.cluster
            )));
        }
        Ok(outcome)
    }

    /// The token to show, if there are users.
    async fn token(&self, member: usize) -> Result<Option<Arc<str>>, Failed> {
        let Some(Credentials { user, password }) = &self.credentials else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let question = authenticate(user, password);
        let posted = self.transport.post(member, AUTHENTICATE_PATH, None, question, ANSWER_BYTES_MAX).await;
        let (status, said) = posted.map_err(|error| Failed::Member(cause(&error)))?;
        if status != OK {
            return Err(match self.refused(status, &said) {
                Failed::Token => Failed::Refused("user or password are wrong".into()),
                other => other,
            });
        }
        let token = token(&said).ok_or_else(|| Failed::Member("it gives no token".into()))?;
        let token: Arc<str> = token.into();
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }

    fn refused(&self, status: u16, said: &[u8]) -> Failed {
        let text = refusal(status, said);
        match status {
            UNAUTHORIZED if self.credentials.is_some() => Failed::Token,
            // A fault of the question's, or of who asks.
            400..=499 if status != 408 && status != 429 => Failed::Refused(text),
            _ => Failed::Member(text),
        }
    }
}

/// The innermost cause: what is around it says only that something went wrong.
fn cause(error: &io::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
