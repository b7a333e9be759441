//! Answers from what is kept, and what is kept of answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages::{DirPage, Entry, Granted, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_UPDATE};
use proto::{Attr, Fid, FileKind, Layout, Name, TargetId, mdt_of};

use super::inode::{ATTR_BITS, Inode};
use super::told::{Fill, Told};
use super::{Asked, Changing, MetadataCache};
use crate::{Behind, Caller};

/// Permission to read in each of the three classes.
const MODE_READ: u32 = 0o444;
/// Permission to execute, and so to search a directory, in each of the three classes.
const MODE_EXECUTE: u32 = 0o111;

/// What is known of a name.
pub(crate) enum Known {
    /// It means this file.
    File(Fid),
    /// There is no such name.
    Nothing,
    /// The MDT has to be asked.
    Unknown,
}

impl MetadataCache {
    /// Whether what is kept of a file may be used.
    pub(in crate::names) fn may_use(&self, fid: Fid) -> bool {
        self.lease.may_use(TargetId::mdt(mdt_of(fid)))
    }

    /// What is kept of a name, if the caller may know it.
    pub(crate) fn known_name(&self, caller: &Caller, parent: Fid, name: &Name) -> Known {
        if !self.may_use(parent) {
            return Known::Unknown;
        }
        let (fid, stamp) = {
            let mut part = self.inodes.part(parent);
            let Some(dir) = part.inodes.get_mut(&parent) else { return Known::Unknown };
            if !may_search(caller, dir) {
                return Known::Unknown;
            }
            dir.recent = true;
            match dir.name(name) {
                Some(Some(known)) => known,
                Some(None) if dir.has(LOCK_UPDATE) => return Known::Nothing,
                _ => return Known::Unknown,
            }
        };
        let part = self.inodes.part(fid);
        let valid = part.inodes.get(&fid).is_some_and(|file| file.stamp == stamp && file.keeps_names());
        if valid && self.may_use(fid) { Known::File(fid) } else { Known::Unknown }
    }

    /// The entry of a file, if all of it is kept.
    pub(crate) fn known_entry(&self, fid: Fid) -> Option<Arc<Entry>> {
        let mut part = self.inodes.part(fid);
        let inode = part.inodes.get_mut(&fid)?;
        inode.recent = true;
        inode.entry.clone().filter(|_| inode.has(ATTR_BITS) && self.may_use(fid))
    }

    /// The layout of a file, if it cannot change unseen.
    pub(crate) fn known_layout(&self, fid: Fid) -> Option<Layout> {
        let part = self.inodes.part(fid);
        let inode = part.inodes.get(&fid).filter(|inode| inode.has(LOCK_LAYOUT))?;
        inode.entry.as_ref().filter(|_| self.may_use(fid))?.layout.clone()
    }

    /// Whether an absent name would be kept: the directory's entries cannot change unseen.
    pub(crate) fn keeps_entries(&self, dir: Fid) -> bool {
        self.may_use(dir) && self.inodes.part(dir).inodes.get(&dir).is_some_and(|dir| dir.has(LOCK_UPDATE))
    }

    /// Keeps what a server told of a file, if it may be kept; says whether.
    pub(crate) fn learn(self: &Arc<Self>, asked: &Asked<'_>, entry: &Entry) -> bool {
        if entry.attr.nlink > 0 {
            self.inodes.note_permission(entry.lock.bits != 0);
        }
        if self.targets.pending.changes_of(entry.attr.fid) > 0 {
            // It lacks what was told ahead.
            self.inodes.not_kept(asked, entry.attr.fid, entry.lock);
            return false;
        }
        self.learn_of(asked, entry.attr.fid, entry.lock, |inode| inode.learn(entry))
    }

    /// The same of the file that a name means, and the name.
    pub(crate) fn learn_named(self: &Arc<Self>, asked: &Asked<'_>, parent: Fid, name: &Name, entry: &Entry) {
        // A lock that came with another answer says nothing of what this one read.
        if self.learn(asked, entry) && entry.lock.bits & LOCK_LOOKUP != 0 {
            self.learn_name(asked, (parent, name), (entry.attr.fid, None));
        }
    }

    /// The same of a file that this client has just made.
    pub(crate) fn learn_made(self: &Arc<Self>, asked: &Asked<'_>, parent: Fid, name: &Name, entry: &Entry) {
        let fid = entry.attr.fid;
        self.inodes.note_permission(entry.lock.bits != 0);
        let is_kept = self.learn_of(asked, fid, entry.lock, |inode| {
            inode.learn(entry);
            inode.made();
        });
        if is_kept && entry.lock.bits & LOCK_LOOKUP != 0 {
            self.learn_name(asked, (parent, name), (fid, None));
        }
    }

    /// Whether this client made a file, and nobody else has changed its data since.
    pub(crate) fn is_made_here(&self, fid: Fid) -> bool {
        self.may_use(fid) && self.inodes.part(fid).inodes.get(&fid).is_some_and(Inode::is_made_here)
    }

    /// Part of a change was made, and nothing of what the answer says of a file is kept.
    pub(crate) fn not_kept(self: &Arc<Self>, changing: &Changing<'_>, entry: &Entry) {
        changing.not_kept(entry.attr.fid, entry.lock);
        self.make_room();
    }

    /// Keeps something of a file that came with `granted`, as [`MetadataCache::learn`] does.
    pub(crate) fn learn_of(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        fid: Fid,
        granted: Granted,
        learn: impl FnOnce(&mut Inode),
    ) -> bool {
        // Without a lock there may be too much, as the MDT sees it.
        let may_keep = granted.bits != 0 || self.inodes.part(fid).inodes.contains_key(&fid);
        let is_kept = may_keep && self.inodes.learn(asked, fid, granted, learn);
        self.make_room();
        is_kept
    }

    /// What the names of a file are told with now, if it may have some: for [`MetadataCache::learn_name`].
    pub(crate) fn stamp_of(&self, fid: Fid) -> Option<(Fid, u64)> {
        let part = self.inodes.part(fid);
        part.inodes.get(&fid).filter(|file| file.keeps_names()).map(|file| (fid, file.stamp))
    }

    /// Keeps a name of a file that was learnt before; with a stamp only if nothing has been called back since then: else somebody else may
    /// have changed it again by now.
    pub(crate) fn learn_name(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        (parent, name): (Fid, &Name),
        (fid, of_before): (Fid, Option<u64>),
    ) {
        let stamp = {
            let mut part = self.inodes.part(fid);
            let Some(file) = part.inodes.get_mut(&fid).filter(|file| file.keeps_names()) else { return };
            if of_before.is_some_and(|stamp| stamp != file.stamp) {
                return;
            }
            file.named = Some((parent, name.clone()));
            file.stamp
        };
        // The lock is the file's, not the directory's.
        let granted = Granted { bits: 0, number: u64::MAX };
        self.inodes.learn(asked, parent, granted, |dir| dir.learn_name(name.clone(), fid, stamp));
        self.inodes.sweep(parent);
        self.make_room();
    }

    /// Keeps that a name is not there; `kept` is [`MetadataCache::keeps_entries`] from before the question.
    pub(crate) fn learn_absence(self: &Arc<Self>, asked: &Asked<'_>, parent: Fid, name: &Name, kept: bool) {
        if !kept {
            return;
        }
        self.learn_of(asked, parent, Granted::default(), |dir| {
            if dir.has(LOCK_UPDATE) {
                dir.learn_absence(name.clone());
            }
        });
        self.inodes.sweep(parent);
    }

    /// Keeps a page of a directory.
    pub(crate) fn learn_page(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        fid: Fid,
        behind: &Behind,
        page: &Arc<DirPage>,
    ) {
        let entries_max = self.inodes.page_entries_max();
        self.learn_of(asked, fid, page.lock, |dir| {
            dir.grant(page.lock);
            if page.lock.bits & LOCK_UPDATE != 0 {
                dir.pages.insert(behind, page.clone(), entries_max);
            }
        });
    }

    /// A page of a directory, if it is kept.
    pub(crate) fn known_page(&self, fid: Fid, behind: &Behind) -> Option<Arc<DirPage>> {
        let part = self.inodes.part(fid);
        let dir = part.inodes.get(&fid)?;
        dir.pages.get(behind).filter(|_| dir.has(LOCK_UPDATE) && self.may_use(fid)).cloned()
    }

    /// Target of a symbolic link, if it is kept.
    pub(crate) fn known_target(&self, fid: Fid) -> Option<Bytes> {
        self.inodes.part(fid).inodes.get(&fid)?.target.clone()
    }

    /// The value of an extended attribute if that is known; `Some(None)`: there is none. Values are told to the
    /// superuser and to everybody who may read the file.
    pub(crate) fn known_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Option<Option<Bytes>> {
        if !self.may_use(fid) {
            return None;
        }
        let part = self.inodes.part(fid);
        let inode = part.inodes.get(&fid)?;
        let readable = |entry: &Arc<Entry>| entry.attr.mode & MODE_READ == MODE_READ && !entry.xattrs;
        let permitted = caller.uid == 0 || inode.entry.as_ref().is_some_and(readable);
        inode.xattr(name).filter(|known| known.is_none() || permitted)
    }

    /// Names of the extended attributes, if they are known.
    pub(crate) fn known_xattr_names(&self, fid: Fid) -> Option<Vec<Bytes>> {
        self.inodes.part(fid).inodes.get(&fid)?.xattr_names.clone().filter(|_| self.may_use(fid))
    }

    /// An answer about a file, with what of it may be kept: attributes only if they are those that are kept here,
    /// and complete; the name only if it is kept here.
    pub(crate) fn told(&self, mut attr: Attr, name: Option<(Fid, &Name)>) -> Told {
        let accessed = self.accesses.note(&mut attr);
        let named = name.map(|(parent, name)| {
            let part = self.inodes.part(parent);
            part.inodes.get(&parent).and_then(|dir| dir.name(name).flatten())
        });
        let complete =
            attr.kind() != FileKind::File || attr.size_known && !self.files.is_being_written(attr.fid);
        let untouched = !complete && self.files.is_untouched(attr.fid);
        let part = self.inodes.part(attr.fid);
        let Some(inode) = part.inodes.get(&attr.fid).filter(|_| self.may_use(attr.fid)) else {
            return Told::once(attr);
        };
        // The kernel sees each write that this mount makes, and asks again after it.
        let complete = complete || untouched && inode.is_made_here();
        let known = inode.entry.as_ref().filter(|_| inode.has(ATTR_BITS));
        let is_known = known.is_some_and(|known| known.attr.version == attr.version);
        let keep_attr = complete && !accessed && is_known;
        // The kernel keeps mode and owner as long as the name, and decides by them.
        let is_kept = is_known && inode.keeps_names() && named.flatten() == Some((attr.fid, inode.stamp));
        let keep_name = if is_kept { self.lease.left() } else { Duration::ZERO };
        Told { keep_name, keep_attr, fill: Fill::new(part.filling()), attr }
    }
}

/// Whether the caller may search the directory for certain: in doubt the MDT decides.
fn may_search(caller: &Caller, dir: &Inode) -> bool {
    if caller.uid == 0 {
        return true;
    }
    let known = dir.entry.as_ref().filter(|_| dir.has(ATTR_BITS));
    known.is_some_and(|entry| entry.attr.mode & MODE_EXECUTE == MODE_EXECUTE && !entry.xattrs)
}
