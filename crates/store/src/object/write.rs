//! Writing into an object.

use std::ops::Range;

use bytes::Bytes;
use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Transno};
use rt::buf::AlignedBuf;

use super::block::Slices;
use super::cache::State;
use super::extent::{Edit, cut};
use super::keys::By;
use super::page_cache::Via;
use super::parts::{Gap, Group, Part, apart, by_chunk, extents_in, joined, lay_over};
use super::placed::{Durable, Placed};
use super::plan::{Carried, Plan};
use super::taker::{Taker, Way};
use super::{CHUNK_BYTES, Extra, Objects, refuse_dead};
use crate::error::StoreError;
use crate::target::Need;

/// How often parts are joined; if gaps between them are always written meanwhile, they are not.
const JOIN_ROUNDS: u32 = 3;

/// What is written, and has its place.
struct Written {
    id: ObjectId,
    /// In order, and apart from each other.
    ranges: Vec<Range<u64>>,
    /// What filled the gaps between parts that were joined; it has to be there still.
    gaps: Vec<Gap>,
    by: By,
    replay: Option<Transno>,
    extra: Option<Extra>,
}

/// What came of the attempt to commit.
enum Outcome {
    Committed(ObjectAttr, Transno),
    /// What was cut off behind the object's end has to go first.
    TrimFirst,
    /// A gap between joined parts was written meanwhile.
    Changed,
}

impl Objects {
    /// Writes `data` at `offset`; makes the object if it is not there. The data has been given to the disk when
    /// this returns, and is durable when the transno is.
    pub async fn write(
        &self,
        id: ObjectId,
        offset: u64,
        data: Vec<Bytes>,
        by: impl Into<By>,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        self.write_parts(id, vec![(offset, data)], by, replay, extra).await
    }

    /// The same for several parts, which are in order and do not overlap, as one change: all or nothing. Parts with less
    /// than a block between them become one extent.
    pub async fn write_parts(
        &self,
        id: ObjectId,
        parts: Vec<(u64, Vec<Bytes>)>,
        by: impl Into<By>,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        let parts: Vec<Part> =
            parts.into_iter().map(|(start, data)| Part { start, data: Slices(data) }).collect();
        let too_far =
            |part: &Part| part.start.checked_add(part.data.len()).is_none_or(|end| end > FILE_BYTES_MAX);
        if parts.iter().any(too_far) {
            return Err(StoreError::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        // Before space is taken; it is asked again under the lock that the commit is made under.
        self.with(id.layout, |state| refuse_dead(state))?;
        let (by, mut extra) = (by.into(), Some(extra));
        let need = Need::of(replay);
        let mut rounds = 0;
        loop {
            self.store.room(need).await?;
            rounds += 1;
            let groups = if rounds > JOIN_ROUNDS { apart(&parts) } else { joined(&parts) };
            let extra_now = extra.take();
            let mut write =
                Written { id, ranges: Vec::new(), gaps: Vec::new(), by, replay, extra: extra_now };
            let mut placed = Placed::default();
            let outcome = match write.place(self, groups, &mut placed).await {
                Ok(()) => write.commit_trimmed(self, &placed).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(Outcome::Committed(attr, transno)) => {
                    self.compact_around(id, &write.ranges).await;
                    return Ok((attr, transno));
                }
                Ok(_) => {
                    self.files.give_back(placed);
                    extra = write.extra;
                }
                Err(error) => {
                    self.files.give_back(placed);
                    return Err(error);
                }
            }
        }
    }

    /// Whether every byte of `range` has its place already.
    fn has_blocks(&self, id: ObjectId, range: Range<u64>) -> Result<bool, StoreError> {
        self.with(id.layout, |state| {
            let object = state.object(&self.store, id)?;
            let holes = object.holes(&self.store, id, range, 1)?;
            Ok(holes.ranges.is_empty() && holes.are_all)
        })
    }
}

impl Written {
    /// Writes each group to where nothing refers to it yet.
    async fn place(
        &mut self,
        objects: &Objects,
        groups: Vec<Group>,
        placed: &mut Placed,
    ) -> Result<(), StoreError> {
        let total = groups.iter().map(|group| group.range().end - group.range().start).sum();
        let way = Way { taker: Taker::Growth, durable: Durable::of(total), via: self.via(objects, &groups)? };
        for group in groups {
            for part in self.parts_of(objects, group).await? {
                self.place_part(objects, part, way, placed).await?;
            }
        }
        objects.store.counts().writes.note_pieces(placed.runs().iter().copied());
        Ok(())
    }

    /// Whether the page cache keeps it.
    fn via(&self, objects: &Objects, groups: &[Group]) -> Result<Via, StoreError> {
        let cache = objects.page_cache();
        if !cache.keeps_writes() {
            return Ok(Via::Disk);
        }
        let size =
            objects.with(self.id.layout, |state| Ok(state.object(&objects.store, self.id)?.record().size))?;
        Ok(cache.of_write(groups.iter().map(|group| group.range().end).max().unwrap_or(0).max(size)))
    }

    async fn place_part(
        &mut self,
        objects: &Objects,
        Part { start, data }: Part,
        way: Way,
        placed: &mut Placed,
    ) -> Result<(), StoreError> {
        let range = start..start + data.len();
        let files = &objects.files;
        let new = match files.place(way, start, data.clone()).await {
            // What is repeated had its space before.
            Err(StoreError::NoSpace)
                if self.replay.is_some() || objects.has_blocks(self.id, range.clone())? =>
            {
                // The blocks that it has are freed when the new ones are referred to.
                files.place(Way { taker: Taker::Overwrite, ..way }, start, data).await?
            }
            new => new?,
        };
        placed.add(new);
        self.ranges.push(range);
        Ok(())
    }

    /// What is written of a group: one part, for which the gaps are read, or each part by itself if they cannot be read.
    async fn parts_of(&mut self, objects: &Objects, group: Group) -> Result<Vec<Part>, StoreError> {
        if let [_] = group.parts[..] {
            return Ok(group.parts);
        }
        let range = group.range();
        let _reading = objects.files.reading();
        // As of one moment: what is read must be what is looked for when it is committed.
        let (gaps, segments) = objects.with(self.id.layout, |state| {
            let object = state.object(&objects.store, self.id)?;
            let mut gaps = Vec::new();
            for range in group.gaps() {
                let extents = extents_in(object, &objects.store, self.id, &range)?;
                gaps.push(Gap { range, extents });
            }
            Ok((gaps, object.segments(&objects.store, self.id, range.clone())?))
        })?;
        let before = match objects.reader.read_segments(self.id, segments).await {
            // The write does not need it, and whoever does is told.
            Err(StoreError::Corrupt { .. } | StoreError::Io(_)) => return Ok(group.parts),
            before => before?,
        };
        self.gaps.extend(gaps);
        let mut bytes = AlignedBuf::zeroed((range.end - range.start) as usize);
        lay_over(bytes.as_mut(), 0, &before);
        for part in &group.parts {
            lay_over(bytes.as_mut(), (part.start - range.start) as usize, &part.data.0);
        }
        Ok(vec![Part { start: range.start, data: Slices(vec![bytes.freeze()]) }])
    }

    async fn commit_trimmed(&mut self, objects: &Objects, placed: &Placed) -> Result<Outcome, StoreError> {
        loop {
            match objects.with(self.id.layout, |state| self.commit(objects, state, placed))? {
                Outcome::TrimFirst => objects.trim(self.id).await?,
                outcome => return Ok(outcome),
            }
        }
    }

    fn commit(
        &mut self,
        objects: &Objects,
        state: &mut State,
        placed: &Placed,
    ) -> Result<Outcome, StoreError> {
        refuse_dead(state)?;
        let object = state.object(&objects.store, self.id)?;
        for gap in &self.gaps {
            if extents_in(object, &objects.store, self.id, &gap.range)? != gap.extents {
                return Ok(Outcome::Changed);
            }
        }
        let mut record = object.record();
        let end = self.ranges.last().map_or(0, |range| range.end);
        if end > record.size && record.tail > record.size {
            return Ok(Outcome::TrimFirst);
        }
        if self.ranges.iter().all(Range::is_empty) {
            let (attr, transno) = objects.commit_nothing(record.attr(), self.replay, self.extra.take())?;
            return Ok(Outcome::Committed(attr, transno));
        }
        record.size = record.size.max(end);
        record.tail = record.tail.max(record.size);
        record.take(self.by);
        let mut plan = Plan::new(record);
        let mut new = placed.extents.iter().peekable();
        for (index, ranges) in by_chunk(&self.ranges) {
            let mut edit = Edit::default();
            cut(object.chunk(&objects.store, self.id, index)?, &ranges, &mut edit);
            while let Some((start, extent)) = new.next_if(|(start, _)| *start / CHUNK_BYTES == index) {
                edit.put(*start, extent.clone());
            }
            plan.push(index, edit);
        }
        let carried = Carried {
            added: placed.runs().to_vec(),
            files: placed.files.clone(),
            logged: placed.logged.clone(),
            replay: self.replay,
            extra: self.extra.take(),
        };
        let (attr, transno) = objects.commit(object, self.id, plan, carried)?;
        Ok(Outcome::Committed(attr, transno))
    }
}
