//! Requests of the kernel, each turned into one operation of [`Ops`], and its result into the answer.
//!
//! The operation is polled once on the thread that brought the request and becomes a task only if it has to wait.
//! The reply goes with it.

mod files;
mod locks;
mod names;
mod opens;
mod told;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::Caller;
use client::job::{self, Entered, OfJob};
use rt::Rt;
use rt::sync::Semaphore;

use crate::caller;
use crate::engine::{Reply, Serve};
use crate::interrupt::{Ends, Interrupts, Look, Outcome, Told};
use crate::kernel::reply::Answer;
use crate::kernel::request::{Operation, Request};
use crate::ops::{Ops, fid_of};
use crate::reopen::Reopens;
use crate::ways::Way;
use client::posix::{Errno, Result};
pub use told::Teller;

pub use locks::Locking;

/// How often an operation is looked after whose process got a signal and lives on.
const WATCH_TICK: Duration = Duration::from_millis(250);
/// How often operations that wait for long are looked after although nobody told of a signal.
const LOOK_TICK: Duration = Duration::from_secs(1);

/// A mount as an engine sees it.
pub struct Dispatcher {
    rt: Rt,
    ops: Arc<Ops>,
    teller: Arc<Teller>,
    interrupts: Arc<Interrupts>,
    locking: Locking,
    reopens: Arc<Reopens>,
    /// Permits to wait for a lock.
    lock_waits: Arc<Semaphore>,
    /// Changes that somebody waits for.
    changes: Arc<AtomicUsize>,
    was_busy: AtomicBool,
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
        let lock_waits = Arc::new(Semaphore::new(locks::WAITS_MAX));
        let interrupts = Arc::new(Interrupts::default());
        rt.spawn(look_after_all(rt.clone(), Arc::downgrade(&interrupts)));
        Dispatcher {
            rt,
            ops,
            teller,
            interrupts,
            locking,
            reopens: Arc::default(),
            lock_waits,
            changes: Arc::default(),
            was_busy: AtomicBool::new(false),
        }
    }

    /// From now on the kernel can be told to forget what it keeps: names too, or attributes and data alone.
    pub fn may_keep(&self, names: bool) {
        self.teller.may_keep(names);
    }

    /// Runs an operation that changes something, to its end, and answers with what it gives.
    fn run<F>(&self, reply: Reply, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = Result<Answer>> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if let Poll::Ready(result) = poll_here(operation.as_mut()) {
            return reply.send(result);
        }
        let waits = Waits::count(&self.changes);
        let operation = OfJob::new(job::current(), operation);
        self.rt.spawn_waiting(async move {
            let _waits = waits;
            reply.send(operation.await);
        });
    }

    /// The same for what nobody waits for: closing.
    fn run_unawaited<F>(&self, reply: Reply, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if poll_here(operation.as_mut()).is_ready() {
            return reply.send(Ok(Answer::Done));
        }
        let operation = OfJob::new(job::current(), operation);
        self.rt.spawn_waiting(async move {
            operation.await;
            reply.send(Ok(Answer::Done));
        });
    }

    /// Whether somebody waited for an answer when the connection ended.
    pub fn was_busy(&self) -> bool {
        self.was_busy.load(Ordering::Acquire)
    }

    /// Runs an operation that only reads: it is abandoned if the process dies.
    fn look<F>(&self, reply: Reply, pid: u32, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = Result<Answer>> + Send + 'static,
    {
        self.interruptible(reply, pid, Ends::Death, operation, |_, _| std::future::ready(()));
    }

    /// Runs an operation; if it has to wait and is interrupted, the answer is EINTR, and `rest` has to bring the
    /// operation to its end or drops it.
    fn interruptible<F, R>(
        &self,
        reply: Reply,
        pid: u32,
        ends: Ends,
        operation: impl FnOnce(Arc<Ops>) -> F,
        rest: impl FnOnce(Arc<Ops>, Pin<Box<F>>) -> R + Send + 'static,
    ) where
        F: Future<Output = Result<Answer>> + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if let Poll::Ready(result) = poll_here(operation.as_mut()) {
            return reply.send(result);
        }
        let (waiting, told) = self.interrupts.wait(reply.unique(), pid, ends, operation);
        self.watch(told);
        let (ops, job) = (self.ops.clone(), job::current());
        self.rt.spawn_waiting(async move {
            match OfJob::new(job, waiting).await {
                Outcome::Done(result) => reply.send(result),
                Outcome::Interrupted(operation) => {
                    let rest = OfJob::new(job, Box::pin(rest(ops, operation)));
                    // A request for a lock that was given up is in nobody's way when the process goes on.
                    if ends == Ends::AnySignal {
                        rest.await;
                        return reply.send(Err(Errno::INTERRUPTED));
                    }
                    reply.send(Err(Errno::INTERRUPTED));
                    rest.await;
                }
            }
        });
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

    /// Looks after an operation whose process got a signal that did not kill it: the next one is not told of.
    fn watch(&self, told: Told) {
        let Told::Watch(waiter) = told else { return };
        let rt = self.rt.clone();
        self.rt.spawn(async move {
            while !waiter.is_over() && !waiter.end_if_dying() {
                rt.sleep(WATCH_TICK).await;
            }
        });
    }
}

/// Looks after whoever waits, until the connection is gone.
async fn look_after_all(rt: Rt, interrupts: Weak<Interrupts>) {
    loop {
        match interrupts.upgrade().map_or(Look::Over, |interrupts| interrupts.look_after_all()) {
            Look::Again => {}
            Look::Rest(waits) => waits.notified().await,
            Look::Over => return,
        }
        rt.sleep(LOOK_TICK).await;
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
            Operation::Symlink { name, target } => self.symlink(asked, name, target),
            Operation::MkNod { name, mode, rdev, .. } => self.make_node(asked, name, mode, rdev),
            Operation::MkDir { name, mode, .. } => self.make_dir(asked, name, mode),
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
            Operation::GetLock(lock) => self.get_lock(asked, lock),
            Operation::SetLock { lock, wait } => self.set_lock(asked, lock, wait),
            Operation::Statx { .. } => self.statx(asked),
            Operation::SyncFs => self.sync_fs(asked),
            Operation::Interrupt { unique } => {
                asked.reply.none();
                self.watch(self.interrupts.interrupt(unique));
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
        let interrupted = self.interrupts.end_all();
        self.was_busy.store(interrupted || self.changes.load(Ordering::Relaxed) > 0, Ordering::Release);
    }
}

/// Polls an operation once on the thread that brought it: what needs no waiting pays for no task. The operation is boxed alone:
/// each future around another one would hold it twice.
fn poll_here<F: Future>(operation: Pin<&mut F>) -> Poll<F::Output> {
    operation.poll(&mut Context::from_waker(Waker::noop()))
}

/// An operation that waits.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn count(changes: &Arc<AtomicUsize>) -> Waits {
        changes.fetch_add(1, Ordering::Relaxed);
        Waits(changes.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
