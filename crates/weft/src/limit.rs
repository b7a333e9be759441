//! How fast work on many files goes: so many files and bytes in a second. A state machine that is told the time.

use std::time::Duration;

/// How far one that was held up may catch up: what it could have done in this time.
const CATCH_UP: Duration = Duration::from_millis(100);

/// One limit: as much as this flows out of the bucket in a second.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// When all that was let in has flowed out, since the beginning.
    empty_at: Duration,
}

/// The limits of a rule, or of a command.
#[derive(Debug, Default)]
pub struct Limiter {
    bytes: Option<Bucket>,
    files: Option<Bucket>,
}

impl Bucket {
    fn new(per_second: u64) -> Bucket {
        Bucket { per_second: per_second.max(1), empty_at: Duration::ZERO }
    }

    /// Lets `amount` in, and says when, not before `now`. What is larger than a second's worth comes in at once, and what follows waits
    /// for all of it, so that the rate holds over several of them.
    fn take(&mut self, now: Duration, amount: u64) -> Duration {
        let start = self.empty_at.max(now.saturating_sub(CATCH_UP));
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        self.empty_at = start.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        start.max(now)
    }
}

impl Limiter {
    /// With so many bytes and files in a second at most; `None` for no limit.
    pub fn new(bytes_per_second: Option<u64>, files_per_second: Option<u64>) -> Limiter {
        Limiter { bytes: bytes_per_second.map(Bucket::new), files: files_per_second.map(Bucket::new) }
    }

    /// When a file of so many bytes may be begun, not before `now`; both since the beginning.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let by_bytes = self.bytes.as_mut().map_or(now, |bucket| bucket.take(now, bytes));
        let by_files = self.files.as_mut().map_or(now, |bucket| bucket.take(now, 1));
        by_bytes.max(by_files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Takes files one after the other, each as soon as it may be begun and `busy` later. When the last one begins.
    fn last_of(limiter: &mut Limiter, files: u64, bytes: u64, busy: Duration) -> Duration {
        let (mut now, mut start) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..files {
            start = limiter.take(now, bytes);
            now = start + busy;
        }
        start
    }

    #[test]
    fn rates_hold() {
        // 1001 files: the last one begins when 1000 were paid for.
        assert_eq!(last_of(&mut Limiter::new(None, Some(100)), 1001, 9, ms(1)), ms(10_000));
        assert_eq!(last_of(&mut Limiter::new(Some(1 << 20), None), 41, 1 << 18, ms(0)), ms(10_000));
        // The slower one of both.
        assert_eq!(last_of(&mut Limiter::new(Some(1 << 30), Some(10)), 101, 1 << 18, ms(0)), ms(10_000));
        assert_eq!(last_of(&mut Limiter::new(None, None), 101, 1 << 40, ms(0)), ms(0));
        // Work that is slower than the limit is not held up.
        assert_eq!(last_of(&mut Limiter::new(None, Some(100)), 101, 0, ms(20)), ms(2000));
    }

    #[test]
    fn a_large_file_is_paid_for_by_those_behind_it() {
        let mut limiter = Limiter::new(Some(100), None);
        assert_eq!(limiter.take(ms(0), 1000), ms(0));
        assert_eq!(limiter.take(ms(5), 1), ms(10_000));
        assert_eq!(limiter.take(ms(10_001), 1), ms(10_010));
    }

    #[test]
    fn little_is_caught_up_after_a_pause() {
        let mut limiter = Limiter::new(None, Some(10));
        assert_eq!(limiter.take(ms(0), 0), ms(0));
        // One tenth of a second, so one file, and not those of an hour.
        assert_eq!(limiter.take(ms(3_600_000), 0), ms(3_600_000));
        assert_eq!(limiter.take(ms(3_600_000), 0), ms(3_600_000));
        assert_eq!(limiter.take(ms(3_600_000), 0), ms(3_600_100));
    }

    #[test]
    fn huge_numbers_do_not_overflow() {
        let mut limiter = Limiter::new(Some(1), Some(1));
        limiter.take(ms(1), u64::MAX);
        assert!(limiter.take(ms(2), u64::MAX) > Duration::from_secs(1 << 33));
    }
}
