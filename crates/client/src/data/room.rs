//! Bounds of what this client has written: what is not sent yet, of each OST and of all together, and with it what was
//! sent and has to be kept until it is durable (Lustre's unstable pages).
//!
//! An OST that is slow takes what is its own and no more: who writes to others goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proto::DataTarget;
use rt::memory::User;
use rt::sync::Semaphore;

use crate::order::{LEAF, Mutex, ROOMS, RwLock};
use crate::{Error, Result};

/// However much the process holds, so much may be written and not durable: with less nothing would go on. In bytes.
const WRITTEN_MIN: u64 = 4 << 20;

/// So many bytes may be taken. Who waits for some has his turn.
pub(crate) struct Bound {
    permits: Semaphore,
    max: Mutex<LEAF, u64>,
    /// What was taken beyond the bound: it is given back first.
    debt: AtomicU64,
}

impl Bound {
    fn new(max: u64) -> Bound {
        let max = max.min(Semaphore::MAX_PERMITS as u64);
        Bound { permits: Semaphore::new(max as usize), max: Mutex::new(max), debt: AtomicU64::new(0) }
    }

    /// Most that may be taken.
    pub(crate) fn max(&self) -> u64 {
        *self.max.lock()
    }

    /// What is taken.
    pub(crate) fn used(&self) -> u64 {
        let max = self.max.lock();
        (*max + self.debt.load(Ordering::Relaxed)).saturating_sub(self.permits.available_permits() as u64)
    }

    fn try_take(&self, bytes: u32) -> bool {
        self.permits.try_acquire_many(bytes).is_ok_and(|permit| {
            permit.forget();
            true
        })
    }

    fn give(&self, bytes: u64) {
        let pay = |debt: u64| Some(debt.saturating_sub(bytes));
        let paid = match self.debt.load(Ordering::Relaxed) {
            0 => 0,
            _ => self
                .debt
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, pay)
                .map_or(0, |debt| debt.min(bytes)),
        };
        if bytes > paid {
            self.permits.add_permits((bytes - paid) as usize);
        }
    }

    /// Takes what there may be no room for.
    fn force(&self, bytes: u64) {
        self.debt.fetch_add(bytes, Ordering::AcqRel);
        loop {
            let debt = self.debt.load(Ordering::Acquire);
            let free = self.permits.forget_permits(usize::try_from(debt).unwrap_or(usize::MAX)) as u64;
            if free == 0 {
                return;
            }
            // Others may have paid meanwhile: then this is too much, and goes back.
            self.give(free);
            if self.debt.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    fn set_max(&self, new: u64) {
        let new = new.min(Semaphore::MAX_PERMITS as u64);
        let mut max = self.max.lock();
        match new.checked_sub(*max) {
            Some(more) => self.give(more),
            None => self.force(*max - new),
        }
        *max = new;
    }
}

/// What is written and not answered yet of one OST.
pub(crate) struct OstRoom {
    pub(crate) dirty: Bound,
    /// What of it is on its way.
    pub(crate) in_flight: AtomicU64,
}

/// How much is taken, and how much may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) max: u64,
    pub(crate) used: u64,
}

/// All bounds of a client.
pub(crate) struct Rooms {
    /// Written and not answered, of all OSTs.
    dirty: Bound,
    /// The same, and what was answered and is not durable.
    kept: Bound,
    /// What was answered and is not durable.
    unstable: AtomicU64,
    in_flight: AtomicU64,
    /// Accounts for all of it.
    user: User,
    ost_max: u64,
    osts: RwLock<ROOMS, BTreeMap<DataTarget, Arc<OstRoom>>>,
    closed: AtomicBool,
}

impl Rooms {
    /// Bounds in bytes: of each OST, of all, and with what is not durable. `user` accounts for it.
    pub(crate) fn new([ost_max, dirty_max, kept_max]: [u64; 3], user: User) -> Rooms {
        Rooms {
            dirty: Bound::new(dirty_max),
            kept: Bound::new(kept_max),
            unstable: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            user,
            ost_max: ost_max.min(dirty_max),
            osts: RwLock::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// That of one OST, made with its first use.
    pub(crate) fn of(&self, target: DataTarget) -> Arc<OstRoom> {
        if let Some(room) = self.osts.read().get(&target) {
            return room.clone();
        }
        let new = || Arc::new(OstRoom { dirty: Bound::new(self.ost_max), in_flight: AtomicU64::new(0) });
        let mut osts = self.osts.write();
        let room = osts.entry(target).or_insert_with(new).clone();
        if self.closed.load(Ordering::Acquire) {
            room.dirty.permits.close();
        }
        room
    }

    /// Takes `bytes` for an OST if nobody has to wait for them.
    pub(crate) fn try_take(&self, room: &OstRoom, bytes: u32) -> bool {
        if !room.dirty.try_take(bytes) {
            return false;
        }
        if !self.dirty.try_take(bytes) {
            room.dirty.give(u64::from(bytes));
            return false;
        }
        if !self.kept.try_take(bytes) {
            self.dirty.give(u64::from(bytes));
            room.dirty.give(u64::from(bytes));
            return false;
        }
        self.user.add(u64::from(bytes));
        true
    }

    /// The same, and waits. The OST's own comes first: who waits for it keeps nobody else waiting.
    pub(crate) async fn take(&self, room: &OstRoom, bytes: u32) -> Result<()> {
        let own = room.dirty.permits.acquire_many(bytes).await.map_err(|_| Error::Closed)?;
        let all = self.dirty.permits.acquire_many(bytes).await.map_err(|_| Error::Closed)?;
        let kept = self.kept.permits.acquire_many(bytes).await.map_err(|_| Error::Closed)?;
        [own, all, kept].into_iter().for_each(|permit| permit.forget());
        self.user.add(u64::from(bytes));
        Ok(())
    }

    /// `bytes` of what was taken for an OST were not needed, or were answered.
    pub(crate) fn give(&self, target: DataTarget, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.user.sub(bytes);
        self.of(target).dirty.give(bytes);
        self.dirty.give(bytes);
        self.kept.give(bytes);
    }

    /// An OST has answered what is not durable, or it has become durable: it kept `before` bytes, and keeps `now`.
    pub(crate) fn retained(&self, before: u64, now: u64) {
        self.user.changed(before, now);
        match now.checked_sub(before) {
            Some(more) => {
                self.unstable.fetch_add(more, Ordering::Relaxed);
                self.kept.force(more);
            }
            None => {
                self.unstable.fetch_sub(before - now, Ordering::Relaxed);
                self.kept.give(before - now);
            }
        }
    }

    /// A request with `bytes` is sent to an OST.
    pub(crate) fn sent(&self, room: &OstRoom, bytes: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        room.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It was answered.
    pub(crate) fn answered(&self, room: &OstRoom, bytes: u64) {
        self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        room.in_flight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is on its way to all OSTs.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// What was answered and is not durable.
    pub(crate) fn unstable(&self) -> u64 {
        self.unstable.load(Ordering::Relaxed)
    }

    /// The memory of the process.
    pub(crate) fn memory(&self) -> &rt::memory::Memory {
        self.user.memory()
    }

    /// Whether writers have to wait until the process holds less. Not for others, when little of it is written.
    pub(crate) fn is_short(&self) -> bool {
        self.memory().is_short() && self.kept().used > WRITTEN_MIN
    }

    /// Whether the client is unmounted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether so much is not durable that OSTs are to be asked for a commit, before writers have to wait for it.
    pub(crate) fn wants_commit(&self) -> bool {
        self.unstable() > self.kept.max() / 2
    }

    /// Of everything that is written and not sent.
    pub(crate) fn dirty(&self) -> Taken {
        Taken { max: self.dirty.max(), used: self.dirty.used() }
    }

    /// The same of one OST.
    pub(crate) fn of_ost(&self, target: DataTarget) -> Taken {
        let room = self.of(target);
        Taken { max: room.dirty.max(), used: room.dirty.used() }
    }

    /// Of everything that is written and not durable.
    pub(crate) fn kept(&self) -> Taken {
        Taken { max: self.kept.max(), used: self.kept.used() }
    }

    /// What is left for other things in the bound of everything.
    pub(crate) fn left(&self) -> u64 {
        let Taken { max, used } = self.kept();
        max.saturating_sub(used)
    }

    pub(crate) fn set_dirty_max(&self, bytes: u64) {
        self.dirty.set_max(bytes);
    }

    pub(crate) fn set_kept_max(&self, bytes: u64) {
        self.kept.set_max(bytes);
    }

    pub(crate) fn set_ost_max(&self, target: DataTarget, bytes: u64) {
        self.of(target).dirty.set_max(bytes);
    }

    /// Whoever waits is told that the client is unmounted.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.dirty.permits.close();
        self.kept.permits.close();
        self.osts.read().values().for_each(|room| room.dirty.permits.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::OstIndex;

    fn ost(index: u32) -> DataTarget {
        OstIndex(index).into()
    }

    #[test]
    fn what_is_taken_is_counted_through_changes_of_the_bound() {
        let bound = Bound::new(100);
        assert!(bound.try_take(60) && !bound.try_take(41) && bound.try_take(40));
        bound.set_max(30);
        assert_eq!((bound.used(), bound.max()), (100, 30));
        bound.give(60);
        assert_eq!(bound.used(), 40);
        assert!(!bound.try_take(1));
        bound.give(20);
        assert_eq!(bound.used(), 20);
        assert!(!bound.try_take(11) && bound.try_take(10));
        bound.set_max(50);
        assert!(bound.try_take(20) && !bound.try_take(1));
        bound.force(30);
        assert_eq!(bound.used(), 80);
        bound.give(80);
        assert_eq!(bound.used(), 0);
        assert!(bound.try_take(50) && !bound.try_take(1));
    }

    #[test]
    fn an_ost_takes_its_own_and_no_more() {
        let memory = rt::memory::Share::of(1 << 40).memory().clone();
        let rooms = Rooms::new([40, 100, 100], memory.user("written"));
        let (slow, quick) = (rooms.of(ost(0)), rooms.of(ost(1)));
        assert!(rooms.try_take(&slow, 40) && !rooms.try_take(&slow, 1));
        assert!(rooms.try_take(&quick, 40) && !rooms.try_take(&quick, 1));
        assert_eq!((rooms.dirty().used, rooms.kept().used), (80, 80));
        rooms.give(ost(1), 40);
        rooms.retained(0, 40);
        assert_eq!((rooms.dirty().used, rooms.kept().used, rooms.unstable()), (40, 80, 40));
        assert!(!rooms.try_take(&quick, 21) && rooms.try_take(&quick, 20));
        rooms.retained(40, 0);
        assert_eq!((rooms.kept().used, rooms.left(), rooms.unstable()), (60, 40, 0));
        assert_eq!(memory.users(), [("written", 60)]);
    }
}
