//! What holds for which bytes: disjoint ranges, each with a value.

use std::collections::BTreeMap;
use std::ops::Range;

/// The value of the bytes from the map's key on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part<V> {
    end: u64,
    value: V,
}

/// Disjoint ranges by their first byte. `u64::MAX` as an end is the end of whatever there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals<V> {
    parts: BTreeMap<u64, Part<V>>,
}

impl<V> Default for Intervals<V> {
    fn default() -> Intervals<V> {
        Intervals { parts: BTreeMap::new() }
    }
}

impl<V: Copy> Intervals<V> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// The end of the last one.
    pub fn end(&self) -> Option<u64> {
        self.parts.last_key_value().map(|(_, part)| part.end)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        self.parts.iter().map(|(start, part)| (*start..part.end, part.value))
    }

    /// Their values, in order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.values_mut().map(|part| &mut part.value)
    }

    /// Those that share a byte with `range`, as they are, in order. An empty range shares none.
    pub fn touching(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> + use<'_, V> {
        let (start, end) = (range.start, if range.is_empty() { 0 } else { range.end });
        let first = self.parts.range(..=start).next_back().map_or(start, |(at, _)| *at);
        let parts = self.parts.range(first..end.max(first));
        parts.filter(move |(_, part)| part.end > start).map(|(at, part)| (*at..part.end, part.value))
    }

    /// Whether each byte of `range` has a value that `which` picks.
    pub fn covers(&self, range: Range<u64>, which: impl Fn(V) -> bool) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Some((_, part)) = self.parts.range(..=at).next_back() else { return false };
            if part.end <= at || !which(part.value) {
                return false;
            }
            at = part.end;
        }
        true
    }

    /// The bytes of `range` that have no value, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        for (part, _) in self.touching(range.clone()) {
            if at < part.start {
                missing.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Takes those bytes of `range` out whose value `which` picks. What is taken, in order.
    pub fn cut(&mut self, range: Range<u64>, which: impl Fn(V) -> bool) -> Vec<(Range<u64>, V)> {
        let mut cut: Vec<(Range<u64>, V)> =
            self.touching(range.clone()).filter(|(_, value)| which(*value)).collect();
        for (part, value) in &mut cut {
            self.parts.remove(&part.start);
            if part.start < range.start {
                self.put(part.start..range.start, *value);
                part.start = range.start;
            }
            if part.end > range.end {
                self.put(range.end..part.end, *value);
                part.end = range.end;
            }
        }
        cut
    }

    /// Gives bytes a value that have none.
    pub fn insert(&mut self, range: Range<u64>, value: V) {
        assert!(!range.is_empty() && self.touching(range.clone()).next().is_none(), "nothing has two values");
        self.put(range, value);
    }

    fn put(&mut self, range: Range<u64>, value: V) {
        self.parts.insert(range.start, Part { end: range.end, value });
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.parts.clear();
    }
}

impl<V: Copy + Eq> Intervals<V> {
    /// The same as [`Intervals::insert`], but neighbours that are alike become one range with it.
    pub fn join(&mut self, mut range: Range<u64>, value: V) {
        assert!(!range.is_empty() && self.touching(range.clone()).next().is_none(), "nothing has two values");
        if let Some(behind) = self.parts.get(&range.end).filter(|behind| behind.value == value) {
            let end = behind.end;
            self.parts.remove(&range.end);
            range.end = end;
        }
        match self.parts.range_mut(..range.start).next_back() {
            Some((_, before)) if before.end == range.start && before.value == value => before.end = range.end,
            _ => self.put(range, value),
        }
    }
}

impl Intervals<()> {
    /// Adds bytes, of which some may be there.
    pub fn add(&mut self, range: Range<u64>) {
        // In front of the rest, for it is the most frequent case.
        if range.is_empty() || self.covers(range.clone(), |()| true) {
            return;
        }
        self.cut(range.clone(), |()| true);
        self.join(range, ());
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::Rng;

    use super::*;

    const BYTES: u64 = 64;

    /// The value of each byte, 0 for none.
    fn values(intervals: &Intervals<u8>) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        for (range, value) in intervals.iter() {
            assert!(range.start < range.end);
            for byte in &mut bytes[range.start as usize..range.end as usize] {
                assert_eq!(std::mem::replace(byte, value), 0, "they are disjoint");
            }
        }
        bytes
    }

    fn some(rng: &mut Rng) -> Range<u64> {
        let (a, b) = (rng.between(0, BYTES), rng.between(0, BYTES));
        a.min(b)..a.max(b)
    }

    #[test]
    fn random_intervals_agree_with_bytes() {
        let mut rng = Rng::new(1);
        let mut intervals = Intervals::default();
        let mut bytes = vec![0u8; BYTES as usize];
        for _ in 0..20_000 {
            let range = some(&mut rng);
            let part = range.start as usize..range.end as usize;
            let value = rng.between(1, 3) as u8;
            match rng.below(3) {
                0 => {
                    let cut = intervals.cut(range, |of| of == value);
                    let count = bytes[part.clone()].iter().filter(|byte| **byte == value).count();
                    assert_eq!(cut.iter().map(|(cut, _)| cut.end - cut.start).sum::<u64>(), count as u64);
                    bytes[part].iter_mut().filter(|byte| **byte == value).for_each(|byte| *byte = 0);
                }
                kind => {
                    for missing in intervals.missing(range) {
                        bytes[missing.start as usize..missing.end as usize].fill(value);
                        if kind == 1 {
                            intervals.insert(missing, value)
                        } else {
                            intervals.join(missing, value)
                        }
                    }
                }
            }
            assert_eq!(values(&intervals), bytes);
            let range = some(&mut rng);
            let seen = &bytes[range.start as usize..range.end as usize];
            assert_eq!(intervals.covers(range.clone(), |_| true), seen.iter().all(|byte| *byte > 0));
            assert_eq!(intervals.covers(range.clone(), |of| of == 2), seen.iter().all(|byte| *byte == 2));
            assert_eq!(intervals.touching(range).any(|(_, of)| of == 2), seen.contains(&2));
        }
        intervals.cut(0..u64::MAX, |_| true);
        assert!(intervals.is_empty());
    }

    #[test]
    fn neighbours_that_are_alike_become_one() {
        let mut intervals = Intervals::default();
        for (start, value) in [(0, 'a'), (20, 'a'), (10, 'a'), (40, 'b'), (30, 'a')] {
            intervals.join(start..start + 10, value);
        }
        assert_eq!(intervals.iter().collect::<Vec<_>>(), [(0..40, 'a'), (40..50, 'b')]);
    }

    #[test]
    fn what_is_added_is_joined() {
        let mut intervals = Intervals::default();
        for range in [0..10, 20..30, 10..20, 5..25, 40..50, 40..40, 45..60] {
            intervals.add(range);
        }
        assert_eq!(intervals.iter().map(|(range, ())| range).collect::<Vec<_>>(), [0..30, 40..60]);
    }
}
