//! What becomes of clients that were known before a restart and do not come back.
//!
//! One whose lease with the MGS is over is not waited for. One that lives is waited for until it has been missing for
//! [`DEADLINE`]: then it is told through the MGS that it has to drop what it holds here, and is given up when it has. Without
//! the MGS's word there is [`PATIENCE`] for each.

use std::sync::Arc;
use std::time::Duration;

use proto::ClientId;
use proto::wire::messages::{
    ASKED, ASKED_TO_FENCE, LEASE_LEFT, LEASE_LIVES, LEASE_NONE, LEASE_OVER, LeaseAsked,
};

use crate::clients::DEADLINE;
use crate::exports::Exports;
use crate::recovery::{Missing, PATIENCE};
use crate::{Handler, Target, Watch};

/// How often the MGS is asked.
const ASK_PAUSE: Duration = Duration::from_secs(1);

/// The clients that a target waits for after its start.
pub(crate) struct Awaited<H: Handler> {
    target: Arc<Target<H>>,
}

impl<H: Handler> Awaited<H> {
    /// By `target`.
    pub(crate) fn new(target: Arc<Target<H>>) -> Awaited<H> {
        Awaited { target }
    }

    /// Ends the wait for clients that do not come back, or stop replaying half way.
    pub(crate) async fn forget_late(self) {
        let end = self.target.rt.now() + PATIENCE;
        while self.target.recovery.is_active() {
            let Some(late) = self.target.stop.unless(self.target.recovery.late()).await else { return };
            if !self.target.store.is_owner() {
                // Nobody is answered meanwhile, and whoever is late here may be with the next owner already.
                let Some(Ok(())) = self.target.stop.unless(self.target.store.confirmed()).await else {
                    return;
                };
                self.target.recovery.start_over();
                continue;
            }
            let _door = self.target.exports.door.lock();
            for client in late {
                self.do_without(client, "it did not come back after the target's start");
            }
        }
        // Clients that are not waited for (of this process, or of a role without order) may still come.
        if self.target.stop.unless(self.target.recovery.until(end)).await.is_none() {
            return;
        }
        let _door = self.target.exports.door.lock();
        for client in self.target.exports.sessions.take_absent() {
            self.target.handler.forgotten(client);
            self.target.forget_records(client);
        }
    }

    /// Asks the MGS about those who are missing, as long as somebody is.
    pub(crate) async fn ask_about_missing(self) {
        if !self.target.clients.lives().has_mgs() {
            return;
        }
        while self.target.recovery.is_active() {
            let missing = self.target.recovery.missing();
            if !missing.is_empty() {
                let asked: Vec<LeaseAsked> =
                    missing.iter().map(|missing| missing.question(&self.target.exports)).collect();
                let Some(states) = self.target.stop.unless(self.target.clients.lives().ask(&asked)).await
                else {
                    return;
                };
                let _door = self.target.exports.door.lock();
                for (missing, state) in missing.iter().zip(states.unwrap_or_default()) {
                    self.heard_of(missing, state);
                }
            }
            if self.target.stop.unless(self.target.rt.sleep(ASK_PAUSE)).await.is_none() {
                return;
            }
        }
    }

    /// The MGS has said how a client is. The caller holds the door.
    fn heard_of(&self, missing: &Missing, state: u8) {
        let (client, fenced) = (missing.client, missing.quiet >= DEADLINE);
        // Who has come back while the MGS was asked gets on with it.
        let came_back = missing.absent && !self.target.exports.sessions.is_absent(client);
        match state {
            LEASE_LIVES => self.target.recovery.lives(client),
            LEASE_OVER | LEASE_NONE | LEASE_LEFT if came_back || !missing.absent && !fenced => {}
            // Another owner may have heard of it.
            LEASE_OVER | LEASE_NONE | LEASE_LEFT if !self.target.store.is_owner() => {}
            LEASE_NONE | LEASE_LEFT if missing.absent => {
                tracing::info!(target = %self.target.store.label().target, %client, "a client that held nothing is not waited for");
                self.target.exports.sessions.give_up(client);
                self.target.recovery.give_up(client);
            }
            LEASE_OVER | LEASE_NONE | LEASE_LEFT => {
                self.do_without(client, "it did not come back, and its lease is over")
            }
            // The MGS does not know yet.
            _ => {}
        }
    }

    /// The client is not waited for any more. The caller holds the door.
    fn do_without(&self, client: ClientId, why: &str) {
        match self.target.exports.sessions.of_client(client) {
            Some(session) => self.target.evict_session(&session, "it stopped replaying half way"),
            None => {
                let nid = self.target.exports.sessions.nid_of_absent(client);
                self.target.trace(
                    client,
                    nid.as_deref().unwrap_or("unknown"),
                    why,
                    (None, Watch::waits(&*self.target)),
                );
            }
        }
        self.target.exports.sessions.give_up(client);
        self.target.recovery.give_up(client);
    }
}

impl Missing {
    /// What the MGS is asked about it.
    fn question<S>(&self, exports: &Exports<S>) -> LeaseAsked {
        let session = exports.sessions.of_client(self.client).map_or(0, |session| session.handle());
        let wish = if self.quiet >= DEADLINE { ASKED_TO_FENCE } else { ASKED };
        LeaseAsked { client: self.client, session, wish }
    }
}
