//! In which order the tasks of a core are polled.
//!
//! A task that had much to do when it was polled last, as the connection of a client that sends much has, comes behind those that had
//! little. So a client that asks for little waits for one such task at most, however many there are.

use std::collections::VecDeque;
use std::sync::Arc;

use super::task::Task;

/// Light tasks that are polled before a heavy one gets its turn.
const LIGHT_MAX: u32 = 32;

/// Tasks that are to be polled.
pub(super) struct Queue {
    light: VecDeque<Arc<Task>>,
    heavy: VecDeque<Arc<Task>>,
    /// Light ones since the last heavy one.
    passed: u32,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { light: VecDeque::new(), heavy: VecDeque::new(), passed: 0 }
    }

    pub(super) fn push(&mut self, task: Arc<Task>) {
        if task.is_heavy() { self.heavy.push_back(task) } else { self.light.push_back(task) }
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Arc<Task>> {
        let is_due = self.light.is_empty() || self.passed >= LIGHT_MAX;
        if is_due && let Some(task) = self.heavy.pop_front() {
            self.passed = 0;
            return Some(task);
        }
        self.passed = self.passed.saturating_add(1);
        self.light.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.light.is_empty() && self.heavy.is_empty()
    }
}
