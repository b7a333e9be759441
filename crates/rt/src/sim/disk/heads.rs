//! Where a disk's heads are, and what it costs to move them.
//!
//! Only with `DiskOptions::seek`, and only for writes. A large write goes to the disk when it is asked for; a small one stays in
//! memory until its file is synced, together with its neighbours. Each piece that does not begin where the last one ended
//! pays the seek. One piece follows the other: this disk does one thing at a time, in the order in which it was asked.

use std::collections::BTreeMap;

/// Largest write that counts as small, in bytes.
const SMALL_BYTES_MAX: u64 = 8 << 10;
/// Memory is written out in pages of this many bytes.
const PAGE: u64 = super::image::PAGE;

/// What a disk was given to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// Pieces.
    pub pieces: u64,
    /// Those of at most 8 KiB.
    pub small: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Pieces that did not begin where the one before them ended.
    pub seeks: u64,
}

#[derive(Default)]
pub(super) struct Heads {
    /// File and offset behind the last piece.
    at: Option<(u64, u64)>,
    /// By file: what is in memory only, in whole pages: start and end.
    memory: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Heads {
    /// A piece goes to the disk.
    pub fn write(&mut self, file: u64, offset: u64, bytes: u64) -> Written {
        let seeks = u64::from(self.at != Some((file, offset)));
        self.at = Some((file, offset + bytes));
        Written { pieces: 1, small: u64::from(bytes <= SMALL_BYTES_MAX), bytes, seeks }
    }

    /// A small write stays in memory.
    pub fn remember(&mut self, file: u64, offset: u64, bytes: u64) {
        let ranges = self.memory.entry(file).or_default();
        let (mut start, mut end) = (offset / PAGE * PAGE, (offset + bytes).div_ceil(PAGE) * PAGE);
        let touching: Vec<(u64, u64)> = ranges
            .range(..=end)
            .rev()
            .take_while(|(_, stop)| **stop >= start)
            .map(|(from, stop)| (*from, *stop))
            .collect();
        for (from, stop) in touching {
            ranges.remove(&from);
            (start, end) = (start.min(from), end.max(stop));
        }
        ranges.insert(start, end);
    }

    /// What of a file is in memory goes to the disk.
    pub fn flush(&mut self, file: u64) -> Written {
        let mut all = Written::default();
        for (start, end) in self.memory.remove(&file).unwrap_or_default() {
            let one = self.write(file, start, end - start);
            all.pieces += one.pieces;
            all.small += one.small;
            all.bytes += one.bytes;
            all.seeks += one.seeks;
        }
        all
    }

    /// Names go to the disk, somewhere else.
    pub fn names(&mut self) -> Written {
        self.at = None;
        Written { pieces: 1, small: 1, bytes: PAGE, seeks: 1 }
    }

    /// What was in memory only is gone.
    pub fn forget(&mut self) {
        *self = Heads::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_piece_and_only_moves_cost() {
        let mut heads = Heads::default();
        assert_eq!(heads.write(1, 0, 1 << 20), Written { pieces: 1, small: 0, bytes: 1 << 20, seeks: 1 });
        assert_eq!(heads.write(1, 1 << 20, 100).seeks, 0);
        assert_eq!(heads.write(1, 0, 100).seeks, 1);
        for (offset, bytes) in [(8192, 100), (0, 4096), (4096, 10), (8292, 10), (40_960, 1)] {
            heads.remember(2, offset, bytes);
        }
        assert_eq!(heads.flush(2), Written { pieces: 2, small: 1, bytes: 16_384, seeks: 2 });
        assert_eq!(heads.flush(2), Written::default());
        heads.remember(2, 45_056, 1);
        assert_eq!(heads.flush(2).seeks, 0, "behind the last piece");
    }
}
