//! Ends a session that nobody needs; it begins again with the next call (Lustre's `osc.*.idle_timeout`).
//!
//! For a target with very many clients, most of which do nothing there. Only a session in which nothing is under way and nothing waits to be
//! durable ends so: nothing of it can be missed later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::Xid;
use proto::wire::messages::Disconnect;
use rt::sync::oneshot;

use crate::call::Options;
use crate::callback::Told;
use crate::import::{Flight, Import, Outcome, Phase, State, begin, encode};
use crate::limits;
use crate::tcp::Link;

impl Import {
    /// Ends the session if it is open over a connection, nothing is under way or not durable, and `holds_nothing` says that
    /// nothing was granted in it; calls wait meanwhile. Whether it has ended.
    pub async fn rest(&self, holds_nothing: impl FnOnce() -> bool) -> bool {
        let Some(link) = self.pause() else { return false };
        if !holds_nothing() {
            self.go_on(link);
            return false;
        }
        if let Some((xid, goodbye)) = self.say_goodbye(&link) {
            // Without an answer the target finds out when the client comes back.
            let _ = self.hub.rt().timeout(limits::GOODBYE_TIME_MAX, goodbye).await;
            let mut state = self.state.lock();
            state.flights.remove(&xid);
            // Sent again it would end the session that follows.
            state.requests.forget(xid);
        }
        let session = {
            let mut state = self.state.lock();
            let session = state.session;
            if matches!(state.phase, Phase::Resting) {
                state.phase = Phase::Idle;
                (state.session, state.boot, state.told) = (0, 0, Told::Nothing);
                self.session.store(0, Ordering::Release);
            }
            session
        };
        link.leave(self.target, session);
        link.close_if_idle();
        self.changed.notify_waiters();
        tracing::debug!(target = %self.target, "the session rests");
        true
    }

    /// From here on calls wait.
    fn pause(&self) -> Option<Arc<Link>> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Tcp(link) if is_unneeded(&state) => {
                let link = link.clone();
                state.phase = Phase::Resting;
                Some(link)
            }
            _ => None,
        }
    }

    /// Calls need not wait.
    fn go_on(&self, link: Arc<Link>) {
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Resting) {
                let broken = link.ended().is_ended();
                state.phase = Phase::Tcp(link);
                // Nobody was told of that meanwhile.
                if broken {
                    self.start_connecting(&mut state);
                }
            }
        }
        self.changed.notify_waiters();
    }

    fn say_goodbye(&self, link: &Link) -> Option<(Xid, oneshot::Receiver<Outcome>)> {
        let message = encode(&Disconnect {}.into(), &[], Options::default()).ok()?;
        let mut state = self.state.lock();
        let begun = begin(&mut state.requests, &message).ok()?;
        let header = self.header(&state, &message, begun.xid, begun.slot);
        let (waiter, goodbye) = oneshot::channel();
        let flight = Flight::new(Some(waiter), &message, limits::RESEND_MIN, self.hub.rt().now());
        state.flights.insert(begun.xid, flight);
        self.called_no_more();
        drop(state);
        link.send(header, &message);
        Some((begun.xid, goodbye))
    }
}

fn is_unneeded(state: &State) -> bool {
    let nothing_open = state.flights.is_empty() && state.requests.in_flight_count() == 0;
    nothing_open && state.requests.retained().0 == 0 && !state.recovering
}
