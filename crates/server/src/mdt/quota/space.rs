//! Limits of space: the MDT permits clients to write what is left of a limit, before they accept it from an application.
//!
//! An owner has come to what the targets count, and what clients hold: bytes that they were permitted, or have written and not sent.
//! What a client held and holds no more lies on a target, so it counts as spent until the targets are asked again. No sum is too small
//! that way, whatever is answered when; and nobody is refused before the targets were asked.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{HoldSpace, SpaceHeld, TargetUsage};
use proto::{Code, DataTarget, FileOwner};
use rt::Time;
use rt::sync::Semaphore;
use service::code_of;
use store::sums::{OwnerList, owners};
use store::{Batch, Change};

use super::{Most, Quotas, SPACE, deadline_change};

/// For how long a client may take an owner for one without limits.
pub const FREE_TIME: Duration = Duration::from_secs(3);
/// How old what the targets said may be: some write without being permitted it (root, and pages of mapped files).
const AGE_MAX: Duration = Duration::from_secs(5);
/// Of what is left a client gets one part in so many, if it wants more than it needs: others may need some, too.
const PART: u64 = 8;
/// More than any client has in its memory, in bytes: what one says it holds counts no further, so that sums stay sums.
const HELD_MAX: u64 = 1 << 48;
/// How many ask the targets at a time.
const ASKING_MAX: usize = 16;
/// Most clients and owners of which it is known what they hold.
const PARTS_MAX: usize = 1 << 20;

/// A kind, without [`SPACE`], and a number.
type Owner = (u8, u32);

/// What clients hold, and where owners are with that.
#[derive(Default)]
pub struct Space {
    state: Mutex<State>,
    asking: Asking,
}

/// Whoever asks the targets: so few at a time that others find what they have learnt.
struct Asking(Semaphore);

impl Default for Asking {
    fn default() -> Asking {
        Asking(Semaphore::new(ASKING_MAX))
    }
}

#[derive(Default)]
struct State {
    /// By session, and then user, group and project.
    parts: BTreeMap<(u64, [u32; 3]), u64>,
    owners: BTreeMap<Owner, Known>,
}

/// What is known of one owner, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// What clients hold.
    held: u64,
    /// What they held, and what is not in `used` yet, as far as anybody knows.
    spent: u64,
    /// What each target has said last.
    used: BTreeMap<DataTarget, u64>,
    /// When they were asked.
    asked_at: Option<Time>,
}

impl Known {
    /// What the owner may have come to, at most.
    fn sum(&self) -> u64 {
        self.used.values().fold(self.held.saturating_add(self.spent), |sum, used| sum.saturating_add(*used))
    }
}

impl State {
    /// A session says what it holds.
    fn tell(&mut self, session: u64, of: [u32; 3], held: u64) {
        let key = (session, of);
        let before = self.parts.get(&key).copied().unwrap_or(0);
        match held {
            0 => drop(self.parts.remove(&key)),
            _ if before == 0 && self.parts.len() >= PARTS_MAX => return,
            _ => drop(self.parts.insert(key, held)),
        }
        for owner in owners_of(of) {
            let known = self.owners.entry(owner).or_default();
            known.held = known.held.saturating_sub(before).saturating_add(held);
            known.spent = known.spent.saturating_add(before.saturating_sub(held));
        }
    }

    /// The session is over.
    fn end(&mut self, session: u64) {
        let of_session = self.parts.range((session, [0; 3])..=(session, [u32::MAX; 3]));
        let all: Vec<[u32; 3]> = of_session.map(|((_, of), _)| *of).collect();
        all.into_iter().for_each(|of| self.tell(session, of, 0));
    }

    /// The targets were asked at `at`, when the owner had `spent`. Who does not answer has what it had.
    fn learn(&mut self, owner: Owner, targets: &[TargetUsage], (at, spent): (Time, u64)) {
        let known = self.owners.entry(owner).or_default();
        known.spent = known.spent.saturating_sub(spent);
        known.asked_at = Some(at);
        // A target that is not asked any more is none of the file system's.
        let before = std::mem::take(&mut known.used);
        known.used = targets
            .iter()
            .filter_map(|of| Some((of.target, of.bytes.or_else(|| before.get(&of.target).copied())?)))
            .collect();
    }

    /// Whether the targets were asked about the owner at `since` or later.
    fn is_known_since(&self, owner: Owner, since: Time) -> bool {
        self.owners.get(&owner).and_then(|known| known.asked_at).is_some_and(|at| at >= since)
    }

    fn spent(&self, owner: Owner) -> u64 {
        self.owners.get(&owner).map_or(0, |known| known.spent)
    }

    /// Whether anybody else holds something of the owner.
    fn is_held_by_others(&self, owner: Owner, own: u64) -> bool {
        self.owners.get(&owner).is_some_and(|known| known.held > own)
    }
}

/// For whom data of a user, a group and a project counts.
fn owners_of([uid, gid, project]: [u32; 3]) -> OwnerList {
    owners(FileOwner { uid, gid, version: 0, project })
}

/// What came of a question.
enum Answer {
    Told(SpaceHeld),
    /// These have to be asked about first.
    Ask(Vec<Owner>),
    /// So much is not left.
    Full(Vec<Owner>),
}

const NOTHING: SpaceHeld = SpaceHeld { bytes: 0, free_ms: 0, is_changing: false };

impl Quotas {
    /// A client says what it holds of an owner's, and asks for more.
    ///
    /// # Errors
    /// The store does not take the end of a time of grace.
    pub async fn hold(&self, session: u64, asked: &HoldSpace) -> Result<SpaceHeld, Code> {
        let began = self.rt.now();
        let recent = Time(began.0.saturating_sub(AGE_MAX.as_nanos() as u64));
        let owners = match self.answer(session, asked, recent)? {
            Answer::Told(told) => return Ok(told),
            Answer::Ask(owners) | Answer::Full(owners) => owners,
        };
        self.ask(&owners, began).await;
        Ok(match self.answer(session, asked, began)? {
            Answer::Told(told) => told,
            Answer::Ask(owners) | Answer::Full(owners) => {
                let state = self.space.state.lock();
                let others = owners.iter().any(|owner| state.is_held_by_others(*owner, asked.held));
                SpaceHeld { is_changing: others || self.usage.is_being_freed(), ..NOTHING }
            }
        })
    }

    /// Asks the targets what the owners have, unless somebody has asked since `since`.
    async fn ask(&self, owners: &[Owner], since: Time) {
        let Ok(_turn) = self.space.asking.0.acquire().await else { return };
        for (kind, id) in owners {
            let owner = (*kind, *id);
            let (at, spent) = {
                let state = self.space.state.lock();
                if state.is_known_since(owner, since) {
                    continue;
                }
                (self.rt.now(), state.spent(owner))
            };
            let targets = self.usage.of(*kind, *id).await;
            self.space.state.lock().learn(owner, &targets, (at, spent));
        }
    }

    /// The answer, if what the targets said at `since` or later permits it.
    fn answer(&self, session: u64, asked: &HoldSpace, since: Time) -> Result<Answer, Code> {
        let HoldSpace { uid, gid, held, least, most, project } = *asked;
        let held = held.min(HELD_MAX);
        let of = [uid, gid, project];
        let mut table = self.table.lock();
        let mut state = self.space.state.lock();
        let owners = owners_of(of);
        let is_limited = |owner: &Owner| table.limit((owner.0 | SPACE, owner.1)).is_some();
        let limited: Vec<Owner> = owners.iter().copied().filter(is_limited).collect();
        if limited.is_empty() {
            state.tell(session, of, 0);
            owners.iter().for_each(|owner| drop(state.owners.remove(owner)));
            table.free_until = table.free_until.max(self.rt.now() + FREE_TIME);
            let free_ms = FREE_TIME.as_millis() as u32;
            return Ok(Answer::Told(SpaceHeld { free_ms, ..NOTHING }));
        }
        state.tell(session, of, held);
        if least == 0 {
            return Ok(Answer::Told(NOTHING));
        }
        if least > HELD_MAX {
            return Err(Code::Quota);
        }
        let unknown: Vec<Owner> =
            limited.iter().copied().filter(|owner| !state.is_known_since(*owner, since)).collect();
        if !unknown.is_empty() {
            return Ok(Answer::Ask(unknown));
        }
        let (mut left, mut full, mut changes) = (u64::MAX, Vec::new(), Vec::<Change>::new());
        for (kind, id) in limited {
            let sum = state.owners.get(&(kind, id)).map_or(0, Known::sum);
            let slot = (kind | SPACE, id);
            let grace_s = table.grace_s(slot.0);
            let Some(limit) = table.limit(slot) else { continue };
            // Who passes the soft limit with this is looked at as one who has reached it; who does not may come to it and no further.
            let passes = limit.soft != 0 && sum.saturating_add(least) > limit.soft;
            let at = if passes { sum.max(limit.soft) } else { sum };
            let Most { most, deadline_s } = limit.most(at, self.now_s(), grace_s);
            let most = if limit.soft != 0 && !passes { most.min(limit.soft) } else { most };
            match most.saturating_sub(sum) {
                of_it if of_it < least => full.push((kind, id)),
                of_it => left = left.min(of_it),
            }
            if let Some(deadline_s) = deadline_s.filter(|_| full.is_empty()) {
                table.set_deadline(slot, deadline_s);
                changes.push(deadline_change(slot.0, id, deadline_s));
            }
        }
        if !full.is_empty() {
            return Ok(Answer::Full(full));
        }
        if !changes.is_empty() {
            self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))?;
        }
        let bytes = most.min(left / PART).max(least);
        state.tell(session, of, held.saturating_add(bytes));
        Ok(Answer::Told(SpaceHeld { bytes, ..NOTHING }))
    }
}

impl Space {
    /// The session is over: what it held is written, or never will be.
    pub fn ended(&self, session: u64) {
        self.state.lock().end(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::OstIndex;
    use proto::wire::messages::{QUOTA_GROUP as GROUP, QUOTA_USER as USER};

    fn said(bytes: Option<u64>) -> [TargetUsage; 1] {
        [TargetUsage { target: OstIndex(0).into(), bytes }]
    }

    fn sum(state: &State, owner: Owner) -> u64 {
        state.owners.get(&owner).map_or(0, Known::sum)
    }

    #[test]
    fn what_is_held_no_more_is_spent_until_the_targets_are_asked() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], 100);
        state.tell(2, [7, 9, 0], 50);
        assert_eq!((sum(&state, (USER, 7)), sum(&state, (GROUP, 8))), (150, 100));
        state.tell(1, [7, 8, 0], 30);
        assert_eq!(sum(&state, (USER, 7)), 150, "70 are on a target, or on the way");
        let spent = state.spent((USER, 7));
        assert_eq!(spent, 70);
        // Meanwhile 20 more arrive; the answer may have them or not.
        state.tell(1, [7, 8, 0], 10);
        state.learn((USER, 7), &said(Some(90)), (Time(5), spent));
        assert_eq!(sum(&state, (USER, 7)), 90 + 60 + 20);
        assert!(state.is_known_since((USER, 7), Time(5)) && !state.is_known_since((USER, 7), Time(6)));
        let spent = state.spent((USER, 7));
        state.learn((USER, 7), &said(None), (Time(9), spent));
        assert_eq!(sum(&state, (USER, 7)), 90 + 60, "who does not answer has what it had");
    }

    #[test]
    fn a_session_that_ends_holds_nothing() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], 100);
        state.tell(1, [9, 8, 0], 10);
        state.tell(2, [7, 8, 0], 1);
        assert!(state.is_held_by_others((USER, 7), 1) && !state.is_held_by_others((USER, 9), 10));
        state.end(1);
        assert_eq!(state.parts.len(), 1);
        assert!(!state.is_held_by_others((USER, 7), 1));
        assert_eq!((sum(&state, (USER, 7)), sum(&state, (GROUP, 8))), (101, 111), "it may have been written");
    }
}
