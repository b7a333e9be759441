//! One thread for each core, with one io_uring that carries everything: tasks, timers, disk, sockets, and the
//! kernel's file system requests.
//!
//! A task stays on the core that it was spawned on, so what a request needs happens on the thread that took it: nothing is
//! handed to another thread, and one system call submits what is wanted and waits for what is done. Waking another core is
//! the exception, and is counted.
//!
//! | file | |
//! |---|---|
//! | `core` | what other threads know of a core: its inbox, and how it is woken |
//! | `run` | the thread's loop |
//! | `task`, `timers` | futures, and what waits for a time |
//! | `op` | one operation of the ring as a future |
//! | `watch` | when a socket can be read or written |
//! | `ring`, `source` | the ring itself, and others who have entries in it |

mod core;
mod op;
mod queue;
mod ring;
mod run;
mod source;
mod task;
#[cfg(test)]
mod tests;
mod timers;
mod watch;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::core::{Core, Order};
use crate::BoxFuture;

pub(super) use core::{AtTurnEnd, at_turn_end};
pub use op::Op;
pub(super) use op::{Direction, Want};
pub use ring::Ring;
pub use source::{Attached, Goes, Source};
pub use timers::Sleep;
pub(super) use watch::Watch;

/// Ready at once, but now and then only after others of the core had their turn.
pub(super) fn poll_step(cx: &mut Context<'_>) -> Poll<()> {
    if core::step() {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// The cores of a node.
pub struct Reactors {
    cores: Vec<Arc<Core>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Where the next task goes that has work of its own for long.
    turn: AtomicU64,
}

impl Reactors {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// This kernel has no io_uring as it is needed here (Linux 6.1 and later have), or it is forbidden.
    pub(super) fn start(count: usize) -> io::Result<Reactors> {
        static NODES: AtomicU64 = AtomicU64::new(0);
        let node = NODES.fetch_add(1, Ordering::Relaxed);
        let cores = (0..count.max(1)).map(|number| Core::new(node, number).map(Arc::new));
        let cores = cores.collect::<io::Result<Vec<_>>>()?;
        let reactors = Reactors { cores, threads: Mutex::default(), turn: AtomicU64::new(0) };
        for core in &reactors.cores {
            let thread = run::start(core.clone());
            // Those that run already end with this value.
            reactors.threads.lock().push(thread?);
        }
        Ok(reactors)
    }

    /// How many cores there are.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// The core of the calling thread; of a thread that is none of these, the one whose processor it is on.
    fn here(&self) -> &Arc<Core> {
        match core::current(self.cores[0].node()) {
            Some(number) => &self.cores[number],
            None => &self.cores[rustix::thread::sched_getcpu() % self.cores.len()],
        }
    }

    /// Runs `future` as a task of this core.
    pub(super) fn spawn(&self, future: BoxFuture<'static, ()>) {
        task::spawn(self.here(), future);
    }

    /// Polls `future` now, and runs it to its end as a task of this core; of a thread that is none of these, of whichever core wakes it.
    pub(super) fn spawn_waiting(&self, future: BoxFuture<'static, ()>) {
        task::spawn_waiting(self.here(), future);
    }

    /// Runs `future` as a task of one core after another.
    pub(super) fn spawn_apart(&self, future: BoxFuture<'static, ()>) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        task::spawn(&self.cores[turn % self.cores.len()], future);
    }

    /// Runs `future` as a task of the next core that sleeps, or else of this one.
    pub(super) fn spawn_behind(&self, future: BoxFuture<'static, ()>) {
        let here = self.here();
        let (before, behind) = self.cores.split_at(here.number());
        let idle = behind.iter().chain(before).find(|core| core.is_asleep());
        task::spawn(idle.unwrap_or(here), future);
    }

    /// Waits until `deadline`.
    pub(super) fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(self.here().clone(), deadline)
    }

    /// Begins what `want` says; it is carried out even if the result is not waited for.
    pub(super) fn begin<K: Send + 'static>(&self, want: Want<K>) -> Op<K> {
        op::begin(self.here(), want)
    }

    /// Has core `number`, or the one that stands for it where there are fewer, carry `source` in its ring. The core's thread stays on
    /// `processor` from now on, if one is given.
    pub fn attach(&self, number: usize, processor: Option<usize>, source: Box<dyn Source>) -> Attached {
        let core = &self.cores[number % self.cores.len()];
        core.order(Order::Attach { source, processor });
        Attached::new(core.clone())
    }

    /// How often a core was woken by another thread.
    pub fn wakes(&self) -> u64 {
        self.cores.iter().map(|core| core.wakes()).sum()
    }

    /// Ends all tasks, and the threads within `patience`, unless it is one of them that calls.
    pub(super) fn stop(&self, patience: Duration) {
        self.cores.iter().for_each(|core| core.stop());
        let threads = std::mem::take(&mut *self.threads.lock());
        if core::current(self.cores[0].node()).is_some() {
            return;
        }
        let deadline = Instant::now() + patience;
        for (core, thread) in self.cores.iter().zip(threads) {
            if core.wait_ended(deadline) {
                // A panic of a task has ended the process already.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        self.cores.iter().for_each(|core| core.stop());
    }
}
