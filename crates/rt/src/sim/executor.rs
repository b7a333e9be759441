//! Tasks and wakers: which future is polled next.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

use super::options::Order;
use super::rng::Rng;
use super::slab::Key;
use super::trace::Kind;
use super::world::World;
use crate::BoxFuture;

/// Names the root future among the tasks.
pub(super) const ROOT: Key = Key::NONE;

/// Tasks that may run. It has a lock of its own so that a waker may be called anywhere, under the world's lock too.
pub(super) struct Ready {
    queue: Mutex<Queue>,
}

struct Queue {
    tasks: VecDeque<Key>,
    /// Draws the next task; without it the first is taken.
    chance: Option<Rng>,
}

impl Ready {
    pub(super) fn new(seed: u64, order: Order) -> Ready {
        let chance = (order == Order::Random).then(|| Rng::stream(seed, "order", 0));
        Ready { queue: Mutex::new(Queue { tasks: VecDeque::new(), chance }) }
    }

    pub(super) fn push(&self, task: Key) {
        self.queue.lock().tasks.push_back(task);
    }

    pub(super) fn pop(&self) -> Option<Key> {
        let queue = &mut *self.queue.lock();
        match &mut queue.chance {
            Some(chance) if queue.tasks.len() > 1 => {
                let index = chance.below(queue.tasks.len() as u64) as usize;
                queue.tasks.swap_remove_back(index)
            }
            _ => queue.tasks.pop_front(),
        }
    }
}

/// What a waker knows of its task. It holds neither the future nor the world, so it may outlive both.
pub(super) struct Waking {
    key: Key,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Waking {
    pub(super) fn new(key: Key, ready: Arc<Ready>) -> Arc<Waking> {
        Arc::new(Waking { key, queued: AtomicBool::new(false), ready })
    }

    /// From now on the next wake counts again.
    pub(super) fn taken(&self) {
        self.queued.store(false, Ordering::Relaxed);
    }
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.push(self.key);
        }
    }
}

pub(super) struct Task {
    node: u32,
    /// Place in the node's list of tasks.
    position: usize,
    /// Where it was started, for reports.
    pub(super) location: &'static Location<'static>,
    waking: Arc<Waking>,
    /// `None` while it is being polled.
    body: Option<Body>,
}

/// What is needed to poll a task; outside of the world's lock.
pub(super) struct Body {
    pub(super) future: BoxFuture<'static, ()>,
    pub(super) waker: Waker,
}

impl World {
    /// Makes a task of `future`; gives it back if the incarnation is over, so that it is dropped outside the lock.
    pub(super) fn spawn(
        &mut self,
        node: u32,
        incarnation: u32,
        future: BoxFuture<'static, ()>,
        location: &'static Location<'static>,
    ) -> Option<BoxFuture<'static, ()>> {
        if !self.machines.lives(node, incarnation) {
            return Some(future);
        }
        let ready = self.machines.ready.clone();
        let list = &mut self.machines.nodes[node as usize].tasks;
        let position = list.len();
        let key = self.tasks.insert_with(|key| {
            let waking = Waking::new(key, ready);
            let waker = Waker::from(waking.clone());
            Task { node, position, location, waking, body: Some(Body { future, waker }) }
        });
        list.push(key);
        self.machines.stats(node).spawns += 1;
        self.machines.note(Kind::Spawn, node, u64::from(key.index));
        if let Some(task) = self.tasks.get(key) {
            task.waking.wake_by_ref();
        }
        None
    }

    /// Takes the task out for polling; `None` if it is gone, or its node is paused.
    pub(super) fn begin_poll(&mut self, key: Key) -> Option<(u32, Body)> {
        let task = self.tasks.get_mut(key)?;
        let node = task.node;
        let state = &mut self.machines.nodes[node as usize];
        if state.paused {
            // It stays marked as queued: the node's list is its queue now.
            state.parked.push(key);
            return None;
        }
        task.waking.taken();
        let body = task.body.take().expect("one thread polls a task once at a time");
        state.stats.polls += 1;
        self.machines.left.polling = true;
        self.machines.clock.count_poll(&self.machines.options);
        self.machines.note(Kind::Poll, node, u64::from(key.index));
        Some((node, body))
    }

    /// Puts a task back that is not done; gives its future back if the node crashed meanwhile.
    pub(super) fn end_poll(&mut self, key: Key, body: Body) -> Option<Body> {
        self.machines.left.polling = false;
        match self.tasks.get_mut(key) {
            Some(task) => {
                task.body = Some(body);
                None
            }
            None => Some(body),
        }
    }

    /// Forgets a task that is done.
    pub(super) fn end_task(&mut self, key: Key) {
        self.machines.left.polling = false;
        let Some(task) = self.tasks.remove(key) else { return };
        let list = &mut self.machines.nodes[task.node as usize].tasks;
        list.swap_remove(task.position);
        if let Some(moved) = list.get(task.position) {
            self.tasks.get_mut(*moved).expect("a node lists its living tasks").position = task.position;
        }
    }

    /// Takes all tasks from a node; the caller drops the futures outside of the world's lock.
    pub(super) fn take_tasks(&mut self, node: u32) {
        let state = &mut self.machines.nodes[node as usize];
        state.parked.clear();
        for key in std::mem::take(&mut state.tasks) {
            if let Some(task) = self.tasks.remove(key) {
                self.machines.left.garbage.extend(task.body);
            }
        }
    }
}
