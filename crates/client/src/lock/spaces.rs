//! What is held of each OST, counted: one look says whether anything is, and what was not used lately goes when there is too
//! much (Lustre's namespaces with `lru_size` and `lru_max_age`). What is held of one object counts as one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proto::second_chance::{Look, Round};
use proto::{DataTarget, ObjectId};

use crate::order::{Mutex, SPACES};

/// What is held of an OST that was not used for so long is given back, unless it is set otherwise.
const AGE_MAX: Duration = Duration::from_secs(600);

/// How much may be held of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Locks; 0 for as many as the client has room for.
    pub(crate) count_max: usize,
    /// How long they stay when nothing is asked of the target.
    pub(crate) age_max: Duration,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep { count_max: 0, age_max: AGE_MAX }
    }
}

/// What is held of one OST.
#[derive(Default)]
struct Space {
    objects: BTreeSet<ObjectId>,
    /// Those, and some that are gone, in the order in which they are looked at for being given up.
    order: Round<ObjectId>,
    keep: Keep,
}

/// What is held of each OST.
#[derive(Default)]
pub(crate) struct Spaces {
    osts: Mutex<SPACES, BTreeMap<DataTarget, Space>>,
}

impl Spaces {
    /// Something of an object is held from now on. How many are too many.
    pub(super) fn add(&self, target: DataTarget, id: ObjectId) -> usize {
        let mut osts = self.osts.lock();
        let space = osts.entry(target).or_default();
        if space.objects.insert(id) {
            space.order.tidy(space.objects.len(), |id| space.objects.contains(id));
            space.order.push(id);
        }
        space.too_many()
    }

    /// Nothing of it is held any more.
    pub(super) fn remove(&self, target: DataTarget, id: ObjectId) {
        let mut osts = self.osts.lock();
        let Some(space) = osts.get_mut(&target) else { return };
        space.objects.remove(&id);
        if space.objects.is_empty() {
            space.order = Round::default();
            if space.keep == Keep::default() {
                osts.remove(&target);
            }
        }
    }

    /// The next one that may have to go; it is looked at again after all others.
    pub(super) fn next(&self, target: DataTarget) -> Option<ObjectId> {
        let mut osts = self.osts.lock();
        let space = osts.get_mut(&target)?;
        let is_there = |id| if space.objects.contains(&id) { Look::Found } else { Look::Gone };
        let next = space.order.find(usize::MAX, is_there)?;
        space.order.push(next);
        Some(next)
    }

    /// Objects of an OST, in their order.
    pub(super) fn objects(&self, target: DataTarget) -> Vec<ObjectId> {
        self.osts.lock().get(&target).map_or_else(Vec::new, |space| space.objects.iter().copied().collect())
    }

    /// How many there are.
    pub(crate) fn count(&self, target: DataTarget) -> usize {
        self.osts.lock().get(&target).map_or(0, |space| space.objects.len())
    }

    /// How many of them are too many.
    pub(crate) fn too_many(&self, target: DataTarget) -> usize {
        self.osts.lock().get(&target).map_or(0, Space::too_many)
    }

    /// What may be held of an OST.
    pub(crate) fn keep(&self, target: DataTarget) -> Keep {
        self.osts.lock().get(&target).map_or_else(Keep::default, |space| space.keep)
    }

    /// Sets that.
    pub(crate) fn set_keep(&self, target: DataTarget, set: impl FnOnce(&mut Keep)) {
        set(&mut self.osts.lock().entry(target).or_default().keep);
    }
}

impl Space {
    fn too_many(&self) -> usize {
        match self.keep.count_max {
            0 => 0,
            max => self.objects.len().saturating_sub(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::second_chance::GONE_MAX;
    use proto::{Fid, OstIndex};

    use super::*;

    fn ost(index: u32) -> DataTarget {
        OstIndex(index).into()
    }

    fn object(oid: u32) -> ObjectId {
        ObjectId { layout: Fid { seq: 0x2_0000_0400, oid, ver: 0 }, stripe: 0 }
    }

    #[test]
    fn each_ost_is_counted_by_itself() {
        let spaces = Spaces::default();
        for oid in 0..100 {
            assert_eq!(spaces.add(ost(oid % 2), object(oid)), 0, "as many as there is room for");
        }
        assert_eq!((spaces.count(ost(0)), spaces.count(ost(1)), spaces.count(ost(2))), (50, 50, 0));
        spaces.set_keep(ost(1), |keep| keep.count_max = 49);
        assert_eq!((spaces.too_many(ost(0)), spaces.too_many(ost(1))), (0, 1));
        assert_eq!(spaces.next(ost(1)), Some(object(1)));
        spaces.remove(ost(1), object(1));
        assert_eq!((spaces.too_many(ost(1)), spaces.next(ost(1))), (0, Some(object(3))));
        assert_eq!(spaces.add(ost(1), object(101)), 1);
        for oid in 0..102 {
            spaces.remove(ost(oid % 2), object(oid));
        }
        assert_eq!((spaces.count(ost(1)), spaces.next(ost(1)), spaces.keep(ost(1)).count_max), (0, None, 49));
        assert_eq!(spaces.osts.lock().len(), 1, "what was set stays");
    }

    #[test]
    fn names_of_what_is_gone_do_not_fill_the_memory() {
        let spaces = Spaces::default();
        spaces.add(ost(0), object(0));
        for oid in 1..10_000 {
            spaces.add(ost(0), object(oid));
            spaces.remove(ost(0), object(oid));
        }
        assert!(spaces.osts.lock()[&ost(0)].order.len() <= 2 + GONE_MAX + 1);
    }
}
