//! The only door to the outside: time, chance, tasks, network and disk.
//!
//! Two drivers stand behind one handle. `os` is production: a ring on each core, sockets, files. `sim` is one thread, virtual
//! nanoseconds, everything drawn from a seed, and faults. Nothing above this crate knows which one it has, and
//! nothing here knows what a message or a target is.

pub mod buf;
pub mod disk;
mod huge;
pub mod memory;
pub mod net;
pub mod os;
pub mod queue;
pub mod sim;
pub mod sync;
pub mod time;
pub mod wait;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use disk::{Dir, Disk, File};
pub use net::{Addr, Conn, Frame, Listener, Net};
pub use time::{Time, Wall};

/// A future on the heap that any thread may poll.
///
/// What a plain function returns in one is compiled where that function is. An `async fn` is compiled again in each crate that awaits
/// it, with all that it awaits: so the doors of a crate behind which much lies are plain functions.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One node's door to the outside. Cheap to clone.
#[derive(Clone)]
pub struct Rt {
    driver: Driver,
}

#[derive(Clone)]
enum Driver {
    Os(os::Node),
    Sim(sim::Node),
}

impl Rt {
    /// The door of this process.
    pub fn os(node: os::Node) -> Rt {
        Rt { driver: Driver::Os(node) }
    }

    /// The door of a node of a simulation.
    pub fn sim(node: sim::Node) -> Rt {
        Rt { driver: Driver::Sim(node) }
    }

    /// Time since some moment before the node started; never goes back.
    pub fn now(&self) -> Time {
        match &self.driver {
            Driver::Os(node) => node.now(),
            Driver::Sim(node) => node.now(),
        }
    }

    /// Real time, for what users see (file times); may jump.
    pub fn wall(&self) -> Wall {
        match &self.driver {
            Driver::Os(node) => node.wall(),
            Driver::Sim(node) => node.wall(),
        }
    }

    /// Processor time that this process has used, of all its threads; in a simulation a microsecond for each turn of a task.
    pub fn processor_time(&self) -> Duration {
        match &self.driver {
            Driver::Os(node) => node.processor_time(),
            Driver::Sim(node) => node.processor_time(),
        }
    }

    /// How many processors this process may use.
    pub fn processors(&self) -> usize {
        match &self.driver {
            Driver::Os(node) => node.processors(),
            Driver::Sim(_) => 1,
        }
    }

    /// Waits until `time`.
    pub async fn sleep_until(&self, time: Time) {
        match &self.driver {
            Driver::Os(node) => node.sleep_until(time).await,
            Driver::Sim(node) => node.sleep_until(time).await,
        }
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// What `future` gives, or `None` if it takes longer than `duration`; then it is dropped.
    pub fn timeout<T>(
        &self,
        duration: Duration,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        wait::unless(self.sleep(duration), future)
    }

    /// Runs `future` as a task of the node. It ends with the node.
    #[track_caller]
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.driver {
            Driver::Os(node) => node.spawn(Box::pin(future)),
            Driver::Sim(node) => node.spawn(Box::pin(future)),
        }
    }

    /// The same for what the caller has found to wait for others: where nobody sees a difference it is polled before this returns, and then by
    /// whoever wakes it, so that no core is woken to find that there is nothing to do.
    #[track_caller]
    pub fn spawn_waiting(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.driver {
            Driver::Os(node) => node.spawn_waiting(Box::pin(future)),
            Driver::Sim(node) => node.spawn(Box::pin(future)),
        }
    }

    /// Runs `future` as a task that has work of its own for long, as a connection has: it goes to one core after another, and what it
    /// spawns stays with it.
    #[track_caller]
    pub fn spawn_apart(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.driver {
            Driver::Os(node) => node.spawn_apart(Box::pin(future)),
            Driver::Sim(node) => node.spawn(Box::pin(future)),
        }
    }

    /// Runs `future` as a task of a core that has nothing to do, or else of this one: for work of some length that nobody waits for, while the
    /// application that caused it goes on here.
    #[track_caller]
    pub fn spawn_behind(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.driver {
            Driver::Os(node) => node.spawn_behind(Box::pin(future)),
            Driver::Sim(node) => node.spawn(Box::pin(future)),
        }
    }

    /// The cores of this process, for whoever has entries of its own in their rings; `None` without io_uring and in a simulation.
    pub fn reactors(&self) -> Option<&std::sync::Arc<os::reactor::Reactors>> {
        match &self.driver {
            Driver::Os(node) => node.reactors(),
            Driver::Sim(_) => None,
        }
    }

    /// Polls `future` once here and now; if it is not done then, it goes on as a task. The thread that brings an
    /// operation pays no context switch for what needs no waiting.
    #[track_caller]
    pub fn run_in_place(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut future: BoxFuture<'static, ()> = Box::pin(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if future.as_mut().poll(&mut cx).is_pending() {
            self.spawn_waiting(future);
        }
    }

    /// For what may go on for long without ever having to wait, before each of its steps: ready at once, but now and then only after
    /// others of the same core had their turn.
    pub fn poll_step(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        match &self.driver {
            Driver::Os(node) => node.poll_step(cx),
            // Virtual time stands still while a task runs, and whoever runs for ever is found out.
            Driver::Sim(_) => std::task::Poll::Ready(()),
        }
    }

    /// Runs work that takes the processor for long away from the threads that serve; in place in a simulation.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.driver {
            Driver::Os(node) => node.offload(work).await,
            Driver::Sim(_) => work(),
        }
    }

    /// The memory of this process, or of this incarnation of a simulated machine.
    pub fn memory(&self) -> &memory::Memory {
        match &self.driver {
            Driver::Os(node) => node.memory(),
            Driver::Sim(node) => node.memory(),
        }
    }

    /// Limits what this process holds, as [`memory::Memory::set_limit`] says, and gives memory that is free then back to the machine.
    pub async fn set_memory_limit(&self, bytes: u64) {
        self.memory().set_limit(bytes);
        self.fit_memory_limit().await;
    }

    /// The second part of [`Rt::set_memory_limit`], for a limit that is set already: by the limit of now, for a newer one may have been set since.
    pub async fn fit_memory_limit(&self) {
        if let Driver::Os(node) = &self.driver {
            node.fit_room();
        }
        self.release_memory().await;
    }

    /// What bounds are parts of, in bytes: [`memory::Memory::bytes`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory().bytes()
    }

    /// A share of [`Rt::memory_bytes`], the same for everybody of this process who has one.
    pub fn memory_share(&self) -> memory::Share {
        self.memory().share()
    }

    /// The same as [`Rt::release_memory`], now and then: for those who have just freed much, and do so again and again.
    pub async fn release_memory_at_times(&self) {
        if let Driver::Os(node) = &self.driver
            && node.may_release()
        {
            node.offload(os::heap::release).await;
        }
    }

    /// Gives memory that was freed back to the machine. The allocator keeps it otherwise.
    pub async fn release_memory(&self) {
        if let Driver::Os(node) = &self.driver {
            node.offload(os::heap::release).await;
        }
    }

    /// A random number; in a simulation from its seed.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills `bytes` from a source fit for keys; in a simulation from its seed.
    pub fn random_bytes(&self, bytes: &mut [u8]) {
        match &self.driver {
            Driver::Os(node) => node.random_bytes(bytes),
            Driver::Sim(node) => node.random_bytes(bytes),
        }
    }

    /// The node's disk.
    pub fn disk(&self) -> Disk {
        match &self.driver {
            Driver::Os(node) => Disk::Os(node.disk()),
            Driver::Sim(node) => Disk::Sim(node.disk()),
        }
    }

    /// The node's network.
    pub fn net(&self) -> Net {
        match &self.driver {
            Driver::Os(node) => Net::Os(node.net()),
            Driver::Sim(node) => Net::Sim(node.net()),
        }
    }

    /// Whether expensive checks are wanted: always in a simulation.
    pub fn verify(&self) -> bool {
        match &self.driver {
            Driver::Os(_) => false,
            Driver::Sim(_) => true,
        }
    }

    /// Whether this node lives in a simulation. Only for choosing components that keep memory instead of files
    /// (the key-value engine); behaviour above must not depend on it.
    pub fn is_sim(&self) -> bool {
        matches!(self.driver, Driver::Sim(_))
    }
}
