//! Limits of space: the MDT permits clients to write what is left of a limit, before they accept it from an application.
//!
//! An owner has come to what the targets count, and what clients hold: bytes that they were permitted, or have written and not sent.
//! What a client held and holds no more lies on a target, so it counts as spent until the targets are asked again. No sum is too small
//! that way, whatever is answered when; and nobody is refused before the targets were asked.
//!
//! A target that does not answer has what it had, and what else clients sent since then, as far as the others do not have that. It cannot have
//! got more once it is away.
//!
//! What a client holds of a pool it tells apart, if the owner has a limit there: its OSTs' sums and that are what the owner has come to in the
//! pool. Which OSTs these are is looked up when the sum is made, so a pool that changes has another sum at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{HoldSpace, SpaceHeld, TargetUsage};
use proto::{Code, DataTarget, FileOwner, OstIndex};
use rt::Time;
use rt::sync::Semaphore;
use service::code_of;
use store::sums::{OwnerList, owners};
use store::{Batch, Change, Store, StoreError};

use super::last::{self, Used};
use super::table::{Pool, Slot, Table};
use super::{Most, Quotas, deadline_change};

/// For how long a client may take an owner for one without limits.
pub const FREE_TIME: Duration = Duration::from_secs(3);
/// How old what the targets said may be: some write without being permitted it (root, and pages of mapped files).
const AGE_MAX: Duration = Duration::from_secs(5);
/// Of what is left a client gets one part in so many, if it wants more than it needs: others may need some, too.
const PART: u64 = 8;
/// What clients sent until so long after a target did not answer first may lie there.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// More than any client has in its memory, in bytes: what one says it holds counts no further, so that sums stay sums.
const HELD_MAX: u64 = 1 << 48;
/// How many ask the targets at a time.
const ASKING_MAX: usize = 16;
/// Most clients and owners of which it is known what they hold.
const PARTS_MAX: usize = 1 << 20;

/// One of `QUOTA_*`, and a number.
pub(super) type Owner = (u8, u32);

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
    /// By session, then user, group and project, and then pool.
    parts: BTreeMap<(u64, [u32; 3], Pool), u64>,
    owners: BTreeMap<Owner, Known>,
    /// All that any client held and holds no more, in bytes: no [`Flow::ended`] is greater.
    ended: u64,
    /// The number of the last question to the targets.
    asked: u64,
}

/// A question to the targets about an owner.
struct Question {
    number: u64,
    at: Time,
    /// [`Flow::ended`] when it was asked: the answers have all of that.
    ended: Vec<(Pool, u64)>,
}

/// What is known of one owner, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// What clients have of it, on all targets and in pools.
    flows: BTreeMap<Pool, Flow>,
    /// What each target has said last, and what of that is kept over a restart.
    used: Used,
    kept: Used,
    /// When they were asked.
    asked_at: Option<Time>,
    /// The number of that question: of two that pass each other the later one counts.
    asked: u64,
    /// Since when some do not answer, and what the others had when all did.
    silent_since: Option<Time>,
    had: Used,
    /// How much more these had when [`Flow::unsure`] was counted.
    grown: Used,
}

/// What is on its way to targets, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flow {
    /// What clients hold.
    held: u64,
    /// All that they held and hold no more. It only grows.
    ended: u64,
    /// How far that is in what the targets said, for certain: but for what is `unsure`.
    told: u64,
    /// How far it was in that when all of them answered.
    told_by_all: u64,
    /// What ended since then, and may lie on targets that do not answer.
    unsure: u64,
}

impl Flow {
    /// What clients held, and what is not in what the targets said, as far as anybody knows.
    fn spent(&self) -> u64 {
        self.ended.saturating_sub(self.told)
    }
}

impl Known {
    /// What the owner may have come to, at most: on all targets, or in a pool on its `members`.
    fn sum(&self, pool: &Pool, members: Option<&BTreeSet<OstIndex>>) -> u64 {
        let is_meant = |target: DataTarget| match members {
            None => true,
            Some(members) => target.ost().is_some_and(|ost| members.contains(&ost)),
        };
        let of_all = |bytes: &Used| {
            let meant = bytes.iter().filter(|(target, _)| is_meant(**target));
            meant.fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
        };
        let flow = self.flows.get(pool).map_or(0, |flow| {
            let unsure = flow.unsure.saturating_sub(of_all(&self.grown));
            flow.held.saturating_add(flow.spent()).saturating_add(unsure)
        });
        flow.saturating_add(of_all(&self.used))
    }

    /// The targets have answered, or some of them have.
    fn learn(&mut self, targets: &[TargetUsage], question: Question) {
        (self.asked_at, self.asked) = (Some(question.at), question.number);
        // A target that is not asked any more is none of the file system's.
        let before = std::mem::take(&mut self.used);
        let of = |of: &TargetUsage| Some((of.target, of.bytes.or_else(|| before.get(&of.target).copied())?));
        self.used = targets.iter().filter_map(of).collect();
        let answered = || targets.iter().filter_map(|of| Some((of.target, of.bytes?)));
        let is_whole = answered().count() == targets.len();
        let silent_since = self.silent_since.get_or_insert(question.at);
        let is_unsure = !is_whole && question.at - *silent_since <= SILENT_MAX;
        if is_whole {
            (self.silent_since, self.had) = (None, self.used.clone());
        }
        if is_whole || is_unsure {
            let had = &mut self.had;
            let grown = |(target, now): (DataTarget, u64)| {
                (target, now.saturating_sub(*had.entry(target).or_insert(now)))
            };
            self.grown = answered().map(grown).collect();
        }
        for (pool, ended) in question.ended {
            let Some(flow) = self.flows.get_mut(&pool) else { continue };
            flow.told = flow.told.max(ended);
            if is_whole {
                flow.told_by_all = flow.told_by_all.max(ended);
            }
            if is_whole || is_unsure {
                flow.unsure = ended.saturating_sub(flow.told_by_all);
            }
        }
    }
}

impl State {
    /// A session says what it holds.
    fn tell(&mut self, session: u64, of: [u32; 3], pool: &Pool, held: u64) {
        let key = (session, of, pool.clone());
        let before = self.parts.get(&key).copied().unwrap_or(0);
        match held {
            0 => drop(self.parts.remove(&key)),
            _ if before == 0 && self.parts.len() >= PARTS_MAX => return,
            _ => drop(self.parts.insert(key, held)),
        }
        let (all, ended) = (self.ended, before.saturating_sub(held));
        for owner in owners_of(of) {
            let flows = &mut self.owners.entry(owner).or_default().flows;
            // A question about one of the same name that was forgotten tells nothing of this one.
            let flow = flows.entry(pool.clone()).or_insert(Flow {
                held: 0,
                ended: all,
                told: all,
                told_by_all: all,
                unsure: 0,
            });
            flow.held = flow.held.saturating_sub(before).saturating_add(held);
            flow.ended = flow.ended.saturating_add(ended);
        }
        self.ended = all.saturating_add(ended);
    }

    /// Nothing of an owner is limited in `pool`, or at all: then nothing is kept of it.
    fn forget(&mut self, owner: Owner, pool: &Pool) -> Option<Change> {
        let known = self.owners.get_mut(&owner)?;
        known.flows.remove(pool);
        if !known.flows.is_empty() {
            return None;
        }
        let known = self.owners.remove(&owner)?;
        (!known.kept.is_empty()).then(|| last::forget(owner))
    }

    /// Notes what is kept from now on of what the targets said of the owner.
    fn note_kept(&mut self, owner: Owner) -> Option<Change> {
        let known = self.owners.get_mut(&owner).filter(|known| known.silent_since.is_none())?;
        let change = last::change(owner, &known.used, &known.kept)?;
        known.kept = known.used.clone();
        Some(change)
    }

    /// The session is over.
    fn end(&mut self, session: u64) {
        let of_session = self.parts.range((session, [0; 3], None)..(session.saturating_add(1), [0; 3], None));
        let all: Vec<([u32; 3], Pool)> = of_session.map(|((_, of, pool), _)| (*of, pool.clone())).collect();
        all.into_iter().for_each(|(of, pool)| self.tell(session, of, &pool, 0));
    }

    /// The targets are about to be asked about an owner.
    fn ask(&mut self, owner: Owner, at: Time) -> Question {
        self.asked += 1;
        let flows = self.owners.get(&owner).map(|known| &known.flows);
        let ended = flows.into_iter().flatten().map(|(pool, flow)| (pool.clone(), flow.ended)).collect();
        Question { number: self.asked, at, ended }
    }

    /// They have answered. Who does not has what it had.
    fn learn(&mut self, owner: Owner, targets: &[TargetUsage], question: Question) {
        let known = self.owners.entry(owner).or_default();
        if question.number < known.asked {
            return;
        }
        known.learn(targets, question);
    }

    /// Whether the targets were asked about the owner at `since` or later.
    fn is_known_since(&self, owner: Owner, since: Time) -> bool {
        self.owners.get(&owner).and_then(|known| known.asked_at).is_some_and(|at| at >= since)
    }

    /// Whether a sum may be smaller soon: somebody else holds something of the owner, or held it until after the targets were asked, and gave
    /// it back.
    fn may_sink(&self, owner: Owner, pool: &Pool, own: u64) -> bool {
        let flow = self.owners.get(&owner).and_then(|known| known.flows.get(pool));
        flow.is_some_and(|flow| flow.held > own || flow.spent() > 0)
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

const NOTHING: SpaceHeld =
    SpaceHeld { bytes: 0, free_ms: 0, is_changing: false, pools: Vec::new(), pools_ms: 0 };
/// [`FREE_TIME`] as it is told.
const FREE_MS: u32 = FREE_TIME.as_millis() as u32;

impl Quotas {
    /// A client says what it holds of an owner's, and asks for more.
    ///
    /// # Errors
    /// The store does not take the end of a time of grace, or the target is being stopped.
    pub async fn hold(&self, session: u64, asked: &HoldSpace) -> Result<SpaceHeld, Code> {
        let began = self.rt.now();
        let recent = Time(began.0.saturating_sub(AGE_MAX.as_nanos() as u64));
        let pool: Pool = Some(asked.pool.as_str()).filter(|pool| !pool.is_empty()).map(Arc::from);
        if pool.is_some() {
            if asked.least == 0 && !self.usage.is_told() {
                // Nobody knows yet whether there is such a pool. During recovery the MDT may hear of it only when that is over
                // ([`crate::mdt::osts::Osts::apply`]), and recovery waits for those who say what they hold.
                return Ok(self.note(session, asked, &pool));
            }
            self.usage.until_told().await?;
        }
        let told = match self.answer(session, (asked, &pool), recent)? {
            Answer::Told(told) => told,
            Answer::Ask(owners) | Answer::Full(owners) => {
                self.ask(&owners, began).await?;
                match self.answer(session, (asked, &pool), began)? {
                    Answer::Told(told) => told,
                    Answer::Ask(owners) | Answer::Full(owners) => {
                        let state = self.space.state.lock();
                        let may_sink = |owner: &Owner| state.may_sink(*owner, &pool, asked.held);
                        let is_changing = owners.iter().any(may_sink) || self.usage.is_being_freed();
                        SpaceHeld { is_changing, ..NOTHING }
                    }
                }
            }
        };
        Ok(match pool {
            None => self.with_pools(asked, told),
            Some(_) => told,
        })
    }

    /// A client holds that much of a pool, if there is one.
    fn note(&self, session: u64, asked: &HoldSpace, pool: &Pool) -> SpaceHeld {
        let HoldSpace { uid, gid, held, project, .. } = *asked;
        let (mut state, of) = (self.space.state.lock(), [uid, gid, project]);
        // Nothing is kept of who holds nothing.
        if held > 0 || state.parts.contains_key(&(session, of, pool.clone())) {
            state.tell(session, of, pool, held.min(HELD_MAX));
        }
        NOTHING
    }

    /// Names the pools of which the client has to ask too.
    fn with_pools(&self, asked: &HoldSpace, told: SpaceHeld) -> SpaceHeld {
        let mut table = self.table.lock();
        let pools = table.pools_of(&owners_of([asked.uid, asked.gid, asked.project]));
        table.free_until = table.free_until.max(self.rt.now() + FREE_TIME);
        SpaceHeld { pools: pools.iter().map(|pool| pool.to_string()).collect(), pools_ms: FREE_MS, ..told }
    }

    /// Asks the targets what the owners have, unless somebody has asked since `since`.
    async fn ask(&self, owners: &[Owner], since: Time) -> Result<(), Code> {
        let Ok(_turn) = self.space.asking.0.acquire().await else { return Ok(()) };
        for owner in owners {
            let question = {
                let mut state = self.space.state.lock();
                if state.is_known_since(*owner, since) {
                    continue;
                }
                state.ask(*owner, self.rt.now())
            };
            let targets = self.usage.of(*owner).await?;
            let mut state = self.space.state.lock();
            state.learn(*owner, &targets, question);
            // Clients that recover repeat their changes before there are new ones.
            let change = if self.recovery.is_active() { None } else { state.note_kept(*owner) };
            drop(state);
            self.keep(change.into_iter().collect());
        }
        Ok(())
    }

    /// Keeps it over a restart. What cannot be kept is asked for again then.
    fn keep(&self, changes: Vec<Change>) {
        if changes.is_empty() || self.recovery.is_active() {
            return;
        }
        if let Err(error) = self.store.commit(Batch { changes, ..Batch::default() }) {
            tracing::warn!(%error, "what an owner has is not written down");
        }
    }

    /// The answer, if what the targets said at `since` or later permits it.
    fn answer(&self, session: u64, (asked, pool): (&HoldSpace, &Pool), since: Time) -> Result<Answer, Code> {
        let HoldSpace { uid, gid, held, least, most, project, .. } = *asked;
        let held = held.min(HELD_MAX);
        let of = [uid, gid, project];
        let osts = self.usage.table();
        let members = pool.as_ref().map(|pool| osts.pool(pool));
        let mut table = self.table.lock();
        let mut state = self.space.state.lock();
        let owners = owners_of(of);
        let is_limited = |owner: &Owner| table.limit(&Slot::space(*owner, pool)).is_some();
        let is_there = members != Some(None);
        let limited: Vec<Owner> =
            owners.iter().copied().filter(|owner| is_there && is_limited(owner)).collect();
        if limited.is_empty() {
            state.tell(session, of, pool, 0);
            let changes = owners.iter().filter_map(|owner| state.forget(*owner, pool)).collect();
            self.keep(changes);
            table.free_until = table.free_until.max(self.rt.now() + FREE_TIME);
            return Ok(Answer::Told(SpaceHeld { free_ms: FREE_MS, ..NOTHING }));
        }
        state.tell(session, of, pool, held);
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
        let sums = limited.into_iter().map(|owner| {
            let sum = state.owners.get(&owner).map_or(0, |known| known.sum(pool, members.flatten()));
            (owner, sum)
        });
        let left = match self.left(&mut table, (pool, sums.collect()), least)? {
            Left::Bytes(left) => left,
            Left::Full(full) => return Ok(Answer::Full(full)),
        };
        let bytes = most.min(left / PART).max(least);
        state.tell(session, of, pool, held.saturating_add(bytes));
        Ok(Answer::Told(SpaceHeld { bytes, ..NOTHING }))
    }

    /// What is left for owners that have come to so much, of which one needs `least`. Who comes above a soft limit with that has time from
    /// now on.
    fn left(
        &self,
        table: &mut Table,
        (pool, sums): (&Pool, Vec<(Owner, u64)>),
        least: u64,
    ) -> Result<Left, Code> {
        let (mut left, mut full, mut changes) = (u64::MAX, Vec::new(), Vec::<Change>::new());
        for (owner, sum) in sums {
            let slot = Slot::space(owner, pool);
            let grace_s = table.grace_s(slot.kind, pool);
            let Some(limit) = table.limit(&slot) else { continue };
            // Who passes the soft limit with this is looked at as one who has reached it; who does not may come to it and no further.
            let passes = limit.soft != 0 && sum.saturating_add(least) > limit.soft;
            let at = if passes { sum.max(limit.soft) } else { sum };
            let Most { most, deadline_s } = limit.most(at, self.now_s(), grace_s);
            let most = if limit.soft != 0 && !passes { most.min(limit.soft) } else { most };
            match most.saturating_sub(sum) {
                of_it if of_it < least => full.push(owner),
                of_it => left = left.min(of_it),
            }
            if let Some(deadline_s) = deadline_s.filter(|_| full.is_empty()) {
                changes.push(deadline_change(&slot, deadline_s));
                table.set_deadline(slot, deadline_s);
            }
        }
        if !full.is_empty() {
            return Ok(Left::Full(full));
        }
        if !changes.is_empty() {
            self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))?;
        }
        Ok(Left::Bytes(left))
    }
}

/// What may still be permitted.
enum Left {
    /// So much.
    Bytes(u64),
    /// Not as much as is needed, because of these.
    Full(Vec<Owner>),
}

impl Space {
    /// With what was kept.
    pub fn open(store: &Store) -> Result<Space, StoreError> {
        let known =
            |(owner, used): (Owner, Used)| (owner, Known { kept: used.clone(), used, ..Known::default() });
        let owners = last::load(store)?.into_iter().map(known).collect();
        Ok(Space { state: Mutex::new(State { owners, ..State::default() }), asking: Asking::default() })
    }

    /// The session is over: what it held is written, or never will be.
    pub fn ended(&self, session: u64) {
        self.state.lock().end(session);
    }

    /// What the targets said of those that are `meant` is not used any more.
    pub fn ask_again(&self, meant: impl Fn(Owner) -> bool) {
        let mut state = self.state.lock();
        let meant = state.owners.iter_mut().filter(|(owner, _)| meant(**owner));
        meant.for_each(|(_, known)| known.asked_at = None);
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
        state.owners.get(&owner).map_or(0, |known| known.sum(&None, None))
    }

    #[test]
    fn what_is_held_no_more_is_spent_until_the_targets_are_asked() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], &None, 100);
        state.tell(2, [7, 9, 0], &None, 50);
        assert_eq!((sum(&state, (USER, 7)), sum(&state, (GROUP, 8))), (150, 100));
        state.tell(1, [7, 8, 0], &None, 30);
        assert_eq!(sum(&state, (USER, 7)), 150, "70 are on a target, or on the way");
        let question = state.ask((USER, 7), Time(5));
        assert_eq!(question.ended, [(None, 70)]);
        // Meanwhile 20 more arrive; the answer may have them or not.
        state.tell(1, [7, 8, 0], &None, 10);
        state.learn((USER, 7), &said(Some(90)), question);
        assert_eq!(sum(&state, (USER, 7)), 90 + 60 + 20);
        assert!(state.is_known_since((USER, 7), Time(5)) && !state.is_known_since((USER, 7), Time(6)));
        let question = state.ask((USER, 7), Time(9));
        state.learn((USER, 7), &said(None), question);
        assert_eq!(
            sum(&state, (USER, 7)),
            90 + 60 + 20,
            "who does not answer has what it had, and what came since"
        );
    }

    /// An OST was killed: what it had got since its last answer was permitted once more.
    #[test]
    fn what_a_silent_target_got_before_counts() {
        let mut state = State::default();
        let write = |state: &mut State, bytes| {
            state.tell(1, [7, 8, 0], &None, bytes);
            state.tell(1, [7, 8, 0], &None, 0);
        };
        let ask = |state: &mut State, at_s: u64, bytes: [Option<u64>; 2]| {
            let at = Time(at_s * 1_000_000_000);
            let question = state.ask((USER, 7), at);
            let of = |ost: u32| TargetUsage { target: OstIndex(ost).into(), bytes: bytes[ost as usize] };
            state.learn((USER, 7), &[of(0), of(1)], question);
            sum(state, (USER, 7))
        };
        write(&mut state, 100);
        assert_eq!(ask(&mut state, 1, [Some(60), Some(40)]), 100);
        // Of these 50 the first has told of 20.
        write(&mut state, 50);
        assert_eq!(ask(&mut state, 3, [Some(80), None]), 80 + 40 + 30);
        // The second one may have got some of it right before it went.
        write(&mut state, 10);
        assert_eq!(ask(&mut state, 5, [Some(80), None]), 80 + 40 + 40);
        // All else can only be on the first, which may lose some, too.
        write(&mut state, 1000);
        assert_eq!(ask(&mut state, 60, [Some(1080), None]), 1080 + 40 + 40);
        assert_eq!(ask(&mut state, 61, [Some(5), None]), 5 + 40 + 40);
        assert_eq!(ask(&mut state, 62, [Some(5), Some(75)]), 80);
        write(&mut state, 7);
        assert_eq!(ask(&mut state, 99, [Some(5), None]), 80 + 7, "it went again");
    }

    /// Two clients asked at the limit of a pool, and the older answers came last: what was written meanwhile was permitted twice.
    #[test]
    fn questions_that_pass_each_other_forget_nothing() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], &None, 100);
        state.tell(1, [7, 8, 0], &None, 0);
        let first = state.ask((USER, 7), Time(1));
        let second = state.ask((USER, 7), Time(1));
        state.learn((USER, 7), &said(Some(100)), second);
        state.tell(2, [7, 8, 0], &None, 60);
        state.tell(2, [7, 8, 0], &None, 0);
        assert_eq!(sum(&state, (USER, 7)), 160);
        state.learn((USER, 7), &said(Some(90)), first);
        assert_eq!(sum(&state, (USER, 7)), 160, "the older question says nothing");
        // What was forgotten meanwhile is not told of what came after it.
        let before = state.ask((USER, 7), Time(2));
        state.forget((USER, 7), &None);
        state.tell(2, [7, 8, 0], &None, 50);
        state.tell(2, [7, 8, 0], &None, 0);
        state.learn((USER, 7), &said(Some(0)), before);
        assert_eq!(sum(&state, (USER, 7)), 50);
    }

    #[test]
    fn a_pool_has_what_lies_there_and_what_is_on_the_way_there() {
        let mut state = State::default();
        let (flash, disk): (Pool, Pool) = (Some("flash".into()), Some("disk".into()));
        let (zero, both) = (BTreeSet::from([OstIndex(0)]), BTreeSet::from([OstIndex(0), OstIndex(1)]));
        state.tell(1, [7, 8, 0], &None, 100);
        state.tell(1, [7, 8, 0], &flash, 60);
        state.tell(1, [7, 8, 0], &disk, 40);
        let of = |state: &State, pool: &Pool, members: Option<&BTreeSet<OstIndex>>| {
            state.owners.get(&(USER, 7)).map_or(0, |known| known.sum(pool, members))
        };
        assert_eq!((of(&state, &None, None), of(&state, &flash, Some(&zero))), (100, 60));
        state.tell(1, [7, 8, 0], &flash, 10);
        let question = state.ask((USER, 7), Time(1));
        state.tell(1, [7, 8, 0], &disk, 0);
        let told = |ost, bytes| TargetUsage { target: OstIndex(ost).into(), bytes: Some(bytes) };
        state.learn((USER, 7), &[told(0, 50), told(1, 7), told(2, 1)], question);
        assert_eq!(of(&state, &flash, Some(&zero)), 50 + 10);
        assert_eq!(of(&state, &flash, Some(&both)), 57 + 10, "another one is a member now");
        assert_eq!(of(&state, &disk, Some(&BTreeSet::from([OstIndex(2)]))), 1 + 40, "spent since");
        assert_eq!(of(&state, &None, None), 58 + 100);
        state.forget((USER, 7), &flash);
        assert_eq!(of(&state, &None, None), 58 + 100);
        state.end(1);
        assert!(state.parts.is_empty());
    }

    /// A client gave back what it did not use while the targets were asked for another one, which was refused with that much left.
    #[test]
    fn what_is_given_back_during_a_question_may_be_had_soon() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], &None, 100);
        state.tell(2, [7, 8, 0], &None, 1);
        let question = state.ask((USER, 7), Time(1));
        state.tell(1, [7, 8, 0], &None, 0);
        state.learn((USER, 7), &said(Some(50)), question);
        assert_eq!(sum(&state, (USER, 7)), 151);
        assert!(state.may_sink((USER, 7), &None, 1));
        let question = state.ask((USER, 7), Time(2));
        state.learn((USER, 7), &said(Some(50)), question);
        assert_eq!(sum(&state, (USER, 7)), 51);
        assert!(!state.may_sink((USER, 7), &None, 1));
    }

    #[test]
    fn a_session_that_ends_holds_nothing() {
        let mut state = State::default();
        state.tell(1, [7, 8, 0], &None, 100);
        state.tell(1, [9, 8, 0], &None, 10);
        state.tell(2, [7, 8, 0], &None, 1);
        assert!(state.may_sink((USER, 7), &None, 1) && !state.may_sink((USER, 9), &None, 10));
        state.end(1);
        assert_eq!(state.parts.len(), 1);
        assert_eq!((sum(&state, (USER, 7)), sum(&state, (GROUP, 8))), (101, 111), "it may have been written");
    }
}
