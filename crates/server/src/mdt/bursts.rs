//! How many changes a client is to send in one request ([`proto::wire::messages::KeepPromises`]).
//!
//! A request is carried out at a stretch, some 30 us for each change, and everybody else waits for that. So the clients that send such
//! requests at a time share what one of them may send alone: however many they are, whoever asks for little waits no longer.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use proto::limits::PROMISES_MAX;
use rt::Time;

/// The least share, in changes: below that, requests cost more than what is in them.
const SHARE_MIN: usize = 16;
/// Who has sent nothing for this time, or twice as long, has no share.
const WHILE: Duration = Duration::from_secs(1);
/// Sessions that are counted: with so many each has the least share.
const SESSIONS_MAX: usize = 64;

/// Those who send.
#[derive(Default)]
pub struct Bursts(Mutex<Sending>);

#[derive(Default)]
struct Sending {
    since: Time,
    sessions: BTreeSet<u64>,
    /// How many there were in the time before.
    before: usize,
}

impl Bursts {
    /// `session` has sent a request: how many changes its next one is to have at most.
    pub fn share(&self, session: u64, now: Time) -> usize {
        let mut sending = self.0.lock();
        let passed = now - sending.since;
        if passed >= WHILE {
            sending.before = if passed < 2 * WHILE { sending.sessions.len() } else { 0 };
            sending.sessions.clear();
            sending.since = now;
        }
        if sending.sessions.len() < SESSIONS_MAX {
            sending.sessions.insert(session);
        }
        let count = sending.sessions.len().max(sending.before).max(1);
        (PROMISES_MAX / count).max(SHARE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_share_what_one_may_send() {
        let (bursts, at) = (Bursts::default(), |ms: u64| Time(10_000_000_000 + ms * 1_000_000));
        assert_eq!(bursts.share(1, at(0)), PROMISES_MAX);
        assert_eq!(bursts.share(2, at(10)), PROMISES_MAX / 2);
        assert_eq!(bursts.share(1, at(20)), PROMISES_MAX / 2);
        assert_eq!((bursts.share(3, at(30)), bursts.share(4, at(40))), (PROMISES_MAX / 3, PROMISES_MAX / 4));
        assert_eq!(
            bursts.share(1, at(1000)),
            PROMISES_MAX / 4,
            "the others may only just have sent something"
        );
        assert_eq!(bursts.share(1, at(2000)), PROMISES_MAX, "nobody else has since");
        (0..1000).for_each(|session| _ = bursts.share(session, at(2001)));
        assert_eq!(bursts.share(1, at(2002)), SHARE_MIN);
        assert_eq!(bursts.share(1, at(9000)), PROMISES_MAX);
    }
}
