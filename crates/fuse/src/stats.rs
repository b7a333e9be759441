//! How often the kernel asked a mount for what, and how long it took (Lustre's `llite.*.stats`). What the kernel answers by
//! itself is not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use proto::parameters::{CLEARS, ClientTree, Parameter};

use crate::control;
use crate::kernel::reply::Answer;
use crate::kernel::request::Operation;
use client::Setting;
use client::posix::Errno;

/// What is counted, in Lustre's words and order; the first two count bytes.
const NAMES: [&str; 28] = [
    "read_bytes",
    "write_bytes",
    "read",
    "write",
    "open",
    "close",
    "seek",
    "fsync",
    "readdir",
    "setattr",
    "truncate",
    "flock",
    "getattr",
    "fallocate",
    "create",
    "link",
    "unlink",
    "symlink",
    "mkdir",
    "rmdir",
    "mknod",
    "rename",
    "statfs",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "inode_permission",
];
/// Those that count bytes.
const BYTES: usize = 2;

/// One count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Samples {
    /// How often.
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    /// The sum of the squares; it begins anew at 2^64, as Lustre's does.
    sumsq: u64,
}

impl Samples {
    fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sumsq = self.sumsq.wrapping_add(value.wrapping_mul(value));
    }
}

/// The counts.
pub(crate) struct Stats {
    samples: [Mutex<Samples>; NAMES.len()],
    since_ns: AtomicU64,
}

/// A request that is being carried out.
pub(crate) struct Sample {
    stats: Arc<Stats>,
    kind: usize,
    begin: Instant,
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// What an operation counts as; `None` for what Lustre does not count, and for the tools' questions.
fn name_of(operation: &Operation<'_>) -> Option<&'static str> {
    let is_own = |name: &[u8]| name.starts_with(control::PREFIX.as_bytes());
    Some(match operation {
        Operation::GetAttr { .. } | Operation::Statx { .. } => "getattr",
        Operation::SetAttr(change) if change.size.is_some() => "truncate",
        Operation::SetAttr(_) => "setattr",
        Operation::Symlink { .. } => "symlink",
        Operation::MkNod { .. } => "mknod",
        Operation::MkDir { .. } => "mkdir",
        Operation::Unlink { .. } => "unlink",
        Operation::RmDir { .. } => "rmdir",
        Operation::Rename { .. } => "rename",
        Operation::Link { .. } => "link",
        Operation::Access { .. } => "inode_permission",
        Operation::SetXattr { name, .. } if !is_own(name) => "setxattr",
        Operation::GetXattr { name, .. } if !is_own(name) => "getxattr",
        Operation::RemoveXattr { name } if !is_own(name) => "removexattr",
        Operation::ListXattr { .. } => "listxattr",
        Operation::StatFs => "statfs",
        Operation::Open { .. } | Operation::OpenDir { .. } => "open",
        Operation::Create { .. } | Operation::TmpFile { .. } => "create",
        Operation::Read(_) => "read",
        Operation::Write(_) => "write",
        Operation::Release { .. } | Operation::ReleaseDir { .. } => "close",
        Operation::Fsync { .. } | Operation::FsyncDir { .. } => "fsync",
        Operation::Allocate { .. } => "fallocate",
        Operation::Seek { .. } => "seek",
        Operation::ReadDir { .. } => "readdir",
        Operation::GetLock(_) | Operation::SetLock { .. } => "flock",
        _ => return None,
    })
}

fn index_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == name)
}

impl Stats {
    pub(crate) fn new() -> Stats {
        let samples = std::array::from_fn(|_| Mutex::default());
        Stats { samples, since_ns: AtomicU64::new(now_ns()) }
    }

    /// A request came.
    pub(crate) fn begin(self: &Arc<Stats>, operation: &Operation<'_>) -> Option<Sample> {
        let kind = index_of(name_of(operation)?)?;
        Some(Sample { stats: self.clone(), kind, begin: Instant::now() })
    }

    fn add(&self, kind: usize, value: u64) {
        if let Some(samples) = self.samples.get(kind) {
            samples.lock().add(value);
        }
    }

    /// Counts begin anew.
    pub(crate) fn clear(&self) {
        self.samples.iter().for_each(|samples| *samples.lock() = Samples::default());
        self.since_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// All counts that are not zero, and what each is of.
    fn told(&self) -> Vec<(&'static str, Samples)> {
        let told = NAMES.iter().zip(&self.samples).map(|(name, samples)| (*name, *samples.lock()));
        told.filter(|(_, samples)| samples.count > 0).collect()
    }

    /// Registers them.
    pub(crate) fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let stats = Parameter::histogram("stats", || {
            text(now_ns(), self.since_ns.load(Ordering::Relaxed), &self.told())
        });
        tree.of_mount(stats.settable(CLEARS, |_| -> Setting<'a> {
            self.clear();
            Box::pin(std::future::ready(Ok(())))
        }));
    }
}

/// As Lustre prints counts (`lprocfs_stats_seq_show`). Times are nanoseconds since 1970: now, and when counting began.
fn text(now_ns: u64, since_ns: u64, counts: &[(&str, Samples)]) -> String {
    let time = |name: &str, ns: u64| {
        format!("{name:<25} {}.{:09} secs.nsecs", ns / 1_000_000_000, ns % 1_000_000_000)
    };
    let mut lines = vec![
        time("snapshot_time", now_ns),
        time("start_time", since_ns),
        time("elapsed_time", now_ns.saturating_sub(since_ns)),
    ];
    lines.extend(counts.iter().map(|(name, samples)| {
        let Samples { count, min, max, sum, sumsq } = samples;
        let unit = if NAMES[..BYTES].contains(name) { "bytes" } else { "usecs" };
        format!("{name:<25} {count} samples [{unit}] {min} {max} {sum} {sumsq}")
    }));
    lines.join("\n")
}

impl Sample {
    /// The request is answered.
    pub(crate) fn end(self, result: &Result<Answer, Errno>) {
        let micros = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.add(self.kind, micros);
        let Ok(answer) = result else { return };
        let name = NAMES.get(self.kind).copied();
        match (name, bytes_of(answer)) {
            (Some("read"), Some(bytes)) => self.stats.add(0, bytes),
            (Some("write"), Some(bytes)) => self.stats.add(1, bytes),
            _ => {}
        }
    }
}

fn bytes_of(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Written(len) => Some(u64::from(*len)),
        Answer::Slices(slices) => Some(slices.iter().map(|slice| slice.len() as u64).sum()),
        Answer::Holding(answer, _) => bytes_of(answer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up_as_lustre_does() {
        let stats = Arc::new(Stats::new());
        let sample = |kind: &str| Sample {
            stats: stats.clone(),
            kind: index_of(kind).expect("a name"),
            begin: Instant::now(),
        };
        sample("write").end(&Ok(Answer::Written(7)));
        sample("write").end(&Ok(Answer::Written(4096)));
        sample("write").end(&Err(Errno::IO));
        let told = stats.told();
        let bytes = Samples { count: 2, min: 7, max: 4096, sum: 4103, sumsq: 49 + 4096 * 4096 };
        assert_eq!(told.first(), Some(&("write_bytes", bytes)));
        assert_eq!(told.get(1).map(|(name, samples)| (*name, samples.count)), Some(("write", 3)));
        stats.clear();
        assert!(stats.told().is_empty());
    }

    #[test]
    fn counts_look_as_lustres() {
        let times = Samples { count: 1_000_002, min: 2, max: 12_215, sum: 10_099_392, sumsq: 1_764_429_274 };
        let bytes = Samples { count: 2, min: 7, max: 9, sum: 16, sumsq: 130 };
        let (now_ns, since_ns) = (1_783_960_164_279_418_700, 1_783_705_564_331_211_471);
        assert_eq!(
            text(now_ns, since_ns, &[("read_bytes", bytes), ("getattr", times)]),
            "snapshot_time             1783960164.279418700 secs.nsecs\n\
             start_time                1783705564.331211471 secs.nsecs\n\
             elapsed_time              254599.948207229 secs.nsecs\n\
             read_bytes                2 samples [bytes] 7 9 16 130\n\
             getattr                   1000002 samples [usecs] 2 12215 10099392 1764429274"
        );
    }

    #[test]
    fn each_operation_counts_as_something() {
        let readdir = Operation::ReadDir { handle: 1, offset: 0, size: 4096, plus: false };
        assert_eq!(name_of(&readdir), Some("readdir"));
        assert_eq!(name_of(&Operation::StatFs), Some("statfs"));
        assert_eq!(name_of(&Operation::GetXattr { name: b"weft.status", size: 9 }), None);
        assert_eq!(name_of(&Operation::GetXattr { name: b"user.a", size: 9 }), Some("getxattr"));
    }
}
