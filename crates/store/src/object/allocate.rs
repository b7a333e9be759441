//! Reserving space: holes take blocks that nothing is written to.
//!
//! A range may have more holes than one commit should carry: they are filled piece by piece, and the commit that
//! answers the request is the last one. A step looks at few chunks, and the next one goes on behind it. A write into
//! reserved space takes new blocks, as every write does, and frees those that were reserved; what it needs until then
//! is kept for it ([`super::files`]).

use std::ops::Range;
use std::sync::Arc;

use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Transno};

use super::cache::{Object, State};
use super::extent::{BLOCK, EXTENT_BYTES_MAX, Edit, overlapping};
use super::keys::By;
use super::placed::Placed;
use super::plan::{Carried, Plan};
use super::{CHUNK_BYTES, Extra, Objects, chunk_end, refuse_dead};
use crate::error::StoreError;
use crate::target::{Author, Need, Store};

/// Chunks that one step looks at.
const CHUNKS_MAX: usize = 64;

/// One range that is to be reserved.
struct Wish {
    id: ObjectId,
    /// What is left of it: before its start there was no hole any more when that was looked at.
    range: Range<u64>,
    by: By,
    replay: Option<Transno>,
    author: Option<Arc<Author>>,
    extra: Option<Extra>,
}

/// Holes of a range, in order.
pub(super) struct Holes {
    pub(super) ranges: Vec<Range<u64>>,
    /// There are no others before this byte.
    pub(super) until: u64,
    /// The range has no others.
    pub(super) are_all: bool,
}

/// What is to be done next.
enum Step {
    /// There are no holes any more.
    Committed(ObjectAttr, Transno),
    /// These are to be filled.
    Fill(Holes),
    /// There are none before this byte.
    GoOn(u64),
}

impl Objects {
    /// Reserves the space of `[start, end)` as far as the object goes: its size does not change.
    pub async fn allocate(
        &self,
        id: ObjectId,
        range: Range<u64>,
        by: impl Into<By>,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        if range.end > FILE_BYTES_MAX {
            return Err(StoreError::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        let need = Need::of(replay);
        let author = extra.author.clone();
        let mut wish = Wish { id, range, by: by.into(), replay, author, extra: Some(extra) };
        loop {
            self.store.room(need).await?;
            match self.with(id.layout, |state| wish.next_holes(self, state))? {
                Step::Committed(attr, transno) => return Ok((attr, transno)),
                Step::GoOn(until) => wish.range.start = until,
                Step::Fill(holes) => {
                    let placed = self.files.reserve(need.into(), &holes.ranges).await?;
                    let filled = self.with(id.layout, |state| wish.fill(self, state, &holes, &placed));
                    match filled {
                        Ok(Some(answer)) if holes.are_all => return Ok(answer),
                        Ok(Some(_)) => wish.range.start = holes.until,
                        // Somebody wrote meanwhile.
                        Ok(None) => self.files.give_back(placed),
                        Err(error) => {
                            self.files.give_back(placed);
                            return Err(error);
                        }
                    }
                }
            }
            self.files.pause().await;
        }
    }
}

impl Wish {
    fn next_holes(&mut self, objects: &Objects, state: &mut State) -> Result<Step, StoreError> {
        refuse_dead(state)?;
        let object = state.object(&objects.store, self.id)?;
        let end = self.range.end.min(object.record().size);
        let holes =
            object.holes(&objects.store, self.id, self.range.start..end, objects.limits.reserved_max)?;
        object.shrink();
        if !holes.ranges.is_empty() {
            return Ok(Step::Fill(holes));
        }
        if !holes.are_all {
            return Ok(Step::GoOn(holes.until));
        }
        let (attr, transno) =
            objects.commit_nothing(object.record().attr(), self.replay, self.extra.take())?;
        Ok(Step::Committed(attr, transno))
    }

    /// Puts `placed` into `holes`; `None` if these are none any more.
    fn fill(
        &mut self,
        objects: &Objects,
        state: &mut State,
        holes: &Holes,
        placed: &Placed,
    ) -> Result<Option<(ObjectAttr, Transno)>, StoreError> {
        refuse_dead(state)?;
        let object = state.object(&objects.store, self.id)?;
        let Some(mut record) = object.record else { return Ok(None) };
        if holes.ranges.last().is_some_and(|hole| hole.end > record.size) {
            return Ok(None);
        }
        record.take(self.by);
        let mut plan = Plan::new(record);
        let mut new = placed.extents.iter().peekable();
        for holes in holes.ranges.chunk_by(|a, b| a.start / CHUNK_BYTES == b.start / CHUNK_BYTES) {
            let Some(first) = holes.first() else { continue };
            let (index, end) = (first.start / CHUNK_BYTES, chunk_end(first.start));
            let extents = object.chunk(&objects.store, self.id, index)?;
            if holes.iter().any(|hole| overlapping(extents, hole.clone()).next().is_some()) {
                return Ok(None);
            }
            let mut edit = Edit::default();
            while let Some((start, extent)) = new.next_if(|(start, _)| *start < end) {
                edit.put(*start, extent.clone());
            }
            plan.push(index, edit);
        }
        let step = Extra { author: self.author.clone(), keys: None };
        let mut carried = Carried { added: placed.runs().to_vec(), extra: Some(step), ..Carried::default() };
        if holes.are_all {
            carried.replay = self.replay;
            carried.extra = self.extra.take();
        }
        objects.commit(object, self.id, plan, carried).map(Some)
    }
}

impl Object {
    /// The first holes of `range`, at most `count_max` and in few chunks, none longer than an extent can be or over the border of a
    /// chunk; and whether these are all.
    pub(super) fn holes(
        &mut self,
        store: &Store,
        id: ObjectId,
        range: Range<u64>,
        count_max: usize,
    ) -> Result<Holes, StoreError> {
        let mut holes = Vec::new();
        let mut at = range.start;
        for _ in 0..CHUNKS_MAX {
            if at >= range.end {
                break;
            }
            let end = chunk_end(at).min(range.end);
            let extents = self.chunk(store, id, at / CHUNK_BYTES)?;
            let mut used = overlapping(extents, at..end);
            while at < end {
                let next = used.next().map(|(start, extent)| start..start + u64::from(extent.len));
                let next = next.unwrap_or(end..end);
                while at < next.start {
                    if holes.len() == count_max {
                        return Ok(Holes { ranges: holes, until: at, are_all: false });
                    }
                    // Pieces begin with the object's blocks, as most writes do that take their place.
                    let max = if at.is_multiple_of(BLOCK) { EXTENT_BYTES_MAX } else { BLOCK - at % BLOCK };
                    let until = (at + max).min(next.start);
                    holes.push(at..until);
                    at = until;
                }
                at = next.end.max(at);
            }
        }
        Ok(Holes { ranges: holes, until: at, are_all: at >= range.end })
    }
}
