//! `rpc_stats`: how large the requests for data of a session with an OST are, how many are under way with each, where in the object they
//! begin and how long they take; and with how many others a change is sent to an MDT. In Lustre's format (`osc_rpc_stats_seq_show`,
//! `obd_mod_rpc_stats_seq_show`).

use std::sync::atomic::{AtomicU64, Ordering};

use proto::statistics::{Counts, Histogram, Rows, Snapshot, Table, print_single};
use rt::{Rt, Time};

/// Bytes of a page, as Lustre's clients have them.
const PAGE_BYTES: u64 = 4096;
/// Shortest time that has a class of its own, in microseconds.
const LATENCY_US: u64 = 512;
/// Width of the column of writes.
const WIDTH: usize = 8;

const SIDES: &str = "\t\t\tread\t\t\twrite\n";

/// What a request for data does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
    /// It writes what was not in the cache before.
    WritePast,
}

/// One direction.
#[derive(Default)]
struct Side {
    pages: Histogram,
    in_flight: Histogram,
    offsets: Histogram,
    times: Histogram,
    under_way: AtomicU64,
    bytes_under_way: AtomicU64,
}

/// The requests for data of one session.
pub(crate) struct Rpcs {
    read: Side,
    write: Side,
    past_under_way: AtomicU64,
    /// Pages of reads that wait for their turn.
    pages_waiting: AtomicU64,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

/// A request under way.
pub(crate) struct Under<'a> {
    rpcs: &'a Rpcs,
    way: Way,
    bytes: u64,
    began: Time,
}

/// A read that waits for its turn.
pub(crate) struct Waiting<'a> {
    rpcs: &'a Rpcs,
    pages: u64,
}

impl Side {
    fn clear(&self) {
        let all = [&self.pages, &self.in_flight, &self.offsets, &self.times];
        all.into_iter().for_each(Histogram::clear);
    }
}

impl Rpcs {
    pub fn new(rt: &Rt) -> Rpcs {
        Rpcs {
            read: Side::default(),
            write: Side::default(),
            past_under_way: AtomicU64::new(0),
            pages_waiting: AtomicU64::new(0),
            since_ns: AtomicU64::new(rt.wall().as_nanos()),
        }
    }

    fn side(&self, way: Way) -> &Side {
        match way {
            Way::Read => &self.read,
            Way::Write | Way::WritePast => &self.write,
        }
    }

    /// A read of so many bytes waits for its turn, until the result is dropped.
    pub fn wait(&self, bytes: u64) -> Waiting<'_> {
        let pages = bytes.div_ceil(PAGE_BYTES);
        self.pages_waiting.fetch_add(pages, Ordering::Relaxed);
        Waiting { rpcs: self, pages }
    }

    /// A request for `bytes` that begin at `offset` of their object is sent.
    pub fn begin(&self, way: Way, (offset, bytes): (u64, u64), now: Time) -> Under<'_> {
        let side = self.side(way);
        side.pages.note_log2(bytes.div_ceil(PAGE_BYTES));
        side.offsets.note(class_of_offset(offset));
        side.in_flight.note(side.under_way.fetch_add(1, Ordering::Relaxed) + 1);
        side.bytes_under_way.fetch_add(bytes, Ordering::Relaxed);
        if way == Way::WritePast {
            self.past_under_way.fetch_add(1, Ordering::Relaxed);
        }
        Under { rpcs: self, way, bytes, began: now }
    }

    pub fn clear(&self, rt: &Rt) {
        self.read.clear();
        self.write.clear();
        self.since_ns.store(rt.wall().as_nanos(), Ordering::Relaxed);
    }

    /// The text of `rpc_stats`; so many bytes are written and not taken by the OST.
    pub fn text(&self, rt: &Rt, dirty_bytes: u64) -> String {
        let snapshot =
            Snapshot { now_ns: rt.wall().as_nanos(), since_ns: self.since_ns.load(Ordering::Relaxed) };
        let (read, write) = (&self.read, &self.write);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let past = load(&self.past_under_way);
        let unsent = dirty_bytes.saturating_sub(load(&write.bytes_under_way));
        let mut text = snapshot.lines_with_colons();
        text += &format!("read RPCs in flight:  {}\n", load(&read.under_way));
        text += &format!("write RPCs in flight: {}\n", load(&write.under_way).saturating_sub(past));
        text += &format!("DIO RPCs in flight: {past}\n");
        text += &format!("pending write pages:  {}\n", unsent.div_ceil(PAGE_BYTES));
        text += &format!("pending read pages:   {}\n", load(&self.pages_waiting));
        let tables = [
            ("pages per rpc         rpcs", Rows::AllPowers, &read.pages, &write.pages),
            ("rpcs in flight        rpcs", Rows::AllFromOne, &read.in_flight, &write.in_flight),
            ("offset                rpcs", Rows::AllFrom(1), &read.offsets, &write.offsets),
            ("RPC latency (us)       count", Rows::AllFrom(LATENCY_US), &read.times, &write.times),
        ];
        for (name, rows, read, write) in tables {
            print(name, rows, (read.read(), write.read()), &mut text);
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Appends a table whose head begins with `name` and what is counted.
fn print(name: &str, rows: Rows, (read, write): (Counts, Counts), text: &mut String) {
    let what = name.rsplit(' ').next().unwrap_or_default();
    let head = format!("{SIDES}{name}   % cum % |       {what}   % cum %\n");
    Table { head: &head, rows, width: WIDTH, read, write }.print(text);
}

/// Class 0 has page 0, class `n` the pages from `2^(n-1)` on.
fn class_of_offset(offset: u64) -> u64 {
    class_from(offset / PAGE_BYTES)
}

/// Class 0 has 0, class `n` what is at least `2^(n-1)`.
fn class_from(value: u64) -> u64 {
    u64::from(u64::BITS - value.leading_zeros())
}

impl Under<'_> {
    /// It was answered.
    pub fn done(self, now: Time) {
        let micros = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        self.rpcs.side(self.way).times.note(class_from(micros / LATENCY_US));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.rpcs.pages_waiting.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        let side = self.rpcs.side(self.way);
        side.under_way.fetch_sub(1, Ordering::Relaxed);
        side.bytes_under_way.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.way == Way::WritePast {
            self.rpcs.past_under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The changes that an MDT is asked for in one session.
pub(crate) struct Changes {
    in_flight: Histogram,
    under_way: AtomicU64,
    /// Nanoseconds since 1970.
    since_ns: AtomicU64,
}

/// A change under way.
pub(crate) struct Changing<'a>(&'a Changes);

impl Changes {
    pub fn new(rt: &Rt) -> Changes {
        let (in_flight, under_way) = (Histogram::default(), AtomicU64::new(0));
        Changes { in_flight, under_way, since_ns: AtomicU64::new(rt.wall().as_nanos()) }
    }

    /// One is sent.
    pub fn begin(&self) -> Changing<'_> {
        self.in_flight.note(self.under_way.fetch_add(1, Ordering::Relaxed) + 1);
        Changing(self)
    }

    pub fn clear(&self, rt: &Rt) {
        self.in_flight.clear();
        self.since_ns.store(rt.wall().as_nanos(), Ordering::Relaxed);
    }

    /// The text of `rpc_stats`.
    pub fn text(&self, rt: &Rt) -> String {
        let snapshot =
            Snapshot { now_ns: rt.wall().as_nanos(), since_ns: self.since_ns.load(Ordering::Relaxed) };
        let mut text = snapshot.lines_with_colons();
        text += &format!("modify_RPCs_in_flight:  {}\n", self.under_way.load(Ordering::Relaxed));
        let head = "\t\t\tmodify\nrpcs in flight        rpcs   % cum %\n";
        print_single(head, &self.in_flight.read(), &mut text);
        text.truncate(text.trim_end().len());
        text
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::{Options, Sim};

    use super::*;

    fn check(test: impl FnOnce(&Rt)) {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt("client");
        sim.run(async { test(&rt) });
    }

    fn below_times(text: &str) -> String {
        text.lines().skip(3).fold(String::new(), |all, line| all + line + "\n")
    }

    /// As a real `osc.*.rpc_stats` looks (Lustre 2.17).
    #[test]
    fn requests_for_data_look_as_lustres() {
        check(|rt| {
            let rpcs = Rpcs::new(rt);
            let at = |us: u64| Time(us * 1000);
            for n in 0..4u64 {
                let read = rpcs.begin(Way::Read, (n * 32768, 32768), at(0));
                read.done(at(600 + n * 600));
            }
            let write = rpcs.begin(Way::Write, (0, 1 << 20), at(0));
            let past = rpcs.begin(Way::WritePast, (8 << 20, 100), at(0));
            past.done(at(10));
            let _waits = rpcs.wait(5000);
            assert_eq!(
                below_times(&rpcs.text(rt, (1 << 20) + 8193)),
                "\
read RPCs in flight:  0
write RPCs in flight: 1
DIO RPCs in flight: 0
pending write pages:  3
pending read pages:   2

\t\t\tread\t\t\twrite
pages per rpc         rpcs   % cum % |       rpcs   % cum %
1:\t\t         0   0   0   |        1  50  50
2:\t\t         0   0   0   |        0   0  50
4:\t\t         0   0   0   |        0   0  50
8:\t\t         4 100 100   |        0   0  50
16:\t\t         0   0 100   |        0   0  50
32:\t\t         0   0 100   |        0   0  50
64:\t\t         0   0 100   |        0   0  50
128:\t\t         0   0 100   |        0   0  50
256:\t\t         0   0 100   |        1  50 100

\t\t\tread\t\t\twrite
rpcs in flight        rpcs   % cum % |       rpcs   % cum %
1:\t\t         4 100 100   |        1  50  50
2:\t\t         0   0 100   |        1  50 100

\t\t\tread\t\t\twrite
offset                rpcs   % cum % |       rpcs   % cum %
0:\t\t         1  25  25   |        1  50  50
1:\t\t         0   0  25   |        0   0  50
2:\t\t         0   0  25   |        0   0  50
4:\t\t         0   0  25   |        0   0  50
8:\t\t         1  25  50   |        0   0  50
16:\t\t         2  50 100   |        0   0  50
32:\t\t         0   0 100   |        0   0  50
64:\t\t         0   0 100   |        0   0  50
128:\t\t         0   0 100   |        0   0  50
256:\t\t         0   0 100   |        0   0  50
512:\t\t         0   0 100   |        0   0  50
1024:\t\t         0   0 100   |        0   0  50
2048:\t\t         0   0 100   |        1  50 100

\t\t\tread\t\t\twrite
RPC latency (us)       count   % cum % |       count   % cum %
0:\t\t         0   0   0   |        1 100 100
512:\t\t         1  25  25   |        0   0 100
1024:\t\t         2  50  75   |        0   0 100
2048:\t\t         1  25 100   |        0   0 100
"
            );
            drop(write);
            rpcs.clear(rt);
            let text = rpcs.text(rt, 0);
            assert!(text.contains("\nwrite RPCs in flight: 0\n"));
            assert!(text.ends_with("% cum %\n0:\t\t         0   0   0   |        0   0   0"));
        });
    }

    /// As a real `mdc.*.rpc_stats` looks, without what is of data.
    #[test]
    fn changes_look_as_lustres() {
        check(|rt| {
            let changes = Changes::new(rt);
            let one = changes.begin();
            drop(changes.begin());
            assert_eq!(
                below_times(&changes.text(rt)),
                "\
modify_RPCs_in_flight:  1

\t\t\tmodify
rpcs in flight        rpcs   % cum %
0:\t\t         0   0   0
1:\t\t         1  50  50
2:\t\t         1  50 100
"
            );
            drop(one);
            changes.clear(rt);
            assert!(changes.text(rt).starts_with("snapshot_time:            "));
        });
    }
}
