//! Threads that wait for the disk, so that those that serve do not.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, oneshot};

/// Threads of one pool. Each carries one operation of the disk, so this is also the depth of the disk's queue.
const THREADS_MAX: usize = 8;
/// Operations that may wait for a thread; whoever has more waits before it queues.
const QUEUE_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// A pool. Its threads start when there is work for them and end with it.
pub(super) struct Pool {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(super) fn new() -> Pool {
        let shared = Shared { state: Mutex::default(), work: Condvar::new() };
        Pool { shared: Arc::new(shared), places: Arc::new(Semaphore::new(QUEUE_MAX)) }
    }

    /// Runs `work` on a thread of the pool. What was queued is done even if the caller does not wait for it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (sender, receiver) = oneshot::channel();
        self.push(Box::new(move || {
            let _place = place;
            // Nobody may be waiting any more; the work counts all the same.
            let _ = sender.send(work());
        }))?;
        receiver.await.map_err(|_| io::Error::other("the operation panicked"))?
    }

    fn push(&self, job: Job) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.idle <= state.queue.len() && state.threads < THREADS_MAX {
            let shared = self.shared.clone();
            let name = format!("weft-disk-{}", state.threads);
            match std::thread::Builder::new().name(name).spawn(move || shared.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if let Some(job) = state.queue.pop_front() {
                    break job;
                }
                if state.closed {
                    return;
                }
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            };
            drop(state);
            // A panic is reported to the caller by the dropped channel; the thread goes on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tests::block_on_plain;

    #[test]
    fn work_runs_elsewhere_and_comes_back() {
        let pool = Pool::new();
        let name = block_on_plain(pool.run(|| Ok(std::thread::current().name().map(str::to_owned))));
        assert_eq!(name.expect("it ran").as_deref(), Some("weft-disk-0"));
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives() {
        let pool = Pool::new();
        for _ in 0..2 * THREADS_MAX {
            let result: io::Result<()> = block_on_plain(pool.run(|| panic!("on purpose")));
            assert!(result.is_err());
        }
        assert_eq!(block_on_plain(pool.run(|| Ok(3))).expect("it ran"), 3);
    }

    #[test]
    fn many_at_once_use_several_threads_and_all_end() {
        let pool = Pool::new();
        let barrier = Arc::new(std::sync::Barrier::new(THREADS_MAX));
        std::thread::scope(|scope| {
            for _ in 0..THREADS_MAX {
                scope.spawn(|| {
                    let barrier = barrier.clone();
                    block_on_plain(pool.run(move || Ok(barrier.wait()))).expect("it ran");
                });
            }
        });
        assert_eq!(pool.shared.state.lock().threads, THREADS_MAX);
    }

    #[test]
    fn what_was_queued_is_done_though_nobody_waits() {
        let pool = Pool::new();
        let (sender, receiver) = oneshot::channel();
        let mut run = Box::pin(pool.run(move || {
            let _ = sender.send(());
            Ok(())
        }));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::future::Future::poll(run.as_mut(), &mut cx);
        drop(run);
        drop(pool);
        block_on_plain(receiver).expect("it ran");
    }
}
