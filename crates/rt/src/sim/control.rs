//! What a test does to a world: makes nodes, crashes, pauses and cuts them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::disk::state::Disk;
use super::machines::Power;
use super::node::Node;
use super::options::{Chance, DiskOptions, NetOptions, Span};
use super::rng::Rng;
use super::trace::{Kind, Stats};
use super::world::{Shared, World};
use crate::Rt;

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
            let id = match world.machines.names.get(name) {
                Some(id) => *id,
                None => world.machines.add_node(name),
            };
            Node::of(&self.shared, world, id)
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
        self.shared.stop(name, Power::Down);
    }

    /// The process is killed: as a crash, but the disk keeps everything, and peers hear of it at once.
    pub fn kill(&self, name: &str) {
        self.shared.stop(name, Power::Killed);
    }

    /// A fresh incarnation of the node, on its old disk; crashes it first if it runs.
    pub fn restart(&self, name: &str) -> Node {
        if self.node(name).is_alive() {
            self.crash(name);
        }
        self.shared.with(|world| {
            let id = world.machines.id(name);
            world.machines.nodes[id as usize].power = Power::Up;
            world.disk_start(id);
            let incarnation = world.machines.nodes[id as usize].incarnation;
            world.machines.set_incarnation(id);
            world.machines.note(Kind::Restart, id, u64::from(incarnation));
            Node::of(&self.shared, world, id)
        })
    }

    /// Stops the node's tasks until [`Handle::resume`]; its clock runs on, and the network serves it.
    pub fn pause(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.machines.id(name);
            world.machines.nodes[id as usize].paused = true;
            world.machines.note(Kind::Pause, id, 0);
        });
    }

    /// Lets a paused node go on.
    pub fn resume(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.machines.id(name);
            world.machines.resume(id);
        });
    }

    /// Cuts every way between two nodes: frames are lost, connects find nobody, and nobody is told.
    pub fn partition(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.machines.id(one), world.machines.id(other));
            world.net.cut(one, other);
            world.machines.note(Kind::Partition, one, u64::from(other));
        });
    }

    /// Cuts the node off from all others.
    pub fn isolate(&self, name: &str) {
        self.shared.with(|world| {
            let id = world.machines.id(name);
            world.net.isolate(id);
            world.machines.note(Kind::Partition, id, u64::MAX);
        });
    }

    /// Cuts the way from one node to another, and not the way back.
    pub fn partition_one_way(&self, from: &str, to: &str) {
        self.shared.with(|world| {
            let (from, to) = (world.machines.id(from), world.machines.id(to));
            world.net.cut_one_way(from, to);
            world.machines.note(Kind::Partition, from, u64::from(to) | 1 << 32);
        });
    }

    /// Has `node` use the disk of `owner`, as machines do that share storage. What one of them writes the others see; with one
    /// that loses power goes what it has not synced and nobody else has looked at, and what it was writing may arrive later. Nothing
    /// may be on its own disk.
    pub fn share_disk(&self, node: &str, owner: &str) {
        self.shared.with(|world| {
            let (node, owner) = (world.machines.id(node), world.machines.id(owner));
            world.share_disk(node, owner);
        });
    }

    /// Mends what [`Handle::partition`] cut between two nodes.
    pub fn heal(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.machines.id(one), world.machines.id(other));
            world.net.mend(&mut world.machines, one, other);
            world.machines.note(Kind::Heal, one, u64::from(other));
        });
    }

    /// Mends everything that was cut, isolated nodes too.
    pub fn heal_all(&self) {
        self.shared.with(World::heal_all);
    }

    /// Breaks every connection between two nodes; both are told.
    pub fn disconnect(&self, one: &str, other: &str) {
        self.shared.with(|world| {
            let (one, other) = (world.machines.id(one), world.machines.id(other));
            world.net.disconnect(&mut world.machines, one, other);
        });
    }

    /// Sets how long a frame takes between two nodes, in both directions.
    pub fn set_latency(&self, one: &str, other: &str, latency: Span) {
        self.shared.with(|world| {
            let (one, other) = (world.machines.id(one), world.machines.id(other));
            world.net.set_latency(one, other, latency);
        });
    }

    /// Lets every write of the node fail from now on, or no longer.
    pub fn fail_writes(&self, name: &str, fail: bool) {
        self.shared.change_disk(name, |disk| disk.writes_fail = fail);
    }

    /// Lets every sync of the node fail from now on, or no longer.
    pub fn fail_syncs(&self, name: &str, fail: bool) {
        self.shared.change_disk(name, |disk| disk.syncs_fail = fail);
    }

    /// Sets the bytes of the node's disk.
    pub fn set_capacity(&self, name: &str, bytes: u64) {
        self.shared.change_disk(name, |disk| disk.capacity_bytes = bytes);
    }

    /// Sets a number of bytes beyond which the node's disk gives no more, without telling it of its space: a quota.
    pub fn set_quota(&self, name: &str, bytes: u64) {
        self.shared.change_disk(name, |disk| disk.quota_bytes = bytes);
    }

    /// Sets how many files the node's disk says can still be made.
    pub fn set_files_available(&self, name: &str, files: u64) {
        self.shared.change_disk(name, |disk| disk.files_available = files);
    }

    /// Sets how many bytes the node's disk takes each second, whatever the options say.
    pub fn set_disk_speed(&self, name: &str, bytes_per_second: u64) {
        self.shared.change_disk(name, |disk| disk.bytes_per_second = Some(bytes_per_second));
    }

    /// Changes the options of the network for all that happens from now on.
    pub fn change_net(&self, change: impl FnOnce(&mut NetOptions)) {
        let mut net = self.shared.with(|world| world.machines.options.net);
        change(&mut net);
        self.shared.with(|world| world.machines.options.net = net);
    }

    /// Changes the options of the disks for all that happens from now on; capacities stay.
    pub fn change_disks(&self, change: impl FnOnce(&mut DiskOptions)) {
        let mut disk = self.shared.with(|world| world.machines.options.disk);
        change(&mut disk);
        self.shared.with(|world| world.machines.options.disk = disk);
    }

    /// Ends all faults: mends the network, resumes every node, sets every chance to never. Crashed nodes stay down.
    /// After it a test may demand progress.
    pub fn calm(&self) {
        self.shared.with(|world| {
            world.heal_all();
            let net = &mut world.machines.options.net;
            net.drop = Chance::NEVER;
            net.duplicate = Chance::NEVER;
            net.reorder = Chance::NEVER;
            net.break_connection = Chance::NEVER;
            world.machines.options.disk.write_fails = Chance::NEVER;
            world.machines.options.disk.sync_fails = Chance::NEVER;
            world.machines.options.disk.look_up_fails = Chance::NEVER;
            for id in 0..world.machines.nodes.len() as u32 {
                world.machines.resume(id);
                let disk = world.disk_of(id);
                disk.writes_fail = false;
                disk.syncs_fail = false;
            }
        });
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.shared.with(|world| world.machines.options.seed)
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
        self.shared.with(|world| world.machines.trace.hash())
    }

    /// What has happened, in lines, if `Options::trace` is set: the last million.
    pub fn trace(&self) -> Vec<String> {
        self.shared.with(|world| world.machines.trace.lines())
    }

    /// What the whole world has done.
    pub fn stats(&self) -> Stats {
        self.shared.with(|world| {
            let mut sum =
                Stats { elapsed: Duration::from_nanos(world.machines.clock.now()), ..Stats::default() };
            for node in &world.machines.nodes {
                sum.add(&node.stats);
            }
            sum
        })
    }

    /// What one node has done, over all its incarnations.
    pub fn node_stats(&self, name: &str) -> Stats {
        self.shared.with(|world| {
            let id = world.machines.id(name);
            Stats { elapsed: Duration::from_nanos(world.machines.clock.now()), ..*world.machines.stats(id) }
        })
    }

    /// Where the tasks that wait were started, most first, with counts.
    pub fn report(&self) -> String {
        self.shared.with(|world| world.report())
    }

    pub(super) fn end(&self) {
        // What is on the disks is let go too, for handles that somebody has kept keep the world.
        let disks = self.shared.with(|world| {
            for id in 0..world.machines.nodes.len() as u32 {
                world.machines.nodes[id as usize].power = Power::Down;
                world.take_tasks(id);
            }
            let empty = || Disk::new(0, "", 0);
            world
                .machines
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
}

impl Shared {
    fn stop(&self, name: &str, power: Power) {
        self.with(|world| {
            let id = world.machines.id(name);
            assert!(id != 0, "the test's own node does not crash");
            world.stop(id, power);
        });
    }

    fn change_disk(&self, name: &str, change: impl FnOnce(&mut Disk)) {
        self.with(|world| {
            let id = world.machines.id(name);
            change(world.disk_of(id));
        });
    }
}

impl World {
    pub(super) fn stop(&mut self, id: u32, power: Power) {
        let was = self.machines.nodes[id as usize].power;
        if was == Power::Up {
            self.machines.stats(id).crashes += 1;
            self.machines.note(if power == Power::Down { Kind::Crash } else { Kind::Kill }, id, 0);
            self.take_tasks(id);
        }
        if was == Power::Down || was == power {
            return;
        }
        let node = &mut self.machines.nodes[id as usize];
        node.power = power;
        node.paused = false;
        node.doom = None;
        node.incarnation += u32::from(was == Power::Up);
        self.net.stop(&mut self.machines, id, power);
        self.disk_stop(id, power);
    }

    fn heal_all(&mut self) {
        self.net.mend_all(&mut self.machines);
        self.machines.note(Kind::Heal, 0, u64::MAX);
    }

    fn report(&self) -> String {
        let mut places: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for node in &self.machines.nodes {
            for task in node.tasks.iter().filter_map(|key| self.tasks.get(*key)) {
                *places.entry((&node.name, task.location.to_string())).or_default() += 1;
            }
        }
        let mut sorted: Vec<_> = places.into_iter().collect();
        sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut text = String::new();
        for ((node, place), count) in sorted.iter().take(40) {
            let paused =
                if self.machines.nodes[self.machines.id(node) as usize].paused { " (paused)" } else { "" };
            let _ = writeln!(text, "{node}{paused}: {count} tasks from {place}");
        }
        text
    }
}
