//! The job for which something is done: requests that are made meanwhile belong to it.
//!
//! It is a property of what is being polled, like a caller on its stack, and not of a thread: whoever begins something for a
//! job [enters](enter) it for the time of a poll, and [`OfJob`] does so for each poll of a future. What goes on by itself, as a task does,
//! has to be told. With no job, nothing is entered.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use proto::JobId;

thread_local! {
    static CURRENT: Cell<JobId> = const { Cell::new(JobId::NONE) };
}

/// The job for which the caller does what it does.
pub fn current() -> JobId {
    CURRENT.get()
}

/// While it lives, what this thread does is for a job.
#[must_use = "the job is left when this is dropped"]
pub struct Entered {
    before: JobId,
    /// It belongs to the thread.
    thread: PhantomData<*const ()>,
}

/// From here on, what this thread does is for `job`, which may be none, until what this gives is dropped. It is not to be kept across an
/// `.await`, and cannot be sent to another thread.
pub fn enter(job: JobId) -> Entered {
    Entered { before: CURRENT.replace(job), thread: PhantomData }
}

/// The same for no job. A server does what it does for itself, on whosever thread it runs.
pub(crate) fn leave() -> Option<Entered> {
    (!current().is_none()).then(|| enter(JobId::NONE))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// A future that does what it does for a job.
#[must_use = "futures do nothing unless they are polled"]
pub struct OfJob<F> {
    job: JobId,
    future: F,
}

impl<F: Future + Unpin> OfJob<F> {
    /// Has `future` be polled for `job`.
    pub fn new(job: JobId, future: F) -> OfJob<F> {
        OfJob { job, future }
    }
}

impl<F: Future + Unpin> Future for OfJob<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = enter(self.job);
        Pin::new(&mut self.future).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_job_is_entered_for_each_poll() {
        let (a, b) = (JobId::named(b"a"), JobId::named(b"b"));
        let twice = pin!(async {
            let first = current();
            let mut polled = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            (first, current())
        });
        let mut of_a = pin!(OfJob::new(a, twice));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(of_a.as_mut().poll(cx).is_pending());
        assert_eq!(current(), JobId::NONE);
        let _entered = enter(b);
        assert_eq!(of_a.poll(cx), Poll::Ready((a, a)));
        assert_eq!(current(), b);
        {
            let _left = leave();
            assert_eq!(current(), JobId::NONE);
        }
        assert_eq!(current(), b);
    }
}
