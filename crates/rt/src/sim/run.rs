//! Running a world: tasks while there are any, then the next event.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::control::Handle;
use super::executor::{ROOT, Waking};
use super::options::Options;
use super::slab::Key;
use super::world::{Advance, Shared};
use crate::time::Time;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// What was waited for came.
    Done,
    /// Time was up.
    Limit,
    /// No task can run, and no event will ever come.
    Deadlock,
}

/// The owner of a simulated world, and what runs it. Everything else is done through the [`Handle`] that it
/// dereferences to. Dropping it ends all nodes.
pub struct Sim {
    handle: Handle,
}

impl Deref for Sim {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Sim {
    /// An empty world.
    pub fn new(options: Options) -> Sim {
        Sim { handle: Handle::new(Arc::new(Shared::new(options))) }
    }

    /// A handle that tasks can own.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs the world until `future` is done. Panics, with the seed and what waits for what, if it cannot be done,
    /// or is not within `Options::run_limit`.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let limit = self.shared().with(|world| world.machines.options.run_limit);
        let mut result = None;
        let outcome = self.drive(future, limit, &mut result);
        match result {
            Some(value) => value,
            None => panic!("{outcome:?} at {:?}, seed {}\n{}", self.now(), self.seed(), self.report()),
        }
    }

    /// Runs the world until `future` is done, for at most `limit`.
    pub fn run_timeout<T>(&self, future: impl Future<Output = T>, limit: Duration) -> Result<T, Outcome> {
        let mut result = None;
        let outcome = self.drive(future, limit, &mut result);
        result.ok_or(outcome)
    }

    /// Runs the world until `done` says so; it is asked whenever no task can run.
    pub fn run_until(&self, mut done: impl FnMut() -> bool, limit: Duration) -> Outcome {
        let end = (Time(self.shared().now()) + limit).0;
        loop {
            self.drain();
            if done() {
                return Outcome::Done;
            }
            match self.shared().advance(end) {
                Advance::Event => {}
                Advance::Limit => return Outcome::Limit,
                Advance::Nothing => return Outcome::Deadlock,
            }
        }
    }

    /// Runs the world for `duration`, or until nothing can happen any more.
    pub fn run_for(&self, duration: Duration) {
        self.run_until(|| false, duration);
    }

    fn drive<T>(&self, future: impl Future<Output = T>, limit: Duration, result: &mut Option<T>) -> Outcome {
        let mut future = std::pin::pin!(future);
        let waking = Waking::new(ROOT, self.shared().ready.clone());
        let waker = Waker::from(waking.clone());
        let mut poll_root = || {
            waking.taken();
            let mut cx = Context::from_waker(&waker);
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
                Ok(Poll::Ready(value)) => *result = Some(value),
                Ok(Poll::Pending) => {}
                Err(panic) => self.fail("the root future", panic.as_ref()),
            }
            result.is_some()
        };
        let end = (Time(self.shared().now()) + limit).0;
        if poll_root() {
            return Outcome::Done;
        }
        loop {
            while let Some(key) = self.shared().ready.pop() {
                if key != ROOT {
                    self.poll_task(key);
                } else {
                    self.shared().with(|world| world.machines.clock.count_poll(&world.machines.options));
                    if poll_root() {
                        return Outcome::Done;
                    }
                }
            }
            match self.shared().advance(end) {
                Advance::Event => {}
                Advance::Limit => return Outcome::Limit,
                Advance::Nothing => return Outcome::Deadlock,
            }
        }
    }

    /// Runs all tasks that can run at this moment.
    fn drain(&self) {
        while let Some(key) = self.shared().ready.pop() {
            // A root future that is gone may have left a wake behind.
            if key != ROOT {
                self.poll_task(key);
            }
        }
    }

    fn poll_task(&self, key: Key) {
        let Some((node, mut body)) = self.shared().with(|world| world.begin_poll(key)) else { return };
        // Whoever logs says when and where: costs nothing while nobody listens.
        let _moment = tracing::info_span!("", at = ?self.now(), node = %self.name_of(node)).entered();
        let mut cx = Context::from_waker(&body.waker);
        match catch_unwind(AssertUnwindSafe(|| body.future.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {
                let orphan = self.shared().with(|world| world.end_poll(key, body));
                drop(orphan);
            }
            Ok(Poll::Ready(())) => {
                self.shared().with(|world| world.end_task(key));
                drop(body);
            }
            Err(panic) => {
                self.fail(&format!("node {}", self.name_of(node)), panic.as_ref());
            }
        }
    }

    fn name_of(&self, node: u32) -> String {
        self.shared().with(|world| world.machines.nodes[node as usize].name.to_string())
    }

    fn fail(&self, who: &str, panic: &(dyn Any + Send)) -> ! {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("(no message)");
        panic!("{who} panicked at {:?}, seed {}: {message}", self.now(), self.seed());
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.handle.end();
    }
}
