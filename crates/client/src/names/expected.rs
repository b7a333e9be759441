//! Files that are about to be opened once more, since the last try found them gone.
//!
//! The kernel opens a file in two requests: it looks its name up, and opens what that means. A file that loses its name in between
//! is gone. The kernel then does both again, but only once, and tells its caller ESTALE if the second file is gone, too: so it went
//! with names that others replace all the time. A local file system knows no such error. So a file that is found under a name whose
//! last file was gone keeps the name until it is open, as a callback waits for a grant that it overtook: whoever wants to take the
//! name waits, though not for long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proto::{Fid, Name};
use rt::sync::Notify;
use rt::{Rt, Time};

use crate::order::{LEAF, Mutex};

/// How long after a failure its name counts.
const AGAIN_TIME: Duration = Duration::from_secs(1);
/// How long a file may keep others waiting: its opener needs a processor, and an answer of the MDT.
const OPEN_TIME: Duration = Duration::from_secs(1);
/// Names that files have lost, at most; the oldest goes first.
const LOST_MAX: usize = 512;
/// Names and files that are waited for, each; more are not.
const EXPECTED_MAX: usize = 256;

/// A directory and a name in it.
type Place = (Fid, Name);

/// The files, until when each is waited for.
#[derive(Default)]
pub(crate) struct Expected {
    table: Mutex<LEAF, Table>,
    /// How many names and files there are.
    count: AtomicUsize,
    opened: Notify,
}

#[derive(Default)]
struct Table {
    /// The last names of files that have lost one.
    lost: VecDeque<(Fid, Place)>,
    /// Names whose file was gone when it was opened.
    names: BTreeMap<Place, Time>,
    files: BTreeMap<Fid, Time>,
}

impl Table {
    /// The file is gone: its name will be looked up again.
    fn was_gone(&mut self, fid: Fid, now: Time) {
        let Some((_, place)) = self.lost.iter().rev().find(|(lost, _)| *lost == fid) else { return };
        self.names.retain(|_, until| now < *until);
        if self.names.len() < EXPECTED_MAX {
            self.names.insert(place.clone(), now + AGAIN_TIME);
        }
    }

    /// A name means `fid` now: it will be opened, if the name is one of those.
    fn looked_up(&mut self, place: &Place, fid: Fid, now: Time) {
        self.files.retain(|_, until| now < *until);
        if self.names.remove(place).is_some_and(|until| now < until) && self.files.len() < EXPECTED_MAX {
            self.files.insert(fid, now + OPEN_TIME);
        }
    }
}

impl Expected {
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let done = change(&mut table);
        self.count.store(table.names.len() + table.files.len(), Ordering::Release);
        done
    }

    /// A file has lost a name.
    pub(crate) fn lost_name(&self, fid: Fid, dir: Fid, name: &Name) {
        let mut table = self.table.lock();
        if table.lost.len() == LOST_MAX {
            table.lost.pop_front();
        }
        table.lost.push_back((fid, (dir, name.clone())));
    }

    /// A file that was looked up was gone when it was opened.
    pub(crate) fn was_gone(&self, fid: Fid, now: Time) {
        self.change(|table| table.was_gone(fid, now));
    }

    /// A name was found to mean `fid`.
    pub(crate) fn looked_up(&self, dir: Fid, name: &Name, fid: Fid, rt: &Rt) {
        if !self.is_empty() {
            self.change(|table| table.looked_up(&(dir, name.clone()), fid, rt.now()));
        }
    }

    /// The file is open, or cannot be opened.
    pub(crate) fn opened(&self, fid: Fid) {
        if !self.is_empty() && self.change(|table| table.files.remove(&fid)).is_some() {
            self.opened.notify_waiters();
        }
    }

    /// Whether nothing is waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits until a file that is expected is open, not for long.
    pub(crate) async fn until_opened(&self, fid: Fid, rt: &Rt) {
        loop {
            let opened = self.opened.notified();
            let until = if self.is_empty() { None } else { self.table.lock().files.get(&fid).copied() };
            let now = rt.now();
            let Some(left) = until.filter(|until| now < *until).map(|until| until - now) else { return };
            rt.timeout(left, opened).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { seq: 0x2_0000_0400, oid, ver: 0 }
    }

    fn place(name: &str) -> Place {
        (Fid::ROOT, Name::new(name.as_bytes().to_vec()).expect("a plain name"))
    }

    #[test]
    fn a_name_counts_once_and_for_the_file_that_lost_it() {
        let (mut table, now) = (Table::default(), Time(1));
        table.lost.push_back((fid(1), place("a")));
        table.was_gone(fid(2), now);
        table.looked_up(&place("a"), fid(3), now);
        assert!(table.files.is_empty(), "nobody knows the name of what was gone");
        table.was_gone(fid(1), now);
        table.looked_up(&place("b"), fid(4), now);
        assert!(table.files.is_empty(), "another name");
        table.looked_up(&place("a"), fid(3), now);
        table.looked_up(&place("a"), fid(5), now);
        assert_eq!(table.files.keys().copied().collect::<Vec<_>>(), [fid(3)], "once");
        table.was_gone(fid(1), now);
        table.looked_up(&place("a"), fid(6), now + AGAIN_TIME);
        assert!(table.files.is_empty(), "too late for either");
    }
}
