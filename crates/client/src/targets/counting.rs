//! Whether the statistics of sessions are kept, and where: what a session counts grows with the number of targets, and can be switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rt::Time;

use super::rpcs::{Rpcs, Under, Waiting, Way};
use crate::order::{LEAF, Mutex};

/// What is shown in place of statistics that are switched off.
pub(crate) const DISABLED: &str = "disabled";

/// Whether the sessions of a mount count.
pub(crate) struct Counting(AtomicBool);

impl Counting {
    pub fn new() -> Counting {
        Counting(AtomicBool::new(true))
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }
}

/// Statistics that are made when something is counted first, and given up when they are switched off.
pub(crate) struct Slot<T>(Mutex<LEAF, Option<Arc<T>>>);

impl<T> Slot<T> {
    pub fn empty() -> Slot<T> {
        Slot(Mutex::new(None))
    }

    /// What there is.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.lock().clone()
    }

    /// What there is, made if need be; none while `counting` is off.
    pub fn get_or_make(&self, counting: &Counting, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        let mut slot = self.0.lock();
        // Looked at under the lock: nothing is left behind when it is switched off.
        counting.is_on().then(|| slot.get_or_insert_with(|| Arc::new(make())).clone())
    }

    /// Nothing is kept any more.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Bytes that it takes beside itself.
    pub fn bytes(&self) -> usize {
        if self.0.lock().is_some() { size_of::<T>() } else { 0 }
    }
}

/// Where the requests for data of a session are counted, if they are.
pub(crate) struct Counted(pub Option<Arc<Rpcs>>);

impl Counted {
    /// A read of so many bytes waits for its turn, until the result is dropped.
    pub fn wait(&self, bytes: u64) -> Option<Waiting<'_>> {
        self.0.as_ref().map(|rpcs| rpcs.wait(bytes))
    }

    /// A request for `bytes` that begin at `offset` of their object is sent.
    pub fn begin(&self, way: Way, (offset, bytes): (u64, u64), now: Time) -> Sent<'_> {
        Sent(self.0.as_ref().map(|rpcs| rpcs.begin(way, (offset, bytes), now)))
    }
}

/// A request under way that may be counted.
pub(crate) struct Sent<'a>(Option<Under<'a>>);

impl Sent<'_> {
    /// It was answered.
    pub fn done(self, now: Time) {
        if let Some(under) = self.0 {
            under.done(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_is_given_up_and_not_made_again() {
        let (counting, slot) = (Counting::new(), Slot::empty());
        assert_eq!(slot.get_or_make(&counting, || 7_u64).as_deref(), Some(&7));
        assert_eq!((slot.get().as_deref(), slot.bytes()), (Some(&7), 8));
        counting.set(false);
        slot.clear();
        assert_eq!(slot.get_or_make(&counting, || 8), None);
        assert_eq!((slot.get(), slot.bytes()), (None, 0));
        counting.set(true);
        assert_eq!(slot.get_or_make(&counting, || 9).as_deref(), Some(&9));
    }
}
