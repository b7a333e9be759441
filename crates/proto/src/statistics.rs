//! Statistics as Lustre has them: what is counted without a lock, and how `lctl get_param` prints it.
//!
//! Nothing here reads a clock: whoever measures gives the values, and whoever prints gives the times.

mod histogram;
mod samples;
mod table;

pub use histogram::{CLASSES, Counts, Histogram};
pub use samples::{Sampled, Samples, Sums};
pub use table::{Rows, Table, label, print_single};

const NANOS: u64 = 1_000_000_000;

/// Since when something is counted, and when it is looked at, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Now.
    pub now_ns: u64,
    /// When counting began.
    pub since_ns: u64,
}

impl Snapshot {
    /// The three lines above sums (`lprocfs_stats_header`): `snapshot_time             1710759783.271040288 secs.nsecs`.
    pub fn lines(&self) -> String {
        self.lines_with("")
    }

    /// The same with colons, as they stand above histograms: `snapshot_time:            1710759783.271040288 secs.nsecs`.
    pub fn lines_with_colons(&self) -> String {
        self.lines_with(":")
    }

    fn lines_with(&self, behind: &str) -> String {
        let elapsed_ns = self.now_ns.saturating_sub(self.since_ns);
        let times =
            [("snapshot_time", self.now_ns), ("start_time", self.since_ns), ("elapsed_time", elapsed_ns)];
        let line = |(name, ns): (&str, u64)| {
            format!("{:<25} {}.{:09} secs.nsecs\n", format!("{name}{behind}"), ns / NANOS, ns % NANOS)
        };
        times.into_iter().map(line).collect()
    }

    /// Sums as `lprocfs_stats_seq_show` prints them: the times, and a line for each that is not zero, which has a name and a unit.
    /// There is no end of line behind the last one.
    pub fn with_sums<'a>(&self, sums: impl IntoIterator<Item = (&'a str, &'a str, Sampled)>) -> String {
        let mut text = self.lines();
        for (name, unit, sampled) in sums.into_iter().filter(|(_, _, sampled)| sampled.count > 0) {
            text += &sampled.line(name, unit);
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_look_as_lustres() {
        let times = Sampled {
            count: 1_000_002,
            min: 2,
            max: 12_215,
            sum: 10_099_392,
            sumsq: 1_764_429_274,
            ..Sampled::default()
        };
        let bytes = Sampled { count: 2, min: 7, max: 9, sum: 16, sumsq: 130, ..Sampled::default() };
        let snapshot = Snapshot { now_ns: 1_783_960_164_279_418_700, since_ns: 1_783_705_564_331_211_471 };
        let sums = [
            ("read_bytes", "bytes", bytes),
            ("write", "usecs", Sampled::default()),
            ("getattr", "usecs", times),
        ];
        assert_eq!(
            snapshot.with_sums(sums),
            "snapshot_time             1783960164.279418700 secs.nsecs\n\
             start_time                1783705564.331211471 secs.nsecs\n\
             elapsed_time              254599.948207229 secs.nsecs\n\
             read_bytes                2 samples [bytes] 7 9 16 130\n\
             getattr                   1000002 samples [usecs] 2 12215 10099392 1764429274"
        );
        assert_eq!(
            snapshot.lines_with_colons(),
            "snapshot_time:            1783960164.279418700 secs.nsecs\n\
             start_time:               1783705564.331211471 secs.nsecs\n\
             elapsed_time:             254599.948207229 secs.nsecs\n"
        );
    }
}
