//! The sign that a target is being stopped.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rt::sync::Notify;
use rt::wait::race_into;

/// Cheap to clone; all clones are stopped together, once and for good.
#[derive(Clone, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    stopped: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Stops.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::SeqCst);
        self.inner.notify.notify_waiters();
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    /// Waits until it is stopped.
    pub async fn until(&self) {
        let mut stopped = pin!(self.inner.notify.notified());
        stopped.as_mut().enable();
        if !self.is_stopped() {
            stopped.await;
        }
    }

    /// What `future` gives, or `None` once stopped; then it is dropped.
    pub fn unless<T>(&self, future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        race_into(self.until(), |()| None, future, Some)
    }
}
