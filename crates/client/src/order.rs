//! The order in which the locks of a client are taken. Whoever holds one takes only those behind it, so nobody waits in a circle.
//!
//! Debug builds check it at each lock (`make test-debug`, which `make nightly` runs). Nothing of this is held
//! while something is waited for: the guards are not `Send`.

use std::ops::{Deref, DerefMut};

/// A place in the order; smaller ones are taken first.
pub(crate) type Rank = u8;

/// How far a request for a file lock is.
pub(crate) const TICKET: Rank = 10;
/// File locks.
pub(crate) const FLOCKS: Rank = 11;
/// Closes that wait.
pub(crate) const CLOSES: Rank = 12;
/// Open files.
pub(crate) const HANDLES: Rank = 13;
/// What is made ahead of the MDT.
pub(crate) const AHEAD: Rank = 19;
/// Inode bits that were lost with a session.
pub(crate) const LOST_BITS: Rank = 20;
/// A part of the table of inodes.
pub(crate) const INODES: Rank = 21;
/// Requests under way whose answers may not be kept.
pub(crate) const CHANGES: Rank = 22;
/// Sessions that are not used.
pub(crate) const IDLE: Rank = 30;
/// The data of a file.
pub(crate) const FILE: Rank = 40;
/// How far is read ahead.
pub(crate) const READ_AHEAD: Rank = 43;
/// Files with something to send.
pub(crate) const DIRTY: Rank = 41;
/// A part of the table of files with state.
pub(crate) const FILES: Rank = 42;
/// A part of the table of objects with locks.
pub(crate) const OBJECTS: Rank = 50;
/// What is held of an object.
pub(crate) const HELD: Rank = 51;
/// What is held of each OST, counted.
pub(crate) const SPACES: Rank = 52;
/// What was read.
pub(crate) const CLEAN: Rank = 60;
/// What may be written for each owner.
pub(crate) const BUDGETS: Rank = 62;
/// Bounds of each OST.
pub(crate) const ROOMS: Rank = 61;
/// Sessions.
pub(crate) const SESSIONS: Rank = 70;
/// The configuration.
pub(crate) const CONFIG: Rank = 71;
/// Nothing is taken while one of these is held.
pub(crate) const LEAF: Rank = Rank::MAX;

/// A place in the order that is held by this thread.
struct Held<const RANK: Rank>;

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::{Held, Rank};

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    impl<const RANK: Rank> Held<RANK> {
        /// Called before a lock is taken.
        #[track_caller]
        pub(super) fn new() -> Held<RANK> {
            HELD.with_borrow_mut(|held| {
                let last = held.iter().max();
                assert!(last.is_none_or(|last| *last < RANK), "lock {RANK} is taken while {held:?} are held");
                held.push(RANK);
            });
            Held
        }
    }

    impl<const RANK: Rank> Drop for Held<RANK> {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|rank| *rank == RANK) {
                    held.swap_remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
impl<const RANK: Rank> Held<RANK> {
    #[inline]
    fn new() -> Held<RANK> {
        Held
    }
}

/// A lock with its place in the order.
#[derive(Default)]
pub(crate) struct Mutex<const RANK: Rank, T>(parking_lot::Mutex<T>);

/// The same for one writer or several readers.
#[derive(Default)]
pub(crate) struct RwLock<const RANK: Rank, T>(parking_lot::RwLock<T>);

/// What is locked.
pub(crate) struct Guard<G, const RANK: Rank> {
    guard: G,
    _held: Held<RANK>,
}

/// What a [`Mutex`] has locked.
pub(crate) type MutexGuard<'a, const RANK: Rank, T> = Guard<parking_lot::MutexGuard<'a, T>, RANK>;
/// What a reader of a [`RwLock`] has locked.
pub(crate) type ReadGuard<'a, const RANK: Rank, T> = Guard<parking_lot::RwLockReadGuard<'a, T>, RANK>;
/// What its writer has locked.
pub(crate) type WriteGuard<'a, const RANK: Rank, T> = Guard<parking_lot::RwLockWriteGuard<'a, T>, RANK>;

impl<const RANK: Rank, T> Mutex<RANK, T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Waits for it.
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, RANK, T> {
        let held = Held::new();
        Guard { guard: self.0.lock(), _held: held }
    }
}

impl<const RANK: Rank, T> RwLock<RANK, T> {
    pub(crate) fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// Waits for writers.
    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, RANK, T> {
        let held = Held::new();
        Guard { guard: self.0.read(), _held: held }
    }

    /// Waits for everybody.
    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, RANK, T> {
        let held = Held::new();
        Guard { guard: self.0.write(), _held: held }
    }
}

impl<G: Deref, const RANK: Rank> Deref for Guard<G, RANK> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut, const RANK: Rank> DerefMut for Guard<G, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_order() {
        let (first, second) = (Mutex::<FILE, u32>::new(1), RwLock::<CONFIG, u32>::new(2));
        let held = first.lock();
        assert_eq!(*held + *second.read(), 3);
        drop(held);
        *second.write() = 3;
        assert_eq!(*first.lock(), 1);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "lock 40 is taken while [71] are held")]
    fn the_wrong_order_is_noticed() {
        let (first, second) = (Mutex::<FILE, u32>::new(1), RwLock::<CONFIG, u32>::new(2));
        let _held = second.read();
        first.lock();
    }
}
