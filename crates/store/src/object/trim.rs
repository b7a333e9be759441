//! Taking away what lies behind an object's end: what was cut off, and what is left of a destroyed object.
//!
//! It is out of sight, so it may take more than one commit, and a stop of the target may come between them.

use std::time::Duration;

use parking_lot::Mutex;
use proto::ObjectId;
use rt::sync::Notify;

use super::Objects;
use super::cache::State;
use super::plan::{Carried, Plan};
use crate::error::StoreError;

/// When what a stop interrupted is tried again that found no space in the log.
const FINISH_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Objects with extents behind their ends, as the target was opened, and those for which there was no space to go on.
pub(super) struct Unfinished {
    objects: Mutex<Vec<ObjectId>>,
    /// There are more of them.
    came: Notify,
}

impl Unfinished {
    /// Those that are known when the target is opened.
    pub fn new(objects: Vec<ObjectId>) -> Unfinished {
        Unfinished { objects: Mutex::new(objects), came: Notify::new() }
    }

    fn push(&self, id: ObjectId) {
        self.objects.lock().push(id);
        self.came.notify_one();
    }

    fn take(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.objects.lock())
    }

    /// Waits for more of them.
    async fn more(&self) {
        self.came.notified().await;
    }
}

impl Objects {
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
            self.unfinished.push(id);
        }
        tell_if_left(id, trimmed);
    }

    /// Goes on with what a stop of the target interrupted, and from then on with what there was no space for; until the future is dropped.
    /// It takes transaction numbers: not before the clients have replayed theirs.
    pub async fn go_on_finishing(&self) {
        loop {
            self.finish().await;
            self.unfinished.more().await;
        }
    }

    /// Goes on with what is unfinished now.
    pub async fn finish(&self) {
        for id in self.unfinished.take() {
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
