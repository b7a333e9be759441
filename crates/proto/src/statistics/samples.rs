//! How often, least, most and all together, as Lustre sums things up, with the classes of the values.

use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::{CLASSES, Counts, Histogram};
use super::table::label;

/// Values that are summed up. Counted in without a lock: while one is added a reader may see a part of it, which no decision
/// rests on.
#[derive(Debug)]
pub struct Samples {
    /// How often which power of two; all together, how often.
    classes: Histogram,
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    /// Begins anew at 2^64, as Lustre's does.
    sumsq: AtomicU64,
}

/// Values that are summed up by whoever has a lock around them, without their classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    sumsq: u64,
}

/// The sums at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampled {
    /// How often.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// All together.
    pub sum: u64,
    /// The sum of the squares, without what does not fit into 64 bits.
    pub sumsq: u64,
    /// How often which power of two: class `n` has what is at most `2^n`.
    pub classes: Counts,
}

impl Default for Samples {
    fn default() -> Samples {
        let zero = || AtomicU64::new(0);
        Samples {
            classes: Histogram::default(),
            min: AtomicU64::new(u64::MAX),
            max: zero(),
            sum: zero(),
            sumsq: zero(),
        }
    }
}

impl Samples {
    /// Adds a value.
    pub fn note(&self, value: u64) {
        self.classes.note_log2(value);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.sumsq.fetch_add(value.wrapping_mul(value), Ordering::Relaxed);
        // Mostly neither changes, and then nothing is written.
        if value < self.min.load(Ordering::Relaxed) {
            self.min.fetch_min(value, Ordering::Relaxed);
        }
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// The sums now.
    pub fn read(&self) -> Sampled {
        let classes = self.classes.read();
        let count = classes.iter().sum();
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let min = if count == 0 { 0 } else { load(&self.min) };
        Sampled { count, min, max: load(&self.max), sum: load(&self.sum), sumsq: load(&self.sumsq), classes }
    }

    /// Begins anew.
    pub fn clear(&self) {
        self.classes.clear();
        self.min.store(u64::MAX, Ordering::Relaxed);
        [&self.max, &self.sum, &self.sumsq].into_iter().for_each(|value| value.store(0, Ordering::Relaxed));
    }
}

impl Sums {
    /// Adds a value.
    pub fn note(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.wrapping_add(value);
        self.sumsq = self.sumsq.wrapping_add(value.wrapping_mul(value));
    }

    /// As `job_stats` prints them: `{ samples: 2, unit: usecs, min: 3, max: 900, sum: 903, sumsq: 810009 }`.
    pub fn braces(&self, unit: &str) -> String {
        format!("{{ {} }}", self.within(unit))
    }

    fn within(&self, unit: &str) -> String {
        let Sums { count, min, max, sum, sumsq } = self;
        format!(
            "samples: {count:>11}, unit: {unit}, min: {min:>7}, max: {max:>7}, sum: {sum:>15}, sumsq: {sumsq:>18}"
        )
    }
}

impl From<Sums> for Sampled {
    /// Without classes.
    fn from(sums: Sums) -> Sampled {
        let Sums { count, min, max, sum, sumsq } = sums;
        Sampled { count, min, max, sum, sumsq, ..Sampled::default() }
    }
}

impl Sampled {
    /// This and `other` together.
    #[must_use]
    pub fn and(self, other: Sampled) -> Sampled {
        let min = match (self.count, other.count) {
            (0, _) => other.min,
            (_, 0) => self.min,
            _ => self.min.min(other.min),
        };
        let mut classes = self.classes;
        classes.iter_mut().zip(other.classes).for_each(|(count, more)| *count += more);
        Sampled {
            count: self.count + other.count,
            min,
            max: self.max.max(other.max),
            sum: self.sum.wrapping_add(other.sum),
            sumsq: self.sumsq.wrapping_add(other.sumsq),
            classes,
        }
    }

    /// As `lprocfs_stats_seq_show` prints it: `open                      12 samples [usecs] 3 40 150 2500`.
    pub fn line(&self, name: &str, unit: &str) -> String {
        let Sampled { count, min, max, sum, sumsq, .. } = self;
        format!("{name:<25} {count} samples [{unit}] {min} {max} {sum} {sumsq}")
    }

    /// The same as [`Sums::braces`], with its classes: `{ samples: 2, unit: usecs, min: 3, max: 900, sum: 903, sumsq: 810009, hist: { 4: 1,
    /// 1K: 1 } }`, a class by the largest value that it may have.
    pub fn braces(&self, unit: &str) -> String {
        let Sampled { count, min, max, sum, sumsq, classes } = *self;
        let classes: Vec<String> = (0..CLASSES)
            .zip(classes)
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| format!("{}: {count}", label(class)))
            .collect();
        let sums = Sums { count, min, max, sum, sumsq };
        format!("{{ {}, hist: {{ {} }} }}", sums.within(unit), classes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_summed_up() {
        let samples = Samples::default();
        assert_eq!(samples.read(), Sampled::default());
        [900, 3].into_iter().for_each(|value| samples.note(value));
        let read = samples.read();
        assert_eq!(
            read.line("open", "usecs"),
            "open                      2 samples [usecs] 3 900 903 810009"
        );
        assert_eq!(
            read.braces("usecs"),
            "{ samples:           2, unit: usecs, min:       3, max:     900, sum:             903, sumsq:             810009, hist: { 4: 1, 1K: 1 } }"
        );
        assert_eq!(read.and(Sampled::default()), read);
        assert_eq!(Sampled::default().and(read), read);
        let both = read.and(read);
        assert_eq!((both.count, both.min, both.max, both.sum), (4, 3, 900, 1806));
        samples.clear();
        assert_eq!(samples.read(), Sampled::default());
        // The largest square does not fit, and is no error.
        samples.note(u64::MAX);
        assert_eq!(samples.read().sumsq, 1);
    }
}
