//! What fsync of a file has to wait for on the MDT: the newest change by this client that concerns the file, whether it
//! was open at that time or not.
//!
//! What other clients changed is not here: an MDT makes it durable before this one sees it (commit on share).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::{Fid, Transno};

use crate::order::{LEAF, Mutex};
use crate::targets::Targets;

/// Files whose changes are told apart. Beyond that, files that were changed before count as changed by the newest of
/// these changes.
const FILES_MAX: usize = 16 << 10;

/// The newest change of each file.
pub(crate) struct Changes {
    targets: Arc<Targets>,
    table: Mutex<LEAF, Table>,
}

#[derive(Default)]
struct Table {
    newest: BTreeMap<Fid, Transno>,
    /// No file that is not in the table was changed later than this.
    others: Transno,
    /// That change, if it is lost; and the files for which somebody was told so.
    lost: Transno,
    told: BTreeSet<Fid>,
}

impl Table {
    /// Whether there is no room for a change of this file.
    fn is_full_for(&self, fid: Fid) -> bool {
        self.newest.len() >= FILES_MAX && !self.newest.contains_key(&fid)
    }

    /// Notes a change; up to `committed` everything is durable, which makes room.
    fn note(&mut self, fid: Fid, transno: Transno, committed: Transno) {
        if self.is_full_for(fid) {
            self.newest.retain(|_, change| *change > committed);
            if self.newest.len() > FILES_MAX / 2 {
                let dropped = std::mem::take(&mut self.newest).into_values().max();
                self.others = self.others.max(dropped.unwrap_or_default());
            }
        }
        let newest = self.newest.entry(fid).or_default();
        *newest = transno.max(*newest);
    }

    /// The change that has to be durable for everything of the file to be.
    fn of(&self, fid: Fid) -> Transno {
        if let Some(newest) = self.newest.get(&fid) {
            return *newest;
        }
        let is_told = self.others == self.lost && self.told.contains(&fid);
        if is_told { Transno(0) } else { self.others }
    }

    /// That change is durable, or lost, and whoever waited for it was told. If it stands for several files, that it is lost is told for
    /// each of them.
    fn settle(&mut self, fid: Fid, change: Transno, is_lost: bool) {
        if self.newest.get(&fid) == Some(&change) {
            self.newest.remove(&fid);
        }
        if self.others != change {
            return;
        }
        if is_lost && self.told.len() < FILES_MAX {
            if self.lost != change {
                self.told.clear();
            }
            self.lost = change;
            self.told.insert(fid);
        } else {
            self.others = Transno(0);
            self.told.clear();
        }
    }
}

impl Changes {
    pub(super) fn new(targets: Arc<Targets>) -> Changes {
        Changes { targets, table: Mutex::default() }
    }

    /// Notes that the MDT numbered a change of `fid`; 0 is none, of either.
    pub(crate) fn changed(&self, fid: Fid, transno: Transno) {
        if transno == Transno(0) || fid == Fid::ZERO {
            return;
        }
        // The targets have locks that come before this one, so they are asked while it is not held.
        let is_full = self.table.lock().is_full_for(fid);
        let mdt = if is_full { self.targets.mdt_of(fid).ok() } else { None };
        let committed = mdt.map_or(Transno(0), |mdt| mdt.last_committed());
        self.table.lock().note(fid, transno, committed);
    }

    /// Waits until what this client changed of `fid` is durable on the MDT. That a change is lost is told once.
    pub(crate) async fn commit_changes(&self, fid: Fid) -> crate::Result<()> {
        self.targets.pending.settled(fid).await;
        let change = self.table.lock().of(fid);
        let committed = self.targets.mdt_of(fid)?.commit(change).await;
        if change != Transno(0) {
            self.table.lock().settle(fid, change, committed.is_err());
        }
        committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: usize) -> Fid {
        Fid { seq: 0x2_0000_0400, oid: oid as u32, ver: 0 }
    }

    fn none() -> Transno {
        Transno(0)
    }

    #[test]
    fn the_newest_change_of_each_file_counts() {
        let mut table = Table::default();
        table.note(fid(1), Transno(5), none());
        table.note(fid(2), Transno(6), none());
        table.note(fid(1), Transno(4), none());
        assert_eq!((table.of(fid(1)), table.of(fid(2)), table.of(fid(3))), (Transno(5), Transno(6), none()));
    }

    #[test]
    fn a_change_that_came_while_another_was_waited_for_stays() {
        let mut table = Table::default();
        table.note(fid(1), Transno(5), none());
        table.note(fid(1), Transno(7), none());
        table.settle(fid(1), Transno(5), false);
        assert_eq!(table.of(fid(1)), Transno(7));
        table.settle(fid(1), Transno(7), false);
        assert_eq!(table.of(fid(1)), none());
    }

    #[test]
    fn the_table_is_bounded_and_forgets_nothing_that_is_not_durable() {
        let mut table = Table::default();
        for n in 1..=3 * FILES_MAX {
            table.note(fid(n), Transno(n as u64), none());
            assert!(table.newest.len() <= FILES_MAX);
        }
        for n in 1..=3 * FILES_MAX {
            assert!(table.of(fid(n)) >= Transno(n as u64), "change {n} is forgotten");
        }
    }

    #[test]
    fn that_changes_of_several_files_are_lost_is_told_for_each() {
        let mut table = Table::default();
        for n in 1..=FILES_MAX + 1 {
            table.note(fid(n), Transno(n as u64), none());
        }
        let lost = Transno(FILES_MAX as u64);
        assert_eq!((table.of(fid(1)), table.of(fid(2))), (lost, lost));
        table.settle(fid(1), lost, true);
        assert_eq!((table.of(fid(1)), table.of(fid(2))), (none(), lost));
        table.settle(fid(2), lost, true);
        assert_eq!((table.of(fid(1)), table.of(fid(2)), table.of(fid(3))), (none(), none(), lost));
        // What is changed later is waited for.
        for n in 1..=2 * FILES_MAX {
            table.note(fid(n), Transno((FILES_MAX + n) as u64), none());
        }
        assert!(table.of(fid(1)) > lost);
        table.settle(fid(1), table.of(fid(1)), false);
        assert_eq!(table.of(fid(1)), none());
    }

    #[test]
    fn what_is_durable_makes_room() {
        let mut table = Table::default();
        for n in 1..=3 * FILES_MAX {
            let committed = Transno((n as u64).saturating_sub(10));
            table.note(fid(n), Transno(n as u64), committed);
        }
        assert_eq!(table.others, none(), "nobody waits for changes of others");
    }
}
