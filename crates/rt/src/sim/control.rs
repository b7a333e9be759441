//! What a test does to a world: makes nodes, crashes, pauses and cuts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::disk::state::Disk;
use super::node::Node;
use super::options::{Chance, DiskOptions, NetOptions, Span};
use super::rng::Rng;
use super::trace::{Kind, Stats};
use super::world::{NodeState, Power, Shared, World};
use crate::Rt;
use crate::memory::{Memory, SIM_BYTES};

/// The node of the test itself: never crashes, its clock is the world's.
const ROOT_NAME: &str = "sim";

/// A way to the world that tasks and tests share. Nodes go by their names.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> Handle {
        let handle = Handle { shared };
        handle.node(ROOT_NAME);
        handle
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The node of that name, made if there is none. Of a crashed node, the dead handle.
    pub fn node(&self, name: &str) -> Node {
        self.shared.with(|world| {
            let id = match world.names.get(name) {
                Some(id) => *id,
                None => world.add_node(name),
            };
            self.node_handle(world, id)
        })
    }

    /// The same as an [`Rt`].
    pub fn rt(&self, name: &str) -> Rt {
        Rt::sim(self.node(name))
    }

    /// The door of the test itself, on a node that never crashes and whose clock is the world's.
    pub fn root(&self) -> Rt {
        self.rt(ROOT_NAME)
    }

    /// Power fails: the node's tasks are dropped, its connections cut, and its disk keeps what was synced and any
    /// part of what was not. Nothing if it is down already.
    pub fn crash(&self, name: &str) {
        self.stop(name, Power::Down);
    }

    /// The process is killed: as a crash, but the disk keeps everything, and peers hear of it at once.
    pub fn kill(&self, name: &str) {
        self.stop(name, Power::Killed);
    }

    /// A fresh incarnation of the node, on its old disk; crashes it first if it runs.
    pub fn restart(&self, name: &str) -> Node {
        if self.node(name).is_alive() {
            self.crash(name);
        }
        self.shared.with(|world| {
            let id = world.id(name);
            world.nodes[id as usize].power = Power::Up;
            world.disk_start(id);
            let incarnation = world.nodes[id as usize].incarnation;
            world.set_incarnation(id);
            world.note(Kind::Restart, id, u64::from(incarnation));
            self.node_handle(world, id)
        })
    }

    /// Stops the node's tasks until [`Handle::resume`]; its clock runs on, and the network serves it.
    pub fn pause(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.id(name);
            world.nodes[id as usize].paused = true;
            world.note(Kind::Pause, id, 0);
        });
    }

    /// Lets a paused node go on.
    pub fn resume(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.id(name);
            world.resume(id);
        });
    }

    /// Cuts every way between two nodes: frames are lost, connects find nobody, and nobody is told.
    pub fn partition(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.id(one), world.id(other));
            world.net.cut(one, other);
            world.note(Kind::Partition, one, u64::from(other));
        });
    }

    /// Cuts the node off from all others.
    pub fn isolate(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.id(name);
            world.net.isolate(id);
            world.note(Kind::Partition, id, u64::MAX);
        });
    }

    /// Cuts the way from one node to another, and not the way back.
    pub fn partition_one_way(&self, from: &str, to: &str) {
        self.shared.with(|world| {
            let (from, to) = (world.id(from), world.id(to));
            world.net.cut_one_way(from, to);
            world.note(Kind::Partition, from, u64::from(to) | 1 << 32);
        });
    }

    /// Has `node` use the disk of `owner`, as machines do that share storage. What one of them writes the others see; with one
    /// that loses power goes what it has not synced and nobody else has looked at, and what it was writing may arrive later. Nothing
    /// may be on its own disk.
    pub fn share_disk(&self, node: &str, owner: &str) {
        self.shared.with(|world| {
            let (node, owner) = (world.id(node), world.id(owner));
            world.share_disk(node, owner);
        });
    }

    /// Mends what [`Handle::partition`] cut between two nodes.
    pub fn heal(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.id(one), world.id(other));
            world.mend(one, other);
            world.note(Kind::Heal, one, u64::from(other));
        });
    }

    /// Mends everything that was cut, isolated nodes too.
    pub fn heal_all(&self) {
        self.shared.with(World::heal_all);
    }

    /// Breaks every connection between two nodes; both are told.
    pub fn disconnect(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.id(one), world.id(other));
            world.disconnect(one, other);
        });
    }

    /// Sets how long a frame takes between two nodes, in both directions.
    pub fn set_latency(&self, one: &str, other: &str, latency: Span) {
        self.shared.with(|world| {
            let (one, other) = (world.id(one), world.id(other));
            world.net.set_latency(one, other, latency);
        });
    }

    /// Lets every write of the node fail from now on, or no longer.
    pub fn fail_writes(&self, name: &str, fail: bool) {
        self.change_disk(name, |disk| disk.writes_fail = fail);
    }

    /// Lets every sync of the node fail from now on, or no longer.
    pub fn fail_syncs(&self, name: &str, fail: bool) {
        self.change_disk(name, |disk| disk.syncs_fail = fail);
    }

    /// Sets the bytes of the node's disk.
    pub fn set_capacity(&self, name: &str, bytes: u64) {
        self.change_disk(name, |disk| disk.capacity_bytes = bytes);
    }

    /// Sets a number of bytes beyond which the node's disk gives no more, without telling it of its space: a quota.
    pub fn set_quota(&self, name: &str, bytes: u64) {
        self.change_disk(name, |disk| disk.quota_bytes = bytes);
    }

    /// Sets how many files the node's disk says can still be made.
    pub fn set_files_available(&self, name: &str, files: u64) {
        self.change_disk(name, |disk| disk.files_available = files);
    }

    /// Sets how many bytes the node's disk takes each second, whatever the options say.
    pub fn set_disk_speed(&self, name: &str, bytes_per_second: u64) {
        self.change_disk(name, |disk| disk.bytes_per_second = Some(bytes_per_second));
    }

    /// Changes the options of the network for all that happens from now on.
    pub fn change_net(&self, change: impl FnOnce(&mut NetOptions)) {
        let mut net = self.shared.with(|world| world.options.net);
        change(&mut net);
        self.shared.with(|world| world.options.net = net);
    }

    /// Changes the options of the disks for all that happens from now on; capacities stay.
    pub fn change_disks(&self, change: impl FnOnce(&mut DiskOptions)) {
        let mut disk = self.shared.with(|world| world.options.disk);
        change(&mut disk);
        self.shared.with(|world| world.options.disk = disk);
    }

    /// Ends all faults: mends the network, resumes every node, sets every chance to never. Crashed nodes stay down.
    /// After it a test may demand progress.
    pub fn calm(&self) {
        self.shared.with(|world| {
            world.heal_all();
            let net = &mut world.options.net;
            net.drop = Chance::NEVER;
            net.duplicate = Chance::NEVER;
            net.reorder = Chance::NEVER;
            net.break_connection = Chance::NEVER;
            world.options.disk.write_fails = Chance::NEVER;
            world.options.disk.sync_fails = Chance::NEVER;
            world.options.disk.look_up_fails = Chance::NEVER;
            for id in 0..world.nodes.len() as u32 {
                world.resume(id);
                let disk = world.disk_of(id);
                disk.writes_fail = false;
                disk.syncs_fail = false;
            }
        });
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.shared.with(|world| world.options.seed)
    }

    /// Random numbers for a workload; each label has a stream of its own.
    pub fn rng(&self, label: &str) -> Rng {
        Rng::stream(self.seed(), label, 1)
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now())
    }

    /// A hash of everything that has happened: who, when, what. Equal for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.shared.with(|world| world.trace.hash())
    }

    /// What has happened, in lines, if `Options::trace` is set: the last million.
    pub fn trace(&self) -> Vec<String> {
        self.shared.with(|world| world.trace.lines())
    }

    /// What the whole world has done.
    pub fn stats(&self) -> Stats {
        self.shared.with(|world| {
            let mut sum = Stats { elapsed: Duration::from_nanos(world.clock.now()), ..Stats::default() };
            for node in &world.nodes {
                sum.add(&node.stats);
            }
            sum
        })
    }

    /// What one node has done, over all its incarnations.
    pub fn node_stats(&self, name: &str) -> Stats {
        self.shared.with(|world| {
            let id = world.id(name);
            Stats { elapsed: Duration::from_nanos(world.clock.now()), ..*world.stats(id) }
        })
    }

    /// Where the tasks that wait were started, most first, with counts.
    pub fn report(&self) -> String {
        self.shared.with(|world| world.report())
    }

    pub(super) fn end(&self) {
        // What is on the disks is let go too, for handles that somebody has kept keep the world.
        let disks = self.shared.with(|world| {
            for id in 0..world.nodes.len() as u32 {
                world.nodes[id as usize].power = Power::Down;
                world.take_tasks(id);
            }
            let empty = || Disk::new(0, "", 0);
            world
                .nodes
                .iter_mut()
                .map(|node| {
                    node.incarnation += 1;
                    std::mem::replace(&mut node.disk, empty())
                })
                .collect::<Vec<Disk>>()
        });
        drop(disks);
    }

    fn stop(&self, name: &str, power: Power) {
        self.shared.with(|world| {
            let id = world.id(name);
            assert!(id != 0, "the test's own node does not crash");
            world.stop(id, power);
        });
    }

    fn change_disk(&self, name: &str, change: impl FnOnce(&mut Disk)) {
        self.shared.with(|world| {
            let id = world.id(name);
            change(world.disk_of(id));
        });
    }

    fn node_handle(&self, world: &World, id: u32) -> Node {
        let state = &world.nodes[id as usize];
        Node {
            shared: self.shared.clone(),
            name: state.name.clone(),
            id,
            incarnation: state.incarnation,
            memory: state.memory.clone(),
            clock_offset: state.clock_offset,
            wall_offset: state.wall_offset,
        }
    }
}

impl World {
    pub(super) fn id(&self, name: &str) -> u32 {
        *self.names.get(name).unwrap_or_else(|| panic!("there is no node {name}"))
    }

    fn add_node(&mut self, name: &str) -> u32 {
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
    fn set_incarnation(&mut self, id: u32) {
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

    pub(super) fn stop(&mut self, id: u32, power: Power) {
        let was = self.nodes[id as usize].power;
        if was == Power::Up {
            self.stats(id).crashes += 1;
            self.note(if power == Power::Down { Kind::Crash } else { Kind::Kill }, id, 0);
            self.take_tasks(id);
        }
        if was == Power::Down || was == power {
            return;
        }
        let node = &mut self.nodes[id as usize];
        node.power = power;
        node.paused = false;
        node.doom = None;
        node.incarnation += u32::from(was == Power::Up);
        self.net_stop(id, power);
        self.disk_stop(id, power);
    }

    fn resume(&mut self, id: u32) {
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

    fn heal_all(&mut self) {
        self.mend_all();
        self.note(Kind::Heal, 0, u64::MAX);
    }

    fn report(&self) -> String {
        let mut places: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for node in &self.nodes {
            for task in node.tasks.iter().filter_map(|key| self.tasks.get(*key)) {
                *places.entry((&node.name, task.location.to_string())).or_default() += 1;
            }
        }
        let mut sorted: Vec<_> = places.into_iter().collect();
        sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut text = String::new();
        for ((node, place), count) in sorted.iter().take(40) {
            let paused = if self.nodes[self.id(node) as usize].paused { " (paused)" } else { "" };
            let _ = writeln!(text, "{node}{paused}: {count} tasks from {place}");
        }
        text
    }
}
