//! Tables in parts, each of which is locked apart: which part has what is known of a key.

use std::slice::Iter;

use crate::{Fid, ObjectId};

/// One number of two, whose upper bits depend on all of both. Neighbours in `low` come to lie far apart.
#[inline]
pub fn mix(high: u64, low: u64) -> u64 {
    (high.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A key of a table in parts.
pub trait Spread {
    /// A number whose upper bits are spread evenly over the keys that there are.
    fn spread(&self) -> u64;
}

impl Spread for u64 {
    #[inline]
    fn spread(&self) -> u64 {
        mix(0, *self)
    }
}

impl Spread for Fid {
    #[inline]
    fn spread(&self) -> u64 {
        mix(self.seq, u64::from(self.oid))
    }
}

impl Spread for ObjectId {
    #[inline]
    fn spread(&self) -> u64 {
        mix(self.layout.seq, u64::from(self.layout.oid) << 3 ^ u64::from(self.stripe))
    }
}

/// `COUNT` parts, a power of two. `T` is most often a lock of whichever kind its table has.
#[derive(Debug)]
pub struct Shards<T, const COUNT: usize> {
    shards: Box<[T]>,
}

impl<T: Default, const COUNT: usize> Default for Shards<T, COUNT> {
    fn default() -> Self {
        Shards::new(T::default)
    }
}

impl<T, const COUNT: usize> Shards<T, COUNT> {
    /// Parts that are made one by one.
    pub fn new(make: impl FnMut() -> T) -> Self {
        const { assert!(COUNT > 1 && COUNT.is_power_of_two(), "upper bits of a number choose a part") };
        Shards { shards: std::iter::repeat_with(make).take(COUNT).collect() }
    }

    /// The number of the part that has `key`, for those who lock several in order.
    #[inline]
    pub fn number_of(key: &impl Spread) -> usize {
        (key.spread() >> (u64::BITS - COUNT.trailing_zeros())) as usize
    }

    /// The part that has `key`.
    #[inline]
    pub fn of(&self, key: &impl Spread) -> &T {
        self.at(Self::number_of(key))
    }

    /// A part by its number. Behind the last one comes the first again, for those who let the parts take turns.
    #[inline]
    pub fn at(&self, number: usize) -> &T {
        &self.shards[number % COUNT]
    }

    /// All parts.
    pub fn iter(&self) -> Iter<'_, T> {
        self.shards.iter()
    }
}

impl<'a, T, const COUNT: usize> IntoIterator for &'a Shards<T, COUNT> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 64;
    type Parts = Shards<(), COUNT>;

    /// Fewest and most keys that one part has.
    fn extremes<K: Spread>(keys: impl Iterator<Item = K>) -> (usize, usize) {
        let mut counts = [0; COUNT];
        keys.for_each(|key| counts[Parts::number_of(&key)] += 1);
        (counts.into_iter().min().unwrap_or(0), counts.into_iter().max().unwrap_or(0))
    }

    fn fid(client: u64, oid: u32) -> Fid {
        Fid { seq: Fid::SEQ_NORMAL_START + client, oid, ver: 0 }
    }

    #[test]
    fn keys_are_spread_evenly() {
        let even = (500, 1500);
        let is_even = |(min, max)| min >= even.0 && max <= even.1;
        let keys = 1000 * COUNT as u64;
        assert!(is_even(extremes(1..=keys)));
        assert!(is_even(extremes((1..=keys).map(|oid| fid(0, oid as u32)))), "files of one client");
        assert!(is_even(extremes((1..=keys).map(|client| fid(client, 1)))), "first files of many");
        assert!(is_even(extremes((0..keys).map(|n| fid(n % 250, 1 + n as u32 / 250)))), "of some");
        let object = |n: u64| ObjectId { layout: fid(0, 1 + n as u32 / 4), stripe: n as u32 % 4 };
        assert!(is_even(extremes((0..keys).map(object))), "stripes");
        let wide = |n: u64| ObjectId { layout: fid(n % 8, 1), stripe: n as u32 / 8 };
        assert!(is_even(extremes((0..keys).map(wide))), "many stripes of a few files");
    }

    #[test]
    fn neighbours_are_apart() {
        let numbers: std::collections::BTreeSet<usize> =
            (1..=COUNT as u32).map(|oid| Parts::number_of(&fid(0, oid))).collect();
        assert!(numbers.len() > COUNT / 2, "{} parts for {COUNT} files", numbers.len());
    }

    #[test]
    fn parts_take_turns() {
        let mut next = 0;
        let parts = Shards::<usize, 4>::new(|| {
            next += 1;
            next
        });
        let seen: Vec<usize> = (0..6).map(|number| *parts.at(number)).collect();
        assert_eq!(seen, [1, 2, 3, 4, 1, 2]);
        assert_eq!(parts.iter().sum::<usize>(), 10);
    }
}
