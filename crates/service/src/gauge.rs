//! Counts requests under way, so that a stop can wait for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rt::sync::Notify;

#[derive(Default)]
pub(crate) struct Gauge {
    count: AtomicUsize,
    none: Notify,
}

/// One request under way.
pub(crate) struct Entered<'a> {
    gauge: &'a Gauge,
}

impl Gauge {
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Entered { gauge: self }
    }

    pub(crate) async fn wait_for_none(&self) {
        loop {
            let mut none = std::pin::pin!(self.none.notified());
            none.as_mut().enable();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.gauge.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.gauge.none.notify_waiters();
        }
    }
}
