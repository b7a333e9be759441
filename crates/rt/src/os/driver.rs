//! Which threads carry tasks, timers and sockets: a ring on each core, or tokio's where the kernel has no io_uring.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::reactor::{Direction, Reactors, Watch};
use super::within;
use crate::BoxFuture;
use crate::wait::unless;

/// Frames up to this length are written by the thread that sends them if there are others that could do it, in bytes; for
/// longer ones the copy into the kernel would keep it from what it does next.
const IN_PLACE_BYTES_MAX: usize = 128 << 10;

/// The threads of a node. Cheap to clone.
#[derive(Clone)]
pub(super) struct Driver {
    /// For what needs tokio in any case: names of hosts, etcd, work that blocks.
    pub handle: Handle,
    pub reactors: Option<Arc<Reactors>>,
}

impl Driver {
    /// Runs `future` as a task where the caller is.
    pub(super) fn spawn(&self, future: BoxFuture<'static, ()>) {
        match &self.reactors {
            Some(reactors) => reactors.spawn(future),
            None => drop(self.handle.spawn(future)),
        }
    }

    /// Polls `future`, and runs it to its end as a task.
    pub(super) fn spawn_waiting(&self, future: BoxFuture<'static, ()>) {
        match &self.reactors {
            Some(reactors) => reactors.spawn_waiting(future),
            None => drop(self.handle.spawn(future)),
        }
    }

    /// Runs `future` as a task of any core: for what has work of its own for long.
    pub(super) fn spawn_apart(&self, future: BoxFuture<'static, ()>) {
        match &self.reactors {
            Some(reactors) => reactors.spawn_apart(future),
            None => drop(self.handle.spawn(future)),
        }
    }

    /// Runs `future` as a task of a core that has nothing to do, or else where the caller is.
    pub(super) fn spawn_behind(&self, future: BoxFuture<'static, ()>) {
        match &self.reactors {
            Some(reactors) => reactors.spawn_behind(future),
            None => drop(self.handle.spawn(future)),
        }
    }

    /// Up to which length whoever sends a frame writes it, in bytes. On a core there is nobody else who could.
    pub(super) fn in_place_bytes_max(&self) -> usize {
        if self.reactors.is_some() { usize::MAX } else { IN_PLACE_BYTES_MAX }
    }

    /// Waits until `deadline`.
    pub(super) async fn sleep_until(&self, deadline: Instant) {
        match &self.reactors {
            Some(reactors) => reactors.sleep_until(deadline).await,
            None => within(&self.handle, async { tokio::time::sleep_until(deadline.into()).await }).await,
        }
    }

    /// What `future` gives, or `None` if it takes until `deadline`.
    pub(super) fn until<T>(
        &self,
        deadline: Instant,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        unless(self.sleep_until(deadline), future)
    }

    /// The same for a time from now on.
    pub(super) async fn within<T>(&self, time: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.until(Instant::now() + time, future).await
    }

    /// Sees to it that somebody who would have to wait for `fd`, which does not block, is told when not.
    pub(super) fn watch(&self, fd: Arc<OwnedFd>) -> io::Result<Readiness> {
        match &self.reactors {
            Some(reactors) => Ok(Readiness::Ring(Watch::new(reactors.clone(), fd))),
            None => self.watch_apart(fd),
        }
    }

    /// The same without a ring, for sockets that listen. A ring keeps what it watches open for a moment after a process was killed, and
    /// another that is started in its place could not listen at the same address.
    #[allow(unsafe_code)]
    pub(super) fn watch_apart(&self, fd: Arc<OwnedFd>) -> io::Result<Readiness> {
        let _entered = self.handle.enter();
        // SAFETY: an owned descriptor behind an Arc stays the same one, and open, until it is dropped with this.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::WRITABLE) }?;
        Ok(Readiness::Tokio(self.handle.clone(), fd))
    }
}

/// When a socket can be read or written.
pub(super) enum Readiness {
    Ring(Watch),
    Tokio(Handle, AsyncFd<Arc<OwnedFd>>),
}

impl Readiness {
    /// Waits until there may be something to read. Call after an attempt that would have blocked.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Readiness::Ring(watch) => watch.wait(Direction::In).await,
            Readiness::Tokio(handle, fd) => within(handle, fd.readable()).await?.clear_ready(),
        }
        Ok(())
    }

    /// The same for room to write.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Readiness::Ring(watch) => watch.wait(Direction::Out).await,
            Readiness::Tokio(handle, fd) => within(handle, fd.writable()).await?.clear_ready(),
        }
        Ok(())
    }
}
