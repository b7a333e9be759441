//! The pools of the file system, a part of the table. Keys: `docs/disk.md#mgs`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto::pool::POOLS_MAX;
use proto::wire::messages::{ChangePool, PoolEntry, PoolsTold, ReadPools};
use proto::wire::{DecodeError, Reader, Wire};
use proto::{Code, OstIndex, Pools};
use service::keys;
use store::{Change, Store, StoreError};

use super::table::{damaged, scan};

/// `[MGS + 6][name]`: a pool.
const POOL: u8 = keys::MGS + 6;

/// Every pool.
#[derive(Debug, Default)]
pub struct PoolTable {
    /// What others see.
    seen: Pools,
    /// With which version each of these came.
    versions: BTreeMap<String, u64>,
    /// The same by version.
    order: BTreeMap<u64, String>,
    /// Version of the newest change that others see, of pools that have ended, too.
    version: u64,
    /// Changes that are not durable yet, by the version that they make.
    pending: BTreeMap<u64, NewPool>,
    /// What there is with these.
    current: Pools,
}

/// A pool as it is from some version on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPool {
    name: String,
    /// `None`: it has ended.
    osts: Option<BTreeSet<OstIndex>>,
}

impl NewPool {
    fn entry(&self) -> Option<PoolEntry> {
        let osts = self.osts.as_ref()?.iter().copied().collect();
        Some(PoolEntry { name: self.name.clone(), osts })
    }

    /// What makes it durable as the change of `version`.
    pub fn change(&self, version: u64) -> Change {
        let value = self.entry().map(|entry| {
            let mut value = Vec::new();
            entry.put(&mut value);
            version.put(&mut value);
            value.into()
        });
        Change { key: key(&self.name), value }
    }
}

fn key(name: &str) -> Bytes {
    [&[POOL], name.as_bytes()].concat().into()
}

fn stored(value: Bytes) -> Result<(PoolEntry, u64), DecodeError> {
    let mut from = Reader::new(value);
    Ok((from.take()?, from.take()?))
}

impl PoolTable {
    /// Reads the pools of a configuration of `version`. Whoever has an older one may not know that some have ended.
    pub fn load(store: &Store, version: u64) -> Result<PoolTable, StoreError> {
        let mut table = PoolTable { version, ..PoolTable::default() };
        scan(store, POOL, |at, value| {
            let (entry, of) = stored(value).map_err(|_| damaged("a pool of the configuration"))?;
            if of > version || *at != key(&entry.name) || table.seen.len() >= POOLS_MAX {
                return Err(damaged("a pool does not belong to the configuration"));
            }
            table.order.insert(of, entry.name.clone());
            table.versions.insert(entry.name.clone(), of);
            table.seen.insert(entry);
            Ok(())
        })?;
        table.current = table.seen.clone();
        Ok(table)
    }

    /// What `change` makes of its pool; `None` if that is so already.
    pub fn admit(
        &self,
        change: &ChangePool,
        is_known: impl Fn(OstIndex) -> bool,
    ) -> Result<Option<NewPool>, Code> {
        let osts = self.current.changed(change, is_known)?;
        let is_new = self.current.get(&change.name) != osts.as_ref();
        Ok(is_new.then(|| NewPool { name: change.name.clone(), osts }))
    }

    /// Takes over what was committed.
    pub fn put(&mut self, new: NewPool, version: u64) {
        tell(&mut self.current, &new);
        self.pending.insert(version, new);
    }

    /// Everything up to `version` is durable; says whether others see something new now.
    pub fn publish(&mut self, version: u64) -> bool {
        let later = self.pending.split_off(&(version + 1));
        let durable = std::mem::replace(&mut self.pending, later);
        let changed = !durable.is_empty();
        for (version, new) in durable {
            tell(&mut self.seen, &new);
            if let Some(before) = self.versions.remove(&new.name) {
                self.order.remove(&before);
            }
            if new.osts.is_some() {
                self.order.insert(version, new.name.clone());
                self.versions.insert(new.name, version);
            }
            self.version = version;
        }
        changed
    }

    /// The names of those that have `ost`.
    pub fn of(&self, ost: OstIndex) -> Vec<String> {
        self.current.iter().filter(|(_, osts)| osts.contains(&ost)).map(|(name, _)| name.to_owned()).collect()
    }

    /// Those that changed behind `known`, in the order in which they did, with the version of each.
    pub fn behind(&self, known: u64) -> impl Iterator<Item = (u64, PoolEntry)> {
        let changed = self.order.range(known.saturating_add(1)..);
        changed.filter_map(|(version, name)| Some((*version, self.seen.entry(name)?)))
    }

    /// The names of all of them, if there is something new behind `known`.
    pub fn names_behind(&self, known: u64) -> Option<Vec<String>> {
        (self.version > known).then(|| self.names())
    }

    /// The names of all of them.
    pub fn names(&self) -> Vec<String> {
        self.seen.names().map(str::to_owned).collect()
    }

    /// What is asked of them.
    pub fn read(&self, asked: &ReadPools, is_known: impl Fn(OstIndex) -> bool) -> PoolsTold {
        let members = self.seen.get(&asked.name);
        PoolsTold {
            names: self.names(),
            osts: members.into_iter().flatten().copied().collect(),
            unknown: asked.osts.iter().copied().filter(|ost| !is_known(*ost)).collect(),
        }
    }
}

fn tell(pools: &mut Pools, new: &NewPool) {
    match new.entry() {
        Some(entry) => pools.insert(entry),
        None => pools.remove(&new.name),
    }
}
