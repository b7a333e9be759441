//! Requests of the kernel, each turned into one operation of [`Ops`], and its result into the answer.
//!
//! The operation is polled once on the thread that brought the request and becomes a task only if it has to wait.
//! The reply goes with it.

mod files;
mod locks;
mod names;
mod opens;
mod operations;
mod told;

use std::sync::Arc;

use bytes::Bytes;
use client::Caller;
use client::job::{self, Entered};
use rt::Rt;

use crate::caller;
use crate::engine::{Reply, Serve};
use crate::kernel::reply::Answer;
use crate::kernel::request::{Operation, Request};
use crate::ops::{Ops, fid_of};
use crate::reopen::Reopens;
use crate::ways::Way;
use client::posix::{Errno, Result};
pub use told::Teller;

pub use locks::Locking;
use locks::Locks;
use names::New;
use operations::Operations;

/// A mount as an engine sees it.
pub struct Dispatcher {
    rt: Rt,
    ops: Arc<Ops>,
    teller: Arc<Teller>,
    operations: Operations,
    locks: Locks,
    reopens: Arc<Reopens>,
}

/// What all requests have.
struct Asked {
    node: u64,
    pid: u32,
    caller: Caller,
    reply: Reply,
}

impl Dispatcher {
    /// Serves `ops` on `rt`. The kernel keeps nothing yet.
    pub fn new(rt: Rt, ops: Arc<Ops>, teller: Teller, locking: Locking) -> Dispatcher {
        let teller = Arc::new(teller);
        let locks = Locks::new(locking);
        let operations = Operations::new(rt.clone(), ops.clone());
        Dispatcher { rt, ops, teller, operations, locks, reopens: Arc::default() }
    }

    /// From now on the kernel can be told to forget what it keeps: names too, or attributes and data alone.
    pub fn may_keep(&self, names: bool) {
        self.teller.may_keep(names);
    }

    /// Whether somebody waited for an answer when the connection ended.
    pub fn was_busy(&self) -> bool {
        self.operations.was_busy()
    }

    /// The thread that asks has come back from what it asked before.
    fn goes_on(&self, request: &Request<'_>) {
        match request.operation {
            Operation::Lookup { .. } => {}
            // On the way to a name the kernel asks about the directories.
            Operation::GetAttr { .. } => self.reopens.goes_on(request.pid, Some(fid_of(request.node))),
            _ => self.reopens.goes_on(request.pid, None),
        }
    }

    /// What is done until the result is dropped is for the job of `request`.
    fn enter(&self, request: &Request<'_>) -> Option<Entered> {
        let job = self.ops.job_of(request);
        (!job.is_none()).then(|| job::enter(job))
    }
}

impl Serve for Dispatcher {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let _entered = self.enter(&request);
        let caller = caller::of_process(request.uid, request.gid, request.pid);
        let way = self.teller.ways().of(&request);
        let gives_way = way.as_ref().is_some_and(Way::gives);
        let caller = Caller { umask: umask(&request.operation), gives_way, ..caller };
        self.goes_on(&request);
        let reply = reply.measured(self.ops.stats().begin(&request.operation)).on_way(way);
        let asked = Asked { node: request.node, pid: request.pid, caller, reply };
        match request.operation {
            Operation::Lookup { name } => self.lookup(asked, name),
            Operation::GetAttr { .. } => self.get_attr(asked),
            Operation::SetAttr(change) => self.set_attr(asked, change),
            Operation::ReadLink => self.read_link(asked),
            Operation::Symlink { name, target } => self.make(asked, name, New::symlink(target)),
            Operation::MkNod { name, mode, rdev, .. } => self.make(asked, name, New::node(mode, rdev)),
            Operation::MkDir { name, mode, .. } => self.make(asked, name, New::dir(mode)),
            Operation::Unlink { name } => self.unlink(asked, name),
            Operation::RmDir { name } => self.remove_dir(asked, name),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(asked, name, new_parent, new_name, flags);
            }
            Operation::Link { node, name } => self.link(asked, node, name),
            Operation::Access { mask } => self.access(asked, mask),
            Operation::SetXattr { name, value, flags, .. } => self.set_xattr(asked, name, value, flags),
            Operation::GetXattr { name, size } => self.get_xattr(asked, name, size),
            Operation::ListXattr { size } => self.list_xattr(asked, size),
            Operation::RemoveXattr { name } => self.remove_xattr(asked, name),
            Operation::StatFs => self.stat_fs(asked),
            Operation::Open { flags, .. } => self.open(asked, flags),
            Operation::Create { name, mode, flags, .. } => self.create(asked, name, mode, flags),
            Operation::TmpFile { mode, flags, .. } => self.create_unnamed(asked, mode, flags),
            Operation::Read(read) => self.read(asked, read),
            Operation::Write(write) => self.write(asked, write),
            Operation::Flush { handle, owner } => self.flush(asked, handle, owner),
            Operation::Release { handle, .. } => self.release(asked, handle),
            Operation::Fsync { handle, .. } => self.fsync(asked, handle),
            Operation::Allocate { handle, offset, len, mode } => {
                self.allocate(asked, handle, offset, len, mode)
            }
            Operation::Seek { offset, whence, .. } => self.seek(asked, offset, whence),
            Operation::CopyRange(copy) => self.copy_range(asked, copy),
            Operation::OpenDir { flags } => self.open_dir(asked, flags),
            Operation::ReadDir { handle, offset, size, plus } => {
                self.read_dir(asked, handle, (offset, size, plus));
            }
            Operation::ReleaseDir { handle } => self.release_dir(asked, handle),
            Operation::FsyncDir { handle, .. } => self.fsync_dir(asked, handle),
            Operation::GetLock(lock) => self.locks.get(&self.operations, asked, lock),
            Operation::SetLock { lock, wait } => self.locks.set(&self.operations, asked, lock, wait),
            Operation::Statx { .. } => self.statx(asked),
            Operation::SyncFs => self.sync_fs(asked),
            Operation::Interrupt { unique } => {
                asked.reply.none();
                self.operations.interrupt(unique);
            }
            // Nodes are FIDs: nothing is kept for one, and nothing has to go with it.
            Operation::Forget { .. } | Operation::BatchForget { .. } | Operation::NotifyReply => {
                asked.reply.none()
            }
            Operation::Destroy => asked.reply.send(Ok(Answer::Done)),
            // The kernel takes these refusals once and then does the work itself or refuses it.
            Operation::Ioctl | Operation::Poll | Operation::Init(_) | Operation::Unknown(_) => {
                asked.reply.send(Err(Errno::NO_SUCH_CALL));
            }
        }
    }

    fn gone(&self) {
        self.operations.end_all();
    }
}

/// The umask of the process that asks. Only the MDT knows whether it counts: not where a default ACL does.
fn umask(operation: &Operation<'_>) -> u32 {
    match operation {
        Operation::MkNod { umask, .. }
        | Operation::MkDir { umask, .. }
        | Operation::Create { umask, .. }
        | Operation::TmpFile { umask, .. } => *umask,
        _ => 0,
    }
}

fn owned(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name)
}

fn done(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}
