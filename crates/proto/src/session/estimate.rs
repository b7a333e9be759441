//! How long a target takes to answer, for timers that follow the load (Lustre's adaptive timeouts).

use std::time::Duration;

/// Parts of the time that is remembered.
const PARTS: usize = 4;
/// How long a part is. Four make ten minutes: Lustre's `at_history`.
const PART: Duration = Duration::from_secs(150);
/// What a timer has beyond the estimate: Lustre's `at_early_margin`, and `at_min` where nothing is known yet.
pub const MARGIN: Duration = Duration::from_secs(5);

/// The longest answers of the last ten minutes, and of all time. Times are counted from any moment that stays the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The longest of each part, the newest part first.
    parts: [Duration; PARTS],
    /// Number of the newest part.
    newest: u64,
    worst: Duration,
    worst_at: Duration,
}

/// An estimate as operators see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimated {
    /// The longest answer of the last ten minutes.
    pub current: Duration,
    /// The longest of all.
    pub worst: Duration,
    /// How long ago that was; 0 if there was none.
    pub worst_ago: Duration,
    /// The longest of each 150 s, the newest first.
    pub parts: [Duration; PARTS],
}

impl Estimate {
    /// An answer took so long.
    pub fn note(&mut self, now: Duration, took: Duration) {
        self.turn(now);
        let [newest, ..] = &mut self.parts;
        *newest = took.max(*newest);
        if took > self.worst {
            (self.worst, self.worst_at) = (took, now);
        }
    }

    /// When who asks should begin to wonder: a quarter more than what answers took, and the margin; at most `max`.
    pub fn patience(&self, now: Duration, max: Duration) -> Duration {
        let current = self.at(now).current;
        (current + current / 4 + MARGIN).min(max)
    }

    /// What is known at `now`.
    pub fn at(&self, now: Duration) -> Estimated {
        let mut then = *self;
        then.turn(now);
        let current = then.parts.into_iter().max().unwrap_or_default();
        let worst_ago = match self.worst.is_zero() {
            true => Duration::ZERO,
            false => now.saturating_sub(self.worst_at),
        };
        Estimated { current, worst: self.worst, worst_ago, parts: then.parts }
    }

    /// Lets parts go that are too old.
    fn turn(&mut self, now: Duration) {
        let part = now.as_secs() / PART.as_secs();
        let passed = part.saturating_sub(self.newest).min(PARTS as u64) as usize;
        if passed > 0 {
            self.parts.rotate_right(passed % PARTS);
            self.parts.iter_mut().take(passed).for_each(|part| *part = Duration::ZERO);
            self.newest = part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn s(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn nothing_known_is_the_margin() {
        assert_eq!(Estimate::default().patience(s(1_000_000), MINUTE), MARGIN);
    }

    #[test]
    fn patience_follows_the_longest_answer_of_ten_minutes() {
        let mut estimate = Estimate::default();
        estimate.note(s(1000), s(20));
        estimate.note(s(1001), s(1));
        assert_eq!(estimate.patience(s(1001), MINUTE), s(30));
        assert_eq!(estimate.patience(s(1001), s(25)), s(25));
        estimate.note(s(1400), s(2));
        assert_eq!(estimate.at(s(1400)).current, s(20));
        assert_eq!(estimate.at(s(1500)).current, s(2), "the part from 900 to 1050 is over for ten minutes");
        assert_eq!(estimate.at(s(1500)).worst, s(20));
        assert_eq!(estimate.at(s(1500)).worst_ago, s(500));
        assert_eq!(estimate.patience(s(90_000), MINUTE), MARGIN);
    }

    #[test]
    fn each_part_is_told() {
        let mut estimate = Estimate::default();
        for (at, took) in [(10, 1), (160, 2), (310, 3), (460, 4), (610, 5)] {
            estimate.note(s(at), s(took));
        }
        assert_eq!(estimate.at(s(620)).parts, [s(5), s(4), s(3), s(2)]);
        assert_eq!(estimate.at(s(760)).parts, [s(0), s(5), s(4), s(3)]);
    }

    #[test]
    fn a_clock_that_stands_does_no_harm() {
        let mut estimate = Estimate::default();
        estimate.note(s(1000), s(7));
        estimate.note(s(900), s(8));
        assert_eq!(estimate.at(s(0)).current, s(8));
    }
}
