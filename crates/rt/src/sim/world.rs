//! The state of a simulated world, and what each event does to it.

use std::cmp::Ordering as Compare;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

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

/// Everything. Never polled, woken or dropped in here: futures and wakers are left in `garbage` and `wakes`.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) now: u64,
    polls_at_instant: u64,
    sequence: u64,
    heap: BinaryHeap<Entry>,
    /// Entries of the heap whose timer was given up.
    dead_timers: usize,
    timers: Slab<Timer>,
    pub(super) tasks: Slab<Task>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) names: BTreeMap<Arc<str>, u32>,
    pub(super) net: Net,
    pub(super) disk_operations: Slab<super::disk::state::Operation>,
    pub(super) plan: Plan,
    pub(super) trace: Trace,
    pub(super) ready: Arc<Ready>,
    pub(super) wakes: Vec<Waker>,
    pub(super) garbage: Vec<Body>,
    /// A task is being polled. It may hold guards that the futures of other tasks want when they are dropped, if its node crashes
    /// at what it does: those wait for its end.
    pub(super) polling: bool,
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

struct Timer {
    node: u32,
    waker: Waker,
}

pub(super) enum Event {
    Timer(Key),
    Flight(Key),
    Disk(Key),
}

struct Entry {
    time: u64,
    sequence: u64,
    event: Event,
}

/// What the heap gave.
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
        Shared { now: AtomicU64::new(world.now), world: Mutex::new(world), ready }
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Changes the world; then wakes and drops what the change left behind, outside of the lock, because both may
    /// come back here.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock();
        let result = change(&mut world);
        let wakes = std::mem::take(&mut world.wakes);
        let garbage = if world.polling { Vec::new() } else { std::mem::take(&mut world.garbage) };
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
            self.now.store(world.now, Ordering::Relaxed);
            advance
        })
    }
}

impl World {
    fn new(options: Options, ready: Arc<Ready>) -> World {
        World {
            now: 0,
            polls_at_instant: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            dead_timers: 0,
            timers: Slab::new(),
            tasks: Slab::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            net: Net::new(options.seed),
            disk_operations: Slab::new(),
            plan: Plan::default(),
            trace: Trace::new(options.seed, options.trace),
            ready,
            wakes: Vec::new(),
            garbage: Vec::new(),
            polling: false,
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
        self.trace.fold(self.now, node, kind, digest);
        if self.trace.wants_lines() {
            self.trace.push_line(self.now, &self.nodes[node as usize].name, kind, digest);
        }
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        self.wakes.extend(waker);
    }

    /// Notices a world that runs in circles without time passing.
    pub(super) fn count_poll(&mut self) {
        self.polls_at_instant += 1;
        assert!(
            self.polls_at_instant <= self.options.polls_per_instant_max,
            "no progress: {} polls at {} ns, seed {}",
            self.polls_at_instant,
            self.now,
            self.options.seed
        );
    }

    /// Lets `event` happen at `time`; behind what was scheduled before for the same time.
    pub(super) fn schedule(&mut self, time: u64, event: Event) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Entry { time: time.max(self.now), sequence, event });
    }

    fn advance(&mut self, limit: u64) -> Advance {
        while let Some(next) = self.heap.peek() {
            if let Event::Timer(key) = next.event
                && self.timers.get(key).is_none()
            {
                self.heap.pop();
                self.dead_timers -= 1;
                continue;
            }
            if next.time > limit {
                self.pass_time(limit);
                return Advance::Limit;
            }
            let entry = self.heap.pop().expect("it was just seen");
            self.pass_time(entry.time);
            self.dispatch(entry.event);
            return Advance::Event;
        }
        Advance::Nothing
    }

    fn pass_time(&mut self, time: u64) {
        assert!(time >= self.now, "time never goes back");
        if time > self.now {
            self.now = time;
            self.polls_at_instant = 0;
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Timer(key) => {
                let timer = self.timers.remove(key).expect("dead timers were skipped");
                self.stats(timer.node).events += 1;
                self.note(Kind::Timer, timer.node, 0);
                self.wake(Some(timer.waker));
            }
            Event::Flight(key) => self.arrive(key),
            Event::Disk(key) => self.disk_done(key),
        }
    }

    /// Starts a timer of `node`.
    pub(super) fn start_timer(&mut self, node: u32, time: u64, waker: Waker) -> Key {
        let key = self.timers.insert(Timer { node, waker });
        self.schedule(time, Event::Timer(key));
        key
    }

    /// Sets who is woken; false if the timer has struck.
    pub(super) fn update_timer(&mut self, key: Key, waker: &Waker) -> bool {
        match self.timers.get_mut(key) {
            Some(timer) => {
                timer.waker.clone_from(waker);
                true
            }
            None => false,
        }
    }

    /// Gives a timer up. Its entry stays in the heap until too many are dead.
    pub(super) fn cancel_timer(&mut self, key: Key) {
        if self.timers.remove(key).is_none() {
            return;
        }
        self.dead_timers += 1;
        if self.dead_timers > 1_024 && self.dead_timers * 2 > self.heap.len() {
            let timers = &self.timers;
            self.heap.retain(|entry| match entry.event {
                Event::Timer(key) => timers.get(key).is_some(),
                _ => true,
            });
            self.dead_timers = 0;
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Compare> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Entry) -> Compare {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}
