//! Questions that are under way, and changes by this client.
//!
//! What an answer says of a file is kept only if this client has not changed the file since it was asked for: requests and replies pass
//! each other on the way.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::messages::Granted;
use proto::{Fid, Name};
use smallvec::SmallVec;

use super::inode::Touch;
use super::table::Inodes;

/// Own changes that are remembered before those are dropped that no question is older than.
const CHANGES_KEPT: usize = 1024;

/// Questions that are under way, in the order in which they were asked.
#[derive(Default)]
pub(super) struct Requests {
    next: u64,
    open: BTreeSet<u64>,
    /// Files that this client is changing: by how many changes, and whether there were several at any time since there was
    /// none.
    changing: BTreeMap<Fid, (usize, bool)>,
    /// Files that this client changed while questions were under way, with the number of the next question.
    changed: BTreeMap<Fid, u64>,
    /// With so many of them those are dropped that no question is older than: twice as many as were left the last time, for a question may
    /// be under way for long.
    crowd: usize,
}

impl Requests {
    /// The number of the oldest question that is under way, if there is any, and that of the next one.
    pub(super) fn under_way(&self) -> (Option<u64>, u64) {
        (self.open.first().copied(), self.next + 1)
    }

    fn begin_changes(&mut self, fids: &[Fid]) {
        for fid in fids {
            let (count, several) = self.changing.entry(*fid).or_default();
            *several |= *count > 0;
            *count += 1;
        }
    }

    fn end_changes(&mut self, fids: &[Fid]) {
        for fid in fids {
            let Some((count, _)) = self.changing.get_mut(fid) else { continue };
            *count -= 1;
            if *count == 0 {
                self.changing.remove(fid);
            }
        }
    }

    /// Whether there is one change of the file, and there was no other meanwhile.
    fn is_alone(&self, fid: Fid) -> bool {
        self.changing.get(&fid) == Some(&(1, false))
    }

    fn note_change(&mut self, fid: Fid) {
        if self.open.is_empty() {
            self.changed.clear();
            return;
        }
        if self.changed.len() >= self.crowd.max(CHANGES_KEPT) {
            let oldest = self.open.first().copied().unwrap_or(0);
            self.changed.retain(|_, number| *number >= oldest);
            self.crowd = 2 * self.changed.len();
        }
        self.changed.insert(fid, self.next);
    }
}

/// A question to the MDT that is under way.
pub(crate) struct Asked<'a> {
    inodes: &'a Inodes,
    number: u64,
    /// Changes by this client from this number on are later than the answer. What is called back is compared with
    /// `number`: it may pass an answer that has been on its way since then.
    changes_from: u64,
    /// Another change of this client passed the one that was asked for: nothing that its answer says is kept.
    is_passed: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.inodes.requests.lock().open.remove(&self.number);
    }
}

impl Asked<'_> {
    /// Whether it was asked before `until`.
    pub(super) fn is_before(&self, until: u64) -> bool {
        self.number < until
    }

    /// Whether this client changed the file since the question was asked.
    pub(super) fn is_outdated(&self, fid: Fid) -> bool {
        let requests = self.inodes.requests.lock();
        self.is_passed || requests.changed.get(&fid).is_some_and(|number| *number >= self.changes_from)
    }
}

/// A change by this client that is under way: whatever is known of the files and names ends with it, also if its
/// outcome is never known.
pub(crate) struct Changing<'a> {
    change: Change<'a>,
    asked: Asked<'a>,
}

impl<'a> Changing<'a> {
    /// The change was made; it concerned `more` too. Gives the right to keep what its answer says: nothing, if another
    /// change of this client passed it.
    pub(crate) fn done(self, more: &[Fid]) -> Asked<'a> {
        self.end(more, None)
    }

    /// The same if it made or removed an entry of a directory.
    pub(crate) fn done_in(self, touch: Touch, more: &[Fid]) -> Asked<'a> {
        self.end(more, Some(touch))
    }

    fn end(self, more: &[Fid], touch: Option<Touch>) -> Asked<'a> {
        let Changing { mut change, mut asked } = self;
        let touch = {
            let mut requests = change.inodes.requests.lock();
            let touch = touch.filter(|touch| requests.is_alone(touch.dir));
            requests.end_changes(&change.fids);
            change.fids.extend_from_slice(more);
            let passed =
                |fid: &Fid| requests.changed.get(fid).is_some_and(|number| *number >= asked.changes_from);
            asked.is_passed = change.fids.iter().any(passed);
            change.fids.iter().for_each(|fid| requests.note_change(*fid));
            requests.next += 1;
            asked.changes_from = requests.next;
            touch
        };
        change.forget(touch);
        change.is_over = true;
        asked
    }

    /// Part of the change was made, and nothing of what the answer says of `fid` is kept.
    pub(super) fn not_kept(&self, fid: Fid, granted: Granted) {
        self.change.inodes.not_kept(&self.asked, fid, granted);
    }
}

/// What a change concerns.
struct Change<'a> {
    inodes: &'a Inodes,
    fids: SmallVec<[Fid; 4]>,
    names: SmallVec<[(Fid, Name); 2]>,
    /// Its outcome is known.
    is_over: bool,
}

impl Change<'_> {
    fn forget(&self, touch: Option<Touch>) {
        for fid in &self.fids {
            self.inodes.part(*fid).change(*fid, |inode| match &touch {
                Some(touch) if touch.dir == *fid => inode.entry_changed(touch),
                _ => inode.changed(),
            });
        }
        for (parent, name) in &self.names {
            self.inodes.part(*parent).change(*parent, |inode| inode.names.forget(name));
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // It may have happened.
            let mut requests = self.inodes.requests.lock();
            requests.end_changes(&self.fids);
            self.fids.iter().for_each(|fid| requests.note_change(*fid));
            drop(requests);
            self.forget(None);
        }
    }
}

impl Inodes {
    /// A question is being asked.
    pub(crate) fn ask(&self) -> Asked<'_> {
        let mut requests = self.requests.lock();
        requests.next += 1;
        let number = requests.next;
        requests.open.insert(number);
        Asked { inodes: self, number, changes_from: number, is_passed: false }
    }

    /// Whether this client is about to change a file.
    pub(super) fn is_changing(&self, fid: Fid) -> bool {
        self.requests.lock().changing.contains_key(&fid)
    }

    /// This client has changed files now: answers to questions of before are older.
    pub(super) fn changed_now(&self, fids: &[Fid]) {
        let mut requests = self.requests.lock();
        fids.iter().for_each(|fid| requests.note_change(*fid));
        requests.next += 1;
    }

    /// A change of files and of names in directories is being asked for.
    pub(crate) fn change(&self, fids: &[Fid], names: &[(Fid, &Name)]) -> Changing<'_> {
        let names = names.iter().map(|(parent, name)| (*parent, (*name).clone())).collect();
        let fids: SmallVec<[Fid; 4]> = fids.iter().copied().filter(|fid| *fid != Fid::ZERO).collect();
        self.requests.lock().begin_changes(&fids);
        Changing { change: Change { inodes: self, fids, names, is_over: false }, asked: self.ask() }
    }
}
