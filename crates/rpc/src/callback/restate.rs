//! How a client states again what it holds, after its target restarted.

use std::sync::Arc;

use proto::wire::header::{FLAG_REPLAY, FLAG_RESENT};
use proto::wire::messages::Operation;
use proto::wire::{Reply, Request};
use proto::{Code, Transno, Xid};
use rt::sync::{Semaphore, oneshot};

use crate::call::Options;
use crate::connect::Carrier;
use crate::event::Ended;
use crate::import::{Import, Message, RpcError, encode};
use crate::limits;
use crate::lo;
use crate::service::Call;

/// Sends requests that change nothing while the session is not open yet. The target treats them like replays: they pass
/// while it recovers, and do not tell it that the client has no more replays. Cheap to clone.
#[derive(Clone)]
pub struct Restate {
    import: Arc<Import>,
    carrier: Carrier,
    room: Arc<Semaphore>,
    /// The session is not the one any more that it was.
    failed: Ended,
}

impl Restate {
    pub(crate) fn new(import: Arc<Import>, carrier: Carrier) -> Restate {
        let room = Arc::new(Semaphore::new(limits::RESTATES_MAX));
        Restate { import, carrier, room, failed: Ended::new() }
    }

    /// Ends when the session has to be opened again.
    pub(crate) fn failed(&self) -> &Ended {
        &self.failed
    }

    /// Sends `operation`, which changes nothing, and waits for its reply. If the session breaks this does not come
    /// back: the future that waits for it is dropped.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<O::Reply, RpcError> {
        let request = operation.into();
        assert!(!request.changes(), "changes are replayed, not stated again");
        let _room = self.room.acquire().await.expect("it is never closed");
        let mut pause = limits::BACKOFF_MIN;
        loop {
            let result = match &self.carrier {
                Carrier::Lo(..) => self.call_here(request.clone()).await,
                Carrier::Tcp(_) => self.call_over(&encode(&request, &[], Options::default())?).await,
            };
            match result {
                Ok(reply) => return O::reply_of(reply).ok_or(RpcError::Refused(Code::Malformed)),
                Err(Code::TryAgain) => {
                    self.import.hub.rt().sleep(pause).await;
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

    async fn call_here(&self, request: Request) -> Result<Reply, Code> {
        let Carrier::Lo(service, peer) = &self.carrier else { return Err(Code::NotHere) };
        let opcode = request.opcode();
        let call = {
            let mut state = self.import.state.lock();
            Call {
                peer: peer.clone(),
                target: self.import.target,
                session: state.session,
                session_epoch: state.session_epoch,
                xid: state.requests.draw_xid(),
                slot: None,
                resent: false,
                replay: Some(Transno(0)),
                job: [0; 32],
                request,
                bulk: Vec::new(),
            }
        };
        let verify = self.import.hub.rt().verify();
        if verify {
            lo::verify_request(&call);
        }
        let answer = service.clone().call(call).await;
        if verify {
            lo::verify_reply(opcode, &answer.result, &answer.bulk);
        }
        answer.result
    }

    async fn call_over(&self, message: &Arc<Message>) -> Result<Reply, Code> {
        let (waiter, mut answer) = oneshot::channel();
        let (mut header, xid) = {
            let mut state = self.import.state.lock();
            let xid = state.requests.draw_xid();
            state.restating.insert(xid, waiter);
            let mut header = self.import.header(&state, message, xid, None);
            header.flags |= FLAG_REPLAY;
            (header, xid)
        };
        let _asked = Asked { import: &self.import, xid };
        let mut patience = limits::RESEND_MIN;
        loop {
            self.import.carry(&self.carrier, header.clone(), message);
            match self.import.hub.rt().timeout(patience, &mut answer).await {
                Some(Ok(result)) => return result,
                Some(Err(_)) => return Err(Code::NoSession),
                None => patience = (patience * 2).min(limits::RESEND_MAX),
            }
            header.flags |= FLAG_RESENT;
        }
    }
}

/// A request whose answer is waited for; forgotten when dropped.
struct Asked<'a> {
    import: &'a Import,
    xid: Xid,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.import.state.lock().restating.remove(&self.xid);
    }
}
