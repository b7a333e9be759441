//! `brw_stats`: how large the requests for data are, and how large, how many at a time, how slow and in how many pieces the disk's reads
//! and writes, in Lustre's format (`brw_stats_seq_show`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::parameters::{CLEARS, Parameter, TargetTree};
use proto::statistics::{Counts, Histogram, Rows, Snapshot, Table};
use rt::Rt;
use store::Store;

/// Bytes of a page, as Lustre's clients have them.
const PAGE_BYTES: u64 = 4096;
/// Width of the column of writes.
const WIDTH: usize = 4;

/// The statistics of one OST.
pub(super) struct BrwStats {
    rt: Rt,
    store: Arc<Store>,
    reads: Requests,
    writes: Requests,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

/// Requests for data in one direction.
#[derive(Default)]
struct Requests {
    /// Pages of each.
    pages: Histogram,
    /// How often within one the pages of the object do not follow one another.
    gaps: Histogram,
}

impl Requests {
    fn note(&self, bytes: u64, gaps: u64) {
        self.pages.note_log2(bytes.div_ceil(PAGE_BYTES));
        self.gaps.note(gaps);
    }

    fn clear(&self) {
        self.pages.clear();
        self.gaps.clear();
    }
}

impl BrwStats {
    pub fn new(rt: &Rt, store: Arc<Store>) -> BrwStats {
        let since_ns = AtomicU64::new(rt.wall().as_nanos());
        BrwStats { rt: rt.clone(), store, reads: Requests::default(), writes: Requests::default(), since_ns }
    }

    /// Somebody reads `bytes`.
    pub fn read(&self, bytes: u64) {
        self.reads.note(bytes, 0);
    }

    /// Somebody has written `bytes` with so many gaps between them.
    pub fn written(&self, bytes: u64, gaps: u64) {
        self.writes.note(bytes, gaps);
    }

    /// Registers them. As in Lustre, whatever is written clears them.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let stats = Parameter::histogram("brw_stats", || self.text());
        tree.of_device(stats.settable(CLEARS, |_| {
            self.clear();
            Ok(())
        }));
    }

    fn clear(&self) {
        self.reads.clear();
        self.writes.clear();
        self.store.counts().clear();
        self.since_ns.store(self.rt.wall().as_nanos(), Ordering::Relaxed);
    }

    /// The text of `brw_stats`.
    fn text(&self) -> String {
        let disk = self.store.counts();
        let (reads, writes) = (&disk.reads, &disk.writes);
        let snapshot =
            Snapshot { now_ns: self.rt.wall().as_nanos(), since_ns: self.since_ns.load(Ordering::Relaxed) };
        let all = [
            ("pages per bulk r/w", "rpcs", Rows::Powers, &self.reads.pages, &self.writes.pages),
            ("discontiguous pages", "rpcs", Rows::Numbers, &self.reads.gaps, &self.writes.gaps),
            ("discontiguous blocks", "rpcs", Rows::Numbers, &reads.jumps, &writes.jumps),
            ("disk fragmented I/Os", "ios", Rows::Numbers, &reads.pieces, &writes.pieces),
            ("disk I/Os in flight", "ios", Rows::Numbers, &reads.in_flight, &writes.in_flight),
            ("I/O time (1/1000s)", "ios", Rows::Powers, &reads.times, &writes.times),
            ("disk I/O size", "ios", Rows::Powers, &reads.sizes, &writes.sizes),
        ];
        let mut text = snapshot.lines_with_colons();
        for (name, units, rows, read, write) in all {
            print((name, units), rows, (read.read(), write.read()), &mut text);
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Appends one of them.
fn print((name, units): (&str, &str), rows: Rows, (read, write): (Counts, Counts), text: &mut String) {
    let head =
        format!("{:26} read      |     write\n{name:<22} {units:<5} % cum % |  {units:<11} % cum %\n", "");
    Table { head: &head, rows, width: WIDTH, read, write }.print(text);
}

#[cfg(test)]
mod tests {
    use proto::statistics::CLASSES;

    use super::*;

    /// As a real `brw_stats` looks: `display_brw_stats` of Lustre 2.17.
    #[test]
    fn the_format_is_lustres() {
        let (read, write) = (Histogram::default(), Histogram::default());
        for _ in 0..3 {
            read.note_log2(256 << 10);
            write.note_log2(4096);
        }
        write.note_log2(1 << 20);
        let mut text = String::new();
        print(("disk I/O size", "ios"), Rows::Powers, (read.read(), write.read()), &mut text);
        assert_eq!(
            text,
            "
                           read      |     write
disk I/O size          ios   % cum % |  ios         % cum %
4K:\t\t         0   0   0   |    3  75  75
8K:\t\t         0   0   0   |    0   0  75
16K:\t\t         0   0   0   |    0   0  75
32K:\t\t         0   0   0   |    0   0  75
64K:\t\t         0   0   0   |    0   0  75
128K:\t\t         0   0   0   |    0   0  75
256K:\t\t         3 100 100   |    0   0  75
512K:\t\t         0   0 100   |    0   0  75
1M:\t\t         0   0 100   |    1  25 100
"
        );
        let mut text = String::new();
        let nothing = [0; CLASSES];
        print(("disk I/Os in flight", "ios"), Rows::Numbers, (nothing, nothing), &mut text);
        assert_eq!(
            text,
            "\n                           read      |     write\ndisk I/Os in flight    ios   % cum % |  ios         % cum %\n"
        );
        let mut text = String::new();
        let none = Histogram::default();
        none.note(0);
        print(("discontiguous pages", "rpcs"), Rows::Numbers, (none.read(), nothing), &mut text);
        assert_eq!(
            text,
            "\n                           read      |     write\ndiscontiguous pages    rpcs  % cum % |  rpcs        % cum %\n0:\t\t         1 100 100   |    0   0   0\n"
        );
    }
}
