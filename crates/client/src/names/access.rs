//! Times of access that the MDT does not know yet: it is told when the file is closed, and an application that looks
//! before sees them all the same.

use std::collections::BTreeMap;

use proto::{Attr, Fid, Timestamp};

use crate::order::{LEAF, Mutex};

/// The newest access of each file that is open, or is just being closed.
#[derive(Default)]
pub(crate) struct Accesses {
    pending: Mutex<LEAF, BTreeMap<Fid, Timestamp>>,
}

impl Accesses {
    /// A file was read at `now`.
    pub(crate) fn accessed(&self, fid: Fid, now: Timestamp) {
        let mut pending = self.pending.lock();
        let newest = pending.entry(fid).or_insert(now);
        *newest = now.max(*newest);
    }

    /// The access of a file that the MDT does not know of.
    pub(crate) fn pending(&self, fid: Fid) -> Option<Timestamp> {
        self.pending.lock().get(&fid).copied()
    }

    /// The MDT was told of accesses up to `time`.
    pub(crate) fn told(&self, fid: Fid, time: Timestamp) {
        let mut pending = self.pending.lock();
        if pending.get(&fid).is_some_and(|newest| *newest <= time) {
            pending.remove(&fid);
        }
    }

    /// The file is gone, or the MDT cannot be told.
    pub(crate) fn removed(&self, fid: Fid) {
        self.pending.lock().remove(&fid);
    }

    /// The time of access was set in a call of `time`: what was read before does not count any more.
    pub(crate) fn set(&self, fid: Fid, time: Timestamp) {
        self.told(fid, time);
    }

    /// Whether there is an access of the file that the MDT does not know of; then `attr` tells it.
    pub(crate) fn note(&self, attr: &mut Attr) -> bool {
        let Some(time) = self.pending(attr.fid) else { return false };
        attr.atime = attr.atime.max(time);
        true
    }
}
