//! Which bytes of an object this client may read, and which it may change.

use proto::intervals::Intervals;

/// The right to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Right {
    write: bool,
    number: u64,
}

/// Disjoint ranges of one object. Grants of different numbers stay apart: the target may ask for one of them alone.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    rights: Intervals<Right>,
}

impl Ranges {
    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    /// Number of separate ranges.
    pub(super) fn len(&self) -> usize {
        self.rights.len()
    }

    /// The highest number of all grants; 0 for none.
    pub(super) fn number(&self) -> u64 {
        self.rights.iter().map(|(_, right)| right.number).max().unwrap_or(0)
    }

    /// The highest number of the grants that overlap `[start, end)`; 0 for none.
    pub(super) fn number_within(&self, start: u64, end: u64) -> u64 {
        self.rights.touching(start..end).map(|(_, right)| right.number).max().unwrap_or(0)
    }

    /// Whether all of `[start, end)` is held, to change it if `write`.
    pub(super) fn covers(&self, start: u64, end: u64, write: bool) -> bool {
        self.rights.covers(start..end, |right| right.write || !write)
    }

    /// Whether any byte of `[start, end)` is held by a grant up to `number`.
    pub(super) fn touches(&self, start: u64, end: u64, number: u64) -> bool {
        self.rights.touching(start..end).any(|(_, right)| right.number <= number)
    }

    /// Whether any byte of `[start, end)` may be changed.
    pub(super) fn writes(&self, start: u64, end: u64) -> bool {
        self.rights.touching(start..end).any(|(_, right)| right.write)
    }

    /// Every range: start, end, whether it may be changed.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        self.rights.iter().map(|(range, right)| (range.start, range.end, right.write))
    }

    /// A grant came. What may be changed stays so; the newer number counts.
    pub(super) fn grant(&mut self, start: u64, end: u64, write: bool, number: u64) {
        let old = self.rights.cut(start..end, |_| true);
        let mut at = start;
        for (part, right) in old {
            if at < part.start {
                self.rights.join(at..part.start, Right { write, number });
            }
            at = part.end;
            let both = Right { write: write || right.write, number: number.max(right.number) };
            self.rights.join(part, both);
        }
        if at < end {
            self.rights.join(at..end, Right { write, number });
        }
    }

    /// Gives up `[start, end)`, or with `keep_read` only the right to change it.
    pub(super) fn give_up(&mut self, start: u64, end: u64, keep_read: bool) {
        for (part, right) in self.rights.cut(start..end, |_| true) {
            if keep_read {
                self.rights.join(part, Right { write: false, ..right });
            }
        }
    }

    /// Nothing is held any more.
    pub(super) fn clear(&mut self) {
        self.rights.clear();
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::Rng;

    use super::*;

    /// Every byte on its own: 0 nothing, 1 read, 2 write.
    fn model(ranges: &Ranges, bytes: u64) -> Vec<u8> {
        let state = |at| match (ranges.covers(at, at + 1, false), ranges.covers(at, at + 1, true)) {
            (_, true) => 2,
            (true, false) => 1,
            (false, false) => 0,
        };
        (0..bytes).map(state).collect()
    }

    #[test]
    fn random_grants_agree_with_bytes() {
        let mut rng = Rng::new(7);
        let mut random = |below: u64| rng.below(below);
        let mut ranges = Ranges::default();
        let mut bytes = vec![0u8; 64];
        for number in 1..5000 {
            let (a, b) = (random(64), random(64));
            let (start, end) = (a.min(b), a.max(b) + 1);
            let part = start as usize..end as usize;
            match random(4) {
                0 => {
                    ranges.grant(start, end, false, number);
                    bytes[part].iter_mut().for_each(|byte| *byte = (*byte).max(1));
                }
                1 => {
                    ranges.grant(start, end, true, number);
                    bytes[part].fill(2);
                }
                2 => {
                    ranges.give_up(start, end, false);
                    bytes[part].fill(0);
                }
                _ => {
                    ranges.give_up(start, end, true);
                    bytes[part].iter_mut().for_each(|byte| *byte = (*byte).min(1));
                }
            }
            assert_eq!(model(&ranges, 64), bytes);
            let (c, d) = (random(64), random(64));
            let (from, until) = (c.min(d), c.max(d) + 1);
            let held = &bytes[from as usize..until as usize];
            assert_eq!(ranges.covers(from, until, false), held.iter().all(|byte| *byte >= 1));
            assert_eq!(ranges.covers(from, until, true), held.iter().all(|byte| *byte == 2));
            assert_eq!(ranges.writes(from, until), held.contains(&2));
            assert_eq!(ranges.touches(from, until, u64::MAX), held.iter().any(|byte| *byte > 0));
        }
        ranges.give_up(0, u64::MAX, false);
        assert!(ranges.is_empty() && ranges.number() == 0);
    }
}
