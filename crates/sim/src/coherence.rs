//! One seed in which many clients fight over a few files and names, and all that they saw has to fit into one order.
//!
//! Clients keep names, attributes and data under locks (docs/locks.md); this is what shows a copy that should have
//! been given up. The network has faults; in a second flavour servers lose power too, and clients live on; in a third some
//! clients only look, and are cut off from servers again and again ([`crate::cut_off`]).
//! [`crate::history`] judges what was seen, [`crate::invariants`] what was granted.

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
use crate::kernel::{Kernel, PAGE_BYTES};
use crate::progress::{Doing, Progress};
use crate::restart::crash_some;
use crate::rounds::Rounds;
use crate::scenario::{Report, node, on, report};
use crate::workload::{READ_WRITE, Record, root};

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
    iter::once(HintPart::mdt(STRIPE_BYTES)).chain(striped).collect()
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

/// One client at work.
struct Player {
    number: u32,
    rt: Rt,
    client: Arc<Client>,
    /// Half of the clients have files mapped.
    kernel: Option<Arc<Kernel>>,
    world: World,
    rng: Rng,
    handles: Vec<Handle>,
    log: Handle,
    appended: u32,
    looked_up: u32,
    size_seen: u64,
}

impl Player {
    async fn start(
        number: u32,
        rt: Rt,
        client: Arc<Client>,
        world: World,
        mut rng: Rng,
        flags: OpenFlags,
    ) -> Player {
        let kernel = rng.one_in(2).then(|| Kernel::above(&client));
        let _doing = world.progress.begin(&node(number as usize), "open every file".into());
        let mut handles = Vec::new();
        for file in &world.files {
            handles.push(open(&client, *file, flags).await);
        }
        let log = open(&client, world.log, if flags.write { APPEND } else { flags }).await;
        Player {
            number,
            rt,
            client,
            kernel,
            world,
            rng,
            handles,
            log,
            appended: 0,
            looked_up: 0,
            size_seen: 0,
        }
    }

    async fn step(&mut self) {
        if self.rng.one_in(3) {
            self.rt.sleep(Duration::from_nanos(self.rng.below(20_000_000))).await;
        }
        match self.rng.below(100) {
            0..15 => self.write().await,
            15..35 => self.read().await,
            35..38 => self.reopen().await,
            38..41 => {
                let _doing = self.doing("sync everything".into());
                self.client.sync_all().await.expect("what is healthy can be synced");
            }
            41..46 => self.append().await,
            46..50 => self.look_at_log().await,
            50..56 => self.chmod().await,
            56..66 => self.look_at_mode().await,
            66 => self.migrate().await,
            _ => self.name().await,
        }
    }

    /// A step of one who only looks, nearly always at one thing: so it need not ask anybody for long, wherever it is.
    async fn look(&mut self) {
        self.rt.sleep(Duration::from_nanos(self.rng.below(4_000_000_000))).await;
        if self.rng.one_in(50) {
            return self.read().await;
        }
        match self.number % 4 {
            0 => self.read_range_of(0, self.number as usize / 4 % RANGES.len()).await,
            1 => self.look_at_log().await,
            2 => {
                let _doing = self.doing(format!("stat f1 {}", self.world.files[1]));
                look_at_mode(&self.client, &self.world, 1, false).await;
            }
            _ if self.looked_up < NAME_LOOKS_MAX => {
                let name = (0, 0);
                if !self.begin_name(name) {
                    return;
                }
                self.looked_up += 1;
                look_up(&self.client, &self.world, name).await;
            }
            _ => self.look_at_mode().await,
        }
    }

    fn doing(&self, what: String) -> Doing {
        self.world.progress.begin(&node(self.number as usize), what)
    }

    fn start_op(&self) -> u64 {
        self.world.history.lock().now()
    }

    async fn write(&mut self) {
        let (file, range) = (self.any_file(), self.rng.below(RANGES.len() as u64) as usize);
        let (offset, len) = RANGES[range];
        let (tag, start) = {
            let mut history = self.world.history.lock();
            let tag = history.tags.entry((file, range)).or_default();
            if len == 1 && *tag == BYTE_VALUES {
                return;
            }
            *tag += 1;
            (*tag as u64, history.now())
        };
        let data = fill(tag, len);
        let _doing = self.doing(format!("write f{file} {}: {len} bytes at {offset}", self.world.files[file]));
        self.write_bytes(file, offset, &data).await;
        let mut history = self.world.history.lock();
        let span = history.end(start);
        for (at, _) in pieces(range) {
            history.pieces.entry((file, range, at)).or_default().writes.insert(tag, span.clone());
        }
    }

    async fn read(&mut self) {
        let (file, range) = (self.any_file(), self.rng.below(RANGES.len() as u64) as usize);
        self.read_range_of(file, range).await;
    }

    async fn read_range_of(&mut self, file: usize, range: usize) {
        let (offset, len) = RANGES[range];
        let _doing = self.doing(format!("read f{file} {}: {len} bytes at {offset}", self.world.files[file]));
        let start = self.start_op();
        let data = self.read_bytes(file, offset, len).await;
        note_read(&self.world, (file, range), start, &data);
    }

    /// Through a mapping, if the client has one and each part of the range can be used in one moment; else past it.
    async fn write_bytes(&mut self, file: usize, offset: u64, data: &[u8]) {
        let (fid, handle, end) = (self.world.files[file], self.handles[file], offset + data.len() as u64);
        if let Some(kernel) = &self.kernel {
            if let Some(parts) = in_pages(offset, end).filter(|_| self.rng.one_in(2)) {
                for part in parts {
                    let bytes = &data[(part.start - offset) as usize..(part.end - offset) as usize];
                    kernel.map((fid, handle), &part, |page| page.copy_from_slice(bytes), true).await;
                }
                return;
            }
            kernel.drop_pages(fid, offset..end).await;
        }
        let written = self.client.files().write(handle, offset, data).await;
        assert_eq!(written, Ok(data.len() as u32), "write of {offset} to {end}");
    }

    async fn read_bytes(&mut self, file: usize, offset: u64, len: u64) -> Vec<u8> {
        let (fid, handle, end) = (self.world.files[file], self.handles[file], offset + len);
        if let Some(kernel) = &self.kernel {
            if let Some(parts) = in_pages(offset, end).filter(|_| self.rng.one_in(2)) {
                let mut data = Vec::new();
                for part in parts {
                    data.extend(kernel.map((fid, handle), &part, |page| page.to_vec(), false).await);
                }
                return data;
            }
            kernel.write_back(fid, offset..end).await;
        }
        self.client
            .files()
            .read(handle, offset, len as u32)
            .await
            .expect("what is healthy can be read")
            .concat()
    }

    async fn reopen(&mut self) {
        let file = self.any_file();
        let _doing = self.doing(format!("close and open f{file} {}", self.world.files[file]));
        if let Some(kernel) = &self.kernel {
            // A mapping keeps the file open: it is gone by now, and its pages are written back.
            kernel.write_back(self.world.files[file], 0..FILE_BYTES).await;
        }
        self.client.files().flush(self.handles[file]).await.expect("what is healthy can be flushed");
        self.client.files().release(self.handles[file]).await;
        self.handles[file] = self
            .client
            .files()
            .open(&root(), self.world.files[file], READ_WRITE)
            .await
            .expect("root may open");
    }

    async fn append(&mut self) {
        let key = (self.number, self.appended);
        self.appended += 1;
        let _doing = self.doing(format!("append to the log {}", self.world.log));
        let start = self.start_op();
        let record = log_record(key);
        // As a mount does: at once, if there is nothing to wait for.
        let done = match self.client.files().write_at_once(self.log, 0, &record) {
            Ok(Some(len)) => Ok(len),
            Ok(None) => self.client.files().write(self.log, 0, &record).await,
            Err(error) => Err(error),
        };
        assert_eq!(done, Ok(RECORD_BYTES as u32), "append {key:?}");
        let mut history = self.world.history.lock();
        let span = history.end(start);
        history.appends.insert(key, span);
    }

    async fn look_at_log(&mut self) {
        let _doing = self.doing(format!("stat the log {}", self.world.log));
        let start = self.start_op();
        let size = self.client.names().getattr(self.world.log).await.expect("the log is there").size;
        assert!(
            size >= self.size_seen,
            "client {}: the log shrank from {} to {size}",
            self.number,
            self.size_seen
        );
        self.size_seen = size;
        let mut history = self.world.history.lock();
        let span = history.end(start);
        tracing::debug!(size, ?span, "the log is so long");
        history.sizes.push((size, span));
    }

    async fn chmod(&mut self) {
        let file = self.any_file();
        let (mode, start) = {
            let mut history = self.world.history.lock();
            let mode = history.mode_tags.entry(file).or_default();
            if *mode == MODES {
                return;
            }
            *mode += 1;
            (*mode as u32, history.now())
        };
        let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
        let _doing = self.doing(format!("chmod f{file} {}", self.world.files[file]));
        self.client
            .files()
            .setattr(&root(), self.world.files[file], change, None)
            .await
            .expect("root may chmod");
        let mut history = self.world.history.lock();
        let span = history.end(start);
        history.modes.entry(file).or_default().writes.insert(u64::from(mode), span);
    }

    /// Moves the data of a file to other OSTs; or of the log.
    async fn migrate(&mut self) {
        let file = self.rng.below(FILES as u64 + 1) as usize;
        let fid = self.world.files.get(file).copied().unwrap_or(self.world.log);
        let hint = LayoutHint {
            stripe_count: 1 + self.rng.below(u64::from(OSTS)) as i32,
            stripe_size: STRIPE_BYTES as u32,
            parts: if self.rng.below(2) == 0 { composite() } else { Vec::new() },
            ..LayoutHint::default()
        };
        let _doing = self.doing(format!("migrate f{file} {fid}"));
        match self.client.migrate(&root(), fid, hint).await {
            // Others moved it at the same time, or power failed every time.
            Ok(()) | Err(Error::Refused(Code::Busy | Code::TryAgain)) => {}
            Err(error) => panic!("migrate f{file} {fid}: {error}"),
        }
    }

    async fn look_at_mode(&mut self) {
        let (file, by_name) = (self.any_file(), self.rng.one_in(2));
        let _doing = self.doing(format!("stat f{file} {}, by name: {by_name}", self.world.files[file]));
        look_at_mode(&self.client, &self.world, file, by_name).await;
    }

    async fn close_mappings(&self) {
        let Some(kernel) = &self.kernel else { return };
        for file in &self.world.files {
            kernel.drop_pages(*file, 0..FILE_BYTES).await;
        }
    }

    fn any_file(&mut self) -> usize {
        self.rng.below(FILES as u64) as usize
    }

    /// A name that is not used up, with one more operation counted.
    fn any_name(&mut self) -> Option<(usize, u64)> {
        let name = (self.rng.below(DIRS as u64) as usize, self.rng.below(NAMES));
        self.begin_name(name).then_some(name)
    }

    /// Counts one more operation of a name, if that is not used up.
    fn begin_name(&self, name: (usize, u64)) -> bool {
        let mut history = self.world.history.lock();
        let begun = history.begun.entry(name).or_default();
        // The last place is for the look at the end.
        let has_room = *begun + 1 < NAME_OPS_MAX;
        *begun += usize::from(has_room);
        has_room
    }

    async fn name(&mut self) {
        let Some(name) = self.any_name() else { return };
        match self.rng.below(100) {
            0..15 => self.create(name).await,
            15..20 => self.open_empty(name).await,
            20..35 => self.unlink(name).await,
            35..45 => self.rename(name).await,
            45..52 if self.world.links => self.link(name).await,
            _ => {
                let _doing = self.doing(format!("look up d{}/n{}", name.0, name.1));
                look_up(&self.client, &self.world, name).await;
            }
        }
    }

    fn note(&self, name: (usize, u64), effect: Effect, span: Span) {
        self.world.history.lock().names.entry(name).or_default().ops.push((effect, span));
    }

    async fn create(&mut self, (dir, name): (usize, u64)) {
        let flags = OpenFlags { exclusive: true, ..READ_WRITE };
        let _doing = self.doing(format!("create d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let made = self
            .client
            .files()
            .create(&root(), self.world.dirs[dir], text.as_bytes(), 0o100_644, flags)
            .await;
        let span = self.world.history.lock().end(start);
        match made.map(|(told, handle)| (told.fid, handle)) {
            Ok((fid, handle)) => {
                self.note((dir, name), Effect::Made(fid), span);
                self.client.files().release(handle).await;
            }
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::Exists), "create of {text}");
                self.note((dir, name), Effect::Present, span);
            }
        }
    }

    /// Opens what has the name, emptied, or makes it.
    async fn open_empty(&mut self, (dir, name): (usize, u64)) {
        let flags = OpenFlags { truncate: true, ..READ_WRITE };
        let _doing = self.doing(format!("open and empty d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let made = self
            .client
            .files()
            .create(&root(), self.world.dirs[dir], text.as_bytes(), 0o100_644, flags)
            .await;
        let span = self.world.history.lock().end(start);
        let (fid, size, handle) =
            made.map(|(told, handle)| (told.fid, told.size, handle)).expect("root may open or make");
        assert_eq!(size, 0, "{text} was emptied");
        self.note((dir, name), Effect::Opened(fid), span);
        self.client.files().release(handle).await;
    }

    async fn unlink(&mut self, (dir, name): (usize, u64)) {
        let _doing = self.doing(format!("unlink d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let done = self.client.names().unlink(&root(), self.world.dirs[dir], text.as_bytes()).await;
        let span = self.world.history.lock().end(start);
        let effect = match done {
            Ok(()) => Effect::Removed,
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::NotFound), "unlink of {text}");
                Effect::Seen(None)
            }
        };
        self.note((dir, name), effect, span);
    }

    async fn rename(&mut self, from: (usize, u64)) {
        let Some(to) = self.any_name().filter(|to| *to != from) else { return };
        let _doing = self.doing(format!("rename d{}/n{} to d{}/n{}", from.0, from.1, to.0, to.1));
        let start = self.start_op();
        let (old, new) = (format!("n{}", from.1), format!("n{}", to.1));
        let (old_dir, new_dir) = (self.world.dirs[from.0], self.world.dirs[to.0]);
        let done =
            self.client.names().rename(&root(), old_dir, old.as_bytes(), new_dir, new.as_bytes(), 0).await;
        let span = self.world.history.lock().end(start);
        match done {
            Ok(()) => {
                self.note(from, Effect::MovedAway, span.clone());
                self.note(to, Effect::MovedHere, span);
            }
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::NotFound), "rename of {old} to {new}");
                self.note(from, Effect::Seen(None), span);
            }
        }
    }

    async fn link(&mut self, from: (usize, u64)) {
        let (old, old_dir) = (format!("n{}", from.1), self.world.dirs[from.0]);
        let looking = self.doing(format!("look up d{}/n{}", from.0, from.1));
        let found = self.client.names().lookup(&root(), old_dir, old.as_bytes()).await.map(|told| told.fid);
        drop(looking);
        let Ok(fid) = found else { return };
        let Some(to) = self.any_name() else { return };
        let (new, new_dir) = (format!("n{}", to.1), self.world.dirs[to.0]);
        let _doing = self.doing(format!("link {fid} to d{}/n{}", to.0, to.1));
        let start = self.start_op();
        let done = self.client.names().link(&root(), fid, new_dir, new.as_bytes()).await;
        let span = self.world.history.lock().end(start);
        match done {
            Ok(linked) => {
                assert_eq!(linked.fid, fid, "a link means the file");
                self.note(to, Effect::Made(fid), span);
            }
            Err(Error::Refused(Code::Exists)) => self.note(to, Effect::Present, span),
            // The file went meanwhile, or its name and then its inode.
            Err(error) => assert!(
                matches!(error, Error::Refused(Code::NotFound | Code::Stale)),
                "link to {new}: {error}"
            ),
        }
    }
}

/// Who only looks may be given up while it opens, and opens again.
async fn open(client: &Client, file: Fid, flags: OpenFlags) -> Handle {
    loop {
        match client.files().open(&root(), file, flags).await {
            Err(Error::Refused(Code::Evicted)) if !flags.write => {}
            opened => return opened.expect("root may open"),
        }
    }
}

async fn look_up(client: &Client, world: &World, (dir, name): (usize, u64)) {
    let start = world.history.lock().now();
    let text = format!("n{name}");
    let found = client.names().lookup(&root(), world.dirs[dir], text.as_bytes()).await;
    let seen = match found {
        Ok(told) => Some(told.fid),
        Err(error) => {
            assert_eq!(error, Error::Refused(Code::NotFound), "lookup of {text}");
            None
        }
    };
    let mut history = world.history.lock();
    let span = history.end(start);
    history.names.entry((dir, name)).or_default().ops.push((Effect::Seen(seen), span));
}

async fn look_at_mode(client: &Client, world: &World, file: usize, by_name: bool) {
    let start = world.history.lock().now();
    let name = format!("f{file}");
    let told = match by_name {
        true => client.names().lookup(&root(), Fid::ROOT, name.as_bytes()).await,
        false => client.names().getattr(world.files[file]).await,
    };
    let told = told.expect("the file is there");
    assert_eq!((told.fid, told.nlink, told.size), (world.files[file], 1, FILE_BYTES), "{name}");
    let mut history = world.history.lock();
    let span = history.end(start);
    let read = (u64::from(told.mode & 0o777), span);
    history.modes.entry(file).or_default().reads.push(read);
}

async fn read_range(client: &Client, world: &World, handle: Handle, file: usize, range: usize) {
    let (offset, len) = RANGES[range];
    let start = world.history.lock().now();
    let data =
        client.files().read(handle, offset, len as u32).await.expect("what is healthy can be read").concat();
    note_read(world, (file, range), start, &data);
}

fn note_read(world: &World, (file, range): (usize, usize), start: u64, data: &[u8]) {
    let (offset, len) = RANGES[range];
    assert_eq!(data.len() as u64, len, "read of f{file} at {offset}: the file is longer");
    let mut history = world.history.lock();
    let span = history.end(start);
    for (at, end) in pieces(range) {
        let piece = &data[at as usize..end as usize];
        let tag = tag_of(piece, at).unwrap_or_else(|place| {
            panic!("read of f{file}: range {offset} is a mixture from {place} in {span:?}, {:?}", &piece[..8])
        });
        history.pieces.entry((file, range, at)).or_default().reads.push((tag, span.clone()));
    }
}

/// The pages that a range lies in, if each of its pieces lies in one: a mapping shows no more in one moment.
fn in_pages(start: u64, end: u64) -> Option<Vec<Range<u64>>> {
    let border = end.min((start / PAGE_BYTES + 1) * PAGE_BYTES);
    let fits = border == end || border.is_multiple_of(STRIPE_BYTES) && end - border <= PAGE_BYTES;
    fits.then(|| [start..border, border..end].into_iter().filter(|part| !part.is_empty()).collect())
}

/// The parts of a range that lie in one stripe each, as places in the range.
fn pieces(range: usize) -> Vec<(u64, u64)> {
    let (offset, len) = RANGES[range];
    let border = (offset / STRIPE_BYTES + 1) * STRIPE_BYTES - offset;
    if border >= len { vec![(0, len)] } else { vec![(0, border), (border, len)] }
}

fn fill(tag: u64, len: u64) -> Vec<u8> {
    let tag = (tag as u32).to_le_bytes();
    (0..len as usize).map(|at| tag[at % 4]).collect()
}

/// The tag that all of a piece has, or where that ends.
fn tag_of(piece: &[u8], at: u64) -> Result<u64, usize> {
    let mut tag = [0; 4];
    let place = |index: usize| (at as usize + index) % 4;
    for (index, byte) in piece.iter().take(4).enumerate() {
        tag[place(index)] = *byte;
    }
    match piece.iter().enumerate().position(|(index, byte)| *byte != tag[place(index)]) {
        Some(index) => Err(index),
        None => Ok(u64::from(u32::from_le_bytes(tag))),
    }
}

fn log_record((client, number): (u32, u32)) -> Vec<u8> {
    let one = [(client + 1).to_le_bytes(), number.to_le_bytes()].concat();
    one.iter().copied().cycle().take(RECORD_BYTES).collect()
}

/// With nobody at work a client that kept nothing looks at everything once more.
async fn look_at_the_end(cluster: &Cluster, world: &World) {
    let (_, client) = cluster.mount("checker").await;
    world.progress.mounted("checker", &client);
    let _doing = world.progress.begin("checker", "look at everything".into());
    for (file, fid) in world.files.iter().enumerate() {
        look_at_mode(&client, world, file, true).await;
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
