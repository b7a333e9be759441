//! All clients of one OST come back to it at once, after it was restarted: how long it takes and what is said.
//!
//! Each client keeps a file of its own open, holds its range, and has written a block that may not be durable. The OST loses
//! power, is started again, and everybody writes and syncs one more block. Computing takes no virtual time: so the virtual
//! time is what is waited for (timers, the network, the disk), and the real time is what is computed, for all clients and
//! servers together on one core.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Handle, Limits};
use proto::{Fid, TargetId};
use rt::sim::{Handle as World, Options, Sim, Span};
use rt::sync::oneshot;

use crate::cluster::{Cluster, Shape};
use crate::scenario::{node, on};
use crate::workload::{READ_WRITE, root};

/// A lease is over by then.
const LEASE: Duration = Duration::from_secs(16);
/// When clients hear that the OST's machine is gone, if it is back at once.
const NOTICE: Span = Span::millis(1, 1);
/// Clients that mount at the same time.
const MOUNTS_MAX: usize = 128;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;
/// The node with the OST.
const SERVER: &str = "oss0";

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct Herd {
    /// Clients in all.
    pub clients: usize,
    /// Of a hundred, how many die for good, longer ago than a lease.
    pub dead_percent: usize,
    /// For how long the OST is away.
    pub outage: Duration,
}

/// What it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stampede {
    /// Clients that live.
    pub living: usize,
    /// Clients that died.
    pub dead: usize,
    /// Until half of them were served, from the start of the OST's process.
    pub half: Duration,
    /// Until all of them were.
    pub all: Duration,
    /// Connections asked for while the OST was away.
    pub connects_before: u64,
    /// Connections asked for after that.
    pub connects: u64,
    /// Messages of everybody to everybody after that, the work itself among them.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Changes that were replayed.
    pub replayed: u64,
    /// Times a task was polled.
    pub polls: u64,
    /// Real time.
    pub real: Duration,
}

impl Stampede {
    /// What the columns of a row are.
    pub const HEADER: &str = "| clients | dead | half served | all served | connects while away | connects | messages | per client | bytes | per client | replays | polls | computed |\n\
                              |---|---|---|---|---|---|---|---|---|---|---|---|---|";
}

impl std::fmt::Display for Stampede {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each = |count: u64| count as f64 / self.living.max(1) as f64;
        write!(
            f,
            "| {} | {} | {:.3} s | {:.3} s | {} | {} | {} | {:.1} | {} | {:.0} | {} | {} | {:.2} s |",
            self.living,
            self.dead,
            self.half.as_secs_f64(),
            self.all.as_secs_f64(),
            self.connects_before,
            self.connects,
            self.messages,
            each(self.messages),
            self.bytes,
            each(self.bytes),
            self.replayed,
            self.polls,
            self.real.as_secs_f64(),
        )
    }
}

struct Member {
    client: Arc<Client>,
    handle: Handle,
}

impl Member {
    async fn join(cluster: &Cluster, number: usize) -> Member {
        let limits = Limits {
            dirty_bytes_max: 1 << 20,
            rpc_bytes_max: 64 << 10,
            rpcs_in_flight_max: 8,
            cached_bytes_max: 64 << 20,
            ..Limits::default()
        };
        let (_, client) = cluster.mount_within(&node(number), limits).await;
        let name = format!("f{number}");
        let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
        let (_, handle) = made.expect("a new name can be made");
        let member = Member { client, handle };
        member.write(0).await;
        member
    }

    /// Writes a block to the OST.
    async fn write(&self, block: u64) {
        let bytes = vec![block as u8; BLOCK_BYTES as usize];
        self.client.files().write(self.handle, block * BLOCK_BYTES, &bytes).await.expect("there is room");
        self.client.files().flush(self.handle).await.expect("no write failed");
    }
}

/// Has something done by every client on its node, at the same time, and gives the members back with when each was done.
async fn each<F: Future<Output = ()> + Send + 'static>(
    world: &World,
    members: Vec<(usize, Member)>,
    work: impl Fn(Arc<Client>, Handle) -> F,
) -> Vec<(usize, Member, Duration)> {
    let start = |(number, member): (usize, Member)| {
        let (working, world_there) = (work(member.client.clone(), member.handle), world.clone());
        let done: oneshot::Receiver<Duration> = on(world, &node(number), async move {
            working.await;
            world_there.now()
        });
        (number, member, done)
    };
    let started: Vec<_> = members.into_iter().map(start).collect();
    let mut all = Vec::new();
    for (number, member, done) in started {
        all.push((number, member, done.await.expect("it lives")));
    }
    all
}

/// Runs it once; `real` is a real clock.
pub fn run(seed: u64, herd: Herd, real: &dyn Fn() -> Duration) -> Stampede {
    let sim = Sim::new(Options::seed(seed));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: 1, osts_per_oss: 1 });
    sim.run(stampede(&cluster, &world, herd, real))
}

async fn stampede(cluster: &Cluster, world: &World, herd: Herd, real: &dyn Fn() -> Duration) -> Stampede {
    cluster.format().await;
    cluster.start_servers();
    let mut members = gather(cluster, herd.clients).await;
    let dead = herd.clients * herd.dead_percent / 100;
    let gone: Vec<_> = members.drain(..dead).collect();
    gone.iter().for_each(|(number, _)| world.crash(&node(*number)));
    drop(gone);
    let clock = world.rt("clock");
    clock.sleep(LEASE).await;
    let members = each(world, members, |client, handle| async move {
        Member { client, handle }.write(1).await;
    });
    let members: Vec<_> = members.await.into_iter().map(|(number, member, _)| (number, member)).collect();
    let connects = || world.stats().connects;
    let connects_at_first = connects();
    let servers = [SERVER.to_owned()];
    if herd.outage.is_zero() {
        // All hear of it, and come back, at the same moment.
        world.change_net(|net| net.crash_notice = NOTICE);
    }
    cluster.cut_power(&servers);
    clock.sleep(herd.outage).await;
    let (before, began, began_real) = (world.stats(), world.now(), real());
    cluster.restart(&servers);
    let done = each(world, members, |client, handle| async move {
        Member { client: client.clone(), handle }.write(2).await;
        client.files().fsync(handle).await.expect("nothing is lost");
    });
    let done = done.await;
    let (real, stats) = (real() - began_real, world.stats());
    let asking = done.first().map(|(number, member, _)| (node(*number), member.client.clone()));
    let (asker, asking) = asking.expect("somebody lives");
    let state =
        on(world, &asker, async move { asking.admin().target_state(TargetId::ost(0), LEASE).await }).await;
    let replayed = state.ok().flatten().map_or(0, |state| state.recovery.replayed);
    let mut times: Vec<_> = done.iter().map(|(_, _, at)| *at - began).collect();
    times.sort_unstable();
    Stampede {
        living: times.len(),
        dead,
        half: times.get(times.len() / 2).copied().unwrap_or_default(),
        all: times.last().copied().unwrap_or_default(),
        connects_before: before.connects - connects_at_first,
        connects: stats.connects - before.connects,
        messages: stats.frames_sent - before.frames_sent,
        bytes: stats.bytes_sent - before.bytes_sent,
        replayed,
        polls: stats.polls - before.polls,
        real,
    }
}

/// Mounts, a few at a time.
async fn gather(cluster: &Cluster, clients: usize) -> Vec<(usize, Member)> {
    let mut members = Vec::new();
    for first in (0..clients).step_by(MOUNTS_MAX) {
        let numbers = first..(first + MOUNTS_MAX).min(clients);
        let joining: Vec<_> = numbers
            .map(|number| {
                let there = cluster.clone();
                let joined = async move { Member::join(&there, number).await };
                (number, on(cluster.handle(), &node(number), joined))
            })
            .collect();
        for (number, joined) in joining {
            members.push((number, joined.await.expect("it lives")));
        }
    }
    members
}
