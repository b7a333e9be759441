//! Points in time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time of a node, in nanoseconds since some moment before its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    /// Zero if `earlier` is not earlier.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Real time since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Wall {
    /// Nanoseconds since 1970; 0 before.
    pub fn as_nanos(self) -> u64 {
        let secs = u64::try_from(self.secs).unwrap_or(0);
        secs.saturating_mul(1_000_000_000).saturating_add(u64::from(self.nanos))
    }
}
