//! Limits of space: before a write of a user is accepted, the MDT has permitted it (`docs/operations.md#quotas`).
//!
//! The MDT permits more than one write needs, and is told how much of that is not sent yet. Owners without limits cost a request in three
//! seconds, as long as something is written for them. If the MDT does not answer, their writes go on.
//!
//! The MDT names the pools in which the owner has a limit. What a write takes of their OSTs ([`Span`]) it has to permit too, pool by pool:
//! which OSTs these are, this client knows from the MGS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::pool::POOLS_MAX;
use proto::wire::messages::{HoldSpace, SpaceHeld};
use proto::{Code, DataTarget, FileOwner};
use rpc::Restate;
use rt::sync::Semaphore;
use rt::wait::join_all;
use rt::{Rt, Time};
use smallvec::SmallVec;

use super::{FileState, Objects, Span, WriteBack};
use crate::order::{BUDGETS, Mutex};
use crate::targets::Targets;
use crate::{Error, Result};

/// What a client asks for at least, in bytes, if a write needs less.
const WISH_BYTES: u64 = 16 << 20;
/// So many times what a write needs.
const WISH_WRITES: u64 = 4;
/// How long a write of an owner that had no limits waits for the MDT to say so again.
const FREE_ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long its writes go on then before the next one waits.
const FREE_UNTOLD_TIME: Duration = Duration::from_secs(10);
/// How often the MDT is asked again when others may give something back, or space is being freed.
const CHANGING_PAUSE: Duration = Duration::from_millis(200);
/// For how long.
const CHANGING_TIME: Duration = Duration::from_secs(4);
/// How long what was written before is waited for when a limit is reached: longer than a target takes that recovers.
const FLUSH_TIME: Duration = Duration::from_secs(60);
/// How long the MGS may take to say what is in pools.
const LEARN_TIME: Duration = Duration::from_secs(1);
/// Who has written for an owner in this time has a lease, and hears of pools that change.
const LISTENS_TIME: Duration = Duration::from_secs(3);
/// How often what nobody uses is given back.
const TICK: Duration = Duration::from_secs(1);
/// When an owner is forgotten that nothing is written for.
const FORGET_TIME: Duration = Duration::from_secs(60);

/// A user, a group and a project.
type Owner = [u32; 3];
/// What is permitted apart: an owner's space on all targets, or in a pool.
type Key = (Owner, Option<Arc<str>>);
/// What a write needs, in bytes: of all targets, and of pools.
type Wants = SmallVec<[(Key, u64); 1]>;

/// What the MDT has said of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It has no limits, until then.
    Free(Time),
    /// It has.
    Limited,
}

/// What this client may write for one owner, on all targets or in a pool.
#[derive(Debug, Default)]
struct Budget {
    known: Known,
    /// Pools in which it has a limit; those of a pool have none.
    pools: Arc<[Arc<str>]>,
    /// There are no others until then; `None`: for good.
    pools_until: Option<Time>,
    /// What it was permitted and has not used, in bytes.
    left: u64,
    /// What is on its way into the cache.
    taking: u64,
    /// What it told last that it holds.
    told: u64,
    used_at: Time,
    turn: Turn,
}

/// One question at a time: each replaces what the one before said.
#[derive(Debug, Clone)]
struct Turn(Arc<Semaphore>);

impl Default for Turn {
    fn default() -> Turn {
        Turn(Arc::new(Semaphore::new(1)))
    }
}

impl Budget {
    /// Whether `bytes` are permitted.
    fn has(&self, bytes: u64, now: Time) -> bool {
        match self.known {
            Known::Nothing => false,
            Known::Free(until) => now < until,
            Known::Limited => self.left >= bytes && self.pools_until.is_none_or(|until| now < until),
        }
    }

    /// Takes `bytes` if that is permitted.
    fn take(&mut self, bytes: u64, now: Time) -> bool {
        let has = self.has(bytes, now);
        if has {
            self.left -= if self.known == Known::Limited { bytes } else { 0 };
            self.taking += bytes;
            self.used_at = now;
        }
        has
    }

    /// The MDT has answered a question of `asked_at` for `least` bytes. What is left of a limit that is reached, and too little for this
    /// client, may be enough for another one.
    fn answered(&mut self, answer: &SpaceHeld, (asked_at, least): (Time, u64)) {
        let until = |ms: u32| asked_at + Duration::from_millis(u64::from(ms));
        if answer.free_ms > 0 {
            self.known = Known::Free(until(answer.free_ms));
            self.left = 0;
        } else {
            self.known = Known::Limited;
            self.left = if answer.bytes == 0 && least > 0 { 0 } else { self.left + answer.bytes };
        }
        self.pools = answer.pools.iter().take(POOLS_MAX).map(|pool| pool.as_str().into()).collect();
        self.pools_until = (answer.pools_ms > 0).then(|| until(answer.pools_ms));
    }

    /// The MDT does not say whether there are limits of which nobody knew.
    fn untold(&mut self, now: Time) {
        let until = now + FREE_UNTOLD_TIME;
        match self.known {
            Known::Limited => self.pools_until = Some(until),
            Known::Nothing | Known::Free(_) => self.known = Known::Free(until),
        }
    }

    /// Whether nobody has used it for `time`.
    fn rests(&self, time: Duration, now: Time) -> bool {
        self.taking == 0 && now >= self.used_at + time
    }
}

/// What this client may write, for each owner.
pub(crate) struct Budgets {
    rt: Rt,
    targets: Arc<Targets>,
    back: Arc<WriteBack>,
    objects: Objects,
    owners: Mutex<BUDGETS, BTreeMap<Key, Budget>>,
    ticks: AtomicBool,
}

/// What was taken for a write that is not in the cache yet.
pub(crate) struct Taking<'a> {
    budgets: &'a Budgets,
    taken: Wants,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let mut owners = self.budgets.owners.lock();
        for (key, bytes) in &self.taken {
            if let Some(budget) = owners.get_mut(key) {
                budget.taking = budget.taking.saturating_sub(*bytes);
            }
        }
    }
}

fn owner_of(file: &FileState) -> Owner {
    let FileOwner { uid, gid, project, .. } = file.owner();
    [uid, gid, project]
}

impl Budgets {
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, back: Arc<WriteBack>, objects: Objects) -> Budgets {
        let (owners, ticks) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
        Budgets { rt, targets, back, objects, owners, ticks }
    }

    /// Takes the space for a write to `file`, if nobody has to be asked.
    pub(crate) fn try_take(&self, file: &FileState, span: Span) -> Option<Taking<'_>> {
        let (key, bytes) = ((owner_of(file), None), span.space());
        {
            let mut owners = self.owners.lock();
            let budget = owners.get_mut(&key)?;
            if budget.pools.is_empty() {
                if !budget.take(bytes, self.rt.now()) {
                    return None;
                }
                let taken = SmallVec::from_buf([(key, bytes)]);
                return Some(Taking { budgets: self, taken });
            }
        }
        self.try_take_all(&self.wants(file, key.0, span)?).ok()
    }

    /// Takes all of it, or says of what there is too little.
    fn try_take_all(&self, wants: &Wants) -> std::result::Result<Taking<'_>, (Key, u64)> {
        let now = self.rt.now();
        let mut owners = self.owners.lock();
        for (key, bytes) in wants {
            if !owners.get(key).is_some_and(|budget| budget.has(*bytes, now)) {
                return Err((key.clone(), *bytes));
            }
        }
        for (key, bytes) in wants {
            owners.get_mut(key).map(|budget| budget.take(*bytes, now));
        }
        Ok(Taking { budgets: self, taken: wants.clone() })
    }

    /// What a write to `file` needs. `None` if the end of the file has to be known for that.
    fn wants(&self, file: &FileState, owner: Owner, span: Span) -> Option<Wants> {
        let mut wants = Wants::from_buf([((owner, None), span.space())]);
        let pools = self.owners.lock().get(&(owner, None)).map(|budget| budget.pools.clone());
        let Some(pools) = pools.filter(|pools| !pools.is_empty()) else { return Some(wants) };
        let layout = file.layout().ok();
        let config = self.targets.config();
        for pool in pools.iter() {
            let bytes = match &layout {
                Some(layout) => span.space_in(layout, config.pools(), pool)?,
                None => span.space(),
            };
            if bytes > 0 {
                wants.push(((owner, Some(pool.clone())), bytes));
            }
        }
        Some(wants)
    }

    /// The same, if need be after the end of the file was asked for. Whoever changes that meanwhile has the write counted where it would have been.
    async fn wants_of(&self, file: &FileState, owner: Owner, span: Span) -> Result<Wants> {
        if let Some(wants) = self.wants(file, owner, span) {
            return Ok(wants);
        }
        let layout = file.layout()?;
        let known =
            file.own(&layout).map(|(sum, unsent)| sum.size.max(unsent.map_or(0, |unsent| unsent.end)));
        let end = match known {
            Some(end) => end,
            None => self.objects.true_size(file, &layout).await?,
        };
        let span = Span { offset: Some(end), ..span };
        Ok(self.wants(file, owner, span).unwrap_or_else(|| Wants::from_buf([((owner, None), span.space())])))
    }

    /// Takes the space for a write to `file`; held until it is in the cache, or written.
    ///
    /// # Errors
    /// [`Code::Quota`]: a limit is reached.
    pub(crate) async fn take(self: &Arc<Self>, file: &FileState, span: Span) -> Result<Taking<'_>> {
        let (owner, began, mut is_flushed) = (owner_of(file), self.rt.now(), false);
        loop {
            let wants = self.wants_of(file, owner, span).await?;
            let (key, bytes) = match self.try_take_all(&wants) {
                Ok(taking) => return Ok(taking),
                Err(lacks) => lacks,
            };
            let is_changing = {
                let turn = self.owners.lock().entry(key.clone()).or_default().turn.clone();
                let _turn = turn.0.acquire().await.map_err(|_| Error::Closed)?;
                if self.has(&key, bytes) {
                    continue;
                }
                self.ask_for(&key, bytes).await?
            };
            self.begin_ticks();
            if self.has(&key, bytes) {
                continue;
            }
            if !is_flushed {
                // What is written over data that is there takes no more space, and nobody knows before the targets have it.
                is_flushed = true;
                // A target that does not answer keeps nobody from hearing of the limit.
                self.rt.timeout(FLUSH_TIME, self.flush(owner)).await;
                continue;
            }
            if !is_changing || self.rt.now() >= began + CHANGING_TIME {
                return Err(Error::Refused(Code::Quota));
            }
            self.rt.sleep(CHANGING_PAUSE).await;
        }
    }

    fn has(&self, key: &Key, bytes: u64) -> bool {
        let now = self.rt.now();
        self.owners.lock().get(key).is_some_and(|budget| budget.has(bytes, now))
    }

    /// Sends what was written of an owner's.
    async fn flush(&self, owner: Owner) {
        let files = self.back.dirty.files().into_iter().filter(|file| owner_of(file) == owner);
        let flushing = files.map(|file| async move { self.back.flush_file(&file).await });
        join_all(flushing).await;
    }

    /// Asks the MDT for `bytes`, and more. Says whether it may have more soon.
    async fn ask_for(&self, key: &Key, bytes: u64) -> Result<bool> {
        let (known, has) = {
            let mut owners = self.owners.lock();
            let budget = owners.entry(key.clone()).or_default();
            (budget.known, budget.known == Known::Limited && budget.left >= bytes)
        };
        // Who has enough asks only whether there are other pools.
        let (least, most) = match has {
            true => (0, 0),
            false => (bytes, bytes.saturating_mul(WISH_WRITES).max(WISH_BYTES)),
        };
        let asked = self.ask(key, (least, most));
        if !has && !matches!(known, Known::Free(_)) {
            return asked.await;
        }
        match self.rt.timeout(FREE_ANSWER_TIME, asked).await {
            Some(answered) => answered,
            None => {
                tracing::debug!(?key, "the MDT does not say whether there are other limits: there were none");
                self.owners.lock().entry(key.clone()).or_default().untold(self.rt.now());
                Ok(false)
            }
        }
    }

    /// Tells the MDT what is held, and asks for `least` to `most` bytes.
    async fn ask(&self, key: &Key, (least, most): (u64, u64)) -> Result<bool> {
        let asked_at = self.rt.now();
        let held = self.held(key);
        let answer = match self.targets.first_mdt()?.call(hold(key, held, (least, most))).await {
            Ok(answered) => answered.reply,
            // An older one counts no space.
            Err(Error::Refused(Code::NotSupported)) => SpaceHeld {
                bytes: 0,
                free_ms: FREE_UNTOLD_TIME.as_millis() as u32,
                is_changing: false,
                pools: Vec::new(),
                pools_ms: 0,
            },
            Err(error) => return Err(error),
        };
        if self.may_not_know_pools(key, &answer, asked_at) {
            self.rt.timeout(LEARN_TIME, self.targets.learn()).await;
        }
        let mut owners = self.owners.lock();
        let budget = owners.entry(key.clone()).or_default();
        budget.answered(&answer, (asked_at, least));
        // Of an owner without limits nothing is counted.
        budget.told = if answer.free_ms > 0 { 0 } else { held + answer.bytes };
        Ok(answer.is_changing)
    }

    /// Whether this client may not have heard yet what the pools have that the MDT names: one that holds nothing hears of nothing.
    fn may_not_know_pools(&self, key: &Key, answer: &SpaceHeld, asked_at: Time) -> bool {
        let owners = self.owners.lock();
        let known = owners.get(key).filter(|budget| asked_at < budget.used_at + LISTENS_TIME);
        let known = known.map(|budget| &budget.pools[..]).unwrap_or_default();
        answer.pools.iter().any(|pool| !known.iter().any(|known| **known == **pool))
    }

    /// What of the owner's is permitted or written, and no target has answered.
    fn held(&self, key: &Key) -> u64 {
        // In this order: what comes into the cache meanwhile counts twice, and not never.
        let permitted = self.owners.lock().get(key).map_or(0, |budget| budget.left + budget.taking);
        let (owner, pool) = key;
        let members = pool.as_ref().and_then(|pool| self.targets.config().pools().get(pool).cloned());
        // A pool of which nothing is known may have any OST.
        let is_meant = |target: DataTarget| match (pool, &members) {
            (Some(_), Some(members)) => target.ost().is_some_and(|ost| members.contains(&ost)),
            _ => true,
        };
        let files = self.back.dirty.files();
        let unsent: u64 = files
            .iter()
            .filter(|file| owner_of(file) == *owner)
            .map(|file| file.inner.lock().cache.space_on(is_meant))
            .sum();
        permitted + unsent
    }

    /// Tells an MDT that has restarted what is held, before it permits anybody anything.
    pub(crate) async fn restate(&self, restate: &Restate) {
        let limited: Vec<Key> = {
            let owners = self.owners.lock();
            owners.iter().filter(|(_, of)| of.known == Known::Limited).map(|(key, _)| key.clone()).collect()
        };
        for key in limited {
            if let Err(error) = restate.call(hold(&key, self.held(&key), (0, 0))).await {
                tracing::debug!(?key, %error, "the restarted MDT is not told what is held");
            }
        }
    }

    /// The MDT has given this client up: what it permitted others may have been permitted since.
    pub(crate) fn lost(&self) {
        for budget in self.owners.lock().values_mut() {
            (budget.known, budget.left, budget.told) = (Known::Nothing, 0, 0);
        }
    }

    fn begin_ticks(self: &Arc<Self>) {
        if !self.ticks.swap(true, Ordering::AcqRel) {
            let budgets = self.clone();
            self.rt.spawn(async move { budgets.tick().await });
        }
    }

    /// Gives back what nobody uses, until there is nothing.
    async fn tick(self: Arc<Self>) {
        loop {
            self.rt.sleep(TICK).await;
            if self.back.rooms.is_closed() {
                return;
            }
            let limited: Vec<Key> = {
                let now = self.rt.now();
                let mut owners = self.owners.lock();
                owners.retain(|_, budget| budget.left + budget.told > 0 || !budget.rests(FORGET_TIME, now));
                let rest = owners.iter().filter(|(_, budget)| budget.rests(TICK, now));
                rest.filter(|(_, budget)| budget.known == Known::Limited)
                    .map(|(key, _)| key.clone())
                    .collect()
            };
            for key in limited {
                self.give_back(&key).await;
            }
            if self.owners.lock().is_empty() {
                self.ticks.store(false, Ordering::Release);
                // Whoever came in between has found it set.
                if self.owners.lock().is_empty() || self.ticks.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }

    /// Tells the MDT that nothing is left of what an owner was permitted, if it thinks otherwise.
    async fn give_back(&self, key: &Key) {
        let turn = self.owners.lock().get(key).map(|budget| budget.turn.clone());
        let Some(turn) = turn else { return };
        let Ok(_turn) = turn.0.acquire().await else { return };
        if let Some(budget) =
            self.owners.lock().get_mut(key).filter(|budget| budget.rests(TICK, self.rt.now()))
        {
            budget.left = 0;
        }
        let told = self.owners.lock().get(key).map(|budget| budget.told);
        if told.is_some_and(|told| told != self.held(key))
            && let Err(error) = self.ask(key, (0, 0)).await
        {
            tracing::debug!(?key, %error, "the MDT is not told what is held");
        }
    }
}

/// Says that a client holds so much of an owner's, and asks for `least` to `most` bytes more.
fn hold(([uid, gid, project], pool): &Key, held: u64, (least, most): (u64, u64)) -> HoldSpace {
    let pool = pool.as_deref().unwrap_or_default().to_owned();
    HoldSpace { uid: *uid, gid: *gid, held, least, most, project: *project, pool }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: u64, free_ms: u32) -> SpaceHeld {
        SpaceHeld { bytes, free_ms, is_changing: false, pools: Vec::new(), pools_ms: 0 }
    }

    #[test]
    fn nothing_is_written_before_the_mdt_has_permitted_it() {
        let mut budget = Budget::default();
        assert!(!budget.take(1, Time(0)), "it was not asked");
        budget.answered(&answer(0, 0), (Time(0), 1));
        assert!(!budget.take(1, Time(0)), "it refuses");
        budget.answered(&answer(10, 0), (Time(0), 1));
        assert!(budget.take(7, Time(1)) && !budget.take(4, Time(2)) && budget.take(3, Time(3)));
        assert_eq!((budget.left, budget.taking, budget.used_at), (0, 10, Time(3)));
    }

    #[test]
    fn who_has_no_limits_is_asked_about_now_and_then() {
        let mut budget = Budget::default();
        budget.answered(&answer(0, 2), (Time(5), 1));
        let until = Time(5) + Duration::from_millis(2);
        assert!(budget.take(1 << 40, Time(6)) && budget.take(1 << 40, Time(until.0 - 1)));
        assert!(!budget.take(1, until));
        budget.answered(&answer(3, 0), (until, 4));
        assert!(!budget.take(4, until), "it has one now");
    }

    #[test]
    fn who_has_enough_asks_whether_there_are_other_pools() {
        let mut budget = Budget::default();
        let told = |bytes, pools: &[&str]| SpaceHeld {
            pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
            pools_ms: 2,
            ..answer(bytes, 0)
        };
        budget.answered(&told(10, &[]), (Time(0), 1));
        let until = Time(0) + Duration::from_millis(2);
        assert!(budget.take(4, Time(1)) && !budget.take(4, until), "there may be one by now");
        budget.answered(&told(0, &["flash"]), (until, 0));
        assert_eq!((budget.left, &*budget.pools), (6, &["flash".into()][..]));
        let later = until + Duration::from_millis(2);
        assert!(!budget.has(1, later));
        budget.untold(later);
        assert!(budget.has(1, later) && budget.pools.len() == 1, "the MDT is away");
        budget.answered(&told(0, &[]), (later, 7));
        assert_eq!((budget.left, budget.pools.len()), (0, 0));
    }

    #[test]
    fn what_is_being_written_does_not_rest() {
        let mut budget = Budget::default();
        budget.answered(&answer(10, 0), (Time(0), 1));
        assert!(budget.take(5, Time(0)));
        assert!(!budget.rests(TICK, Time(0) + TICK));
        budget.taking = 0;
        assert!(budget.rests(TICK, Time(0) + TICK) && !budget.rests(TICK, Time(1)));
    }
}
