//! How large, how many at a time and how slow the reads and writes of a target's disk are: of objects and of the log.
//!
//! The engine's own files are not counted: they are written in the background, out of what the log has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt::{Rt, Time};

/// Classes of a histogram.
pub const CLASSES: usize = 32;

/// Counts by class. Cheap to count in: no lock, and nobody waits.
#[derive(Debug, Default)]
pub struct Histogram {
    classes: [AtomicU64; CLASSES],
}

impl Histogram {
    /// Counts `value` in the class of the next power of two: class `n` has what is at most `2^n`.
    pub fn note_log2(&self, value: u64) {
        let class = value.max(1).checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
        self.note(u64::from(class));
    }

    /// Counts `value` in a class of its own, or in the last one.
    pub fn note(&self, value: u64) {
        let class = usize::try_from(value).unwrap_or(usize::MAX).min(CLASSES - 1);
        if let Some(count) = self.classes.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts of all classes.
    pub fn read(&self) -> [u64; CLASSES] {
        std::array::from_fn(|class| self.classes.get(class).map_or(0, |count| count.load(Ordering::Relaxed)))
    }

    /// Counts anew.
    pub fn clear(&self) {
        self.classes.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// One direction.
#[derive(Debug, Default)]
pub struct Side {
    /// Bytes, in powers of two.
    pub sizes: Histogram,
    /// How many were under way, each with itself.
    pub in_flight: Histogram,
    /// Milliseconds, in powers of two.
    pub times: Histogram,
    under_way: AtomicU64,
}

/// What a target's disk does.
#[derive(Debug, Default)]
pub struct DiskCounts {
    /// Reads of objects.
    pub reads: Side,
    /// Writes of objects and of the log.
    pub writes: Side,
}

/// A read or write under way. Dropped before its end it is not counted.
pub(crate) struct Under<'a> {
    side: &'a Side,
    began: Time,
    rank: u64,
}

impl Side {
    /// A read or write begins.
    pub(crate) fn begin(&self, rt: &Rt) -> Under<'_> {
        let rank = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        Under { side: self, began: rt.now(), rank }
    }

    fn clear(&self) {
        self.sizes.clear();
        self.in_flight.clear();
        self.times.clear();
    }
}

impl Under<'_> {
    /// `bytes` are read or written.
    pub(crate) fn done(self, rt: &Rt, bytes: usize) {
        let took: Duration = rt.now() - self.began;
        self.side.sizes.note_log2(bytes as u64);
        self.side.in_flight.note(self.rank);
        self.side.times.note_log2(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.side.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskCounts {
    /// Counts anew.
    pub fn clear(&self) {
        self.reads.clear();
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_the_next_power_of_two() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4096, 4097, u64::MAX] {
            histogram.note_log2(value);
        }
        let counts = histogram.read();
        let found: Vec<(usize, u64)> =
            counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(0, 2), (1, 1), (2, 1), (12, 1), (13, 1), (31, 1)]);
        histogram.clear();
        assert_eq!(histogram.read(), [0; CLASSES]);
    }
}
