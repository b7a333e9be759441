//! Every bound and time of a client's end of a session, with its name.

use std::time::Duration;

/// Ranges of lost changes that are remembered; then the two oldest become one.
pub const LOST_RANGES_MAX: usize = 16;
/// First pause between two attempts to reach a target.
pub const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Longest pause between two attempts to reach a target.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A request without a reply for this long is sent again, or later if answers took longer lately
/// ([`super::Estimate`]); the time doubles with each repetition.
pub const RESEND_MIN: Duration = Duration::from_secs(5);
/// Longest time between two repetitions.
pub const RESEND_MAX: Duration = Duration::from_secs(60);
/// Longest time between two repetitions of a replay: a recovering target gives up on a client that does nothing for 30 s,
/// and knows nothing of an answer that was lost.
pub const REPLAY_RESEND_MAX: Duration = Duration::from_secs(10);
/// First pause of a request that waits at its target until others let it go on.
pub const RESEND_WAITING: Duration = Duration::from_secs(30);
/// A connection that says nothing for this long, although something was sent again, is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Each refused epoch is followed by one that is larger by twice as much as before, up to this power of two.
pub(super) const OUTGROW_MAX: u32 = 56;
