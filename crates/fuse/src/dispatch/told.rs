//! What the kernel is told of a file, in its own structures, and times on the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{OnItsWay, TimeSet, Told};
use proto::{Attr, Fid, FileKind, Timestamp};

use crate::asking::Asking;
use crate::kernel::abi::{AttrOut, EntryOut, FileAttr, OpenOut, StatfsOut, Statx, StatxOut, SxTime};
use crate::kernel::reply::Answer;
use crate::kernel::request::SetTime;
use crate::ops::node_of;
use crate::settling::Settling;

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

/// Turns what the client tells into answers, and remembers what of them the kernel keeps.
pub struct Teller {
    /// Somebody tells the kernel to forget attributes, and so it may keep some.
    attrs: AtomicBool,
    /// The same of names.
    names: AtomicBool,
    settling: Arc<Settling>,
    asking: Arc<Asking>,
}

impl Teller {
    /// Lets the kernel keep nothing yet.
    pub fn new(settling: Arc<Settling>, asking: Arc<Asking>) -> Teller {
        Teller { attrs: AtomicBool::new(false), names: AtomicBool::new(false), settling, asking }
    }

    /// From now on the kernel can be told to forget: it may keep what locks protect. Names only if it can forget them.
    pub fn may_keep(&self, names: bool) {
        self.names.store(names, Ordering::Release);
        self.attrs.store(true, Ordering::Release);
    }

    /// The kernel has dropped an inode.
    pub fn dropped(&self, fid: Fid) {
        self.settling.dropped(fid);
    }

    /// A thread asks for attributes, perhaps to decide by them.
    pub fn asked(&self, fid: Fid, thread: u32) {
        self.asking.asked(fid, thread);
    }

    /// It is about to be answered.
    pub fn answers(&self, fid: Fid, thread: u32) {
        self.asking.answers(fid, thread);
    }

    /// What a name means.
    pub fn entry(&self, told: Told) -> Answer {
        self.answer(told, |attr, keep| Answer::Entry(entry(attr, keep)))
    }

    /// What the name of a file means that was just opened.
    pub fn created(&self, told: Told, open: OpenOut) -> Answer {
        self.answer(told, |attr, keep| Answer::Created(entry(attr, keep), open))
    }

    /// Attributes.
    pub fn attributes(&self, told: Told) -> Answer {
        self.answer(told, |attr, keep| Answer::Attr(attributes(attr, keep)))
    }

    /// Attributes with the time of birth.
    pub fn statx(&self, told: Told) -> Answer {
        self.answer(told, |attr, keep| Answer::Statx(Box::new(statx(attr, keep))))
    }

    /// An entry of a directory with its attributes, and what has to be held until the kernel has it.
    pub fn in_directory(&self, told: Told) -> (EntryOut, Option<OnItsWay>) {
        let keep = self.keep(&told);
        (entry(&told.attr, keep), (keep != Keep::default()).then(|| told.fill.send()))
    }

    fn keep(&self, told: &Told) -> Keep {
        let keep = Keep {
            name: told.keep_name && self.names.load(Ordering::Acquire),
            attr: told.keep_attr && self.attrs.load(Ordering::Acquire),
        };
        if keep.attr {
            self.settling.told(told.attr.fid);
        }
        if self.attrs.load(Ordering::Relaxed) {
            self.asking.told(told.attr.fid, keep.attr);
        }
        keep
    }

    fn answer(&self, told: Told, make: impl FnOnce(&Attr, Keep) -> Answer) -> Answer {
        let keep = self.keep(&told);
        let answer = make(&told.attr, keep);
        if keep == Keep::default() {
            return answer;
        }
        Answer::Holding(Box::new(answer), Arc::new(told.fill.send()))
    }
}

fn secs(keep: bool) -> u64 {
    if keep { KEPT_SECS } else { 0 }
}

/// What a name means.
fn entry(attr: &Attr, keep: Keep) -> EntryOut {
    EntryOut {
        nodeid: node_of(attr.fid),
        generation: GENERATION,
        entry_valid: secs(keep.name),
        attr_valid: secs(keep.attr),
        attr: file_attr(attr),
        ..EntryOut::default()
    }
}

/// Attributes.
fn attributes(attr: &Attr, keep: Keep) -> AttrOut {
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

/// Attributes with the time of birth.
fn statx(attr: &Attr, keep: Keep) -> StatxOut {
    let time = |time: Timestamp| SxTime { sec: time.secs, nsec: time.nanos, reserved: 0 };
    let rdev = u64::from(attr.rdev);
    let stat = Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: IO_BYTES,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Every kind and every permission is in the lower half.
        mode: attr.mode as u16,
        ino: attr.fid.ino().0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: libc::major(rdev),
        rdev_minor: libc::minor(rdev),
        ..Statx::default()
    };
    StatxOut { attr_valid: secs(keep.attr), stat, ..StatxOut::default() }
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
