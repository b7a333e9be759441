//! How long a target's requests take, by operation, and how much data they move: what `md_stats`, `stats` and `opcode_hist` show.
//!
//! What is measured is a request of a session, from the end of recovery to its answer: waiting for others' locks is in it, and
//! the network is not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::parameters::{CLEARS, Parameter, TargetTree};
use proto::statistics::{Sampled, Samples, Snapshot};
use proto::wire::Request;
use rt::Rt;

use crate::Handler;

/// Operations that are counted one by one, by their numbers.
const OPERATIONS: usize = 128;
/// Variants of an operation that are counted apart.
pub const VARIANTS: usize = 4;
/// How wide names are in `opcode_hist`, with what stands between them and the sums, as in Lustre's `job_stats`.
const NAME_WIDTH: usize = 17;

/// An operation and its variant.
pub type Counted = (u16, usize);

/// What a request counts as.
pub(crate) struct Counting {
    operation: Counted,
    /// The operations that it is made of.
    parts: Vec<Counted>,
}

impl Counting {
    /// What `request` counts as for a target of this role.
    pub(crate) fn of<H: Handler>(request: &Request) -> Counting {
        let operation = (request.opcode(), H::variant(request));
        Counting { operation, parts: H::parts(request) }
    }

    /// Each operation, with the time that it took of `took` for all.
    pub(crate) fn each(&self, took: Duration) -> impl Iterator<Item = (Counted, Duration)> {
        let part = took / u32::try_from(self.parts.len().max(1)).unwrap_or(u32::MAX);
        let parts = self.parts.iter().map(move |counted| (*counted, part));
        std::iter::once((self.operation, took)).chain(parts)
    }
}

impl From<Counted> for Counting {
    fn from(operation: Counted) -> Counting {
        Counting { operation, parts: Vec::new() }
    }
}

/// How Lustre calls the statistics of a role, and what it counts in them.
pub struct Stats {
    /// `md_stats`, or `stats`.
    pub name: &'static str,
    /// Whether bytes of reads and writes stand above the rows.
    pub moves_data: bool,
    /// The rows in their order, and what each of them sums up.
    pub rows: &'static [Row],
    /// Those of them that Lustre has not, and that add up what is in others: no job has them.
    pub own: &'static [&'static str],
}

/// How a statistic is called, and what it sums up.
pub type Row = (&'static str, &'static [Counted]);

impl Stats {
    /// What is counted for each job.
    pub(crate) fn of_jobs(&self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().filter(|(name, _)| !self.own.contains(name))
    }
}

/// The times of one operation.
type Variants = [Samples; VARIANTS];

/// What is counted of a target.
pub(crate) struct Timing {
    /// Made with the first request of an operation, so that a target has memory for what it is asked for only.
    times: Box<[OnceLock<Box<Variants>>]>,
    read_bytes: Samples,
    write_bytes: Samples,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

impl Timing {
    pub fn new(rt: &Rt) -> Timing {
        Timing {
            times: (0..OPERATIONS).map(|_| OnceLock::new()).collect(),
            read_bytes: Samples::default(),
            write_bytes: Samples::default(),
            since_ns: AtomicU64::new(rt.wall().as_nanos()),
        }
    }

    /// A request was answered after so long.
    pub fn note(&self, counting: &Counting, took: Duration) {
        counting.each(took).for_each(|(counted, took)| self.note_operation(counted, took));
    }

    fn note_operation(&self, (opcode, variant): Counted, took: Duration) {
        let operation = self.times.get(usize::from(opcode));
        let variants = operation.map(|operation| operation.get_or_init(Box::default));
        if let Some(samples) = variants.and_then(|variants| variants.get(variant)) {
            samples.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// A request brought `written` bytes of data, and its answer `read`.
    pub fn moved(&self, written: u64, read: u64) {
        for (samples, bytes) in [(&self.write_bytes, written), (&self.read_bytes, read)] {
            if bytes > 0 {
                samples.note(bytes);
            }
        }
    }

    /// Registers what there is.
    pub fn parameters<'a>(&'a self, rt: &'a Rt, stats: Option<&'static Stats>, tree: &mut TargetTree<'a>) {
        let clear = move |_: &str| {
            self.clear(rt);
            Ok(())
        };
        if let Some(stats) = stats {
            let sums = Parameter::histogram(stats.name, move || self.sums(rt, stats));
            tree.of_device(sums.settable(CLEARS, clear));
        }
        let times = Parameter::histogram("opcode_hist", move || self.histograms(rt));
        tree.of_device(times.settable(CLEARS, clear));
    }

    /// Each of the statistics is cleared with all of them: they are sums of the same counts.
    fn clear(&self, rt: &Rt) {
        self.times
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|variants| variants.iter())
            .for_each(Samples::clear);
        self.read_bytes.clear();
        self.write_bytes.clear();
        self.since_ns.store(rt.wall().as_nanos(), Ordering::Relaxed);
    }

    fn snapshot(&self, rt: &Rt) -> Snapshot {
        Snapshot { now_ns: rt.wall().as_nanos(), since_ns: self.since_ns.load(Ordering::Relaxed) }
    }

    fn sampled(&self, (opcode, variant): Counted) -> Sampled {
        let variants = self.times.get(usize::from(opcode)).and_then(OnceLock::get);
        variants.and_then(|variants| variants.get(variant)).map_or(Sampled::default(), Samples::read)
    }

    /// As `md_stats` and `stats` show it.
    fn sums(&self, rt: &Rt, stats: &Stats) -> String {
        let bytes = [("read_bytes", &self.read_bytes), ("write_bytes", &self.write_bytes)];
        let bytes = bytes.into_iter().filter(|_| stats.moves_data);
        let rows = stats.rows.iter().map(|(name, counted)| {
            let parts = counted.iter().map(|counted| self.sampled(*counted));
            (*name, "usecs", parts.fold(Sampled::default(), Sampled::and))
        });
        let bytes = bytes.map(|(name, samples)| (name, "bytes", samples.read()));
        self.snapshot(rt).with_sums(bytes.chain(rows))
    }

    /// As `opcode_hist` shows it: each operation that there was, with the classes of its times.
    fn histograms(&self, rt: &Rt) -> String {
        let mut text = self.snapshot(rt).lines_with_colons();
        for (opcode, operation) in self.times.iter().enumerate() {
            let name = u16::try_from(opcode).ok().and_then(Request::name_of);
            let (Some(name), Some(variants)) = (name, operation.get()) else { continue };
            let all = variants.iter().map(Samples::read).fold(Sampled::default(), Sampled::and);
            if all.count > 0 {
                text += &format!("{:<NAME_WIDTH$}{}\n", format!("{name}:"), all.braces("usecs"));
            }
        }
        text.truncate(text.trim_end().len());
        text
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{Create, Link, Operation, Write};
    use rt::sim::{Options, Sim};

    use super::*;

    const STATS: Stats = Stats {
        name: "md_stats",
        moves_data: true,
        rows: &[
            ("link", &[(Link::OPCODE, 0)]),
            ("mkdir", &[(Create::OPCODE, 2)]),
            ("create", &[(Create::OPCODE, 0), (Create::OPCODE, 2)]),
        ],
        own: &[],
    };

    fn check(test: impl FnOnce(&Rt, &Timing)) {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt("server");
        sim.run(async { test(&rt, &Timing::new(&rt)) });
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Of 1,000 writes each hundredth is slow.
    #[test]
    fn only_the_class_of_what_is_slow_grows() {
        check(|rt, timing| {
            for n in 0..1000 {
                timing.note(&(Write::OPCODE, 0).into(), micros(if n % 100 == 0 { 10_000 } else { 100 }));
                timing.note(&(Link::OPCODE, 0).into(), micros(7));
            }
            let text = timing.histograms(rt);
            let lines: Vec<&str> = text.lines().skip(3).collect();
            assert_eq!(
                lines,
                [
                    "Link:            { samples:        1000, unit: usecs, min:       7, max:       7, sum:            7000, sumsq:              49000, hist: { 8: 1000 } }",
                    "Write:           { samples:        1000, unit: usecs, min:     100, max:   10000, sum:          199000, sumsq:         1009900000, hist: { 128: 990, 16K: 10 } }",
                ]
            );
        });
    }

    #[test]
    fn rows_sum_up_variants() {
        check(|rt, timing| {
            timing.note(&(Create::OPCODE, 0).into(), micros(3));
            timing.note(&(Create::OPCODE, 2).into(), micros(5));
            timing.note(&(Create::OPCODE, VARIANTS).into(), micros(5));
            timing.note(&(u16::MAX, 0).into(), micros(5));
            timing.moved(4096, 0);
            let lines = |text: String| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(
                lines(timing.sums(rt, &STATS)),
                [
                    "write_bytes               1 samples [bytes] 4096 4096 4096 16777216",
                    "mkdir                     1 samples [usecs] 5 5 5 25",
                    "create                    2 samples [usecs] 3 5 8 34",
                ]
            );
            timing.clear(rt);
            assert!(lines(timing.sums(rt, &STATS)).is_empty());
            assert!(lines(timing.histograms(rt)).is_empty());
        });
    }
}
