//! Pools: named sets of OSTs, as a file system's MGS keeps them and others know them. What a change makes of them is decided
//! here; nothing here is durable.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::messages::{ChangePool, POOL_ADD, POOL_DESTROY, POOL_NEW, POOL_REMOVE, PoolEntry};
use crate::{Code, OstIndex};

/// Longest name of a pool, in bytes (Lustre's LOV_MAXPOOLNAME).
pub const POOL_NAME_BYTES_MAX: usize = 15;
/// Most pools of one file system.
pub const POOLS_MAX: usize = 256;
/// Most members of all pools of a file system together; an OST counts in each pool that has it.
pub const POOL_MEMBERS_MAX: usize = 65_536;
/// What stands for no pool where a directory above has one.
pub const POOL_IGNORE: &str = "ignore";
/// Names that mean something else in a layout: no pool can have them.
const RESERVED: [&str; 3] = ["none", "inherit", POOL_IGNORE];

/// Whether a pool may be called `name`.
pub fn is_pool_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=POOL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine) && !RESERVED.contains(&name)
}

/// The pools of a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    pools: BTreeMap<String, BTreeSet<OstIndex>>,
}

impl Pools {
    /// The members of a pool; `None` if there is no such pool.
    pub fn get(&self, name: &str) -> Option<&BTreeSet<OstIndex>> {
        self.pools.get(name)
    }

    /// Every pool, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeSet<OstIndex>)> {
        self.pools.iter().map(|(name, osts)| (name.as_str(), osts))
    }

    /// The names of all pools, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// Number of pools.
    pub fn len(&self) -> usize {
        self.pools.len()
    }

    /// Whether there is no pool.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Takes a pool over as it is told.
    pub fn insert(&mut self, entry: PoolEntry) {
        self.pools.insert(entry.name, entry.osts.into_iter().collect());
    }

    /// Takes a pool away.
    pub fn remove(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// Keeps those that are named.
    pub fn keep(&mut self, names: &[String]) {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.pools.retain(|name, _| names.contains(name.as_str()));
    }

    /// A pool as it is told.
    pub fn entry(&self, name: &str) -> Option<PoolEntry> {
        let osts = self.pools.get(name)?;
        Some(PoolEntry { name: name.to_owned(), osts: osts.iter().copied().collect() })
    }

    /// What `change` makes of its pool: its members, or `None` if it ends. An OST that is a member already may be added, and
    /// one that is none may be removed.
    ///
    /// # Errors
    /// `NotFound`: no such pool. `Exists`: there is one of that name. `NotEmpty`: it has members. `Invalid`: no name of a pool, or an OST
    /// that the file system does not have. `TooBig`: there are too many pools, or members.
    pub fn changed(
        &self,
        change: &ChangePool,
        is_known: impl Fn(OstIndex) -> bool,
    ) -> Result<Option<BTreeSet<OstIndex>>, Code> {
        if !is_pool_name(&change.name) {
            return Err(Code::Invalid);
        }
        if change.change == POOL_NEW {
            return self.made(&change.name);
        }
        let members = self.pools.get(&change.name).ok_or(Code::NotFound)?;
        match change.change {
            POOL_ADD => {
                if !change.osts.iter().all(|ost| is_known(*ost)) {
                    return Err(Code::Invalid);
                }
                let grown: BTreeSet<OstIndex> = members.iter().chain(&change.osts).copied().collect();
                let others = self.pools.values().map(BTreeSet::len).sum::<usize>() - members.len();
                if others + grown.len() > POOL_MEMBERS_MAX { Err(Code::TooBig) } else { Ok(Some(grown)) }
            }
            POOL_REMOVE => {
                let removed: BTreeSet<OstIndex> = change.osts.iter().copied().collect();
                Ok(Some(members.difference(&removed).copied().collect()))
            }
            POOL_DESTROY if members.is_empty() => Ok(None),
            POOL_DESTROY => Err(Code::NotEmpty),
            _ => Err(Code::NotSupported),
        }
    }

    fn made(&self, name: &str) -> Result<Option<BTreeSet<OstIndex>>, Code> {
        if self.pools.contains_key(name) {
            return Err(Code::Exists);
        }
        if self.pools.len() >= POOLS_MAX { Err(Code::TooBig) } else { Ok(Some(BTreeSet::new())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries out what is written in words: `new flash`, `add flash 0 2`.
    fn check(pools: &mut Pools, order: &str) -> Result<usize, Code> {
        let mut words = order.split(' ');
        let change = match words.next() {
            Some("new") => POOL_NEW,
            Some("add") => POOL_ADD,
            Some("remove") => POOL_REMOVE,
            Some("destroy") => POOL_DESTROY,
            _ => 99,
        };
        let name = words.next().unwrap_or_default().to_owned();
        let osts: Vec<OstIndex> = words.map(|word| OstIndex(word.parse().expect("a number"))).collect();
        let order = ChangePool { fsname: "w".into(), name: name.clone(), change, osts };
        let members = pools.changed(&order, |ost| ost.0 < 4)?;
        let count = members.as_ref().map_or(0, BTreeSet::len);
        match members {
            Some(osts) => pools.insert(PoolEntry { name, osts: osts.into_iter().collect() }),
            None => pools.remove(&name),
        }
        Ok(count)
    }

    #[test]
    fn pools_are_made_filled_emptied_and_destroyed() {
        let mut pools = Pools::default();
        for (order, result) in [
            ("add flash 0", Err(Code::NotFound)),
            ("new flash", Ok(0)),
            ("new flash", Err(Code::Exists)),
            ("new ignore", Err(Code::Invalid)),
            ("add flash 0 2", Ok(2)),
            ("add flash 2 3", Ok(3)),
            ("add flash 1 4", Err(Code::Invalid)),
            ("destroy flash", Err(Code::NotEmpty)),
            ("remove flash 0 2 9", Ok(1)),
            ("frob flash", Err(Code::NotSupported)),
            ("remove flash 3", Ok(0)),
            ("destroy flash", Ok(0)),
            ("destroy flash", Err(Code::NotFound)),
            ("new flash", Ok(0)),
        ] {
            assert_eq!(check(&mut pools, order), result, "{order}");
        }
        assert_eq!(pools.names().collect::<Vec<_>>(), ["flash"]);
    }

    #[test]
    fn names_are_lustres() {
        for (name, fine) in [
            ("flash", true),
            ("a-b_C9", true),
            ("fifteen-bytes-1", true),
            ("sixteen-bytes-12", false),
            ("", false),
            ("a.b", false),
            ("a b", false),
            ("none", false),
            ("inherit", false),
            ("ignore", false),
        ] {
            assert_eq!(is_pool_name(name), fine, "{name}");
        }
    }

    #[test]
    fn there_are_limits() {
        let mut pools = Pools::default();
        for number in 0..POOLS_MAX {
            assert_eq!(check(&mut pools, &format!("new p{number}")), Ok(0));
        }
        assert_eq!(check(&mut pools, "new more"), Err(Code::TooBig));
        let all = (0..POOL_MEMBERS_MAX as u32 - 1).map(OstIndex).collect();
        pools.insert(PoolEntry { name: "p0".into(), osts: all });
        assert_eq!(check(&mut pools, "add p1 0"), Ok(1));
        assert_eq!(check(&mut pools, "add p1 1"), Err(Code::TooBig));
        assert_eq!(check(&mut pools, "add p1 0"), Ok(1), "it is a member already");
        assert_eq!(check(&mut pools, "remove p0 5"), Ok(POOL_MEMBERS_MAX - 2));
        assert_eq!(check(&mut pools, "add p1 1"), Ok(2));
    }
}
