//! Locks of one operation: names first, then inodes, each kind in the order of its shards.
//!
//! Taking them in this one order makes deadlock impossible; that many names share a shard costs a little waiting
//! and no memory. A directory that moves below another parent additionally holds the one rename lock, taken
//! before all others, so that nobody else changes the shape of the tree meanwhile. Nothing is awaited under any of
//! them.

use parking_lot::{Mutex, MutexGuard};
use proto::{Fid, Name};
use smallvec::SmallVec;

/// Shards of each kind; a power of two.
const SHARDS: usize = 1024;

/// A lock that shares its cache line with no other.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<()>);

/// What an operation holds.
pub type Guards<'a> = SmallVec<[MutexGuard<'a, ()>; 4]>;

/// Every lock of an MDT.
pub struct Locks {
    names: Box<[Shard]>,
    inodes: Box<[Shard]>,
    rename: Mutex<()>,
}

impl Default for Locks {
    fn default() -> Locks {
        let shards = || (0..SHARDS).map(|_| Shard::default()).collect();
        Locks { names: shards(), inodes: shards(), rename: Mutex::new(()) }
    }
}

impl Locks {
    /// Locks a name: its entry does not change.
    pub fn name(&self, parent: Fid, name: &Name) -> MutexGuard<'_, ()> {
        self.names[shard_of_name(parent, name)].0.lock()
    }

    /// Locks two names.
    pub fn names(&self, a: (Fid, &Name), b: (Fid, &Name)) -> Guards<'_> {
        lock(&self.names, [a, b].into_iter().map(|(parent, name)| shard_of_name(parent, name)).collect())
    }

    /// Locks inodes: their records do not change, nor do the entries of those that are directories come or go.
    /// Names, if any are needed, are locked before.
    pub fn inodes(&self, fids: &[Fid]) -> Guards<'_> {
        lock(&self.inodes, fids.iter().map(|fid| shard_of(fid.seq, u64::from(fid.oid))).collect())
    }

    /// The lock of whoever gives a directory another parent; taken before all others.
    pub fn rename(&self) -> MutexGuard<'_, ()> {
        self.rename.lock()
    }
}

fn lock(table: &[Shard], mut shards: SmallVec<[usize; 4]>) -> Guards<'_> {
    shards.sort_unstable();
    shards.dedup();
    shards.into_iter().map(|shard| table[shard].0.lock()).collect()
}

fn shard_of_name(parent: Fid, name: &Name) -> usize {
    shard_of(parent.seq ^ name.hash(), u64::from(parent.oid))
}

fn shard_of(a: u64, b: u64) -> usize {
    let mixed = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize & (SHARDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_shard_is_locked_once() {
        let locks = Locks::default();
        let name = Name::new(&b"a"[..]).expect("a plain name");
        assert_eq!(locks.names((Fid::ROOT, &name), (Fid::ROOT, &name)).len(), 1);
        assert_eq!(locks.inodes(&[Fid::ROOT, Fid::ROOT]).len(), 1);
    }

    #[test]
    fn neighbours_lie_in_different_shards() {
        let mut shards: Vec<usize> = (1..=256).map(|oid| shard_of(0x2_0000_0400, oid)).collect();
        shards.sort_unstable();
        shards.dedup();
        assert!(shards.len() > 128, "{} shards for 256 inodes", shards.len());
    }
}
