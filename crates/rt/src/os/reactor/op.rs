//! One operation of the ring, as a future that any thread may poll.
//!
//! The kernel reads and writes memory while an operation is under way, so that memory belongs to the operation until its
//! completion is seen, whether or not the result is still waited for.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use io_uring::{opcode, squeue, types};
use parking_lot::Mutex;

use super::core::{Core, Order};

/// What waits for completions of an entry.
pub(super) trait Pending: Send + Sync {
    /// A completion has come; `more` if it is not the last.
    fn completed(&self, result: i32, more: bool);

    /// Where the core's thread notes the name of the entry in its ring.
    fn name(&self) -> &AtomicU64;
}

/// An operation, and the memory and descriptors that it needs.
pub(in crate::os) struct Want<K> {
    entry: squeue::Entry,
    kept: K,
}

/// What a read fills, and the descriptor that it reads.
pub(in crate::os) type Reading<B> = (B, Arc<OwnedFd>);

impl<B: AsMut<[u8]> + Send + 'static> Want<Reading<B>> {
    /// Reads from `offset` into `buf`. The memory of `buf` must not move with it.
    pub(in crate::os) fn read(fd: Arc<OwnedFd>, offset: u64, mut buf: B) -> Want<Reading<B>> {
        let memory = buf.as_mut();
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), memory.as_mut_ptr(), len);
        Want { entry: entry.offset(offset).build(), kept: (buf, fd) }
    }
}

impl Want<Arc<OwnedFd>> {
    /// Makes what was written durable (fdatasync).
    pub(in crate::os) fn sync(fd: Arc<OwnedFd>) -> Want<Arc<OwnedFd>> {
        let entry = opcode::Fsync::new(types::Fd(fd.as_raw_fd())).flags(types::FsyncFlags::DATASYNC);
        Want { entry: entry.build(), kept: fd }
    }
}

/// An operation that was begun. Gives its result and what it kept.
pub struct Op<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: AtomicU64,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// Taken when the result is taken.
    kept: Option<K>,
    result: Option<i32>,
    waker: Option<Waker>,
}

/// Has `core` carry out what is wanted.
pub(super) fn begin<K: Send + 'static>(core: &Core, want: Want<K>) -> Op<K> {
    let state = State { kept: Some(want.kept), result: None, waker: None };
    let shared = Arc::new(Shared { name: AtomicU64::new(0), state: Mutex::new(state) });
    core.order(Order::Submit { entry: Box::new(want.entry.into()), pending: shared.clone() });
    Op { shared }
}

impl<K: Send> Pending for Shared<K> {
    fn completed(&self, result: i32, _more: bool) {
        let mut state = self.state.lock();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn name(&self) -> &AtomicU64 {
        &self.name
    }
}

impl<K> Future for Op<K> {
    type Output = (io::Result<usize>, K);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.state.lock();
        let (Some(result), true) = (state.result, state.kept.is_some()) else {
            // After the result was taken nobody wakes any more, as with any future that is done.
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let Some(kept) = state.kept.take() else { return Poll::Pending };
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Poll::Ready((result, kept))
    }
}

/// Which way of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::os) enum Direction {
    /// There is something to read.
    In,
    /// There is room to write.
    Out,
}

/// The name of an entry that is not in the ring.
pub(super) const NO_NAME: u64 = u64::MAX;

/// The entry that watches `fd` until it is cancelled.
pub(super) fn watching(fd: &OwnedFd, events: u32) -> Box<squeue::Entry128> {
    let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).multi(true);
    Box::new(entry.build().into())
}

/// The entry that ends the one that has this name.
pub(super) fn cancelling(pending: &dyn Pending) -> Option<squeue::Entry128> {
    match pending.name().load(Ordering::Acquire) {
        NO_NAME => None,
        name => Some(opcode::AsyncCancel::new(name).build().into()),
    }
}
