//! Power cuts at every sync of a run, one after the other.
//!
//! A few clients make, write, rename, remove and cut files, each in a directory of its own. A first run of the seed counts the
//! syncs that the servers ask for, from their first start on. Then the run is repeated for each of them, and the power is cut
//! before it, in its middle or behind it: for that server, for all servers, or for everybody, clients too. What lies on the disks
//! then is read by the offline checker (what `weft check --data` does). The servers start, by themselves; one run in three
//! loses power once more while they do. The clients that live repeat what was not durable, and go on; at the end a fresh
//! client compares everything with the model, all is stopped in order, and the checker reads the disks once more.

use std::fmt;
use std::time::Duration;

use rt::sim::{Chance, Handle, Moment, NetOptions, Options, PowerCut, Rng, Sim};
use rt::sync::oneshot;
use store::check::Depth;

use crate::cluster::{Cluster, Shape};
use crate::recovered;
use crate::restart::{check_everything, directory, start_players};
use crate::scenario::{Records, Scale, compared, empty_records, node, on};

/// What one run is like.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The seed: it decides what the clients do, and how fast disks and network are.
    pub seed: u64,
    /// How large it is; each OST has a server of its own.
    pub scale: Scale,
    /// Syncs that are answered and not done, once the targets are made: with those, changes are lost, and the run has to find it.
    pub sync_lies: Chance,
}

/// Where the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of the sync, from 1.
    pub sync: u64,
    /// Before it, in its middle, or behind it.
    pub moment: Moment,
}

const NEVER: Cut = Cut { sync: u64::MAX, moment: Moment::Before };

/// Each sync has these.
pub const MOMENTS: [Moment; 3] = [Moment::Before, Moment::During, Moment::After];

/// Who loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victims {
    /// The server whose sync it is.
    One,
    /// All servers.
    Servers,
    /// Clients too.
    Everybody,
}

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Folded from every event: two runs have the same.
    pub trace_hash: u64,
    /// Times the power was cut: once, or twice.
    pub cuts: u64,
    /// Disks that were read by the checker.
    pub checked: u64,
    /// What it found, each with the target and the moment.
    pub findings: Vec<String>,
    /// Sectors that were lost or torn.
    pub sectors_lost: u64,
    /// Results that were compared with the model.
    pub compared: u64,
    /// Virtual time.
    pub elapsed: Duration,
}

impl Found {
    /// Adds what another run found; its trace is folded in.
    pub fn add(&mut self, other: Found) {
        self.trace_hash =
            self.trace_hash.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.trace_hash;
        self.cuts += other.cuts;
        self.checked += other.checked;
        self.findings.extend(other.findings);
        self.sectors_lost += other.sectors_lost;
        self.compared += other.compared;
        self.elapsed += other.elapsed;
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} power cuts, {} sectors lost or torn, {} disks checked: {} findings; {} results compared in {:.1} virtual \
             seconds, trace {:016x}",
            self.cuts,
            self.sectors_lost,
            self.checked,
            self.findings.len(),
            self.compared,
            self.elapsed.as_secs_f64(),
            self.trace_hash
        )
    }
}

/// Everybody is served again, and done, so long after the last power cut.
const DONE_WITHIN: Duration = Duration::from_secs(300);
/// How often somebody looks whether the power was cut.
const TICK: Duration = Duration::from_millis(1);
/// The second cut comes at one of so many syncs behind the first one.
const AGAIN_WITHIN: u64 = 16;

/// A run under way.
struct Run {
    cluster: Cluster,
    handle: Handle,
    records: Records,
    rng: Rng,
    found: Found,
}

/// How many syncs the servers ask for in a run without a power cut.
pub fn count_syncs(world: World) -> u64 {
    let sim = new(world);
    let mut run = start(&sim, world);
    sim.run(async {
        let players = run.begin(world, NEVER, Victims::One).await;
        run.until_done(players, None).await;
        run.handle.syncs_seen()
    })
}

/// Runs a seed with one cut. Panics with what went wrong but for findings of the checker, which are given.
pub fn run(world: World, cut: Cut) -> Found {
    let sim = new(world);
    let mut run = start(&sim, world);
    sim.run(async {
        let mut draw = Rng::stream(world.seed, "victims", cut.sync * 4 + cut.moment as u64);
        let victims = *draw.pick(&[Victims::One, Victims::Servers, Victims::Everybody]);
        let again =
            draw.one_in(3).then(|| Cut { sync: draw.between(1, AGAIN_WITHIN), moment: *draw.pick(&MOMENTS) });
        let players = run.begin(world, cut, victims).await;
        run.until_cut(&players).await;
        run.start_again(victims, again).await;
        if victims == Victims::Everybody {
            drop(players);
            let promised = run.check_promises();
            run.until_done(vec![promised], again).await;
            run.plan(NEVER, &[]);
        } else {
            run.until_done(players, again).await;
            run.plan(NEVER, &[]);
            check_everything(&run.cluster, &run.records).await;
        }
        run.cluster.stop_servers().await;
        let servers = run.cluster.servers();
        run.check("stopped", &servers).await;
    });
    let Run { mut found, records, handle, .. } = run;
    let stats = handle.stats();
    found.trace_hash = handle.trace_hash();
    found.sectors_lost = stats.sectors_lost;
    found.compared = compared(&records) as u64;
    found.elapsed = stats.elapsed;
    found
}

/// A network without faults: it is the disks that are tested, and what they hold back is enough.
fn new(world: World) -> Sim {
    let mut options = Options::swarm(world.seed);
    options.net = NetOptions {
        latency: options.net.latency,
        crash_notice: options.net.crash_notice,
        ..NetOptions::default()
    };
    Sim::new(options)
}

fn start(sim: &Sim, world: World) -> Run {
    let handle = sim.handle();
    let cluster = Cluster::new(handle.clone(), Shape { osts: world.scale.osts, osts_per_oss: 1 });
    let records = empty_records(world.scale.clients);
    Run { cluster, rng: handle.rng("outages"), handle, records, found: Found::default() }
}

impl Run {
    /// Makes the file system and lets everybody work.
    async fn begin(&mut self, world: World, cut: Cut, victims: Victims) -> Vec<oneshot::Receiver<()>> {
        self.cluster.format().await;
        self.handle.change_disks(|disk| disk.sync_lies = world.sync_lies);
        // The nodes have to be there before they can be named.
        (0..self.records.len()).for_each(|client| drop(self.handle.node(&node(client))));
        self.plan(cut, &self.victims(victims));
        self.cluster.start_servers();
        start_players(&self.cluster, &self.records, world.scale, None)
    }

    fn victims(&self, victims: Victims) -> Vec<String> {
        let clients = (0..self.records.len()).map(node);
        match victims {
            Victims::One => Vec::new(),
            Victims::Servers => self.cluster.servers(),
            Victims::Everybody => self.cluster.servers().into_iter().chain(clients).collect(),
        }
    }

    fn plan(&self, cut: Cut, with: &[String]) {
        self.handle.plan_power_cut(&PowerCut {
            watched: self.cluster.servers(),
            sync: cut.sync,
            moment: cut.moment,
            with: with.to_vec(),
        });
    }

    async fn until_cut(&self, players: &[oneshot::Receiver<()>]) {
        let clock = self.handle.rt("clock");
        while self.handle.power_was_cut().is_none() {
            assert!(!players.is_empty(), "somebody works");
            clock.sleep(TICK).await;
        }
    }

    /// Reads the disks of those that lost power, and starts them. Plans the next cut.
    async fn start_again(&mut self, victims: Victims, again: Option<Cut>) {
        let struck = self.handle.power_was_cut().expect("it was cut just now");
        self.found.cuts += 1;
        let mut down = self.cluster.servers();
        if victims == Victims::One {
            down.retain(|server| *server == struck);
        }
        self.cluster.cut_power(&down);
        let outage = Duration::from_nanos(self.rng.below(3_000_000_000));
        self.handle.rt("clock").sleep(outage).await;
        for server in &down {
            self.handle.restart(server);
        }
        self.check("without power", &down).await;
        // In the next one everybody lives but those servers.
        self.plan(again.unwrap_or(NEVER), &down);
        for server in &down {
            self.cluster.start_server(server);
        }
    }

    /// Waits for the clients; meanwhile the power may be cut again.
    async fn until_done(&mut self, mut waits: Vec<oneshot::Receiver<()>>, mut again: Option<Cut>) {
        let clock = self.handle.rt("clock");
        let mut since = self.handle.now();
        while let Some(wait) = waits.last_mut() {
            match wait.try_recv() {
                Ok(()) => drop(waits.pop()),
                Err(oneshot::error::TryRecvError::Closed) => panic!("a client died"),
                Err(oneshot::error::TryRecvError::Empty) => clock.sleep(TICK).await,
            }
            if again.is_some() && self.handle.power_was_cut().is_some() {
                again = None;
                self.start_again(Victims::Servers, None).await;
                since = self.handle.now();
            }
            let waited = self.handle.now() - since;
            assert!(
                waited < DONE_WITHIN,
                "not everybody is done after {waited:?}: {:?}",
                self.cluster.waits()
            );
        }
    }

    /// Has a fresh client look for what was promised to those that are gone.
    fn check_promises(&self) -> oneshot::Receiver<()> {
        let (cluster, records) = (self.cluster.clone(), self.records.clone());
        on(&self.handle, "promises", async move {
            let (_, client) = cluster.mount("promises").await;
            for (number, record) in records.iter().enumerate() {
                let record = record.lock().take_view();
                if record.floor > 0 {
                    recovered::check(&client, &directory(number), &record).await;
                }
            }
            client.unmount().await.expect("a healthy client unmounts");
        })
    }

    /// Reads the disks of servers that do not run.
    async fn check(&mut self, when: &str, servers: &[String]) {
        for server in servers {
            let rt = self.handle.rt(server);
            for (target, path) in self.cluster.targets(server) {
                self.found.checked += 1;
                match server::check_target(&rt, &path, Depth::Data).await {
                    Ok(report) => {
                        let told =
                            report.findings.iter().map(|finding| format!("{target} {when}: {finding}"));
                        self.found.findings.extend(told);
                    }
                    Err(error) => {
                        self.found.findings.push(format!("{target} {when} cannot be checked: {error}"));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
