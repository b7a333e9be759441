//! The times that a client puts on what applications do.

use proto::Timestamp;
use rt::{Rt, Wall};

use crate::order::{LEAF, Mutex};

/// Calls within one step of the real clock are told apart by nanoseconds, up to so many.
const AHEAD_NANOS_MAX: i64 = 1_000_000;

/// Gives each call a time of its own: whether a write or a change of times came last is decided by comparing.
pub(crate) struct Clock {
    rt: Rt,
    last: Mutex<LEAF, Timestamp>,
}

impl Clock {
    pub(crate) fn new(rt: Rt) -> Clock {
        Clock { rt, last: Mutex::default() }
    }

    /// The time of a call that is being made now.
    pub(crate) fn time(&self) -> Timestamp {
        after(&mut self.last.lock(), self.rt.wall())
    }
}

/// The time of a call at `wall`, which is behind `last`.
fn after(last: &mut Timestamp, wall: Wall) -> Timestamp {
    let secs = last.secs.saturating_sub(wall.secs).saturating_mul(1_000_000_000);
    let ahead = secs.saturating_add(i64::from(last.nanos) - i64::from(wall.nanos));
    *last = if (0..AHEAD_NANOS_MAX).contains(&ahead) {
        match last.nanos {
            999_999_999 => Timestamp { secs: last.secs + 1, nanos: 0 },
            nanos => Timestamp { secs: last.secs, nanos: nanos + 1 },
        }
    } else {
        Timestamp { secs: wall.secs, nanos: wall.nanos }
    };
    *last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_grow_unless_the_real_clock_is_set_back() {
        let mut last = Timestamp::default();
        let mut at = |secs, nanos| after(&mut last, Wall { secs, nanos });
        assert_eq!(at(5, 999_999_999), Timestamp { secs: 5, nanos: 999_999_999 });
        assert_eq!(at(5, 999_999_999), Timestamp { secs: 6, nanos: 0 });
        assert_eq!(at(5, 999_999_999), Timestamp { secs: 6, nanos: 1 });
        assert_eq!(at(7, 0), Timestamp { secs: 7, nanos: 0 });
        assert_eq!(at(3, 0), Timestamp { secs: 3, nanos: 0 });
    }
}
