//! Locks of one operation: names first, then inodes, each kind in the order of its shards.
//!
//! Taking them in this one order makes deadlock impossible; that many names share a shard costs a little waiting
//! and no memory. A directory that moves below another parent additionally holds the one rename lock, taken
//! before all others, so that nobody else changes the shape of the tree meanwhile. Nothing is awaited under any of
//! them, and the store's engine, which may block, is not asked for anything ([`super::plan`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use proto::shards::{Spread, mix};
use proto::{Fid, Name, Shards};
use smallvec::SmallVec;
use store::{Guarded, Store};

/// Shards of each kind; a power of two.
const SHARDS: usize = 1024;

/// A lock that shares its cache line with no other.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<()>);

type Table = Shards<Shard, SHARDS>;

/// A name of a directory.
struct NameOf<'a>(Fid, &'a Name);

impl Spread for NameOf<'_> {
    fn spread(&self) -> u64 {
        mix(self.0.seq ^ self.1.hash(), u64::from(self.0.oid))
    }
}

/// What an operation holds.
pub struct Guards<'a> {
    _guards: SmallVec<[MutexGuard<'a, ()>; 4]>,
    _guarded: Guarded,
}

/// Every lock of an MDT.
pub struct Locks {
    names: Table,
    inodes: Table,
    rename: Mutex<()>,
    /// How often a directory was given another parent.
    moves: AtomicU64,
    store: Arc<Store>,
}

impl Locks {
    /// Those of the MDT in `store`.
    pub fn new(store: Arc<Store>) -> Locks {
        let (names, inodes) = (Table::default(), Table::default());
        Locks { names, inodes, rename: Mutex::new(()), moves: AtomicU64::new(0), store }
    }

    /// Locks a name: its entry does not change.
    pub fn name(&self, parent: Fid, name: &Name) -> Guards<'_> {
        self.lock(&self.names, SmallVec::from_elem(Table::number_of(&NameOf(parent, name)), 1))
    }

    /// Locks two names.
    pub fn names(&self, a: (Fid, &Name), b: (Fid, &Name)) -> Guards<'_> {
        self.lock(
            &self.names,
            [a, b].into_iter().map(|(parent, name)| Table::number_of(&NameOf(parent, name))).collect(),
        )
    }

    /// Locks names of many.
    pub fn all_names<'a>(&self, names: impl Iterator<Item = (Fid, &'a Name)>) -> Guards<'_> {
        let numbers = names.map(|(parent, name)| Table::number_of(&NameOf(parent, name)));
        self.lock(&self.names, numbers.collect())
    }

    /// Locks inodes: their records do not change, nor do the entries of those that are directories come or go.
    /// Names, if any are needed, are locked before.
    pub fn inodes(&self, fids: &[Fid]) -> Guards<'_> {
        self.lock(&self.inodes, fids.iter().map(Table::number_of).collect())
    }

    /// The lock of whoever gives a directory another parent; taken before all others.
    pub fn rename(&self) -> Guards<'_> {
        let guard = self.rename.lock();
        Guards { _guards: SmallVec::from_iter([guard]), _guarded: self.store.guarded() }
    }

    /// How often a directory was given another parent. It stays the same while the lock of whoever does that is held.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// A directory was given another parent. The caller holds the lock.
    pub fn moved(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    fn lock<'a>(&'a self, table: &'a Table, mut shards: SmallVec<[usize; 4]>) -> Guards<'a> {
        shards.sort_unstable();
        shards.dedup();
        let guards = shards.into_iter().map(|shard| table.at(shard).0.lock()).collect();
        Guards { _guards: guards, _guarded: self.store.guarded() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::World;

    #[test]
    fn the_same_shard_is_locked_once() {
        let world = World::new();
        let locks = Locks::new(world.store.clone());
        let name = Name::new(&b"a"[..]).expect("a plain name");
        assert_eq!(locks.names((Fid::ROOT, &name), (Fid::ROOT, &name))._guards.len(), 1);
        assert_eq!(locks.inodes(&[Fid::ROOT, Fid::ROOT])._guards.len(), 1);
    }

    #[test]
    fn neighbours_lie_in_different_shards() {
        let fid = |oid| Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        let mut shards: Vec<usize> = (1..=256).map(|oid| Table::number_of(&fid(oid))).collect();
        shards.sort_unstable();
        shards.dedup();
        assert!(shards.len() > 128, "{} shards for 256 inodes", shards.len());
    }
}
