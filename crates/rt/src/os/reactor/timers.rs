//! What waits for a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::core::Core;

/// The timers of a core, by time.
#[derive(Default)]
pub(super) struct Timers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// A number beside the time, because several may wait for the same one.
    waiting: BTreeMap<(Instant, u64), Waker>,
}

impl Timers {
    /// When the first is due.
    pub(super) fn first(&self) -> Option<Instant> {
        self.state.lock().waiting.first_key_value().map(|((time, _), _)| *time)
    }

    /// Wakes all that are due.
    pub(super) fn fire(&self, now: Instant) {
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.waiting.first_entry() else { return };
            if first.key().0 > now {
                return;
            }
            let waker = first.remove();
            drop(state);
            waker.wake();
        }
    }

    /// Whether there is none before it now.
    fn add(&self, time: Instant, waker: Waker) -> (u64, bool) {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let is_first = state.waiting.first_key_value().is_none_or(|((first, _), _)| time < *first);
        state.waiting.insert((time, number), waker);
        (number, is_first)
    }

    /// `false` if it has fired.
    fn renew(&self, time: Instant, number: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let Some(waiting) = state.waiting.get_mut(&(time, number)) else { return false };
        waiting.clone_from(waker);
        true
    }

    fn remove(&self, time: Instant, number: u64) {
        let waker = self.state.lock().waiting.remove(&(time, number));
        drop(waker);
    }
}

/// Waits until a time.
pub struct Sleep {
    core: Arc<Core>,
    deadline: Instant,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn new(core: Arc<Core>, deadline: Instant) -> Sleep {
        Sleep { core, deadline, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = &self.core.timers;
        if let Some(number) = self.number {
            if timers.renew(self.deadline, number, cx.waker()) {
                return Poll::Pending;
            }
            self.number = None;
            return Poll::Ready(());
        }
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        let (number, is_first) = timers.add(self.deadline, cx.waker().clone());
        // The thread that waits has to wait for less.
        if is_first && !self.core.is_here() {
            self.core.signal();
        }
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.core.timers.remove(self.deadline, number);
        }
    }
}
