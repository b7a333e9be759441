//! The target's end of a session: the newest request of each reply slot.

use std::collections::BTreeMap;

use super::record::ReplyRecord;
use crate::ids::Xid;
use crate::limits::SLOTS_MAX;

/// What to do with a request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It was never seen: carry it out. It counts as in progress from now on.
    New,
    /// It came before and has no answer yet: the answer, when it comes, is for this one too.
    InProgress,
    /// It came before and was answered: give this answer again, change nothing.
    Answered(ReplyRecord),
    /// It came before and was turned away: the client asks again with a new number, and this one must never be carried
    /// out.
    TurnedAway,
    /// A newer request of its slot came before: the client has the answer already. Drop it.
    Stale,
    /// The slot is none that the client may use, or still has an older request in progress: the client broke the
    /// rules.
    Broken,
}

#[derive(Debug, Clone)]
enum Slot {
    InProgress(Xid),
    Answered(ReplyRecord),
    TurnedAway(Xid),
}

/// Reply slots of one session. Memory grows with the slots that are used.
#[derive(Debug, Clone, Default)]
pub struct SlotTable {
    slots: BTreeMap<u32, Slot>,
}

impl SlotTable {
    /// No slot used.
    pub fn new() -> SlotTable {
        SlotTable::default()
    }

    /// Decides about request `xid` in `slot`.
    pub fn begin(&mut self, slot: u32, xid: Xid) -> Decision {
        if slot >= SLOTS_MAX {
            return Decision::Broken;
        }
        match self.slots.get(&slot) {
            Some(Slot::InProgress(known)) if *known == xid => return Decision::InProgress,
            Some(Slot::InProgress(known)) if *known < xid => return Decision::Broken,
            Some(Slot::Answered(record)) if record.xid == xid => return Decision::Answered(record.clone()),
            Some(Slot::Answered(record)) if record.xid < xid => {}
            Some(Slot::TurnedAway(known)) if *known == xid => return Decision::TurnedAway,
            Some(Slot::TurnedAway(known)) if *known < xid => {}
            Some(_) => return Decision::Stale,
            None => {}
        }
        self.slots.insert(slot, Slot::InProgress(xid));
        Decision::New
    }

    /// Request `record.xid`, which [`SlotTable::begin`] found new, has this answer.
    pub fn answered(&mut self, slot: u32, record: ReplyRecord) {
        if matches!(self.slots.get(&slot), Some(Slot::InProgress(xid)) if *xid == record.xid) {
            self.slots.insert(slot, Slot::Answered(record));
        }
    }

    /// Request `xid` was answered by "try again": whatever of it is still on its way comes too late.
    pub fn turn_away(&mut self, slot: u32, xid: Xid) {
        if matches!(self.slots.get(&slot), Some(Slot::InProgress(known)) if *known == xid) {
            self.slots.insert(slot, Slot::TurnedAway(xid));
        }
    }

    /// Request `xid` was given up without a change or an answer: it is new if it comes again.
    pub fn abandon(&mut self, slot: u32, xid: Xid) {
        if matches!(self.slots.get(&slot), Some(Slot::InProgress(known)) if *known == xid) {
            self.slots.remove(&slot);
        }
    }

    /// Takes over a record from disk, or of a replay; an older one than what is known is ignored.
    pub fn restore(&mut self, slot: u32, record: ReplyRecord) {
        let newer = match self.slots.get(&slot) {
            None => true,
            Some(Slot::InProgress(xid) | Slot::TurnedAway(xid)) => *xid <= record.xid,
            Some(Slot::Answered(known)) => known.xid <= record.xid,
        };
        if newer && slot < SLOTS_MAX {
            self.slots.insert(slot, Slot::Answered(record));
        }
    }

    /// The last answer of every slot that has one, by slot.
    pub fn records(&self) -> impl Iterator<Item = (u32, &ReplyRecord)> {
        self.slots.iter().filter_map(|(slot, state)| match state {
            Slot::Answered(record) => Some((*slot, record)),
            Slot::InProgress(_) | Slot::TurnedAway(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::ids::Transno;

    fn record(xid: u64) -> ReplyRecord {
        ReplyRecord::new(Xid(xid), 24, &Err(Code::Exists), Transno(0))
    }

    /// A request was answered by "try again", and the network delivered it once more after that: carried out then, it made
    /// the client's next attempt fail (mkdir of a new name: "exists").
    #[test]
    fn a_request_that_was_turned_away_is_never_carried_out() {
        let mut table = SlotTable::new();
        table.answered(3, record(9));
        assert_eq!(table.begin(3, Xid(10)), Decision::New);
        table.turn_away(3, Xid(10));
        assert_eq!(table.begin(3, Xid(10)), Decision::TurnedAway);
        assert_eq!(table.begin(3, Xid(9)), Decision::Stale);
        assert_eq!(table.begin(3, Xid(11)), Decision::New);
        table.turn_away(3, Xid(10));
        assert_eq!(table.begin(3, Xid(11)), Decision::InProgress);
    }

    #[test]
    fn a_request_that_comes_again_gets_its_old_answer() {
        let mut table = SlotTable::new();
        assert_eq!(table.begin(3, Xid(10)), Decision::New);
        assert_eq!(table.begin(3, Xid(10)), Decision::InProgress);
        table.answered(3, record(10));
        assert_eq!(table.begin(3, Xid(10)), Decision::Answered(record(10)));
        assert_eq!(table.begin(3, Xid(12)), Decision::New);
        assert_eq!(table.begin(3, Xid(10)), Decision::Stale);
    }

    #[test]
    fn slots_do_not_know_each_other() {
        let mut table = SlotTable::new();
        assert_eq!(table.begin(0, Xid(5)), Decision::New);
        assert_eq!(table.begin(1, Xid(4)), Decision::New);
    }

    #[test]
    fn a_client_that_breaks_the_rules_is_found_out() {
        let mut table = SlotTable::new();
        assert_eq!(table.begin(SLOTS_MAX, Xid(1)), Decision::Broken);
        assert_eq!(table.begin(0, Xid(1)), Decision::New);
        assert_eq!(table.begin(0, Xid(2)), Decision::Broken);
    }

    #[test]
    fn an_abandoned_request_is_new_again() {
        let mut table = SlotTable::new();
        assert_eq!(table.begin(0, Xid(1)), Decision::New);
        table.abandon(0, Xid(1));
        assert_eq!(table.begin(0, Xid(1)), Decision::New);
    }

    #[test]
    fn records_survive_a_restart() {
        let mut table = SlotTable::new();
        assert_eq!(table.begin(7, Xid(10)), Decision::New);
        table.answered(7, record(10));
        let mut after = SlotTable::new();
        for (slot, record) in table.records() {
            after.restore(slot, record.clone());
        }
        after.restore(7, record(9));
        assert_eq!(after.begin(7, Xid(10)), Decision::Answered(record(10)));
        assert_eq!(after.begin(7, Xid(9)), Decision::Stale);
    }
}
