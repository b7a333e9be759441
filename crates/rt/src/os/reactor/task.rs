//! Futures of a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

use super::core::{self, Core};
use crate::BoxFuture;

/// A future that one core polls.
pub(super) struct Task {
    core: Arc<Core>,
    key: u64,
    /// Gone when it is done.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// It will be polled.
    is_queued: AtomicBool,
}

/// Has `core` run `future` to its end. One that comes after the core was stopped is dropped.
pub(super) fn spawn(core: &Arc<Core>, future: BoxFuture<'static, ()>) {
    let mut future = Some(future);
    let task = core.keep(|key| {
        let future = Mutex::new(future.take());
        Arc::new(Task { core: core.clone(), key, future, is_queued: AtomicBool::new(true) })
    });
    if let Some(task) = task {
        core.schedule(task);
    }
}

impl Task {
    /// Polls it once. Only for the core's thread.
    pub(super) fn run(self: &Arc<Self>) {
        // Before the poll: a wake-up from now on asks for another one.
        self.is_queued.swap(false, Ordering::AcqRel);
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        core::begin_poll();
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            let done = slot.take();
            drop(slot);
            drop(done);
            self.core.forget(self.key);
        }
    }

    /// Drops what it holds.
    pub(super) fn cancel(&self) {
        let future = self.future.lock().take();
        drop(future);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let core = self.core.clone();
            core.schedule(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.core.schedule(self.clone());
        }
    }
}
