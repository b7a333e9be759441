//! The one timer of a client: sends what has been dirty for long, and closes what was written.

use std::sync::Arc;
use std::time::Duration;

use rt::Time;
use rt::wait::unless;

use crate::names::Sizes;

/// How often the timer looks, while there is anything to look at.
const TICK: Duration = Duration::from_millis(500);
/// Age at which dirty data is sent; with a tick, 5 s at most.
const DIRTY_AGE_MAX: Duration = Duration::from_millis(4500);

impl Sizes {
    /// Runs the timer until the client is unmounted.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            if unless(self.data.lease.ended(), self.data.back.dirty.until_armed()).await.is_none() {
                return;
            }
            loop {
                if unless(self.data.lease.ended(), self.rt.sleep(TICK)).await.is_none() {
                    return;
                }
                self.tick();
                // Whoever adds something after the look finds the timer at rest and wakes it.
                self.data.back.dirty.set_armed(false);
                if !self.data.back.dirty.has_dirty() && self.closer.is_empty() {
                    break;
                }
                self.data.back.dirty.set_armed(true);
            }
        }
    }

    fn tick(self: &Arc<Self>) {
        let now = self.rt.now();
        let until = Time(now.0.saturating_sub(DIRTY_AGE_MAX.as_nanos() as u64));
        for file in self.data.back.dirty.files() {
            let due = file.inner.lock().cache.oldest().is_some_and(|oldest| oldest <= until);
            if due {
                self.data.back.send_older(&file, until);
            }
        }
        self.close_pending();
    }
}
