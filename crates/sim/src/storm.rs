//! What befalls a cluster with service nodes in one round, drawn from the seed: crashes, kills, stopped machines, cut links, broken
//! connections and orders of operators, one or several at the same time.
//!
//! Whoever works must be reachable within the deadline, or it may rightly be given up: of who has no lease nobody waits for when a
//! server recovers, so a client that works is stopped, or cut off from the MGS, for long only if nothing befalls servers. Those who
//! only look lose nothing and are spared nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rt::sim::{Chance, Handle, NetOptions, Rng, Step};
use rt::sync::oneshot;

use crate::cluster::Cluster;
use crate::scenario::on;

/// A client that does not renew its lease for so long has none; it was renewed up to 5 s before.
const LEASELESS_MAX_MS: u64 = 6_000;
/// Nobody is given up who is out of reach, or stopped, for so long, if servers have nothing to recover from.
const SILENT_MAX_MS: u64 = 120_000;
/// Longest time that a server is stopped, a link of it cut, or somebody who only looks out of reach.
const LONG_MS: u64 = 200_000;
const SHORT_MS: u64 = 100;
/// Longest time that a machine is without power, and a process gone.
const OUTAGE_MAX_MS: u64 = 20_000;
/// Most steps of a server until it crashes, and how long it has for them.
const STEPS_MAX: u64 = 60;
const STEPS_WITHIN: Duration = Duration::from_secs(4);
/// Where the node is that operators use.
const OPERATOR: &str = "operator";

/// How often what was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Injected(pub BTreeMap<&'static str, u64>);

impl Injected {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Injected) {
        other.0.iter().for_each(|(kind, count)| *self.0.entry(kind).or_default() += count);
    }

    fn count(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_default() += 1;
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(f, "{}", counts.join(", "))
    }
}

/// Something that is done to the cluster, and undone.
#[derive(Debug, Clone)]
enum Fault {
    /// Power fails at a step of the server, and is back after a while.
    Crash { server: String, step: Step, count: u64, outage: Duration },
    /// The process is killed, and started again.
    Kill { server: String, outage: Duration },
    /// The machine does nothing for a while.
    Pause { node: String, time: Duration },
    /// Nothing passes between two machines for a while, or nothing from the first to the second.
    Cut { from: String, to: String, one_way: bool, time: Duration },
    /// Connections between two machines break.
    Reset { one: String, other: String },
    /// An operator has a target handed over.
    HandOver { server: String, target: usize },
}

impl Fault {
    fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "crashes",
            Fault::Kill { .. } => "kills",
            Fault::Pause { .. } => "pauses",
            Fault::Cut { one_way: true, .. } => "one-way cuts",
            Fault::Cut { .. } => "cuts",
            Fault::Reset { .. } => "resets",
            Fault::HandOver { .. } => "orders to hand over",
        }
    }
}

/// The weather of a run.
pub struct Storm {
    cluster: Cluster,
    rng: Rng,
    /// Clients that lose something if they are given up.
    workers: Vec<String>,
    lookers: Vec<String>,
    /// What the network does while there are faults.
    net: NetOptions,
    /// What was done so far.
    injected: Arc<Mutex<Injected>>,
}

impl Storm {
    /// Nothing has befallen anybody yet.
    pub fn new(cluster: &Cluster, net: NetOptions, workers: Vec<String>, lookers: Vec<String>) -> Storm {
        let rng = cluster.handle().rng("storm");
        Storm { cluster: cluster.clone(), rng, workers, lookers, net, injected: Arc::default() }
    }

    /// What was done so far.
    pub fn injected(&self) -> Injected {
        self.injected.lock().clone()
    }

    /// One round of faults; all is well again when it returns: machines run, links are up, and no message is lost any more.
    pub async fn rage(&mut self) {
        let handle = self.cluster.handle().clone();
        let (befalls_servers, faults) = self.draw_round();
        // Owners that cannot renew in time are replaced: without messages some are.
        match befalls_servers {
            true => handle.change_net(|net| *net = self.net),
            false => calm(&handle),
        }
        let mut waits = Vec::new();
        for (after, fault) in faults {
            tracing::info!(?after, ?fault, "fault");
            self.injected.lock().count(fault.kind());
            waits.push(on(&handle, "storm", carry_out(self.cluster.clone(), after, fault)));
        }
        for wait in waits {
            wait.await.expect("the node of faults does not crash");
        }
        calm(&handle);
    }

    /// The faults, each with its moment, and whether servers are among those whom they befall.
    fn draw_round(&mut self) -> (bool, Vec<(Duration, Fault)>) {
        let mut faults = Vec::new();
        let mut down: Vec<String> = Vec::new();
        let befalls_servers = !self.rng.one_in(5);
        if befalls_servers && self.rng.one_in(3) {
            faults.extend(self.draw_mute(&mut down));
        }
        if befalls_servers {
            for number in 0..self.rng.between(1, 3) {
                // One after the other, or in the middle of what the one before has set off.
                let latest = if number == 0 { 300 } else { *self.rng.pick(&[10, 3_000, 10_000]) };
                let after = Duration::from_micros(self.rng.below(latest * 1_000));
                let fault = self.draw_of_servers(&mut down);
                faults.push((after, fault));
            }
        }
        for _ in 0..self.rng.between(0, 2) {
            let fault = self.draw_of_clients(befalls_servers, faults.len());
            let after = Duration::from_millis(self.rng.below(2_000));
            faults.extend(fault.map(|fault| (after, fault)));
        }
        (befalls_servers, faults)
    }

    /// A server carries requests out whose answers do not arrive, and then loses power.
    fn draw_mute(&mut self, down: &mut Vec<String>) -> [(Duration, Fault); 2] {
        let server = self.rng.pick(&self.cluster.servers()).clone();
        down.push(server.clone());
        let client = self.rng.pick(&self.workers).clone();
        let after = Duration::from_micros(self.rng.below(300_000));
        let deaf = Duration::from_micros(self.rng.between(1_000, 4_000_000));
        let step = *self.rng.pick(&[Step::Send, Step::Receive, Step::DiskWrite, Step::Sync]);
        let outage = self.duration(1, OUTAGE_MAX_MS);
        let crash = Fault::Crash { server: server.clone(), step, count: self.rng.between(1, 10), outage };
        let cut = Fault::Cut { from: server, to: client, one_way: true, time: deaf + STEPS_WITHIN };
        [(after, cut), (after + deaf / 2, crash)]
    }

    /// `down` are those that are stopped already: a machine fails once in a round.
    fn draw_of_servers(&mut self, down: &mut Vec<String>) -> Fault {
        let servers = self.cluster.servers();
        let server = self.rng.pick(&servers).clone();
        let is_down = down.contains(&server);
        let outage = self.duration(1, OUTAGE_MAX_MS);
        match self.rng.below(12) {
            0..4 if !is_down => {
                down.push(server.clone());
                let step = *self.rng.pick(&[Step::Send, Step::Receive, Step::DiskWrite, Step::Sync]);
                Fault::Crash { server, step, count: self.rng.between(1, STEPS_MAX), outage }
            }
            4 if !is_down => {
                down.push(server.clone());
                Fault::Kill { server, outage }
            }
            5..7 if !is_down => {
                down.push(server.clone());
                Fault::Pause { node: server, time: self.duration(SHORT_MS, LONG_MS) }
            }
            7 => {
                let nodes = [servers, self.workers.clone(), self.lookers.clone()].concat();
                Fault::Reset { one: server, other: self.rng.pick(&nodes).clone() }
            }
            8..10 => Fault::HandOver { server, target: self.rng.below(8) as usize },
            _ => {
                let others: Vec<&String> = servers.iter().filter(|other| **other != server).collect();
                let to = if self.rng.one_in(2) { "mgs" } else { self.rng.pick(&others).as_str() }.to_owned();
                let one_way = self.rng.one_in(3);
                let (from, to) = if one_way && self.rng.one_in(2) { (to, server) } else { (server, to) };
                Fault::Cut { from, to, one_way, time: self.duration(SHORT_MS, LONG_MS) }
            }
        }
    }

    fn draw_of_clients(&mut self, befalls_servers: bool, already: usize) -> Option<Fault> {
        let servers = self.cluster.servers();
        let server = self.rng.pick(&servers).clone();
        let looks = self.rng.one_in(2) && !self.lookers.is_empty();
        let node = self.rng.pick(if looks { &self.lookers } else { &self.workers }).clone();
        let silent_max = match (looks, befalls_servers) {
            (true, _) => LONG_MS,
            (false, true) => LEASELESS_MAX_MS,
            (false, false) => SILENT_MAX_MS,
        };
        // Two on one after the other would be too long.
        if !looks && already > 4 {
            return None;
        }
        let time = self.duration(SHORT_MS, silent_max);
        if self.rng.one_in(2) {
            return Some(Fault::Pause { node, time });
        }
        let one_way = self.rng.one_in(3);
        let (from, to) = if self.rng.one_in(2) { (node, server) } else { (server, node) };
        Some(Fault::Cut { from, to, one_way, time })
    }

    /// Evenly over the orders of magnitude.
    fn duration(&mut self, min_ms: u64, max_ms: u64) -> Duration {
        let bits = (max_ms / min_ms).ilog2() + 1;
        let least = min_ms << self.rng.below(u64::from(bits));
        Duration::from_micros(self.rng.between(least * 1_000, (least * 2).min(max_ms) * 1_000))
    }
}

/// Ends all that the network does by chance, and mends what is cut.
pub(crate) fn calm(handle: &Handle) {
    handle.heal_all();
    handle.change_net(|net| {
        net.drop = Chance::NEVER;
        net.duplicate = Chance::NEVER;
        net.reorder = Chance::NEVER;
        net.break_connection = Chance::NEVER;
    });
}

async fn carry_out(cluster: Cluster, after: Duration, fault: Fault) {
    let handle = cluster.handle().clone();
    let clock = handle.rt("clock");
    clock.sleep(after).await;
    match fault {
        Fault::Crash { server, step, count, outage } => {
            handle.crash_at(&server, step, count);
            let until = handle.now() + STEPS_WITHIN;
            while handle.node(&server).is_alive() && handle.now() < until {
                clock.sleep(Duration::from_millis(1)).await;
            }
            cluster.cut_power(std::slice::from_ref(&server));
            clock.sleep(outage).await;
            cluster.restart(&[server]);
        }
        Fault::Kill { server, outage } => {
            cluster.kill(&server);
            clock.sleep(outage).await;
            cluster.restart(&[server]);
        }
        Fault::Pause { node, time } => {
            handle.pause(&node);
            clock.sleep(time).await;
            handle.resume(&node);
        }
        Fault::Cut { from, to, one_way, time } => {
            if one_way {
                handle.partition_one_way(&from, &to)
            } else {
                handle.partition(&from, &to)
            }
            clock.sleep(time).await;
            handle.heal(&from, &to);
        }
        Fault::Reset { one, other } => {
            for _ in 0..3 {
                handle.disconnect(&one, &other);
                clock.sleep(Duration::from_millis(20)).await;
            }
        }
        Fault::HandOver { server, target } => {
            let targets = cluster.targets(&server);
            let (target, _) = targets[target % targets.len()].clone();
            let (cluster, waited) = (cluster.clone(), cluster.peer(&server).is_some());
            let ordered: oneshot::Receiver<()> =
                on(&handle, OPERATOR, async move { cluster.hand_over(target, &server).await });
            if waited {
                ordered.await.expect("the operator's node does not crash");
            }
        }
    }
}
