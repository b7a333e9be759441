//! Cutting ranges out of objects, and setting their size.
//!
//! A cut may concern more extents than one commit should carry. Setting the size is one commit all the same: what
//! lies behind the new size is out of sight at once, and goes afterwards, or before the object grows again. A hole
//! is cut piece by piece; the commit that answers the request is the last one.

use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Timestamp, Transno};
use std::sync::Arc;

use super::cache::State;
use super::plan::{Carried, Plan};
use super::{Extra, Objects, refuse_dead};
use crate::error::StoreError;
use crate::target::{Author, Need};

/// One cut that is asked for.
struct Cut {
    id: ObjectId,
    start: u64,
    end: u64,
    time: Timestamp,
    replay: Option<Transno>,
    author: Option<Arc<Author>>,
    extra: Option<Extra>,
}

/// What came of one step.
enum Step {
    /// The request is carried out; whether something behind the end is left to be taken away.
    Committed(ObjectAttr, Transno, bool),
    /// A part of the hole was cut.
    Again,
    /// What was cut off behind the object's end has to go first.
    TrimFirst,
}

impl Objects {
    /// Cuts `[start, end)`; `end == u64::MAX` sets the size to `start`.
    pub async fn punch(
        &self,
        id: ObjectId,
        start: u64,
        end: u64,
        time: Timestamp,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        if start > FILE_BYTES_MAX {
            return Err(StoreError::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        let author = extra.author.clone();
        let mut cut = Cut { id, start, end, time, replay, author, extra: Some(extra) };
        loop {
            self.room_to_free().await?;
            let step = self.with(id.layout, |state| {
                refuse_dead(state)?;
                if end == u64::MAX { cut.set_size(self, state) } else { cut.hole(self, state) }
            })?;
            match step {
                Step::Committed(attr, transno, unfinished) => {
                    if unfinished {
                        self.trim_or_leave(id).await;
                    }
                    if end < u64::MAX {
                        self.compact_around(id, std::slice::from_ref(&(start..end))).await;
                    }
                    return Ok((attr, transno));
                }
                Step::Again => self.files.pause().await,
                Step::TrimFirst => self.trim(id).await?,
            }
        }
    }

    /// Waits for room in the log. A change that frees space goes on when there is hardly any.
    pub(super) async fn room_to_free(&self) -> Result<(), StoreError> {
        self.store.room(Need::Release).await
    }
}

impl Cut {
    fn set_size(&mut self, objects: &Objects, state: &mut State) -> Result<Step, StoreError> {
        let object = state.object(&objects.store, self.id)?;
        if object.record.is_none() && self.start == 0 {
            let (attr, transno) =
                objects.commit_nothing(object.record().attr(), self.replay, self.extra.take())?;
            return Ok(Step::Committed(attr, transno, false));
        }
        let mut record = object.record();
        if self.start > record.size && record.tail > record.size {
            return Ok(Step::TrimFirst);
        }
        record.size = self.start;
        record.tail = record.tail.max(self.start);
        record.touch(self.time);
        let mut plan = Plan::new(record);
        let complete = plan.cut(
            object,
            &objects.store,
            self.id,
            self.start..record.tail,
            objects.limits.tail_changes_max,
        )?;
        if complete {
            record.tail = record.size;
            plan.record = Some(record);
        }
        let carried = Carried { replay: self.replay, extra: self.extra.take(), ..Carried::default() };
        let (attr, transno) = objects.commit(object, self.id, plan, carried)?;
        Ok(Step::Committed(attr, transno, !complete))
    }

    fn hole(&mut self, objects: &Objects, state: &mut State) -> Result<Step, StoreError> {
        let object = state.object(&objects.store, self.id)?;
        let Some(mut record) = object.record else {
            let (attr, transno) =
                objects.commit_nothing(object.record().attr(), self.replay, self.extra.take())?;
            return Ok(Step::Committed(attr, transno, false));
        };
        record.touch(self.time);
        let mut plan = Plan::new(record);
        let range = self.start..self.end.min(record.size).max(self.start);
        if !plan.cut(object, &objects.store, self.id, range, objects.limits.hole_changes_max)? {
            // Whoever is given up in the midst of it has cut so far.
            let step = Extra { author: self.author.clone(), keys: None };
            objects.commit(object, self.id, plan, Carried { extra: Some(step), ..Carried::default() })?;
            return Ok(Step::Again);
        }
        let carried = Carried { replay: self.replay, extra: self.extra.take(), ..Carried::default() };
        let (attr, transno) = objects.commit(object, self.id, plan, carried)?;
        Ok(Step::Committed(attr, transno, false))
    }
}
