//! The machines of a simulated world: their nodes, the clock that they share, and the trace of what they do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use super::clock::Clock;
use super::cut::Step;
use super::disk::state::Disk;
use super::executor::{Body, Ready};
use super::options::Options;
use super::rng::Rng;
use super::slab::Key;
use super::trace::{Kind, Stats, Trace};
use crate::memory::{Memory, SIM_BYTES};

/// The machines, and what each of them needs of the world.
pub(super) struct Machines {
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) nodes: Vec<NodeState>,
    pub(super) names: BTreeMap<Arc<str>, u32>,
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
    pub(super) fn take(&mut self) -> (Vec<Waker>, Vec<Body>) {
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

impl Machines {
    pub(super) fn new(options: Options, ready: Arc<Ready>) -> Machines {
        Machines {
            clock: Clock::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
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

    pub(super) fn id(&self, name: &str) -> u32 {
        *self.names.get(name).unwrap_or_else(|| panic!("there is no node {name}"))
    }

    pub(super) fn add_node(&mut self, name: &str) -> u32 {
        let id = u32::try_from(self.nodes.len()).expect("a world has fewer than 2^32 nodes");
        let name: Arc<str> = name.into();
        self.names.insert(name.clone(), id);
        self.nodes.push(NodeState {
            disk: Disk::new(self.options.seed, &name, self.options.disk.capacity_bytes),
            disk_at: id,
            doom: None,
            name,
            incarnation: 0,
            power: Power::Up,
            paused: false,
            tasks: Vec::new(),
            parked: Vec::new(),
            rng: Rng::new(0),
            memory: Memory::new(SIM_BYTES, None),
            clock_offset: 0,
            wall_offset: 0,
            connections: BTreeSet::new(),
            port_next: 0,
            send_free_at: 0,
            receive_free_at: 0,
            stats: Stats::default(),
        });
        self.set_incarnation(id);
        id
    }

    /// Draws what belongs to one incarnation.
    pub(super) fn set_incarnation(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        node.rng = Rng::stream(self.options.seed, &node.name, u64::from(node.incarnation));
        node.memory = Memory::new(SIM_BYTES, None);
        let mut clocks = Rng::stream(self.options.seed, &node.name, 1 << 32 | u64::from(node.incarnation));
        if id != 0 {
            let offset_max = self.options.clock_offset_max.as_nanos() as u64;
            let wall_max = self.options.wall_offset_max.as_nanos() as u64;
            node.clock_offset = clocks.between(0, offset_max);
            node.wall_offset = clocks.between(0, 2 * wall_max) as i64 - wall_max as i64;
        }
    }

    pub(super) fn resume(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        if !node.paused {
            return;
        }
        node.paused = false;
        for key in std::mem::take(&mut node.parked) {
            self.ready.push(key);
        }
        self.note(Kind::Resume, id, 0);
    }

    /// A port of a node that nobody has had lately.
    pub(super) fn next_port(&mut self, node: u32) -> u16 {
        let state = &mut self.nodes[node as usize];
        state.port_next = (state.port_next + 1) % 16_384;
        49_152 + state.port_next
    }

    /// A frame that a node sent does not arrive.
    pub(super) fn count_dropped(&mut self, node: u32) {
        self.stats(node).frames_dropped += 1;
        self.note(Kind::Drop, node, 0);
    }
}
