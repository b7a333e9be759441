//! One state of the configuration: the OSTs and pools that there are, and what new files make of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::pool::POOLS_MAX;
use proto::{Code, Fid, Layout, Nid, OstIndex, Pools};

use crate::mdt::allocate::{self, Order};
use crate::mdt::place;
use crate::mdt::spill::Spills;

/// One state of the configuration.
#[derive(Default)]
pub struct Table {
    /// In which order stripes take them.
    pub order: Order,
    /// Where they are reached.
    pub(super) nids: Arc<BTreeMap<OstIndex, Vec<Nid>>>,
    /// Who serves them.
    pub(super) servers: Arc<BTreeMap<OstIndex, String>>,
    /// Those that were taken out of the file system.
    pub(super) removed: Arc<BTreeSet<OstIndex>>,
    /// Those that an operator has new files keep away from.
    pub(super) degraded: Vec<OstIndex>,
    /// The pools.
    pub(super) pools: Arc<Pools>,
    /// Pools of which the log says already that they cannot give what they are asked for.
    pub(super) told: Mutex<BTreeSet<String>>,
    /// Pools that spill, or may.
    pub(super) spills: Arc<Spills>,
    /// The MGS has told it: before, nobody knows which OSTs and pools there are.
    pub is_told: bool,
}

impl Table {
    /// Every OST.
    pub fn osts(&self) -> impl Iterator<Item = OstIndex> {
        self.nids.keys().copied()
    }

    /// The members of a pool; `None` if there is no such pool.
    pub fn pool(&self, name: &str) -> Option<&BTreeSet<OstIndex>> {
        self.pools.get(name)
    }

    /// Whether `other` has the same pools.
    pub fn has_pools_of(&self, other: &Table) -> bool {
        self.pools == other.pools
    }

    /// A layout with the name `id` after `hint`. A pool that has been destroyed is asked for by defaults of before.
    pub fn allocate(&self, id: Fid, hint: &LayoutHint) -> Result<Layout, Code> {
        if let Some(pool) = self.order.lost_pool(hint).filter(|pool| self.is_news(pool)) {
            tracing::warn!(pool, "the pool of a default layout was destroyed: new files get OSTs of all");
        }
        let made = allocate::allocate(id, hint, &self.order);
        self.look(&made, hint);
        if let Ok(layout) = &made {
            self.count(hint, layout);
        }
        made
    }

    /// Whether all of a file is where it was. Lost if an OST was replaced since, Removed if one was taken out: then the objects that are left
    /// do not say any more how large the file is, so nobody may change what is known of that.
    pub fn check_whole(&self, layout: &Layout) -> Result<(), Code> {
        if self.order.replaced().is_empty() && self.removed.is_empty() {
            return Ok(());
        }
        layout.places().try_for_each(|place| match place.target.ost() {
            Some(ost) if self.removed.contains(&ost) => Err(Code::Removed),
            Some(ost) => match self.order.replaced().get(&ost) {
                Some(replaced) if place.object.layout.seq < replaced.first => Err(Code::Lost),
                _ => Ok(()),
            },
            None => Ok(()),
        })
    }

    /// See [`place::place`]. The OSTs `lacking` have no room for what is asked for.
    pub fn place(
        &self,
        layout: &Layout,
        range: (u64, u64),
        lacking: &[OstIndex],
        fresh: impl FnMut() -> Result<Fid, Code>,
    ) -> Result<Option<Layout>, Code> {
        let made = match lacking {
            [] => place::place(layout, range, &self.order, fresh),
            lacking => place::place(layout, range, &self.order.without_room(lacking), fresh),
        };
        for wanted in layout.components.iter().filter_map(|component| component.wanted.as_deref()) {
            self.look(&made, wanted);
        }
        if let Ok(Some(made)) = &made {
            let is_new = |id: &Fid| layout.ids().all(|known| known != *id);
            let placed = made.components.iter().filter(|of| of.is_placed() && is_new(&of.id));
            let wanted = placed.filter_map(|of| layout.touched(of.start, 1).next()?.wanted.as_deref());
            wanted.for_each(|wanted| self.spills.count(wanted, &self.order));
        }
        made
    }

    /// Counts what went past a full pool: of several components the first one that has objects.
    fn count(&self, hint: &LayoutHint, layout: &Layout) {
        if hint.parts.is_empty() {
            return self.spills.count(hint, &self.order);
        }
        let parts = hint.parts.iter().zip(&layout.components).filter(|(_, of)| of.osts().next().is_some());
        parts.for_each(|(part, _)| self.spills.count(&part.hint(), &self.order));
    }

    /// A pool without OSTs is told of in the log.
    fn look<T>(&self, made: &Result<T, Code>, hint: &LayoutHint) {
        let empty = self.order.empty_pool(hint).filter(|_| matches!(made, Err(Code::NoSpace)));
        if let Some(pool) = empty.filter(|pool| self.is_news(pool)) {
            tracing::warn!(
                pool,
                "the pool has no OST: files that ask for it cannot be made; see lctl pool_add"
            );
        }
    }

    /// Whether the log does not say it yet. It says it once for each state of the configuration.
    fn is_news(&self, pool: &str) -> bool {
        let mut told = self.told.lock();
        told.len() < POOLS_MAX && told.insert(pool.to_owned())
    }
}
