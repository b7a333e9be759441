//! Merging small extents.
//!
//! Small writes make small extents, and so do the edges of large writes and of holes. When many of them follow each
//! other closely within a megabyte of an object, they are read and written again as one. Larger extents stay as they
//! are: what is rewritten is bounded by the small ones, and a sequence of small appends costs its bytes a few times
//! over, not a square. So no part of an object has many more extents than blocks.

use std::ops::Range;
use std::time::Duration;

use proto::ObjectId;

use super::block::Slices;
use super::cache::State;
use super::extent::{BLOCK, Edit, Extent, Extents, cut};
use super::page_cache::Via;
use super::placed::{Durable, Placed};
use super::plan::{Carried, Plan};
use super::taker::{Taker, Way};
use super::{CHUNK_BYTES, Objects};
use crate::error::StoreError;
use crate::target::Need;

/// Extents are counted and merged within ranges of this many bytes of an object; divides a chunk.
const WINDOW_BYTES: u64 = 1 << 20;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(WINDOW_BYTES));
/// Extents from this length on are left alone, in bytes.
const LARGE_BYTES: u32 = 64 << 10;

/// Extents that become one at most: a commit carries all of them.
const GROUP_EXTENTS_MAX: usize = 1024;

/// How long the small extents of an object stay as they are when they could not be merged: each write of a byte would try it again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Small extents that become one.
type Group = Vec<(u64, Extent)>;

fn range_of(group: &Group) -> Range<u64> {
    let end = group.last().map_or(0, |(start, extent)| start + u64::from(extent.len));
    group.first().map_or(end, |(start, _)| *start)..end
}

/// Small extents of the window of `offset`, grouped with their close neighbours. A gap of less than a block is
/// close: to fill it with zeros takes no space. The same goes for so little reserved space.
fn groups(extents: &Extents, offset: u64) -> Vec<Group> {
    let window = offset / WINDOW_BYTES * WINDOW_BYTES;
    let mut groups: Vec<Group> = Vec::new();
    let mut end = None;
    for (start, extent) in extents.range(window..window + WINDOW_BYTES) {
        let is_small =
            if extent.is_written() { extent.len < LARGE_BYTES } else { u64::from(extent.len) < BLOCK };
        if !is_small {
            end = None;
            continue;
        }
        let close = end.is_some_and(|end| start - end < BLOCK);
        end = Some(start + u64::from(extent.len));
        match groups.last_mut().filter(|group| close && group.len() < GROUP_EXTENTS_MAX) {
            Some(group) => group.push((*start, extent.clone())),
            None => groups.push(vec![(*start, extent.clone())]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Extents that follow a close neighbour.
fn neighbours(groups: &[Group]) -> usize {
    groups.iter().map(|group| group.len() - 1).sum()
}

/// Offsets in the windows, each once, where a change of `ranges` may have left small extents. At an edge between two blocks of
/// the object a large change leaves small ones only of what has an edge within a block, which was looked at before.
fn looked_at(ranges: &[Range<u64>]) -> Vec<u64> {
    let mut offsets: Vec<u64> = Vec::new();
    for range in ranges {
        let is_small = range.end.saturating_sub(range.start) < u64::from(LARGE_BYTES);
        let is_edge = |at: &u64| is_small || !at.is_multiple_of(BLOCK);
        for at in [range.start, range.end].into_iter().filter(is_edge) {
            if offsets.last().is_none_or(|last| last / WINDOW_BYTES != at / WINDOW_BYTES) {
                offsets.push(at);
            }
        }
    }
    offsets
}

impl Objects {
    /// Merges the small extents around what was written or cut out, in order, where there are too many.
    pub(super) async fn compact_around(&self, id: ObjectId, ranges: &[Range<u64>]) {
        for offset in looked_at(ranges) {
            if let Err(error) = self.compact(id, offset).await {
                tracing::warn!(object = %id.layout, stripe = id.stripe, %error, "small extents stay");
            }
        }
    }

    async fn compact(&self, id: ObjectId, offset: u64) -> Result<(), StoreError> {
        let _reading = self.files.reading();
        let now = self.files.now();
        let crowd = self.with(id.layout, |state| {
            let object = state.object(&self.store, id)?;
            let record = object.record();
            if object.merged_from > now || offset >= record.size || record.tail > record.size {
                return Ok(None);
            }
            let groups = groups(object.chunk(&self.store, id, offset / CHUNK_BYTES)?, offset);
            let crowded = neighbours(&groups) > self.limits.neighbours_max;
            Ok(crowded.then_some(groups))
        })?;
        for group in crowd.unwrap_or_default() {
            let merged = self.merge(Merge { id, group }).await;
            if merged.is_err() {
                self.with(id.layout, |state| {
                    state.object(&self.store, id)?.merged_from = self.files.now() + AGAIN_AFTER;
                    Ok(())
                })?;
            }
            merged?;
        }
        Ok(())
    }

    async fn merge(&self, merge: Merge) -> Result<(), StoreError> {
        self.store.room(Need::Growth).await?;
        let range = range_of(&merge.group);
        // Before it is read: on a full disk that comes to nothing.
        if !self.files.has_room((range.end - range.start).div_ceil(BLOCK)).await? {
            return Err(StoreError::NoSpace);
        }
        let placed = merge.place(self).await?;
        let merged = self.with(merge.id.layout, |state| merge.commit(self, state, &placed));
        if !matches!(merged, Ok(true)) {
            self.files.give_back(placed);
        }
        merged.map(|_| ())
    }
}

/// A group of small extents of an object that become one.
struct Merge {
    id: ObjectId,
    group: Group,
}

impl Merge {
    /// Has one place for all of the group, with what it holds.
    async fn place(&self, objects: &Objects) -> Result<Placed, StoreError> {
        let range = range_of(&self.group);
        if self.group.iter().all(|(_, extent)| !extent.is_written()) {
            return objects.files.reserve(Taker::Merge, std::slice::from_ref(&range)).await;
        }
        // Not what is there by now: it may be gone again when it is looked whether the extents are the same.
        let data = Slices(objects.reader.read_extents(self.id, &self.group).await?);
        let way = Way { taker: Taker::Merge, durable: Durable::Synced, via: Via::Disk };
        objects.files.place(way, range.start, data).await
    }

    /// Puts `placed` in the place of the group, unless that has changed.
    fn commit(&self, objects: &Objects, state: &mut State, placed: &Placed) -> Result<bool, StoreError> {
        if state.dead == Some(true) {
            return Ok(false);
        }
        let object = state.object(&objects.store, self.id)?;
        let Some(record) = object.record else { return Ok(false) };
        let range = range_of(&self.group);
        let index = range.start / CHUNK_BYTES;
        let extents = object.chunk(&objects.store, self.id, index)?;
        let now = super::extent::overlapping(extents, range.clone());
        let same = now.eq(self.group.iter().map(|(start, extent)| (*start, extent)));
        if !same || range.end > record.size {
            return Ok(false);
        }
        let mut edit = Edit::default();
        cut(extents, std::slice::from_ref(&range), &mut edit);
        for (start, extent) in &placed.extents {
            edit.put(*start, extent.clone());
        }
        let mut plan = Plan::new(record);
        plan.push(index, edit);
        let carried =
            Carried { added: placed.runs().to_vec(), files: placed.files.clone(), ..Carried::default() };
        objects.commit(object, self.id, plan, carried)?;
        Ok(true)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use crate::object::extent::FileId;
    use bytes::Bytes;

    #[test]
    fn neighbours_are_grouped_and_large_extents_left() {
        let file = FileId { boot: 1, seq: 0 };
        let extent = |len| Extent { len, file, at: 0, sums: Bytes::from_static(&[0; 4]) };
        let extents = Extents::from([
            (10, extent(10)),
            (20, extent(10)),
            (4000, extent(96)),
            (20_000, extent(1)),
            (30_000, extent(LARGE_BYTES)),
            (30_000 + u64::from(LARGE_BYTES), extent(5)),
            (WINDOW_BYTES, extent(5)),
            (WINDOW_BYTES + 5, extent(5)),
        ]);
        let ranges = |offset| groups(&extents, offset).iter().map(range_of).collect::<Vec<_>>();
        assert_eq!(ranges(0), [10..4096]);
        assert_eq!(ranges(WINDOW_BYTES + 1), [WINDOW_BYTES..WINDOW_BYTES + 10]);
        assert_eq!(ranges(2 * WINDOW_BYTES), []);
    }
}
