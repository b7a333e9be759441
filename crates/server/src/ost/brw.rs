//! `brw_stats`: how large the requests for data are, and how large, how many at a time and how slow the disk's reads and
//! writes, in Lustre's format (`brw_stats_seq_show`). The histograms that say nothing here (discontiguous pages and blocks,
//! fragmented I/Os, block maps: extents are placed, not found page by page) are left out.

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::parameters::{CLEARS, Parameter, TargetTree};
use rt::{Rt, Wall};
use store::{CLASSES, Histogram, Store};

/// Bytes of a page, as Lustre's clients have them.
const PAGE_BYTES: u64 = 4096;
const NANOS: i128 = 1_000_000_000;

/// The statistics of one OST.
pub(super) struct BrwStats {
    rt: Rt,
    store: Arc<Store>,
    /// Pages of requests.
    reads: Histogram,
    writes: Histogram,
    began: Mutex<Wall>,
}

/// One histogram, ready to be printed.
struct Shown {
    name: &'static str,
    units: &'static str,
    /// Classes are powers of two.
    scale: bool,
    read: [u64; CLASSES],
    write: [u64; CLASSES],
}

impl BrwStats {
    pub fn new(rt: &Rt, store: Arc<Store>) -> BrwStats {
        let (reads, writes) = (Histogram::default(), Histogram::default());
        BrwStats { rt: rt.clone(), store, reads, writes, began: Mutex::new(rt.wall()) }
    }

    /// Somebody reads `bytes`.
    pub fn read(&self, bytes: u64) {
        self.reads.note_log2(bytes.div_ceil(PAGE_BYTES));
    }

    /// Somebody has written `bytes`.
    pub fn written(&self, bytes: u64) {
        self.writes.note_log2(bytes.div_ceil(PAGE_BYTES));
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
        *self.began.lock() = self.rt.wall();
    }

    /// The text of `brw_stats`.
    fn text(&self) -> String {
        let disk = self.store.counts();
        let shown = |name, units, scale, read: &Histogram, write: &Histogram| Shown {
            name,
            units,
            scale,
            read: read.read(),
            write: write.read(),
        };
        let (reads, writes) = (&disk.reads, &disk.writes);
        let all = [
            shown("pages per bulk r/w", "rpcs", true, &self.reads, &self.writes),
            shown("disk I/Os in flight", "ios", false, &reads.in_flight, &writes.in_flight),
            shown("I/O time (1/1000s)", "ios", true, &reads.times, &writes.times),
            shown("disk I/O size", "ios", true, &reads.sizes, &writes.sizes),
        ];
        let mut text = head(self.rt.wall(), *self.began.lock());
        all.iter().for_each(|one| one.print(&mut text));
        text.truncate(text.trim_end().len());
        text
    }
}

/// The times at the top.
fn head(now: Wall, began: Wall) -> String {
    let nanos = |wall: Wall| i128::from(wall.secs) * NANOS + i128::from(wall.nanos);
    let times = [
        ("snapshot_time:", nanos(now)),
        ("start_time:", nanos(began)),
        ("elapsed_time:", (nanos(now) - nanos(began)).max(0)),
    ];
    let mut text = String::new();
    for (name, time) in times {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{name:<25} {}.{:09} secs.nsecs", time / NANOS, time % NANOS);
    }
    text
}

impl Shown {
    fn print(&self, text: &mut String) {
        let _ = writeln!(text, "\n{:26} read      |     write", "");
        let _ = writeln!(text, "{:<22} {:<5} % cum % |  {:<11} % cum %", self.name, self.units, self.units);
        let (reads, writes): (u64, u64) = (self.read.iter().sum(), self.write.iter().sum());
        if reads + writes == 0 {
            return;
        }
        let (mut read_sum, mut write_sum) = (0, 0);
        for (class, (read, write)) in self.read.iter().zip(&self.write).enumerate() {
            read_sum += read;
            write_sum += write;
            if read_sum + write_sum == 0 {
                continue;
            }
            let _ = writeln!(
                text,
                "{}:\t\t{read:10} {:3} {:3}   | {write:4} {:3} {:3}",
                self.label(class),
                percent(*read, reads),
                percent(read_sum, reads),
                percent(*write, writes),
                percent(write_sum, writes),
            );
            if read_sum == reads && write_sum == writes {
                break;
            }
        }
    }

    fn label(&self, class: usize) -> String {
        match class {
            _ if !self.scale => class.to_string(),
            0..10 => (1u64 << class).to_string(),
            10..20 => format!("{}K", 1u64 << (class - 10)),
            _ => format!("{}M", 1u64 << class.saturating_sub(20).min(40)),
        }
    }
}

fn percent(part: u64, all: u64) -> u64 {
    (part * 100).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
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
        let shown = Shown {
            name: "disk I/O size",
            units: "ios",
            scale: true,
            read: read.read(),
            write: write.read(),
        };
        let mut text =
            head(Wall { secs: 1_710_759_783, nanos: 271_040_288 }, Wall { secs: 1_710_759_700, nanos: 5 });
        shown.print(&mut text);
        assert_eq!(
            text,
            "\
snapshot_time:            1710759783.271040288 secs.nsecs
start_time:               1710759700.000000005 secs.nsecs
elapsed_time:             83.271040283 secs.nsecs

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
        let empty = Shown {
            name: "disk I/Os in flight",
            units: "ios",
            scale: false,
            read: [0; CLASSES],
            write: [0; CLASSES],
        };
        let mut text = String::new();
        empty.print(&mut text);
        assert_eq!(
            text,
            "\n                           read      |     write\ndisk I/Os in flight    ios   % cum % |  ios         % cum %\n"
        );
        assert_eq!(
            (empty.label(7), shown.label(7), shown.label(31)),
            ("7".into(), "128".into(), "2048M".into())
        );
    }
}
