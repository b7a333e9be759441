//! Which OST is slower than the others, as this client finds.
//!
//! Of each session the times of the last large writes are kept. Who asks is told of each OST whose median, for a MiB, is at least
//! [`SLOW_TIMES`] that of all OSTs: its disks, its server or the way there. Nothing is sent for it, and nothing is done while nobody asks.

use std::collections::VecDeque;
use std::time::Duration;

use proto::OstIndex;
use rt::Time;

use super::Targets;
use crate::order::{LEAF, Mutex};

/// Smaller writes are not counted: they say more of waiting than of the disk.
const BYTES_MIN: u64 = 512 << 10;
const MIB: u64 = 1 << 20;
/// Writes of a session that are kept.
const SAMPLES_MAX: usize = 32;
/// Fewer say nothing.
const SAMPLES_MIN: usize = 8;
/// Older ones do not count.
const AGE_MAX: Duration = Duration::from_secs(60);
/// A slow OST takes so many times as long as the others.
const SLOW_TIMES: u32 = 3;
/// And so much longer for a MiB: below that it is nobody's concern.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// Times of large writes to one OST, the newest last: when each was answered, and how long a MiB took.
#[derive(Default)]
pub(crate) struct Pace(Mutex<LEAF, VecDeque<(Time, Duration)>>);

/// An OST that is slower than the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowOst {
    /// Its index.
    pub ost: OstIndex,
    /// What a MiB takes: the median of its large writes of the last minute.
    pub takes: Duration,
    /// The same of all OSTs: the lower median of theirs.
    pub others_take: Duration,
}

impl Pace {
    /// A write of `bytes` took so long, and was answered at `now`.
    pub(crate) fn note(&self, now: Time, bytes: u64, took: Duration) {
        if bytes < BYTES_MIN {
            return;
        }
        let nanos = u128::from(MIB) * took.as_nanos() / u128::from(bytes);
        let mut samples = self.0.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((now, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))));
    }

    /// The median of the last minute; `None` if there were too few.
    fn median(&self, now: Time) -> Option<Duration> {
        let is_new = |(at, _): &&(Time, Duration)| now - *at <= AGE_MAX;
        let times: Vec<Duration> = self.0.lock().iter().filter(is_new).map(|(_, took)| *took).collect();
        if times.len() >= SAMPLES_MIN { lower_median(times) } else { None }
    }
}

fn lower_median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

/// The slow ones of all for which there is a median.
fn slow(medians: &[(OstIndex, Duration)]) -> Vec<SlowOst> {
    let Some(others_take) = lower_median(medians.iter().map(|(_, takes)| *takes).collect()) else {
        return Vec::new();
    };
    let is_slow = |takes: Duration| takes >= others_take * SLOW_TIMES && takes >= others_take + SLOW_MIN;
    let slow = medians.iter().filter(|(_, takes)| is_slow(*takes));
    slow.map(|(ost, takes)| SlowOst { ost: *ost, takes: *takes, others_take }).collect()
}

impl Targets {
    /// OSTs that are slower than the others, by what this client wrote in the last minute.
    pub(crate) fn slow(&self, now: Time) -> Vec<SlowOst> {
        let medians =
            self.osts().into_iter().filter_map(|(ost, target)| Some((ost, target.pace.median(now)?)));
        slow(&medians.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn who_takes_three_times_as_long_is_slow() {
        let check = |medians: &[u64], expected: &[u32]| {
            let medians: Vec<_> =
                (0..).map(OstIndex).zip(medians.iter().map(|takes| millis(*takes))).collect();
            let found: Vec<u32> = slow(&medians).iter().map(|slow| slow.ost.0).collect();
            assert_eq!(found, expected, "{medians:?}");
        };
        check(&[], &[]);
        check(&[100], &[]);
        check(&[10, 30], &[1]);
        check(&[10, 29, 11, 12], &[]);
        check(&[10, 40, 11, 12], &[1]);
        check(&[40, 10, 40, 11, 12], &[0, 2]);
        check(&[1, 1, 1, 2], &[]);
        check(&[0, 0, 1], &[]);
    }

    #[test]
    fn only_large_writes_of_the_last_minute_count() {
        let (pace, at) = (Pace::default(), |secs: u64| Time(secs * 1_000_000_000));
        for _ in 0..SAMPLES_MIN - 1 {
            pace.note(at(100), MIB, millis(8));
        }
        pace.note(at(100), 4096, millis(1));
        assert_eq!(pace.median(at(100)), None, "too few");
        pace.note(at(100), MIB / 2, millis(4));
        assert_eq!(pace.median(at(160)), Some(millis(8)), "for a MiB");
        assert_eq!(pace.median(at(161)), None, "too old");
        for _ in 0..2 * SAMPLES_MAX {
            pace.note(at(200), MIB, millis(2));
        }
        assert_eq!((pace.median(at(200)), pace.0.lock().len()), (Some(millis(2)), SAMPLES_MAX));
    }
}
