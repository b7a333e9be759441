//! One seed, from an empty disk to the last check.
//!
//! All clients work, each in its own directory and together in a shared one, over a network that loses, repeats,
//! reorders and delays. Then the power of every node is cut in the middle of their work. What was promised has to be
//! there afterwards, and the system has to go on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::Fid;
use rt::sim::{Handle, Options, Sim, Stats};
use rt::sync::oneshot;

use crate::cluster::{Cluster, Shape};
use crate::recovered;
use crate::shared::{self, Tally};
use crate::workload::{Player, Record, root};

/// Of so many clients some make files ahead of the MDT.
const MANY: u32 = 16;

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Clients.
    pub clients: u32,
    /// OSTs, two on each OSS.
    pub osts: u32,
    /// Operations of each client before the crash is allowed.
    pub steps: usize,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Folded from every event: two runs of one seed have the same.
    pub trace_hash: u64,
    /// Results that were compared with the model.
    pub compared: usize,
    /// Virtual time.
    pub elapsed: Duration,
    /// What was done to it.
    pub faults: Faults,
}

/// Faults that a run injected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Messages that were lost.
    pub dropped: u64,
    /// Messages that came twice.
    pub duplicated: u64,
    /// Messages that came out of order.
    pub reordered: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Nodes whose power was cut.
    pub crashes: u64,
}

impl Faults {
    /// Adds those of another run.
    pub fn add(&mut self, other: Faults) {
        self.dropped += other.dropped;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.broken += other.broken;
        self.crashes += other.crashes;
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} messages dropped, {} duplicated, {} reordered, {} connections broken, {} nodes crashed",
            self.dropped, self.duplicated, self.reordered, self.broken, self.crashes
        )
    }
}

pub(crate) type Records = Vec<Arc<Mutex<Record>>>;

/// Runs one seed; panics with what went wrong.
pub fn run(seed: u64, scale: Scale) -> Report {
    let sim = Sim::new(Options::swarm(seed));
    let handle = sim.handle();
    let cluster = Cluster::new(handle.clone(), Shape { osts: scale.osts, osts_per_oss: 2 });
    let records = empty_records(scale.clients);
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        work_in_peace(&cluster, &records, scale).await;
        crash_in_the_middle(&cluster, &records, scale).await;
        check_promises(&cluster, &records).await;
        go_on(&cluster, scale).await;
    });
    report(&handle, &records)
}

/// One for each client; no two clients share tags.
pub(crate) fn empty_records(clients: u32) -> Records {
    (0..clients).map(|n| Arc::new(Mutex::new(Record { tag_base: n << 16, ..Record::default() }))).collect()
}

/// Results of all clients that were compared so far.
pub(crate) fn compared(records: &Records) -> usize {
    records.iter().map(|record| record.lock().compared).sum()
}

/// What the run did until now.
pub(crate) fn report(handle: &Handle, records: &Records) -> Report {
    let stats: Stats = handle.stats();
    let faults = Faults {
        dropped: stats.frames_dropped,
        duplicated: stats.frames_duplicated,
        reordered: stats.frames_reordered,
        broken: stats.breaks,
        crashes: stats.crashes,
    };
    Report { trace_hash: handle.trace_hash(), compared: compared(records), elapsed: stats.elapsed, faults }
}

/// Waits until the clients have compared so many results.
pub(crate) async fn until_compared(handle: &Handle, records: &Records, count: usize) {
    let clock = handle.rt("clock");
    loop {
        clock.sleep(Duration::from_millis(1)).await;
        if compared(records) >= count {
            break;
        }
    }
}

pub(crate) fn node(client: usize) -> String {
    format!("c{client}")
}

/// Runs `work` on a node and gives what it gives; the task dies with the node.
pub fn on<T: Send + 'static>(
    handle: &Handle,
    node: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, wait) = oneshot::channel();
    handle.rt(node).spawn(async move {
        let result = work.await;
        let _ = done.send(result);
    });
    wait
}

/// Every client works; nobody crashes. At the end the shared directory adds up, and every client reads what
/// another one wrote and closed.
async fn work_in_peace(cluster: &Cluster, records: &Records, scale: Scale) {
    let tally = Tally::default();
    let (_, first) = cluster.mount("first").await;
    let made = first.names().make(&root(), Fid::ROOT, b"shared", 0o040_777, 0, Bytes::new()).await;
    let dir = made.expect("a new name can be made").fid;
    let mut waits = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let (cluster, record, tally) = (cluster.clone(), record.clone(), tally.clone());
        let rng = cluster.handle().rng(&node(number));
        waits.push(on(&cluster.handle().clone(), &node(number), async move {
            let (_, client) = cluster.mount_numbered(&node(number), number).await;
            let mut fighter = rng;
            let mine = rt::sim::Rng::new(fighter.next_u64());
            let mut player = Player::start(&format!("d{number}"), client.clone(), mine, record).await;
            player.play(scale.steps / 2).await;
            shared::fight(&client, dir, fighter, tally, scale.steps / 4).await;
            player.play(scale.steps - scale.steps / 2).await;
            player.finish().await;
            let ahead = client.admin().counters().get("ahead.made").copied().unwrap_or(0);
            client.unmount().await.expect("a healthy client unmounts");
            ahead
        }));
    }
    let mut ahead = 0;
    for wait in waits {
        ahead += wait.await.expect("no client died");
    }
    tracing::info!(ahead, "files were made ahead of the MDT");
    assert!(ahead > 0 || scale.clients < MANY, "nobody made a file ahead");
    shared::check(&first, dir, &tally).await;
    for (number, record) in records.iter().enumerate().step_by(7) {
        let mut now = record.lock().take_view();
        now.only_the_last();
        recovered::check(&first, &format!("d{number}"), &now).await;
    }
    first.unmount().await.expect("a healthy client unmounts");
}

/// Every client works in a second directory until the power of every node is cut.
async fn crash_in_the_middle(cluster: &Cluster, records: &Records, scale: Scale) {
    let handle = cluster.handle().clone();
    for (number, record) in records.iter().enumerate() {
        let tag_base = record.lock().tag_base;
        let compared = record.lock().compared;
        *record.lock() = Record { tag_base, compared, ..Record::default() };
        let (cluster, record) = (cluster.clone(), record.clone());
        let mut rng = handle.rng(&format!("again{number}"));
        let mine = rt::sim::Rng::new(rng.next_u64());
        drop(on(&handle, &node(number), async move {
            let (_, client) = cluster.mount_numbered(&node(number), number).await;
            let mut player = Player::start(&format!("e{number}"), client, mine, record).await;
            player.play(usize::MAX).await;
        }));
    }
    let enough = scale.steps * records.len() / 2;
    let before = compared(records);
    until_compared(&handle, records, before + enough).await;
    for number in 0..records.len() {
        handle.crash(&node(number));
    }
    cluster.crash_servers();
}

async fn check_promises(cluster: &Cluster, records: &Records) {
    let (_, client) = cluster.mount("checker").await;
    for (number, record) in records.iter().enumerate() {
        let record = record.lock().take_view();
        if record.floor > 0 {
            recovered::check(&client, &format!("e{number}"), &record).await;
        }
    }
    client.unmount().await.expect("a healthy client unmounts");
}

/// With the faults gone, new clients get on with their work.
async fn go_on(cluster: &Cluster, scale: Scale) {
    cluster.handle().calm();
    for number in 0..4 {
        let (_, client) = cluster.mount(&format!("n{number}")).await;
        let record = Arc::new(Mutex::new(Record::default()));
        let rng = cluster.handle().rng(&format!("n{number}"));
        let mut player = Player::start(&format!("f{number}"), client.clone(), rng, record).await;
        player.play(scale.steps / 2).await;
        player.finish().await;
        client.unmount().await.expect("a healthy client unmounts");
    }
}
