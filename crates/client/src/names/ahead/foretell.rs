//! What the MDT will say of a new file, or of changed attributes. Pure.

use proto::limits::{LINKS_MAX, SYMLINK_BYTES_MAX};
use proto::ownership::{Ownership, OwnershipChange};
use proto::types::{MODE_KIND, MODE_PERMISSIONS, MODE_SETGID, MODE_SETUID};
use proto::wire::messages::{
    Create, Entry, Foretold, OPEN_ALONE, OPEN_RANGE, OPEN_READ, OPEN_WRITE, SetAttr,
};
use proto::{Attr, Cred, Fid, FileKind, Layout, Name, Timestamp};

use crate::Caller;

/// The owner's right to write to a directory and to search it.
const MODE_CHANGE: u32 = 0o300;
/// What a umask takes away.
const MODE_ACCESS: u32 = 0o777;
/// Size of a new directory in bytes, as the MDT says it.
const DIR_BYTES: u64 = 4096;

/// A file that is to be made.
pub(crate) struct New<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) parent: Fid,
    pub(crate) name: &'a Name,
    /// With the kind's bits.
    pub(crate) mode: u32,
    /// `OPEN_*` bits.
    pub(crate) open: u32,
    /// Target of a symbolic link; empty otherwise.
    pub(crate) target: &'a [u8],
    pub(crate) time: Timestamp,
}

impl New<'_> {
    /// What it is, if such files are made ahead.
    pub(super) fn kind(&self) -> Option<FileKind> {
        let kind = FileKind::from_mode(self.mode)?;
        let is_certain = match kind {
            FileKind::File | FileKind::Dir => true,
            FileKind::Symlink => {
                (1..=SYMLINK_BYTES_MAX).contains(&self.target.len()) && !self.target.contains(&0)
            }
            _ => false,
        };
        is_certain.then_some(kind)
    }

    /// Whether it is made open.
    pub(super) fn opens(&self) -> bool {
        self.open & (OPEN_READ | OPEN_WRITE) != 0
    }

    /// Whether the caller certainly may make it in a directory, and what it gets follows from that alone: its owner makes it, and
    /// nothing is handed on but a project.
    pub(super) fn is_certain_in(&self, dir: &Entry) -> bool {
        let is_plain = self.caller.uid == 0 || self.mode & (MODE_SETUID | MODE_SETGID) == 0;
        // A directory has room for links as long as it has few.
        let has_room = dir.attr.nlink < LINKS_FEW;
        may_change(self.caller, dir) && is_plain && has_room && dir.attr.mode & MODE_SETGID == 0
    }

    /// What the MDT will say of it in `dir`.
    pub(super) fn foretell(&self, kind: FileKind, dir: &Attr, fid: Fid) -> Attr {
        let umask = if kind == FileKind::Symlink { 0 } else { self.caller.umask & MODE_ACCESS };
        let (nlink, size, blocks) = match kind {
            FileKind::Dir => (2, DIR_BYTES, DIR_BYTES / 512),
            FileKind::Symlink => (1, self.target.len() as u64, 0),
            _ => (1, 0, 0),
        };
        Attr {
            fid,
            mode: self.mode & (MODE_KIND | MODE_PERMISSIONS) & !umask,
            nlink,
            uid: self.caller.uid,
            gid: self.caller.gid,
            rdev: 0,
            size,
            blocks,
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            btime: self.time,
            size_known: self.open & OPEN_WRITE == 0,
            version: 0,
            mtime_set: self.time,
            project: if dir.inherits { dir.project } else { 0 },
            inherits: dir.inherits && kind == FileKind::Dir,
        }
    }

    /// The request that makes it.
    pub(super) fn request(&self, fid: Fid, layout: Option<&Layout>) -> Create {
        let alone = if self.kind() == Some(FileKind::Dir) { OPEN_ALONE } else { 0 };
        let handle = if self.opens() { Foretold::handle_of(fid) } else { 0 };
        Create {
            parent: self.parent,
            name: self.name.clone(),
            fid,
            mode: self.mode,
            rdev: 0,
            target: self.target.to_vec().into(),
            open: self.open & !OPEN_RANGE | alone,
            hint: None,
            cred: cred_of(self.caller),
            time: self.time,
            umask: self.caller.umask,
            foretold: Some(Box::new(Foretold { handle, layout: layout.cloned() })),
        }
    }
}

/// Whether the caller certainly may make and remove entries of a directory: its owner may, with the mode's permission.
pub(super) fn may_change(caller: &Caller, dir: &Entry) -> bool {
    let Attr { mode, uid, nlink, .. } = dir.attr;
    let may = caller.uid == 0 || mode & MODE_CHANGE == MODE_CHANGE;
    caller.uid == uid && may && nlink != 0 && !dir.xattrs
}

/// Links of a directory below which it takes one more for certain.
const LINKS_FEW: u32 = LINKS_MAX / 2;

/// Who asks, without supplementary groups: nothing that is certain depends on them.
pub(super) fn cred_of(caller: &Caller) -> Cred {
    let groups = if caller.uid == 0 { Some(Vec::new()) } else { None };
    Cred { uid: caller.uid, gid: caller.gid, groups }
}

/// The attributes of a file after a change of them, if the MDT makes it for certain, and exactly so.
pub(super) fn changed(entry: &Entry, set: &SetAttr) -> Option<Attr> {
    let before = &entry.attr;
    let is_simple = set.size.is_none() && set.project.is_none() && set.inherits.is_none();
    if !is_simple || set.kill_privileges || entry.xattrs || before.nlink == 0 {
        return None;
    }
    let mut ownership = Ownership { uid: before.uid, gid: before.gid, mode: before.mode };
    let sets_times = set.atime.is_some() || set.mtime.is_some();
    if sets_times && !ownership.is_owner(&set.cred) {
        return None;
    }
    // Another owner may have reached a limit.
    let is_given =
        set.gid.is_some_and(|gid| gid != before.gid) || set.uid.is_some_and(|uid| uid != before.uid);
    if is_given && set.cred.uid != 0 {
        return None;
    }
    let change = OwnershipChange { uid: set.uid, gid: set.gid, mode: set.mode, writes: false };
    ownership.change(&set.cred, &change).ok()?;
    let mut attr = before.clone();
    (attr.uid, attr.gid, attr.mode) = (ownership.uid, ownership.gid, ownership.mode);
    if let Some(atime) = &set.atime {
        attr.atime = atime.time;
    }
    if let Some(mtime) = &set.mtime {
        attr.mtime = mtime.time;
        attr.mtime_set = set.time.max(attr.mtime_set);
    }
    attr.ctime = attr.ctime.max(set.time);
    Some(attr)
}
