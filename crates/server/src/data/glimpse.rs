//! Asking those who write to an object what they have not sent yet. They keep what they hold: who looks at a file that
//! somebody writes must not make him give it up.
//!
//! One client is asked about one object by one callback at a time, however many look. Who comes while it is under way
//! waits for the next one: its answer was perhaps made before they asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto::lock::range::Holder;
use proto::wire::Reply;
use proto::wire::messages::{Glimpse, Glimpsed};
use proto::{Code, ObjectId};
use rt::Rt;
use rt::sync::oneshot;
use service::{Called, Clients, Env, RangeLocks, Wait};

/// Asks clients.
pub(super) struct Glimpses {
    /// For the tasks of callbacks.
    me: Weak<Glimpses>,
    rt: Rt,
    clients: Arc<Clients>,
    tokens: Arc<RangeLocks>,
    /// By who is asked and about what: those who wait for the callback after the one that is under way.
    under_way: Mutex<BTreeMap<(Holder, ObjectId), Vec<Asker>>>,
    count: AtomicU64,
}

/// Who waits for an answer; `None` is sent if there is nothing to know. Dropped if the target is being stopped.
type Asker = oneshot::Sender<Option<Glimpsed>>;

impl Glimpses {
    /// Nobody is asked.
    pub fn new(env: &Env, tokens: Arc<RangeLocks>) -> Arc<Glimpses> {
        Arc::new_cyclic(|me| Glimpses {
            me: me.clone(),
            rt: env.rt.clone(),
            clients: env.clients.clone(),
            tokens,
            under_way: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// What clients other than `except` have written to the object and not sent yet: the largest size, the newest time.
    pub async fn glimpse(&self, object: ObjectId, except: Holder) -> Result<Option<Glimpsed>, Code> {
        let writers = self.tokens.writers(object, except);
        let answers: Vec<_> = writers.into_iter().map(|writer| self.ask(writer, object)).collect();
        let mut newest: Option<Glimpsed> = None;
        for answer in answers {
            let Some(found) = answer.await.map_err(|_| Code::TryAgain)? else { continue };
            newest = Some(match newest {
                None => found,
                Some(known) => {
                    Glimpsed { size: known.size.max(found.size), time: known.time.max(found.time) }
                }
            });
        }
        Ok(newest)
    }

    /// Callbacks so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Who is asked now.
    pub fn waits(&self) -> Vec<Wait> {
        let wait = |((writer, object), next): (&(Holder, ObjectId), &Vec<Asker>)| {
            let text = format!(
                "session {:#x} is asked what it has of {object:?}; {} wait for the next question",
                writer.0,
                next.len()
            );
            Wait { sessions: vec![writer.0], text }
        };
        self.under_way.lock().iter().map(wait).collect()
    }

    fn ask(&self, writer: Holder, object: ObjectId) -> oneshot::Receiver<Option<Glimpsed>> {
        let (asker, answer) = oneshot::channel();
        let mut under_way = self.under_way.lock();
        if let Some(next) = under_way.get_mut(&(writer, object)) {
            next.push(asker);
            return answer;
        }
        under_way.insert((writer, object), Vec::new());
        drop(under_way);
        if let Some(glimpses) = self.me.upgrade() {
            self.rt.spawn(async move { glimpses.carry_out(writer, object, vec![asker]).await });
        }
        answer
    }

    async fn carry_out(&self, writer: Holder, object: ObjectId, mut askers: Vec<Asker>) {
        while !askers.is_empty() {
            self.count.fetch_add(1, Ordering::Relaxed);
            let called = self.clients.call_back(writer.0, Glimpse { object }.into()).await;
            let found = match called {
                Called::Answered(reply) => match *reply {
                    Reply::Glimpse(found) => Some(found),
                    _ => None,
                },
                Called::Unknown => None,
                Called::Gone => {
                    self.tokens.drop_session(writer);
                    None
                }
                Called::Stopped => {
                    self.under_way.lock().remove(&(writer, object));
                    return;
                }
            };
            for asker in askers {
                let _ = asker.send(found.clone());
            }
            let mut under_way = self.under_way.lock();
            askers = under_way.get_mut(&(writer, object)).map(std::mem::take).unwrap_or_default();
            if askers.is_empty() {
                under_way.remove(&(writer, object));
            }
        }
    }
}
