//! Extents: which bytes of an object lie where. Pure.
//!
//! An extent maps a byte range of an object to as many bytes of a data file. It was written as a whole, from the
//! start of a block, and owns its blocks alone; cutting it leaves pieces that point into the same blocks. Two
//! pieces of one write may share a block at their edges, nothing else ever shares one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;

/// Unit of allocation and of checksums, in bytes.
pub const BLOCK: u64 = 4096;

/// Bytes in front of the checksums of an encoded extent.
const HEAD_BYTES: usize = 24;
/// Longest extent, in bytes.
pub const EXTENT_BYTES_MAX: u64 = 4 << 20;

/// Name of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The target's boot that wrote the file.
    pub boot: u64,
    /// Number of the file within the boot.
    pub seq: u32,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.boot, self.seq)
    }
}

impl FileId {
    /// The inverse of `Display`; `None` for other names.
    pub fn parse(name: &str) -> Option<FileId> {
        let (boot, seq) = name.split_once('-')?;
        let id =
            FileId { boot: u64::from_str_radix(boot, 16).ok()?, seq: u32::from_str_radix(seq, 16).ok()? };
        (id.to_string() == name).then_some(id)
    }
}

/// Consecutive blocks of one data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The data file.
    pub file: FileId,
    /// First block.
    pub block: u32,
    /// Number of blocks.
    pub count: u32,
}

/// Where a range of an object lies. The object's offset of its first byte is its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Bytes; never 0.
    pub len: u32,
    /// The data file.
    pub file: FileId,
    /// Offset of the first byte in the data file.
    pub at: u64,
    /// CRC-32C of each block that the extent touches, little endian; empty for space that is reserved and was never
    /// written, which reads as zeros.
    pub sums: Bytes,
}

impl Extent {
    /// Blocks of the data file that the extent touches.
    pub fn blocks(&self) -> Range<u64> {
        blocks_of(self.at, u64::from(self.len))
    }

    /// The same as a run.
    pub fn run(&self) -> Run {
        let blocks = self.blocks();
        Run { file: self.file, block: blocks.start as u32, count: (blocks.end - blocks.start) as u32 }
    }

    /// Whether it holds data; otherwise its blocks are only reserved.
    pub fn is_written(&self) -> bool {
        !self.sums.is_empty()
    }

    /// The checksum of the `n`th block that the extent touches.
    pub fn sum(&self, n: usize) -> Option<u32> {
        let bytes = self.sums.get(n * 4..n * 4 + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The piece of `[from, to)`, counted from the extent's first byte.
    pub fn slice(&self, from: u64, to: u64) -> Extent {
        assert!(from < to && to <= u64::from(self.len), "a piece lies within its extent");
        let at = self.at + from;
        let first = (at / BLOCK - self.at / BLOCK) as usize;
        let blocks = blocks_of(at, to - from);
        let count = (blocks.end - blocks.start) as usize;
        Extent {
            len: (to - from) as u32,
            file: self.file,
            at,
            sums: if self.is_written() {
                self.sums.slice(first * 4..(first + count) * 4)
            } else {
                Bytes::new()
            },
        }
    }

    /// The value that is stored.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.sums.len());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.file.seq.to_le_bytes());
        out.extend_from_slice(&self.file.boot.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.sums);
        out.into()
    }

    /// The inverse of [`Extent::encode`]; shares `bytes`. `None` for bytes that are no extent.
    pub fn decode(bytes: &Bytes) -> Option<Extent> {
        let (head, sums) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let extent = Extent {
            len: u32::from_le_bytes(head[0..4].try_into().ok()?),
            file: FileId {
                seq: u32::from_le_bytes(head[4..8].try_into().ok()?),
                boot: u64::from_le_bytes(head[8..16].try_into().ok()?),
            },
            at: u64::from_le_bytes(head[16..24].try_into().ok()?),
            sums: bytes.slice(HEAD_BYTES..),
        };
        let end = extent.at.checked_add(u64::from(extent.len))?;
        let sane = extent.len != 0
            && u64::from(extent.len) <= EXTENT_BYTES_MAX
            && end / BLOCK < u64::from(u32::MAX)
            && (sums.is_empty() || sums.len() as u64 == (extent.blocks().end - extent.blocks().start) * 4);
        sane.then_some(extent)
    }
}

/// Blocks that `len` bytes from offset `at` of a data file touch.
pub fn blocks_of(at: u64, len: u64) -> Range<u64> {
    at / BLOCK..(at + len).div_ceil(BLOCK)
}

/// Extents by the object's offset of their first byte.
pub type Extents = BTreeMap<u64, Extent>;

/// What changes when ranges of an object are cut out or replaced.
#[derive(Debug, Default)]
pub struct Edit {
    /// New value of each key; `None` takes it away.
    pub slots: BTreeMap<u64, Option<Extent>>,
    /// Blocks that nothing refers to afterwards.
    pub freed: Vec<Run>,
}

impl Edit {
    /// Puts a new extent; its range has to be free of others.
    pub fn put(&mut self, start: u64, extent: Extent) {
        self.slots.insert(start, Some(extent));
    }

    /// Number of blocks that are freed.
    pub fn freed_blocks(&self) -> u64 {
        self.freed.iter().map(|run| u64::from(run.count)).sum()
    }
}

/// The extents that overlap `range`. Extents do not overlap each other and are at most [`EXTENT_BYTES_MAX`] long.
pub fn overlapping(extents: &Extents, range: Range<u64>) -> impl Iterator<Item = (u64, &Extent)> {
    let before = range.start.saturating_sub(EXTENT_BYTES_MAX);
    let start = extents
        .range(before..range.start)
        .next_back()
        .filter(|(start, extent)| **start + u64::from(extent.len) > range.start)
        .map_or(range.start, |(start, _)| *start);
    extents.range(start..range.end.max(start)).map(|(start, extent)| (*start, extent))
}

/// Cuts `ranges`, which are in order and do not overlap, out of `extents`.
pub fn cut(extents: &Extents, ranges: &[Range<u64>], edit: &mut Edit) {
    let affected: Extents = ranges
        .iter()
        .flat_map(|range| overlapping(extents, range.clone()))
        .map(|(start, extent)| (start, extent.clone()))
        .collect();
    // Blocks at the edges of what is cut off: freed only if no piece that stays touches them.
    let mut edges: BTreeSet<Edge> = BTreeSet::new();
    for (start, extent) in &affected {
        let whole = *start..start + u64::from(extent.len);
        edit.slots.insert(*start, None);
        let mut at = whole.start;
        for range in ranges {
            let gone = range.start.max(whole.start)..range.end.min(whole.end);
            if gone.is_empty() {
                continue;
            }
            if at < gone.start {
                edit.put(at, extent.slice(at - whole.start, gone.start - whole.start));
            }
            at = gone.end;
            free(extent, gone.start - whole.start..gone.end - whole.start, *start, edit, &mut edges);
        }
        if at < whole.end {
            edit.put(at, extent.slice(at - whole.start, whole.end - whole.start));
        }
    }
    for edge in edges {
        if !edge.is_used(extents, ranges) {
            edit.freed.push(Run { file: edge.file, block: edge.block as u32, count: 1 });
        }
    }
}

/// Frees the blocks that lie wholly in `gone` (counted from the extent's first byte) and notes those at its edges.
fn free(extent: &Extent, gone: Range<u64>, start: u64, edit: &mut Edit, edges: &mut BTreeSet<Edge>) {
    let (at, end) = (extent.at + gone.start, extent.at + gone.end);
    let mut blocks = blocks_of(at, end - at);
    let edge = |block| Edge { file: extent.file, block, shift: i128::from(extent.at) - i128::from(start) };
    if !at.is_multiple_of(BLOCK) {
        edges.insert(edge(blocks.start));
        blocks.start += 1;
    }
    if !end.is_multiple_of(BLOCK) && !blocks.is_empty() {
        blocks.end -= 1;
        edges.insert(edge(blocks.end));
    }
    if !blocks.is_empty() {
        let count = (blocks.end - blocks.start) as u32;
        edit.freed.push(Run { file: extent.file, block: blocks.start as u32, count });
    }
}

/// A block that is cut in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    file: FileId,
    block: u64,
    /// Offset in the file less offset in the object: the same for all pieces of one write.
    shift: i128,
}

impl Edge {
    /// Whether a piece that stays when `gone` is cut out touches the block.
    fn is_used(&self, extents: &Extents, gone: &[Range<u64>]) -> bool {
        let offset = |at: u64| u64::try_from(i128::from(at) - self.shift).unwrap_or(0);
        let block = offset(self.block * BLOCK)..offset((self.block + 1) * BLOCK);
        overlapping(extents, block.clone()).any(|(start, extent)| {
            let same = extent.file == self.file && i128::from(extent.at) - i128::from(start) == self.shift;
            let part = start.max(block.start)..(start + u64::from(extent.len)).min(block.end);
            same && !is_covered(part, gone)
        })
    }
}

/// Whether `ranges`, in order, cover all of `part`.
fn is_covered(part: Range<u64>, ranges: &[Range<u64>]) -> bool {
    let mut at = part.start;
    for range in ranges {
        if range.start <= at && at < range.end {
            at = range.end;
        }
    }
    at >= part.end
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { boot: 3, seq: 9 };

    fn extent(at: u64, len: u32) -> Extent {
        let count = blocks_of(at, u64::from(len)).count() as u32;
        let first = (at / BLOCK) as u32;
        let sums: Vec<u8> = (first..first + count).flat_map(u32::to_le_bytes).collect();
        Extent { len, file: FILE, at, sums: sums.into() }
    }

    fn apply(extents: &mut Extents, edit: &Edit) {
        for (start, slot) in &edit.slots {
            match slot {
                Some(extent) => extents.insert(*start, extent.clone()),
                None => extents.remove(start),
            };
        }
    }

    /// Cuts `gone` out of one extent of `len` bytes at offset 0 that lies in blocks 10 and following.
    fn check(len: u32, gone: &[Range<u64>], left: &[(u64, u64)], freed: &[(u32, u32)]) {
        let mut extents = Extents::from([(0, extent(10 * BLOCK, len))]);
        let mut edit = Edit::default();
        cut(&extents, gone, &mut edit);
        apply(&mut extents, &edit);
        let have: Vec<_> = extents.iter().map(|(s, e)| (*s, s + u64::from(e.len))).collect();
        assert_eq!(have, left);
        let mut runs: Vec<_> = edit.freed.iter().map(|run| (run.block, run.count)).collect();
        runs.sort_unstable();
        assert_eq!(runs, freed);
        for (start, piece) in &extents {
            assert_eq!(piece.at, 10 * BLOCK + start);
            assert_eq!(piece.sum(0), Some((piece.at / BLOCK) as u32));
            assert_eq!(Extent::decode(&piece.encode()).as_ref(), Some(piece));
        }
    }

    #[test]
    fn cuts_free_what_nothing_touches_any_more() {
        check(12288, &[0..12288], &[], &[(10, 3)]);
        check(12288, &[0..u64::MAX], &[], &[(10, 3)]);
        check(12288, &[4096..8192], &[(0, 4096), (8192, 12288)], &[(11, 1)]);
        check(12288, &[100..200], &[(0, 100), (200, 12288)], &[]);
        check(12288, &[100..8192], &[(0, 100), (8192, 12288)], &[(11, 1)]);
        check(12288, &[4097..12288], &[(0, 4097)], &[(12, 1)]);
        check(100, &[50..100], &[(0, 50)], &[]);
        check(100, &[0..50, 50..100], &[], &[(10, 1)]);
        check(12288, &[0..5000, 6000..7000], &[(5000, 6000), (7000, 12288)], &[(10, 1)]);
        check(12288, &[0..5000, 6000..12288], &[(5000, 6000)], &[(10, 1), (12, 1)]);
    }

    #[test]
    fn a_block_with_two_pieces_is_freed_with_the_second() {
        let mut extents = Extents::from([(1000, extent(BLOCK, 4096))]);
        let mut freed = Vec::new();
        for gone in [1500..4000, 1000..1500, 4000..9000] {
            let mut edit = Edit::default();
            cut(&extents, &[gone], &mut edit);
            apply(&mut extents, &edit);
            freed.push(edit.freed_blocks());
        }
        assert!(extents.is_empty());
        assert_eq!(freed, [0, 0, 1]);
    }

    #[test]
    fn damaged_extents_do_not_decode() {
        let good = extent(BLOCK + 5, 10000).encode();
        assert!(Extent::decode(&good).is_some());
        assert!(Extent::decode(&good.slice(..good.len() - 1)).is_none());
        assert!(Extent::decode(&good.slice(..20)).is_none());
        let mut empty = good.to_vec();
        empty[..4].fill(0);
        assert!(Extent::decode(&empty.into()).is_none());
        let mut far = good.to_vec();
        far[16..24].fill(0xff);
        assert!(Extent::decode(&far.into()).is_none());
    }

    #[test]
    fn reserved_space_is_cut_like_data() {
        let reserved = Extent { sums: Bytes::new(), ..extent(10 * BLOCK, 12288) };
        assert_eq!(Extent::decode(&reserved.encode()), Some(reserved.clone()));
        let mut extents = Extents::from([(0, reserved)]);
        let mut edit = Edit::default();
        cut(&extents, &[100..8192], &mut edit);
        apply(&mut extents, &edit);
        assert_eq!(edit.freed_blocks(), 1);
        assert!(extents.len() == 2 && extents.values().all(|piece| !piece.is_written()));
    }

    #[test]
    fn golden() {
        let hex: String = extent(2 * BLOCK + 5, 5000).encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "88130000",
                "09000000", // length, number of the file
                "0300000000000000",
                "0520000000000000", // boot of the file, offset in it
                "02000000",
                "03000000", // checksums
            )
        );
    }

    #[test]
    fn file_names_round_trip() {
        assert_eq!(FILE.to_string(), "0000000000000003-00000009");
        assert_eq!(FileId::parse("0000000000000003-00000009"), Some(FILE));
        for bad in ["", "3-9", "0000000000000003", "0000000000000003-0000000g", "+000000000000003-00000009"] {
            assert_eq!(FileId::parse(bad), None, "{bad}");
        }
    }
}
