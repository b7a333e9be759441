//! Work that is done in rounds: in each of them every client does some operations while something befalls the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::sync::Notify;

/// Which round it is; cheap to clone.
#[derive(Clone)]
pub struct Rounds {
    /// Operations of each client in a round.
    steps: usize,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    begun: AtomicU64,
    changed: Notify,
}

impl Rounds {
    /// No round has begun.
    pub fn new(steps: usize) -> Rounds {
        assert!(steps > 0, "something is done in a round");
        Rounds { steps, inner: Arc::default() }
    }

    /// Begins the next one.
    pub fn begin(&self) {
        self.inner.begun.fetch_add(1, Ordering::SeqCst);
        self.inner.changed.notify_waiters();
    }

    /// Waits for the round to which the operation `step` of a client belongs, counted from 0.
    pub async fn until_due(&self, step: usize) {
        let round = (step / self.steps) as u64;
        loop {
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            if self.inner.begun.load(Ordering::SeqCst) > round {
                return;
            }
            changed.await;
        }
    }
}
