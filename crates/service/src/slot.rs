//! The reply slots of a session, and who waits for the answer to a request that came twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::session::{Decision, ReplyRecord, SlotTable};
use proto::wire::Reply;
use proto::wire::header::Room;
use proto::{Code, Transno, Xid};
use rpc::Answer;
use rt::sync::oneshot;

use crate::session::Session;

/// What to do with a request that came for a slot.
pub(crate) enum Begin {
    /// It is new: carry it out.
    Run,
    /// It was carried out: this is its answer.
    Answered(Box<Answer>),
    /// It is being carried out: ask again when this is over.
    UnderWay(oneshot::Receiver<()>),
    /// The client breaks the rules of slots, or the request is one of long ago.
    Refused(Code),
}

/// A session's slots.
#[derive(Default)]
pub struct Slots {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: SlotTable,
    /// At most one for each slot: whoever asked before did so over an older connection.
    waiters: BTreeMap<u32, oneshot::Sender<()>>,
}

impl Slots {
    /// `stamp`: see [`super::Handler::stamp`].
    pub(crate) fn begin(&self, slot: u32, xid: Xid, stamp: fn(&mut Reply, Transno)) -> Begin {
        let mut state = self.state.lock();
        match state.table.begin(slot, xid) {
            Decision::New => Begin::Run,
            Decision::InProgress => {
                let (sender, receiver) = oneshot::channel();
                state.waiters.insert(slot, sender);
                Begin::UnderWay(receiver)
            }
            Decision::Answered(record) => {
                drop(state);
                answer_of(&record, stamp)
                    .map_or(Begin::Refused(Code::Corrupt), |a| Begin::Answered(Box::new(a)))
            }
            Decision::TurnedAway => Begin::Refused(Code::TryAgain),
            Decision::Stale => Begin::Refused(Code::Invalid),
            Decision::Broken => Begin::Refused(Code::Malformed),
        }
    }

    /// Fills a slot from its record in the store.
    pub(crate) fn restore(&self, slot: u32, record: ReplyRecord) {
        self.state.lock().table.restore(slot, record);
    }

    fn end(&self, slot: u32, xid: Xid, end: End) {
        let mut state = self.state.lock();
        match end {
            End::Answered(record) => state.table.answered(slot, record),
            End::TurnedAway => state.table.turn_away(slot, xid),
            End::Abandoned => state.table.abandon(slot, xid),
        }
        // The waiter asks again, and finds the answer or carries the request out itself.
        if let Some(waiter) = state.waiters.remove(&slot) {
            let _ = waiter.send(());
        }
    }
}

/// How a change ended.
enum End {
    Answered(ReplyRecord),
    /// Its client asks again.
    TurnedAway,
    /// It got no answer.
    Abandoned,
}

/// A change that is being carried out. Dropped before it finished, it leaves the slot as if it had not come.
pub(crate) struct Running<S> {
    session: Arc<Session<S>>,
    slot: u32,
    xid: Xid,
    finished: bool,
}

impl<S> Running<S> {
    pub(crate) fn new(session: &Arc<Session<S>>, slot: u32, xid: Xid) -> Running<S> {
        Running { session: session.clone(), slot, xid, finished: false }
    }

    pub(crate) fn finish(mut self, record: ReplyRecord) {
        self.finished = true;
        self.session.slots().end(self.slot, self.xid, End::Answered(record));
    }

    /// The client is told to ask again, with a new number.
    pub(crate) fn turn_away(mut self) {
        self.finished = true;
        self.session.slots().end(self.slot, self.xid, End::TurnedAway);
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        if !self.finished {
            self.session.slots().end(self.slot, self.xid, End::Abandoned);
        }
    }
}

fn answer_of(record: &ReplyRecord, stamp: fn(&mut Reply, Transno)) -> Option<Answer> {
    let mut result = record.result().ok()?;
    if let Ok(reply) = &mut result {
        stamp(reply, record.transno);
    }
    Some(Answer {
        result,
        bulk: Vec::new(),
        transno: record.transno,
        last_committed: Transno(0),
        room: Room::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::messages as msg;

    fn record(xid: u64) -> ReplyRecord {
        ReplyRecord::new(Xid(xid), 26, &Ok(Reply::Close(msg::Settled::default())), Transno(8))
    }

    #[test]
    fn who_asks_while_a_request_is_under_way_gets_its_answer() {
        let slots = Slots::default();
        assert!(matches!(slots.begin(3, Xid(5), |_, _| {}), Begin::Run));
        let Begin::UnderWay(mut again) = slots.begin(3, Xid(5), |_, _| {}) else {
            panic!("the request is under way")
        };
        slots.end(3, Xid(5), End::Answered(record(5)));
        assert!(again.try_recv().is_ok());
        let Begin::Answered(answer) = slots.begin(3, Xid(5), |_, _| {}) else {
            panic!("the request was answered")
        };
        assert_eq!((answer.result, answer.transno), (Ok(Reply::Close(msg::Settled::default())), Transno(8)));
        assert!(matches!(slots.begin(3, Xid(4), |_, _| {}), Begin::Refused(Code::Invalid)));
        assert!(matches!(slots.begin(3, Xid(6), |_, _| {}), Begin::Run));
        slots.end(3, Xid(6), End::Abandoned);
        assert!(matches!(slots.begin(3, Xid(6), |_, _| {}), Begin::Run));
        slots.end(3, Xid(6), End::TurnedAway);
        assert!(matches!(slots.begin(3, Xid(6), |_, _| {}), Begin::Refused(Code::TryAgain)));
    }
}
