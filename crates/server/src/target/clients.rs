//! How a target reaches the clients of its sessions, and what becomes of one that cannot be reached.
//!
//! A client that holds what another one needs is called back. As long as it is connected it may take its time: slow is
//! not dead. One that has no connection for [`PATIENCE`] and that somebody waits for is evicted (one that only went silent
//! has [`rpc::limits::SILENT_GRACE`] more): its session ends as if it had said goodbye, and when it comes back it learns that
//! whatever it held is gone.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use proto::wire::{Reply, Request};
use proto::{Code, TargetId};
use rpc::{CallbackError, Hub};
use rt::BoxFuture;

use super::Stop;

/// How long a client that somebody waits for may be without a connection that was closed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a client says to a callback.
pub type CallbackAnswer = Result<Result<Reply, Code>, CallbackError>;

/// The way to the clients: the hub, but for tests.
pub trait Backchannel: Send + Sync + 'static {
    /// See [`Hub::call_back`].
    fn call_back(
        &self,
        target: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> BoxFuture<'static, CallbackAnswer>;

    /// See [`Hub::session_ended`].
    fn session_ended(&self, target: TargetId, session: u64);

    /// See [`Hub::session_evicted`]. [`Backchannel::session_ended`] follows.
    fn session_evicted(&self, target: TargetId, session: u64) {
        let _ = (target, session);
    }

    /// See [`Hub::waits`].
    fn waits(&self, target: TargetId) -> Vec<String> {
        let _ = target;
        Vec::new()
    }
}

impl Backchannel for Hub {
    fn call_back(
        &self,
        target: TargetId,
        session: u64,
        request: Request,
        patience: Duration,
    ) -> BoxFuture<'static, CallbackAnswer> {
        let hub = self.clone();
        Box::pin(async move { hub.call_back(target, session, request, patience).await })
    }

    fn session_ended(&self, target: TargetId, session: u64) {
        Hub::session_ended(self, target, session);
    }

    fn session_evicted(&self, target: TargetId, session: u64) {
        Hub::session_evicted(self, target, session);
    }

    fn waits(&self, target: TargetId) -> Vec<String> {
        Hub::waits(self, target)
    }
}

/// Ends sessions: the target itself.
pub(super) trait Doorman: Send + Sync {
    /// Ends a session against its client's will, and says why in the log.
    fn evict(&self, session: u64, why: &str);

    /// Whether the session goes on.
    fn is_live(&self, session: u64) -> bool;
}

/// What became of a callback.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// The client answered.
    Answered(Box<Reply>),
    /// The client knows no callbacks, so it holds nothing.
    Unknown,
    /// The session is over: it holds nothing any more.
    Gone,
    /// The target is being stopped; whether the client still holds something is not known.
    Stopped,
}

/// The clients of a target's sessions.
pub struct Clients {
    target: TargetId,
    stop: Stop,
    backchannel: Arc<dyn Backchannel>,
    doorman: OnceLock<Weak<dyn Doorman>>,
}

impl Clients {
    pub(super) fn new(target: TargetId, stop: Stop, backchannel: Arc<dyn Backchannel>) -> Clients {
        Clients { target, stop, backchannel, doorman: OnceLock::new() }
    }

    /// Who ends sessions; told once, when the target has been made.
    pub(super) fn set_doorman(&self, doorman: Weak<dyn Doorman>) {
        assert!(self.doorman.set(doorman).is_ok(), "a target is made once");
    }

    pub(super) fn ended(&self, session: u64) {
        self.backchannel.session_ended(self.target, session);
    }

    pub(super) fn evicted(&self, session: u64) {
        self.backchannel.session_evicted(self.target, session);
    }

    /// What is waited for in the sessions, a line for each.
    pub(super) fn waits(&self) -> Vec<String> {
        self.backchannel.waits(self.target)
    }

    /// Calls the client of `session` back. One that cannot be reached, or refuses, is evicted: the answer
    /// is then [`Called::Gone`].
    pub async fn call_back(&self, session: u64, request: Request) -> Called {
        let name = request.name();
        let callback = self.backchannel.call_back(self.target, session, request, PATIENCE);
        let Some(answer) = self.stop.unless(callback).await else { return Called::Stopped };
        let why = match answer {
            Ok(Ok(reply)) => return Called::Answered(Box::new(reply)),
            Ok(Err(Code::NotSupported)) => return Called::Unknown,
            Ok(Err(code)) => format!("it refused {name}: {code}"),
            Err(CallbackError::Unreachable) => {
                format!(
                    "somebody waits for what it holds, and it has had no connection for {PATIENCE:?} or more"
                )
            }
            Err(CallbackError::Ended) => {
                return if self.is_live(session) { Called::Stopped } else { Called::Gone };
            }
        };
        if let Some(doorman) = self.doorman() {
            doorman.evict(session, &why);
        }
        Called::Gone
    }

    fn is_live(&self, session: u64) -> bool {
        self.doorman().is_some_and(|doorman| doorman.is_live(session))
    }

    fn doorman(&self) -> Option<Arc<dyn Doorman>> {
        self.doorman.get().and_then(Weak::upgrade)
    }
}
