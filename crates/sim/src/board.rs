//! The experiment of the K computer's file system ("Eviction problem", evaluation of step 2): the clients of one rack extract
//! the same tar file with many files in the same path, and the four of a system board lose the network meanwhile.
//!
//! It is run with what the K computer had before, with its two fixes, and with what weft does, and counts the clients that
//! were evicted from any target, those of the board and the others apart. All of them are back within the deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{AttrChange, Client, Error, Limits, OpenFlags};
use proto::{Code, Fid, TargetId};
use rpc::Habits;
use rpc::habits::{SlowRetries, Workers};
use rt::sim::{Handle as World, Options, Rng, Sim};

use crate::cluster::{Cluster, Shape};
use crate::scenario::{node, on};
use crate::workload::{READ_WRITE, root};

/// Clients of a system board.
const BOARD: usize = 4;
/// For how long they are cut off.
const OUTAGE: Duration = Duration::from_secs(30);
/// Files of a tar file.
const FILES: usize = 48;
/// Longest time between two files.
const READ_MS_MAX: u64 = 40;
/// Clients begin within this time.
const BEGIN_MS_MAX: u64 = 1_000;
/// When the board loses the network.
const CUT_MS: std::ops::Range<u64> = 500..1_500;
/// Rounds in one world.
const ROUNDS_OF_WORLD: u64 = 10;
const OSTS: u32 = 2;
const BYTES: usize = 4096;
const NEW: OpenFlags = OpenFlags { exclusive: true, ..READ_WRITE };

/// Lustre's `obd_timeout`: a request without a reply is sent again after this.
const OBD_TIMEOUT: Duration = Duration::from_secs(100);
/// A quarter of it passes between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_secs(25);
/// Half of it is the time for the answer to a callback.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(50);
/// Threads of a server.
const THREADS: usize = 32;

/// What is switched on.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// In words.
    pub name: &'static str,
    habits: Habits,
}

const BEFORE: Habits = Habits {
    slow_retries: Some(SlowRetries { connect: CONNECT_PAUSE, resend: OBD_TIMEOUT }),
    resend_callbacks: false,
    workers: Some(Workers { count: THREADS, reserve_connects: false }),
    callback_timeout: Some(CALLBACK_TIMEOUT),
    ..Habits::TODAY
};
const RESENT: Habits = Habits { resend_callbacks: true, ..BEFORE };
const RESERVED: Habits =
    Habits { workers: Some(Workers { count: THREADS, reserve_connects: true }), ..BEFORE };
const BOTH: Habits = Habits { resend_callbacks: true, ..RESERVED };
const QUICK: Habits = Habits { slow_retries: None, ..BOTH };

/// From everything off to everything on.
pub const VARIANTS: [Variant; 6] = [
    Variant { name: "off", habits: BEFORE },
    Variant { name: "callbacks are resent", habits: RESENT },
    Variant { name: "connects have threads of their own", habits: RESERVED },
    Variant { name: "both", habits: BOTH },
    Variant { name: "both, and clients retry fast", habits: QUICK },
    Variant { name: "on: weft as it is", habits: Habits::TODAY },
];

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Clients, in each.
    pub clients: u64,
    /// Clients of the board that were evicted, over all rounds.
    pub board: u64,
    /// Others that were.
    pub others: u64,
    /// Files that could not be extracted.
    pub failed: u64,
    /// Longest time between two files of a client that was not cut off.
    pub stall: Duration,
    /// Virtual time.
    pub elapsed: Duration,
}

impl Tally {
    /// What the columns of a row are.
    pub const HEADER: &str = "| | rounds | evicted of the board | of the others | per node | 95 % | per node of the board | files failed | longest stall of the others | computed |\n\
         |---|---|---|---|---|---|---|---|---|---|";

    /// Evictions.
    pub fn evictions(&self) -> u64 {
        self.board + self.others
    }

    /// Evictions per node and round, with the bounds of the interval in which it lies with 95 % (Wilson's).
    pub fn ratio(&self) -> (f64, f64, f64) {
        let trials = (self.rounds * self.clients) as f64;
        let (share, z) = (self.evictions() as f64 / trials, 1.96_f64);
        let middle = (share + z * z / (2.0 * trials)) / (1.0 + z * z / trials);
        let half = z / (1.0 + z * z / trials)
            * (share * (1.0 - share) / trials + z * z / (4.0 * trials * trials)).sqrt();
        (share, (middle - half).max(0.0), middle + half)
    }

    /// Whether nobody was evicted with everything on, and somebody with everything off.
    pub fn is_as_expected(&self, variant: Variant) -> bool {
        match variant.habits {
            Habits::TODAY => self.evictions() == 0 && self.failed == 0,
            BEFORE => self.evictions() > 0,
            _ => true,
        }
    }

    fn add(&mut self, other: Tally) {
        self.rounds += other.rounds;
        self.clients = other.clients;
        self.board += other.board;
        self.others += other.others;
        self.failed += other.failed;
        self.stall = self.stall.max(other.stall);
        self.elapsed += other.elapsed;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (share, low, high) = self.ratio();
        let of_board = self.board as f64 / (self.rounds * BOARD as u64) as f64;
        write!(
            f,
            "{} | {} | {} | {share:.4} | {low:.4} to {high:.4} | {of_board:.3} | {} | {:.1} s |",
            self.rounds,
            self.board,
            self.others,
            self.failed,
            self.stall.as_secs_f64()
        )
    }
}

/// Runs `rounds` rounds of one variant.
pub fn run(variant: Variant, clients: usize, rounds: u64) -> Tally {
    let mut tally = Tally::default();
    for first in (0..rounds).step_by(ROUNDS_OF_WORLD as usize) {
        let count = ROUNDS_OF_WORLD.min(rounds - first);
        let sim = Sim::new(Options::seed(first + 1));
        let world = sim.handle();
        let cluster = Cluster::new(world.clone(), Shape { osts: OSTS, osts_per_oss: 1 });
        let cluster = cluster.with_habits(variant.habits);
        tally.add(sim.run(play(&cluster, &world, clients, first..first + count)));
    }
    tally
}

async fn play(cluster: &Cluster, world: &World, clients: usize, rounds: std::ops::Range<u64>) -> Tally {
    cluster.format().await;
    cluster.start_servers();
    let mut rack = Vec::new();
    for number in 0..clients {
        let limits = Limits {
            dirty_bytes_max: 1 << 20,
            rpc_bytes_max: 64 << 10,
            rpcs_in_flight_max: 8,
            cached_bytes_max: 64 << 20,
            ..Limits::default()
        };
        let (cluster, name) = (cluster.clone(), node(number));
        let mounting = on(world, &node(number), async move {
            let (_, client) = cluster.mount_within(&name, limits).await;
            // With every target there is a session, whose end can be noticed.
            for file in 0..OSTS {
                let made = extract_one(&client, Fid::ROOT, format!("{name}-{file}").as_bytes()).await;
                made.expect("nobody is cut off yet");
            }
            client
        });
        rack.push(mounting.await.expect("no client dies"));
    }
    let mut tally = Tally::default();
    for round in rounds {
        tally.add(play_round(cluster, world, &rack, round).await);
    }
    tally.elapsed = world.now();
    tally
}

/// What one client made of a tar file.
struct Extracted {
    failed: u64,
    stall: Duration,
}

async fn play_round(cluster: &Cluster, world: &World, rack: &[Arc<Client>], round: u64) -> Tally {
    let first = rack.first().expect("there are clients").clone();
    let name = format!("round{round}");
    let made =
        first.names().make(&root(), Fid::ROOT, name.as_bytes(), 0o040_777, 0, bytes::Bytes::new()).await;
    let dir = made.expect("a new name can be made").fid;
    let before: Vec<_> = rack.iter().map(|client| client.admin().held().sessions).collect();
    let mut extracting = Vec::new();
    for (number, client) in rack.iter().enumerate() {
        let (client, world_there) = (client.clone(), world.clone());
        let rng = world.rng(&format!("{} of {name}", node(number)));
        extracting.push(on(world, &node(number), async move {
            extract(&client, &world_there, dir, number, rng).await
        }));
    }
    let boards = (rack.len() / BOARD).max(1) as u64;
    let board = (round % boards) as usize * BOARD;
    let board = board..(board + BOARD).min(rack.len());
    let mut rng = world.rng(&name);
    let clock = world.rt("clock");
    clock.sleep(Duration::from_millis(rng.between(CUT_MS.start, CUT_MS.end))).await;
    let servers = cluster.servers();
    let ways: Vec<_> =
        board.clone().flat_map(|n| servers.iter().map(move |server| (node(n), server.as_str()))).collect();
    ways.iter().for_each(|(client, server)| world.partition(client, server));
    clock.sleep(OUTAGE).await;
    ways.iter().for_each(|(client, server)| world.heal(client, server));
    let mut tally = Tally { rounds: 1, clients: rack.len() as u64, ..Tally::default() };
    for (number, extracted) in extracting.into_iter().enumerate() {
        let extracted = extracted.await.expect("no client dies");
        tally.failed += extracted.failed;
        if !board.contains(&number) {
            tally.stall = tally.stall.max(extracted.stall);
        }
    }
    // Who was evicted may not know of it yet.
    clock.sleep(CALLBACK_TIMEOUT).await;
    for (number, (client, before)) in rack.iter().zip(before).enumerate() {
        let asking = client.clone();
        let asked = on(world, &node(number), async move { asking.sync_all().await });
        // What was lost was counted where it was noticed.
        let _ = asked.await.expect("no client dies");
        if was_evicted(client, &before) {
            let count = if board.contains(&number) { &mut tally.board } else { &mut tally.others };
            *count += 1;
        }
    }
    tally
}

/// Whether a session that there was is another one now: no server was restarted.
fn was_evicted(client: &Client, before: &BTreeMap<TargetId, u64>) -> bool {
    let now = client.admin().held().sessions;
    before.iter().any(|(target, session)| *session != 0 && now.get(target) != Some(session))
}

/// Extracts a tar file, as the kernel has a client do it.
async fn extract(client: &Client, world: &World, dir: Fid, number: usize, mut rng: Rng) -> Extracted {
    let clock = world.rt(&node(number));
    let mut extracted = Extracted { failed: 0, stall: Duration::ZERO };
    clock.sleep(Duration::from_millis(rng.below(BEGIN_MS_MAX))).await;
    for file in 0..FILES {
        clock.sleep(Duration::from_millis(rng.below(READ_MS_MAX))).await;
        let start = world.now();
        if let Err(error) = extract_one(client, dir, format!("f{file}").as_bytes()).await {
            tracing::info!(number, file, %error, "a file was not extracted");
            extracted.failed += 1;
        }
        extracted.stall = extracted.stall.max(world.now() - start);
    }
    extracted
}

/// As tar does it: what has the name goes.
async fn extract_one(client: &Client, dir: Fid, name: &[u8]) -> client::Result<()> {
    drop(client.names().getattr(dir).await?);
    let (fid, handle) = loop {
        if client.names().lookup(&root(), dir, name).await.is_ok() {
            match client.names().unlink(&root(), dir, name).await {
                Ok(()) | Err(Error::Refused(Code::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        match client
            .files()
            .create(&root(), dir, name, 0o100_600, NEW)
            .await
            .map(|(told, handle)| (told.fid, handle))
        {
            Ok(made) => break made,
            // Somebody else was faster.
            Err(Error::Refused(Code::Exists)) => {}
            Err(error) => return Err(error),
        }
    };
    let written = async {
        client.files().write(handle, 0, &[7; BYTES]).await?;
        let change = AttrChange { mode: Some(0o644), ..AttrChange::default() };
        drop(client.files().setattr(&root(), fid, change, Some(handle)).await?);
        client.files().flush(handle).await
    };
    let written = written.await;
    client.files().release(handle).await;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_bounds() {
        let tally = Tally { rounds: 200, clients: 96, ..Tally::default() };
        let (share, low, high) = tally.ratio();
        assert_eq!((share, low), (0.0, 0.0));
        assert!((0.0001..0.0003).contains(&high), "{high}");
        let (share, low, high) = Tally { board: 800, ..tally }.ratio();
        assert!(low < share && share < high && (share - 0.0417).abs() < 0.001, "{low} {share} {high}");
    }
}
