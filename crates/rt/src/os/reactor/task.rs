//! Futures of a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::core::{self, Core};
use crate::BoxFuture;

/// A poll that takes longer than this has others wait.
const HEAVY_TIME: Duration = Duration::from_micros(250);

/// A future that one core polls.
pub(super) struct Task {
    core: Arc<Core>,
    /// Whichever core wakes it polls it.
    floats: bool,
    key: u64,
    /// Gone when it is done.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// It will be polled.
    is_queued: AtomicBool,
    /// It had much to do when it was polled last.
    is_heavy: AtomicBool,
}

/// Has `core` run `future` to its end. One that comes after the core was stopped is dropped.
pub(super) fn spawn(core: &Arc<Core>, future: BoxFuture<'static, ()>) {
    if let Some(task) = make(core, false, future) {
        core.schedule(task);
    }
}

/// Polls `future` now, and has a core run it to its end: `core`, or if the calling thread is none, any core that wakes it.
pub(super) fn spawn_waiting(core: &Arc<Core>, future: BoxFuture<'static, ()>) {
    if let Some(task) = make(core, !core.is_here(), future) {
        task.run();
    }
}

fn make(core: &Arc<Core>, floats: bool, future: BoxFuture<'static, ()>) -> Option<Arc<Task>> {
    let mut future = Some(future);
    core.keep(|key| {
        let future = Mutex::new(future.take());
        let (is_queued, is_heavy) = (AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(Task { core: core.clone(), floats, key, future, is_queued, is_heavy })
    })
}

impl Task {
    /// Polls it once. Only for the core's thread, and for whoever makes it.
    pub(super) fn run(self: &Arc<Self>) {
        // Before the poll: a wake-up from now on asks for another one.
        self.is_queued.swap(false, Ordering::AcqRel);
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        let around = core::begin_poll();
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        core::go_on(around);
        if polled.is_ready() {
            let done = slot.take();
            drop(slot);
            drop(done);
            self.core.forget(self.key);
        }
    }

    /// The last poll took so long.
    pub(super) fn took(&self, time: Duration) {
        let is_heavy = time > HEAVY_TIME;
        if self.is_heavy.load(Ordering::Relaxed) != is_heavy {
            self.is_heavy.store(is_heavy, Ordering::Relaxed);
        }
    }

    /// Whether it comes behind those that have less to do.
    pub(super) fn is_heavy(&self) -> bool {
        self.is_heavy.load(Ordering::Relaxed)
    }

    fn schedule(self: Arc<Self>) {
        match self.floats {
            true => core::schedule_here(self.core.node(), self.clone())
                .unwrap_or_else(|task| self.core.schedule(task)),
            false => self.core.clone().schedule(self),
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
            self.schedule();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.clone().schedule();
        }
    }
}
