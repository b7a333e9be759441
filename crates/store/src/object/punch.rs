//! Cutting ranges out of objects, and setting their size.
//!
//! A cut may concern more extents than one commit should carry. Setting the size is one commit all the same: what
//! lies behind the new size is out of sight at once, and goes afterwards, or before the object grows again. A hole
//! is cut piece by piece; the commit that answers the request is the last one.

use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Timestamp, Transno};
use std::sync::Arc;
use std::time::Duration;

use super::cache::State;
use super::plan::{Carried, Plan};
use super::{Extra, Objects, refuse_dead};
use crate::error::StoreError;
use crate::target::{Author, Need};

/// When what a stop interrupted is tried again that found no space in the log.
const FINISH_AGAIN_AFTER: Duration = Duration::from_secs(1);

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
                if end == u64::MAX { self.set_size(state, &mut cut) } else { self.cut_hole(state, &mut cut) }
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
                Step::Again => {}
                Step::TrimFirst => self.trim(id).await?,
            }
        }
    }

    /// Waits for room in the log. A change that frees space goes on when there is hardly any.
    pub(super) async fn room_to_free(&self) -> Result<(), StoreError> {
        self.store.room(Need::Release).await
    }

    fn set_size(&self, state: &mut State, cut: &mut Cut) -> Result<Step, StoreError> {
        let object = state.object(&self.store, cut.id)?;
        if object.record.is_none() && cut.start == 0 {
            let (attr, transno) =
                self.commit_nothing(object.record().attr(), cut.replay, cut.extra.take())?;
            return Ok(Step::Committed(attr, transno, false));
        }
        let mut record = object.record();
        if cut.start > record.size && record.tail > record.size {
            return Ok(Step::TrimFirst);
        }
        record.size = cut.start;
        record.tail = record.tail.max(cut.start);
        record.touch(cut.time);
        let mut plan = Plan::new(record);
        let complete =
            plan.cut(object, &self.store, cut.id, cut.start..record.tail, self.limits.tail_changes_max)?;
        if complete {
            record.tail = record.size;
            plan.record = Some(record);
        }
        let carried = Carried { replay: cut.replay, extra: cut.extra.take(), ..Carried::default() };
        let (attr, transno) = self.commit(object, cut.id, plan, carried)?;
        Ok(Step::Committed(attr, transno, !complete))
    }

    fn cut_hole(&self, state: &mut State, cut: &mut Cut) -> Result<Step, StoreError> {
        let object = state.object(&self.store, cut.id)?;
        let Some(mut record) = object.record else {
            let (attr, transno) =
                self.commit_nothing(object.record().attr(), cut.replay, cut.extra.take())?;
            return Ok(Step::Committed(attr, transno, false));
        };
        record.touch(cut.time);
        let mut plan = Plan::new(record);
        let range = cut.start..cut.end.min(record.size).max(cut.start);
        if !plan.cut(object, &self.store, cut.id, range, self.limits.hole_changes_max)? {
            // Whoever is given up in the midst of it has cut so far.
            let step = Extra { author: cut.author.clone(), keys: None };
            self.commit(object, cut.id, plan, Carried { extra: Some(step), ..Carried::default() })?;
            return Ok(Step::Again);
        }
        let carried = Carried { replay: cut.replay, extra: cut.extra.take(), ..Carried::default() };
        let (attr, transno) = self.commit(object, cut.id, plan, carried)?;
        Ok(Step::Committed(attr, transno, false))
    }

    /// Takes away what was cut off behind the object's end, and what is left of a destroyed object.
    pub(super) async fn trim(&self, id: ObjectId) -> Result<(), StoreError> {
        loop {
            self.room_to_free().await?;
            if self.with(id.layout, |state| self.trim_step(state, id))? {
                return Ok(());
            }
            self.files.pause().await;
        }
    }

    /// One commit of [`Objects::trim`]; says whether it was the last.
    fn trim_step(&self, state: &mut State, id: ObjectId) -> Result<bool, StoreError> {
        let dead = state.dead == Some(true);
        let object = state.object(&self.store, id)?;
        let Some(mut record) = object.record else { return Ok(true) };
        if record.tail == record.size && !dead {
            return Ok(true);
        }
        let mut plan = Plan::new(record);
        let complete =
            plan.cut(object, &self.store, id, record.size..record.tail, self.limits.tail_changes_max)?;
        if complete {
            record.tail = record.size;
            plan.record = (!dead).then_some(record);
        }
        self.commit(object, id, plan, Carried::default())?;
        Ok(complete)
    }

    /// The same behind what is committed: an error is no part of its answer. If there is no space to go on, [`Objects::finish`] does.
    pub(super) async fn trim_or_leave(&self, id: ObjectId) {
        let trimmed = self.trim(id).await;
        if let Err(StoreError::NoSpace) = trimmed {
            self.unfinished.lock().push(id);
            self.more_unfinished.notify_one();
        }
        tell_if_left(id, trimmed);
    }

    /// Goes on with what a stop of the target interrupted, and from then on with what there was no space for; until the future is dropped.
    /// It takes transaction numbers: not before the clients have replayed theirs.
    pub async fn go_on_finishing(&self) {
        loop {
            self.finish().await;
            self.more_unfinished.notified().await;
        }
    }

    /// Goes on with what is unfinished now.
    pub async fn finish(&self) {
        let unfinished = std::mem::take(&mut *self.unfinished.lock());
        for id in unfinished {
            let mut trimmed = self.trim(id).await;
            // What comes next may free space: who gives up now leaves the target as full as it is.
            while let Err(StoreError::NoSpace) = trimmed {
                self.files.wait(FINISH_AGAIN_AFTER).await;
                trimmed = self.trim(id).await;
            }
            tell_if_left(id, trimmed);
        }
    }
}

/// Tells of an error of [`Objects::trim`], which is no part of an answer: what was asked for is committed.
fn tell_if_left(id: ObjectId, trimmed: Result<(), StoreError>) {
    if let Err(error) = trimmed {
        tracing::warn!(object = %id.layout, stripe = id.stripe, %error, "space of cut data stays taken");
    }
}
