//! Inode bits: who may keep what he was told of which file. Rules in `docs/locks.md#inode-bits`.
//!
//! Sessions get bits with the answers to what they ask, and give them back when they are called. There is no queue:
//! an operation that is going to change a file first *claims* the bits that the change concerns. From then on no
//! other session is granted them, and once those that have them have given them up, the change can be made. Claims
//! do not exclude each other: what orders changes is not here.
//!
//! The caller numbers the grants. A number says which grants a session has given up, whatever the order in which its
//! answers, its callbacks and its cancels arrive.
//!
//! Whoever holds too much is called back for what it used longest ago ([`super::ages`]). A file is used when bits of it
//! are granted, and when an operation of the same session claims some.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use smallvec::SmallVec;

use super::ages::{Ages, Bounds, Stamp};
use crate::ids::Fid;
use crate::wire::messages::{BitLock, Granted};

pub use super::ages::SessionId;

/// Names an operation that claims bits; never used twice.
pub type OperationId = u64;

/// Bits that were granted with one number.
#[derive(Debug, Clone, Copy)]
struct Part {
    bits: u32,
    number: u64,
}

/// What one session has of one file: most often from one grant. No bit is in two parts, and no part is empty.
type Parts = SmallVec<[Part; 1]>;

/// The same, and when it was used.
#[derive(Debug)]
struct Held {
    parts: Parts,
    used: Stamp,
}

/// What an operation claims of one file.
#[derive(Debug, Clone, Copy)]
struct Claim {
    session: SessionId,
    bits: u32,
}

/// Bits that another session has and an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Who has them.
    pub session: SessionId,
    /// Which of those that are needed.
    pub bits: u32,
    /// Number of the newest grant of any of them.
    pub number: u64,
}

/// The bits of some files.
#[derive(Debug)]
pub struct Bits {
    held: BTreeMap<(Fid, SessionId), Held>,
    /// The files of each session.
    ages: Ages<Fid>,
    claims: BTreeMap<(Fid, OperationId), Claim>,
}

impl Bits {
    /// Nobody has anything. `bounds` count pairs of a session and a file.
    pub fn new(bounds: Bounds) -> Bits {
        Bits { held: BTreeMap::new(), ages: Ages::new(bounds), claims: BTreeMap::new() }
    }

    /// What may be granted from now on; looks at every session.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.ages.set_bounds(bounds);
    }

    /// Grants `session` what nobody else claims of `bits`. `number` is greater than that of every earlier grant. What
    /// the session is to keep is read after this, not before.
    pub fn grant(&mut self, session: SessionId, fid: Fid, bits: u32, number: u64) -> Granted {
        let bits = bits & !self.claimed_by_others(session, fid);
        if bits == 0 {
            return Granted::default();
        }
        let part = Part { bits, number };
        match self.held.entry((fid, session)) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                take(&mut held.parts, bits, number);
                held.parts.push(part);
                self.ages.used(session, &mut held.used, 1);
            }
            Entry::Vacant(_) if !self.ages.has_room(session) => return Granted::default(),
            Entry::Vacant(free) => {
                let used = self.ages.begin(session, fid, 1);
                free.insert(Held { parts: SmallVec::from_buf([part]), used });
            }
        }
        Granted { bits, number }
    }

    /// `operation`, which belongs to a request of `session`, needs `bits`, besides what it claimed before. Until it
    /// releases them nobody else is granted them; those who have them now are returned, and have to give them up first.
    pub fn claim(
        &mut self,
        operation: OperationId,
        session: SessionId,
        fid: Fid,
        bits: u32,
    ) -> SmallVec<[Conflict; 2]> {
        let claim = self.claims.entry((fid, operation)).or_insert(Claim { session, bits: 0 });
        claim.bits |= bits;
        let mut conflicts = SmallVec::new();
        for ((_, holder), held) in self.held.range_mut((fid, SessionId::MIN)..=(fid, SessionId::MAX)) {
            match *holder == session {
                true => self.ages.used(session, &mut held.used, 1),
                false => conflicts.extend(conflict(*holder, &held.parts, bits)),
            }
        }
        conflicts
    }

    /// `operation` is over, or does not need the file any more.
    pub fn release(&mut self, operation: OperationId, fid: Fid) {
        self.claims.remove(&(fid, operation));
    }

    /// `session` has given up what it was granted of `lock.bits` up to `lock.number`, because it was asked or of itself.
    /// Returns the bits that are free now.
    pub fn given_up(&mut self, session: SessionId, lock: &BitLock) -> u32 {
        let Some(held) = self.held.get_mut(&(lock.fid, session)) else { return 0 };
        let freed = take(&mut held.parts, lock.bits, lock.number);
        if held.parts.is_empty() {
            self.ages.end(session, held.used);
            self.held.remove(&(lock.fid, session));
        }
        freed
    }

    /// `session` has nothing any more.
    pub fn drop_session(&mut self, session: SessionId) {
        for fid in self.ages.end_session(session) {
            self.held.remove(&(fid, session));
        }
    }

    /// Whether more is held than is to be kept, besides what is being called back.
    pub fn has_excess(&self) -> bool {
        self.ages.has_excess()
    }

    /// The same, asked when only `session` may have come to hold more.
    pub fn is_excessive(&self, session: SessionId) -> bool {
        self.ages.is_excessive(session)
    }

    /// What is to be called back next because too much is held, of a session that may be called.
    /// [`Bits::excess_answered`] has to follow.
    pub fn next_excess(&mut self, may_call: impl Fn(SessionId) -> bool) -> Option<(Fid, Conflict)> {
        let excess = self.ages.next_excess(may_call)?;
        let held = self.held.get_mut(&(excess.item, excess.session))?;
        self.ages.used(excess.session, &mut held.used, excess.weight);
        Some((excess.item, conflict(excess.session, &held.parts, u32::MAX)?))
    }

    /// `session` has answered a callback of [`Bits::next_excess`], or will not; what it gave up is told apart.
    pub fn excess_answered(&mut self, session: SessionId) {
        self.ages.answered(session, 1);
    }

    /// The bits that `session` has of a file.
    pub fn held_by(&self, session: SessionId, fid: Fid) -> u32 {
        self.held.get(&(fid, session)).map_or(0, |held| all(&held.parts))
    }

    /// Who has which bits of which file.
    pub fn held(&self) -> impl Iterator<Item = (SessionId, Fid, u32)> {
        self.held.iter().map(|((fid, session), held)| (*session, *fid, all(&held.parts)))
    }

    /// Who has which bits of one file.
    pub fn holders(&self, fid: Fid) -> impl Iterator<Item = (SessionId, u32)> {
        let of_file = self.held.range((fid, SessionId::MIN)..=(fid, SessionId::MAX));
        of_file.map(|((_, session), held)| (*session, all(&held.parts)))
    }

    /// Which bits of which file `session` has, in the order of the last use.
    pub fn held_by_session(&self, session: SessionId) -> impl Iterator<Item = (Fid, u32)> {
        self.ages.items_of(session).map(move |fid| (fid, self.held_by(session, fid)))
    }

    /// Which operation of which session claims which bits of which file.
    pub fn claims(&self) -> impl Iterator<Item = (OperationId, SessionId, Fid, u32)> {
        self.claims.iter().map(|((fid, operation), claim)| (*operation, claim.session, *fid, claim.bits))
    }

    /// Pairs of a session and a file that it has bits of.
    pub fn lock_count(&self) -> usize {
        self.held.len()
    }

    fn claimed_by_others(&self, session: SessionId, fid: Fid) -> u32 {
        if self.claims.is_empty() {
            return 0;
        }
        self.claims
            .range((fid, OperationId::MIN)..=(fid, OperationId::MAX))
            .filter(|(_, claim)| claim.session != session)
            .fold(0, |bits, (_, claim)| bits | claim.bits)
    }
}

/// The bits of all parts.
fn all(parts: &Parts) -> u32 {
    parts.iter().fold(0, |bits, part| bits | part.bits)
}

/// Takes what was granted of `bits` up to `number` out of `held`; returns what that was.
fn take(held: &mut Parts, bits: u32, number: u64) -> u32 {
    let mut taken = 0;
    for part in held.iter_mut().filter(|part| part.number <= number) {
        taken |= part.bits & bits;
        part.bits &= !bits;
    }
    held.retain(|part| part.bits != 0);
    taken
}

fn conflict(session: SessionId, held: &Parts, wanted: u32) -> Option<Conflict> {
    let parts = held.iter().filter(|part| part.bits & wanted != 0);
    let conflict = parts.fold(Conflict { session, bits: 0, number: 0 }, |found, part| Conflict {
        bits: found.bits | part.bits & wanted,
        number: found.number.max(part.number),
        ..found
    });
    (conflict.bits != 0).then_some(conflict)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rt::sim::Rng;

    use super::*;
    use crate::lock::ages::Bound;
    use crate::wire::messages::{LOCK_ALL, LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE};

    const F: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const G: Fid = Fid { oid: 2, ..F };
    const A: SessionId = 10;
    const B: SessionId = 11;
    const C: SessionId = 12;

    fn bits() -> Bits {
        bounded(1000, 1000)
    }

    fn bounded(session: usize, total: usize) -> Bits {
        let bound = |max| Bound { reclaim: max, max };
        Bits::new(Bounds { session: bound(session), total: bound(total) })
    }

    fn up_to(fid: Fid, bits: u32, number: u64) -> BitLock {
        BitLock { fid, bits, number }
    }

    #[test]
    fn a_change_waits_for_those_who_have_what_it_concerns() {
        let mut table = bits();
        let both = LOCK_UPDATE | LOCK_PERM;
        assert_eq!(table.grant(A, F, both, 1), Granted { bits: both, number: 1 });
        assert_eq!(table.grant(B, F, both, 2), Granted { bits: both, number: 2 });
        assert_eq!(table.grant(C, F, LOCK_PERM, 3), Granted { bits: LOCK_PERM, number: 3 });
        assert_eq!(table.grant(C, G, LOCK_UPDATE, 4), Granted { bits: LOCK_UPDATE, number: 4 });
        let conflict = Conflict { session: B, bits: LOCK_UPDATE, number: 2 };
        assert_eq!(table.claim(1, A, F, LOCK_UPDATE).to_vec(), [conflict]);
        assert_eq!(table.grant(C, F, both, 5), Granted { bits: LOCK_PERM, number: 5 }, "claimed by A");
        assert_eq!(table.grant(A, F, both, 6), Granted { bits: both, number: 6 }, "its own claim");
        assert_eq!(table.given_up(B, &up_to(F, LOCK_UPDATE, 2)), LOCK_UPDATE);
        assert!(table.claim(1, A, F, LOCK_UPDATE).is_empty());
        table.release(1, F);
        assert_eq!(table.grant(C, F, both, 7), Granted { bits: both, number: 7 });
        assert_eq!(table.held_by(B, F), LOCK_PERM);
    }

    #[test]
    fn what_was_granted_later_is_not_given_up() {
        let mut table = bits();
        table.grant(A, F, LOCK_UPDATE | LOCK_LOOKUP, 1);
        table.grant(A, F, LOCK_PERM | LOCK_LOOKUP, 2);
        assert_eq!(table.given_up(A, &up_to(F, LOCK_ALL, 1)), LOCK_UPDATE);
        assert_eq!(table.held_by(A, F), LOCK_PERM | LOCK_LOOKUP);
        let conflict = Conflict { session: A, bits: LOCK_LOOKUP, number: 2 };
        assert_eq!(table.claim(1, B, F, LOCK_UPDATE | LOCK_LOOKUP).to_vec(), [conflict]);
        assert_eq!(table.given_up(A, &up_to(F, LOCK_ALL, 2)), LOCK_PERM | LOCK_LOOKUP);
        assert_eq!((table.lock_count(), table.given_up(A, &up_to(F, LOCK_ALL, 9))), (0, 0));
    }

    #[test]
    fn claims_do_not_exclude_each_other_and_end_one_by_one() {
        let mut table = bits();
        assert!(table.claim(1, A, F, LOCK_UPDATE).is_empty());
        assert!(table.claim(2, B, F, LOCK_UPDATE).is_empty());
        assert_eq!(table.grant(A, F, LOCK_UPDATE, 1), Granted::default(), "B claims it");
        table.release(1, F);
        assert_eq!(table.grant(C, F, LOCK_UPDATE, 2), Granted::default());
        table.release(2, F);
        assert_eq!(table.grant(C, F, LOCK_UPDATE, 3).bits, LOCK_UPDATE);
    }

    #[test]
    fn a_session_that_ends_has_nothing() {
        let mut table = bits();
        for (number, fid) in (1..=100).map(|oid| (u64::from(oid), Fid { oid, ..F })) {
            table.grant(A, fid, LOCK_ALL, number);
            table.grant(B, fid, LOCK_OPEN, number + 100);
        }
        table.drop_session(A);
        assert_eq!((table.lock_count(), table.held_by(A, F)), (100, 0));
        assert_eq!(
            table.claim(1, C, F, LOCK_ALL).to_vec(),
            [Conflict { session: B, bits: LOCK_OPEN, number: 101 }]
        );
        table.drop_session(B);
        assert!(table.held.is_empty() && table.ages.weight() == 0);
    }

    #[test]
    fn beyond_the_limits_nothing_is_granted() {
        let mut table = bounded(1, 2);
        assert_eq!(table.grant(A, F, LOCK_UPDATE, 1).bits, LOCK_UPDATE);
        assert_eq!(table.grant(A, G, LOCK_UPDATE, 2), Granted::default());
        assert_eq!(table.grant(A, F, LOCK_PERM, 3).bits, LOCK_PERM, "no further file");
        assert_eq!(table.grant(B, G, LOCK_UPDATE, 4).bits, LOCK_UPDATE, "another session");
        assert_eq!(table.grant(C, G, LOCK_UPDATE, 4), Granted::default(), "that is all");
        table.given_up(A, &up_to(F, LOCK_ALL, 3));
        assert_eq!(table.grant(A, G, LOCK_UPDATE, 5).bits, LOCK_UPDATE);
    }

    #[test]
    fn what_was_used_longest_ago_is_called_back() {
        let bound = |reclaim, max| Bound { reclaim, max };
        let mut table = Bits::new(Bounds { session: bound(2, 3), total: bound(100, 100) });
        let fid = |oid| Fid { oid, ..F };
        for oid in 1..=3 {
            table.grant(A, fid(oid), LOCK_UPDATE, u64::from(oid));
        }
        table.grant(A, fid(1), LOCK_PERM, 4);
        table.claim(1, A, fid(2), LOCK_UPDATE);
        assert_eq!(table.grant(A, fid(4), LOCK_UPDATE, 5), Granted::default(), "there is no room");
        assert!(table.is_excessive(A) && !table.is_excessive(B));
        let conflict = Conflict { session: A, bits: LOCK_UPDATE, number: 3 };
        assert_eq!(table.next_excess(|_| true), Some((fid(3), conflict)), "the others were used since");
        assert_eq!(table.next_excess(|_| true), None);
        table.given_up(A, &up_to(fid(3), LOCK_UPDATE, 3));
        table.excess_answered(A);
        assert!(!table.has_excess());
        assert_eq!(table.grant(A, fid(4), LOCK_UPDATE, 6).bits, LOCK_UPDATE);
        let conflict = Conflict { session: A, bits: LOCK_UPDATE | LOCK_PERM, number: 4 };
        assert_eq!(table.next_excess(|_| true), Some((fid(1), conflict)), "all that is held of it");
    }

    /// The same rules, bit by bit and without any thought of speed.
    #[derive(Default)]
    struct Model {
        /// Session, file, bit -> number of its grant.
        held: BTreeMap<(SessionId, Fid, u32), u64>,
        /// Operation, its session, file, bit.
        claims: BTreeSet<(OperationId, SessionId, Fid, u32)>,
    }

    impl Model {
        fn grant(&mut self, session: SessionId, fid: Fid, bits: u32, number: u64) -> u32 {
            let free = each(bits).filter(|bit| {
                !self.claims.iter().any(|(_, by, of, claimed)| *by != session && *of == fid && claimed == bit)
            });
            let free: Vec<u32> = free.collect();
            self.held.extend(free.iter().map(|bit| ((session, fid, *bit), number)));
            free.iter().sum()
        }

        fn conflicts(&self, session: SessionId, fid: Fid, bits: u32) -> BTreeMap<SessionId, (u32, u64)> {
            let mut conflicts = BTreeMap::new();
            for (&(holder, of, bit), &number) in &self.held {
                if holder != session && of == fid && bits & bit != 0 {
                    let entry: &mut (u32, u64) = conflicts.entry(holder).or_default();
                    *entry = (entry.0 | bit, entry.1.max(number));
                }
            }
            conflicts
        }
    }

    fn each(bits: u32) -> impl Iterator<Item = u32> {
        (0..6).map(|shift| 1 << shift).filter(move |bit| bits & bit != 0)
    }

    /// Random steps of four sessions on three files, against the model; and whenever a claim met no conflict, nobody
    /// else has its bits until it is released.
    #[test]
    fn agrees_with_the_naive_model() {
        for seed in 1..=25 {
            let mut chance = Rng::new(seed);
            let (mut table, mut model) = (bits(), Model::default());
            // Claims that met no conflict.
            let mut complete: BTreeMap<(OperationId, Fid), (SessionId, u32)> = BTreeMap::new();
            for number in 1..2000 {
                let session = 1 + chance.below(4);
                let fid = Fid { oid: 1 + chance.below(3) as u32, ..F };
                let wanted = 1 + chance.below(u64::from(LOCK_ALL)) as u32;
                // An operation belongs to one session.
                let operation = session * 10 + chance.below(2);
                match chance.below(8) {
                    0..=2 => {
                        let granted = table.grant(session, fid, wanted, number);
                        assert_eq!(granted.bits, model.grant(session, fid, wanted, number));
                    }
                    3 | 4 => {
                        let found = table.claim(operation, session, fid, wanted);
                        model.claims.extend(each(wanted).map(|bit| (operation, session, fid, bit)));
                        let found: BTreeMap<_, _> =
                            found.into_iter().map(|c| (c.session, (c.bits, c.number))).collect();
                        assert_eq!(found, model.conflicts(session, fid, wanted));
                        if found.is_empty() {
                            complete.entry((operation, fid)).or_insert((session, 0)).1 |= wanted;
                        }
                    }
                    5 => {
                        table.release(operation, fid);
                        model.claims.retain(|(by, _, of, _)| (*by, *of) != (operation, fid));
                        complete.remove(&(operation, fid));
                    }
                    6 => {
                        let until = number.saturating_sub(chance.below(20));
                        table.given_up(session, &up_to(fid, wanted, until));
                        model.held.retain(|(holder, of, bit), at| {
                            *holder != session || *of != fid || wanted & *bit == 0 || *at > until
                        });
                    }
                    _ if chance.below(10) == 0 => {
                        table.drop_session(session);
                        model.held.retain(|(holder, ..), _| *holder != session);
                    }
                    _ => {}
                }
                let held = each(LOCK_ALL).filter(|bit| model.held.contains_key(&(session, fid, *bit))).sum();
                assert_eq!(table.held_by(session, fid), held);
                for ((_, fid), (owner, bits)) in &complete {
                    let others = (1..=4).filter(|other| other != owner);
                    others.for_each(|other| assert_eq!(table.held_by(other, *fid) & bits, 0, "seed {seed}"));
                }
            }
        }
    }
}
