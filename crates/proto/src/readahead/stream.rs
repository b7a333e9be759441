//! One reader of a handle: what it has read lately, the pattern of that, and how far ahead of it to fetch.

use std::ops::Range;

use super::stride::Stride;
use super::{PAGE_BYTES, Settings, pieces};

/// So many requests of one reader are on their way at a time and may overtake each other: a kernel's own read-ahead sends several.
const LATE_REQUESTS: u64 = 4;
/// So many requests to each target of the file are ahead of a reader: about twice as many as are in flight. What is fetched long before
/// it is read costs more, for it has left the processor's caches by then. Lustre knows no such bound.
const FAR_REQUESTS: u64 = 16;
/// A reader that leaves out fewer bytes than these still reads in sequence (Lustre: 8 pages).
pub(super) const LOOSE_BYTES: u64 = 8 * PAGE_BYTES;
/// A sequential window has at most so many times what was read in sequence. Lustre knows no such bound, and fetches 16 MiB for a
/// program that reads 20 KiB.
const WINDOW_PER_READ: u64 = 4;
/// Records that are fetched once a stride is known.
const RECORDS_AT_FIRST: u64 = 2;
/// Most records of a strided window: each takes a request.
pub(super) const RECORDS_MAX: u64 = 512;
/// What a stream has to show before it counts as sequential.
const POINTS: u32 = 2;

/// How a stream reads, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Nothing is fetched until it has shown enough that it reads in sequence.
    Unknown { points: u32 },
    /// One byte after the other; so many bytes may be ahead.
    Sequential { window_bytes: u64 },
    /// One record after the other; so many records may be ahead.
    Strided { stride: Stride, records: u64 },
}

/// How a read belongs to a stream, the best fit first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It begins where the last one ended.
    Next,
    /// It begins in the record behind the last one.
    Step,
    /// It begins a little before or behind the end of the last one, and ends behind it.
    Near,
    /// It leaves out something that may be ahead already.
    Skip,
    /// It has been read before.
    Again,
}

/// A reader.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its name within the handle; never used twice.
    pub(super) number: u64,
    /// What was read in sequence up to now; of a strided reader in the present record.
    pub(super) run: Range<u64>,
    /// When it was last used, in reads of the handle.
    pub(super) touched: u64,
    pattern: Pattern,
    /// The pattern was asked for up to here.
    asked: u64,
    /// Where the reader left something out, which may be ahead.
    left: Range<u64>,
}

impl Stream {
    /// A reader that has just begun, or somebody who reads here and there.
    pub(super) fn new(number: u64, run: Range<u64>, touched: u64) -> Stream {
        let asked = run.end;
        Stream { number, run, touched, pattern: Pattern::Unknown { points: 0 }, asked, left: 0..0 }
    }

    /// It reads records.
    pub(super) fn is_strided(&self) -> bool {
        matches!(self.pattern, Pattern::Strided { .. })
    }

    /// How the read belongs to this stream, if it does. `latest`: the handle's last read was of this stream.
    pub(super) fn fit(&self, read: &Range<u64>, latest: bool, rpc_bytes: u64) -> Option<Fit> {
        match self.pattern {
            Pattern::Strided { stride, records } => self.fit_stride(read, stride, records),
            Pattern::Unknown { .. } => self.fit_run(read).filter(|fit| *fit != Fit::Near || latest),
            Pattern::Sequential { .. } => {
                let skip = || (self.run.end..self.asked).contains(&read.start).then_some(Fit::Skip);
                // Requests of one reader may overtake each other.
                let late = || {
                    let behind = self.run.end.saturating_sub(LATE_REQUESTS * rpc_bytes)..self.run.end;
                    (behind.contains(&read.start) && read.end <= behind.end).then_some(Fit::Again)
                };
                self.fit_run(read).or_else(skip).or_else(late)
            }
        }
    }

    fn fit_run(&self, read: &Range<u64>) -> Option<Fit> {
        let end = self.run.end;
        if read.start == end {
            return Some(Fit::Next);
        }
        if read.end <= end {
            return (read.start >= self.run.start).then_some(Fit::Again);
        }
        let low = self.run.start.max(end.saturating_sub(LOOSE_BYTES));
        (low..end.saturating_add(LOOSE_BYTES)).contains(&read.start).then_some(Fit::Near)
    }

    fn fit_stride(&self, read: &Range<u64>, stride: Stride, records: u64) -> Option<Fit> {
        let (index, now) = (stride.within(read)?, stride.index(self.run.start)?);
        if index == now {
            let next = read.start == self.run.end;
            let again = read.end <= self.run.end;
            return Some(if next {
                Fit::Next
            } else if again {
                Fit::Again
            } else {
                Fit::Near
            });
        }
        if index > now {
            let ahead = index - now;
            return (ahead <= records.saturating_add(1)).then_some(if ahead == 1 {
                Fit::Step
            } else {
                Fit::Skip
            });
        }
        (now - index <= RECORDS_MAX).then_some(Fit::Again)
    }

    /// The read belongs to this stream. Whether the window may grow for it.
    pub(super) fn note(&mut self, read: &Range<u64>, fit: Fit, latest: bool) -> bool {
        if matches!(fit, Fit::Skip) {
            let from = if self.left.is_empty() { self.run.end } else { self.left.start };
            self.left = from..read.start;
        }
        match (fit, self.is_strided()) {
            (Fit::Again, _) => return false,
            (Fit::Step | Fit::Skip, true) => self.run = read.clone(),
            (Fit::Step | Fit::Skip | Fit::Near | Fit::Next, _) => self.run.end = self.run.end.max(read.end),
        }
        if let Pattern::Unknown { points } = &mut self.pattern {
            // By chance a read may begin where another one has ended. That it is the last one of all is less likely.
            *points += if fit == Fit::Next && latest { POINTS } else { 1 };
        }
        fit != Fit::Skip && (fit == Fit::Step || !self.is_strided())
    }

    /// Whether the window keeps all targets of the file busy.
    pub(super) fn is_far(&self, width: u64, settings: &Settings) -> bool {
        let far = FAR_REQUESTS.saturating_mul(width).saturating_mul(settings.rpc());
        match self.pattern {
            Pattern::Unknown { .. } => false,
            Pattern::Sequential { window_bytes } => window_bytes >= far,
            Pattern::Strided { stride, records } => records.saturating_mul(stride.bytes) >= far,
        }
    }

    /// The window grows, or is opened: by a request for each read in sequence, to twice as many records for each step.
    pub(super) fn grow(&mut self, settings: &Settings) {
        let (rpc, max) = (settings.rpc(), settings.window_max());
        match &mut self.pattern {
            Pattern::Unknown { points } if *points < POINTS => {}
            Pattern::Unknown { .. } => {
                self.pattern = Pattern::Sequential { window_bytes: rpc.min(max) };
                self.asked = self.run.end;
            }
            Pattern::Sequential { window_bytes } => {
                let run = self.run.end - self.run.start;
                let most = run.saturating_mul(WINDOW_PER_READ).max(rpc).min(max);
                *window_bytes = (*window_bytes).max(window_bytes.saturating_add(rpc).min(most)).min(max);
            }
            Pattern::Strided { stride, records } => {
                let step = (*records).min((rpc / stride.bytes).max(1));
                *records = (*records + step).min(max / stride.bytes).min(RECORDS_MAX);
            }
        }
    }

    /// The stream turns out to read records, up to now the one of its run.
    pub(super) fn set_stride(&mut self, stride: Stride) {
        // What lies between records that are close costs less than requests for each of them (Lustre: 8 pages).
        self.pattern = if stride.length - stride.bytes <= LOOSE_BYTES {
            self.run.start = stride.origin;
            Pattern::Unknown { points: POINTS }
        } else {
            Pattern::Strided { stride, records: RECORDS_AT_FIRST }
        };
        self.asked = self.run.end;
    }

    /// The run of another reader begins where this one has ended: it was one reader, whose requests overtook each other.
    pub(super) fn absorb(&mut self, other: &Stream) {
        self.run.end = self.run.end.max(other.run.end);
        self.asked = self.asked.max(other.asked);
        if !self.has_window() {
            self.pattern = other.pattern;
        }
    }

    /// Memory is short: less is fetched ahead.
    pub(super) fn shrink(&mut self, rpc_bytes: u64) {
        match &mut self.pattern {
            Pattern::Unknown { .. } => {}
            Pattern::Sequential { window_bytes } => {
                *window_bytes = (*window_bytes / 2).max(rpc_bytes).min(*window_bytes)
            }
            Pattern::Strided { records, .. } => *records = (*records / 2).max(RECORDS_AT_FIRST).min(*records),
        }
    }

    /// Others want what is ahead: the window begins anew.
    pub(super) fn restart(&mut self, rpc_bytes: u64) {
        match &mut self.pattern {
            Pattern::Unknown { .. } => {}
            Pattern::Sequential { window_bytes } => *window_bytes = rpc_bytes.min(*window_bytes),
            Pattern::Strided { records, .. } => *records = RECORDS_AT_FIRST.min(*records),
        }
    }

    /// Up to where the pattern was asked for; 0 as long as there is none.
    pub(super) fn asked_end(&self) -> u64 {
        if self.has_window() { self.asked } else { 0 }
    }

    /// What had been asked for is lost: the window is looked through again.
    pub(super) fn ask_again(&mut self) {
        self.asked = self.run.end;
    }

    /// The pattern was asked for up to `end`.
    pub(super) fn asked_to(&mut self, end: u64) {
        self.asked = self.asked.max(end);
    }

    /// Something may be ahead.
    pub(super) fn has_window(&self) -> bool {
        !matches!(self.pattern, Pattern::Unknown { .. })
    }

    /// What the reader left out, once it is so far behind that no request of it can be on its way.
    pub(super) fn left_behind(&mut self, rpc_bytes: u64) -> Option<Range<u64>> {
        let far = match self.pattern {
            Pattern::Strided { stride, .. } => rpc_bytes.max(stride.length),
            _ => LATE_REQUESTS * rpc_bytes,
        };
        let is_behind = !self.left.is_empty() && self.left.end.saturating_add(far) <= self.run.end;
        is_behind.then(|| std::mem::replace(&mut self.left, 0..0))
    }

    /// What of the window has not been asked for, in order and cut into requests; and up to where the pattern is asked for then.
    pub(super) fn window(&self, settings: &Settings, size: u64) -> (Vec<Range<u64>>, u64) {
        let from = self.asked.max(self.run.end);
        match self.pattern {
            Pattern::Unknown { .. } => (Vec::new(), from),
            Pattern::Sequential { window_bytes } => {
                let end = window_end(self.run.end, window_bytes, settings, size).max(from);
                (pieces(from..end, settings.rpc()).collect(), end)
            }
            Pattern::Strided { stride, records } => {
                let mut ranges = Vec::new();
                let Some(now) = stride.index(self.run.start) else { return (ranges, from) };
                let last = now.saturating_add(records);
                let first = stride.index(from).unwrap_or(now).max(now);
                for index in first..=last {
                    let record = stride.record(index);
                    let record = record.start.max(from)..record.end.min(size);
                    ranges.extend(pieces(record, settings.rpc()));
                }
                (ranges, stride.record(last).end.min(size).max(from))
            }
        }
    }
}

/// Where a sequential window ends: where a request ends (Lustre's `ras_align`), or with the file.
fn window_end(at: u64, window_bytes: u64, settings: &Settings, size: u64) -> u64 {
    let rpc = settings.rpc();
    let end = at.saturating_add(window_bytes);
    if end >= size {
        return size;
    }
    let aligned = end - end % rpc;
    let next = aligned.saturating_add(rpc);
    // A small request is hardly cheaper than a whole one.
    if aligned < at.saturating_add(rpc / 2) && next - at <= settings.window_max() {
        return next.min(size);
    }
    if aligned > at { aligned } else { end }
}
