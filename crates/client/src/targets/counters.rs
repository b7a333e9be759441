//! What a session counts: its requests for data, its changes, and how long each operation takes.

use std::sync::Arc;

use proto::TargetKind;
use proto::wire::messages::Operation;
use rt::{Rt, Time};

use super::counting::{Counted, Counting, DISABLED, Slot};
use super::rpcs::{Changes, Rpcs};
use super::times::Times;

/// The statistics of a session. Nothing is made of them before it is counted, or while they are switched off.
pub(crate) struct Counters {
    rt: Rt,
    counting: Arc<Counting>,
    rpcs: Slot<Rpcs>,
    changes: Slot<Changes>,
    times: Slot<Times>,
}

impl Counters {
    /// Nothing was counted yet.
    pub(super) fn new(rt: Rt, counting: Arc<Counting>) -> Counters {
        Counters { rt, counting, rpcs: Slot::empty(), changes: Slot::empty(), times: Slot::empty() }
    }

    /// Where requests for data are counted.
    pub(crate) fn rpcs(&self) -> Counted {
        Counted(self.rpcs.get_or_make(&self.counting, || Rpcs::new(&self.rt)))
    }

    /// Where changes of names and attributes are counted.
    pub(super) fn changes(&self) -> Option<Arc<Changes>> {
        self.changes.get_or_make(&self.counting, || Changes::new(&self.rt))
    }

    /// A request is sent.
    pub(super) fn begin(&self) -> Time {
        self.rt.now()
    }

    /// One that was sent then has its answer, or none.
    pub(super) fn done<O: Operation>(&self, began: Time) {
        if let Some(times) = self.times.get_or_make(&self.counting, || Times::new(&self.rt)) {
            times.note(O::OPCODE, self.rt.now() - began);
        }
    }

    /// The text of `rpc_stats` of a session with a target of `kind`, which has not taken so many bytes yet. Whoever looks at a session without
    /// requests makes it no larger.
    pub(crate) fn rpc_stats(&self, kind: TargetKind, dirty_bytes: u64) -> String {
        let rt = &self.rt;
        if !self.counting.is_on() {
            return DISABLED.to_owned();
        }
        match kind {
            TargetKind::Ost => match self.rpcs.get() {
                Some(rpcs) => rpcs.text(rt, dirty_bytes),
                None => Rpcs::new(rt).text(rt, dirty_bytes),
            },
            _ => match self.changes.get() {
                Some(changes) => changes.text(rt),
                None => Changes::new(rt).text(rt),
            },
        }
    }

    /// They begin anew.
    pub(crate) fn clear_rpc_stats(&self) {
        if let Some(rpcs) = self.rpcs.get() {
            rpcs.clear(&self.rt);
        }
        if let Some(changes) = self.changes.get() {
            changes.clear(&self.rt);
        }
    }

    /// The text of `stats`.
    pub(crate) fn stats(&self) -> String {
        match self.times.get() {
            _ if !self.counting.is_on() => DISABLED.to_owned(),
            Some(times) => times.text(&self.rt),
            None => Times::new(&self.rt).text(&self.rt),
        }
    }

    /// They begin anew.
    pub(crate) fn clear_stats(&self) {
        if let Some(times) = self.times.get() {
            times.clear(&self.rt);
        }
    }

    /// All memory is given back.
    pub(super) fn give_up(&self) {
        self.rpcs.clear();
        self.changes.clear();
        self.times.clear();
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.rpcs.bytes() + self.changes.bytes() + self.times.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a target without statistics keeps for them: FEATURES I8 allows 64 bytes.
    #[test]
    fn a_session_that_counts_nothing_takes_little() {
        let off = size_of::<Counters>() - size_of::<Rt>();
        assert!(off <= 64, "{off}");
    }
}
