//! Whether reading through a handle counts as an access.

use std::sync::atomic::Ordering;

use proto::types::access_counts;

use crate::files::OpenFile;
use crate::names::Names;

impl OpenFile {
    /// Something was read through it.
    pub(crate) fn note_access(&self, names: &Names) {
        if !self.read.swap(true, Ordering::Relaxed) {
            self.access_if_due(names);
        }
    }

    /// Notes an access, if it is to be noted at all; says whether it is.
    pub(super) fn access_if_due(&self, names: &Names) -> bool {
        let now = names.clock.time();
        let attr = &self.attr;
        // Its last reader may have closed it a moment ago: the MDT has not been told yet.
        let pending = names.meta.accesses.pending(self.fid).unwrap_or_default();
        let due = !self.flags.no_atime && access_counts(attr.atime.max(pending), attr.mtime, attr.ctime, now);
        if due {
            names.meta.accesses.accessed(self.fid, now);
        }
        due
    }
}
