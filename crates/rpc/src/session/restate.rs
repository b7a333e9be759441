//! How a client states again what it holds, after its target restarted.

use std::sync::Arc;

use proto::session::{Event, Message};
use proto::wire::header::FLAG_RESENT;
use proto::wire::messages::Operation;
use proto::wire::{Reply, Request};
use proto::{Code, Xid};
use rt::sync::{Semaphore, oneshot};

use super::{Carrier, Driver};
use crate::event::Ended;
use crate::import::RpcError;
use crate::limits;

/// Sends requests that change nothing while the session is not open yet. The target treats them like replays: they pass
/// while it recovers, and do not tell it that the client has no more replays. Cheap to clone.
#[derive(Clone)]
pub struct Restate {
    driver: Arc<Driver>,
    carrier: Carrier,
    room: Arc<Semaphore>,
    /// The session is not the one any more that it was.
    failed: Ended,
}

impl Restate {
    pub(crate) fn new(driver: Arc<Driver>, carrier: Carrier) -> Restate {
        let room = Arc::new(Semaphore::new(limits::RESTATES_MAX));
        Restate { driver, carrier, room, failed: Ended::new() }
    }

    /// Ends when the session has to be opened again.
    pub(crate) fn failed(&self) -> &Ended {
        &self.failed
    }

    /// Sends `operation`, which changes nothing, and waits for its reply. If the session breaks this does not come
    /// back: the future that waits for it is dropped.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<O::Reply, RpcError> {
        let request: Request = operation.into();
        assert!(!request.changes(), "changes are replayed, not stated again");
        let _room = self.room.acquire().await.expect("it is never closed");
        let message = Arc::new(Message::new(&request, &[]).map_err(RpcError::Refused)?);
        let mut pause = limits::BACKOFF_MIN;
        loop {
            match self.ask(&message).await {
                Ok(reply) => return O::reply_of(reply).ok_or(RpcError::Refused(Code::Malformed)),
                Err(Code::TryAgain) => {
                    self.driver.hub.rt().sleep(pause).await;
                    pause = (pause * 2).min(limits::BACKOFF_MAX);
                }
                Err(Code::NoSession | Code::NotHere) => {
                    self.failed.end();
                    return std::future::pending().await;
                }
                Err(code) => return Err(RpcError::Refused(code)),
            }
        }
    }

    async fn ask(&self, message: &Arc<Message>) -> Result<Reply, Code> {
        let (waiter, mut answer) = oneshot::channel();
        let mut header = self.driver.change(|state| state.machine.restate(message, waiter));
        let _asked = Asked { driver: &self.driver, xid: header.xid };
        let mut patience = limits::RESEND_MIN;
        let outcome = loop {
            self.carrier.send(&self.driver, header.clone(), message, false);
            if self.carrier.is_lossless() {
                break answer.await;
            }
            match self.driver.hub.rt().timeout(patience, &mut answer).await {
                Some(outcome) => break outcome,
                None => patience = (patience * 2).min(limits::RESEND_MAX),
            }
            header.flags |= FLAG_RESENT;
        };
        outcome.map_err(|_| Code::NoSession)?.map(|answered| answered.reply)
    }
}

/// A request whose answer is waited for; forgotten when dropped.
struct Asked<'a> {
    driver: &'a Driver,
    xid: Xid,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.driver.on(Event::Gone(self.xid));
    }
}
