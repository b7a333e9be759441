//! Threads for what may block for long, which a core of the runtime must not: the kernel is told to forget something, and waits for
//! whoever uses it. There are as many as are blocked at the same time.

// The only threads of this crate besides those of its engines.
#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long a thread without a job stays.
const IDLE: Duration = Duration::from_secs(10);
/// Their jobs are system calls.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that does this alone.
///
/// # Errors
/// There can be no more threads.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(|_| ())
}

/// The calling thread, which is one of these, does nothing for a while.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Threads for jobs of one kind. They end when this value is dropped and all jobs are done.
pub(crate) struct Threads<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: &'static str,
    threads_max: usize,
    work: Box<dyn Fn(T) + Send + Sync>,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    jobs: VecDeque<T>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl<T: Send + 'static> Threads<T> {
    /// With one thread, and up to `threads_max` when all are blocked.
    ///
    /// # Errors
    /// The first thread cannot be started.
    pub(crate) fn start(
        name: &'static str,
        threads_max: usize,
        work: impl Fn(T) + Send + Sync + 'static,
    ) -> io::Result<Threads<T>> {
        let state = State { jobs: VecDeque::new(), threads: 1, idle: 0, is_over: false };
        let shared = Arc::new(Shared {
            name,
            threads_max,
            work: Box::new(work),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        shared.clone().spawn()?;
        Ok(Threads { shared })
    }

    /// Has a job done, by a new thread if no other one is free.
    pub(crate) fn give(&self, job: T) {
        let starts = {
            let mut state = self.shared.state.lock();
            state.jobs.push_back(job);
            let starts = state.jobs.len() > state.idle && state.threads < self.shared.threads_max;
            state.threads += usize::from(starts);
            starts
        };
        self.shared.changed.notify_one();
        if starts && let Err(error) = self.shared.clone().spawn() {
            // The others do it when they can.
            self.shared.state.lock().threads -= 1;
            tracing::warn!(%error, name = self.shared.name, "no thread can be started");
        }
    }
}

impl<T> Drop for Threads<T> {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl<T: Send + 'static> Shared<T> {
    fn spawn(self: Arc<Self>) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(self.name.into()).stack_size(STACK_BYTES);
        thread.spawn(move || self.run()).map(|_| ())
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            (self.work)(job);
        }
    }

    /// The next job; `None`: this thread is not needed any more. One of them stays.
    fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_over {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let is_needed = if state.threads == 1 {
                self.changed.wait(&mut state);
                true
            } else {
                !self.changed.wait_for(&mut state, IDLE).timed_out() || state.threads == 1
            };
            state.idle -= 1;
            if !is_needed && state.jobs.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_that_block_do_not_hold_up_others() {
        let (seen, done) = mpsc::channel();
        let threads = Threads::start("test", 4, move |job: mpsc::Receiver<u32>| {
            let number = job.recv().expect("somebody says it");
            seen.send(number).expect("the test listens");
        })
        .expect("a thread");
        let blocked: Vec<_> = (0..3)
            .map(|number| {
                let (go, job) = mpsc::channel();
                threads.give(job);
                (go, number)
            })
            .collect();
        let (go, job) = mpsc::channel();
        threads.give(job);
        go.send(9).expect("a thread waits for it");
        assert_eq!(done.recv(), Ok(9), "three wait, and the fourth is done");
        for (go, number) in blocked {
            go.send(number).expect("a thread waits for it");
            assert_eq!(done.recv(), Ok(number));
        }
    }

    #[test]
    fn what_was_given_is_done_when_the_threads_end() {
        let (seen, done) = mpsc::channel();
        let threads = Threads::start("test", 1, move |job: u32| {
            seen.send(job).expect("the test listens");
        })
        .expect("a thread");
        (0..5).for_each(|job| threads.give(job));
        drop(threads);
        assert_eq!(done.iter().collect::<Vec<u32>>(), [0, 1, 2, 3, 4]);
    }
}
