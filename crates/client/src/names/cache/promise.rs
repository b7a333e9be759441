//! What is told of a file that the MDT has not made yet ([`crate::names::Ahead`]), and what becomes of it.

use std::sync::Arc;

use proto::wire::messages::Entry;
use proto::{Attr, Fid, Name, Timestamp, Transno};

use super::inode::ATTR_BITS;
use super::{Asked, MetadataCache};

impl MetadataCache {
    /// Whether all of a directory is known, `permits` what is kept of it, and it has no `name`.
    pub(crate) fn may_foretell(&self, dir: Fid, name: &Name, permits: impl FnOnce(&Entry) -> bool) -> bool {
        if !self.lease.may_use() {
            return false;
        }
        let mut part = self.inodes.part(dir);
        let Some(dir) = part.inodes.get_mut(&dir).filter(|dir| dir.is_made_here() && dir.has(ATTR_BITS))
        else {
            return false;
        };
        dir.recent = true;
        dir.name(name) == Some(None) && dir.entry.as_ref().is_some_and(|entry| permits(entry))
    }

    /// The attributes of a directory, if this client is not about to change it.
    pub(crate) fn unchanging_dir(&self, dir: Fid) -> Option<Attr> {
        if self.inodes.is_changing(dir) {
            return None;
        }
        let part = self.inodes.part(dir);
        part.inodes.get(&dir)?.entry.as_ref().map(|entry| entry.attr.clone())
    }

    /// Keeps a file that the MDT will make, as if it had: what questions of before bring of its directory is old.
    pub(crate) fn learn_promise(self: &Arc<Self>, parent: Fid, name: &Name, time: Timestamp, entry: &Entry) {
        self.inodes.changed_now(&[parent]);
        self.inodes.part(parent).change(parent, |dir| dir.promised(time));
        let asked = self.inodes.ask();
        self.learn_made(&asked, parent, name, entry);
    }

    /// It will be made as a file that nobody has open: the MDT will know its size.
    pub(crate) fn promise_closed(&self, fid: Fid) {
        self.inodes.part(fid).change(fid, |file| file.promise_closed());
    }

    /// The MDT has made it; whether it is what was told.
    pub(crate) fn promise_kept(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        parent: Fid,
        transno: Transno,
        entry: &Entry,
    ) -> bool {
        let mut as_told = true;
        self.learn_of(asked, entry.attr.fid, entry.lock, |file| as_told = file.promise_kept(entry));
        self.inodes.part(parent).change(parent, |dir| dir.promise_kept_in(transno));
        as_told
    }

    /// The MDT has not made it.
    pub(crate) fn promise_broken(self: &Arc<Self>, parent: Fid, name: &Name, fid: Fid) {
        self.inodes.changed_now(&[parent, fid]);
        self.inodes.part(parent).change(parent, |dir| {
            dir.changed();
            dir.forget_name(name);
        });
        self.forget_nameless(fid);
    }
}
