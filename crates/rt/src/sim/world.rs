//! The state of a simulated world, and what each event does to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::clock::{Event, Next};
use super::cut::Plan;
use super::executor::{Ready, Task};
use super::machines::Machines;
use super::net::state::Net;
use super::options::Options;
use super::slab::Slab;
use super::trace::Kind;

/// What handles share with the world.
pub(super) struct Shared {
    /// The world's time, readable without its lock.
    now: AtomicU64,
    world: Mutex<World>,
    pub(super) ready: Arc<Ready>,
}

/// Everything. Never polled, woken or dropped in here: futures and wakers are [`Left`](super::machines::Left).
pub(super) struct World {
    pub(super) machines: Machines,
    pub(super) tasks: Slab<Task>,
    pub(super) net: Net,
    pub(super) disk_operations: Slab<super::disk::state::Operation>,
    pub(super) plan: Plan,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advance {
    Event,
    /// The next event lies behind the limit; time stands at the limit.
    Limit,
    /// Nothing will ever happen.
    Nothing,
}

impl Shared {
    pub(super) fn new(options: Options) -> Shared {
        let ready = Arc::new(Ready::new(options.seed, options.order));
        let world = World::new(options, ready.clone());
        Shared { now: AtomicU64::new(world.machines.clock.now()), world: Mutex::new(world), ready }
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Changes the world; then wakes and drops what the change left behind, outside of the lock, because both may
    /// come back here.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock();
        let result = change(&mut world);
        let (wakes, garbage) = world.machines.left.take();
        drop(world);
        for waker in wakes {
            waker.wake();
        }
        drop(garbage);
        result
    }

    pub(super) fn advance(&self, limit: u64) -> Advance {
        self.with(|world| {
            let advance = world.advance(limit);
            self.now.store(world.machines.clock.now(), Ordering::Relaxed);
            advance
        })
    }
}

impl World {
    fn new(options: Options, ready: Arc<Ready>) -> World {
        let net = Net::new(options.seed);
        let machines = Machines::new(options, ready);
        World { machines, tasks: Slab::new(), net, disk_operations: Slab::new(), plan: Plan::default() }
    }

    fn advance(&mut self, limit: u64) -> Advance {
        match self.machines.clock.next(limit) {
            Next::Event(event) => {
                self.dispatch(event);
                Advance::Event
            }
            Next::Limit => Advance::Limit,
            Next::Nothing => Advance::Nothing,
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Timer(key) => {
                let timer = self.machines.clock.strike(key);
                self.machines.stats(timer.node).events += 1;
                self.machines.note(Kind::Timer, timer.node, 0);
                self.machines.wake(Some(timer.waker));
            }
            Event::Flight(key) => self.arrive(key),
            Event::Disk(key) => self.disk_done(key),
        }
    }
}
