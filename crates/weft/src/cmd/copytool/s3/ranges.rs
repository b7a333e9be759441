//! What of a file is data. A copy has that alone, one piece after the other; its description says where each belongs.

/// Shorter holes are kept as zeros: to name them would not be worth it.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// After so many pieces, what counts as a hole is twice as long: the number of pieces grows with the logarithm of the file's size.
const PIECES_STEP: usize = 1000;
/// Most pieces of a description that is read. A file of 2^64 bytes has fewer.
const PIECES_MAX: usize = 64_000;

/// Pieces of a file: offset and length of each, in order, with holes between them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ranges {
    pieces: Vec<(u64, u64)>,
    len: u64,
}

impl Ranges {
    /// Those of a description; `None` if they cannot be those of a file of `size` bytes.
    pub fn of(pieces: Vec<(u64, u64)>, size: u64) -> Option<Ranges> {
        let (mut until, mut total) = (0u64, 0u64);
        for &(offset, len) in &pieces {
            let end = offset.checked_add(len)?;
            if len == 0 || offset < until || end > size {
                return None;
            }
            until = end;
            total += len;
        }
        (pieces.len() <= PIECES_MAX).then_some(Ranges { pieces, len: total })
    }

    /// Data comes at `offset`, behind all that came. Gives the number of zeros that the copy has before it.
    pub fn add(&mut self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let hole_min = HOLE_BYTES_MIN << (self.pieces.len() / PIECES_STEP).min(40);
        let zeros = match self.pieces.last_mut() {
            Some((start, piece)) if offset - (*start + *piece) < hole_min => {
                let zeros = offset - (*start + *piece);
                *piece += zeros + len;
                zeros
            }
            // At the begin of a file, too.
            None if offset < hole_min => {
                self.pieces.push((0, offset + len));
                offset
            }
            _ => {
                self.pieces.push((offset, len));
                0
            }
        };
        self.len += zeros + len;
        zeros
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The pieces.
    pub fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_holes_are_zeros() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(10, 5), 10);
        assert_eq!(ranges.add(15, 5), 0);
        assert_eq!(ranges.add(25, 5), 5);
        assert_eq!(ranges.add(30 + HOLE_BYTES_MIN, 7), 0);
        assert_eq!(ranges.add(90 << 20, 0), 0);
        assert_eq!(ranges.pieces(), [(0, 30), (30 + HOLE_BYTES_MIN, 7)]);
        assert_eq!(ranges.len(), 37);
        assert_eq!(Ranges::of(ranges.pieces().to_vec(), 1 << 20), Some(ranges));
    }

    #[test]
    fn there_are_never_too_many() {
        // 4 KiB each 128 KiB, of a file of 256 GiB.
        let (mut ranges, mut zeros) = (Ranges::default(), 0);
        for at in 0..(2 << 20) {
            zeros += ranges.add(at * (128 << 10), 4 << 10);
        }
        assert!(ranges.pieces().len() < 4 * PIECES_STEP, "{}", ranges.pieces().len());
        assert_eq!(ranges.len(), zeros + (2 << 20) * (4 << 10));
        assert!(Ranges::of(ranges.pieces().to_vec(), 256 << 30).is_some());
        let mut most = Ranges::default();
        let mut at = 0u64;
        while let Some(next) = at.checked_add(HOLE_BYTES_MIN << (most.pieces().len() / PIECES_STEP).min(40)) {
            most.add(next, 1);
            match next.checked_add(1) {
                Some(end) => at = end,
                None => break,
            }
        }
        assert!(most.pieces().len() <= PIECES_MAX, "{}", most.pieces().len());
    }

    #[test]
    fn a_description_may_say_anything() {
        assert!(Ranges::of(vec![], 0).is_some());
        for (pieces, size) in [
            (vec![(0, 5)], 4),
            (vec![(0, 0)], 4),
            (vec![(5, 5), (9, 1)], 20),
            (vec![(5, 5), (0, 1)], 20),
            (vec![(u64::MAX, 2)], u64::MAX),
            ((0..65_000).map(|at| (2 * at, 1)).collect(), 1 << 20),
        ] {
            assert_eq!(Ranges::of(pieces.clone(), size), None, "{:?}", pieces.first());
        }
    }
}
