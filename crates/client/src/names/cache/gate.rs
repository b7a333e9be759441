//! Answers that are on their way to the kernel: callbacks wait for those that began before them.

use std::sync::{Arc, OnceLock};

use rt::sync::oneshot;

/// Held by each answer that is on its way since the last callback.
#[derive(Default)]
pub struct Filling {
    /// Its end tells the callback that closed the gate.
    _ends: Option<oneshot::Sender<()>>,
    /// What is on its way since that callback: the next one waits for these answers, too.
    later: OnceLock<Arc<Filling>>,
}

impl Drop for Filling {
    fn drop(&mut self) {
        // One after the other: each would drop the next within its own drop, and there may be many behind one answer that is slow.
        let mut later = self.later.take();
        while let Some(mut next) = later.and_then(Arc::into_inner) {
            later = next.later.take();
        }
    }
}

/// Opens with each callback anew.
pub(super) struct Gate {
    filling: Arc<Filling>,
    filled: oneshot::Receiver<()>,
}

impl Gate {
    pub(super) fn new() -> Gate {
        let (ends, filled) = oneshot::channel();
        Gate { filling: Arc::new(Filling { _ends: Some(ends), later: OnceLock::new() }), filled }
    }

    /// Keeps callbacks waiting until the answer has reached the kernel.
    pub(super) fn filling(&self) -> Arc<Filling> {
        self.filling.clone()
    }

    /// What is on its way now, for this callback or an earlier one: done when all has arrived.
    pub(super) fn close(&mut self) -> oneshot::Receiver<()> {
        let old = std::mem::replace(self, Gate::new());
        // This one alone sets it.
        let _ = old.filling.later.set(self.filling.clone());
        old.filled
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_over(filled: &mut oneshot::Receiver<()>) -> bool {
        pin!(filled).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_callback_waits_for_answers_of_before_an_earlier_one() {
        let mut gate = Gate::new();
        let (slow, fast) = (gate.filling(), gate.filling());
        let mut first = gate.close();
        drop(fast);
        assert!(!is_over(&mut first));
        let later = gate.filling();
        let mut second = gate.close();
        drop(later);
        assert!(!is_over(&mut second), "the kernel may still get an answer of before the first");
        drop(slow);
        assert!(is_over(&mut first) && is_over(&mut second));
        assert!(is_over(&mut gate.close()), "nothing is on its way");
    }

    #[test]
    fn any_number_of_callbacks_wait_for_one_answer() {
        let mut gate = Gate::new();
        let slow = gate.filling();
        let mut all: Vec<_> = (0..100_000).map(|_| gate.close()).collect();
        assert!(!all.iter_mut().any(is_over));
        drop(slow);
        assert!(all.iter_mut().all(is_over));
    }
}
