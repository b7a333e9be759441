//! Pools that spill: once a pool is used up to a threshold, what asks for it gets OSTs of another one (Lustre's `lod_check_and_spill_pool`).
//!
//! Which pools spill is part of the stored order, as which OSTs are avoided is: a create that is replayed gives the same layout. While a
//! threshold is set, the MDT asks the OSTs of such pools for their space every few seconds; otherwise it asks nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::pool::POOLS_MAX;
use proto::wire::messages::Space;
use proto::{Code, OstIndex};
use rt::sync::Notify;

use super::allocate::Order;
use super::osts::Osts;

/// What `spill_threshold_pct` takes.
const THRESHOLD: &str = "write a number from 0 to 100; 0 ends it, and forgets the target";
/// What `spill_target` takes.
const TARGET: &str = "write the name of another pool, which must not spill back to this one; nothing ends it";

/// What was said of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    /// Where what asks for it goes; empty for nowhere.
    target: String,
    /// Once so much of its space is used, in percent; 0 for never.
    threshold_pct: u64,
}

/// Pools that spill, or may.
#[derive(Default)]
pub(super) struct Spills {
    wanted: Mutex<BTreeMap<String, Wanted>>,
    /// Those that do: from where, and to where.
    active: Mutex<BTreeMap<String, String>>,
    hits: Mutex<BTreeMap<String, u64>>,
    /// Whether somebody looks at their space.
    is_watched: Mutex<bool>,
    changed: Notify,
}

impl Spills {
    /// From where to where pools spill now.
    pub fn active(&self) -> BTreeMap<String, String> {
        self.active.lock().clone()
    }

    /// Objects of `hint` were made: each pool that they went past counts it.
    pub fn count(&self, hint: &LayoutHint, order: &Order) {
        for pool in order.spilled(hint) {
            let mut hits = self.hits.lock();
            if hits.contains_key(pool) || hits.len() < POOLS_MAX {
                *hits.entry(pool.to_owned()).or_default() += 1;
            }
        }
    }

    fn of(&self, pool: &str) -> Wanted {
        self.wanted.lock().get(pool).cloned().unwrap_or_default()
    }

    /// Says something of a pool, unless it would spill to itself.
    fn set(&self, pool: &str, change: impl FnOnce(&mut Wanted)) -> Result<(), Code> {
        let mut wanted = self.wanted.lock();
        let mut of_pool = wanted.get(pool).cloned().unwrap_or_default();
        change(&mut of_pool);
        let mut next = of_pool.target.as_str();
        for _ in 0..=wanted.len() {
            if next == pool {
                return Err(Code::Invalid);
            }
            next = wanted.get(next).map_or("", |of| of.target.as_str());
        }
        if of_pool == Wanted::default() {
            wanted.remove(pool);
        } else if wanted.contains_key(pool) || wanted.len() < POOLS_MAX {
            wanted.insert(pool.to_owned(), of_pool);
        }
        Ok(())
    }

    /// Pools that spill once they are used so much.
    fn to_watch(&self) -> BTreeMap<String, Wanted> {
        let wanted = self.wanted.lock();
        let whole = wanted.iter().filter(|(_, of)| of.threshold_pct > 0 && !of.target.is_empty());
        whole.map(|(pool, of)| (pool.clone(), of.clone())).collect()
    }
}

/// Whether so much of the space of OSTs is used, as Lustre counts it. OSTs that do not answer are not in it.
fn is_used(spaces: &[Space], threshold_pct: u64) -> bool {
    let sum = |of: fn(&Space) -> u64| spaces.iter().map(|space| u128::from(of(space))).sum::<u128>();
    let (total, available) = (sum(|space| space.bytes_total), sum(|space| space.bytes_available));
    total > 0 && total.saturating_sub(available) >= total * u128::from(threshold_pct) / 100
}

impl Osts {
    /// As Lustre has them, below `lod.*.pool.POOL`.
    pub fn spill_parameters<'a>(self: &'a Arc<Osts>, tree: &mut TargetTree<'a>) {
        let table = self.table();
        for (pool, _) in table.order.pools() {
            let name = |last: &str| format!("pool.{pool}.{last}");
            let own = || pool.to_owned();
            let (a, b, c, d, e, f) = (own(), own(), own(), own(), own(), own());
            let target = Parameter::text(name("spill_target"), move || self.choice.spills.of(&a).target);
            tree.of_layouts(
                target.settable(TARGET, move |text: &str| self.set_spill_target(&b, text.trim())),
            );
            let threshold = Parameter::gauge(name("spill_threshold_pct"), Unit::None, move || {
                self.choice.spills.of(&c).threshold_pct
            });
            tree.of_layouts(threshold.settable(THRESHOLD, move |text: &str| {
                let pct = text.trim().parse().ok().filter(|pct| *pct <= 100).ok_or(Code::Invalid)?;
                self.set_spill(&d, |of| match pct {
                    0 => *of = Wanted::default(),
                    pct => of.threshold_pct = pct,
                })
            }));
            tree.of_layouts(Parameter::gauge(name("spill_is_active"), Unit::None, move || {
                u8::from(self.choice.spills.active.lock().contains_key(&e))
            }));
            tree.of_layouts(Parameter::counter(name("spill_hit"), Unit::None, move || {
                self.choice.spills.hits.lock().get(&f).copied().unwrap_or(0)
            }));
        }
    }

    fn set_spill_target(self: &Arc<Osts>, pool: &str, target: &str) -> Result<(), Code> {
        // Of the stored order: what the MGS keeps is set before it has told which pools there are.
        if !target.is_empty() && !self.table().order.pools().any(|(pool, _)| pool == target) {
            return Err(Code::Invalid);
        }
        self.set_spill(pool, |of| of.target = target.to_owned())
    }

    fn set_spill(self: &Arc<Osts>, pool: &str, change: impl FnOnce(&mut Wanted)) -> Result<(), Code> {
        self.choice.spills.set(pool, change)?;
        if !std::mem::replace(&mut *self.choice.spills.is_watched.lock(), true) {
            let osts = self.clone();
            self.rt().spawn(async move { osts.watch_spills().await });
        }
        self.choice.spills.changed.notify_one();
        Ok(())
    }

    /// Looks at the space of pools that may spill, as long as there are any.
    async fn watch_spills(self: Arc<Osts>) {
        loop {
            let wanted = self.choice.spills.to_watch();
            let Some(active) = self.stop().unless(self.full_of(&wanted)).await else { return };
            let before = std::mem::replace(&mut *self.choice.spills.active.lock(), active.clone());
            if before != active {
                tracing::info!(?active, "pools spill from here to there");
                if let Some(Err(error)) = self.stop().unless(self.reorder()).await {
                    tracing::error!(%error, "where new files of full pools lie");
                }
            }
            {
                let mut is_watched = self.choice.spills.is_watched.lock();
                if active.is_empty() && self.choice.spills.to_watch().is_empty() {
                    *is_watched = false;
                    return;
                }
            }
            let pause = self.rt().timeout(self.choice.qos.maxage(), self.choice.spills.changed.notified());
            if self.stop().unless(pause).await.is_none() {
                return;
            }
        }
    }

    /// Those of `wanted` that are used as much as they may be, and where they spill to.
    async fn full_of(&self, wanted: &BTreeMap<String, Wanted>) -> BTreeMap<String, String> {
        let mut full = BTreeMap::new();
        for (pool, of) in wanted {
            let table = self.table();
            let members: Vec<OstIndex> = table.pool(pool).into_iter().flatten().copied().collect();
            let spaces: Vec<Space> = self.spaces_of(&members).await.into_values().collect();
            if is_used(&spaces, of.threshold_pct) {
                full.insert(pool.clone(), of.target.clone());
            }
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(target: &str) -> impl FnOnce(&mut Wanted) {
        move |of| of.target = target.to_owned()
    }

    #[test]
    fn a_pool_spills_to_another_one_and_never_back() {
        let spills = Spills::default();
        assert_eq!(spills.set("a", to("a")), Err(Code::Invalid));
        assert_eq!((spills.set("a", to("b")), spills.set("b", to("c"))), (Ok(()), Ok(())));
        assert_eq!(spills.set("c", to("a")), Err(Code::Invalid));
        assert!(spills.to_watch().is_empty(), "no threshold");
        spills.set("b", |of| of.threshold_pct = 80).expect("it is no loop");
        assert_eq!(spills.to_watch().keys().collect::<Vec<_>>(), ["b"]);
        spills.set("b", |of| *of = Wanted::default()).expect("it is no loop");
        assert_eq!((spills.set("c", to("a")), spills.of("b")), (Ok(()), Wanted::default()));
    }

    #[test]
    fn a_pool_is_full_when_so_much_is_used() {
        let space = |bytes_total, bytes_available| Space {
            bytes_total,
            bytes_free: bytes_available,
            bytes_available,
            files_total: 0,
            files_free: 0,
            state: 0,
            disk: 0,
            bytes_own: 0,
        };
        assert!(
            !is_used(&[space(100, 21), space(100, 20)], 80) && is_used(&[space(100, 20), space(100, 20)], 80)
        );
        assert!(!is_used(&[], 1), "nobody knows");
    }
}
