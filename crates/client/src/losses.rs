//! What applications were told is done, and is lost: whoever asks whether all is durable is told so once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::Code;
use rt::sync::Notify;

use crate::order::{LEAF, Mutex};
use crate::{Error, Result};

/// Counts losses, and who was told of them.
#[derive(Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    /// Somebody was told of so many.
    told: AtomicU64,
    doubts: Mutex<LEAF, Doubts>,
    decided: Notify,
}

/// What may be losses: somebody is asking.
#[derive(Default)]
struct Doubts {
    next: u64,
    open: BTreeSet<u64>,
}

/// Something may be lost.
#[must_use]
pub(crate) struct Doubt(u64);

impl Losses {
    /// One more.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Something may be lost, which is asked for.
    pub(crate) fn doubt(&self) -> Doubt {
        let mut doubts = self.doubts.lock();
        let number = doubts.next;
        doubts.next += 1;
        doubts.open.insert(number);
        Doubt(number)
    }

    /// Whether it is lost.
    pub(crate) fn decide(&self, doubt: &Doubt, is_lost: bool) {
        if is_lost {
            self.add();
        }
        self.doubts.lock().open.remove(&doubt.0);
        self.decided.notify_waiters();
    }

    /// Waits until it is known of all that is in doubt now.
    pub(crate) async fn known(&self) {
        let next = self.doubts.lock().next;
        loop {
            let mut decided = pin!(self.decided.notified());
            decided.as_mut().enable();
            if self.doubts.lock().open.first().is_none_or(|first| *first >= next) {
                return;
            }
            decided.await;
        }
    }

    /// So many are no news to a handle that is opened now: those of which nobody was told are, as Linux has it (`errseq_sample`).
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Tells whoever has seen `seen` of them.
    ///
    /// # Errors
    /// [`Code::Evicted`] if there are more.
    pub(crate) fn take(&self, seen: &AtomicU64) -> Result<()> {
        let count = self.count.load(Ordering::Relaxed);
        if seen.fetch_max(count, Ordering::Relaxed) >= count {
            return Ok(());
        }
        self.told.fetch_max(count, Ordering::Relaxed);
        Err(Error::Refused(Code::Evicted))
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn each_handle_is_told_once_and_the_next_one_if_nobody_was() {
        let losses = Losses::default();
        let open = || AtomicU64::new(losses.told());
        let before = open();
        assert_eq!(losses.take(&before), Ok(()));
        losses.add();
        losses.add();
        let after = open();
        let lost = Err(Error::Refused(Code::Evicted));
        assert_eq!(
            [&before, &before, &after, &after].map(|seen| losses.take(seen)),
            [lost, Ok(()), lost, Ok(())]
        );
        assert_eq!(losses.take(&open()), Ok(()), "others were told");
    }

    #[test]
    fn who_waits_for_doubts_hears_what_they_were() {
        let losses = Losses::default();
        let (lost, removed) = (losses.doubt(), losses.doubt());
        let mut cx = Context::from_waker(Waker::noop());
        let mut known = pin!(losses.known());
        assert!(known.as_mut().poll(&mut cx).is_pending());
        losses.decide(&removed, false);
        // What comes later is not waited for.
        let _later = losses.doubt();
        assert!(known.as_mut().poll(&mut cx).is_pending());
        losses.decide(&lost, true);
        assert!(known.as_mut().poll(&mut cx).is_ready());
        let seen = AtomicU64::new(0);
        assert_eq!(losses.take(&seen), Err(Error::Refused(Code::Evicted)));
        assert_eq!(losses.take(&seen), Ok(()));
    }
}
