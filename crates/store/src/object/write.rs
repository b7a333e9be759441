//! Writing into an object.

use std::ops::Range;

use bytes::Bytes;
use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Timestamp, Transno};

use super::block::Slices;
use super::cache::State;
use super::extent::{Edit, cut};
use super::files::Placed;
use super::plan::{Carried, Plan};
use super::{CHUNK_BYTES, Extra, Objects, chunk_end, refuse_dead};
use crate::error::StoreError;

/// One write whose data has its place.
struct Written {
    id: ObjectId,
    offset: u64,
    len: u64,
    time: Timestamp,
    replay: Option<Transno>,
    extra: Option<Extra>,
}

/// What came of the attempt to commit.
enum Outcome {
    Committed(ObjectAttr, Transno),
    /// What was cut off behind the object's end has to go first.
    TrimFirst,
}

impl Objects {
    /// Writes `data` at `offset`; makes the object if it is not there. The data has been given to the disk when
    /// this returns, and is durable when the transno is.
    pub async fn write(
        &self,
        id: ObjectId,
        offset: u64,
        data: Vec<Bytes>,
        time: Timestamp,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        let data = Slices(data);
        let len = data.len();
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(StoreError::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        // Before space is taken; it is asked again under the lock that the commit is made under.
        self.with(id.layout, |state| refuse_dead(state))?;
        self.store.room().await?;
        let placed = match self.files.place(offset, data.clone()).await {
            Err(StoreError::NoSpace) if self.has_blocks(id, offset..offset + len)? => {
                self.files.place_over(offset, data).await?
            }
            placed => placed?,
        };
        let mut write = Written { id, offset, len, time, replay, extra: Some(extra) };
        let committed = loop {
            match self.with(id.layout, |state| self.commit_write(state, &mut write, &placed)) {
                Ok(Outcome::Committed(attr, transno)) => break Ok((attr, transno)),
                Ok(Outcome::TrimFirst) => {
                    if let Err(error) = self.trim(id).await {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        match committed {
            Ok(done) => {
                self.compact_if_crowded(id, offset, len).await;
                Ok(done)
            }
            Err(error) => {
                self.files.give_back(placed);
                Err(error)
            }
        }
    }

    /// Whether every byte of `range` has its place already.
    fn has_blocks(&self, id: ObjectId, range: Range<u64>) -> Result<bool, StoreError> {
        self.with(id.layout, |state| {
            let object = state.object(&self.store, id)?;
            Ok(self.holes(object, id, range, 1)?.0.is_empty())
        })
    }

    fn commit_write(
        &self,
        state: &mut State,
        write: &mut Written,
        placed: &Placed,
    ) -> Result<Outcome, StoreError> {
        refuse_dead(state)?;
        let object = state.object(&self.store, write.id)?;
        let mut record = object.record();
        let end = write.offset + write.len;
        if end > record.size && record.tail > record.size {
            return Ok(Outcome::TrimFirst);
        }
        if write.len == 0 {
            let (attr, transno) = self.commit_nothing(record.attr(), write.replay, write.extra.take())?;
            return Ok(Outcome::Committed(attr, transno));
        }
        record.size = record.size.max(end);
        record.tail = record.tail.max(record.size);
        record.touch(write.time);
        let mut plan = Plan::new(record);
        let mut new = placed.extents.iter().peekable();
        let mut at = write.offset;
        while at < end {
            let index = at / CHUNK_BYTES;
            let until = chunk_end(at).min(end);
            let mut edit = Edit::default();
            #[allow(clippy::single_range_in_vec_init)]
            cut(object.chunk(&self.store, write.id, index)?, &[at..until], &mut edit);
            while let Some((start, extent)) = new.next_if(|(start, _)| *start < until) {
                edit.put(*start, extent.clone());
            }
            plan.push(index, edit);
            at = until;
        }
        let carried = Carried {
            added: placed.blocks(),
            files: placed.files.clone(),
            replay: write.replay,
            extra: write.extra.take(),
        };
        let (attr, transno) = self.commit(object, write.id, plan, carried)?;
        Ok(Outcome::Committed(attr, transno))
    }
}
