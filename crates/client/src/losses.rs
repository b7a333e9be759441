//! What applications were told is done, and is lost: whoever asks whether all is durable is told so once. Pure state.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::Code;

use crate::{Error, Result};

/// Counts losses, and who was told of them.
#[derive(Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    /// Somebody was told of so many.
    told: AtomicU64,
}

impl Losses {
    /// One more.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
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
}
