//! Sessions with OSTs that this client does not use any more: their locks are given back, and they end. They begin again with the next
//! use (Lustre's `lru_max_age` and `osc.*.idle_timeout`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rpc::LinkState;
use rt::Time;

use crate::Shared;
use crate::targets::Target;

/// A session in which nothing is held ends after this time without a request.
const SESSION_IDLE: Duration = Duration::from_secs(20);
/// What is held of an OST is given back after this time without a request.
const LOCKS_IDLE: Duration = Duration::from_secs(600);

/// Since when sessions with OSTs are not used.
#[derive(Default)]
pub(crate) struct Idle(BTreeMap<u32, Unused>);

#[derive(Clone, Copy)]
struct Unused {
    since: Time,
    /// When it is looked at what is held.
    look_at: Time,
}

/// What is to be done about a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// To end it, if nothing is held in it.
    Rest,
    /// To give back what is held in it.
    GiveBack,
}

impl Idle {
    /// What is due now for the session with `ost`, which was used or not since the last call.
    fn due(&mut self, ost: u32, used: bool, now: Time) -> Due {
        let fresh = Unused { since: now, look_at: now + SESSION_IDLE };
        let unused = self.0.entry(ost).or_insert(fresh);
        if used {
            *unused = fresh;
        }
        if now < unused.look_at {
            return Due::Nothing;
        }
        if now - unused.since < LOCKS_IDLE {
            unused.look_at = unused.since + LOCKS_IDLE;
            return Due::Rest;
        }
        // When that is done, the session rests.
        (unused.since, unused.look_at) = (now, now + SESSION_IDLE);
        Due::GiveBack
    }
}

impl Shared {
    /// Looks after sessions with OSTs; called every few seconds while this client holds anything.
    pub(crate) fn rest_unused(self: &Arc<Self>, idle: &mut Idle) {
        let now = self.rt.now();
        let (mut resting, mut giving_back) = (Vec::new(), BTreeSet::new());
        for (ost, target) in self.targets.osts() {
            let used = target.was_used();
            match idle.due(ost, used, now) {
                Due::Nothing => {}
                Due::Rest => resting.push((ost, target)),
                Due::GiveBack => drop(giving_back.insert(ost)),
            }
        }
        if resting.is_empty() && giving_back.is_empty() {
            return;
        }
        // One look at all objects, however many OSTs there are.
        let mut in_use = BTreeSet::new();
        for object in self.locks.all() {
            let Ok(ost) = object.ost() else { continue };
            in_use.insert(ost);
            if giving_back.contains(&ost) {
                self.leave(object);
            }
        }
        resting.retain(|(ost, _)| !in_use.contains(ost));
        resting.into_iter().for_each(|(ost, target)| self.rest_session(ost, target));
    }

    /// The same at the end, when nothing is held any more and nobody looks.
    pub(crate) fn rest_all(self: &Arc<Self>) {
        let shared = self.clone();
        self.rt.spawn(async move {
            let rested = shared.rt.sleep(SESSION_IDLE);
            if crate::util::unless(shared.ended(), rested).await.is_none() || shared.lease.is_on() {
                return;
            }
            for (ost, target) in shared.targets.osts() {
                shared.rest_session(ost, target);
            }
        });
    }

    fn rest_session(self: &Arc<Self>, ost: u32, target: Arc<Target>) {
        if !matches!(target.state().link, LinkState::Connected(_)) {
            return;
        }
        let shared = self.clone();
        self.rt.spawn(async move {
            target.make_durable().await;
            target.rest(|| shared.objects_on(ost).is_empty()).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::default() + Duration::from_secs(secs)
    }

    #[test]
    fn a_session_rests_soon_and_gives_back_what_it_holds_late() {
        let mut idle = Idle::default();
        assert_eq!(idle.due(0, true, at(100)), Due::Nothing);
        let mut seen = Vec::new();
        for now in (105..1500).step_by(5) {
            match idle.due(0, now == 110, at(now)) {
                Due::Nothing => {}
                due => seen.push((now, due)),
            }
        }
        assert_eq!(
            seen,
            [
                (130, Due::Rest),
                (710, Due::GiveBack),
                (730, Due::Rest),
                (1310, Due::GiveBack),
                (1330, Due::Rest)
            ]
        );
    }
}
