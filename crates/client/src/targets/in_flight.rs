//! How many requests for data may be under way with a target (`osc.*.max_rpcs_in_flight`). The bound can be changed while they are.

use std::sync::atomic::{AtomicUsize, Ordering};

use rt::sync::{Semaphore, SemaphorePermit};

use crate::order::{LEAF, Mutex};
use crate::{Error, Result};

/// Requests of one kind.
pub(crate) struct InFlight {
    free: Semaphore,
    /// So many of those under way are above the bound, which was lowered meanwhile: their places end with them.
    above: AtomicUsize,
    most: Mutex<LEAF, usize>,
}

/// What bounds the requests for data of a session: writes and reads apart, so that none of them starves.
pub(crate) struct Bounds {
    pub writes: InFlight,
    pub reads: InFlight,
    /// Those of the reads that nobody waits for yet: who comes meanwhile finds a place.
    pub reads_ahead: InFlight,
}

impl Bounds {
    /// So many reads, and so many writes, at a time at most.
    pub(super) fn new(most: usize) -> Bounds {
        let (writes, reads) = (InFlight::new(most), InFlight::new(most));
        Bounds { writes, reads, reads_ahead: InFlight::new(most.div_ceil(2)) }
    }

    /// From now on so many.
    pub(crate) fn set_most(&self, most: usize) {
        self.writes.set_most(most);
        self.reads.set_most(most);
        self.reads_ahead.set_most(most.div_ceil(2));
    }
}

/// A place for one request.
pub(crate) struct Place<'a> {
    of: &'a InFlight,
    permit: Option<SemaphorePermit<'a>>,
}

impl InFlight {
    /// At most `most` at a time, and at least one.
    pub(crate) fn new(most: usize) -> InFlight {
        let most = most.max(1);
        InFlight { free: Semaphore::new(most), above: AtomicUsize::new(0), most: Mutex::new(most) }
    }

    /// Waits for a place.
    pub(crate) async fn acquire(&self) -> Result<Place<'_>> {
        let permit = self.free.acquire().await.map_err(|_| Error::Closed)?;
        Ok(Place { of: self, permit: Some(permit) })
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        *self.most.lock()
    }

    /// From now on at most `most`, and at least one: those that are under way end by themselves.
    pub(crate) fn set_most(&self, most: usize) {
        let most = most.max(1);
        let mut before = self.most.lock();
        for _ in *before..most {
            // Places that were to end stay instead.
            if !self.ends_one() {
                self.free.add_permits(1);
            }
        }
        let fewer = before.saturating_sub(most);
        let ended = self.free.forget_permits(fewer);
        self.above.fetch_add(fewer - ended, Ordering::AcqRel);
        *before = most;
    }

    /// Whether one was above the bound; then there is one less.
    fn ends_one(&self) -> bool {
        let less = |above: usize| above.checked_sub(1);
        self.above.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take()
            && self.of.ends_one()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A place, if there is one at once.
    fn place(of: &InFlight) -> Option<Place<'_>> {
        match pin!(of.acquire()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place.ok(),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_bound_that_is_lowered_holds_once_those_under_way_are_done() {
        let of = InFlight::new(4);
        let mut under_way: Vec<Place<'_>> = (0..3).filter_map(|_| place(&of)).collect();
        of.set_most(2);
        assert_eq!((of.most(), under_way.len(), place(&of).is_none()), (2, 3, true));
        under_way.pop();
        assert!(place(&of).is_none(), "two are under way");
        under_way.pop();
        assert!(place(&of).is_some());
        // Raised while one is above it: its place stays.
        let mut both: Vec<Place<'_>> = place(&of).into_iter().collect();
        of.set_most(1);
        of.set_most(3);
        both.extend(place(&of));
        assert_eq!((both.len(), place(&of).is_none()), (2, true));
        drop((both, under_way));
        let all: Vec<Place<'_>> = (0..9).filter_map(|_| place(&of)).collect();
        assert_eq!(all.len(), 3);
        drop(all);
        of.set_most(0);
        assert_eq!((of.most(), place(&of).is_some()), (1, true));
    }
}
