//! The state of a simulated world, and what each event does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use super::clock::{Clock, Event, Next};
use super::cut::{Plan, Step};
use super::disk::state::Disk;
use super::executor::{Body, Ready, Task};
use super::net::state::Net;
use super::options::Options;
use super::rng::Rng;
use super::slab::{Key, Slab};
use super::trace::{Kind, Stats, Trace};
use crate::memory::Memory;

/// What handles share with the world.
pub(super) struct Shared {
    /// The world's time, readable without its lock.
    now: AtomicU64,
    world: Mutex<World>,
    pub(super) ready: Arc<Ready>,
}

/// Everything. Never polled, woken or dropped in here: futures and wakers are [`Left`].
pub(super) struct World {
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) tasks: Slab<Task>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) names: BTreeMap<Arc<str>, u32>,
    pub(super) net: Net,
    pub(super) disk_operations: Slab<super::disk::state::Operation>,
    pub(super) plan: Plan,
    pub(super) trace: Trace,
    pub(super) ready: Arc<Ready>,
    pub(super) left: Left,
}

/// What is woken, and dropped, outside of the world's lock.
#[derive(Default)]
pub(super) struct Left {
    pub(super) wakes: Vec<Waker>,
    pub(super) garbage: Vec<Body>,
    /// A task is being polled. It may hold guards that the futures of other tasks want when they are dropped, if its node crashes
    /// at what it does: those wait for its end.
    pub(super) polling: bool,
}

impl Left {
    fn take(&mut self) -> (Vec<Waker>, Vec<Body>) {
        let garbage = if self.polling { Vec::new() } else { std::mem::take(&mut self.garbage) };
        (std::mem::take(&mut self.wakes), garbage)
    }
}

pub(super) struct NodeState {
    pub(super) name: Arc<str>,
    /// Counts restarts; handles of former incarnations are dead.
    pub(super) incarnation: u32,
    pub(super) power: Power,
    pub(super) paused: bool,
    pub(super) tasks: Vec<Key>,
    /// Tasks that became ready while the node is paused.
    pub(super) parked: Vec<Key>,
    pub(super) rng: Rng,
    pub(super) memory: Memory,
    pub(super) clock_offset: u64,
    pub(super) wall_offset: i64,
    /// Connections with an end here.
    pub(super) connections: BTreeSet<Key>,
    pub(super) port_next: u16,
    /// When the last byte that is queued for sending, or on its way in, will have passed.
    pub(super) send_free_at: u64,
    pub(super) receive_free_at: u64,
    pub(super) disk: Disk,
    /// The node whose disk it uses: itself, but for shared disks.
    pub(super) disk_at: u32,
    /// At which of its steps it loses power.
    pub(super) doom: Option<(Step, u64)>,
    pub(super) stats: Stats,
}

/// Whether a node runs, and if not, whether its machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Up,
    /// The process was killed; the machine answers that nobody listens.
    Killed,
    /// Silent.
    Down,
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
        Shared { now: AtomicU64::new(world.clock.now()), world: Mutex::new(world), ready }
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Changes the world; then wakes and drops what the change left behind, outside of the lock, because both may
    /// come back here.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock();
        let result = change(&mut world);
        let (wakes, garbage) = world.left.take();
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
            self.now.store(world.clock.now(), Ordering::Relaxed);
            advance
        })
    }
}

impl World {
    fn new(options: Options, ready: Arc<Ready>) -> World {
        World {
            clock: Clock::new(),
            tasks: Slab::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            net: Net::new(options.seed),
            disk_operations: Slab::new(),
            plan: Plan::default(),
            trace: Trace::new(options.seed, options.trace),
            ready,
            left: Left::default(),
            options,
        }
    }

    pub(super) fn lives(&self, node: u32, incarnation: u32) -> bool {
        let state = &self.nodes[node as usize];
        state.power == Power::Up && state.incarnation == incarnation
    }

    pub(super) fn stats(&mut self, node: u32) -> &mut Stats {
        &mut self.nodes[node as usize].stats
    }

    pub(super) fn note(&mut self, kind: Kind, node: u32, digest: u64) {
        self.trace.fold(self.clock.now(), node, kind, digest);
        if self.trace.wants_lines() {
            self.trace.push_line(self.clock.now(), &self.nodes[node as usize].name, kind, digest);
        }
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        self.left.wakes.extend(waker);
    }

    fn advance(&mut self, limit: u64) -> Advance {
        match self.clock.next(limit) {
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
                let timer = self.clock.strike(key);
                self.stats(timer.node).events += 1;
                self.note(Kind::Timer, timer.node, 0);
                self.wake(Some(timer.waker));
            }
            Event::Flight(key) => self.arrive(key),
            Event::Disk(key) => self.disk_done(key),
        }
    }
}
