//! A request in flight: who waits for it, and when to send it again.

use std::time::Duration;

use super::limits;
use super::message::Message;

/// A request in flight. `W` is who waits for its answer; times are counted from any moment that stays the same.
#[derive(Debug)]
pub(super) struct Flight<W> {
    pub(super) waiter: Option<W>,
    pub(super) resend_at: Duration,
    resend_after: Duration,
    /// Whether it may take as long as others like.
    pub(super) waits: bool,
    /// See [`Message::pulses`].
    pulses: bool,
    /// When it was sent again last.
    resent_at: Option<Duration>,
    /// When it was sent first.
    pub(super) since: Duration,
    pub(super) arrived: Arrived,
    /// It was sent a single time: if the target refuses that one, the request was carried out nowhere.
    pub(super) once: bool,
}

/// Whether a request has been with the target since it was sent first: then its answer says how long the target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// As far as is known.
    Yes,
    /// It was sent again, and the target has not said anything.
    Perhaps,
    /// Its connection broke, and the target may have been away.
    No,
}

/// What to do about a request whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Send,
    /// The other side would have said at least that it is at work: give the connection up.
    Silent,
}

impl<W> Flight<W> {
    pub(super) fn new(waiter: W, message: &Message, resend_after: Duration, now: Duration) -> Flight<W> {
        Flight {
            waiter: Some(waiter),
            resend_at: now + resend_after,
            resend_after,
            waits: message.waits,
            pulses: message.pulses,
            resent_at: None,
            since: now,
            arrived: Arrived::Yes,
            once: true,
        }
    }

    /// It is sent over another connection, and waits for its answer anew.
    pub(super) fn moved(&mut self, now: Duration, resend_after: Duration) {
        (self.resend_at, self.resend_after) = (now + resend_after, resend_after);
        self.resent_at = None;
        (self.arrived, self.once) = (Arrived::No, false);
    }

    /// Decides what is due at `now`, on a connection that was heard last at `heard`, and when the next time comes.
    pub(super) fn due(&mut self, now: Duration, heard: Duration, silence_max: Duration) -> Due {
        let unheard = self.resent_at.filter(|at| heard < *at);
        if unheard.is_some() && now.saturating_sub(heard) > silence_max {
            self.resend_at = now + limits::RESEND_MIN;
            return Due::Silent;
        }
        if self.waits {
            // It may wait for hours without a word. So a look soon after shows whether anybody heard.
            if let Some(at) = self.resent_at.filter(|at| heard >= *at && now < *at + limits::RESEND_WAITING) {
                self.resend_at = at + limits::RESEND_WAITING;
                return Due::Nothing;
            }
            self.resend_at = now + limits::RESEND_MIN;
        } else if self.pulses {
            self.resend_at = now + self.resend_after;
        } else {
            self.resend_after = (self.resend_after * 2).min(limits::RESEND_MAX.max(self.resend_after));
            self.resend_at = now + self.resend_after;
        }
        (self.resent_at, self.once) = (Some(now), false);
        if self.arrived == Arrived::Yes {
            self.arrived = Arrived::Perhaps;
        }
        Due::Send
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;
    use crate::wire::messages::{FlockWait, RenewLease, Statfs};

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn ordinary() -> Request {
        Statfs {}.into()
    }

    fn waiting() -> Request {
        FlockWait { wait: 1, known: Vec::new() }.into()
    }

    fn pulse() -> Request {
        RenewLease { lease: 0, release: false, dropped: Vec::new() }.into()
    }

    /// When a flight of `request` that begins at 100 is sent again until 400, if the other side is heard at `heard`; and
    /// whether it is given up.
    fn sends(request: Request, heard: impl Fn(u64) -> u64) -> (Vec<u64>, bool) {
        let message = Message::new(&request, &[]).expect("it is short");
        let after = if message.waits { limits::RESEND_WAITING } else { limits::RESEND_MIN };
        let mut flight = Flight::new((), &message, after, at(100));
        let mut sends = Vec::new();
        for now in 100..400 {
            if flight.resend_at > at(now) {
                continue;
            }
            match flight.due(at(now), at(heard(now)), limits::SILENCE_MAX) {
                Due::Nothing => {}
                Due::Send => sends.push(now),
                Due::Silent => return (sends, true),
            }
        }
        (sends, false)
    }

    #[test]
    fn what_waits_is_sent_again_rarely() {
        assert_eq!(sends(ordinary(), |now| now), (vec![105, 115, 135, 175, 235, 295, 355], false));
        assert_eq!(sends(waiting(), |now| now), (vec![130, 160, 190, 220, 250, 280, 310, 340, 370], false));
    }

    #[test]
    fn a_sign_of_life_is_sent_again_steadily() {
        assert_eq!(sends(pulse(), |now| now).0, (105..400).step_by(5).collect::<Vec<u64>>());
    }

    #[test]
    fn silence_before_something_was_sent_again_is_none() {
        // Nobody spoke for a while, and then the other side is gone.
        assert_eq!(sends(ordinary(), |_| 50), (vec![105], true));
        assert_eq!(sends(waiting(), |_| 50), (vec![130], true));
        // The other side answers each repetition.
        let answers = |now: u64| if now > 130 { 131 + (now - 131) / 30 * 30 } else { 50 };
        assert!(!sends(waiting(), answers).1);
    }
}
