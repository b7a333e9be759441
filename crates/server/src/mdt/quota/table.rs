//! What owners may have, as it is known in memory: limits, times of grace, and until when owners may be above their soft limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::wire::messages::{QUOTA_DEFAULT_ID, QuotaUse};
use rt::Time;
use service::keys::behind;
use store::{Store, StoreError};

use super::SPACE;
use super::kept::{self, Kept};
use super::limit::Limit;
use crate::mdt::keys;

/// How long an owner may be above its soft limit unless somebody says otherwise, in seconds: a week, as in Lustre (`MAX_IQ_TIME`).
const GRACE_DEFAULT_S: u64 = 7 * 24 * 3600;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;

/// The OSTs whose space is meant, by the name of their pool; `None`: all targets.
pub type Pool = Option<Arc<str>>;

/// What a limit is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The kind of its owner, with [`SPACE`] if it is about that; a pool has limits of space alone.
    pub kind: u8,
    pub pool: Pool,
    /// The owner's number.
    pub id: u32,
}

impl Slot {
    /// Of inodes.
    pub fn inodes((kind, id): (u8, u32)) -> Slot {
        Slot { kind, pool: None, id }
    }

    /// Of space.
    pub fn space((kind, id): (u8, u32), pool: &Pool) -> Slot {
        Slot { kind: kind | SPACE, pool: pool.clone(), id }
    }

    /// What holds for all of whom nothing was said.
    fn of_all(&self) -> Slot {
        Slot { id: QUOTA_DEFAULT_ID, ..self.clone() }
    }
}

/// Limits.
#[derive(Default)]
pub struct Table {
    /// How long owners of each kind may be above their soft limits, in seconds, if that is not the default.
    graces: BTreeMap<(u8, Pool), u64>,
    /// What was said of an owner, if that is that it has none; with [`QUOTA_DEFAULT_ID`] what holds for those of whom nothing was said.
    limits: BTreeMap<Slot, Limit>,
    /// Until when those that are above their soft limits may be.
    deadlines: BTreeMap<Slot, u64>,
    /// Pools of which anything is limited.
    pools: BTreeSet<Arc<str>>,
    /// Until when clients have been told that an owner without limits has none.
    pub free_until: Time,
}

impl Table {
    /// The one in a store.
    pub fn load(store: &Store) -> Result<Table, StoreError> {
        let mut table = Table::default();
        for prefix in [keys::QUOTA, keys::QUOTA_POOL] {
            let (mut from, until) = (vec![prefix], behind(&[prefix]));
            loop {
                let page = store.scan(&from, &until, SCAN_COUNT)?;
                let Some((last, _)) = page.last() else { break };
                from = [last, &[0][..]].concat();
                for (key, value) in &page {
                    let kept = kept::read(key, &value.bytes);
                    table.take(kept.ok_or_else(|| StoreError::Corrupt { what: "a quota".into() })?);
                }
            }
        }
        table.count_pools();
        Ok(table)
    }

    fn take(&mut self, kept: Kept) {
        match kept {
            Kept::Grace(kind, pool, grace_s) => drop(self.graces.insert((kind, pool), grace_s)),
            Kept::Limit(slot, limit) => drop(self.limits.insert(slot, limit)),
            Kept::Deadline(slot, deadline_s) => drop(self.deadlines.insert(slot, deadline_s)),
        }
    }

    /// Looks which pools have limits.
    fn count_pools(&mut self) {
        let limited = self.limits.iter().filter(|(_, limit)| !limit.is_none());
        self.pools = limited.filter_map(|(slot, _)| slot.pool.clone()).collect();
    }

    /// Whether anything but the space of pools is limited.
    pub fn is_used(&self) -> bool {
        self.limits.iter().any(|(slot, limit)| slot.pool.is_none() && !limit.is_none())
    }

    /// How long owners of a kind may be above their soft limits, in seconds.
    pub fn grace_s(&self, kind: u8, pool: &Pool) -> u64 {
        self.graces.get(&(kind, pool.clone())).copied().unwrap_or(GRACE_DEFAULT_S)
    }

    pub fn set_grace(&mut self, kind: u8, pool: &Pool, grace_s: u64) {
        self.graces.insert((kind, pool.clone()), grace_s);
    }

    /// Number of owners of whom something was said.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether something was said of an owner.
    pub fn says(&self, slot: &Slot) -> bool {
        self.limits.contains_key(slot)
    }

    /// What an owner may have, and whether nothing was said of it alone. Root's user and group, and files without a project, have no limits
    /// that nobody gave them.
    pub fn effective(&self, slot: &Slot) -> (Limit, bool) {
        let own = self.limits.get(slot);
        let default = || self.limits.get(&slot.of_all()).filter(|limit| slot.id != 0 && !limit.is_none());
        let (limit, is_default) = match own.or_else(default) {
            Some(limit) => (*limit, own.is_none()),
            None => (Limit::default(), false),
        };
        let deadline_s = self.deadlines.get(slot).copied().unwrap_or(0);
        (Limit { deadline_s, ..limit }, is_default)
    }

    /// The limits of an owner, if it has any.
    pub fn limit(&self, slot: &Slot) -> Option<Limit> {
        Some(self.effective(slot).0).filter(|limit| !limit.is_none())
    }

    /// The pools in which one of `owners` is limited.
    pub fn pools_of(&self, owners: &[(u8, u32)]) -> Vec<Arc<str>> {
        let is_limited = |pool: &&Arc<str>| {
            let pool = Some(Arc::clone(pool));
            owners.iter().any(|owner| self.limit(&Slot::space(*owner, &pool)).is_some())
        };
        self.pools.iter().filter(is_limited).cloned().collect()
    }

    /// What is said of an owner from now on: its limits, or nothing.
    pub fn set_limit(&mut self, slot: Slot, limit: Option<Limit>) {
        self.set_deadline(slot.clone(), limit.map_or(0, |limit| limit.deadline_s));
        let is_of_pool = slot.pool.is_some();
        match limit {
            None => self.limits.remove(&slot),
            Some(limit) => self.limits.insert(slot, Limit { deadline_s: 0, ..limit }),
        };
        if is_of_pool {
            self.count_pools();
        }
    }

    /// An owner is above its soft limit, and may be until then; or is not any more.
    pub fn set_deadline(&mut self, slot: Slot, deadline_s: u64) {
        match deadline_s {
            0 => drop(self.deadlines.remove(&slot)),
            _ => drop(self.deadlines.insert(slot, deadline_s)),
        }
    }

    /// How an owner that has `used` stands to its limits.
    pub fn state(&self, slot: &Slot, used: u64, now_s: u64) -> QuotaUse {
        let (limit, is_default) = self.effective(slot);
        let deadline_s = limit.deadline(used);
        QuotaUse {
            used,
            soft: limit.soft,
            hard: limit.hard,
            deadline_s,
            left_s: deadline_s.saturating_sub(now_s),
            grace_s: self.grace_s(slot.kind, &slot.pool),
            is_default,
        }
    }

    /// Whether something is said where `kept` said something.
    pub fn has(&self, kept: &Kept) -> bool {
        match kept {
            Kept::Grace(kind, pool, _) => self.graces.contains_key(&(*kind, pool.clone())),
            Kept::Limit(slot, _) => self.limits.contains_key(slot),
            Kept::Deadline(slot, _) => self.deadlines.contains_key(slot),
        }
    }

    /// Forgets pools that are no more; says what was said of them.
    pub fn forget_pools(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<Kept> {
        let is_gone = |pool: &Pool| pool.as_ref().is_some_and(|pool| !is_there(pool));
        let mut gone = Vec::new();
        self.graces.retain(|(kind, pool), grace_s| {
            let goes = is_gone(pool);
            gone.extend(goes.then(|| Kept::Grace(*kind, pool.clone(), *grace_s)));
            !goes
        });
        self.limits.retain(|slot, limit| {
            let goes = is_gone(&slot.pool);
            gone.extend(goes.then(|| Kept::Limit(slot.clone(), *limit)));
            !goes
        });
        self.deadlines.retain(|slot, deadline_s| {
            let goes = is_gone(&slot.pool);
            gone.extend(goes.then(|| Kept::Deadline(slot.clone(), *deadline_s)));
            !goes
        });
        self.count_pools();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::messages::{QUOTA_GROUP, QUOTA_USER};

    const BOB: (u8, u32) = (QUOTA_USER, 1000);

    fn flash() -> Pool {
        Some("flash".into())
    }

    fn hard(hard: u64) -> Option<Limit> {
        Some(Limit { hard, ..Limit::default() })
    }

    #[test]
    fn a_pool_has_limits_of_its_own() {
        let mut table = Table::default();
        table.set_limit(Slot::space(BOB, &flash()), hard(10));
        table.set_limit(Slot::space(BOB, &None), hard(20));
        let of = |pool: &Pool| table.limit(&Slot::space(BOB, pool)).map(|limit| limit.hard);
        assert_eq!((of(&flash()), of(&None), of(&Some("disk".into()))), (Some(10), Some(20), None));
        assert_eq!(table.pools_of(&[BOB, (QUOTA_GROUP, 1000)]), ["flash".into()]);
        assert_eq!(table.pools_of(&[(QUOTA_GROUP, 1000)]), []);
        assert!(table.is_used());
        table.set_limit(Slot::space(BOB, &None), None);
        assert!(!table.is_used(), "inodes of nobody are limited");
        table.set_limit(Slot::space(BOB, &flash()), hard(0));
        assert_eq!(table.pools_of(&[BOB]), []);
    }

    #[test]
    fn who_has_no_limit_of_a_pool_has_that_of_all() {
        let mut table = Table::default();
        table.set_limit(Slot::space((QUOTA_USER, QUOTA_DEFAULT_ID), &flash()), hard(10));
        let of = |table: &Table, id| table.effective(&Slot::space((QUOTA_USER, id), &flash()));
        assert_eq!(of(&table, 1000), (hard(10).unwrap_or_default(), true));
        assert_eq!(of(&table, 0), (Limit::default(), false), "root has none");
        assert_eq!(table.pools_of(&[BOB]), ["flash".into()]);
        table.set_limit(Slot::space(BOB, &flash()), hard(0));
        assert_eq!(of(&table, 1000), (Limit::default(), false));
        assert_eq!(table.pools_of(&[BOB]), []);
    }

    #[test]
    fn what_was_said_of_a_pool_that_is_gone_is_forgotten() {
        let mut table = Table::default();
        let disk: Pool = Some("disk".into());
        table.set_limit(Slot::space(BOB, &flash()), Some(Limit { soft: 5, hard: 10, deadline_s: 77 }));
        table.set_limit(Slot::space(BOB, &disk), hard(10));
        table.set_limit(Slot::space(BOB, &None), hard(10));
        table.set_grace(SPACE, &flash(), 60);
        let slot = Slot::space(BOB, &flash());
        let gone = table.forget_pools(|pool| pool == "disk");
        let limit = Limit { soft: 5, hard: 10, deadline_s: 0 };
        assert_eq!(
            gone,
            [Kept::Grace(SPACE, flash(), 60), Kept::Limit(slot.clone(), limit), Kept::Deadline(slot, 77)]
        );
        assert_eq!(table.pools_of(&[BOB]), ["disk".into()]);
        assert_eq!(table.len(), 2);
        assert_eq!(table.grace_s(SPACE, &flash()), GRACE_DEFAULT_S);
        assert_eq!(table.forget_pools(|pool| pool == "disk"), []);
    }
}
