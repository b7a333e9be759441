//! What tools have said to a mount until they ask for what they want with it: so much at most, of all users together.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Values by user and key.
pub struct Remembered<K, T> {
    count_max: usize,
    all: Mutex<VecDeque<One<K, T>>>,
}

struct One<K, T> {
    uid: u32,
    key: K,
    value: T,
}

impl<K: PartialEq, T> Remembered<K, T> {
    /// Remembers `count_max` at most.
    pub fn new(count_max: usize) -> Remembered<K, T> {
        Remembered { count_max, all: Mutex::default() }
    }

    /// Remembers it instead of what the user said under `key` before. If there are too many, the oldest is forgotten of the user that has most.
    pub fn put(&self, uid: u32, key: K, value: T) {
        let mut all = self.all.lock();
        all.retain(|one| !one.is(uid, &key));
        all.push_back(One { uid, key, value });
        if all.len() > self.count_max {
            let count = |uid| all.iter().filter(|one| one.uid == uid).count();
            let most = all.iter().map(|one| count(one.uid)).max();
            // Of users that have as much the one that spoke first.
            let oldest = all.iter().position(|one| Some(count(one.uid)) == most);
            oldest.and_then(|at| all.remove(at));
        }
    }

    /// What the user has said, which is forgotten.
    pub fn take(&self, uid: u32, key: &K) -> Option<T> {
        let mut all = self.all.lock();
        let at = all.iter().position(|one| one.is(uid, key))?;
        all.remove(at).map(|one| one.value)
    }

    /// What `use_it` makes of what the user has said.
    pub fn with<R>(&self, uid: u32, key: &K, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut all = self.all.lock();
        let one = all.iter_mut().find(|one| one.is(uid, key))?;
        Some(use_it(&mut one.value))
    }
}

impl<K: PartialEq, T> One<K, T> {
    fn is(&self, uid: u32, key: &K) -> bool {
        self.uid == uid && self.key == *key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_users_the_oldest_goes() {
        let said = Remembered::new(4);
        (0..6).for_each(|uid| said.put(uid, "a", uid));
        assert_eq!([0, 1, 2, 5].map(|uid| said.take(uid, &"a")), [None, None, Some(2), Some(5)]);
    }

    #[test]
    fn who_says_much_pushes_out_what_it_said_itself() {
        let said = Remembered::new(4);
        said.put(1, "a", 1);
        for (n, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            said.put(2, key, n);
        }
        assert_eq!((said.take(1, &"a"), said.take(2, &"a")), (Some(1), None));
        said.put(3, "a", 7);
        said.put(3, "a", 8);
        assert_eq!(said.with(3, &"a", |value| std::mem::replace(value, 9)), Some(8));
        assert_eq!(["b", "c", "d"].map(|key| said.take(2, &key)), [Some(1), Some(2), Some(3)]);
        assert_eq!((said.take(3, &"a"), said.take(3, &"a")), (Some(9), None));
    }
}
