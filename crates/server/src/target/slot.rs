//! Reply slots: each holds the answer to the last change of one of a client's slots.
//!
//! A client uses a slot for one change at a time. The answer is kept in memory and, if the target changed, in the
//! record that went to disk with the change.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::SLOTS_MAX;
use proto::wire::{Reader, Reply};
use proto::{Code, Transno, Xid};
use rpc::Answer;
use rt::sync::oneshot;

use super::context::VERSION_OF_THIS;
use super::session::Session;

/// Version of the format of a record.
const FORMAT: u8 = 1;

/// A kept answer.
pub(super) enum Saved {
    /// As it lies in the store.
    Record { record: Bytes, transno: Transno },
    /// Of a request that changed nothing after all, or was refused.
    Answer(Box<Answer>),
}

enum State {
    Empty,
    Running { xid: Xid, waiter: Option<oneshot::Sender<()>> },
    Done { xid: Xid, saved: Saved },
}

/// What to do with a request that came for a slot.
pub(super) enum Begin {
    /// It is new: carry it out.
    Run,
    /// It was carried out: this is its answer.
    Answered(Box<Answer>),
    /// It is being carried out: ask again when this is over.
    UnderWay(oneshot::Receiver<()>),
    /// The client breaks the rules of slots, or the request is one of long ago.
    Refused(Code),
}

/// A session's slots; made as far as the client uses them.
#[derive(Default)]
pub struct Slots {
    states: Mutex<Vec<State>>,
}

impl Slots {
    pub(super) fn begin(&self, slot: u32, xid: Xid) -> Begin {
        if slot >= SLOTS_MAX {
            return Begin::Refused(Code::Malformed);
        }
        let mut states = self.states.lock();
        let state = state_of(&mut states, slot);
        match state {
            State::Running { xid: running, waiter } if *running == xid => {
                let (sender, receiver) = oneshot::channel();
                *waiter = Some(sender);
                return Begin::UnderWay(receiver);
            }
            State::Running { .. } => return Begin::Refused(Code::Busy),
            State::Done { xid: done, saved } if *done == xid => return saved.answer(),
            State::Done { xid: done, .. } if *done > xid => return Begin::Refused(Code::Invalid),
            State::Done { .. } | State::Empty => {}
        }
        *state = State::Running { xid, waiter: None };
        Begin::Run
    }

    /// Fills a slot from its record in the store.
    pub(super) fn restore(&self, slot: u32, record: Bytes, transno: Transno) -> Option<()> {
        let (xid, _) = decode(&record)?;
        if slot < SLOTS_MAX {
            *state_of(&mut self.states.lock(), slot) =
                State::Done { xid, saved: Saved::Record { record, transno } };
        }
        Some(())
    }

    fn end(&self, slot: u32, xid: Xid, saved: Option<Saved>) {
        let mut states = self.states.lock();
        let state = state_of(&mut states, slot);
        let next = saved.map_or(State::Empty, |saved| State::Done { xid, saved });
        // The waiter asks again, and finds the answer or carries the request out itself.
        if let State::Running { waiter: Some(waiter), .. } = std::mem::replace(state, next) {
            let _ = waiter.send(());
        }
    }
}

fn state_of(states: &mut Vec<State>, slot: u32) -> &mut State {
    let slot = slot as usize;
    if states.len() <= slot {
        states.resize_with(slot + 1, || State::Empty);
    }
    &mut states[slot]
}

impl Saved {
    fn answer(&self) -> Begin {
        match self {
            Saved::Answer(answer) => Begin::Answered(answer.clone()),
            Saved::Record { record, transno } => match decode(record) {
                Some((_, mut reply)) => {
                    stamp(&mut reply, *transno);
                    Begin::Answered(Box::new(Answer {
                        result: Ok(reply),
                        bulk: Vec::new(),
                        transno: *transno,
                        last_committed: Transno(0),
                    }))
                }
                None => Begin::Refused(Code::Corrupt),
            },
        }
    }
}

/// A change that is being carried out. Dropped before it finished, it leaves the slot as if it had not come.
pub(super) struct Running<S> {
    session: Arc<Session<S>>,
    slot: u32,
    xid: Xid,
    finished: bool,
}

impl<S> Running<S> {
    pub(super) fn new(session: &Arc<Session<S>>, slot: u32, xid: Xid) -> Running<S> {
        Running { session: session.clone(), slot, xid, finished: false }
    }

    pub(super) fn finish(mut self, saved: Saved) {
        self.finished = true;
        self.session.slots().end(self.slot, self.xid, Some(saved));
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        if !self.finished {
            self.session.slots().end(self.slot, self.xid, None);
        }
    }
}

/// The record of `reply`: format, xid, opcode, body.
pub(super) fn encode(xid: Xid, reply: &Reply) -> Bytes {
    let mut record = Vec::with_capacity(256);
    record.push(FORMAT);
    record.extend_from_slice(&xid.0.to_le_bytes());
    record.extend_from_slice(&reply.opcode().to_le_bytes());
    reply.put_body(&mut record);
    record.into()
}

/// The inverse of [`encode`].
pub(super) fn decode(record: &Bytes) -> Option<(Xid, Reply)> {
    let mut from = Reader::new(record.clone());
    if from.take::<u8>().ok()? != FORMAT {
        return None;
    }
    let xid = Xid(from.take().ok()?);
    let opcode = from.take().ok()?;
    let body = from.take_bytes(from.remaining()).ok()?;
    Some((xid, Reply::take_body(opcode, body).ok()?))
}

/// Puts the version that the change made where the reply says [`VERSION_OF_THIS`].
pub(super) fn stamp(reply: &mut Reply, transno: Transno) {
    let attr = match reply {
        Reply::Create(created) => &mut created.attr,
        Reply::Open(opened) => &mut opened.attr,
        Reply::Link(entry) | Reply::SetAttr(entry) | Reply::SetLayout(entry) => &mut entry.attr,
        _ => return,
    };
    if attr.version == VERSION_OF_THIS {
        attr.version = transno.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::messages as msg;

    fn reply() -> Reply {
        Reply::Close(msg::Done {})
    }

    #[test]
    fn a_record_gives_its_reply_back() {
        assert_eq!(decode(&encode(Xid(9), &reply())), Some((Xid(9), reply())));
        assert_eq!(decode(&Bytes::from_static(&[FORMAT, 1, 2])), None);
        assert_eq!(decode(&Bytes::from_static(&[9; 20])), None);
    }

    #[test]
    fn a_slot_answers_once_and_again() {
        let slots = Slots::default();
        assert!(matches!(slots.begin(3, Xid(5)), Begin::Run));
        let Begin::UnderWay(mut again) = slots.begin(3, Xid(5)) else { panic!("the request is under way") };
        assert!(matches!(slots.begin(3, Xid(6)), Begin::Refused(Code::Busy)));
        let record = encode(Xid(5), &reply());
        slots.end(3, Xid(5), Some(Saved::Record { record, transno: Transno(8) }));
        assert!(again.try_recv().is_ok());
        let Begin::Answered(answer) = slots.begin(3, Xid(5)) else { panic!("the request was answered") };
        assert_eq!((answer.result, answer.transno), (Ok(reply()), Transno(8)));
        assert!(matches!(slots.begin(3, Xid(4)), Begin::Refused(Code::Invalid)));
        assert!(matches!(slots.begin(3, Xid(6)), Begin::Run));
        slots.end(3, Xid(6), None);
        assert!(matches!(slots.begin(3, Xid(6)), Begin::Run));
        assert!(matches!(slots.begin(SLOTS_MAX, Xid(1)), Begin::Refused(Code::Malformed)));
    }
}
