//! Sessions of clients that are dead, whom nobody waits for: files that they had open and that were removed, and room of the
//! session table, would be theirs until the next start (`docs/recovery.md#dead`).
//!
//! A client may live and not reach anybody, for a link that fails in one direction, say; it closes its connections then, as one
//! that dies does. Nobody is in a hurry here, so it has hours, and the MGS has to say twice that it has not heard of it either.
//! One that has said goodbye to the MGS loses nothing: its session ends without more ado.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::lease::SILENT_MAX_MS;
use proto::wire::messages::{
    ASKED, ASKED_TO_RETURN, LEASE_LEFT, LEASE_LIVES, LEASE_LONG_OVER, LEASE_NONE, LEASE_OVER, LeaseAsked,
};
use proto::{ClientId, TargetId};
use rpc::Role;

use crate::{Handler, Target};

/// Pause between two looks: longer than a client may be silent.
const LOOK_PAUSE: Duration = Duration::from_millis(SILENT_MAX_MS as u64 + 10_000);
/// Pause behind each session that ends: there may be thousands.
const BREATH: Duration = Duration::from_millis(1);
/// Pause before the MGS is asked again that did not answer.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long a client may be away that has said goodbye, or from the MGS.
const LEFT_MIN: Duration = Duration::from_secs(600);
/// How long another one may be away whose connection was closed: by the end of its process, or by itself.
const CLOSED_MIN: Duration = Duration::from_secs(4 * 3600);
/// How long one may be away that only went silent: its machine may be suspended.
const SILENT_MIN: Duration = Duration::from_secs(24 * 3600);

/// Ends the sessions of the dead at one target.
pub(crate) struct Reaper<H: Handler> {
    target: Arc<Target<H>>,
}

impl<H: Handler> Reaper<H> {
    /// Of `target`.
    pub(crate) fn new(target: Arc<Target<H>>) -> Reaper<H> {
        Reaper { target }
    }

    /// Looks again and again, as long as the target is there.
    pub(crate) async fn run(self) {
        let is_mgs = self.target.store.label().target == TargetId::MGS;
        if !is_mgs && !self.target.clients.lives().has_mgs() {
            return;
        }
        let mut before = BTreeMap::new();
        while self.target.stop.unless(self.target.rt.sleep(LOOK_PAUSE)).await.is_some() {
            let looked = async {
                if is_mgs {
                    self.end_away_from_mgs().await;
                    return BTreeMap::new();
                }
                let gone = self.gone().await;
                self.end_gone(&gone, &before).await;
                gone
            };
            let Some(gone) = self.target.stop.unless(looked).await else { return };
            before = gone;
        }
    }

    /// Whoever holds something renews its lease, so it is not away from the MGS, and has nothing else there.
    async fn end_away_from_mgs(&self) {
        for (_, session) in self.away() {
            self.end_quietly(session);
            // Each is a commit, and leases are renewed meanwhile.
            self.target.rt.sleep(BREATH).await;
        }
    }

    /// Clients that have been away for long, with their sessions.
    fn away(&self) -> Vec<(ClientId, u64)> {
        let sessions = self.target.exports.sessions.matching(|session| session.role() == Role::Client);
        // Not while the table is locked: there may be hundreds of thousands.
        let away = sessions.iter().filter(|session| self.is_away(session.handle(), Kind::Left));
        away.map(|session| (session.client(), session.handle())).collect()
    }

    /// Sessions whose clients have been away for long, and of whom the MGS has heard nothing either.
    async fn gone(&self) -> BTreeMap<u64, Kind> {
        let asked = |(client, session)| LeaseAsked { client, session, wish: ASKED_TO_RETURN };
        let asked: Vec<LeaseAsked> = self.away().into_iter().map(asked).collect();
        if asked.is_empty() {
            return BTreeMap::new();
        }
        let states = self.target.clients.lives().ask(&asked).await.unwrap_or_default();
        let kinds =
            asked.iter().zip(states).filter_map(|(asked, state)| Some((asked.session, Kind::of(state)?)));
        kinds.filter(|(session, kind)| self.is_away(*session, *kind)).collect()
    }

    /// Ends those of `gone` that were it `before`. Ends early if the MGS does not answer at once: what it said is old then.
    async fn end_gone(&self, gone: &BTreeMap<u64, Kind>, before: &BTreeMap<u64, Kind>) {
        for (session, kind) in gone.iter().filter(|(session, kind)| before.get(session) == Some(kind)) {
            match kind {
                Kind::Left => self.end_quietly(*session),
                Kind::Unknown | Kind::Holder => {
                    if !self.evict_gone(*session, *kind).await {
                        return;
                    }
                }
            }
            self.target.rt.sleep(BREATH).await;
        }
    }

    /// Ends the session of one that has said goodbye, if it has not come back.
    fn end_quietly(&self, session: u64) {
        let _door = self.target.exports.door.lock();
        if let Some(session) = self.target.exports.sessions.of_handle(session)
            && self.is_away(session.handle(), Kind::Left)
        {
            self.target.end(&session);
        }
    }

    /// Has the MGS keep the order for the client that its session is over, and ends it. Says whether the MGS answered at once.
    async fn evict_gone(&self, session: u64, kind: Kind) -> bool {
        let mut at_once = true;
        while let Some(client) =
            self.target.exports.sessions.of_handle(session).map(|session| session.client())
        {
            let is_away = self.is_away(session, kind);
            if at_once && !(is_away && self.target.store.is_owner()) {
                return true;
            }
            // One that has come back gets no order, and one that it may have is taken back.
            let wish = if is_away { ASKED } else { ASKED_TO_RETURN };
            match self.target.clients.lives().ask_one(LeaseAsked { client, session, wish }).await {
                Some(LEASE_LIVES | LEASE_LEFT) => return at_once,
                Some(LEASE_OVER | LEASE_NONE)
                    if wish == ASKED
                        && (at_once || self.is_away(session, kind))
                        && self.target.store.is_owner() =>
                {
                    // It drops what it holds when it hears of the order, even if it has just come back.
                    let _door = self.target.exports.door.lock();
                    if let Some(session) = self.target.exports.sessions.of_handle(session) {
                        let why = "it is dead: it has been away for hours, and its lease is over";
                        self.target.evict_unawaited(&session, why);
                    }
                    return at_once;
                }
                // The MGS may keep the order: what becomes of it is known before anything else is done.
                _ => (at_once, _) = (false, self.target.rt.sleep(ASK_PAUSE).await),
            }
        }
        at_once
    }

    fn is_away(&self, session: u64, kind: Kind) -> bool {
        self.target.clients.absent_for(session).is_some_and(|(absent, silent)| kind.is_long(absent, silent))
    }
}

/// What the MGS says of a client that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It has said goodbye.
    Left,
    /// The MGS knows nothing of it: it held nothing, or the MGS has forgotten, and the client does not reach it.
    Unknown,
    /// It held something, and may hold it still.
    Holder,
}

impl Kind {
    /// Of a client that has not renewed its lease for as long as it may be silent, or has none; `None` of any other.
    fn of(state: u8) -> Option<Kind> {
        match state {
            LEASE_LEFT => Some(Kind::Left),
            LEASE_NONE => Some(Kind::Unknown),
            LEASE_LONG_OVER => Some(Kind::Holder),
            _ => None,
        }
    }

    /// Whether a client that lives would have been back by now. `silent`: nobody closed its connection.
    fn is_long(self, absent: Duration, silent: bool) -> bool {
        let most = match self {
            Kind::Left => LEFT_MIN,
            _ if silent => SILENT_MIN,
            Kind::Unknown | Kind::Holder => CLOSED_MIN,
        };
        absent >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_said_goodbye_has_hours() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        // (What it was, whether it went silent, how long it has.)
        for (kind, silent, has) in [
            (Kind::Left, false, minutes(10)),
            (Kind::Left, true, minutes(10)),
            (Kind::Unknown, false, minutes(4 * 60)),
            (Kind::Holder, false, minutes(4 * 60)),
            (Kind::Holder, true, minutes(24 * 60)),
        ] {
            assert!(
                !kind.is_long(has - minutes(1), silent) && kind.is_long(has, silent),
                "{kind:?} {silent}"
            );
        }
        assert_eq!(Kind::of(LEASE_LEFT), Some(Kind::Left));
        assert_eq!(Kind::of(LEASE_LONG_OVER), Some(Kind::Holder));
        assert_eq!(Kind::of(LEASE_NONE), Some(Kind::Unknown), "an MGS that was started again says so of all");
        assert_eq!(Kind::of(LEASE_OVER), None, "it may be back any moment");
    }
}
