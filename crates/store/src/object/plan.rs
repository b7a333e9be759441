//! A change of one object: planned from what is in memory, committed, then applied.

use std::ops::Range;

use proto::wire::messages::ObjectAttr;
use proto::{ObjectId, Transno};
use rt::File;

use super::cache::{Object, changes_of};
use super::extent::{Edit, Run, cut, overlapping};
use super::keys::{self, Record};
use super::{CHUNK_BYTES, Extra, Objects, chunk_end, logged, summary};
use crate::error::StoreError;
use crate::target::{Batch, Change, Logged, Store};

/// What an object will be. Nothing is changed before it is committed.
pub struct Plan {
    /// The object's record; `None` takes the object away.
    pub record: Option<Record>,
    /// Edits by chunk.
    edits: Vec<(u64, Edit)>,
}

impl Plan {
    /// A plan that makes the object's record `record`.
    pub fn new(record: Record) -> Plan {
        Plan { record: Some(record), edits: Vec::new() }
    }

    /// Adds an edit of chunk `index`, the only one of this chunk.
    pub fn push(&mut self, index: u64, edit: Edit) {
        self.edits.push((index, edit));
    }

    /// Keys that change.
    pub fn change_count(&self) -> usize {
        self.edits.iter().map(|(_, edit)| edit.slots.len()).sum()
    }

    /// Plans to cut `range` out of the object from its start on, but not much more than `changes_max` changes; says whether that
    /// is all of the range.
    pub fn cut(
        &mut self,
        object: &mut Object,
        store: &Store,
        id: ObjectId,
        range: Range<u64>,
        changes_max: usize,
    ) -> Result<bool, StoreError> {
        let mut at = range.start;
        while at < range.end {
            let end = chunk_end(at).min(range.end);
            let index = at / CHUNK_BYTES;
            let mut edit = Edit::default();
            let extents = object.chunk(store, id, index)?;
            // A chunk may have more extents than a commit should carry. One at least goes, so that every commit gets on.
            let left = changes_max.saturating_sub(self.change_count()).max(1);
            let until = overlapping(extents, at..end).nth(left).map_or(end, |(start, _)| start);
            cut(extents, std::slice::from_ref(&(at..until)), &mut edit);
            if !edit.slots.is_empty() {
                self.push(index, edit);
            }
            if until < end {
                return Ok(false);
            }
            if end == range.end {
                break;
            }
            // Objects may be sparse: go on where there is something.
            let Some(next) = Object::next_extent(store, id, end, range.end)? else { break };
            if self.change_count() >= changes_max {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Settles the record's blocks, with `added` new ones, and tells the changes, those of the target's sums among them. `before` is
    /// the record as it is.
    pub fn settle(&mut self, id: ObjectId, before: Option<Record>, added: &[Run], batch: &mut Batch) {
        let freed: u64 = self.edits.iter().map(|(_, edit)| edit.freed_blocks()).sum();
        if let Some(record) = &mut self.record {
            let added: u64 = added.iter().map(|run| u64::from(run.count)).sum();
            record.blocks = (record.blocks + added).saturating_sub(freed);
        }
        let value = self.record.map(|record| record.encode());
        batch.changes.push(Change { key: keys::record_key(id), value });
        for (_, edit) in &self.edits {
            changes_of(id, edit, &mut batch.changes);
        }
        summary::changed(id, before, self.record, batch);
        for run in added {
            summary::used(run, 1, &mut batch.sums);
        }
        for run in self.edits.iter().flat_map(|(_, edit)| &edit.freed) {
            summary::used(run, -1, &mut batch.sums);
            batch.logged.entries.push(logged::freed(run));
        }
    }

    /// Carries the plan out in memory after its commit; gives the blocks that it freed.
    pub fn apply(self, object: &mut Object) -> Vec<Run> {
        match self.record {
            Some(record) => {
                for (index, edit) in &self.edits {
                    object.apply(*index, edit);
                }
                object.record = Some(record);
                object.shrink();
            }
            None => object.clear(),
        }
        self.edits.into_iter().flat_map(|(_, edit)| edit.freed).collect()
    }
}

/// What a commit carries besides the object's own changes.
#[derive(Default)]
pub struct Carried {
    /// Blocks of new data.
    pub added: Vec<Run>,
    /// Files with the new data.
    pub files: Vec<File>,
    /// New data that the log carries.
    pub logged: Logged,
    /// Transno that the change had before.
    pub replay: Option<Transno>,
    /// Further keys.
    pub extra: Option<Extra>,
}

impl Objects {
    /// Commits and applies `plan`. The caller holds the lock of the object's layout.
    pub(super) fn commit(
        &self,
        object: &mut Object,
        id: ObjectId,
        mut plan: Plan,
        carried: Carried,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        let mut batch =
            Batch { data: carried.files, logged: carried.logged, replay: carried.replay, ..Batch::default() };
        plan.settle(id, object.record, &carried.added, &mut batch);
        let attr = plan.record.unwrap_or_default().attr();
        if let Some(extra) = carried.extra {
            extra.put(&attr, &mut batch);
        }
        let transno = self.store.commit(batch)?;
        self.files.free(plan.apply(object));
        Ok((attr, transno))
    }

    /// Commits no change of an object, only what comes with it.
    pub(super) fn commit_nothing(
        &self,
        attr: ObjectAttr,
        replay: Option<Transno>,
        extra: Option<Extra>,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        let mut batch = Batch { replay, ..Batch::default() };
        if let Some(extra) = extra {
            extra.put(&attr, &mut batch);
        }
        let transno = self.store.commit(batch)?;
        Ok((attr, transno))
    }
}
