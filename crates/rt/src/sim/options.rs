//! What a simulated world is like: speeds and faults.

use std::time::Duration;

use super::rng::Rng;

/// How often something happens, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chance(pub u32);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);
    /// Always.
    pub const ALWAYS: Chance = Chance(1_000_000);

    /// In so many of a hundred cases.
    pub const fn percent(percent: u32) -> Chance {
        Chance(percent * 10_000)
    }

    pub(super) fn strikes(self, rng: &mut Rng) -> bool {
        // What never happens draws nothing, so that faults switched off cost nothing.
        self.0 > 0 && rng.below(1_000_000) < u64::from(self.0)
    }
}

/// A duration that is drawn anew each time, from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Shortest, in nanoseconds.
    pub min_ns: u64,
    /// Longest, in nanoseconds.
    pub max_ns: u64,
}

impl Span {
    /// From `min` to `max` microseconds.
    pub const fn micros(min: u64, max: u64) -> Span {
        Span { min_ns: min * 1_000, max_ns: max * 1_000 }
    }

    /// From `min` to `max` milliseconds.
    pub const fn millis(min: u64, max: u64) -> Span {
        Span { min_ns: min * 1_000_000, max_ns: max * 1_000_000 }
    }

    pub(super) fn draw(self, rng: &mut Rng) -> u64 {
        if self.min_ns >= self.max_ns { self.min_ns } else { rng.between(self.min_ns, self.max_ns) }
    }
}

/// In which order tasks run that could run at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they became ready.
    Fifo,
    /// At random, from the seed.
    Random,
}

/// The network. Frames between a node and itself suffer no faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetOptions {
    /// One way, for links that have none of their own.
    pub latency: Span,
    /// A frame is lost.
    pub drop: Chance,
    /// A frame arrives twice.
    pub duplicate: Chance,
    /// A frame is delayed by `reorder_delay`, and those behind it overtake it.
    pub reorder: Chance,
    /// How much later a frame arrives that others overtake.
    pub reorder_delay: Span,
    /// A send breaks the connection.
    pub break_connection: Chance,
    /// How long after a crash the peers' connections break.
    pub crash_notice: Span,
    /// After which time a connect without any answer fails.
    pub connect_timeout: Duration,
    /// What a node sends, and what it receives, per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Frames of one direction of a connection that the receiver has not taken; then senders wait.
    pub queue_frames_max: u32,
    /// The same in bytes. A frame that is larger travels alone.
    pub queue_bytes_max: u64,
}

impl Default for NetOptions {
    fn default() -> NetOptions {
        NetOptions {
            latency: Span::micros(10, 30),
            drop: Chance::NEVER,
            duplicate: Chance::NEVER,
            reorder: Chance::NEVER,
            reorder_delay: Span::micros(10, 1_000),
            break_connection: Chance::NEVER,
            crash_notice: Span::millis(1, 200),
            connect_timeout: Duration::from_secs(1),
            bytes_per_second: None,
            queue_frames_max: 256,
            queue_bytes_max: 32 << 20,
        }
    }
}

/// Each node's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Of a read.
    pub read: Span,
    /// Of a large write. Small ones go to memory and take no time.
    pub write: Span,
    /// Of a sync of a file or directory.
    pub sync: Span,
    /// Of an operation on names.
    pub name: Span,
    /// Of a look-up in the files of a component that keeps memory instead in a simulation: nothing by default.
    pub look_up: Span,
    /// Such a look-up fails.
    pub look_up_fails: Chance,
    /// After a look-up that took time all that was looked up before is forgotten, as if memory were short.
    pub forgets: Chance,
    /// What the disk reads and writes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// What each write costs that does not begin where the last one ended, in nanoseconds; 0 for a disk without heads.
    /// Others wait meanwhile.
    pub seek_ns: u64,
    /// Bytes of the disk.
    pub capacity_bytes: u64,
    /// A write, or allocation, fails and changes nothing.
    pub write_fails: Chance,
    /// A sync fails, and nothing is known of what it should have made durable.
    pub sync_fails: Chance,
    /// A sync says that it is done and has done nothing: as disks do that keep what they were given in a cache.
    pub sync_lies: Chance,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            read: Span::micros(20, 80),
            write: Span::micros(20, 80),
            sync: Span::micros(100, 500),
            name: Span::micros(5, 20),
            look_up: Span::micros(0, 0),
            look_up_fails: Chance::NEVER,
            forgets: Chance::percent(6),
            bytes_per_second: None,
            seek_ns: 0,
            capacity_bytes: 1 << 40,
            write_fails: Chance::NEVER,
            sync_fails: Chance::NEVER,
            sync_lies: Chance::NEVER,
        }
    }
}

/// A world. `Options::default()` has no faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Everything random follows from it.
    pub seed: u64,
    /// Order of ready tasks.
    pub order: Order,
    /// The network.
    pub net: NetOptions,
    /// The disks.
    pub disk: DiskOptions,
    /// How much the nodes' monotonic clocks may differ.
    pub clock_offset_max: Duration,
    /// How much the nodes' wall clocks may be wrong, in either direction.
    pub wall_offset_max: Duration,
    /// Whether lines of text are collected, see [`super::Handle::trace`].
    pub trace: bool,
    /// Virtual time after which [`super::Sim::run`] gives up.
    pub run_limit: Duration,
    /// Polls at one moment of virtual time after which the world is taken to run in circles.
    pub polls_per_instant_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 0,
            order: Order::Fifo,
            net: NetOptions::default(),
            disk: DiskOptions::default(),
            clock_offset_max: Duration::from_secs(1_000_000),
            wall_offset_max: Duration::from_millis(100),
            trace: false,
            run_limit: Duration::from_secs(24 * 3600),
            polls_per_instant_max: 20_000_000,
        }
    }
}

impl Options {
    /// A world without faults.
    pub fn seed(seed: u64) -> Options {
        Options { seed, ..Options::default() }
    }

    /// A world whose speeds and fault rates are drawn from the seed: each fault is absent in about half of the
    /// worlds, so that some go far and others go wrong in one particular way. Writes and syncs do not fail: a test
    /// has to expect that.
    pub fn swarm(seed: u64) -> Options {
        let mut rng = Rng::stream(seed, "swarm", 0);
        let mut options = Options::seed(seed);
        if rng.one_in(2) {
            options.order = Order::Random;
        }
        options.net.latency = swarm_span(&mut rng, 1_000, 5_000_000);
        options.net.drop = swarm_chance(&mut rng, 20_000);
        options.net.duplicate = swarm_chance(&mut rng, 50_000);
        options.net.reorder = swarm_chance(&mut rng, 100_000);
        options.net.reorder_delay = swarm_span(&mut rng, 10_000, 100_000_000);
        options.net.break_connection = swarm_chance(&mut rng, 3_000);
        options.net.crash_notice = swarm_span(&mut rng, 100_000, 2_000_000_000);
        if rng.one_in(4) {
            options.net.queue_frames_max = rng.between(1, 16) as u32;
        }
        options.disk.read = swarm_span(&mut rng, 1_000, 10_000_000);
        options.disk.write = swarm_span(&mut rng, 1_000, 10_000_000);
        options.disk.sync = swarm_span(&mut rng, 10_000, 50_000_000);
        if rng.one_in(2) {
            options.disk.look_up = swarm_span(&mut rng, 1_000, 10_000_000);
        }
        options
    }
}

/// Evenly over the orders of magnitude.
fn swarm_span(rng: &mut Rng, min_ns: u64, max_ns: u64) -> Span {
    let bits = (max_ns / min_ns).ilog2();
    let min_ns = min_ns << rng.below(u64::from(bits) + 1);
    Span { min_ns, max_ns: min_ns.saturating_mul(rng.between(1, 10)) }
}

/// Never in half of the cases, else up to `max` parts per million, evenly over the orders of magnitude.
fn swarm_chance(rng: &mut Rng, max: u32) -> Chance {
    if rng.one_in(2) {
        return Chance::NEVER;
    }
    Chance(max >> rng.below(10))
}
