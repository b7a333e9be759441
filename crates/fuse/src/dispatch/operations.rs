//! The operations of a mount that are under way.
//!
//! Each is polled once on the thread that brought its request, and becomes a task only if it has to wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use client::job::{self, OfJob};
use client::posix::{Errno, Result};
use rt::Rt;

use crate::engine::Reply;
use crate::interrupt::{Ends, Interrupts, Look, Outcome, Told};
use crate::kernel::reply::Answer;
use crate::ops::Ops;

/// How often an operation is looked after whose process got a signal and lives on.
const WATCH_TICK: Duration = Duration::from_millis(250);
/// How often operations that wait for long are looked after although nobody told of a signal.
const LOOK_TICK: Duration = Duration::from_secs(1);

/// What runs for requests, and who waits for it.
pub(super) struct Operations {
    rt: Rt,
    ops: Arc<Ops>,
    interrupts: Arc<Interrupts>,
    /// Changes that somebody waits for.
    changes: Arc<AtomicUsize>,
    was_busy: AtomicBool,
}

impl Operations {
    /// None is under way.
    pub fn new(rt: Rt, ops: Arc<Ops>) -> Operations {
        let interrupts = Arc::new(Interrupts::default());
        rt.spawn(look_after_all(rt.clone(), Arc::downgrade(&interrupts)));
        Operations { rt, ops, interrupts, changes: Arc::default(), was_busy: AtomicBool::new(false) }
    }

    /// Runs an operation that changes something, to its end, and answers with what it gives.
    pub fn run<F>(&self, reply: Reply, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = Result<Answer>> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if let Poll::Ready(result) = poll_here(operation.as_mut()) {
            return reply.send(result);
        }
        let waits = Waits::count(&self.changes);
        let operation = OfJob::new(job::current(), operation);
        self.rt.spawn_waiting(async move {
            let _waits = waits;
            reply.send(operation.await);
        });
    }

    /// The same for what nobody waits for: closing.
    pub fn run_unawaited<F>(&self, reply: Reply, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if poll_here(operation.as_mut()).is_ready() {
            return reply.send(Ok(Answer::Done));
        }
        let operation = OfJob::new(job::current(), operation);
        self.rt.spawn_waiting(async move {
            operation.await;
            reply.send(Ok(Answer::Done));
        });
    }

    /// Runs an operation that only reads: it is abandoned if the process dies.
    pub fn look<F>(&self, reply: Reply, pid: u32, operation: impl FnOnce(Arc<Ops>) -> F)
    where
        F: Future<Output = Result<Answer>> + Send + 'static,
    {
        self.interruptible(reply, pid, Ends::Death, operation, |_, _| std::future::ready(()));
    }

    /// Runs an operation; if it has to wait and is interrupted, the answer is EINTR, and `rest` has to bring the
    /// operation to its end or drops it.
    pub fn interruptible<F, R>(
        &self,
        reply: Reply,
        pid: u32,
        ends: Ends,
        operation: impl FnOnce(Arc<Ops>) -> F,
        rest: impl FnOnce(Arc<Ops>, Pin<Box<F>>) -> R + Send + 'static,
    ) where
        F: Future<Output = Result<Answer>> + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let mut operation = Box::pin(operation(self.ops.clone()));
        if let Poll::Ready(result) = poll_here(operation.as_mut()) {
            return reply.send(result);
        }
        let (waiting, told) = self.interrupts.wait(reply.unique(), pid, ends, operation);
        self.watch(told);
        let (ops, job) = (self.ops.clone(), job::current());
        self.rt.spawn_waiting(async move {
            match OfJob::new(job, waiting).await {
                Outcome::Done(result) => reply.send(result),
                Outcome::Interrupted(operation) => {
                    let rest = OfJob::new(job, Box::pin(rest(ops, operation)));
                    // A request for a lock that was given up is in nobody's way when the process goes on.
                    if ends == Ends::AnySignal {
                        rest.await;
                        return reply.send(Err(Errno::INTERRUPTED));
                    }
                    reply.send(Err(Errno::INTERRUPTED));
                    rest.await;
                }
            }
        });
    }

    /// The process that waits for the request `unique` got a signal.
    pub fn interrupt(&self, unique: u64) {
        self.watch(self.interrupts.interrupt(unique));
    }

    /// The connection has ended: nobody waits for an answer any more.
    pub fn end_all(&self) {
        let interrupted = self.interrupts.end_all();
        self.was_busy.store(interrupted || self.changes.load(Ordering::Relaxed) > 0, Ordering::Release);
    }

    /// Whether somebody waited for an answer when the connection ended.
    pub fn was_busy(&self) -> bool {
        self.was_busy.load(Ordering::Acquire)
    }

    /// Looks after an operation whose process got a signal that did not kill it: the next one is not told of.
    fn watch(&self, told: Told) {
        let Told::Watch(waiter) = told else { return };
        let rt = self.rt.clone();
        self.rt.spawn(async move {
            while !waiter.is_over() && !waiter.end_if_dying() {
                rt.sleep(WATCH_TICK).await;
            }
        });
    }
}

/// Looks after whoever waits, until the connection is gone.
async fn look_after_all(rt: Rt, interrupts: Weak<Interrupts>) {
    loop {
        match interrupts.upgrade().map_or(Look::Over, |interrupts| interrupts.look_after_all()) {
            Look::Again => {}
            Look::Rest(waits) => waits.notified().await,
            Look::Over => return,
        }
        rt.sleep(LOOK_TICK).await;
    }
}

/// Polls an operation once on the thread that brought it: what needs no waiting pays for no task. The operation is boxed alone:
/// each future around another one would hold it twice.
fn poll_here<F: Future>(operation: Pin<&mut F>) -> Poll<F::Output> {
    operation.poll(&mut Context::from_waker(Waker::noop()))
}

/// An operation that waits.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn count(changes: &Arc<AtomicUsize>) -> Waits {
        changes.fetch_add(1, Ordering::Relaxed);
        Waits(changes.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
