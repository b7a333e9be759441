//! Whether reading through a handle counts as an access.

use std::sync::atomic::Ordering;

use proto::types::access_counts;

use crate::files::{OpenFile, OpenFiles};

impl OpenFiles {
    /// Something was read through `open`.
    pub(crate) fn note_access(&self, open: &OpenFile) {
        if !open.read.swap(true, Ordering::Relaxed) {
            self.access_if_due(open);
        }
    }

    /// Notes an access, if it is to be noted at all; says whether it is.
    pub(super) fn access_if_due(&self, open: &OpenFile) -> bool {
        let now = self.names.clock.time();
        let attr = &open.attr;
        // Its last reader may have closed it a moment ago: the MDT has not been told yet.
        let pending = self.names.meta.accesses.pending(open.fid).unwrap_or_default();
        let due = !open.flags.no_atime && access_counts(attr.atime.max(pending), attr.mtime, attr.ctime, now);
        if due {
            self.names.meta.accesses.accessed(open.fid, now);
        }
        due
    }
}
