//! A write of several parts: which of them are joined, and what lies between these. Pure.
//!
//! An extent owns its blocks alone, so a part of a few bytes costs a block. Parts with less than a block between them become
//! one extent, with the bytes between them as they were read: that takes no more space, and one write to the disk.

use std::ops::Range;

use bytes::Bytes;
use proto::ObjectId;

use super::block::Slices;
use super::cache::Object;
use super::extent::{BLOCK, Extent, overlapping};
use super::{CHUNK_BYTES, chunk_end};
use crate::error::StoreError;
use crate::target::Store;

/// Bytes that parts are joined to at most: all of it is read and copied.
const JOINED_BYTES_MAX: u64 = 1 << 20;

/// Bytes for a range of an object.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub start: u64,
    pub data: Slices,
}

impl Part {
    pub fn end(&self) -> u64 {
        self.start + self.data.len()
    }
}

/// Parts that become one extent; never none.
#[derive(Debug)]
pub(super) struct Group {
    pub parts: Vec<Part>,
}

impl Group {
    pub fn range(&self) -> Range<u64> {
        let start = self.parts.first().map_or(0, |part| part.start);
        start..self.parts.last().map_or(start, Part::end)
    }

    /// What lies between the parts.
    pub fn gaps(&self) -> Vec<Range<u64>> {
        let between = self.parts.windows(2).map(|pair| pair[0].end()..pair[1].start);
        between.filter(|gap| !gap.is_empty()).collect()
    }
}

/// What was between two joined parts when it was read.
#[derive(Debug)]
pub(super) struct Gap {
    pub range: Range<u64>,
    pub extents: Vec<(u64, Extent)>,
}

/// Each part by itself.
pub(super) fn apart(parts: &[Part]) -> Vec<Group> {
    parts.iter().map(|part| Group { parts: vec![part.clone()] }).collect()
}

/// Parts, in order, with those joined that are close.
pub(super) fn joined(parts: &[Part]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for part in parts {
        let fits = |group: &Group| {
            let range = group.range();
            part.start - range.end < BLOCK && part.end() - range.start <= JOINED_BYTES_MAX
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.parts.push(part.clone()),
            None => groups.push(Group { parts: vec![part.clone()] }),
        }
    }
    groups
}

/// Ranges cut at the borders of chunks, by the number of their chunk.
pub(super) fn by_chunk(ranges: &[Range<u64>]) -> Vec<(u64, Vec<Range<u64>>)> {
    let mut chunks: Vec<(u64, Vec<Range<u64>>)> = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let (index, until) = (at / CHUNK_BYTES, chunk_end(at).min(range.end));
            if chunks.last().is_none_or(|(last, _)| *last != index) {
                chunks.push((index, Vec::new()));
            }
            if let Some((_, ranges)) = chunks.last_mut() {
                ranges.push(at..until);
            }
            at = until;
        }
    }
    chunks
}

/// The extents of an object that overlap a range.
pub(super) fn extents_in(
    object: &mut Object,
    store: &Store,
    id: ObjectId,
    range: &Range<u64>,
) -> Result<Vec<(u64, Extent)>, StoreError> {
    let mut extents = Vec::new();
    for (index, ranges) in by_chunk(std::slice::from_ref(range)) {
        let chunk = object.chunk(store, id, index)?;
        let found = ranges.into_iter().flat_map(|range| overlapping(chunk, range));
        extents.extend(found.map(|(start, extent)| (start, extent.clone())));
    }
    Ok(extents)
}

/// Copies slices to where they belong.
pub(super) fn lay_over(bytes: &mut [u8], mut at: usize, slices: &[Bytes]) {
    for slice in slices {
        bytes[at..at + slice.len()].copy_from_slice(slice);
        at += slice.len();
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn part(start: u64, len: usize) -> Part {
        Part { start, data: Slices(vec![Bytes::from(vec![7; len])]) }
    }

    #[test]
    fn close_parts_are_joined() {
        let parts = [part(0, 13), part(26, 13), part(4135, 5), part(10_000, 1), part(10_001, 1 << 20)];
        let groups = joined(&parts);
        let ranges: Vec<_> = groups.iter().map(Group::range).collect();
        assert_eq!(ranges, [0..39, 4135..4140, 10_000..10_001, 10_001..10_001 + (1 << 20)]);
        assert_eq!(groups[0].gaps(), [13..26]);
        assert_eq!(apart(&parts).len(), parts.len());
    }

    #[test]
    fn ranges_are_cut_at_chunks() {
        let border = CHUNK_BYTES;
        let expected = vec![(0, vec![5..6, border - 1..border]), (1, vec![border..border + 2])];
        assert_eq!(by_chunk(&[5..6, border - 1..border + 2, border + 9..border + 9]), expected);
    }
}
