//! What the kernel is told of a file, in its own structures, and times on the way back.

use client::TimeSet;
use proto::{Attr, FileKind, Timestamp};

use crate::kernel::abi::{AttrOut, EntryOut, FileAttr, StatfsOut};
use crate::kernel::request::SetTime;

/// Preferred size of an I/O, as stat tells it, in bytes.
const IO_BYTES: u32 = 1 << 20;
/// Unit of statfs, in bytes.
const STATFS_UNIT: u32 = 4096;
/// FIDs are never used twice, so one generation is enough.
const GENERATION: u64 = 0;
/// How long the kernel may keep what is protected, in seconds: it is told when that ends.
const KEPT_SECS: u64 = 3600;
/// Where the bits of the kind are in a mode.
const KIND_SHIFT: u32 = 12;

/// What the kernel may keep of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// That the name means this file.
    pub name: bool,
    /// The attributes.
    pub attr: bool,
}

impl Keep {
    /// Both, or neither.
    pub fn all(keep: bool) -> Keep {
        Keep { name: keep, attr: keep }
    }
}

fn secs(keep: bool) -> u64 {
    if keep { KEPT_SECS } else { 0 }
}

/// What a name means.
pub fn entry(attr: &Attr, keep: Keep) -> EntryOut {
    EntryOut {
        nodeid: attr.fid.ino().0,
        generation: GENERATION,
        entry_valid: secs(keep.name),
        attr_valid: secs(keep.attr),
        attr: file_attr(attr),
        ..EntryOut::default()
    }
}

/// Attributes.
pub fn attributes(attr: &Attr, keep: Keep) -> AttrOut {
    AttrOut { attr_valid: secs(keep.attr), attr: file_attr(attr), ..AttrOut::default() }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: attr.fid.ino().0,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs,
        mtime: attr.mtime.secs,
        ctime: attr.ctime.secs,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: IO_BYTES,
        flags: 0,
    }
}

/// A kind as an entry of a directory has it.
pub fn entry_kind(kind: FileKind) -> u32 {
    kind.mode_bits() >> KIND_SHIFT
}

/// Space.
pub fn space(space: &proto::wire::messages::Space) -> StatfsOut {
    let unit = u64::from(STATFS_UNIT);
    StatfsOut {
        blocks: space.bytes_total / unit,
        bfree: space.bytes_free / unit,
        bavail: space.bytes_available / unit,
        files: space.files_total,
        ffree: space.files_free,
        bsize: STATFS_UNIT,
        namelen: proto::limits::NAME_BYTES_MAX as u32,
        frsize: STATFS_UNIT,
        ..StatfsOut::default()
    }
}

/// A time to set, as the client takes it.
pub fn time(time: SetTime) -> TimeSet {
    match time {
        SetTime::Now => TimeSet::Now,
        SetTime::At(secs, nanos) => TimeSet::At(Timestamp { secs, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_readdir() {
        assert_eq!(entry_kind(FileKind::Dir), u32::from(libc::DT_DIR));
        assert_eq!(entry_kind(FileKind::File), u32::from(libc::DT_REG));
        assert_eq!(entry_kind(FileKind::Symlink), u32::from(libc::DT_LNK));
        assert_eq!(entry_kind(FileKind::Socket), u32::from(libc::DT_SOCK));
    }
}
