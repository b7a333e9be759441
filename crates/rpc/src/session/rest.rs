//! Ends a session that nobody needs; it begins again with the next call (Lustre's `osc.*.idle_timeout`).
//!
//! For a target with very many clients, most of which do nothing there. Only a session in which nothing is under way and nothing waits to be
//! durable ends so: nothing of it can be missed later.

use std::sync::Arc;

use proto::Xid;
use proto::session::machine::Phase;
use proto::session::{Event, Message, Output};
use proto::wire::messages::Disconnect;
use rt::sync::oneshot;

use super::Link;
use super::carrier::Carrier;
use super::driver::{Driver, Outcome};
use crate::limits;

impl Driver {
    /// See [`crate::Import::rest`].
    pub(crate) async fn rest(&self, holds_nothing: impl FnOnce() -> bool) -> bool {
        let Some(link) = self.pause() else { return false };
        if !holds_nothing() {
            self.on(Event::Needed { broken: link.ended().is_ended() });
            return false;
        }
        let mut number = None;
        if let Some((xid, goodbye)) = self.say_goodbye() {
            // Without an answer the target finds out when the client comes back.
            let _ = self.hub.rt().timeout(limits::GOODBYE_TIME_MAX, goodbye).await;
            number = Some(xid);
        }
        let now = self.moment();
        let (outputs, _) = self.step(|state| state.machine.on(Event::Rested { goodbye: number }, now));
        self.carry_out(outputs, Some(&Carrier::Tcp(link.clone())));
        link.close_if_idle();
        tracing::debug!(target = %self.target, "the session rests");
        true
    }

    /// From here on calls wait.
    fn pause(&self) -> Option<Arc<Link>> {
        let now = self.moment();
        self.look_at(|state| {
            let was_open = matches!(state.machine.phase(), Phase::Open { .. });
            let said = state.machine.on(Event::Unneeded, now);
            debug_assert!(said.is_empty(), "calls just wait");
            match &state.carrier {
                Some(Carrier::Tcp(link)) if was_open && state.machine.phase() == Phase::Resting => {
                    Some(link.clone())
                }
                _ => None,
            }
        })
    }

    fn say_goodbye(&self) -> Option<(Xid, oneshot::Receiver<Outcome>)> {
        let message = Arc::new(Message::new(&Disconnect {}.into(), &[]).ok()?);
        let (waiter, goodbye) = oneshot::channel();
        let now = self.moment();
        let (outputs, carrier) = self.step(|state| state.machine.on(Event::Goodbye { message, waiter }, now));
        let sent = outputs.iter().find_map(|output| match output {
            Output::Send { header, .. } => Some(header.xid),
            _ => None,
        });
        self.called().no_more();
        self.carry_out(outputs, carrier.as_ref());
        sent.map(|xid| (xid, goodbye))
    }
}
