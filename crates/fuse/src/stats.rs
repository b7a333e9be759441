//! How often the kernel asked a mount for what, and how long it took (Lustre's `llite.*.stats`). What the kernel answers by
//! itself is not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::parameters::{CLEARS, ClientTree, Parameter};
use proto::statistics::{Sampled, Samples, Snapshot};
use rt::{Rt, Time};

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

/// The counts.
pub(crate) struct Stats {
    rt: Rt,
    samples: [Samples; NAMES.len()],
    since_ns: AtomicU64,
}

/// A request that is being carried out.
pub(crate) struct Sample {
    stats: Arc<Stats>,
    kind: usize,
    begin: Time,
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
    pub(crate) fn new(rt: Rt) -> Stats {
        let samples = std::array::from_fn(|_| Samples::default());
        let since_ns = AtomicU64::new(rt.wall().as_nanos());
        Stats { rt, samples, since_ns }
    }

    /// A request came.
    pub(crate) fn begin(self: &Arc<Stats>, operation: &Operation<'_>) -> Option<Sample> {
        let kind = index_of(name_of(operation)?)?;
        Some(Sample { stats: self.clone(), kind, begin: self.rt.now() })
    }

    fn add(&self, kind: usize, value: u64) {
        if let Some(samples) = self.samples.get(kind) {
            samples.note(value);
        }
    }

    /// Counts begin anew.
    pub(crate) fn clear(&self) {
        self.samples.iter().for_each(Samples::clear);
        self.since_ns.store(self.rt.wall().as_nanos(), Ordering::Relaxed);
    }

    /// All counts, and what each is of.
    fn told(&self) -> impl Iterator<Item = (&'static str, &'static str, Sampled)> + '_ {
        NAMES.iter().zip(&self.samples).enumerate().map(|(kind, (name, samples))| {
            let unit = if kind < BYTES { "bytes" } else { "usecs" };
            (*name, unit, samples.read())
        })
    }

    fn text(&self) -> String {
        let (now_ns, since_ns) = (self.rt.wall().as_nanos(), self.since_ns.load(Ordering::Relaxed));
        let snapshot = Snapshot { now_ns, since_ns };
        snapshot.with_sums(self.told())
    }

    /// Registers them.
    pub(crate) fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let stats = Parameter::histogram("stats", || self.text());
        tree.of_mount(stats.settable(CLEARS, |_| -> Setting<'a> {
            self.clear();
            Box::pin(std::future::ready(Ok(())))
        }));
    }
}

impl Sample {
    /// The request is answered.
    pub(crate) fn end(self, result: &Result<Answer, Errno>) {
        let micros = u64::try_from((self.stats.rt.now() - self.begin).as_micros()).unwrap_or(u64::MAX);
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
    use rt::sim::{Options, Sim};

    use super::*;

    #[test]
    fn samples_are_summed_up_as_lustre_does() {
        let stats = Arc::new(Stats::new(Sim::new(Options::seed(1)).rt("mount")));
        let sample = |kind: &str| Sample {
            stats: stats.clone(),
            kind: index_of(kind).expect("a name"),
            begin: Time::default(),
        };
        sample("write").end(&Ok(Answer::Written(7)));
        sample("write").end(&Ok(Answer::Written(4096)));
        sample("write").end(&Err(Errno::IO));
        let text = stats.text();
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines.first(), Some(&"write_bytes               2 samples [bytes] 7 4096 4103 16777265"));
        assert!(
            lines.get(1).is_some_and(|line| line.starts_with("write                     3 samples [usecs] "))
        );
        stats.clear();
        assert_eq!(stats.text().lines().count(), 3);
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
