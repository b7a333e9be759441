//! The configuration of a file system, as whoever follows it keeps it.
//!
//! It comes in pages, in the order in which targets changed last: a reader names the version that it has, and is told what
//! changed behind that, at most as much as a message carries, and up to which version that brings it. So a reader has
//! everything as soon as it has the newest version, whatever changes while it reads: what does is told again, at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::wire::messages::{Config, GetConfig, TargetEntry, TargetOwner};
use crate::{Pools, Settings, TargetId};

/// A reader's copy of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigCopy {
    fsname: String,
    version: u64,
    newest: u64,
    targets: BTreeMap<TargetId, TargetEntry>,
    owners: BTreeMap<TargetId, TargetOwner>,
    degraded: BTreeSet<TargetId>,
    pools: Pools,
    settings: Settings,
    /// Those that are no part of the file system any more; whether they were when this copy was made.
    removed: BTreeMap<TargetId, bool>,
}

impl ConfigCopy {
    /// That of somebody who has heard nothing of `fsname` yet.
    pub fn new(fsname: impl Into<String>) -> ConfigCopy {
        ConfigCopy {
            fsname: fsname.into(),
            version: 0,
            newest: 0,
            targets: BTreeMap::new(),
            owners: BTreeMap::new(),
            degraded: BTreeSet::new(),
            pools: Pools::default(),
            settings: Settings::default(),
            removed: BTreeMap::new(),
        }
    }

    /// What to ask the MGS next. The answer comes at once if there is more than this; else it may wait `wait_ms`
    /// milliseconds for news.
    pub fn question(&self, wait_ms: u32) -> GetConfig {
        let wait_ms = if self.is_whole() { wait_ms } else { 0 };
        let (fsname, known) = (self.fsname.clone(), self.version);
        GetConfig { fsname, known, wait_ms, pages: true, settings_only: false }
    }

    /// Takes the answer over; false if it is older than what is known, and was ignored.
    pub fn take(&mut self, page: Config) -> bool {
        if page.version < self.version {
            return false;
        }
        // An MGS that knows no pages tells everything.
        if page.newest == 0 {
            *self = ConfigCopy::new(std::mem::take(&mut self.fsname));
        }
        (self.version, self.newest) = (page.version, page.newest.max(page.version));
        for entry in page.targets {
            self.degraded.remove(&entry.target);
            self.owners.remove(&entry.target);
            self.removed.remove(&entry.target);
            self.targets.insert(entry.target, entry);
        }
        self.owners.extend(page.owners.into_iter().map(|owner| (owner.target, owner)));
        self.degraded.extend(page.degraded);
        for target in page.removed {
            let was_there = self.targets.remove(&target).is_some();
            self.removed.entry(target).and_modify(|seen| *seen |= was_there).or_insert(was_there);
            self.owners.remove(&target);
            self.degraded.remove(&target);
        }
        if let Some(names) = page.pool_names {
            self.pools.keep(&names);
        }
        page.pools.into_iter().for_each(|pool| self.pools.insert(pool));
        if let Some(settings) = page.settings {
            self.settings = Settings::new(settings);
        }
        true
    }

    /// Whether there is nothing more to be told but for what changes from now on.
    pub fn is_whole(&self) -> bool {
        self.version >= self.newest
    }

    /// Name of the file system.
    pub fn fsname(&self) -> &str {
        &self.fsname
    }

    /// Version that this is of; 0 for none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The target with this id.
    pub fn target(&self, id: TargetId) -> Option<&TargetEntry> {
        self.targets.get(&id)
    }

    /// Every target, by kind and index.
    pub fn targets(&self) -> impl DoubleEndedIterator<Item = &TargetEntry> + Clone {
        self.targets.values()
    }

    /// Those behind `id`, or all.
    pub fn targets_behind(&self, id: Option<TargetId>) -> impl Iterator<Item = &TargetEntry> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.targets.range((from, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// Who owns a target that several servers may serve.
    pub fn owner(&self, id: TargetId) -> Option<&TargetOwner> {
        self.owners.get(&id)
    }

    /// Everybody who owns such a target.
    pub fn owners(&self) -> impl Iterator<Item = &TargetOwner> {
        self.owners.values()
    }

    /// The targets that new files keep away from, in order.
    pub fn degraded(&self) -> impl Iterator<Item = TargetId> {
        self.degraded.iter().copied()
    }

    /// Whether a target was taken out of the file system.
    pub fn is_removed(&self, id: TargetId) -> bool {
        self.removed.contains_key(&id)
    }

    /// Every target that was, in order.
    pub fn removed(&self) -> impl Iterator<Item = TargetId> {
        self.removed.keys().copied()
    }

    /// Those of them that this copy had before, in order.
    pub fn removed_since(&self) -> impl Iterator<Item = TargetId> {
        self.removed.iter().filter(|(_, was_there)| **was_there).map(|(id, _)| *id)
    }

    /// The pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The parameters that the MGS keeps.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::{PoolEntry, Setting};
    use crate::{ClientId, OstIndex};

    fn entry(index: u32, server: &str) -> TargetEntry {
        let target = TargetId::ost(index);
        let uuid = ClientId(u128::from(index));
        TargetEntry { target, uuid, nids: Vec::new(), server: server.into(), replaces: false }
    }

    fn page(version: u64, newest: u64, targets: &[(u32, &str)]) -> Config {
        let targets = targets.iter().map(|(index, server)| entry(*index, server)).collect();
        Config { version, targets, newest, ..Config::empty("w") }
    }

    fn servers(copy: &ConfigCopy) -> Vec<(u32, &str)> {
        copy.targets().map(|entry| (entry.target.index, entry.server.as_str())).collect()
    }

    #[test]
    fn pages_add_up_and_what_changes_meanwhile_comes_again() {
        let mut copy = ConfigCopy::new("w");
        assert!(copy.is_whole() && copy.question(9).wait_ms == 9, "nothing is known of anything");
        let owner = TargetOwner { target: TargetId::ost(1), server: "b".into(), epoch: 7 };
        let first = Config {
            degraded: vec![TargetId::ost(1)],
            owners: vec![owner.clone()],
            ..page(2, 4, &[(7, "a"), (1, "b")])
        };
        assert!(copy.take(first));
        assert_eq!((copy.is_whole(), copy.owner(TargetId::ost(1))), (false, Some(&owner)));
        let next = copy.question(9);
        assert_eq!((next.known, next.wait_ms, next.pages), (2, 0, true));
        assert!(copy.take(page(5, 5, &[(3, "c"), (7, "d")])));
        assert_eq!(servers(&copy), [(1, "b"), (3, "c"), (7, "d")]);
        assert_eq!(copy.degraded().collect::<Vec<_>>(), [TargetId::ost(1)]);
        assert!(copy.is_whole() && copy.question(9).wait_ms == 9);
        assert!(copy.take(page(6, 6, &[(1, "e")])));
        assert_eq!(
            (copy.degraded().count(), copy.owners().count()),
            (0, 0),
            "an entry ends what was said before"
        );
        let before = copy.clone();
        assert!(!copy.take(page(5, 5, &[(1, "b")])) && copy == before, "an answer that is late");
    }

    #[test]
    fn pools_are_told_when_they_change() {
        let mut copy = ConfigCopy::new("w");
        let pool = |name: &str, osts: &[u32]| PoolEntry {
            name: name.into(),
            osts: osts.iter().copied().map(OstIndex).collect(),
        };
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let told = |copy: &ConfigCopy| {
            copy.pools().iter().map(|(name, osts)| (name.to_owned(), osts.len())).collect::<Vec<_>>()
        };
        // The second one is told by the next page.
        let first = Config {
            pools: vec![pool("a", &[1])],
            pool_names: names(&["a", "b"]),
            ..page(2, 4, &[(1, "a")])
        };
        assert!(copy.take(first));
        assert_eq!(told(&copy), [("a".to_owned(), 1)]);
        assert!(copy.take(Config {
            pools: vec![pool("b", &[])],
            pool_names: names(&["a", "b"]),
            ..page(4, 4, &[])
        }));
        assert!(copy.take(page(5, 5, &[(2, "a")])));
        assert_eq!(told(&copy), [("a".to_owned(), 1), ("b".to_owned(), 0)], "nothing was said of them");
        assert!(copy.take(Config { pool_names: names(&["b"]), ..page(6, 6, &[]) }));
        assert_eq!(told(&copy), [("b".to_owned(), 0)]);
        let again =
            Config { pools: vec![pool("a", &[7, 8])], pool_names: names(&["a", "b"]), ..page(8, 8, &[]) };
        assert!(copy.take(again));
        assert_eq!(told(&copy), [("a".to_owned(), 2), ("b".to_owned(), 0)]);
    }

    #[test]
    fn settings_are_told_when_one_changes() {
        let mut copy = ConfigCopy::new("w");
        let setting = |name: &str, version| Setting { name: name.into(), value: "1".into(), version };
        let told = |copy: &ConfigCopy| copy.settings().text();
        let first = Config { settings: Some(vec![setting("a", 2), setting("b", 4)]), ..page(2, 4, &[]) };
        assert!(copy.take(first));
        assert_eq!(told(&copy), "a=1\nb=1");
        assert!(copy.take(page(4, 4, &[(1, "a")])));
        assert_eq!(told(&copy), "a=1\nb=1", "nothing was said of them");
        assert!(copy.take(Config { settings: Some(vec![setting("b", 4)]), ..page(5, 5, &[]) }));
        assert_eq!(told(&copy), "b=1");
        assert!(copy.take(Config { settings: Some(Vec::new()), ..page(6, 6, &[]) }));
        assert_eq!(told(&copy), "");
    }

    #[test]
    fn who_was_there_is_remembered_when_it_is_taken_out() {
        let mut copy = ConfigCopy::new("w");
        assert!(copy.take(page(2, 2, &[(7, "a"), (1, "b")])));
        let removed = vec![TargetId::ost(7), TargetId::ost(9)];
        assert!(copy.take(Config { removed, ..page(4, 4, &[]) }));
        assert_eq!(servers(&copy), [(1, "b")]);
        let since = |copy: &ConfigCopy| copy.removed_since().map(|id| id.index).collect::<Vec<_>>();
        assert_eq!((since(&copy), copy.removed().count()), (vec![7], 2));
        assert!(copy.is_removed(TargetId::ost(9)) && !copy.is_removed(TargetId::ost(1)));
        assert!(copy.take(page(5, 5, &[(7, "c")])));
        assert_eq!((servers(&copy), since(&copy)), (vec![(1, "b"), (7, "c")], vec![]));
    }

    #[test]
    fn who_knows_no_pages_tells_everything() {
        let mut copy = ConfigCopy::new("w");
        assert!(copy.take(page(2, 4, &[(7, "a"), (1, "b")])));
        assert!(copy.take(page(9, 0, &[(8, "c")])));
        assert_eq!((servers(&copy), copy.version(), copy.is_whole()), (vec![(8, "c")], 9, true));
        assert_eq!((copy.fsname(), copy.target(TargetId::ost(7))), ("w", None));
        assert_eq!(copy.targets_behind(Some(TargetId::ost(7))).count(), 1);
        assert_eq!(copy.targets_behind(Some(TargetId::ost(8))).count(), 0);
    }
}
