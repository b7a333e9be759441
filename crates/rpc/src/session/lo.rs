//! Requests to a target of the same process: a direct call, polled on the caller's thread.
//!
//! This is the way of every request on a machine that runs all roles, so it does little: a slot and a number from the
//! session's machine, the call, and two marks there. Nothing is encoded, and nothing is kept for a replay: client and target
//! live and die together, so there is no restart after which the client could still send anything again. A target that is
//! taken out of the process in order has made everything durable before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use proto::session::machine::{Incoming, Pass, Ticket};
use proto::session::{Asks, Event, Message};
use proto::wire::header::{FLAG_REPLAY, FLAG_REPLY, FLAG_RESENT, HEADER_BYTES, SLOT_NONE};
use proto::wire::{Header, Reply, Request};
use proto::{Code, JobId, Transno, Xid};
use rt::BoxFuture;

use super::call::Options;
use super::carrier::Carrier;
use super::driver::Driver;
use crate::frame::{self, BulkChecksum};
use crate::job;
use crate::service::{Answer, Call, Peer, Service};

/// A target of the same process, as one session reaches it.
pub(crate) struct Lo {
    driver: Arc<Driver>,
    service: Arc<dyn Service>,
    peer: Peer,
    verify: bool,
}

/// Where a request stands with the session in this process.
pub(crate) enum Here {
    /// It may go.
    Go(Arc<Lo>, Passed),
    /// There is no room now.
    Full,
    /// The session is not open in this process.
    Elsewhere,
}

/// A request that may go, with the session as it is.
pub(crate) struct Passed {
    ticket: Ticket,
    session: u64,
    session_epoch: u64,
}

impl Driver {
    /// Lets a request go to the target of this process, if the session is open there.
    pub(crate) fn pass(&self, request: &Request, options: Options) -> Here {
        self.look_at(|state| {
            let Some(Carrier::Lo(lo)) = &state.carrier else { return Here::Elsewhere };
            let asks = Asks { changes: request.changes(), contends: request.contends() };
            match state.machine.pass(asks, options.era) {
                Pass::Go(ticket) => {
                    let known = state.machine.known();
                    let (session, session_epoch) = (known.session, known.epoch);
                    Here::Go(lo.clone(), Passed { ticket, session, session_epoch })
                }
                Pass::Full => Here::Full,
                Pass::Elsewhere => Here::Elsewhere,
            }
        })
    }
}

impl Lo {
    pub(crate) fn new(driver: Arc<Driver>, service: Arc<dyn Service>, peer: Peer) -> Lo {
        let verify = driver.hub.rt().verify();
        Lo { driver, service, peer, verify }
    }

    /// Who this process is to its own targets.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Asks for a session.
    pub(crate) async fn connect(&self, call: Call) -> Result<Reply, Code> {
        self.service.clone().call(call).await.result
    }

    /// Calls the target. A caller that goes away leaves the call to a task of its own.
    pub(crate) fn start(
        self: Arc<Self>,
        passed: Passed,
        request: Request,
        bulk: Vec<Bytes>,
        job: JobId,
    ) -> Pending {
        let Passed { ticket, session, session_epoch } = passed;
        let call = Call {
            peer: self.peer.clone(),
            target: self.driver.target,
            session,
            session_epoch,
            xid: ticket.xid,
            slot: ticket.slot,
            resent: false,
            unchecked: false,
            replay: None,
            request,
            bulk,
            job,
        };
        let mut opcode = 0;
        if self.verify {
            verify_request(&call);
            opcode = call.request.opcode();
        }
        let future = Some(self.service.clone().call(call));
        Pending { lo: self, ticket, session, opcode, future }
    }

    /// Sends a request that the machine keeps; its answer is an event.
    pub(crate) fn carry(self: &Arc<Self>, header: Header, message: &Arc<Message>) {
        let request = Request::take_body(message.opcode, message.body.clone());
        let request = request.expect("a body that this process encoded decodes");
        let call = Call {
            peer: self.peer.clone(),
            target: header.target,
            session: header.session,
            session_epoch: header.session_epoch,
            xid: header.xid,
            slot: frame::slot_of(&header),
            resent: header.flags & FLAG_RESENT != 0,
            unchecked: false,
            replay: (header.flags & FLAG_REPLAY != 0).then_some(header.transno),
            request,
            bulk: message.bulk.clone(),
            job: header.job,
        };
        if self.verify {
            verify_request(&call);
        }
        let answer = self.service.clone().call(call);
        let lo = self.clone();
        self.driver.hub.rt().spawn(async move {
            let Answer { result, bulk, transno, last_committed, room } = answer.await;
            if lo.verify {
                verify_reply(header.opcode, &result, &bulk);
            }
            let (xid, session_epoch) = (header.xid, header.session_epoch);
            let reply = Incoming { xid, session_epoch, transno, last_committed, room, result, bulk };
            lo.driver.on(Event::Replies(vec![reply]));
        });
    }

    fn finish(&self, ticket: Ticket, answer: &Answer) {
        let Answer { transno, last_committed, room, .. } = *answer;
        let outputs =
            self.driver.look_at(|state| state.machine.passed(ticket, transno, last_committed, room));
        if !outputs.is_empty() {
            self.driver.carry_out(outputs, None);
        }
    }
}

/// A call on its way.
pub(crate) struct Pending {
    lo: Arc<Lo>,
    ticket: Ticket,
    session: u64,
    /// Of the request, for the comparison.
    opcode: u16,
    future: Option<BoxFuture<'static, Answer>>,
}

impl Pending {
    pub(crate) fn lo(&self) -> &Arc<Lo> {
        &self.lo
    }

    /// The session in which the target answers.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let future = this.future.as_mut().expect("polled after its end");
        let _left = job::leave();
        let Poll::Ready(answer) = future.as_mut().poll(cx) else { return Poll::Pending };
        this.future = None;
        this.lo.finish(this.ticket, &answer);
        if this.lo.verify {
            verify_reply(this.opcode, &answer.result, &answer.bulk);
        }
        Poll::Ready(answer)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        let (lo, ticket) = (self.lo.clone(), self.ticket);
        let rt = lo.driver.hub.rt().clone();
        rt.spawn(async move {
            let answer = future.await;
            lo.finish(ticket, &answer);
        });
    }
}

/// The header of a call.
fn header_of(call: &Call) -> Header {
    let mut flags = 0;
    if call.resent {
        flags |= FLAG_RESENT;
    }
    if call.replay.is_some() {
        flags |= FLAG_REPLAY;
    }
    Header {
        flags,
        session: call.session,
        session_epoch: call.session_epoch,
        transno: call.replay.unwrap_or(Transno(0)),
        slot: call.slot.unwrap_or(SLOT_NONE),
        job: call.job,
        ..frame::header(call.request.opcode(), call.target, call.xid)
    }
}

/// Encodes, decodes and compares: what works in one process has to work between two.
pub(crate) fn verify_request(call: &Call) {
    verify_message(header_of(call), &call.request, call.bulk.clone());
}

pub(crate) fn verify_message(header: Header, original: &Request, bulk: Vec<Bytes>) {
    let mut body = Vec::new();
    original.put_body(&mut body);
    let frame = frame::encode_with_bulk(header, &body, bulk, BulkChecksum::Added);
    let (header, body, _) = frame::decode(frame).expect("an encoded request decodes");
    assert_eq!(
        Header::decode(&header.encode()).as_ref(),
        Ok(&header),
        "headers survive {HEADER_BYTES} bytes"
    );
    let request = Request::take_body(header.opcode, body).expect("an encoded request decodes");
    assert_eq!(&request, original, "a request changed on the wire");
}

pub(crate) fn verify_reply(opcode: u16, result: &Result<Reply, Code>, bulk: &[Bytes]) {
    match result {
        Err(code) => assert_eq!(Code::from_u32(code.to_u32()), Some(*code), "a code changed on the wire"),
        Ok(reply) => {
            assert_eq!(reply.opcode(), opcode, "the target answers what was asked");
            let mut body = Vec::new();
            reply.put_body(&mut body);
            let mut header = frame::header(opcode, proto::TargetId::MGS, Xid(0));
            header.flags = FLAG_REPLY;
            let frame = frame::encode_with_bulk(header, &body, bulk.to_vec(), BulkChecksum::Added);
            let (header, body, _) = frame::decode(frame).expect("an encoded reply decodes");
            let decoded = Reply::take_body(header.opcode, body).expect("an encoded reply decodes");
            assert_eq!(&decoded, reply, "a reply changed on the wire");
        }
    }
}
