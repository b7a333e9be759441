//! The FUSE library's callbacks, each turned into one operation of [`Ops`].
//!
//! The operation is polled once on the thread that brought the request and becomes a task only if it has to wait.
//! The reply goes with it.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::{AttrChange, Caller, Handle, TimeSet};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use proto::{Attr, FileKind, Timestamp};
use rt::Rt;

use crate::caller;
use crate::errno::{Errno, Result};
use crate::ops::{Move, NewFile, Ops, WriteRequest, fid_of, mode_with_kind};

/// Largest write that the kernel sends, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way without a thread that waits for them (asynchronous I/O).
const BACKGROUND_MAX: u16 = 256;
/// How long the kernel may keep names and attributes that nobody else can change.
const KEPT: Duration = Duration::from_secs(3600);
/// Where other clients may change them, the kernel keeps neither: no lock protects them.
const NOT_KEPT: Duration = Duration::ZERO;
/// FIDs are never used twice, so one generation is enough.
const GENERATION: Generation = Generation(0);
/// Preferred size of an I/O, as stat tells it, in bytes.
const IO_BYTES: u32 = 1 << 20;
/// Unit of statfs, in bytes.
const STATFS_UNIT: u32 = 4096;

/// What regular files are opened with: past the page cache, which mappings alone use.
const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// Capabilities of the kernel that are used where it has them.
const WANTED: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC)
    .union(InitFlags::FUSE_AUTO_INVAL_DATA)
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_PARALLEL_DIROPS);

/// A mount as the FUSE library sees it.
pub struct Bridge {
    rt: Rt,
    ops: Arc<Ops>,
    /// How long the kernel keeps what it is told.
    keep: Duration,
}

impl Bridge {
    /// Serves `ops` on `rt`. With `exclusive` no other client can reach the file system, so whatever changes went
    /// through this kernel, which may keep names and attributes. That a name is missing is never kept:
    /// `lfs setstripe` makes files past the kernel's directory cache.
    pub fn new(rt: Rt, ops: Arc<Ops>, exclusive: bool) -> Bridge {
        Bridge { rt, ops, keep: if exclusive { KEPT } else { NOT_KEPT } }
    }

    fn run<F: Future<Output = ()> + Send + 'static>(&self, operation: impl FnOnce(Arc<Ops>) -> F) {
        self.rt.run_in_place(operation(self.ops.clone()));
    }
}

impl Filesystem for Bridge {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let usable = WANTED & config.capabilities();
        let set = config.add_capabilities(usable).is_ok()
            && config.set_max_write(WRITE_BYTES_MAX).is_ok()
            && config.set_max_background(BACKGROUND_MAX).is_ok();
        if !set {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        if !usable.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) {
            tracing::warn!("this kernel cannot map files of the mount shared (Linux 6.6 and later can)");
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, name) = (caller_of(req), owned(name));
        let keep = self.keep;
        self.run(|ops| async move { entry(reply, keep, ops.lookup(&caller, fid_of(parent.0), &name).await) });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let keep = self.keep;
        self.run(|ops| async move { attributes(reply, keep, ops.getattr(fid_of(ino.0)).await) });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = caller_of(req);
        let (atime, mtime) = (atime.map(time_set), mtime.map(time_set));
        let mode = mode.map(|mode| mode & 0o7777);
        let change = AttrChange { mode, uid, gid, size, atime, mtime };
        let handle = fh.map(|fh| Handle(fh.0));
        let keep = self.keep;
        self.run(|ops| async move {
            attributes(reply, keep, ops.setattr(&caller, fid_of(ino.0), change, handle).await);
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(|ops| async move {
            match ops.readlink(fid_of(ino.0)).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.make(req, parent, name, (mode, rdev), Bytes::new(), reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.make(req, parent, name, (mode_with_kind(mode, FileKind::Dir), 0), Bytes::new(), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        self.make(req, parent, link_name, (mode_with_kind(0o777, FileKind::Symlink), 0), target, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller_of(req), owned(name));
        self.run(|ops| async move { empty(reply, ops.unlink(&caller, fid_of(parent.0), &name).await) });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller_of(req), owned(name));
        self.run(|ops| async move { empty(reply, ops.rmdir(&caller, fid_of(parent.0), &name).await) });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (caller, name, new_name) = (caller_of(req), owned(name), owned(newname));
        self.run(|ops| async move {
            let what = Move {
                parent: fid_of(parent.0),
                name: &name,
                new_parent: fid_of(newparent.0),
                new_name: &new_name,
                flags: flags.bits(),
            };
            empty(reply, ops.rename(&caller, what).await);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (caller, name) = (caller_of(req), owned(newname));
        let keep = self.keep;
        self.run(|ops| async move {
            entry(reply, keep, ops.link(&caller, fid_of(ino.0), fid_of(newparent.0), &name).await);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = caller_of(req);
        self.run(|ops| async move {
            match ops.open(&caller, fid_of(ino.0), flags.0).await {
                Ok(handle) => reply.opened(FileHandle(handle.0), FILE_FLAGS),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, name) = (caller_of(req), owned(name));
        let keep = self.keep;
        self.run(|ops| async move {
            match ops.create(&caller, fid_of(parent.0), &name, mode, flags).await {
                Ok((attr, handle)) => {
                    reply.created(&keep, &file_attr(&attr), GENERATION, FileHandle(handle.0), FILE_FLAGS);
                }
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(|ops| async move {
            match ops.read(Handle(fh.0), offset, size).await {
                Ok(slices) => match &slices[..] {
                    [one] => reply.data(one),
                    several => reply.data(&several.concat()),
                },
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let request = WriteRequest {
            fid: fid_of(ino.0),
            handle: Handle(fh.0),
            offset,
            flags: flags.0,
            cached: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        // The buffer belongs to the thread and is used for its next request. Most writes only go into the cache and
        // wait for nothing: those need no copy besides that one. A write that has to wait is begun again with its own.
        if self.ops.is_repeatable(&request) {
            let attempt = pin!(self.ops.write(request, data));
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(result) = attempt.poll(&mut cx) {
                return written(reply, result);
            }
        }
        let data = Bytes::copy_from_slice(data);
        self.run(|ops| async move { written(reply, ops.write(request, &data).await) });
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.run(|ops| async move { empty(reply, ops.flush(Handle(fh.0)).await) });
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.run(|ops| async move {
            ops.release(Handle(fh.0)).await;
            reply.ok();
        });
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(|ops| async move { empty(reply, ops.fsync(Handle(fh.0)).await) });
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let caller = caller_of(req);
        self.run(|ops| async move {
            match ops.open_dir(&caller, fid_of(ino.0)).await {
                Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.run(|ops| async move {
            let mut add = |item: crate::dirs::Item<'_>| {
                reply.add(
                    INodeNo(item.ino.0),
                    item.offset,
                    file_type(item.kind),
                    OsStr::from_bytes(item.name),
                )
            };
            match ops.read_dir(fid_of(ino.0), Handle(fh.0), offset, &mut add).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.run(|ops| async move {
            ops.release_dir(Handle(fh.0)).await;
            reply.ok();
        });
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(|ops| async move { empty(reply, ops.fsync_dir(fid_of(ino.0)).await) });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.run(|ops| async move {
            let unit = u64::from(STATFS_UNIT);
            match ops.statfs().await {
                Ok(space) => reply.statfs(
                    space.bytes_total / unit,
                    space.bytes_free / unit,
                    space.bytes_available / unit,
                    space.files_total,
                    space.files_free,
                    STATFS_UNIT,
                    proto::limits::NAME_BYTES_MAX as u32,
                    STATFS_UNIT,
                ),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, name, value) = (caller_of(req), owned(name), Bytes::copy_from_slice(value));
        self.run(|ops| async move {
            let flags = flags.cast_unsigned();
            empty(reply, ops.set_xattr(&caller, fid_of(ino.0), &name, value, flags).await);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (caller, name) = (caller_of(req), owned(name));
        self.run(|ops| async move {
            match ops.get_xattr(&caller, fid_of(ino.0), &name).await {
                Ok(value) => sized(reply, size, &value),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.run(|ops| async move {
            match ops.list_xattr(fid_of(ino.0)).await {
                Ok(names) => sized(reply, size, &names),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller_of(req), owned(name));
        self.run(|ops| async move { empty(reply, ops.remove_xattr(&caller, fid_of(ino.0), &name).await) });
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let caller = caller_of(req);
        let mask = mask.bits().cast_unsigned();
        self.run(|ops| async move { empty(reply, ops.access(&caller, fid_of(ino.0), mask).await) });
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.run(|ops| async move { empty(reply, ops.allocate(Handle(fh.0), offset, length, mode).await) });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.run(|ops| async move {
            match ops.seek(fid_of(ino.0), offset, whence).await {
                Ok(offset) => reply.offset(offset),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    // The kernel takes these refusals once and then does the work itself or refuses it; the library's own would log
    // a warning each time.

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::NO_SUCH_CALL.into());
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::NO_SUCH_CALL.into());
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::NO_SUCH_CALL.into());
    }
}

impl Bridge {
    fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, rdev): (u32, u32),
        target: Bytes,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (caller_of(req), owned(name));
        let keep = self.keep;
        self.run(|ops| async move {
            let new = NewFile { parent: fid_of(parent.0), name: &name, mode, rdev, target };
            entry(reply, keep, ops.make(&caller, new).await);
        });
    }
}

fn caller_of(req: &Request) -> Caller {
    caller::of_process(req.uid(), req.gid(), req.pid())
}

fn owned(name: &OsStr) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn entry(reply: ReplyEntry, keep: Duration, result: Result<Attr>) {
    match result {
        Ok(attr) => reply.entry(&keep, &file_attr(&attr), GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

fn attributes(reply: ReplyAttr, keep: Duration, result: Result<Attr>) {
    match result {
        Ok(attr) => reply.attr(&keep, &file_attr(&attr)),
        Err(error) => reply.error(error.into()),
    }
}

fn written(reply: ReplyWrite, result: Result<u32>) {
    match result {
        Ok(count) => reply.written(count),
        Err(error) => reply.error(error.into()),
    }
}

fn empty(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

/// A caller that offers no room asks for the size.
fn sized(reply: ReplyXattr, room: u32, value: &[u8]) {
    match u32::try_from(value.len()) {
        Ok(len) if room == 0 => reply.size(len),
        Ok(len) if len <= room => reply.data(value),
        Ok(_) => reply.error(Errno::RANGE.into()),
        Err(_) => reply.error(Errno::TOO_BIG.into()),
    }
}

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> fuser::Errno {
        fuser::Errno::from_i32(errno.0)
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.fid.ino().0),
        size: attr.size,
        blocks: attr.blocks,
        atime: to_system(attr.atime),
        mtime: to_system(attr.mtime),
        ctime: to_system(attr.ctime),
        crtime: to_system(attr.btime),
        kind: file_type(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: IO_BYTES,
        flags: 0,
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Dir => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Char => FileType::CharDevice,
        FileKind::Block => FileType::BlockDevice,
        FileKind::Socket => FileType::Socket,
    }
}

fn to_system(time: Timestamp) -> SystemTime {
    let nanos = Duration::new(0, time.nanos);
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs >= 0 { UNIX_EPOCH.checked_add(secs) } else { UNIX_EPOCH.checked_sub(secs) };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

fn time_set(time: TimeOrNow) -> TimeSet {
    match time {
        TimeOrNow::Now => TimeSet::Now,
        TimeOrNow::SpecificTime(time) => TimeSet::At(from_library(time)),
    }
}

/// The library makes a time before 1970 by taking seconds *and* nanoseconds away from the epoch, although the kernel
/// counts the nanoseconds forward: taking the distance apart gives back what the kernel said.
fn from_library(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
            Timestamp { secs, nanos: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive() {
        for time in [(0, 0), (5, 7), (-1, 0), (-2, 500_000_000), (1 << 40, 1)] {
            let time = Timestamp { secs: time.0, nanos: time.1 };
            let from_kernel = if time.secs >= 0 {
                UNIX_EPOCH + Duration::new(time.secs.unsigned_abs(), time.nanos)
            } else {
                UNIX_EPOCH - Duration::new(time.secs.unsigned_abs(), time.nanos)
            };
            assert_eq!(from_library(from_kernel), time);
        }
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(to_system(Timestamp { secs: -1, nanos: 500_000_000 }), half_before);
    }
}
