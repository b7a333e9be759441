//! Sessions of clients that are dead, whom nobody waits for: files that they had open and that were removed, grants and room of
//! the session table would be theirs until the next start (`docs/recovery.md#dead`).
//!
//! Nobody is in a hurry here, so it is made sure: the client's process closed its connection [`CLOSED_MIN`] ago, or its host went
//! silent [`SILENT_MIN`] ago, and the MGS has said twice that it has not heard of it for as long as a client may be silent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proto::lease::SILENT_MAX_MS;
use proto::wire::messages::{
    ASKED_TO_FENCE, ASKED_TO_RETURN, LEASE_LEFT, LEASE_LONG_OVER, LEASE_NONE, LEASE_OVER, LeaseAsked,
};
use proto::{ClientId, TargetId};
use rpc::Role;

use crate::session::Session;
use crate::{Handler, Target};

/// Pause between two looks: an MGS that has started again meanwhile has been there for as long as a client may be silent.
const LOOK_PAUSE: Duration = Duration::from_millis(SILENT_MAX_MS as u64 + 10_000);
/// How long a client may be away whose connection was closed: its process has ended, or closed it for want of an answer.
const CLOSED_MIN: Duration = Duration::from_secs(600);
/// How long a client may be away that only went silent: its machine may be suspended.
const SILENT_MIN: Duration = Duration::from_secs(24 * 3600);

impl<H: Handler> Target<H> {
    /// Ends the sessions of the dead, as long as the target is there.
    pub(crate) async fn end_the_dead(self: Arc<Self>) {
        let is_mgs = self.store.label().target == TargetId::MGS;
        if !is_mgs && !self.clients.lives().has_mgs() {
            return;
        }
        let mut suspects = BTreeSet::new();
        while self.stop.unless(self.rt.sleep(LOOK_PAUSE)).await.is_some() {
            if is_mgs {
                for (_, session) in self.away() {
                    self.end_away(session, Self::end);
                }
                continue;
            }
            let Some(gone) = self.stop.unless(self.gone()).await else { return };
            for session in gone.intersection(&suspects) {
                if self.stop.unless(self.end_gone(*session)).await.is_none() {
                    return;
                }
            }
            suspects = gone;
        }
    }

    /// Clients that have been away for long, with their sessions. One that renews its lease is not away from the MGS, and has
    /// nothing else there.
    fn away(&self) -> Vec<(ClientId, u64)> {
        let sessions = self.exports.sessions.matching(|session| {
            session.role() == Role::Client && self.clients.is_long_away(session.handle())
        });
        sessions.iter().map(|session| (session.client(), session.handle())).collect()
    }

    /// Sessions whose clients have been away for long, and of whom the MGS has heard nothing either.
    async fn gone(&self) -> BTreeSet<u64> {
        let asked = |(client, session)| LeaseAsked { client, session, wish: ASKED_TO_RETURN };
        let asked: Vec<LeaseAsked> = self.away().into_iter().map(asked).collect();
        if asked.is_empty() {
            return BTreeSet::new();
        }
        let states = self.clients.lives().ask(&asked).await.unwrap_or_default();
        let gone = asked.iter().zip(states).filter(|(_, state)| is_gone(*state));
        gone.map(|(asked, _)| asked.session).collect()
    }

    /// Has the MGS tell the client that its session is over, should it live after all, and ends it.
    async fn end_gone(&self, session: u64) {
        let Some(client) = self.exports.sessions.of_handle(session).map(|session| session.client()) else {
            return;
        };
        let asked = LeaseAsked { client, session, wish: ASKED_TO_FENCE };
        let state = self.clients.lives().ask_one(asked).await;
        let is_over = matches!(state, Some(LEASE_OVER | LEASE_LEFT | LEASE_NONE)) && self.store.is_owner();
        let why = "it is dead: it has been away for long, and its lease is over";
        if !is_over || !self.end_away(session, |target, session| target.evict_session(session, why)) {
            self.clients.take_fence_back(session).await;
        }
    }

    /// Ends a session as `end` does, if its client has not come back; says whether.
    fn end_away(&self, session: u64, end: impl FnOnce(&Self, &Arc<Session<H::Session>>)) -> bool {
        let _door = self.exports.door.lock();
        let session = self.exports.sessions.of_handle(session);
        let away = session.filter(|session| self.clients.is_long_away(session.handle()));
        away.inspect(|session| end(self, session)).is_some()
    }
}

/// Whether a client that lives would have been back by now. `silent`: nobody closed its connection.
pub(crate) fn is_long(absent: Duration, silent: bool) -> bool {
    absent >= if silent { SILENT_MIN } else { CLOSED_MIN }
}

/// Whether that is said of a client that has not renewed its lease for as long as it may be silent, or has none.
fn is_gone(state: u8) -> bool {
    matches!(state, LEASE_LEFT | LEASE_LONG_OVER | LEASE_NONE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::is_long;

    #[test]
    fn a_machine_that_is_silent_has_a_day() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert!(!is_long(Duration::from_secs(599), false) && is_long(Duration::from_secs(600), false));
        assert!(!is_long(hours(23), true) && is_long(hours(24), true));
    }
}
