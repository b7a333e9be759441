//! What is told of a file that the MDT has not made yet ([`crate::names::Ahead`]), and what becomes of it.

use std::sync::Arc;

use bytes::Bytes;
use proto::wire::messages::{Entry, Granted};
use proto::{Attr, Fid, FileKind, Name, Timestamp, Transno};

use super::inode::{ATTR_BITS, Inode};
use super::{Answers, Asked, Inodes, Kept, Recalls};

/// Keeps what was told ahead as if the MDT had made it.
pub(crate) struct Promises {
    inodes: Arc<Inodes>,
    kept: Arc<Kept>,
    answers: Arc<Answers>,
    recalls: Arc<Recalls>,
}

impl Promises {
    /// Nothing was told ahead yet.
    pub(super) fn new(kept: Arc<Kept>, answers: Arc<Answers>, recalls: Arc<Recalls>) -> Promises {
        Promises { inodes: kept.inodes.clone(), kept, answers, recalls }
    }

    /// Whether all of a directory is known, `permits` what is kept of it, and it has no `name`.
    pub(crate) fn may_foretell(&self, dir: Fid, name: &Name, permits: impl FnOnce(&Entry) -> bool) -> bool {
        if !self.kept.may_use(dir) {
            return false;
        }
        let mut part = self.inodes.part(dir);
        let Some(dir) = part.inodes.get_mut(&dir).filter(|dir| dir.is_made_here() && dir.has(ATTR_BITS))
        else {
            return false;
        };
        dir.recent = true;
        dir.names.get(name) == Some(None) && dir.entry.as_ref().is_some_and(|entry| permits(entry))
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
    pub(crate) fn learn_promise(
        &self,
        parent: Fid,
        name: &Name,
        time: Timestamp,
        entry: &Entry,
        target: &[u8],
    ) {
        let (fid, kind) = (entry.attr.fid, entry.attr.kind());
        self.inodes.changed_now(&[parent]);
        self.inodes.part(parent).change(parent, |dir| dir.promised(time, i32::from(kind == FileKind::Dir)));
        let asked = self.inodes.ask();
        self.answers.learn_made(&asked, parent, name, entry);
        if kind == FileKind::Symlink {
            let target = Bytes::copy_from_slice(target);
            self.inodes.part(fid).change(fid, |link| link.target = Some(target));
        }
    }

    /// Changes the attributes of a file as the MDT will, if they are known and nobody else is about to change them, and `change` says how.
    /// Gives the file as it is then.
    pub(crate) fn change_ahead(
        &self,
        fid: Fid,
        change: impl FnOnce(&Entry) -> Option<Attr>,
    ) -> Option<Entry> {
        if !self.kept.may_use(fid) || self.inodes.is_changing(fid) {
            return None;
        }
        self.inodes.changed_now(&[fid]);
        let mut part = self.inodes.part(fid);
        let changed = part.change(fid, |inode| {
            let entry = inode.has(ATTR_BITS).then_some(inode.entry.as_mut())??;
            let attr = change(entry)?;
            let entry = Arc::make_mut(entry);
            entry.attr = attr;
            Some(entry.clone())
        });
        changed.flatten()
    }

    /// Whether this client is about to change one of them.
    pub(crate) fn is_changing(&self, fids: &[Fid]) -> bool {
        fids.iter().any(|fid| self.inodes.is_changing(*fid))
    }

    /// Whether what is kept of a directory `permits` that an entry goes.
    pub(crate) fn may_remove_ahead(&self, dir: Fid, permits: impl FnOnce(&Entry) -> bool) -> bool {
        self.kept.entry(dir).is_some_and(|entry| permits(&entry))
    }

    /// Whether a directory certainly has no entry.
    pub(crate) fn is_empty_dir(&self, dir: Fid) -> bool {
        self.kept.may_use(dir)
            && self.inodes.part(dir).inodes.get(&dir).is_some_and(|dir| dir.names.is_empty())
    }

    /// The MDT will take the last name of a file, or of an empty directory, away.
    pub(crate) fn promise_removed(
        &self,
        parent: Fid,
        name: &Name,
        fid: Fid,
        (time, directory): (Timestamp, bool),
    ) {
        self.inodes.changed_now(&[parent, fid]);
        self.inodes.part(parent).change(parent, |dir| {
            dir.promised(time, -i32::from(directory));
            dir.names.learn_absence(name.clone());
        });
        self.recalls.forget_nameless(fid);
    }

    /// It will be made as a file that nobody has open: the MDT will know its size.
    pub(crate) fn promise_closed(&self, fid: Fid) {
        self.inodes.part(fid).change(fid, |file| file.promise_closed());
    }

    /// The MDT has made a file in this directory.
    pub(crate) fn promise_kept_in(&self, parent: Fid, transno: Transno) {
        self.inodes.part(parent).change(parent, |dir| dir.promise_kept_in(transno));
    }

    /// The MDT has made the file, or changed its attributes, and let the client keep `lock`. `attr` is the file afterwards, if nothing
    /// was told of it since. Whether it is what was told.
    pub(crate) fn promise_kept(
        &self,
        asked: &Asked<'_>,
        fid: Fid,
        (lock, transno): (Granted, Transno),
        attr: Option<&Attr>,
    ) -> bool {
        let mut as_told = true;
        let learn = |file: &mut Inode| as_told = file.promise_kept(lock, transno, attr);
        self.inodes.learn_promised(asked, fid, lock, learn);
        as_told
    }

    /// The MDT has not made it.
    pub(crate) fn promise_broken(&self, parent: Fid, name: &Name, fid: Fid) {
        self.inodes.changed_now(&[parent, fid]);
        self.inodes.part(parent).change(parent, |dir| {
            dir.changed();
            dir.names.forget(name);
        });
        self.recalls.forget_nameless(fid);
    }

    /// The MDT has not changed its attributes.
    pub(crate) fn change_broken(&self, fid: Fid) {
        self.inodes.changed_now(&[fid]);
        self.inodes.part(fid).change(fid, Inode::changed);
    }
}
