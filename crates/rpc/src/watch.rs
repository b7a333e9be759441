//! Sends requests again whose replies do not come: a connection may lose a frame, or be dead without saying so.

use std::sync::Arc;
use std::time::Duration;

use rt::Time;

use crate::event::{Either, race};
use crate::import::{Arrived, Flight, Import, Phase, State};
use crate::limits;

impl Import {
    /// Makes sure that a task watches the requests in flight, and looks at `resend_at` at the latest. It ends when there
    /// are none.
    pub(crate) fn watch(&self, state: &mut State, resend_at: Time) {
        match state.watched_until {
            Some(until) if until <= resend_at => {}
            // One that waits for others is looked at late; what comes after it is not to be.
            Some(_) => {
                state.watched_until = Some(resend_at);
                self.earlier.notify_one();
            }
            None => {
                let Some(import) = self.me.upgrade() else { return };
                state.watched_until = Some(resend_at);
                self.hub.rt().spawn(async move { import.watch_flights().await });
            }
        }
    }

    async fn watch_flights(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                state.watched_until = state.flights.values().map(|flight| flight.resend_at).min();
                state.watched_until
            };
            let Some(next) = next else { return };
            let rt = self.hub.rt();
            let due = race(rt.sleep_until(next), self.earlier.notified());
            if let Either::First(()) = race(self.hub.ended().wait(), due).await {
                return;
            }
            self.resend_overdue(rt.now());
        }
    }

    fn resend_overdue(&self, now: Time) {
        let mut state = self.state.lock();
        // Without a connection, connecting again sends everything again.
        let link = match &state.phase {
            Phase::Tcp(link) => Some(link.clone()),
            _ => None,
        };
        let heard = link.as_ref().map_or(now, |link| link.heard_at());
        // Who is slow with answers may be slow with everything.
        let silence_max =
            state.answers.patience(now - Time::default(), limits::RESEND_MAX).max(limits::SILENCE_MAX);
        let mut overdue = Vec::new();
        for (xid, flight) in state.flights.iter_mut().filter(|(_, flight)| flight.resend_at <= now) {
            match flight.due(now, heard, silence_max) {
                Due::Nothing => {}
                Due::Send => overdue.push(*xid),
                Due::Silent => {
                    if let Some(link) = &link {
                        link.end("the other side says nothing any more");
                        return;
                    }
                }
            }
        }
        let Some(link) = link else { return };
        for xid in overdue {
            if let Some(sent) = state.requests.in_flight(xid) {
                tracing::debug!(target = %self.target, ?xid, "no answer yet: it is sent again");
                link.ask_or_send(self.header(&state, &sent.message, sent.xid, sent.slot), &sent.message);
            }
        }
    }
}

/// What to do about a request whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    Send,
    /// The other side would have said at least that it is at work: give the connection up.
    Silent,
}

impl Flight {
    /// It is sent over another connection, and waits for its answer anew.
    pub(crate) fn moved(&mut self, now: Time, resend_after: Duration) {
        (self.resend_at, self.resend_after) = (now + resend_after, resend_after);
        self.resent_at = None;
        self.arrived = Arrived::No;
    }

    /// Decides what is due at `now`, on a connection that was heard last at `heard`, and when the next time comes.
    fn due(&mut self, now: Time, heard: Time, silence_max: Duration) -> Due {
        let unheard = self.resent_at.filter(|at| heard < *at);
        if unheard.is_some() && now - heard > silence_max {
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
        self.resent_at = Some(now);
        if self.arrived == Arrived::Yes {
            self.arrived = Arrived::Perhaps;
        }
        Due::Send
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::Request;
    use proto::wire::messages::{FlockWait, RenewLease, Statfs};

    use super::*;
    use crate::call::Options;
    use crate::import::encode;

    fn at(secs: u64) -> Time {
        Time::default() + Duration::from_secs(secs)
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
        let message = encode(&request, &[], Options::default()).expect("it is short");
        let after = if message.waits { limits::RESEND_WAITING } else { limits::RESEND_MIN };
        let mut flight = Flight::new(None, &message, after, at(100));
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
