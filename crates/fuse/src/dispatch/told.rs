//! What the kernel is told of a file, in its own structures, and times on the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::{OnItsWay, TimeSet, Told};
use parking_lot::Mutex;
use proto::{Attr, Code, Fid, FileKind, Timestamp};
use rt::Rt;
use rt::sync::Semaphore;

use crate::asking;
use crate::kernel::abi::{AttrOut, EntryOut, FileAttr, OpenOut, StatfsOut, Statx, StatxOut, SxTime};
use crate::kernel::reply::Answer;
use crate::kernel::request::SetTime;
use crate::known::Known;
use crate::moved::{Call, LastNames, Said};
use crate::names::Place;
use crate::ops::node_of;
use crate::ways::Ways;
use client::posix::Result;

/// Preferred size of an I/O, as stat tells it, in bytes.
const IO_BYTES: u32 = 1 << 20;
/// Unit of statfs, in bytes.
const STATFS_UNIT: u32 = 4096;
/// FIDs are never used twice, so one generation is enough.
const GENERATION: u64 = 0;
/// How long the kernel may keep attributes that are protected, in seconds: it is told when that ends.
const ATTRIBUTES_KEPT_SECS: u64 = 3600;
/// Threads that look at what others are doing at the same time, at most; one more cannot be told apart from others.
const LOOKS_MAX: usize = 64;
/// Where the bits of the kind are in a mode.
const KIND_SHIFT: u32 = 12;

/// What the kernel may keep of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// That the name means this file; for so long.
    pub name: Duration,
    /// The attributes.
    pub attr: bool,
}

/// The name that an answer is about, and the thread that is to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Node of the directory.
    pub dir: u64,
    /// The name in it.
    pub name: &'a Bytes,
    /// The kernel's number of the thread; 0 if it cannot be seen from here.
    pub thread: u32,
}

/// Turns what the client tells into answers, and remembers what of them the kernel keeps.
pub struct Teller {
    rt: Rt,
    /// Somebody tells the kernel to forget attributes, and so it may keep some.
    attrs: AtomicBool,
    /// The same of names.
    may_keep_names: AtomicBool,
    known: Known,
    last_names: Mutex<LastNames>,
    /// Threads that may look at what others are doing at the same time.
    looks: Arc<Semaphore>,
    ways: Arc<Ways>,
}

impl Teller {
    /// Lets the kernel keep nothing yet.
    pub fn new(rt: Rt, known: Known) -> Teller {
        let (attrs, may_keep_names) = (AtomicBool::new(false), AtomicBool::new(false));
        let ways = Arc::new(Ways::new(rt.clone(), known.names.clone()));
        let looks = Arc::new(Semaphore::new(LOOKS_MAX));
        Teller { rt, attrs, may_keep_names, known, last_names: Mutex::default(), looks, ways }
    }

    /// The door of the process that tells.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Changes that give way.
    pub fn ways(&self) -> &Arc<Ways> {
        &self.ways
    }

    /// From now on the kernel can be told to forget: it may keep what locks protect. Names only if it can forget them.
    pub fn may_keep(&self, names: bool) {
        self.may_keep_names.store(names, Ordering::Release);
        self.attrs.store(true, Ordering::Release);
    }

    /// A thread asks for attributes, perhaps to decide by them.
    pub fn asked(&self, fid: Fid, thread: u32) {
        self.known.asking.asked(fid, thread, self.rt.now());
    }

    /// It is about to be answered. What is given back is to be held until the answer has reached the kernel.
    pub fn answers(&self, fid: Fid, thread: u32) -> Option<asking::OnItsWay> {
        self.known.asking.answers(fid, thread)
    }

    /// What a name means.
    pub fn entry(&self, told: Told, named: Named<'_>) -> Answer {
        self.answer(told, Some(named), |attr, keep| Answer::Entry(entry(attr, keep)))
    }

    /// What a name means, which `look_up` says. Refused while the kernel must not see it ([`crate::moved`]).
    pub async fn looked_up<F>(&self, named: Named<'_>, look_up: impl Fn() -> F) -> Result<Answer>
    where
        F: Future<Output = Result<Told>>,
    {
        let call = {
            let told = look_up().await?;
            if self.others(&told, named).is_empty() {
                return self.found(told, named, (&[], Call::Other));
            }
            // Looking at the thread takes a while. Nobody waits so long for what the answer brings.
            Call::of(named.thread, &self.rt, &self.looks)
        };
        let call = call.await;
        let told = look_up().await?;
        let others = self.others(&told, named);
        self.found(told, named, (&others, call))
    }

    /// Other names of what was found that the kernel may be using in the same call although they are not true any more.
    fn others(&self, told: &Told, Named { dir, name, thread }: Named<'_>) -> Vec<Vec<u8>> {
        // How the kernel finds a file by its handle, or what is above it, and no entry that could be renamed.
        if matches!(&name[..], b"." | b"..") {
            return Vec::new();
        }
        let (place, fid) = ((dir, name.clone()), told.attr.fid);
        let expiring = self.known.names.lock().expiring_but(fid, &place);
        self.last_names.lock().others(thread, (&place, fid), &expiring)
    }

    /// What `named` means, whose thread is in a call, which counts if the file has others.
    fn found(&self, told: Told, named: Named<'_>, (others, call): (&[Vec<u8>], Call)) -> Result<Answer> {
        let Named { dir, name, thread } = named;
        if matches!(&name[..], b"." | b"..") {
            return Ok(self.entry(told, named));
        }
        let (place, fid) = ((dir, name.clone()), told.attr.fid);
        let leads_on = matches!(told.attr.kind(), FileKind::Dir | FileKind::Symlink);
        let has_names = told.attr.kind() == FileKind::Symlink && told.attr.nlink > 1;
        let moves_a_dir = matches!(call, Call::Rename(..)) && told.attr.kind() == FileKind::Dir;
        let (found, now) = ((&place, fid), self.rt.now());
        let said = self.last_names.lock().looked_up(thread, found, (others, call), leads_on, now);
        let again = said == Said::Again && self.ways.asks_again_to(thread, dir, &place.1);
        match said {
            Said::Truth => Ok(self.entry(told, named)),
            Said::Nothing => Err(Code::NotFound.into()),
            // A directory has one name: another mount has just given it this one. The MDT decides, for the kernel would only say ESTALE once more.
            Said::Again if again && moves_a_dir => Err(Code::NotFound.into()),
            // It was asked again already. Two names of one symbolic link lead here each time, and the kernel may see that they are one file.
            Said::Again if again || has_names && self.ways.was_told(thread) => Ok(self.entry(told, named)),
            Said::Again => Err(Code::Stale.into()),
        }
    }

    /// What the name of a file means that was just opened; none if it was opened without one.
    pub fn created(&self, told: Told, named: Option<Named<'_>>, open: OpenOut) -> Answer {
        self.answer(told, named, |attr, keep| Answer::Created(entry(attr, keep), open))
    }

    /// Attributes.
    pub fn attributes(&self, told: Told) -> Answer {
        self.answer(told, None, |attr, keep| Answer::Attr(attributes(attr, keep)))
    }

    /// Attributes with the time of birth.
    pub fn statx(&self, told: Told) -> Answer {
        self.answer(told, None, |attr, keep| Answer::Statx(Box::new(statx(attr, keep))))
    }

    /// An entry of a directory with its attributes, and what has to be held until the kernel has it.
    pub fn in_directory(&self, told: Told, named: Named<'_>) -> (EntryOut, Option<OnItsWay>) {
        let keep = self.keep(&told, Some(named));
        (entry(&told.attr, keep), (keep != Keep::default()).then(|| told.fill.send()))
    }

    /// The kernel is about to be told that it has moved a name.
    pub fn moved(&self, from: &Place, to: &Place, exchange: bool) {
        self.known.names.lock().moved(from, to, exchange);
    }

    fn keep(&self, told: &Told, asked: Option<Named<'_>>) -> Keep {
        let learned = (told.keep_attr || !told.keep_name.is_zero())
            && self.known.learning.may_keep(told.attr.fid, self.rt.now());
        let left = if learned { told.keep_name } else { Duration::ZERO };
        let named = asked.filter(|_| !left.is_zero() && self.may_keep_names.load(Ordering::Acquire));
        let name = named.map(|Named { dir, name, thread }| {
            self.known.names.lock().keep(told.attr.fid, (dir, name.clone()), left, thread, self.rt.now())
        });
        let name = name.unwrap_or_default();
        let keep = Keep { name, attr: told.keep_attr && learned && self.attrs.load(Ordering::Acquire) };
        // What it is asked about by its node the kernel knows.
        if let Some(Named { thread, .. }) = asked.filter(|_| keep.attr) {
            self.known.settling.told(told.attr.fid, thread, self.rt.now());
        }
        if self.attrs.load(Ordering::Relaxed) {
            self.known.asking.told(told.attr.fid, keep.attr);
        }
        keep
    }

    fn answer(
        &self,
        told: Told,
        named: Option<Named<'_>>,
        make: impl FnOnce(&Attr, Keep) -> Answer,
    ) -> Answer {
        let keep = self.keep(&told, named);
        let answer = make(&told.attr, keep);
        if keep == Keep::default() {
            return answer;
        }
        Answer::Holding(Box::new(answer), Arc::new(told.fill.send()))
    }
}

fn attr_secs(keep: Keep) -> u64 {
    if keep.attr { ATTRIBUTES_KEPT_SECS } else { 0 }
}

/// What a name means.
fn entry(attr: &Attr, keep: Keep) -> EntryOut {
    EntryOut {
        nodeid: node_of(attr.fid),
        generation: GENERATION,
        entry_valid: keep.name.as_secs(),
        entry_valid_nsec: keep.name.subsec_nanos(),
        attr_valid: attr_secs(keep),
        attr: file_attr(attr),
        ..EntryOut::default()
    }
}

/// Attributes.
fn attributes(attr: &Attr, keep: Keep) -> AttrOut {
    AttrOut { attr_valid: attr_secs(keep), attr: file_attr(attr), ..AttrOut::default() }
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
    StatxOut { attr_valid: attr_secs(keep), stat, ..StatxOut::default() }
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
