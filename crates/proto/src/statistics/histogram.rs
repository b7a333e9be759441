//! How often what occurred, in classes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Classes of a histogram (Lustre's `OBD_HIST_MAX`).
pub const CLASSES: usize = 32;

/// The counts of all classes.
pub type Counts = [u64; CLASSES];

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
    pub fn read(&self) -> Counts {
        std::array::from_fn(|class| self.classes.get(class).map_or(0, |count| count.load(Ordering::Relaxed)))
    }

    /// Counts anew.
    pub fn clear(&self) {
        self.classes.iter().for_each(|count| count.store(0, Ordering::Relaxed));
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
