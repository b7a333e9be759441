//! Destroying objects for ever.
//!
//! One commit marks the layout ids as dead and takes the objects away. Of objects with very many extents it leaves
//! an empty record, and the extents go in further commits.

use std::collections::BTreeSet;

use parking_lot::MutexGuard;
use proto::wire::messages::DeadRange;
use proto::{Fid, ObjectId, Transno};

use super::cache::State;
use super::keys::Record;
use super::plan::Plan;
use super::tomb::Buried;
use super::{Extra, Objects};
use crate::error::StoreError;
use crate::target::Batch;

impl Objects {
    /// Deletes for ever and leaves tombstones: all objects of the layout ids of `ids` answer `Gone` from now on. `dead` are layout
    /// ids that are dead too, whether or not there ever were objects of them here; of those as many are marked as fit.
    pub async fn destroy(
        &self,
        ids: &[ObjectId],
        dead: &[DeadRange],
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<Transno, StoreError> {
        self.room_to_free().await?;
        let ids: BTreeSet<ObjectId> = ids.iter().copied().collect();
        let (transno, unfinished) = self.destroy_now(&ids, dead, replay, extra)?;
        for id in unfinished {
            self.trim_or_leave(id).await;
        }
        for layout in ids.iter().map(|id| id.layout) {
            self.cache.forget(layout, self.cache.layout(layout));
        }
        Ok(transno)
    }

    fn destroy_now(
        &self,
        ids: &BTreeSet<ObjectId>,
        dead: &[DeadRange],
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(Transno, Vec<ObjectId>), StoreError> {
        let layouts: BTreeSet<Fid> = ids.iter().map(|id| id.layout).collect();
        let layouts: Vec<Fid> = layouts.into_iter().collect();
        let shared: Vec<_> = layouts.iter().map(|id| self.cache.layout(*id)).collect();
        let (result, costs) = {
            let mut states: Vec<MutexGuard<'_, State>> = shared.iter().map(|l| l.state.lock()).collect();
            let buried = Buried { layouts: &layouts, dead };
            let result = self.destroy_locked(buried, &mut states, ids, replay, extra);
            (result, states.iter().map(|state| state.cost()).collect::<Vec<_>>())
        };
        for ((id, layout), cost) in layouts.iter().zip(&shared).zip(costs) {
            self.cache.account(*id, layout, cost);
        }
        result
    }

    fn destroy_locked(
        &self,
        buried: Buried<'_>,
        states: &mut [MutexGuard<'_, State>],
        ids: &BTreeSet<ObjectId>,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(Transno, Vec<ObjectId>), StoreError> {
        let layouts = buried.layouts;
        let mut plans: Vec<(usize, ObjectId, Record, Plan)> = Vec::new();
        let mut unfinished = Vec::new();
        let mut left = self.limits.tail_changes_max;
        for id in ids {
            let at = layouts.binary_search(&id.layout).expect("the layouts are those of the ids");
            let object = states[at].object(&self.store, *id)?;
            let Some(record) = object.record else { continue };
            let mut plan = Plan::new(Record { size: 0, ..record });
            if (left > 0 || record.tail == 0) && plan.cut(object, &self.store, *id, 0..record.tail, left)? {
                plan.record = None;
            } else {
                unfinished.push(*id);
            }
            left = left.saturating_sub(plan.change_count());
            plans.push((at, *id, record, plan));
        }
        let transno = self.tombs.bury(&self.store, buried, |changes| {
            let mut batch = Batch { changes, replay, ..Batch::default() };
            for (_, id, before, plan) in &mut plans {
                plan.settle(*id, Some(*before), &[], &mut batch);
            }
            batch.changes.extend(self.seals.buried(layouts));
            extra.put(&super::nothing(), &mut batch);
            self.store.commit(batch)
        })?;
        self.seals.forget(layouts);
        for state in states.iter_mut() {
            state.dead = Some(true);
        }
        for (at, id, _, plan) in plans {
            let object = states[at].object(&self.store, id)?;
            self.files.free(plan.apply(object));
        }
        states.iter_mut().for_each(|state| state.drop_empty());
        Ok((transno, unfinished))
    }
}
