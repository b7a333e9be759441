//! Records of one length at one distance.

use std::ops::Range;

/// Records that begin at `origin`, `origin + length` and so on, each of `bytes` bytes (Lustre's `ras_stride_offset`,
/// `ras_stride_bytes`, `ras_stride_length`). What lies between two of them is the gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stride {
    pub(super) origin: u64,
    pub(super) bytes: u64,
    pub(super) length: u64,
}

impl Stride {
    /// Record number `index`.
    pub(super) fn record(&self, index: u64) -> Range<u64> {
        let start = self.origin.saturating_add(index.saturating_mul(self.length));
        start..start.saturating_add(self.bytes)
    }

    /// Number of the last record that begins at `offset` or before. None is before the first.
    pub(super) fn index(&self, offset: u64) -> Option<u64> {
        Some(offset.checked_sub(self.origin)? / self.length)
    }

    /// Number of the record that has all of `range`.
    pub(super) fn within(&self, range: &Range<u64>) -> Option<u64> {
        let index = self.index(range.start)?;
        (range.end <= self.record(index).end).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIDE: Stride = Stride { origin: 1000, bytes: 10, length: 100 };

    #[test]
    fn records_lie_at_one_distance() {
        assert_eq!(STRIDE.record(0), 1000..1010);
        assert_eq!(STRIDE.record(7), 1700..1710);
        assert_eq!(STRIDE.record(u64::MAX), u64::MAX..u64::MAX);
        assert_eq!((STRIDE.index(999), STRIDE.index(1099), STRIDE.index(1100)), (None, Some(0), Some(1)));
    }

    #[test]
    fn a_range_is_within_a_record_or_it_is_not() {
        assert_eq!(STRIDE.within(&(1700..1710)), Some(7));
        assert_eq!(STRIDE.within(&(1705..1706)), Some(7));
        assert_eq!(STRIDE.within(&(1705..1711)), None);
        assert_eq!(STRIDE.within(&(1710..1712)), None, "the gap");
        assert_eq!(STRIDE.within(&(900..910)), None);
    }
}
