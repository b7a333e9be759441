//! How far a target is, as far as replies have told, and the one Sync that may be under way.

use std::collections::BTreeMap;

use super::event::{CallError, Output};
use crate::code::Code;
use crate::ids::Transno;
use crate::session::limits::LOST_RANGES_MAX;
use crate::wire::header::Room;

/// How far the target is.
#[derive(Debug, Default)]
pub struct Commits {
    last_committed: Transno,
    /// The largest of these ever: a target that has less is not the one that it was.
    highest: Transno,
    /// The newest change that was answered over a connection, where it is kept for a replay.
    kept: Transno,
    /// The newest change that was answered in this process, where nothing is kept.
    unkept: Transno,
    /// How much may be written before it is sent, as the newest answer said.
    room: Room,
    /// Changes that are replayed, by the transnos that their callers know: those that they have now, `PENDING` until the target has taken them
    /// again. What is durable is not among them.
    moved: BTreeMap<Transno, Transno>,
    /// Changes that were answered and are gone for ever: each range without its first, with its last.
    lost: Vec<(Transno, Transno)>,
    syncing: Syncing,
}

/// The transno of what is still to be replayed.
const PENDING: Transno = Transno(u64::MAX);

/// The one Sync that may be under way.
#[derive(Debug, Default)]
struct Syncing {
    running: bool,
    wanted: Transno,
    /// Counts failures, so that each waiter sees those that came while it waited.
    failures: u64,
    failure: Option<CallError>,
}

impl Commits {
    /// Every change up to here is durable.
    pub fn last_committed(&self) -> Transno {
        let moved = self.moved.first_key_value().map(|(told, _)| Transno(told.0 - 1));
        moved.map_or(self.last_committed, |before| before.min(self.last_committed))
    }

    /// Asks for a commit up to `transno` (0: of everything answered so far) unless one is on its way; then another
    /// follows it if it is not enough.
    pub(super) fn ask<W>(&mut self, transno: Transno, out: &mut Vec<Output<W>>) {
        if self.want(transno) {
            out.push(Output::Sync);
        }
    }

    /// The newest change of which this client was ever told that it is durable.
    pub fn highest(&self) -> Transno {
        self.highest
    }

    /// The newest change that was answered.
    pub fn newest(&self) -> Transno {
        self.kept.max(self.unkept)
    }

    /// How much may be written before it is sent.
    pub fn room(&self) -> Room {
        self.room
    }

    /// How often a Sync has failed.
    pub fn failures(&self) -> u64 {
        self.syncing.failures
    }

    /// Whether the change is durable, or is known not to become so; `None` if that is open. Only failures after the first
    /// `failures` count.
    pub fn durable(&self, transno: Transno, failures: u64) -> Option<Result<(), CallError>> {
        if self.lost.iter().any(|(from, to)| *from < transno && transno <= *to) {
            return Some(Err(CallError::Refused(Code::Evicted)));
        }
        if self.last_committed >= *self.moved.get(&transno).unwrap_or(&transno) {
            return Some(Ok(()));
        }
        self.syncing.failure.filter(|_| self.syncing.failures > failures).map(Err)
    }

    /// What the task that asks for commits asks for next; `None` if it ends.
    pub fn next_sync(&mut self) -> Option<Transno> {
        let wanted = self.syncing.wanted;
        if wanted <= self.last_committed() {
            self.syncing.running = false;
            return None;
        }
        let moved = self.moved.range(..=wanted).map(|(_, now)| *now);
        Some(moved.filter(|now| *now != PENDING).fold(wanted, Transno::max))
    }

    /// A Sync failed, and its task ends.
    pub fn sync_failed(&mut self, error: CallError) {
        self.fail(error);
        (self.syncing.running, self.syncing.wanted) = (false, Transno(0));
    }

    /// Whoever waits for a commit is told that there will be none.
    pub(super) fn fail(&mut self, error: CallError) {
        self.syncing.failures += 1;
        self.syncing.failure = Some(error);
    }

    /// A commit up to `transno` is wanted (0: of all that was answered). True if nobody asks yet.
    pub(super) fn want(&mut self, transno: Transno) -> bool {
        let wanted = if transno == Transno(0) { self.newest() } else { transno };
        self.syncing.wanted = self.syncing.wanted.max(wanted);
        !std::mem::replace(&mut self.syncing.running, true)
    }

    /// A reply over a connection said this.
    pub(super) fn note<W>(&mut self, transno: Transno, last_committed: Transno, out: &mut Vec<Output<W>>) {
        self.kept = self.kept.max(transno);
        self.note_committed(last_committed, out);
    }

    /// A reply within this process said this.
    pub(super) fn note_unkept<W>(
        &mut self,
        transno: Transno,
        last_committed: Transno,
        out: &mut Vec<Output<W>>,
    ) {
        self.unkept = self.unkept.max(transno);
        self.note_committed(last_committed, out);
    }

    pub(super) fn note_committed<W>(&mut self, last_committed: Transno, out: &mut Vec<Output<W>>) {
        if last_committed > self.last_committed {
            self.last_committed = last_committed;
            self.highest = self.highest.max(last_committed);
            self.moved.retain(|_, now| *now > last_committed);
            out.push(Output::Advanced);
        }
    }

    pub(super) fn note_room(&mut self, room: Room) {
        if room.0 != 0 {
            self.room = room;
        }
    }

    /// Changes that were answered in this process and that a target which has committed up to `committed` misses.
    pub(super) fn missing(&self, committed: Transno) -> Option<(Transno, Transno)> {
        (self.unkept > committed).then(|| (committed.min(self.last_committed), self.unkept))
    }

    /// The target is another than before, or lost changes: the marks start again.
    pub(super) fn reset(&mut self, last_committed: Transno) {
        (self.kept, self.unkept, self.syncing.wanted) = (Transno(0), Transno(0), Transno(0));
        self.last_committed = last_committed;
        self.highest = self.highest.max(last_committed);
        self.moved.clear();
    }

    /// The target lost the change that its caller knows as `told`, which is replayed: nobody can say when it is durable.
    pub(super) fn replays(&mut self, told: Transno) {
        self.moved.insert(told, PENDING);
    }

    /// The replay of `told` was answered: its transno is `now`, if it was taken. True if it is durable already.
    pub(super) fn replayed(&mut self, told: Transno, now: Option<Transno>) -> bool {
        self.moved.remove(&told);
        match now {
            Some(now) if now <= self.last_committed => return true,
            Some(now) if now != told => _ = self.moved.insert(told, now),
            _ => {}
        }
        false
    }

    pub(super) fn remember_lost(&mut self, range: (Transno, Transno)) {
        self.lost.push(range);
        if self.lost.len() > LOST_RANGES_MAX {
            // Claiming too much lost costs an error; claiming too little would hide a loss.
            let (second, first) = (self.lost.remove(1), self.lost.remove(0));
            self.lost.insert(0, (first.0.min(second.0), first.1.max(second.1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_only_grow() {
        let (mut commits, mut out) = (Commits::default(), Vec::<Output<()>>::new());
        commits.note(Transno(5), Transno(3), &mut out);
        commits.note(Transno(4), Transno(2), &mut out);
        assert_eq!((commits.newest(), commits.last_committed()), (Transno(5), Transno(3)));
        assert_eq!(out.len(), 1, "the mark moved once");
        commits.reset(Transno(1));
        assert_eq!((commits.newest(), commits.last_committed()), (Transno(0), Transno(1)));
        assert_eq!(commits.highest(), Transno(3));
    }

    #[test]
    fn many_lost_ranges_become_one() {
        let mut commits = Commits::default();
        let ranges = LOST_RANGES_MAX as u64 + 1;
        for n in 0..ranges {
            commits.remember_lost((Transno(n * 10), Transno(n * 10 + 1)));
        }
        assert_eq!(commits.lost.len(), LOST_RANGES_MAX);
        for n in 0..ranges {
            let gone = commits.durable(Transno(n * 10 + 1), 0);
            assert_eq!(gone, Some(Err(CallError::Refused(Code::Evicted))), "{n}");
        }
        assert_eq!(commits.durable(Transno(ranges * 10), 0), None);
    }
}
