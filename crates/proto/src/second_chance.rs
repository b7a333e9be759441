//! Which of many things can go: what was used since it was last looked at has a second chance.
//!
//! A [`Round`] has the order only. Its table says of each key whether it is still there and whether it was used, and takes
//! away what goes.

use std::collections::{BTreeSet, VecDeque};

/// Keys of things that are gone which a tidy order may have, besides as many as there are things.
pub const GONE_MAX: usize = 64;

/// What a table says of a key that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// There is nothing under it, or not any more.
    Gone,
    /// It was used, or is in use: its turn comes again after all others.
    Stays,
    /// It is what was looked for; it leaves the order.
    Found,
}

/// Keys of a table, in the order in which they are looked at.
///
/// Keys of things that go otherwise stay in it until somebody comes across them, so that nobody has to search for them.
#[derive(Debug)]
pub struct Round<K> {
    order: VecDeque<K>,
}

impl<K> Default for Round<K> {
    fn default() -> Round<K> {
        Round { order: VecDeque::new() }
    }
}

impl<K: Copy + Ord> Round<K> {
    /// Keys in the order, also those of things that are gone.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// `key` is looked at after all others.
    pub fn push(&mut self, key: K) {
        self.order.push_back(key);
    }

    /// Takes out what is there for nothing, when that is much: there are `count` things, and `is_there` says which.
    pub fn tidy(&mut self, count: usize, is_there: impl Fn(&K) -> bool) {
        if self.order.len() > 2 * count + GONE_MAX {
            let mut seen = BTreeSet::new();
            self.order.retain(|key| is_there(key) && seen.insert(*key));
        }
    }

    /// Looks at the next keys, `looks` of them at most, until the first that is [`Look::Found`].
    pub fn find(&mut self, looks: usize, mut look: impl FnMut(K) -> Look) -> Option<K> {
        for _ in 0..looks.min(self.order.len()) {
            let key = self.order.pop_front()?;
            match look(key) {
                Look::Gone => {}
                Look::Stays => self.order.push_back(key),
                Look::Found => return Some(key),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_was_used_has_a_second_chance() {
        let mut used = BTreeMap::from([(1, true), (2, false), (3, true), (4, false)]);
        let mut round = Round::default();
        used.keys().for_each(|key| round.push(*key));
        let mut find = |looks| {
            let found = round.find(looks, |key| match used.get_mut(&key).map(std::mem::take) {
                None => Look::Gone,
                Some(true) => Look::Stays,
                Some(false) => Look::Found,
            });
            found.inspect(|found| assert!(used.remove(found).is_some()))
        };
        assert_eq!(find(1), None, "the first one was used");
        assert_eq!(find(9), Some(2));
        assert_eq!(find(9), Some(4), "3 was used");
        assert_eq!((find(9), find(9), find(9)), (Some(1), Some(3), None));
    }

    #[test]
    fn all_that_are_used_are_looked_at_once() {
        let mut round = Round::default();
        (0..10).for_each(|key| round.push(key));
        let mut looks = 0;
        let found = round.find(usize::MAX, |_| {
            looks += 1;
            Look::Stays
        });
        assert_eq!((found, looks, round.len()), (None, 10, 10));
    }

    #[test]
    fn what_is_gone_fills_no_memory() {
        let mut round = Round::default();
        let mut there = BTreeSet::new();
        for key in 0..10_000 {
            there.insert(key);
            round.tidy(there.len(), |key| there.contains(key));
            round.push(key);
            // One that goes comes again: it stands in the order twice.
            round.push(key);
            there.remove(&(key - 100));
        }
        assert!(round.len() <= 2 * there.len() + GONE_MAX + 2, "{}", round.len());
        let mut left = BTreeSet::new();
        while let Some(key) = round.find(usize::MAX, |key| match there.contains(&key) {
            true => Look::Found,
            false => Look::Gone,
        }) {
            left.insert(key);
        }
        assert_eq!(left, there);
    }
}
