//! Requests to a target of the same process: a direct call, polled on the caller's thread.
//!
//! This is the way of every request on a machine that runs all roles, so it does little: a slot and a number from
//! atomics, the call, two marks. Nothing is encoded, and nothing is kept for a replay: client and target live and
//! die together, so there is no restart after which the client could still send anything again. A target that is
//! taken out of the process in order has made everything durable before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use proto::limits::SLOTS_MAX;
use proto::wire::header::{FLAG_REPLAY, FLAG_REPLY, FLAG_RESENT, HEADER_BYTES, JobId, Room, SLOT_NONE};
use proto::wire::{Header, Reply, Request};
use proto::{Code, Transno, Xid};
use rt::sync::Notify;
use rt::{BoxFuture, Rt};

use crate::frame;
use crate::service::{Answer, Call, Peer, Service};

const WORDS: usize = SLOTS_MAX as usize / 64;

/// Reply slots as bits: set means used.
struct Slots {
    words: [AtomicU64; WORDS],
    waiting: AtomicU32,
    freed: Notify,
}

impl Slots {
    fn new(count: u32) -> Slots {
        let count = count.clamp(1, SLOTS_MAX) as usize;
        let word = |n: usize| match count.saturating_sub(n * 64) {
            0 => u64::MAX,
            some if some >= 64 => 0,
            some => u64::MAX << some,
        };
        Slots {
            words: std::array::from_fn(|n| AtomicU64::new(word(n))),
            waiting: AtomicU32::new(0),
            freed: Notify::new(),
        }
    }

    /// A free slot; the search starts in another word for each `hint`, so that threads do not meet. The last quarter is
    /// kept for what never waits for other clients, as a session over a connection does.
    fn try_take(&self, contends: bool, hint: u64) -> Option<u32> {
        let words = if contends { WORDS - WORDS / 4 } else { WORDS };
        for n in 0..words {
            let index = (hint as usize + n) % words;
            let word = &self.words[index];
            let mut used = word.load(Ordering::Relaxed);
            while used != u64::MAX {
                let bit = used.trailing_ones();
                match word.compare_exchange_weak(used, used | 1 << bit, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => return Some(index as u32 * 64 + bit),
                    Err(now) => used = now,
                }
            }
        }
        None
    }

    async fn take(&self, contends: bool, hint: u64) -> u32 {
        if let Some(slot) = self.try_take(contends, hint) {
            return slot;
        }
        let _waiting = Waiting::new(&self.waiting);
        loop {
            // Listening and counted as waiting before this look: whoever frees a slot behind it wakes this task.
            let freed = self.freed.notified();
            if let Some(slot) = self.try_take(contends, hint) {
                return slot;
            }
            freed.await;
        }
    }

    fn free(&self, slot: u32) {
        self.words[slot as usize / 64].fetch_and(!(1 << (slot % 64)), Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

struct Waiting<'a>(&'a AtomicU32);

impl Waiting<'_> {
    fn new(count: &AtomicU32) -> Waiting<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How far a target is, as far as replies have told.
#[derive(Default)]
pub(crate) struct Marks {
    last_committed: AtomicU64,
    /// The largest of these ever: a target that has less is not the one that it was.
    highest: AtomicU64,
    /// The newest change that was answered over a connection, where it is kept for a replay.
    kept: AtomicU64,
    /// The newest change that was answered in this process, where nothing is kept.
    unkept: AtomicU64,
    advanced: Notify,
    /// How much may be written before it is sent, as the newest answer said.
    room: AtomicU32,
}

impl Marks {
    /// Notes what a reply over a connection said.
    pub(crate) fn note(&self, transno: Transno, last_committed: Transno) {
        self.kept.fetch_max(transno.0, Ordering::Relaxed);
        self.note_committed(last_committed);
    }

    /// Notes what a reply within this process said.
    fn note_unkept(&self, transno: Transno, last_committed: Transno) {
        if transno.0 > self.unkept.load(Ordering::Relaxed) {
            self.unkept.fetch_max(transno.0, Ordering::Relaxed);
        }
        self.note_committed(last_committed);
    }

    pub(crate) fn note_committed(&self, last_committed: Transno) {
        if last_committed.0 > self.last_committed.load(Ordering::Relaxed) {
            self.last_committed.fetch_max(last_committed.0, Ordering::AcqRel);
            self.highest.fetch_max(last_committed.0, Ordering::AcqRel);
            self.advanced.notify_waiters();
        }
    }

    /// The target is another than before, or lost changes: the marks start again.
    pub(crate) fn reset(&self, last_committed: Transno) {
        self.kept.store(0, Ordering::Relaxed);
        self.unkept.store(0, Ordering::Relaxed);
        self.last_committed.store(last_committed.0, Ordering::Release);
        self.highest.fetch_max(last_committed.0, Ordering::AcqRel);
        self.advanced.notify_waiters();
    }

    /// The newest change of which this client was ever told that it is durable.
    pub(crate) fn highest(&self) -> Transno {
        Transno(self.highest.load(Ordering::Acquire))
    }

    pub(crate) fn note_room(&self, room: Room) {
        if room.0 != 0 && room.0 != self.room.load(Ordering::Relaxed) {
            self.room.store(room.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn room(&self) -> Room {
        Room(self.room.load(Ordering::Relaxed))
    }

    pub(crate) fn wake(&self) {
        self.advanced.notify_waiters();
    }

    /// The next time that the commit mark moves, from this call on.
    pub(crate) fn advanced(&self) -> impl Future<Output = ()> + '_ {
        self.advanced.notified()
    }

    pub(crate) fn last_committed(&self) -> Transno {
        Transno(self.last_committed.load(Ordering::Acquire))
    }

    /// The newest change that was answered.
    pub(crate) fn newest(&self) -> Transno {
        Transno(self.kept.load(Ordering::Relaxed)).max(self.unkept())
    }

    /// The newest change that was answered and could not be replayed.
    pub(crate) fn unkept(&self) -> Transno {
        Transno(self.unkept.load(Ordering::Relaxed))
    }
}

/// What a connected `Lo` needs to know.
pub(crate) struct LoConfig {
    pub(crate) rt: Rt,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) session: u64,
    pub(crate) session_epoch: u64,
    pub(crate) target: proto::TargetId,
    pub(crate) peer: Peer,
    pub(crate) slots: u32,
    /// The session's requests so far end here.
    pub(crate) last_xid: Xid,
}

/// An open session with a target of the same process.
pub(crate) struct Lo {
    config: LoConfig,
    verify: bool,
    slots: Slots,
    last_xid: AtomicU64,
}

impl Lo {
    pub(crate) fn new(config: LoConfig) -> Lo {
        let slots = Slots::new(config.slots);
        let last_xid = AtomicU64::new(config.last_xid.0);
        Lo { verify: config.rt.verify(), slots, last_xid, config }
    }

    /// The session.
    pub(crate) fn session(&self) -> u64 {
        self.config.session
    }

    /// The newest number that was given to a request.
    pub(crate) fn last_xid(&self) -> Xid {
        Xid(self.last_xid.load(Ordering::SeqCst))
    }

    /// The slot that `request` needs, if it needs one; `None` if there is none now.
    pub(crate) fn try_slot(&self, request: &Request) -> Option<Option<u32>> {
        match request.changes() {
            true => self.slots.try_take(request.contends(), self.last_xid.load(Ordering::Relaxed)).map(Some),
            false => Some(None),
        }
    }

    /// Calls the target as soon as there is a slot.
    pub(crate) async fn call(self: Arc<Self>, request: Request, bulk: Vec<Bytes>, job: JobId) -> Answer {
        let slot = match request.changes() {
            true => Some(self.slots.take(request.contends(), self.last_xid.load(Ordering::Relaxed)).await),
            false => None,
        };
        self.start(slot, request, bulk, job).await
    }

    /// Calls the target. A caller that goes away leaves the call to a task of its own.
    pub(crate) fn start(
        self: Arc<Self>,
        slot: Option<u32>,
        request: Request,
        bulk: Vec<Bytes>,
        job: JobId,
    ) -> Pending {
        // The number is drawn after the slot: within a slot numbers only grow.
        let xid = Xid(self.last_xid.fetch_add(1, Ordering::SeqCst) + 1);
        let call = Call {
            peer: self.config.peer.clone(),
            target: self.config.target,
            session: self.config.session,
            session_epoch: self.config.session_epoch,
            xid,
            slot,
            resent: false,
            replay: None,
            job,
            request,
            bulk,
        };
        let mut opcode = 0;
        if self.verify {
            verify_request(&call);
            opcode = call.request.opcode();
        }
        let future = Some(self.config.service.clone().call(call));
        Pending { lo: self, slot, opcode, future }
    }

    fn finish(&self, slot: Option<u32>, answer: &Answer) {
        if let Some(slot) = slot {
            self.slots.free(slot);
        }
        self.config.marks.note_unkept(answer.transno, answer.last_committed);
        self.config.marks.note_room(answer.room);
    }
}

/// A call on its way.
pub(crate) struct Pending {
    lo: Arc<Lo>,
    slot: Option<u32>,
    /// Of the request, for the comparison.
    opcode: u16,
    future: Option<BoxFuture<'static, Answer>>,
}

impl Pending {
    pub(crate) fn lo(&self) -> &Arc<Lo> {
        &self.lo
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let future = this.future.as_mut().expect("polled after its end");
        let Poll::Ready(answer) = future.as_mut().poll(cx) else { return Poll::Pending };
        this.future = None;
        this.lo.finish(this.slot, &answer);
        if this.lo.verify {
            verify_reply(this.opcode, &answer.result, &answer.bulk);
        }
        Poll::Ready(answer)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        let (lo, slot) = (self.lo.clone(), self.slot);
        let rt = lo.config.rt.clone();
        rt.spawn(async move {
            let answer = future.await;
            lo.finish(slot, &answer);
        });
    }
}

/// The header of a call.
pub(crate) fn header_of(call: &Call) -> Header {
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
    let frame = frame::encode(header, &body, bulk, true);
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
            let frame = frame::encode(header, &body, bulk.to_vec(), true);
            let (header, body, _) = frame::decode(frame).expect("an encoded reply decodes");
            let decoded = Reply::take_body(header.opcode, body).expect("an encoded reply decodes");
            assert_eq!(&decoded, reply, "a reply changed on the wire");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_many_as_were_granted() {
        for count in [1, 63, 64, 65, 130, SLOTS_MAX] {
            let slots = Slots::new(count);
            let mut taken: Vec<u32> = std::iter::from_fn(|| slots.try_take(false, 3)).collect();
            taken.sort_unstable();
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
            slots.free(count / 2);
            assert_eq!(slots.try_take(false, 0), Some(count / 2));
        }
    }

    #[test]
    fn what_waits_for_others_leaves_slots_for_those_who_do_not() {
        let slots = Slots::new(SLOTS_MAX);
        let taken = std::iter::from_fn(|| slots.try_take(true, 3)).count();
        assert_eq!(taken, SLOTS_MAX as usize * 3 / 4);
        assert!(slots.try_take(false, 0).is_some());
    }

    #[test]
    fn marks_only_grow() {
        let marks = Marks::default();
        marks.note(Transno(5), Transno(3));
        marks.note(Transno(4), Transno(2));
        assert_eq!((marks.newest(), marks.last_committed()), (Transno(5), Transno(3)));
        marks.reset(Transno(1));
        assert_eq!((marks.newest(), marks.last_committed()), (Transno(0), Transno(1)));
    }
}
