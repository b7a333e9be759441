//! A power cut that is planned for a certain sync.
//!
//! What a disk has to keep is decided at its syncs: so a test that cuts the power before, in the middle of and behind each of
//! them has seen every state of a disk that the code above could tell apart.

use std::collections::BTreeSet;

use super::control::Handle;
use super::machines::Power;
use super::world::World;

/// When the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The sync was asked for, and has done nothing. Everything that was not synced is lost.
    Before,
    /// The sync is half done: of each sector that was not synced, the old or the new state is there.
    During,
    /// The sync is done, and nobody knows. What was not synced is lost, torn or there, as after any other crash.
    After,
}

/// A plan.
#[derive(Debug, Clone)]
pub struct PowerCut {
    /// The nodes whose syncs count, of files and of directories.
    pub watched: Vec<String>,
    /// Which of their syncs it is, in the order in which they are asked for, from 1. `u64::MAX` counts them all.
    pub sync: u64,
    /// When.
    pub moment: Moment,
    /// Nodes that lose power together with the one whose sync it is.
    pub with: Vec<String>,
}

/// A plan that is being carried out.
#[derive(Default)]
pub(super) struct Plan {
    watched: BTreeSet<u32>,
    sync: u64,
    moment: Option<Moment>,
    with: Vec<u32>,
    seen: u64,
    struck: Option<u32>,
}

/// Something that a node does, at which it may lose power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It is about to send a message.
    Send,
    /// It has got a message.
    Receive,
    /// It has written to its disk, or reserved space.
    DiskWrite,
    /// It asks for a sync.
    Sync,
}

impl Handle {
    /// Has the node lose power at the `count`th of such steps from now on, from 1. A crash or a restart before ends the plan.
    pub fn crash_at(&self, name: &str, step: Step, count: u64) {
        self.shared().with(|world| {
            let id = world.machines.id(name);
            world.machines.nodes[id as usize].doom = Some((step, count));
        });
    }

    /// Cuts the power at a sync to come, in place of what was planned before. Syncs are counted from now on.
    pub fn plan_power_cut(&self, cut: &PowerCut) {
        self.shared().with(|world| {
            let ids =
                |names: &[String]| names.iter().map(|name| world.machines.id(name)).collect::<Vec<u32>>();
            let (watched, with) = (ids(&cut.watched), ids(&cut.with));
            world.plan = Plan {
                watched: watched.into_iter().collect(),
                sync: cut.sync,
                moment: Some(cut.moment),
                with,
                ..Plan::default()
            };
        });
    }

    /// How many syncs the nodes of the plan have asked for.
    pub fn syncs_seen(&self) -> u64 {
        self.shared().with(|world| world.plan.seen)
    }

    /// Whose sync it was, once the power was cut.
    pub fn power_was_cut(&self) -> Option<String> {
        self.shared().with(|world| {
            let node = world.plan.struck?;
            Some(world.machines.nodes[node as usize].name.to_string())
        })
    }
}

impl World {
    /// A node does something; true if it loses power by that.
    pub(super) fn count_step(&mut self, node: u32, step: Step) -> bool {
        let doom = &mut self.machines.nodes[node as usize].doom;
        let Some((at, count)) = doom.as_mut().filter(|(at, _)| *at == step) else { return false };
        let _ = at;
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        *doom = None;
        self.stop(node, Power::Down);
        true
    }

    /// A node asks for a sync; gives its number, or 0 if nobody counts.
    pub(super) fn count_sync(&mut self, node: u32) -> u64 {
        if self.plan.struck.is_some() || !self.plan.watched.contains(&node) {
            return 0;
        }
        self.plan.seen += 1;
        self.plan.seen
    }

    /// Cuts the power if it is planned for this moment; true if it did.
    pub(super) fn cut_power_at(&mut self, node: u32, sync: u64, moment: Moment) -> bool {
        if sync == 0
            || self.plan.struck.is_some()
            || (self.plan.sync, self.plan.moment) != (sync, Some(moment))
        {
            return false;
        }
        self.plan.struck = Some(node);
        let mut victims = std::mem::take(&mut self.plan.with);
        victims.retain(|victim| *victim != node);
        let keep = match moment {
            Moment::Before => Some(0),
            Moment::During => Some(500_000),
            Moment::After => None,
        };
        for victim in std::iter::once(node).chain(victims) {
            self.disk_of(victim).keep_in_crash = keep;
            self.stop(victim, Power::Down);
            self.disk_of(victim).keep_in_crash = None;
        }
        true
    }
}
