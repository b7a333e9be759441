//! Which locks go first when there are too many: what was used longest ago. Rules: `docs/locks.md#too-many`.
//!
//! What a session holds of one file, or of one object, is an *item* here. Its *weight* is what it counts for. A session, and
//! all together, may hold a certain weight. Above the [`Bound::reclaim`] of either, items are called back, in the order of
//! their last use as far as the target can know it. [`Bound::max`] is where granting ends.
//!
//! Every step costs the logarithm of what there is, but for [`Ages::set_bounds`]. Nothing is called here.

use std::collections::{BTreeMap, BTreeSet};

/// Names a session.
pub type SessionId = u64;

/// When an item was used: a greater one is later. It names the item, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp(u64);

/// Two marks of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Above it items are called back.
    pub reclaim: usize,
    /// From here on nothing is granted.
    pub max: usize,
}

/// What may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// By each session.
    pub session: Bound,
    /// By all together.
    pub total: Bound,
}

/// An item that its session is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess<T> {
    /// Who has it.
    pub session: SessionId,
    /// What it is.
    pub item: T,
    /// What it counted for.
    pub weight: usize,
}

/// What one session holds.
#[derive(Debug)]
struct Of<T> {
    /// The item that was used longest ago first.
    order: BTreeMap<Stamp, (T, usize)>,
    weight: usize,
    /// The part of it that is being called back.
    called: usize,
}

/// Items of all sessions, in the order of their last use.
#[derive(Debug)]
pub struct Ages<T> {
    newest: Stamp,
    sessions: BTreeMap<SessionId, Of<T>>,
    /// Of each session the item that was used longest ago.
    oldest: BTreeSet<(Stamp, SessionId)>,
    /// Sessions that hold more than [`Bounds::session`] has them keep.
    over: BTreeSet<SessionId>,
    weight: usize,
    called: usize,
    bounds: Bounds,
}

impl<T: Copy> Ages<T> {
    /// Nobody holds anything.
    pub fn new(bounds: Bounds) -> Ages<T> {
        Ages {
            newest: Stamp(0),
            sessions: BTreeMap::new(),
            oldest: BTreeSet::new(),
            over: BTreeSet::new(),
            weight: 0,
            called: 0,
            bounds,
        }
    }

    /// What may be held from now on; looks at every session.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        let over = self.sessions.iter().filter(|(_, of)| of.weight > bounds.session.reclaim);
        self.over = over.map(|(session, _)| *session).collect();
    }

    /// Whether `session` may hold more.
    pub fn has_room(&self, session: SessionId) -> bool {
        self.weight < self.bounds.total.max && self.weight_of(session) < self.bounds.session.max
    }

    /// What all hold.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// What one session holds.
    pub fn weight_of(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |of| of.weight)
    }

    /// What one session holds, in the order of the last use.
    pub fn items_of(&self, session: SessionId) -> impl Iterator<Item = T> {
        self.sessions.get(&session).into_iter().flat_map(|of| of.order.values().map(|(item, _)| *item))
    }

    /// `session` holds something new.
    pub fn begin(&mut self, session: SessionId, item: T, weight: usize) -> Stamp {
        self.newest.0 += 1;
        let of = self.sessions.entry(session).or_insert(Of { order: BTreeMap::new(), weight: 0, called: 0 });
        if of.order.is_empty() {
            self.oldest.insert((self.newest, session));
        }
        of.order.insert(self.newest, (item, weight));
        of.weight += weight;
        self.weight += weight;
        if of.weight > self.bounds.session.reclaim {
            self.over.insert(session);
        }
        self.newest
    }

    /// `session` uses an item, or counts it anew.
    pub fn used(&mut self, session: SessionId, stamp: &mut Stamp, weight: usize) {
        let known = self.sessions.get(&session).and_then(|of| of.order.get(stamp)).copied();
        let Some((item, before)) = known else { return };
        if *stamp != self.newest || weight != before {
            self.end(session, *stamp);
            *stamp = self.begin(session, item, weight);
        }
    }

    /// An item counts for another weight; it is not used by that.
    pub fn weighs(&mut self, session: SessionId, stamp: Stamp, weight: usize) {
        let Some(of) = self.sessions.get_mut(&session) else { return };
        let Some((_, known)) = of.order.get_mut(&stamp) else { return };
        let before = std::mem::replace(known, weight);
        of.weight = of.weight + weight - before;
        self.weight = self.weight + weight - before;
        match of.weight > self.bounds.session.reclaim {
            true => self.over.insert(session),
            false => self.over.remove(&session),
        };
    }

    /// `session` holds an item no more.
    pub fn end(&mut self, session: SessionId, stamp: Stamp) {
        let Some(of) = self.sessions.get_mut(&session) else { return };
        let is_oldest = of.order.first_key_value().is_some_and(|(first, _)| *first == stamp);
        let Some((_, weight)) = of.order.remove(&stamp) else { return };
        of.weight -= weight;
        self.weight -= weight;
        if is_oldest {
            self.oldest.remove(&(stamp, session));
            if let Some((next, _)) = of.order.first_key_value() {
                self.oldest.insert((*next, session));
            }
        }
        if of.weight <= self.bounds.session.reclaim {
            self.over.remove(&session);
        }
        if of.order.is_empty() && of.called == 0 {
            self.sessions.remove(&session);
        }
    }

    /// `session` is over; gives what it held.
    pub fn end_session(&mut self, session: SessionId) -> impl Iterator<Item = T> + use<T> {
        let of = self.sessions.remove(&session);
        if let Some(of) = &of {
            self.weight -= of.weight;
            self.called -= of.called;
            self.over.remove(&session);
            if let Some((first, _)) = of.order.first_key_value() {
                self.oldest.remove(&(*first, session));
            }
        }
        of.into_iter().flat_map(|of| of.order.into_values().map(|(item, _)| item))
    }

    /// Whether more is held than is to be kept, besides what is being called back.
    pub fn has_excess(&self) -> bool {
        self.has_excess_in_all() || self.over.iter().any(|session| self.has_excess_of(*session))
    }

    /// The same, asked when only `session` may have come to hold more.
    pub fn is_excessive(&self, session: SessionId) -> bool {
        self.has_excess_in_all() || (!self.over.is_empty() && self.has_excess_of(session))
    }

    fn has_excess_in_all(&self) -> bool {
        self.weight.saturating_sub(self.called) > self.bounds.total.reclaim
    }

    fn has_excess_of(&self, session: SessionId) -> bool {
        let left = |of: &Of<T>| of.weight.saturating_sub(of.called);
        self.sessions.get(&session).is_some_and(|of| left(of) > self.bounds.session.reclaim)
    }

    /// The next item that is too much, of a session that may be called. [`Ages::used`] has to follow, so that whoever does not
    /// give it back is asked for it again after all others, and [`Ages::answered`] at last.
    pub fn next_excess(&mut self, may_call: impl Fn(SessionId) -> bool) -> Option<Excess<T>> {
        let mut over = self.over.iter().copied();
        let session = over.find(|session| self.has_excess_of(*session) && may_call(*session));
        let session = match session {
            None if self.has_excess_in_all() => {
                self.oldest.iter().map(|(_, session)| *session).find(|session| may_call(*session))?
            }
            None => return None,
            Some(session) => session,
        };
        let of = self.sessions.get_mut(&session)?;
        let (item, weight) = of.order.first_key_value().map(|(_, known)| *known)?;
        of.called += weight;
        self.called += weight;
        Some(Excess { session, item, weight })
    }

    /// `session` was asked for something that counted for `weight`, and has answered, or will not.
    pub fn answered(&mut self, session: SessionId, weight: usize) {
        // A session that is over, and begun anew by a request that was under way, was not asked.
        let Some(of) = self.sessions.get_mut(&session) else { return };
        let weight = weight.min(of.called);
        of.called -= weight;
        self.called -= weight;
        if of.order.is_empty() && of.called == 0 {
            self.sessions.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::Rng;

    use super::*;

    const A: SessionId = 1;
    const B: SessionId = 2;
    const C: SessionId = 3;

    fn ages(session: usize, total: usize) -> Ages<u32> {
        let bound = |reclaim| Bound { reclaim, max: 2 * reclaim };
        Ages::new(Bounds { session: bound(session), total: bound(total) })
    }

    /// Everything that is to be called back now, by session and item; the stamps are kept up.
    fn excess(ages: &mut Ages<u32>, stamps: &mut BTreeMap<u32, Stamp>) -> Vec<(SessionId, u32)> {
        let mut all = Vec::new();
        while let Some(Excess { session, item, weight }) = ages.next_excess(|_| true) {
            ages.used(session, stamps.get_mut(&item).expect("it is held"), weight);
            all.push((session, item));
        }
        all
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let (mut ages, mut stamps) = (ages(100, 4), BTreeMap::new());
        for (session, item) in [(A, 1), (B, 2), (A, 3), (B, 4), (C, 5), (C, 6)] {
            stamps.insert(item, ages.begin(session, item, 1));
        }
        ages.used(A, stamps.get_mut(&1).expect("it is held"), 1);
        assert!(ages.has_excess());
        assert_eq!(excess(&mut ages, &mut stamps), [(B, 2), (A, 3)], "1 was used");
        assert!(!ages.has_excess(), "they are being called back");
        ages.end(B, stamps[&2]);
        ages.answered(B, 1);
        // A does not give its item back: it comes behind all others.
        ages.answered(A, 1);
        assert_eq!(excess(&mut ages, &mut stamps), [(B, 4)]);
    }

    #[test]
    fn who_holds_too_much_is_called_before_others() {
        let (mut ages, mut stamps) = (ages(2, 100), BTreeMap::new());
        stamps.insert(1, ages.begin(A, 1, 1));
        for item in 2..6 {
            stamps.insert(item, ages.begin(B, item, 1));
        }
        assert!(ages.is_excessive(B) && !ages.is_excessive(A));
        assert!(ages.has_room(A) && !ages.has_room(B));
        assert_eq!(excess(&mut ages, &mut stamps), [(B, 2), (B, 3)]);
        assert_eq!(ages.next_excess(|session| session != B), None);
        ages.set_bounds(Bounds { session: Bound { reclaim: 0, max: 1 }, ..ages.bounds });
        assert_eq!(excess(&mut ages, &mut stamps), [(A, 1), (B, 4), (B, 5)]);
    }

    #[test]
    fn a_session_that_is_not_to_be_called_is_passed_over() {
        let (mut ages, mut stamps) = (ages(100, 2), BTreeMap::new());
        for (session, item) in [(A, 1), (A, 2), (B, 3), (B, 4)] {
            stamps.insert(item, ages.begin(session, item, 1));
        }
        let called = ages.next_excess(|session| session != A).map(|excess| excess.item);
        assert_eq!(called, Some(3));
        assert_eq!(ages.next_excess(|_| false), None);
    }

    #[test]
    fn heavy_items_count_for_more() {
        let (mut ages, mut stamps) = (ages(10, 100), BTreeMap::new());
        stamps.insert(1, ages.begin(A, 1, 8));
        stamps.insert(2, ages.begin(A, 2, 1));
        assert!(!ages.has_excess());
        ages.weighs(A, stamps[&2], 5);
        assert_eq!(excess(&mut ages, &mut stamps), [(A, 1)], "the other one may stay");
        ages.weighs(A, stamps[&1], 0);
        ages.answered(A, 8);
        assert_eq!((ages.weight(), ages.has_excess()), (5, false));
    }

    /// Random steps of four sessions, compared with a plain list in the order of the last use; sessions end while they are
    /// called, and in the end nothing is left behind.
    #[test]
    fn agrees_with_a_plain_list() {
        for seed in 1..=20 {
            let mut chance = Rng::new(seed);
            let (mut ages, mut stamps) = (ages(12, 30), BTreeMap::new());
            let mut list: Vec<(SessionId, u32, usize)> = Vec::new();
            let mut called: Vec<(SessionId, usize)> = Vec::new();
            for item in 0..3000 {
                let session = 1 + chance.below(4);
                let at = (!list.is_empty()).then(|| chance.below(list.len() as u64) as usize);
                match (chance.below(8), at) {
                    (0..=2, _) if ages.has_room(session) => {
                        let weight = chance.below(3) as usize;
                        stamps.insert(item, ages.begin(session, item, weight));
                        list.push((session, item, weight));
                    }
                    (3, Some(at)) => {
                        let (session, item, weight) = list.remove(at);
                        ages.used(session, stamps.get_mut(&item).expect("held"), weight);
                        list.push((session, item, weight));
                    }
                    (4, Some(at)) => {
                        let (session, item, _) = list.remove(at);
                        ages.end(session, stamps[&item]);
                    }
                    (5, _) => {
                        let sum = |of: Option<SessionId>| -> usize {
                            let own = |session: &SessionId| of.is_none_or(|of| of == *session);
                            let held: usize = list.iter().filter(|(s, ..)| own(s)).map(|(.., w)| w).sum();
                            let called: usize = called.iter().filter(|(s, _)| own(s)).map(|(_, w)| w).sum();
                            held.saturating_sub(called)
                        };
                        let over = (1..=4).find(|session| sum(Some(*session)) > 12);
                        let expected = match over {
                            Some(over) => list.iter().position(|(session, ..)| *session == over),
                            None => (sum(None) > 30).then_some(0),
                        };
                        assert_eq!(ages.has_excess(), expected.is_some());
                        let found = ages.next_excess(|_| true).map(|excess| (excess.session, excess.item));
                        assert_eq!(found, expected.map(|at| (list[at].0, list[at].1)), "seed {seed}");
                        if let Some(at) = expected {
                            let (session, item, weight) = list.remove(at);
                            ages.used(session, stamps.get_mut(&item).expect("held"), weight);
                            list.push((session, item, weight));
                            called.push((session, weight));
                        }
                    }
                    (6, _) if !called.is_empty() => {
                        let (session, weight) =
                            called.swap_remove(chance.below(called.len() as u64) as usize);
                        ages.answered(session, weight);
                    }
                    (7, _) if chance.below(20) == 0 => {
                        ages.end_session(session).for_each(drop);
                        list.retain(|(of, ..)| *of != session);
                        called.retain(|(of, _)| *of != session);
                    }
                    _ => {}
                }
                assert_eq!(ages.weight(), list.iter().map(|(.., weight)| weight).sum());
            }
            for (session, item, _) in list {
                ages.end(session, stamps[&item]);
            }
            for (session, weight) in called {
                ages.answered(session, weight);
            }
            assert!(ages.sessions.is_empty() && ages.oldest.is_empty() && ages.over.is_empty());
            assert_eq!((ages.weight, ages.called), (0, 0));
        }
    }
}
