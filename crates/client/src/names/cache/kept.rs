//! Answers from what is kept, as far as the lease and the bits of a file permit.

use std::sync::Arc;

use bytes::Bytes;
use proto::wire::messages::{DirPage, Entry, LOCK_LAYOUT, LOCK_UPDATE};
use proto::{Fid, Layout, Name, TargetId, mdt_of};

use super::Inodes;
use super::inode::{ATTR_BITS, Inode};
use crate::lease::Lease;
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

/// What is kept of files, for whoever may use it.
pub(crate) struct Kept {
    pub(super) inodes: Arc<Inodes>,
    lease: Arc<Lease>,
}

impl Kept {
    /// What is kept in `inodes` is used as long as the `lease` runs.
    pub(super) fn new(inodes: Arc<Inodes>, lease: Arc<Lease>) -> Kept {
        Kept { inodes, lease }
    }

    /// Whether what is kept of a file may be used.
    pub(in crate::names) fn may_use(&self, fid: Fid) -> bool {
        self.lease.may_use(TargetId::mdt(mdt_of(fid)))
    }

    /// What is kept of a name, if the caller may know it.
    pub(crate) fn name(&self, caller: &Caller, parent: Fid, name: &Name) -> Known {
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
            match dir.names.get(name) {
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
    pub(crate) fn entry(&self, fid: Fid) -> Option<Arc<Entry>> {
        let mut part = self.inodes.part(fid);
        let inode = part.inodes.get_mut(&fid)?;
        inode.recent = true;
        inode.entry.clone().filter(|_| inode.has(ATTR_BITS) && self.may_use(fid))
    }

    /// Whether a write has setuid or setgid of a file to take away; `None`: another client may have set them unseen.
    pub(crate) fn is_privileged(&self, fid: Fid) -> Option<bool> {
        let part = self.inodes.part(fid);
        part.inodes.get(&fid).filter(|_| self.may_use(fid))?.is_privileged()
    }

    /// The layout of a file, if it cannot change unseen.
    pub(crate) fn layout(&self, fid: Fid) -> Option<Layout> {
        let part = self.inodes.part(fid);
        let inode = part.inodes.get(&fid).filter(|inode| inode.has(LOCK_LAYOUT))?;
        inode.entry.as_ref().filter(|_| self.may_use(fid))?.layout.clone()
    }

    /// Whether an absent name would be kept: the directory's entries cannot change unseen.
    pub(crate) fn keeps_entries(&self, dir: Fid) -> bool {
        self.may_use(dir) && self.inodes.part(dir).inodes.get(&dir).is_some_and(|dir| dir.has(LOCK_UPDATE))
    }

    /// Whether this client made a file, and nobody else has changed its data since.
    pub(crate) fn is_made_here(&self, fid: Fid) -> bool {
        self.may_use(fid) && self.inodes.part(fid).inodes.get(&fid).is_some_and(Inode::is_made_here)
    }

    /// What the names of a file are told with now, if it may have some: for [`Answers::learn_name`](super::Answers::learn_name).
    pub(crate) fn stamp_of(&self, fid: Fid) -> Option<(Fid, u64)> {
        let part = self.inodes.part(fid);
        part.inodes.get(&fid).filter(|file| file.keeps_names()).map(|file| (fid, file.stamp))
    }

    /// A page of a directory, if it is kept.
    pub(crate) fn page(&self, fid: Fid, behind: &Behind) -> Option<Arc<DirPage>> {
        let part = self.inodes.part(fid);
        let dir = part.inodes.get(&fid)?;
        dir.pages.get(behind).filter(|_| dir.has(LOCK_UPDATE) && self.may_use(fid)).cloned()
    }

    /// Target of a symbolic link, if it is kept.
    pub(crate) fn target(&self, fid: Fid) -> Option<Bytes> {
        self.inodes.part(fid).inodes.get(&fid)?.target.clone()
    }

    /// The value of an extended attribute if that is known; `Some(None)`: there is none. Values are told to the
    /// superuser and to everybody who may read the file.
    pub(crate) fn xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Option<Option<Bytes>> {
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
    pub(crate) fn xattr_names(&self, fid: Fid) -> Option<Vec<Bytes>> {
        self.inodes.part(fid).inodes.get(&fid)?.xattr_names.clone().filter(|_| self.may_use(fid))
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
