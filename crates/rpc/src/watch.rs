//! Sends requests again whose replies do not come: a connection may lose a frame, or be dead without saying so.

use std::sync::Arc;

use proto::wire::header::FLAG_RESENT;
use rt::Time;

use crate::event::{Either, race};
use crate::import::{Import, Phase, State};
use crate::limits;

impl Import {
    /// Makes sure that a task watches the requests in flight. It ends when there are none.
    pub(crate) fn watch(&self, state: &mut State) {
        if state.watching {
            return;
        }
        let Some(import) = self.me.upgrade() else { return };
        state.watching = true;
        self.hub.rt().spawn(async move { import.watch_flights().await });
    }

    async fn watch_flights(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.flights.values().map(|flight| flight.resend_at).min();
                state.watching = next.is_some();
                next
            };
            let Some(next) = next else { return };
            let rt = self.hub.rt();
            if let Either::First(()) = race(self.hub.ended().wait(), rt.sleep_until(next)).await {
                return;
            }
            self.resend_overdue(rt.now());
        }
    }

    fn resend_overdue(&self, now: Time) {
        let mut state = self.state.lock();
        let mut overdue = Vec::new();
        for (xid, flight) in &mut state.flights {
            if flight.resend_at <= now {
                flight.resend_after = (flight.resend_after * 2).min(limits::RESEND_MAX);
                flight.resend_at = now + flight.resend_after;
                overdue.push(*xid);
            }
        }
        // Without a connection, connecting again sends everything again.
        let Phase::Tcp(link) = &state.phase else { return };
        if overdue.is_empty() {
            return;
        }
        if now - link.heard_at() > limits::SILENCE_MAX {
            link.end("the other side says nothing any more");
            return;
        }
        for xid in overdue {
            if let Some(sent) = state.requests.in_flight(xid) {
                let mut header = self.header(&state, &sent.message, sent.xid, sent.slot);
                header.flags |= FLAG_RESENT;
                link.send(header, &sent.message);
            }
        }
    }
}
