//! Sessions with OSTs that this client does not use any more: their locks are given back, and they end. They begin again with the next
//! use (Lustre's `lru_max_age` and `osc.*.idle_timeout`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::DataTarget;
use rpc::LinkState;
use rt::sync::Notify;
use rt::wait::unless;
use rt::{Rt, Time};

use super::RangeLocks;
use crate::lease::Lease;
use crate::order::{IDLE, Mutex};
use crate::targets::{Target, Targets};

/// A session in which nothing is held ends after this time without a request, unless an administrator says otherwise.
const SESSION_IDLE: Duration = Duration::from_secs(20);
/// So long that it is never over.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Sessions with OSTs that may be open, and since when they are not used. Looked at are those that were used since the last
/// look, and those that are due: what a look costs does not depend on how many sessions there are.
#[derive(Default)]
struct Idle {
    osts: BTreeMap<DataTarget, Unused>,
    /// The same, in the order in which they are due.
    due: BTreeSet<(Time, DataTarget)>,
    /// After which time without a request a session ends, where that was set.
    idle_max: BTreeMap<DataTarget, Duration>,
    /// How many were looked at so far.
    looks: u64,
}

#[derive(Clone, Copy)]
struct Unused {
    since: Time,
    /// When it is looked at what is held.
    look_at: Time,
}

/// How a session is that is due.
#[derive(Debug, Clone, Copy)]
struct State {
    /// There is a connection, or there is to be one.
    is_open: bool,
    /// Something is held in it.
    holds: bool,
    /// What is held goes after this time.
    age_max: Duration,
}

/// What is to be done about a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// To end it.
    Rest,
    /// To give back what is held in it.
    GiveBack,
}

impl Idle {
    /// The session was used since the last look. What is held goes after `age_max`.
    fn used(&mut self, ost: DataTarget, age_max: Duration, now: Time) {
        self.looks += 1;
        self.plan(ost, Unused { since: now, look_at: now + self.idle_max(ost).min(age_max) });
    }

    /// After which time without a request the session ends.
    fn idle_max(&self, ost: DataTarget) -> Duration {
        self.idle_max.get(&ost).copied().unwrap_or(SESSION_IDLE)
    }

    /// When the first of the sessions with OSTs is to end, if nothing is held.
    fn first_end(&self) -> Option<Time> {
        let ends = self.osts.iter().filter(|(ost, _)| ost.ost().is_some());
        ends.map(|(ost, unused)| (unused.since, self.idle_max(*ost)))
            .filter(|(_, idle_max)| *idle_max < NEVER)
            .map(|(since, idle_max)| since + idle_max)
            .min()
    }

    /// Forgets those that are to end, for nothing is held.
    fn take_ended(&mut self, now: Time) -> Vec<DataTarget> {
        let is_over = |(ost, unused): (&DataTarget, &Unused)| {
            (ost.ost().is_some() && now - unused.since >= self.idle_max(*ost)).then_some(*ost)
        };
        let ended: Vec<DataTarget> = self.osts.iter().filter_map(is_over).collect();
        for ost in &ended {
            self.forget(*ost);
        }
        ended
    }

    fn forget(&mut self, ost: DataTarget) {
        if let Some(unused) = self.osts.remove(&ost) {
            self.due.remove(&(unused.look_at, ost));
        }
    }

    /// What is held in it may have to go earlier than was planned.
    fn look_soon(&mut self, ost: DataTarget, now: Time) {
        if let Some(unused) = self.osts.get(&ost).copied() {
            self.plan(ost, Unused { look_at: now, ..unused });
        }
    }

    fn plan(&mut self, ost: DataTarget, unused: Unused) {
        if let Some(before) = self.osts.insert(ost, unused) {
            self.due.remove(&(before.look_at, ost));
        }
        self.due.insert((unused.look_at, ost));
    }

    /// One that is due now.
    fn next(&mut self, now: Time) -> Option<DataTarget> {
        let (_, ost) = self.due.first().copied().filter(|(look_at, _)| *look_at <= now)?;
        Some(ost)
    }

    /// What is to be done about one that is due.
    fn look(&mut self, ost: DataTarget, state: State, now: Time) -> Due {
        self.looks += 1;
        let Some(unused) = self.osts.get(&ost).copied() else { return Due::Nothing };
        let idle_max = self.idle_max(ost);
        let soon = now + idle_max;
        match state {
            State { holds: true, age_max, .. } if now - unused.since >= age_max => {
                // When that is done, the session rests.
                // What is in use is looked at again.
                self.plan(ost, Unused { since: now, look_at: now + idle_max.min(age_max) });
                Due::GiveBack
            }
            State { holds: true, age_max, .. } => {
                self.plan(ost, Unused { look_at: unused.since + age_max, ..unused });
                Due::Nothing
            }
            State { is_open: true, .. } if now - unused.since < idle_max => {
                self.plan(ost, Unused { look_at: unused.since + idle_max, ..unused });
                Due::Nothing
            }
            State { is_open: true, .. } => {
                self.plan(ost, Unused { look_at: soon, ..unused });
                Due::Rest
            }
            // It comes back with its next use.
            State { is_open: false, .. } => {
                self.forget(ost);
                Due::Nothing
            }
        }
    }

    /// OSTs of which a session may be open.
    fn osts(&self) -> impl Iterator<Item = DataTarget> {
        self.osts.keys().copied()
    }

    /// How many sessions were looked at so far.
    fn looks(&self) -> u64 {
        self.looks
    }
}

/// Looks after the sessions of a client.
pub(crate) struct Resting {
    rt: Rt,
    targets: Arc<Targets>,
    lease: Arc<Lease>,
    locks: Arc<RangeLocks>,
    idle: Mutex<IDLE, Idle>,
    /// Somebody waits for the ends of sessions while there is no lease, and is told when they change.
    rests_all: AtomicBool,
    changed: Notify,
}

impl Resting {
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, lease: Arc<Lease>, locks: Arc<RangeLocks>) -> Resting {
        let (rests_all, changed) = (AtomicBool::default(), Notify::new());
        Resting { rt, targets, lease, locks, idle: Mutex::default(), rests_all, changed }
    }

    /// What is held of an OST may have to go earlier than was planned.
    pub(crate) fn look_soon(&self, ost: DataTarget) {
        self.idle.lock().look_soon(ost, self.rt.now());
    }

    /// After which time without a request a session with this OST ends in which nothing is held; `None` for never.
    pub(crate) fn idle_max(&self, ost: DataTarget) -> Option<Duration> {
        Some(self.idle.lock().idle_max(ost)).filter(|idle_max| *idle_max < NEVER)
    }

    /// Sets that. One that has ended meanwhile ends with the next look.
    pub(crate) fn set_idle_max(self: &Arc<Self>, ost: DataTarget, idle_max: Option<Duration>) {
        let mut idle = self.idle.lock();
        idle.idle_max.insert(ost, idle_max.unwrap_or(NEVER));
        idle.look_soon(ost, self.rt.now());
        drop(idle);
        if !self.lease.is_on() {
            self.rest_all();
        }
        self.changed.notify_one();
    }

    /// How many sessions were looked at so far.
    pub(crate) fn looks(&self) -> u64 {
        self.idle.lock().looks()
    }

    /// Looks after sessions with OSTs; called every few seconds while this client holds anything.
    pub(crate) fn rest_unused(self: &Arc<Self>) {
        let now = self.rt.now();
        let (mut resting, mut giving_back) = (Vec::new(), Vec::new());
        let used = {
            let mut idle = self.idle.lock();
            let used = self.note_used(&mut idle, now);
            while let Some(ost) = idle.next(now) {
                let link = self.targets.made(ost.into()).map(|target| target.state().link);
                let state = State {
                    // The session with an MDT stays.
                    is_open: ost.ost().is_some()
                        && matches!(link, Some(LinkState::Connected(_) | LinkState::Connecting)),
                    holds: self.locks.table.spaces.count(ost) > 0,
                    age_max: self.locks.table.spaces.keep(ost).age_max,
                };
                match idle.look(ost, state, now) {
                    Due::Nothing => {}
                    Due::Rest => resting.push(ost),
                    Due::GiveBack => giving_back.push(ost),
                }
            }
            used
        };
        self.give_back_excess(used);
        for object in giving_back.into_iter().flat_map(|ost| self.locks.table.of(ost)) {
            self.locks.leaver.leave(object);
        }
        self.rest_sessions(resting);
    }

    /// OSTs that were used since the last look.
    fn note_used(&self, idle: &mut Idle, now: Time) -> Vec<DataTarget> {
        let mut used = Vec::new();
        for (ost, target) in self.targets.take_used() {
            if target.was_used() {
                idle.used(ost, self.locks.table.spaces.keep(ost).age_max, now);
                used.push(ost);
            }
        }
        used
    }

    /// Gives back what is too much: some of it was in use when more came.
    fn give_back_excess(self: &Arc<Self>, used: Vec<DataTarget>) {
        for object in used.into_iter().flat_map(|ost| self.locks.table.excess(ost)) {
            self.locks.leaver.leave(object);
        }
    }

    /// The same at the end, when nothing is held any more and nobody looks.
    pub(crate) fn rest_all(self: &Arc<Self>) {
        if self.rests_all.swap(true, Ordering::AcqRel) {
            // Some may end earlier than those that it knows of.
            return self.changed.notify_one();
        }
        let resting = self.clone();
        self.rt.spawn(async move {
            loop {
                resting.rest_at_their_ends().await;
                resting.rests_all.store(false, Ordering::Release);
                // Others that came right now have left it to this one.
                let is_wanted = !resting.lease.is_on() && resting.first_end().is_some();
                if !is_wanted || resting.lease.is_closed() || resting.rests_all.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    async fn rest_at_their_ends(self: &Arc<Self>) {
        while let Some(end) = self.first_end() {
            let left = end.max(self.rt.now()) - self.rt.now();
            let rested = self.rt.timeout(left, self.changed.notified());
            if unless(self.lease.ended(), rested).await.is_none() || self.lease.is_on() {
                return;
            }
            self.rest_sessions(self.take_ended());
        }
    }

    fn take_ended(&self) -> Vec<DataTarget> {
        let mut idle = self.idle.lock();
        self.note_used(&mut idle, self.rt.now());
        idle.take_ended(self.rt.now())
    }

    fn first_end(&self) -> Option<Time> {
        let mut idle = self.idle.lock();
        self.note_used(&mut idle, self.rt.now());
        idle.first_end()
    }

    fn rest_sessions(self: &Arc<Self>, osts: Vec<DataTarget>) {
        for ost in osts {
            if let Some(target) = self.targets.made(ost.into()) {
                self.rest_session(ost, target);
            }
        }
    }

    fn rest_session(self: &Arc<Self>, ost: DataTarget, target: Arc<Target>) {
        if !matches!(target.state().link, LinkState::Connected(_)) {
            return;
        }
        let resting = self.clone();
        self.rt.spawn(async move {
            target.make_durable().await;
            target.rest(|| resting.locks.table.spaces.count(ost) == 0).await;
        });
    }

    /// Whether a session has something under way, or something that is not durable.
    pub(crate) fn has_busy_session(&self) -> bool {
        let osts: Vec<DataTarget> = {
            let mut idle = self.idle.lock();
            self.note_used(&mut idle, self.rt.now());
            idle.looks += idle.osts.len() as u64;
            idle.osts().collect()
        };
        let busy = |target: Arc<Target>| {
            let state = target.state();
            state.in_flight > 0 || state.retained_count > 0
        };
        self.targets.mdts().into_iter().any(busy)
            || osts.into_iter().any(|ost| self.targets.made(ost.into()).is_some_and(busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::OstIndex;

    fn at(secs: u64) -> Time {
        Time::default() + Duration::from_secs(secs)
    }

    fn target(index: u32) -> DataTarget {
        OstIndex(index).into()
    }

    fn index(target: DataTarget) -> u32 {
        target.ost().expect("all are OSTs").0
    }

    const AGE: Duration = Duration::from_secs(600);

    /// Looks at what is due every 5 s; when something is to be done about an OST.
    fn seen(idle: &mut Idle, until: u64, mut state: impl FnMut(u64, u32) -> State) -> Vec<(u64, u32, Due)> {
        let mut seen = Vec::new();
        for now in (105..until).step_by(5) {
            while let Some(ost) = idle.next(at(now)) {
                match idle.look(ost, state(now, index(ost)), at(now)) {
                    Due::Nothing => {}
                    due => seen.push((now, index(ost), due)),
                }
            }
        }
        seen
    }

    #[test]
    fn a_session_rests_soon_and_gives_back_what_it_holds_late() {
        let mut idle = Idle::default();
        idle.used(target(0), AGE, at(100));
        idle.used(target(1), AGE, at(100));
        idle.used(target(0), AGE, at(110));
        // The second holds something until it is to be given back; a session that rests is open no more.
        let mut rests = BTreeSet::new();
        let seen = seen(&mut idle, 1500, |now, ost| {
            let (is_open, holds) = (!rests.contains(&ost), ost == 1 && now <= 700);
            if !holds {
                rests.insert(ost);
            }
            State { is_open, holds, age_max: AGE }
        });
        assert_eq!(seen, [(130, 0, Due::Rest), (700, 1, Due::GiveBack), (720, 1, Due::Rest)]);
        assert!(idle.osts.is_empty() && idle.due.is_empty(), "they come back with their next use");
    }

    #[test]
    fn what_is_held_may_have_to_go_earlier() {
        let mut idle = Idle::default();
        let held = |age_max| move |_, _| State { is_open: true, holds: true, age_max };
        idle.used(target(0), AGE, at(100));
        assert_eq!(seen(&mut idle, 300, held(AGE)), []);
        idle.look_soon(target(0), at(105));
        let short = Duration::from_secs(30);
        let given = seen(&mut idle, 110, held(short));
        assert_eq!(given, [], "it is not old enough");
        assert_eq!(seen(&mut idle, 140, held(short)), [(130, 0, Due::GiveBack)]);
    }

    #[test]
    fn a_look_costs_the_same_however_many_sessions_there_have_been() {
        let mut idle = Idle::default();
        for ost in 0..10_000 {
            idle.used(target(ost), AGE, at(100));
        }
        let one = |_, ost| State { is_open: false, holds: ost == 77, age_max: AGE };
        seen(&mut idle, 130, one);
        let before = idle.looks();
        seen(&mut idle, 130 + 7200, one);
        let looks = idle.looks() - before;
        assert!(looks <= 60, "{looks} in 1440 looks at one session with locks");
    }
}
