//! Limits of space: before a write of a user is accepted, the MDT has permitted it (`docs/operations.md#quotas`).
//!
//! The MDT permits more than one write needs, and is told how much of that is not sent yet. Owners without limits cost a request in three
//! seconds, as long as something is written for them. If the MDT does not answer, their writes go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::wire::messages::{HoldSpace, SpaceHeld};
use proto::{Code, FileOwner};
use rpc::Restate;
use rt::sync::Semaphore;
use rt::{Rt, Time};

use super::{FileState, WriteBack};
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
/// How often what nobody uses is given back.
const TICK: Duration = Duration::from_secs(1);
/// When an owner is forgotten that nothing is written for.
const FORGET_TIME: Duration = Duration::from_secs(60);

/// A user, a group and a project.
type Owner = [u32; 3];

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

/// What this client may write for one owner.
#[derive(Debug, Default)]
struct Budget {
    known: Known,
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
    /// Takes `bytes` if that is permitted.
    fn take(&mut self, bytes: u64, now: Time) -> bool {
        match self.known {
            Known::Free(until) if now < until => {}
            Known::Limited if self.left >= bytes => self.left -= bytes,
            _ => return false,
        }
        self.taking += bytes;
        self.used_at = now;
        true
    }

    /// The MDT has answered a question of `asked_at`. What is left of a limit that is reached, and too little for this client, may be
    /// enough for another one.
    fn answered(&mut self, answer: &SpaceHeld, asked_at: Time) {
        if answer.free_ms > 0 {
            self.known = Known::Free(asked_at + Duration::from_millis(u64::from(answer.free_ms)));
            self.left = 0;
        } else {
            self.known = Known::Limited;
            self.left = if answer.bytes == 0 { 0 } else { self.left + answer.bytes };
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
    owners: Mutex<BUDGETS, BTreeMap<Owner, Budget>>,
    ticks: AtomicBool,
}

/// What was taken for a write that is not in the cache yet.
pub(crate) struct Taking<'a> {
    budgets: &'a Budgets,
    owner: Owner,
    bytes: u64,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.budgets.owners.lock().get_mut(&self.owner) {
            budget.taking = budget.taking.saturating_sub(self.bytes);
        }
    }
}

fn owner_of(file: &FileState) -> Owner {
    let FileOwner { uid, gid, project, .. } = file.owner();
    [uid, gid, project]
}

impl Budgets {
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, back: Arc<WriteBack>) -> Budgets {
        let (owners, ticks) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
        Budgets { rt, targets, back, owners, ticks }
    }

    /// Takes the space `bytes` for a write to `file`, if nobody has to be asked.
    pub(crate) fn try_take(&self, file: &FileState, bytes: u64) -> Option<Taking<'_>> {
        self.try_take_of(owner_of(file), bytes)
    }

    fn try_take_of(&self, owner: Owner, bytes: u64) -> Option<Taking<'_>> {
        let now = self.rt.now();
        let is_taken = self.owners.lock().get_mut(&owner).is_some_and(|budget| budget.take(bytes, now));
        is_taken.then_some(Taking { budgets: self, owner, bytes })
    }

    /// Takes the space `bytes` for a write to `file`; held until it is in the cache, or written.
    ///
    /// # Errors
    /// [`Code::Quota`]: a limit is reached.
    pub(crate) async fn take(self: &Arc<Self>, file: &FileState, bytes: u64) -> Result<Taking<'_>> {
        let (owner, began, mut is_flushed) = (owner_of(file), self.rt.now(), false);
        loop {
            if let Some(taking) = self.try_take_of(owner, bytes) {
                return Ok(taking);
            }
            let is_changing = {
                let turn = self.owners.lock().entry(owner).or_default().turn.clone();
                let _turn = turn.0.acquire().await.map_err(|_| Error::Closed)?;
                if let Some(taking) = self.try_take_of(owner, bytes) {
                    return Ok(taking);
                }
                self.ask_for(owner, bytes).await?
            };
            if let Some(taking) = self.try_take_of(owner, bytes) {
                self.begin_ticks();
                return Ok(taking);
            }
            if !is_flushed {
                // What is written over data that is there takes no more space, and nobody knows before the targets have it.
                is_flushed = true;
                self.flush(owner).await;
                continue;
            }
            if !is_changing || self.rt.now() >= began + CHANGING_TIME {
                return Err(Error::Refused(Code::Quota));
            }
            self.rt.sleep(CHANGING_PAUSE).await;
        }
    }

    /// Sends what was written of an owner's.
    async fn flush(&self, owner: Owner) {
        for file in self.back.dirty.files() {
            if owner_of(&file) == owner {
                self.back.flush_file(&file).await;
            }
        }
    }

    /// Asks the MDT for `bytes`, and more. Says whether it may have more soon.
    async fn ask_for(&self, owner: Owner, bytes: u64) -> Result<bool> {
        let known = self.owners.lock().entry(owner).or_default().known;
        let most = bytes.saturating_mul(WISH_WRITES).max(WISH_BYTES);
        let asked = self.ask(owner, (bytes, most));
        match known {
            Known::Free(_) => match self.rt.timeout(FREE_ANSWER_TIME, asked).await {
                Some(answered) => answered,
                None => {
                    tracing::debug!(?owner, "the MDT does not say whether there are limits: there were none");
                    let until = self.rt.now() + FREE_UNTOLD_TIME;
                    self.owners.lock().entry(owner).or_default().known = Known::Free(until);
                    Ok(false)
                }
            },
            Known::Nothing | Known::Limited => asked.await,
        }
    }

    /// Tells the MDT what is held, and asks for `least` to `most` bytes.
    async fn ask(&self, owner: Owner, (least, most): (u64, u64)) -> Result<bool> {
        let [uid, gid, project] = owner;
        let asked_at = self.rt.now();
        let held = self.held(owner);
        let hold = HoldSpace { uid, gid, held, least, most, project };
        let answer = match self.targets.first_mdt()?.call(hold).await {
            Ok(answered) => answered.reply,
            // An older one counts no space.
            Err(Error::Refused(Code::NotSupported)) => {
                SpaceHeld { bytes: 0, free_ms: FREE_UNTOLD_TIME.as_millis() as u32, is_changing: false }
            }
            Err(error) => return Err(error),
        };
        let mut owners = self.owners.lock();
        let budget = owners.entry(owner).or_default();
        budget.answered(&answer, asked_at);
        budget.told = held + answer.bytes;
        Ok(answer.is_changing)
    }

    /// What of the owner's is permitted or written, and no target has answered.
    fn held(&self, owner: Owner) -> u64 {
        // In this order: what comes into the cache meanwhile counts twice, and not never.
        let permitted = self.owners.lock().get(&owner).map_or(0, |budget| budget.left + budget.taking);
        let files = self.back.dirty.files();
        let unsent: u64 = files
            .iter()
            .filter(|file| owner_of(file) == owner)
            .map(|file| file.inner.lock().cache.space())
            .sum();
        permitted + unsent
    }

    /// Tells an MDT that has restarted what is held, before it permits anybody anything.
    pub(crate) async fn restate(&self, restate: &Restate) {
        let limited: Vec<Owner> = {
            let owners = self.owners.lock();
            owners.iter().filter(|(_, of)| of.known == Known::Limited).map(|(owner, _)| *owner).collect()
        };
        for owner in limited {
            let [uid, gid, project] = owner;
            let hold = HoldSpace { uid, gid, held: self.held(owner), least: 0, most: 0, project };
            if let Err(error) = restate.call(hold).await {
                tracing::debug!(?owner, %error, "the restarted MDT is not told what is held");
            }
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
            let limited: Vec<Owner> = {
                let now = self.rt.now();
                let mut owners = self.owners.lock();
                owners.retain(|_, budget| budget.left + budget.told > 0 || !budget.rests(FORGET_TIME, now));
                let rest = owners.iter().filter(|(_, budget)| budget.rests(TICK, now));
                rest.filter(|(_, budget)| budget.known == Known::Limited).map(|(owner, _)| *owner).collect()
            };
            for owner in limited {
                self.give_back(owner).await;
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
    async fn give_back(&self, owner: Owner) {
        let turn = self.owners.lock().get(&owner).map(|budget| budget.turn.clone());
        let Some(turn) = turn else { return };
        let Ok(_turn) = turn.0.acquire().await else { return };
        if let Some(budget) =
            self.owners.lock().get_mut(&owner).filter(|budget| budget.rests(TICK, self.rt.now()))
        {
            budget.left = 0;
        }
        let told = self.owners.lock().get(&owner).map(|budget| budget.told);
        if told.is_some_and(|told| told != self.held(owner))
            && let Err(error) = self.ask(owner, (0, 0)).await
        {
            tracing::debug!(?owner, %error, "the MDT is not told what is held");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: u64, free_ms: u32) -> SpaceHeld {
        SpaceHeld { bytes, free_ms, is_changing: false }
    }

    #[test]
    fn nothing_is_written_before_the_mdt_has_permitted_it() {
        let mut budget = Budget::default();
        assert!(!budget.take(1, Time(0)), "it was not asked");
        budget.answered(&answer(0, 0), Time(0));
        assert!(!budget.take(1, Time(0)), "it refuses");
        budget.answered(&answer(10, 0), Time(0));
        assert!(budget.take(7, Time(1)) && !budget.take(4, Time(2)) && budget.take(3, Time(3)));
        assert_eq!((budget.left, budget.taking, budget.used_at), (0, 10, Time(3)));
    }

    #[test]
    fn who_has_no_limits_is_asked_about_now_and_then() {
        let mut budget = Budget::default();
        budget.answered(&answer(0, 2), Time(5));
        let until = Time(5) + Duration::from_millis(2);
        assert!(budget.take(1 << 40, Time(6)) && budget.take(1 << 40, Time(until.0 - 1)));
        assert!(!budget.take(1, until));
        budget.answered(&answer(3, 0), until);
        assert!(!budget.take(4, until), "it has one now");
    }

    #[test]
    fn what_is_being_written_does_not_rest() {
        let mut budget = Budget::default();
        budget.answered(&answer(10, 0), Time(0));
        assert!(budget.take(5, Time(0)));
        assert!(!budget.rests(TICK, Time(0) + TICK));
        budget.taking = 0;
        assert!(budget.rests(TICK, Time(0) + TICK) && !budget.rests(TICK, Time(1)));
    }
}
