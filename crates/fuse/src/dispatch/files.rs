//! Open files and directories.

use std::sync::Arc;

use client::{Handle, OnItsWay};

use super::opens::noted;
use super::told::Named;
use super::{Asked, Dispatcher, done, owned, told};
use crate::interrupt::Ends;
use crate::kernel::abi::{Dirent, OpenOut, fopen};
use crate::kernel::reply::{Answer, Entries};
use crate::kernel::request::{CopyRange, Read, Write};
use crate::ops::{Ops, fid_of};
use client::posix::Errno;
use client::posix::WriteRequest;

impl Dispatcher {
    pub(super) fn create(
        &self,
        Asked { node, pid, caller, reply }: Asked,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) {
        let (name, teller, reopens) = (owned(name), self.teller.clone(), self.reopens.clone());
        self.operations.run(reply, |ops| async move {
            let made = ops.posix().create(&caller, fid_of(node), &name, mode, flags.cast_signed()).await;
            let (told, handle) = noted(&reopens, (pid, teller.rt()), made)?;
            let named = Named { dir: node, name: &name, thread: pid };
            Ok(teller.created(told, Some(named), opened(handle, file_flags(&ops, handle, flags))))
        });
    }

    pub(super) fn create_unnamed(&self, Asked { node, caller, reply, .. }: Asked, mode: u32, flags: u32) {
        let teller = self.teller.clone();
        self.operations.run(reply, |ops| async move {
            let made = ops.posix().create_unnamed(&caller, fid_of(node), mode, flags.cast_signed()).await;
            let (told, handle) = made?;
            Ok(teller.created(told, None, opened(handle, file_flags(&ops, handle, flags))))
        });
    }

    pub(super) fn read(&self, Asked { pid, reply, .. }: Asked, read: Read) {
        self.operations.look(reply, pid, |ops| async move {
            let handle = Handle(read.handle);
            if !read.fill {
                return ops.read(handle, read.offset, read.size).await.map(Answer::Slices);
            }
            let mut pages = ops.read_pages(handle, read.offset, read.size).await?;
            let slices = std::mem::take(&mut pages.slices);
            Ok(Answer::Holding(Box::new(Answer::Slices(slices)), Arc::new(pages)))
        });
    }

    pub(super) fn write(&self, Asked { node, caller, reply, .. }: Asked, write: Write<'_>) {
        let request = WriteRequest {
            fid: fid_of(node),
            handle: Handle(write.handle),
            offset: write.offset,
            flags: write.flags.cast_signed(),
            cached: write.cached,
            kill_privileges: write.kill_privileges,
        };
        // The buffer belongs to the engine and is used for its next request. Most writes only go into the cache and
        // wait for nothing: those need no copy besides that one.
        match self.ops.posix().write_at_once(&request, write.data) {
            Ok(None) => {}
            Ok(Some(len)) => return reply.send(Ok(Answer::Written(len))),
            Err(error) => return reply.send(Err(error)),
        }
        let data = owned(write.data);
        self.operations.run(reply, |ops| async move {
            ops.posix().write(&caller, request, &data).await.map(Answer::Written)
        });
    }

    pub(super) fn flush(&self, Asked { reply, .. }: Asked, handle: u64, owner: u64) {
        self.operations.run(reply, |ops| async move { done(ops.posix().flush(Handle(handle), owner).await) });
    }

    pub(super) fn release(&self, Asked { reply, .. }: Asked, handle: u64) {
        self.operations.run_unawaited(reply, |ops| async move { ops.posix().release(Handle(handle)).await });
    }

    pub(super) fn fsync(&self, Asked { reply, .. }: Asked, handle: u64) {
        self.operations.run(reply, |ops| async move { done(ops.fsync(Handle(handle)).await) });
    }

    pub(super) fn allocate(
        &self,
        Asked { caller, reply, .. }: Asked,
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    ) {
        self.operations.run(reply, |ops| async move {
            done(ops.posix().allocate(&caller, Handle(handle), (offset, len), mode.cast_signed()).await)
        });
    }

    pub(super) fn seek(&self, Asked { node, pid, reply, .. }: Asked, offset: u64, whence: u32) {
        self.operations.look(reply, pid, |ops| async move {
            let found = ops.posix().seek(fid_of(node), offset.cast_signed(), whence.cast_signed()).await?;
            Ok(Answer::Position(found.cast_unsigned()))
        });
    }

    pub(super) fn copy_range(&self, Asked { caller, reply, .. }: Asked, copy: CopyRange) {
        let (from, to) = (Handle(copy.handle_in), Handle(copy.handle_out));
        let (from, to) = ((from, copy.offset_in), (to, copy.offset_out));
        // The older answer has 32 bits.
        let len = if copy.wide { copy.len } else { copy.len.min(u64::from(u32::MAX)) };
        self.operations.run(reply, |ops| async move {
            // There are no flags.
            if copy.flags != 0 {
                return Err(Errno::INVALID);
            }
            let copied = ops.posix().copy_range(&caller, from, to, len).await?;
            Ok(if copy.wide { Answer::Copied(copied) } else { Answer::Written(copied as u32) })
        });
    }

    pub(super) fn open_dir(&self, Asked { node, pid, caller, reply }: Asked, flags: u32) {
        let open = |ops: Arc<Ops>| async move {
            Ok(Answer::Opened(opened(ops.posix().open_dir(&caller, fid_of(node), flags as i32).await?, 0)))
        };
        self.operations.interruptible(reply, pid, Ends::Death, open, |ops, rest| async move {
            if let Ok(Answer::Opened(opened)) = rest.await {
                ops.posix().release_dir(Handle(opened.fh)).await;
            }
        });
    }

    pub(super) fn read_dir(
        &self,
        Asked { node, pid, reply, .. }: Asked,
        handle: u64,
        (offset, size, plus): (u64, u32, bool),
    ) {
        let teller = self.teller.clone();
        self.operations.look(reply, pid, |ops| async move {
            let mut entries = Entries::new(size);
            let (mut held, dir, known) = (Vec::<OnItsWay>::new(), fid_of(node), ops.clone());
            let mut add = |item: client::posix::Item<'_>| {
                let kind = told::entry_kind(item.kind);
                let dirent = Dirent { ino: item.ino.0, off: item.offset, namelen: 0, kind };
                if !plus {
                    return entries.add(None, dirent, item.name);
                }
                // An entry without attributes is looked up when somebody asks for it.
                let told = item.entry.and_then(|entry| known.entry(dir, entry));
                let name = owned(item.name);
                let named = Named { dir: node, name: &name, thread: pid };
                let (entry, fill) =
                    told.map_or_else(Default::default, |told| teller.in_directory(told, named));
                let full = entries.add(Some(&entry), dirent, item.name);
                held.extend(fill.filter(|_| !full));
                full
            };
            ops.posix().read_dir(dir, Handle(handle), (offset, plus), &mut add).await?;
            let answer = entries.finish();
            Ok(if held.is_empty() { answer } else { Answer::Holding(Box::new(answer), Arc::new(held)) })
        });
    }

    pub(super) fn release_dir(&self, Asked { reply, .. }: Asked, handle: u64) {
        self.operations
            .run_unawaited(reply, |ops| async move { ops.posix().release_dir(Handle(handle)).await });
    }

    pub(super) fn fsync_dir(&self, Asked { node, reply, .. }: Asked, handle: u64) {
        self.operations
            .run(reply, |ops| async move { done(ops.posix().fsync_dir(fid_of(node), Handle(handle)).await) });
    }
}

/// How a regular file is opened. Who only reads does so through the kernel's page cache, which keeps what it has as
/// long as the client does not tell it to forget; everybody else goes past it, and only mappings use it. So does who reads
/// what another client is writing: the page cache ends where the kernel thinks that the file ends, and it may lose what it is
/// told of that while pages are taken back from it (see [`crate::asking`]).
pub(super) fn file_flags(ops: &Ops, handle: Handle, flags: u32) -> u32 {
    let flags = flags.cast_signed();
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & libc::O_DIRECT == 0;
    if reads && !ops.is_written_elsewhere(handle) {
        fopen::KEEP_CACHE
    } else {
        fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES
    }
}

/// The answer to an open.
pub(super) fn opened(handle: Handle, open_flags: u32) -> OpenOut {
    OpenOut { fh: handle.0, open_flags, backing_id: 0 }
}
