//! Inode bits: who may keep what he was told of which file. Rules in `docs/locks.md#inode-bits`.
//!
//! Sessions get bits with the answers to what they ask, and give them back when they are called. There is no queue:
//! an operation that is going to change a file first *claims* the bits that the change concerns. From then on no
//! other session is granted them, and once those that have them have given them up, the change can be made. Claims
//! do not exclude each other: what orders changes is not here.
//!
//! The caller numbers the grants. A number says which grants a session has given up, whatever the order in which its
//! answers, its callbacks and its cancels arrive.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::ids::Fid;
use crate::wire::messages::{BitLock, Granted};

/// Names a session.
pub type SessionId = u64;
/// Names an operation that claims bits; never used twice.
pub type OperationId = u64;

/// Bits that were granted with one number.
#[derive(Debug, Clone, Copy)]
struct Part {
    bits: u32,
    number: u64,
}

/// What one session has of one file: most often from one grant. No bit is in two parts, and no part is empty.
type Held = SmallVec<[Part; 1]>;

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
    files: BTreeMap<SessionId, BTreeSet<Fid>>,
    claims: BTreeMap<(Fid, OperationId), Claim>,
    limits: Limits,
}

/// How much may be granted: pairs of a session and a file.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// To one session.
    pub per_session: usize,
    /// To all together.
    pub total: usize,
}

impl Bits {
    /// Nobody has anything. Beyond `limits` nothing is granted.
    pub fn new(limits: Limits) -> Bits {
        Bits { held: BTreeMap::new(), files: BTreeMap::new(), claims: BTreeMap::new(), limits }
    }

    /// Grants `session` what nobody else claims of `bits`. `number` is greater than that of every earlier grant. What
    /// the session is to keep is read after this, not before.
    pub fn grant(&mut self, session: SessionId, fid: Fid, bits: u32, number: u64) -> Granted {
        let bits = bits & !self.claimed_by_others(session, fid);
        if bits == 0 || !self.has_room(session, fid) {
            return Granted::default();
        }
        let held = self.held.entry((fid, session)).or_default();
        if held.is_empty() {
            self.files.entry(session).or_default().insert(fid);
        }
        take(held, bits, number);
        held.push(Part { bits, number });
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
        self.held
            .range((fid, SessionId::MIN)..=(fid, SessionId::MAX))
            .filter(|((_, holder), _)| *holder != session)
            .filter_map(|((_, holder), held)| conflict(*holder, held, bits))
            .collect()
    }

    /// `operation` is over, or does not need the file any more.
    pub fn release(&mut self, operation: OperationId, fid: Fid) {
        self.claims.remove(&(fid, operation));
    }

    /// `session` has given up what it was granted of `lock.bits` up to `lock.number`, because it was asked or of itself.
    /// Returns the bits that are free now.
    pub fn given_up(&mut self, session: SessionId, lock: &BitLock) -> u32 {
        let Some(held) = self.held.get_mut(&(lock.fid, session)) else { return 0 };
        let freed = take(held, lock.bits, lock.number);
        if held.is_empty() {
            self.held.remove(&(lock.fid, session));
            self.forget(session, lock.fid);
        }
        freed
    }

    /// `session` has nothing any more.
    pub fn drop_session(&mut self, session: SessionId) {
        for fid in self.files.remove(&session).unwrap_or_default() {
            self.held.remove(&(fid, session));
        }
    }

    /// The bits that `session` has of a file.
    pub fn held_by(&self, session: SessionId, fid: Fid) -> u32 {
        self.held.get(&(fid, session)).map_or(0, |held| held.iter().fold(0, |bits, part| bits | part.bits))
    }

    /// Who has which bits of which file.
    pub fn held(&self) -> impl Iterator<Item = (SessionId, Fid, u32)> {
        let bits = |held: &Held| held.iter().fold(0, |bits, part| bits | part.bits);
        self.held.iter().map(move |((fid, session), held)| (*session, *fid, bits(held)))
    }

    /// Which bits of which file `session` has.
    pub fn held_by_session(&self, session: SessionId) -> impl Iterator<Item = (Fid, u32)> {
        let files = self.files.get(&session).into_iter().flatten();
        files.map(move |fid| (*fid, self.held_by(session, *fid)))
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

    fn has_room(&self, session: SessionId, fid: Fid) -> bool {
        let Some(files) = self.files.get(&session) else { return self.held.len() < self.limits.total };
        let room = files.len() < self.limits.per_session && self.held.len() < self.limits.total;
        room || files.contains(&fid)
    }

    fn forget(&mut self, session: SessionId, fid: Fid) {
        let Some(files) = self.files.get_mut(&session) else { return };
        files.remove(&fid);
        if files.is_empty() {
            self.files.remove(&session);
        }
    }
}

/// Takes what was granted of `bits` up to `number` out of `held`; returns what that was.
fn take(held: &mut Held, bits: u32, number: u64) -> u32 {
    let mut taken = 0;
    for part in held.iter_mut().filter(|part| part.number <= number) {
        taken |= part.bits & bits;
        part.bits &= !bits;
    }
    held.retain(|part| part.bits != 0);
    taken
}

fn conflict(session: SessionId, held: &Held, wanted: u32) -> Option<Conflict> {
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
    use super::*;
    use crate::wire::messages::{LOCK_ALL, LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE};

    const F: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const G: Fid = Fid { oid: 2, ..F };
    const A: SessionId = 10;
    const B: SessionId = 11;
    const C: SessionId = 12;

    fn bits() -> Bits {
        Bits::new(Limits { per_session: 1000, total: 1000 })
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
        assert!(table.held.is_empty() && table.files.is_empty());
    }

    #[test]
    fn beyond_the_limits_nothing_is_granted() {
        let mut table = Bits::new(Limits { per_session: 1, total: 2 });
        assert_eq!(table.grant(A, F, LOCK_UPDATE, 1).bits, LOCK_UPDATE);
        assert_eq!(table.grant(A, G, LOCK_UPDATE, 2), Granted::default());
        assert_eq!(table.grant(A, F, LOCK_PERM, 3).bits, LOCK_PERM, "no further file");
        assert_eq!(table.grant(B, G, LOCK_UPDATE, 4).bits, LOCK_UPDATE, "another session");
        assert_eq!(table.grant(C, G, LOCK_UPDATE, 4), Granted::default(), "that is all");
        table.given_up(A, &up_to(F, LOCK_ALL, 3));
        assert_eq!(table.grant(A, G, LOCK_UPDATE, 5).bits, LOCK_UPDATE);
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

    /// Numbers that look like chance (xorshift).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % bound
        }
    }

    /// Random steps of four sessions on three files, against the model; and whenever a claim met no conflict, nobody
    /// else has its bits until it is released.
    #[test]
    fn agrees_with_the_naive_model() {
        for seed in 1..=25 {
            let mut chance = Chance(seed * 0x9e37_79b9);
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
