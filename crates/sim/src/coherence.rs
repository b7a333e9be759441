//! One seed in which many clients fight over a few files and names, and all that they saw has to fit into one order.
//!
//! Clients keep names, attributes and data under locks (docs/locks.md); this is what shows a copy that should have
//! been given up. The network has faults; in a second flavour servers lose power too, and clients live on; in a third some
//! clients only look, and are cut off from servers again and again ([`crate::cut_off`]).
//! [`crate::history`] judges what was seen, [`crate::invariants`] what was granted.

mod looks;
mod player;

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::{AttrChange, Client, Error, Handle, OpenFlags};
use parking_lot::Mutex;
use proto::layout::{HintPart, LayoutHint};
use proto::{Code, Fid};
use rpc::Habits;
use rt::Rt;
use rt::sim::{Options, Rng, Sim};
use rt::sync::oneshot;

use crate::cluster::{Cluster, Shape};
use crate::cut_off;
use crate::history::{Effect, NAME_OPS_MAX, NameHistory, Register, Span};
use crate::invariants;
use crate::kernel::{Access, Kernel, PAGE_BYTES};
use crate::progress::{Doing, Progress};
use crate::restart::crash_some;
use crate::rounds::Rounds;
use crate::scenario::{Report, node, on, report};
use crate::workload::{READ_WRITE, Record, root};
use looks::{By, fill, in_pages, log_record, look_at_mode, look_up, note_read, open, pieces, read_range};
use player::Player;

const OSTS: u32 = 4;
const DIRS: usize = 2;
const NAMES: u64 = 4;
const FILES: usize = 3;
const STRIPE_BYTES: u64 = 64 << 10;
const FILE_BYTES: u64 = 200_000;
/// Offset and length: neighbours share pages, and two of them cross the border of a stripe.
const RANGES: [(u64, u64); 6] =
    [(7, 1), (12_345, 4_096), (16_441, 100), (17_001, 47_008), (65_499, 100), (101_111, 47_008)];
const RECORD_BYTES: usize = 64;
const RECORD_BYTES_U64: u64 = RECORD_BYTES as u64;
/// Values of a register that one byte can tell apart.
const BYTE_VALUES: usize = 255;
/// Modes that one file can be given, each once: the permissions are nine bits.
const MODES: usize = 511;
/// Clients that are cut off, and how many names each of them looks up: there is room for so many operations of a name.
const VICTIMS: usize = 4;
const NAME_LOOKS_MAX: u32 = 60;
const READ_ONLY: OpenFlags = OpenFlags { write: false, ..READ_WRITE };
const APPEND: OpenFlags = OpenFlags { append: true, ..READ_WRITE };

/// A part of a range that lies in one stripe: file, range, and the part's place in the range.
type PieceKey = (usize, usize, u64);

#[derive(Debug, Default)]
struct History {
    moment: u64,
    compared: usize,
    pieces: BTreeMap<PieceKey, Register>,
    /// Values handed out for each range, and modes for each file.
    tags: BTreeMap<(usize, usize), usize>,
    mode_tags: BTreeMap<usize, usize>,
    modes: BTreeMap<usize, Register>,
    names: BTreeMap<(usize, u64), NameHistory>,
    /// Operations begun for each name.
    begun: BTreeMap<(usize, u64), usize>,
    appends: BTreeMap<(u32, u32), Span>,
    sizes: Vec<(u64, Span)>,
}

impl History {
    fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn end(&mut self, start: u64) -> Span {
        self.compared += 1;
        start..=self.now()
    }
}

/// What all clients work on.
#[derive(Clone)]
struct World {
    dirs: Vec<Fid>,
    files: Vec<Fid>,
    log: Fid,
    links: bool,
    history: Arc<Mutex<History>>,
    progress: Progress,
    /// All who change something are done.
    over: Arc<AtomicBool>,
    /// Operations are done in rounds.
    rounds: Option<Rounds>,
}

/// What befalls servers and clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing but what the network does.
    Peace,
    /// Servers lose power once or twice.
    PowerFails,
    /// Clients that only look lose their way to servers.
    CutOff,
    /// Both.
    PowerFailsAndCutOff,
}

impl Fate {
    fn power_fails(self) -> bool {
        matches!(self, Fate::PowerFails | Fate::PowerFailsAndCutOff)
    }

    fn victims(self) -> usize {
        if matches!(self, Fate::CutOff | Fate::PowerFailsAndCutOff) { VICTIMS } else { 0 }
    }
}

/// Runs one seed; panics with what went wrong.
pub fn run(seed: u64) -> Report {
    run_with(seed, Fate::Peace, Habits::TODAY)
}

/// Runs one seed in which the power of servers fails once or twice; no client may notice more than a pause.
pub fn run_with_restarts(seed: u64) -> Report {
    run_with(seed, Fate::PowerFails, Habits::TODAY)
}

/// Runs one seed in which some clients only look, and are cut off or die; in every second one servers lose power, too.
pub fn run_with_cut_off_clients(seed: u64) -> Report {
    let fate = if seed.is_multiple_of(2) { Fate::PowerFailsAndCutOff } else { Fate::CutOff };
    run_with(seed, fate, Habits::TODAY)
}

/// Runs one seed with a fate, where servers and clients have other habits than they should.
pub fn run_with(seed: u64, fate: Fate, habits: Habits) -> Report {
    let sim = Sim::new(Options::swarm(seed));
    let handle = sim.handle();
    let cluster = Cluster::new(handle.clone(), Shape { osts: OSTS, osts_per_oss: 2 }).with_habits(habits);
    let mut rng = handle.rng("coherence");
    let clients = if rng.one_in(10) { 100 } else { rng.between(8, 24) as usize };
    let steps = rng.between(40, 80) as usize;
    let progress = Progress::new(handle.clone());
    let work = async {
        cluster.format().await;
        cluster.start_servers();
        let crowd = Crowd { workers: clients, lookers: fate.victims(), steps, links: rng.one_in(2) };
        let game = Game::start(&cluster, &progress, crowd, None).await;
        let (harassed, over, harassing) = (cluster.clone(), game.world.over.clone(), game.lookers.clone());
        let harassing = on(&handle, "harasser", async move {
            cut_off::harass(&harassed, harassing, &over).await;
        });
        if fate.power_fails() {
            cut_power(&cluster, &progress, (clients * steps) as u64).await;
        }
        game.finish(&cluster, Some(harassing)).await
    };
    let compared = sim.run(progress.watch(&cluster, work));
    report(&handle, &vec![Arc::new(Mutex::new(Record { compared, ..Record::default() }))])
}

/// How many do what.
pub(crate) struct Crowd {
    /// Clients that change things.
    pub workers: usize,
    /// Clients that only look.
    pub lookers: usize,
    /// Operations of each worker.
    pub steps: usize,
    /// Whether files get second names.
    pub links: bool,
}

/// All clients at work.
pub(crate) struct Game {
    world: World,
    finished: Vec<oneshot::Receiver<()>>,
    looking: Vec<oneshot::Receiver<()>>,
    lookers: Vec<String>,
}

impl Game {
    /// Makes what they work on, and lets them begin; in rounds if there are some.
    pub async fn start(cluster: &Cluster, progress: &Progress, crowd: Crowd, rounds: Option<Rounds>) -> Game {
        let handle = cluster.handle();
        let history = Arc::new(Mutex::new(History::default()));
        let world = World { rounds, ..make_world(cluster, progress, crowd.links, history).await };
        let (mut finished, mut looking) = (Vec::new(), Vec::new());
        for number in 0..crowd.workers {
            let (cluster, world) = (cluster.clone(), world.clone());
            finished.push(on(handle, &node(number), play(cluster, world, number, crowd.steps)));
        }
        let lookers = crowd.workers..crowd.workers + crowd.lookers;
        for number in lookers.clone() {
            looking.push(on(handle, &node(number), look_on(cluster.clone(), world.clone(), number)));
        }
        Game { world, finished, looking, lookers: lookers.map(node).collect() }
    }

    /// Waits for all, compares everything, and gives how many results that were. `besides` ends when all are done.
    pub async fn finish(self, cluster: &Cluster, besides: Option<oneshot::Receiver<()>>) -> usize {
        for client in self.finished {
            client.await.expect("no client died");
        }
        self.world.over.store(true, Ordering::Relaxed);
        if let Some(besides) = besides {
            besides.await.expect("its node is up");
        }
        for client in self.looking {
            // Some have died.
            let _ = client.await;
        }
        self.lookers.iter().for_each(|looker| self.world.progress.unmounted(looker));
        look_at_the_end(cluster, &self.world).await;
        let history = self.world.history.lock();
        check(&history);
        history.compared
    }
}

/// Crashes servers once or twice in the first half of the clients' `steps`: not every step is an operation.
async fn cut_power(cluster: &Cluster, progress: &Progress, steps: u64) {
    let mut rng = cluster.handle().rng("power");
    let mut moments: Vec<u64> = (0..rng.between(1, 2)).map(|_| rng.below(steps / 2)).collect();
    moments.sort_unstable();
    for moment in moments {
        progress.until_finished(moment).await;
        crash_some(cluster, &mut rng).await;
    }
}

/// The life of one client.
async fn play(cluster: Cluster, world: World, number: usize, steps: usize) {
    let (node, progress) = (node(number), world.progress.clone());
    let rng = cluster.handle().rng(&node);
    let mounting = progress.begin(&node, "mount".into());
    let (rt, client) = cluster.mount_numbered(&node, number).await;
    progress.mounted(&node, &client);
    drop(mounting);
    let files = [world.files.clone(), vec![world.log]].concat();
    let mut player = Player::start(number as u32, rt, client, world, rng, READ_WRITE).await;
    for step in 0..steps {
        if let Some(rounds) = &player.world.rounds {
            rounds.until_due(step).await;
        }
        player.step().await;
        invariants::check(&cluster, &node, &player.client, &files);
    }
    let unmounting = player.doing("unmount".into());
    player.close_mappings().await;
    progress.unmounted(&node);
    player.client.unmount().await.expect("a healthy client unmounts");
    drop(unmounting);
}

/// The life of a client that only looks, until all others are done.
async fn look_on(cluster: Cluster, world: World, number: usize) {
    let (node, progress, over) = (node(number), world.progress.clone(), world.over.clone());
    let rng = cluster.handle().rng(&node);
    let (rt, client) = cluster.mount_numbered(&node, number).await;
    progress.mounted(&node, &client);
    let mut player = Player::start(number as u32, rt, client, world, rng, READ_ONLY).await;
    while !over.load(Ordering::Relaxed) {
        player.look().await;
    }
    player.close_mappings().await;
    player.client.unmount().await.expect("it has nothing to lose");
    progress.unmounted(&node);
}

/// The first bytes on the MDT, and components that get their objects with the first writes to them.
fn composite() -> Vec<HintPart> {
    let ends = [(2 * STRIPE_BYTES, 2), (u64::MAX, OSTS as i32)];
    let hint =
        |stripe_count| LayoutHint { stripe_count, stripe_size: STRIPE_BYTES as u32, ..LayoutHint::default() };
    let striped = ends.into_iter().map(|(end, count)| HintPart::new(end, hint(count)));
    let mut parts: Vec<HintPart> = iter::once(HintPart::mdt(STRIPE_BYTES)).chain(striped).collect();
    // The last one gets them piece by piece.
    parts.iter_mut().filter(|part| part.end == u64::MAX).for_each(|part| part.extension = STRIPE_BYTES);
    parts
}

async fn make_world(
    cluster: &Cluster,
    progress: &Progress,
    links: bool,
    history: Arc<Mutex<History>>,
) -> World {
    let (_, client) = cluster.mount("first").await;
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for number in 0..DIRS {
        let name = format!("d{number}");
        let made = client.names().make(&root(), Fid::ROOT, name.as_bytes(), 0o040_777, 0, Bytes::new()).await;
        dirs.push(made.expect("a new directory can be made").fid);
    }
    for name in ["f0", "f1", "f2", "log"] {
        let hint = LayoutHint {
            stripe_count: OSTS as i32,
            stripe_size: STRIPE_BYTES as u32,
            parts: if ["f1", "log"].contains(&name) { composite() } else { Vec::new() },
            ..LayoutHint::default()
        };
        let made =
            client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_000, hint).await;
        files.push(made.expect("a new file can be made").fid);
    }
    let log = files.pop().expect("the log was made last");
    for file in &files {
        let change = AttrChange { size: Some(FILE_BYTES), ..AttrChange::default() };
        client.files().setattr(&root(), *file, change, None).await.expect("root may change a size");
    }
    client.unmount().await.expect("a healthy client unmounts");
    let (progress, over) = (progress.clone(), Arc::default());
    World { dirs, files, log, links, history, progress, over, rounds: None }
}

/// With nobody at work a client that kept nothing looks at everything once more.
async fn look_at_the_end(cluster: &Cluster, world: &World) {
    let (_, client) = cluster.mount("checker").await;
    world.progress.mounted("checker", &client);
    let _doing = world.progress.begin("checker", "look at everything".into());
    for (file, fid) in world.files.iter().enumerate() {
        look_at_mode(&client, world, file, By::Name).await;
        let handle = client.files().open(&root(), *fid, READ_WRITE).await.expect("root may open");
        for range in 0..RANGES.len() {
            read_range(&client, world, handle, file, range).await;
        }
        client.files().release(handle).await;
    }
    for dir in 0..DIRS {
        for name in 0..NAMES {
            look_up(&client, world, (dir, name)).await;
        }
    }
    let handle = client.files().open(&root(), world.log, READ_WRITE).await.expect("root may open");
    let appends = world.history.lock().appends.clone();
    let size = client.names().getattr(world.log).await.expect("the log is there").size;
    assert_eq!(size, appends.len() as u64 * RECORD_BYTES_U64, "size of the log");
    let log =
        client.files().read(handle, 0, size as u32 + 1).await.expect("what is healthy can be read").concat();
    let mut found: Vec<&[u8]> = log.chunks(RECORD_BYTES).collect();
    let mut expected: Vec<Vec<u8>> = appends.keys().map(|key| log_record(*key)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected, "the log does not have each record once");
    client.unmount().await.expect("a healthy client unmounts");
    for history in world.history.lock().names.values_mut() {
        history.links = world.links;
    }
}

fn check(history: &History) {
    for ((file, range, at), register) in &history.pieces {
        register.check().unwrap_or_else(|what| panic!("f{file} at {} + {at}: {what}", RANGES[*range].0));
    }
    for (file, register) in &history.modes {
        register.check().unwrap_or_else(|what| panic!("mode of f{file}: {what}"));
    }
    for ((dir, name), ops) in &history.names {
        ops.check().unwrap_or_else(|what| panic!("d{dir}/n{name}: {what}"));
    }
    for (size, look) in &history.sizes {
        let done = history.appends.values().filter(|append| append.end() < look.start()).count() as u64;
        let begun = history.appends.values().filter(|append| append.start() < look.end()).count() as u64;
        let possible = done * RECORD_BYTES_U64..=begun * RECORD_BYTES_U64;
        assert!(possible.contains(size), "size {size} of the log seen in {look:?}, possible is {possible:?}");
    }
}
