//! The production driver: threads, sockets and files of this machine.
//!
//! Where the kernel has io_uring, a thread with a ring on each core carries everything (`reactor`); elsewhere tokio does, with a
//! pool of threads for the disk (`driver` knows which).
//!
//! Futures of this driver may be polled on any thread, those of the kernel's file system interface too, and go on
//! later as tasks of the node. So nothing here assumes that it runs on a thread of the runtime: what needs the
//! runtime enters it for the time of a poll.

// Here is where the machine's own means belong.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod disk;
mod driver;
pub mod heap;
pub mod http;
pub mod loopback;
mod memory;
pub mod net;
mod pool;
pub mod process;
pub mod reactor;
pub mod web;

use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Handle, Runtime};

use self::driver::Driver;
use self::reactor::Reactors;
use crate::BoxFuture;
use crate::memory::Memory;
use crate::time::{Time, Wall};

/// Pause between two times that freed memory is given back to the machine. It takes some milliseconds for each GiB.
const RELEASE_PAUSE: Duration = Duration::from_secs(20);
/// Most threads that run offloaded work.
const OFFLOAD_THREADS_MAX: usize = 64;

/// The door of this process: a runtime with its threads, a disk pool, and the network. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    /// Taken by [`Node::stop`].
    runtime: Mutex<Option<Runtime>>,
    /// [`awake_or_not`] then.
    start: Duration,
    disk: disk::Disk,
    memory: Memory,
    /// When memory was given back last.
    released: Mutex<Instant>,
    /// For what all connections receive.
    room: Arc<net::room::Room>,
}

impl Node {
    /// Starts a node whose tasks run on `threads` threads, each with a ring if this kernel has io_uring. Raises this process's
    /// limit of open files as far as it may.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start(threads: usize) -> io::Result<Node> {
        match Reactors::start(threads) {
            Ok(reactors) => Node::start_with(1, Some(Arc::new(reactors))),
            Err(error) => {
                tracing::info!(%error, "tasks run without io_uring");
                Node::start_without_rings(threads)
            }
        }
    }

    /// The same without rings, on whatever kernel.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start_without_rings(threads: usize) -> io::Result<Node> {
        Node::start_with(threads, None)
    }

    fn start_with(threads: usize, reactors: Option<Arc<Reactors>>) -> io::Result<Node> {
        raise_file_limit();
        let count = AtomicUsize::new(0);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(OFFLOAD_THREADS_MAX)
            .thread_name_fn(move || format!("weft-{}", count.fetch_add(1, Ordering::Relaxed)))
            .enable_io()
            .enable_time()
            .build()?;
        let driver = Driver { handle: runtime.handle().clone(), reactors };
        let runtime = Mutex::new(Some(runtime));
        let disk = disk::Disk::new(driver.reactors.clone());
        let memory = Memory::new(memory::memory_bytes(), Some(heap::held));
        crate::buf::set_limit(memory.limit());
        let room = Arc::new(net::room::Room::within(memory.bytes()));
        let (start, released) = (awake_or_not(), Mutex::new(Instant::now()));
        Ok(Node { inner: Arc::new(Inner { driver, runtime, start, disk, memory, room, released }) })
    }

    /// Runs `future` on this thread until it is done: for the main functions of programs.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.inner.driver.handle.block_on(future)
    }

    /// Ends the node's tasks, at their next wait. Tasks hold the node, so a program that does not exit right away
    /// must call this to be rid of it. Waits up to `patience` for offloaded work.
    pub fn stop(&self, patience: Duration) {
        if let Some(reactors) = &self.inner.driver.reactors {
            reactors.stop(patience);
        }
        let runtime = self.inner.runtime.lock().take();
        match runtime {
            Some(runtime) if Handle::try_current().is_err() => runtime.shutdown_timeout(patience),
            // A task may not wait for its own runtime.
            Some(runtime) => runtime.shutdown_background(),
            None => {}
        }
    }

    /// Time since the node started. It goes on while the machine is suspended: what others take for over then is over here, too.
    pub fn now(&self) -> Time {
        let since = awake_or_not().saturating_sub(self.inner.start);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Real time.
    pub fn wall(&self) -> Wall {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Wall { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    }

    /// Processor time that this process has used, of all its threads.
    pub fn processor_time(&self) -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        )
    }

    /// How many processors this process may use.
    pub fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    /// Waits until `time`.
    pub async fn sleep_until(&self, time: Time) {
        // A time gone by is answered at once, like in a simulation: tokio would round up to the next tick.
        let left = Duration::from_nanos(time.0.saturating_sub(self.now().0));
        if left.is_zero() {
            return;
        }
        self.inner.driver.sleep_until(Instant::now() + left).await;
    }

    /// Runs `future` as a task. A panic in a task is a bug that nobody would see, so it ends the process.
    pub fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.inner.driver.spawn(Box::pin(abort_on_panic(future)));
    }

    /// Polls `future`, and runs it to its end as a task.
    pub fn spawn_waiting(&self, future: BoxFuture<'static, ()>) {
        self.inner.driver.spawn_waiting(Box::pin(abort_on_panic(future)));
    }

    /// Runs `future` as a task that has work of its own for long, so it need not be where the caller is.
    pub fn spawn_apart(&self, future: BoxFuture<'static, ()>) {
        self.inner.driver.spawn_apart(Box::pin(abort_on_panic(future)));
    }

    /// Runs `future` as a task of a core that has nothing to do, or else of this one.
    pub fn spawn_behind(&self, future: BoxFuture<'static, ()>) {
        self.inner.driver.spawn_behind(Box::pin(abort_on_panic(future)));
    }

    /// The cores, if this kernel has io_uring.
    pub fn reactors(&self) -> Option<&Arc<Reactors>> {
        self.inner.driver.reactors.as_ref()
    }

    /// Ready at once, but now and then only after others had their turn.
    pub(crate) fn poll_step(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.inner.driver.reactors {
            Some(_) => reactor::poll_step(cx),
            None => Poll::Ready(()),
        }
    }

    /// Runs `work` on a thread of its own; for ever if the node stops meanwhile.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self.inner.driver.handle.spawn_blocking(work).await {
            Ok(value) => value,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => std::future::pending().await,
        }
    }

    /// Fills `bytes` from the kernel's source.
    pub fn random_bytes(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random numbers, and keys need them: {error}"),
            }
        }
    }

    /// Memory that this process may use, as it was when the node was started.
    pub(crate) fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    /// The limit of memory has changed: what connections may receive follows, and what free lists keep.
    pub(crate) fn fit_room(&self) {
        let (room, memory) = (self.inner.room.clone(), self.inner.memory.clone());
        crate::buf::set_limit(memory.limit());
        self.spawn(Box::pin(async move { room.fit(memory.bytes()).await }));
    }

    /// Whether it is time to give memory back again.
    pub(crate) fn may_release(&self) -> bool {
        let mut released = self.inner.released.lock();
        let may = released.elapsed() >= RELEASE_PAUSE;
        if may {
            *released = Instant::now();
        }
        may
    }

    /// The machine's disk.
    pub fn disk(&self) -> disk::Disk {
        self.inner.disk.clone()
    }

    /// The machine's network.
    pub fn net(&self) -> net::Net {
        net::Net::new(self.inner.driver.clone(), self.inner.room.clone())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(reactors) = &self.driver.reactors {
            reactors.stop(Duration::ZERO);
        }
        // The last clone may go on a thread of the runtime, which must not wait for itself.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

/// Time since the machine started, with what it was suspended for.
fn awake_or_not() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Polls `future` inside the runtime, whichever thread polls.
async fn within<T>(handle: &Handle, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _entered = handle.enter();
        future.as_mut().poll(cx)
    })
    .await
}

async fn abort_on_panic(mut future: BoxFuture<'static, ()>) {
    poll_fn(|cx| {
        std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            // Written directly, because the harness of a test would keep what eprintln says.
            let _ = writeln!(io::stderr(), "a task panicked: {}", text.unwrap_or("no message"));
            std::process::abort();
        })
    })
    .await;
}

fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rt;
    use tokio::sync::oneshot;

    fn node() -> Node {
        Node::start(2).expect("a node starts")
    }

    #[test]
    fn time_goes_on_and_sleeps_last() {
        let node = node();
        let before = node.now();
        let until = before + Duration::from_millis(20);
        node.block_on(node.sleep_until(until));
        assert!(node.now() >= until);
        assert!(node.wall().secs > 1_600_000_000);
        node.block_on(node.sleep_until(before));
    }

    #[test]
    fn sleep_begun_on_a_foreign_thread_ends_on_the_runtime() {
        let node = node();
        let rt = Rt::os(node.clone());
        let (done, wait) = oneshot::channel();
        let inside = rt.clone();
        // This thread does not belong to the runtime: the first poll is here, the rest there.
        rt.run_in_place(async move {
            let before = inside.now();
            inside.sleep(Duration::from_millis(10)).await;
            done.send(inside.now() - before).expect("the test waits");
        });
        let slept = node.block_on(wait).expect("the task ends");
        assert!(slept >= Duration::from_millis(10));
    }

    #[test]
    fn timeouts_on_foreign_threads() {
        let rt = Rt::os(node());
        let short = Duration::from_millis(5);
        // Polled by a plain thread with a plain waker, without any runtime entered.
        let result = block_on_plain(rt.timeout(short, std::future::pending::<()>()));
        assert_eq!(result, None);
        assert_eq!(block_on_plain(rt.timeout(Duration::from_secs(60), async { 7 })), Some(7));
        assert_eq!(block_on_plain(rt.offload(|| 8)), 8);
    }

    #[test]
    fn offloaded_work_may_fail_loudly() {
        let node = node();
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
            node.block_on(node.offload(|| panic!("on purpose")));
        }));
        assert!(caught.is_err());
    }

    #[test]
    fn a_stopped_node_drops_its_tasks() {
        let node = node();
        let (held, dropped) = oneshot::channel::<()>();
        let inside = node.clone();
        node.spawn(Box::pin(async move {
            let _held = (held, inside);
            std::future::pending::<()>().await;
        }));
        node.stop(Duration::from_secs(10));
        assert!(block_on_plain(dropped).is_err(), "the task is gone, and what it held");
        node.stop(Duration::from_secs(10));
        node.spawn(Box::pin(async {}));
    }

    #[test]
    fn the_last_clone_may_go_in_a_task() {
        let node = node();
        let (go, wait) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel::<()>();
        let inside = node.clone();
        node.spawn(Box::pin(async move {
            let _ = wait.await;
            drop(inside);
            let _ = done.send(());
        }));
        drop(node);
        go.send(()).expect("the task waits");
        block_on_plain(ended).expect("no panic and no deadlock");
    }

    #[test]
    fn random_numbers_differ() {
        let rt = Rt::os(node());
        assert_ne!(rt.random_u64(), rt.random_u64());
        let mut bytes = [0; 1000];
        rt.random_bytes(&mut bytes);
        assert!(bytes.iter().any(|&byte| byte != 0));
    }

    /// Polls on this thread with nothing of tokio.
    pub(super) fn block_on_plain<T>(future: impl Future<Output = T>) -> T {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut cx = std::task::Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return value;
            }
            std::thread::park();
        }
    }
}
