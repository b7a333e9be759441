//! What other threads know of a core.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_uring::squeue;
use parking_lot::{Condvar, Mutex};
use rustix::event::EventfdFlags;

use super::op::Pending;
use super::queue::Queue;
use super::source::Source;
use super::task::Task;
use super::timers::Timers;

/// A core, as all threads see it.
pub(super) struct Core {
    node: u64,
    number: usize,
    inbox: Mutex<Inbox>,
    /// There is something in the inbox, or something else to look at.
    attention: AtomicBool,
    /// The thread waits in the kernel, or is about to.
    asleep: AtomicBool,
    wake: OwnedFd,
    wakes: AtomicU64,
    pub(super) timers: Timers,
    /// All tasks that are not done, so that they can be dropped at the end.
    tasks: Mutex<Tasks>,
    stopped: AtomicBool,
    ended: (Mutex<bool>, Condvar),
}

#[derive(Default)]
struct Tasks {
    next: u64,
    all: BTreeMap<u64, Arc<Task>>,
}

/// What others leave for a core.
#[derive(Default)]
pub(super) struct Inbox {
    pub tasks: VecDeque<Arc<Task>>,
    pub orders: Vec<Order>,
}

/// What a core's thread is to do with its ring.
pub(super) enum Order {
    /// Submits an operation.
    Submit { entry: Box<squeue::Entry128>, pending: Arc<dyn Pending> },
    /// Ends one that was submitted before.
    Cancel(Arc<dyn Pending>),
    /// Takes a source in.
    Attach { source: Box<dyn Source>, processor: Option<usize> },
}

impl Order {
    /// The core has ended: an operation is as if it had been cancelled.
    pub(super) fn refuse(self) {
        if let Order::Submit { pending, .. } = self {
            pending.completed(-libc::ECANCELED, false);
        }
    }
}

/// Steps of one poll before it has to make room for others: what never waits would keep its core for ever.
const STEPS_MAX: u32 = 128;
/// The time that they have, about. So who sends much at a time holds others up for no longer than that.
const STEPS_TIME_MAX: Duration = Duration::from_micros(500);
/// Steps between two looks at the time.
const STEPS_UNTIMED: u32 = 4;

/// What belongs to the thread of a core alone.
struct Local {
    /// That the current poll has left.
    left: Cell<Left>,
    /// Node and number.
    core: Cell<Option<(u64, usize)>>,
    tasks: RefCell<Queue<Arc<Task>>>,
    orders: RefCell<Vec<Order>>,
    /// Who has something to do at the end of the turn.
    at_end: RefCell<Vec<Arc<dyn AtTurnEnd>>>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            left: Cell::new(Left { steps: STEPS_MAX, began: None }),
            core: Cell::new(None),
            tasks: RefCell::new(Queue::new()),
            orders: RefCell::new(Vec::new()),
            at_end: RefCell::new(Vec::new()),
        }
    };
}

/// Something to do once for all that happens in a turn of a core: between two looks at its ring, or after some tasks.
pub(in crate::os) trait AtTurnEnd: Send + Sync {
    /// The turn ends.
    fn turn_ends(self: Arc<Self>);
}

/// Has the core that the caller is on tell `who` at the end of its turn; `false` if the caller is on none.
pub(in crate::os) fn at_turn_end(who: impl FnOnce() -> Arc<dyn AtTurnEnd>) -> bool {
    LOCAL.with(|local| {
        let is_core = local.core.get().is_some();
        if is_core {
            local.at_end.borrow_mut().push(who());
        }
        is_core
    })
}

/// Tells those who wait for it that the turn ends.
pub(super) fn end_turn() {
    let mut waiting = LOCAL.with(|local| std::mem::take(&mut *local.at_end.borrow_mut()));
    if waiting.is_empty() {
        return;
    }
    waiting.drain(..).for_each(AtTurnEnd::turn_ends);
    // Its room serves again.
    LOCAL.with(|local| {
        let mut list = local.at_end.borrow_mut();
        if list.is_empty() {
            *list = waiting;
        }
    });
}

/// What is left of a poll.
#[derive(Clone, Copy)]
pub(super) struct Left {
    steps: u32,
    /// When its steps began, once somebody has looked.
    began: Option<Instant>,
}

/// A poll begins. Gives what is left of one around it, for [`go_on`].
pub(super) fn begin_poll() -> Left {
    LOCAL.with(|local| local.left.replace(Left { steps: STEPS_MAX, began: None }))
}

/// The poll around one that is over goes on.
pub(super) fn go_on(left: Left) {
    LOCAL.with(|local| local.left.set(left));
}

/// Takes one of the current poll's steps; `false` if none is left. Threads that are no cores have as many as they like.
pub(super) fn step() -> bool {
    LOCAL.with(|local| {
        let (after, goes_on) = local.left.get().step(Instant::now);
        local.left.set(after);
        goes_on || local.core.get().is_none()
    })
}

impl Left {
    /// One step less, and whether it may be taken.
    fn step(self, now: impl FnOnce() -> Instant) -> (Left, bool) {
        let Some(steps) = self.steps.checked_sub(1) else { return (self, false) };
        if !steps.is_multiple_of(STEPS_UNTIMED) {
            return (Left { steps, ..self }, true);
        }
        let now = now();
        let began = self.began.unwrap_or(now);
        let in_time = now - began <= STEPS_TIME_MAX;
        (Left { steps: if in_time { steps } else { 0 }, began: Some(began) }, in_time)
    }
}

/// The number of the calling thread's core, if it is one of `node`.
pub(super) fn current(node: u64) -> Option<usize> {
    LOCAL.with(|local| local.core.get()).filter(|(of, _)| *of == node).map(|(_, number)| number)
}

fn push(local: &Local, task: Arc<Task>) {
    let is_heavy = task.is_heavy();
    local.tasks.borrow_mut().push(task, is_heavy);
}

/// Has the core that the caller is on poll a task; gives it back if the caller is on none of `node`.
pub(super) fn schedule_here(node: u64, task: Arc<Task>) -> Result<(), Arc<Task>> {
    match current(node) {
        Some(_) => {
            LOCAL.with(|local| push(local, task));
            Ok(())
        }
        None => Err(task),
    }
}

impl Core {
    pub(super) fn new(node: u64, number: usize) -> io::Result<Core> {
        Ok(Core {
            node,
            number,
            inbox: Mutex::default(),
            attention: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            wakes: AtomicU64::new(0),
            timers: Timers::default(),
            tasks: Mutex::default(),
            stopped: AtomicBool::new(false),
            ended: (Mutex::new(false), Condvar::new()),
        })
    }

    pub(super) fn node(&self) -> u64 {
        self.node
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// How often another thread woke it.
    pub(super) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// Readable for ever from the first wake-up on: what counts is that it becomes so.
    pub(super) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Whether the calling thread is the core's.
    pub(super) fn is_here(&self) -> bool {
        LOCAL.with(|local| local.core.get()) == Some((self.node, self.number))
    }

    /// The calling thread is the core's.
    pub(super) fn enter(&self) {
        LOCAL.with(|local| local.core.set(Some((self.node, self.number))));
    }

    /// Has a task polled.
    pub(super) fn schedule(&self, task: Arc<Task>) {
        if self.is_here() {
            return LOCAL.with(|local| push(local, task));
        }
        let mut inbox = self.inbox.lock();
        if self.is_stopped() {
            return;
        }
        inbox.tasks.push_back(task);
        drop(inbox);
        self.signal();
    }

    /// Has an order carried out before the thread waits again.
    pub(super) fn order(&self, order: Order) {
        if self.is_here() {
            return LOCAL.with(|local| local.orders.borrow_mut().push(order));
        }
        let mut inbox = self.inbox.lock();
        if self.is_stopped() {
            drop(inbox);
            return order.refuse();
        }
        inbox.orders.push(order);
        drop(inbox);
        self.signal();
    }

    /// Has the thread look around once more before it waits.
    pub(super) fn signal(&self) {
        self.attention.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            // It cannot be full: it would take centuries.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Whether it was signalled since the last call.
    pub(super) fn was_signalled(&self) -> bool {
        self.attention.load(Ordering::Relaxed) && self.attention.swap(false, Ordering::SeqCst)
    }

    /// Whether the thread waits in the kernel, or is about to.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// The thread is about to wait; `false` if it must not, because it was signalled.
    pub(super) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let may = !self.attention.load(Ordering::SeqCst);
        if !may {
            self.wake_up();
        }
        may
    }

    /// The thread is back.
    pub(super) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    pub(super) fn take_inbox(&self) -> Inbox {
        std::mem::take(&mut *self.inbox.lock())
    }

    /// Has this thread, a core's, poll a task.
    pub(super) fn queue(task: Arc<Task>) {
        LOCAL.with(|local| push(local, task));
    }

    /// The next task of this thread's own.
    pub(super) fn next_task() -> Option<Arc<Task>> {
        LOCAL.with(|local| local.tasks.borrow_mut().pop())
    }

    pub(super) fn take_orders() -> Vec<Order> {
        LOCAL.with(|local| std::mem::take(&mut *local.orders.borrow_mut()))
    }

    pub(super) fn has_tasks() -> bool {
        LOCAL.with(|local| !local.tasks.borrow().is_empty())
    }

    /// Keeps a task until it is done; `None` if the core ends. `make` is given its key.
    pub(super) fn keep(&self, make: impl FnOnce(u64) -> Arc<Task>) -> Option<Arc<Task>> {
        let mut tasks = self.tasks.lock();
        if self.stopped.load(Ordering::SeqCst) {
            return None;
        }
        let key = tasks.next;
        tasks.next += 1;
        let task = make(key);
        tasks.all.insert(key, task.clone());
        Some(task)
    }

    /// A task is done.
    pub(super) fn forget(&self, key: u64) {
        self.tasks.lock().all.remove(&key);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Has the thread end.
    pub(super) fn stop(&self) {
        let tasks = self.tasks.lock();
        self.stopped.store(true, Ordering::SeqCst);
        drop(tasks);
        self.signal();
    }

    /// All tasks that are left, when the core has been stopped.
    pub(super) fn take_tasks(&self) -> Vec<Arc<Task>> {
        std::mem::take(&mut self.tasks.lock().all).into_values().collect()
    }

    /// The thread does nothing any more.
    pub(super) fn end(&self) {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
    }

    /// Waits for that; `false` if it takes until `deadline`.
    pub(super) fn wait_ended(&self, deadline: Instant) -> bool {
        let mut ended = self.ended.0.lock();
        while !*ended {
            if self.ended.1.wait_until(&mut ended, deadline).timed_out() {
                return *ended;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes steps of so many microseconds each until there is none; how many there were.
    fn steps_of(micros: u64) -> u32 {
        let (mut now, mut count) = (Instant::now(), 0);
        let mut left = Left { steps: STEPS_MAX, began: None };
        loop {
            let (after, goes_on) = left.step(|| now);
            if !goes_on {
                assert!(!after.step(|| now).1, "none comes behind the last one");
                return count;
            }
            (left, count) = (after, count + 1);
            now += Duration::from_micros(micros);
        }
    }

    #[test]
    fn steps_are_bounded_in_number_and_in_time() {
        assert_eq!(steps_of(0), STEPS_MAX);
        assert_eq!(steps_of(1), STEPS_MAX);
        assert!((16..=24).contains(&steps_of(30)), "{}", steps_of(30));
        assert!(steps_of(10_000) <= 2 * STEPS_UNTIMED);
    }
}
