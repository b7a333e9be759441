//! One seed in which everything fails that may fail, in a cluster whose MDT and OSTs have two service nodes each.
//!
//! Work is done in rounds ([`crate::rounds`]). In each, clients do some operations while crashes, kills, stopped machines, cuts and
//! orders befall servers and clients ([`crate::storm`]); then all is well again, and everybody has to go on within [`GO_ON_MAX`].
//! In every second seed clients share a few files and names ([`crate::coherence`]), in the others each has a directory of its own
//! ([`crate::restart`]). All results are compared; nobody who works is evicted, a target has one owner at a time, and after everything
//! was removed no inode and no object is left. At last all is stopped in order, and the offline checker reads all disks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Client;
use parking_lot::Mutex;
use proto::{ClientId, Fid, FileKind, TargetId};
use rpc::Habits;
use rt::sim::{Handle, NetOptions, Options, Rng, Sim};
use rt::sync::oneshot;
use store::check::Depth;

use crate::cluster::{Cluster, Shape};
use crate::coherence::{Crowd, Game};
use crate::credulous::Flaws;
use crate::progress::Progress;
use crate::restart::{Pace, check_everything, start_players};
use crate::rounds::Rounds;
use crate::scenario::{Records, Report, Scale, compared, empty_records, node, on, report};
use crate::storm::{Injected, Storm, calm};
use crate::workload::{Record, read_whole_dir, root};

/// After the last fault of a round everybody has finished what he was at within this time.
pub const GO_ON_MAX: Duration = Duration::from_secs(60);
/// What nobody refers to is gone within this time: clients that died are waited for, one after the other.
const TIDY_MAX: Duration = Duration::from_secs(600);
/// Operations of each client in a round.
const STEPS: usize = 12;
const LOOKERS: usize = 2;
const TRACE_BYTES_MAX: usize = 1 << 20;
/// Everybody has opened what is shared within this time.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Everybody who was cut off from the MGS has his lease again.
const LEASES_BACK: Duration = Duration::from_secs(12);
/// How often somebody looks.
const TICK: Duration = Duration::from_millis(10);
/// Time for a target to tell how much there is.
const COUNT_MAX: Duration = Duration::from_secs(60);
const TIDY_TICK: Duration = Duration::from_secs(1);

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// As any run.
    pub report: Report,
    /// What the storm did.
    pub injected: Injected,
    /// The longest time that somebody needed to go on after a round.
    pub go_on: Duration,
    /// Writes that arrived after their node had lost power.
    pub writes_late: u64,
}

/// Runs one seed; panics with what went wrong.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, Habits::TODAY, Flaws::NONE)
}

/// The same, where servers and clients have other habits than they should, or are told of owners what is not so.
pub fn run_with(seed: u64, habits: Habits, flaws: Flaws) -> Outcome {
    let options = Options::swarm(seed);
    let net = options.net;
    let sim = Sim::new(options);
    let mut run = Run::new(sim.handle(), net, habits, flaws);
    let (count, go_on) = sim.run(async {
        let progress = run.progress.clone();
        let cluster = run.cluster.clone();
        progress.watch(&cluster, run.play()).await
    });
    let handle = sim.handle();
    let record = Record { compared: count, ..Record::default() };
    Outcome {
        report: report(&handle, &vec![Arc::new(Mutex::new(record))]),
        injected: run.storm.injected(),
        go_on,
        writes_late: handle.stats().writes_late,
    }
}

/// A run under way.
struct Run {
    handle: Handle,
    cluster: Cluster,
    progress: Progress,
    rounds: Rounds,
    storm: Storm,
    rng: Rng,
    workers: usize,
    shares: bool,
}

fn names(clients: Range<usize>) -> Vec<String> {
    clients.map(node).collect()
}

/// Clients at work.
enum Work {
    Shared(Game),
    Apart(Records, Vec<oneshot::Receiver<()>>),
}

impl Run {
    fn new(handle: Handle, net: NetOptions, habits: Habits, flaws: Flaws) -> Run {
        let mut rng = handle.rng("failover");
        let osts = *rng.pick(&[2, 4]);
        let shape = Shape { osts, osts_per_oss: if rng.one_in(2) { osts } else { 2 } };
        let cluster = Cluster::new(handle.clone(), shape).with_service_nodes();
        let cluster = cluster.with_habits(habits).with_flaws(flaws);
        let shares = handle.seed().is_multiple_of(2);
        let workers = rng.between(2, 6) as usize;
        let lookers = if shares { LOOKERS } else { 0 };
        let (working, looking) = (names(0..workers), names(workers..workers + lookers));
        for name in cluster.servers().iter().chain(&working).chain(&looking) {
            // They have to be there before they can be named.
            drop(handle.node(name));
        }
        let storm = Storm::new(&cluster, net, working, looking);
        let progress = Progress::new(handle.clone());
        Run { handle, cluster, progress, rounds: Rounds::new(STEPS), storm, rng, workers, shares }
    }

    /// Gives how many results were compared, and the longest time to go on.
    async fn play(&mut self) -> (usize, Duration) {
        self.cluster.format().await;
        self.cluster.start_servers();
        let before = counts(&self.handle, &self.cluster, "before").await;
        let over = Arc::new(AtomicBool::new(false));
        let watching = on(&self.handle, "watcher", watch_owners(self.cluster.clone(), over.clone()));
        let rounds = self.rng.between(1, 4) as usize;
        let work = self.start(rounds).await;
        if self.shares {
            // Who only looks loses nothing but what it is opening.
            calm(&self.handle);
            self.handle.rt("clock").sleep(OPEN_MAX).await;
        }
        let mut go_on = Duration::ZERO;
        for _ in 0..rounds {
            self.rounds.begin();
            self.storm.rage().await;
            go_on = go_on.max(self.until_everybody_goes_on().await);
            self.handle.rt("clock").sleep(LEASES_BACK).await;
            self.check_evictions().await;
        }
        let compared = self.finish(work).await;
        remove_everything(&self.handle, &self.cluster).await;
        self.until_tidy(&before).await;
        over.store(true, Ordering::Relaxed);
        watching.await.expect("its node is up");
        self.cluster.stop_servers().await;
        self.check_disks().await;
        (compared, go_on)
    }

    async fn start(&mut self, rounds: usize) -> Work {
        let steps = rounds * STEPS;
        if self.shares {
            let crowd = Crowd { workers: self.workers, lookers: LOOKERS, steps, links: self.rng.one_in(2) };
            let rounds = Some(self.rounds.clone());
            return Work::Shared(Game::start(&self.cluster, &self.progress, crowd, rounds).await);
        }
        let records = empty_records(self.workers as u32);
        let pace = Pace { progress: self.progress.clone(), rounds: self.rounds.clone() };
        let scale = Scale { clients: self.workers as u32, osts: 0, steps };
        let players = start_players(&self.cluster, &records, scale, Some(&pace));
        Work::Apart(records, players)
    }

    async fn finish(&self, work: Work) -> usize {
        match work {
            Work::Shared(game) => game.finish(&self.cluster, None).await,
            Work::Apart(records, players) => {
                for player in players {
                    player.await.expect("no client died");
                }
                check_everything(&self.cluster, &records).await;
                compared(&records)
            }
        }
    }

    /// Waits until every operation that was under way when the faults ended is done; gives how long that took.
    async fn until_everybody_goes_on(&self) -> Duration {
        let clock = self.handle.rt("clock");
        let start = self.handle.now();
        let mut waiting = self.progress.doing();
        loop {
            let doing = self.progress.doing();
            waiting.retain(|node, what| doing.get(node) == Some(what));
            let waited = self.handle.now() - start;
            if waiting.is_empty() {
                return waited;
            }
            assert!(
                waited < GO_ON_MAX,
                "{waited:?} after the last fault: {:?}\n{}\n{}",
                self.cluster.owners(),
                self.cluster.service().join("\n"),
                self.progress.describe(&self.cluster)
            );
            clock.sleep(TICK).await;
        }
    }

    /// Waits until no target has more inodes or objects than `before`.
    async fn until_tidy(&self, before: &BTreeMap<TargetId, u64>) {
        let clock = self.handle.rt("clock");
        let start = self.handle.now();
        loop {
            let left = counts(&self.handle, &self.cluster, "after").await;
            if left == *before {
                return;
            }
            let waited = self.handle.now() - start;
            assert!(waited < TIDY_MAX, "after {waited:?} there are {left:?}, and were {before:?}");
            clock.sleep(TIDY_TICK).await;
        }
    }

    /// Reads the disks of servers that were stopped.
    async fn check_disks(&self) {
        for server in self.cluster.disks() {
            let rt = self.handle.rt(&server);
            for (target, path) in self.cluster.targets(&server) {
                let report =
                    server::check_target(&rt, &path, Depth::Data).await.expect("a target can be checked");
                assert!(report.is_clean(), "{target}: {:?}", report.findings);
            }
        }
    }

    /// Who works was always reachable in time. One that has said goodbye may have been given up, for its goodbye may be lost.
    async fn check_evictions(&self) {
        let workers = names(0..self.workers);
        let working = self.progress.clients().into_iter().filter(|(node, _)| workers.contains(node));
        let working: Vec<ClientId> = working.map(|(_, client)| client.admin().id()).collect();
        for server in self.cluster.disks() {
            let rt = self.handle.rt(&server);
            for (target, path) in self.cluster.targets(&server) {
                let dir = rt.disk().open_dir(&path).await.expect("a target has a directory");
                let traces = dir.subdir("evictions").await.expect("it can be made");
                for name in traces.list().await.expect("it can be read") {
                    let file = traces.open(&name).await.expect("it was just seen");
                    let text = file.read_at(0, TRACE_BYTES_MAX).await.expect("it can be read");
                    let text = String::from_utf8_lossy(&text);
                    let worker = working.iter().find(|id| text.contains(&format!("client: {id}")));
                    assert!(worker.is_none(), "{target} has evicted a client that works:\n{text}");
                }
            }
        }
    }
}

/// Nobody may answer for a target while somebody else may.
async fn watch_owners(cluster: Cluster, over: Arc<AtomicBool>) {
    let clock = cluster.handle().rt("watcher");
    while !over.load(Ordering::Relaxed) {
        let mut owners: BTreeMap<TargetId, String> = BTreeMap::new();
        for (target, server) in cluster.owners() {
            if let Some(other) = owners.insert(target, server.clone()) {
                panic!("{target} has two owners: {other} and {server}");
            }
        }
        clock.sleep(TICK).await;
    }
}

/// Inodes of the MDT, and objects of each OST.
async fn counts(handle: &Handle, cluster: &Cluster, node: &str) -> BTreeMap<TargetId, u64> {
    let (cluster, name) = (cluster.clone(), node.to_owned());
    let counted = on(handle, node, async move {
        let disks = cluster.disks().into_iter().filter(|server| server != "mgs");
        let targets: Vec<TargetId> =
            disks.flat_map(|server| cluster.targets(&server)).map(|(target, _)| target).collect();
        let mut counts = BTreeMap::new();
        // Who mounts before the MGS has heard of a target does not hear of it while he holds nothing.
        while counts.len() < targets.len() {
            let (rt, client) = cluster.mount(&name).await;
            for target in &targets {
                if let Ok(Some(space)) = client.admin().target_space(*target, COUNT_MAX).await {
                    counts.insert(*target, space.files_total - space.files_free);
                }
            }
            client.unmount().await.expect("a healthy client unmounts");
            rt.sleep(TIDY_TICK).await;
        }
        counts
    });
    counted.await.expect("its node is up")
}

async fn remove_everything(handle: &Handle, cluster: &Cluster) {
    let cluster = cluster.clone();
    let removed = on(handle, "remover", async move {
        let (_, client) = cluster.mount("remover").await;
        remove_below(&client, Fid::ROOT).await;
        client.unmount().await.expect("a healthy client unmounts");
    });
    removed.await.expect("its node is up");
}

/// Removes all files, and then all directories, the deepest first.
async fn remove_below(client: &Client, dir: Fid) {
    let (mut open, mut found) = (vec![dir], Vec::new());
    while let Some(dir) = open.pop() {
        for (name, fid) in read_whole_dir(client, dir).await {
            let kind = client.names().getattr(fid).await.expect("what has a name has an inode").kind();
            if kind == FileKind::Dir {
                open.push(fid);
                found.push((dir, name));
            } else {
                client.names().unlink(&root(), dir, name.as_bytes()).await.expect("root may remove");
            }
        }
    }
    for (dir, name) in found.into_iter().rev() {
        client.names().rmdir(&root(), dir, name.as_bytes()).await.expect("it is empty");
    }
}
