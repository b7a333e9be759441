//! Times of access that the MDT does not know yet: it is told when the file is closed, and an application that looks
//! before sees them all the same.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use proto::types::access_counts;
use proto::{Attr, Fid, Timestamp};

use super::table::OpenFile;
use crate::Shared;

/// The newest access of each file that is open, or is just being closed.
#[derive(Default)]
pub(crate) struct Accesses {
    pending: Mutex<BTreeMap<Fid, Timestamp>>,
}

/// Whether an access at `now` is to be noted.
pub(super) fn is_due(open: &OpenFile, now: Timestamp) -> bool {
    let attr = &open.attr;
    !open.flags.no_atime && access_counts(attr.atime, attr.mtime, attr.ctime, now)
}

impl Shared {
    /// Something was read through `open`.
    pub(crate) fn accessed(&self, open: &OpenFile) {
        if !open.read.swap(true, Ordering::Relaxed) {
            self.access_if_due(open);
        }
    }

    /// Notes an access, if it is to be noted at all; says whether it is.
    pub(super) fn access_if_due(&self, open: &OpenFile) -> bool {
        let now = self.time();
        let due = is_due(open, now);
        if due {
            let mut pending = self.accesses.pending.lock();
            let newest = pending.entry(open.fid).or_insert(now);
            *newest = now.max(*newest);
        }
        due
    }

    /// The access of a file that the MDT does not know of.
    pub(crate) fn pending_access(&self, fid: Fid) -> Option<Timestamp> {
        self.accesses.pending.lock().get(&fid).copied()
    }

    /// The MDT was told of accesses up to `time`.
    pub(super) fn access_told(&self, fid: Fid, time: Timestamp) {
        let mut pending = self.accesses.pending.lock();
        if pending.get(&fid).is_some_and(|newest| *newest <= time) {
            pending.remove(&fid);
        }
    }

    /// The time of access was set in a call of `time`: what was read before does not count any more.
    pub(crate) fn access_set(&self, fid: Fid, time: Timestamp) {
        self.access_told(fid, time);
    }

    /// Whether there is an access of the file that the MDT does not know of; then `attr` tells it.
    pub(crate) fn note_access(&self, attr: &mut Attr) -> bool {
        let Some(time) = self.pending_access(attr.fid) else { return false };
        attr.atime = attr.atime.max(time);
        true
    }
}
