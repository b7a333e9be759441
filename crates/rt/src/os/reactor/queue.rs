//! In which order the tasks of a core are polled.
//!
//! A task that had much to do when it was polled last, as the connection of a client that sends much has, comes behind those that had
//! little. So whoever asks for little waits for one such task at most, however many there are.

use std::collections::VecDeque;

/// Light tasks that are polled before a heavy one gets its turn.
const LIGHT_MAX: u32 = 32;

/// Tasks that are to be polled.
pub(super) struct Queue<T> {
    light: VecDeque<T>,
    heavy: VecDeque<T>,
    /// Light ones since the last heavy one.
    passed: u32,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Queue<T> {
        Queue { light: VecDeque::new(), heavy: VecDeque::new(), passed: 0 }
    }

    pub(super) fn push(&mut self, task: T, is_heavy: bool) {
        if is_heavy { self.heavy.push_back(task) } else { self.light.push_back(task) }
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<T> {
        let is_due = self.light.is_empty() || self.passed >= LIGHT_MAX;
        if is_due && let Some(task) = self.heavy.pop_front() {
            self.passed = 0;
            return Some(task);
        }
        self.passed = if self.heavy.is_empty() { 0 } else { self.passed + 1 };
        self.light.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.light.is_empty() && self.heavy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_tasks_come_first_and_heavy_ones_come() {
        let mut queue = Queue::new();
        [(1, true), (2, true), (3, false), (4, false)]
            .into_iter()
            .for_each(|(task, heavy)| queue.push(task, heavy));
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [3, 4, 1, 2]);
        assert!(queue.is_empty());
        // Light ones that never end keep no heavy one from its turn.
        queue.push(0, true);
        let mut passed = 0;
        loop {
            queue.push(1, false);
            match queue.pop() {
                Some(0) => break,
                _ => passed += 1,
            }
            assert!(passed <= LIGHT_MAX);
        }
        assert!(passed > 0 && !queue.is_empty());
        // Those that passed while no heavy one waited do not count.
        (0..2 * LIGHT_MAX).for_each(|_| queue.push(1, false));
        while queue.pop().is_some() {}
        queue.push(0, true);
        queue.push(1, false);
        assert_eq!(queue.pop(), Some(1));
    }
}
