//! Commit on share: nobody is told of what another client changed before that is durable.
//!
//! A change that is not durable survives a restart because its client repeats it: as a replay if it was answered, anew if
//! its answer was lost, which is after all replays. What somebody else has built on it would come too early then, or stand
//! on nothing if that client is lost too (`docs/recovery.md#sharing`; Lustre's `commit_on_sharing`). So an operation
//! notes what it reads of what others have changed, and its answer waits for the commit of that. It is carried out at once:
//! who works alone waits for nothing, and who waits is in nobody's way.
//!
//! Not waited for is what changes of a directory with each of its entries: its times, its size and its links.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use proto::lock::bits::SessionId;
use proto::parameters::{Parameter, SWITCH, TargetTree, Unit, switch};
use proto::shards::{Spread, mix};
use proto::{Code, Fid, Name, Shards, Transno};
use service::{Done, code_of};
use store::Store;

/// Parts of the table that are locked apart; a power of two.
const SHARDS: usize = 64;
/// Keys of a part that are remembered, 48 bytes each; beyond, everybody waits for what they had.
const KEYS_MAX: usize = 16_384;
/// Keys of a part below which it is not looked for those that are durable.
const KEYS_MIN: usize = 512;
/// Stands for the transno of a change that is just being committed.
const UNDER_WAY: Transno = Transno(u64::MAX);

/// Something that operations read and change. Two may be the same by chance: somebody waits in vain then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u64);

impl Key {
    /// Whether there is an inode, and what it says; of a directory, what does not change with its entries.
    pub fn inode(fid: Fid) -> Key {
        Key::new(0, fid, 0)
    }

    /// What a name means.
    pub fn entry(parent: Fid, name: &Name) -> Key {
        Key::new(1, parent, name.hash())
    }

    /// Which entries a directory has.
    pub fn entries(dir: Fid) -> Key {
        Key::new(2, dir, 0)
    }

    fn new(kind: u64, fid: Fid, more: u64) -> Key {
        let words = [fid.seq, u64::from(fid.oid) << 32 | u64::from(fid.ver), more];
        Key(words.into_iter().fold(kind, mix))
    }
}

impl Spread for Key {
    fn spread(&self) -> u64 {
        self.0
    }
}

/// Keys are mixed already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// The changes of a key that may not be durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    /// Who made the newest one.
    by: SessionId,
    transno: Transno,
    /// The newest change by anybody else.
    others: Transno,
    /// What the answers to the changes of `by` wait for.
    rests: Transno,
}

impl Last {
    /// `who` is about to commit a change.
    fn begin(&mut self, who: SessionId) {
        if self.by != who {
            *self = Last { by: who, others: self.others.max(self.transno), rests: Transno(0), ..*self };
        }
        self.transno = UNDER_WAY;
    }

    /// What `who` has to see durable before it is told of the key.
    fn foreign(&self, who: SessionId) -> Transno {
        if self.by == who { self.others.max(self.rests) } else { self.others.max(self.transno) }
    }

    /// Whether everything up to `committed` is all there is.
    fn is_settled(&self, committed: Transno) -> bool {
        self.transno.max(self.others) <= committed
    }
}

#[derive(Default)]
struct Shard {
    keys: HashMap<Key, Last, BuildHasherDefault<AsIs>>,
    /// How many there were when those that were durable went.
    were: usize,
}

/// What was changed lately, and by whom.
pub(super) struct Sharing {
    store: Arc<Store>,
    shards: Shards<Mutex<Shard>, SHARDS>,
    /// Everything up to this transno counts as changed by others.
    floor: AtomicU64,
    is_on: AtomicBool,
    waits: AtomicU64,
}

impl Sharing {
    pub fn new(store: Arc<Store>) -> Sharing {
        Sharing {
            store,
            shards: Shards::default(),
            floor: AtomicU64::new(0),
            is_on: AtomicBool::new(true),
            waits: AtomicU64::new(0),
        }
    }

    /// Registers what switches it off, to compare.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let is_on = Parameter::gauge("commit_on_sharing", Unit::None, || {
            u8::from(self.is_on.load(Ordering::Relaxed))
        });
        tree.of_device(is_on.settable(SWITCH, |text: &str| {
            self.is_on.store(switch(text)?, Ordering::Relaxed);
            Ok(())
        }));
    }

    /// How often somebody waited.
    #[cfg(test)]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// What has to be durable before `who` is told of what was read of `key`. Asked after the reading: a change that is not
    /// under way by then was not seen.
    pub fn foreign(&self, key: Key, who: SessionId) -> Transno {
        let found = self.shards.of(&key).lock().keys.get(&key).map_or(Transno(0), |last| last.foreign(who));
        let found = if found == UNDER_WAY { self.store.last_transno() } else { found };
        found.max(Transno(self.floor.load(Ordering::Acquire)))
    }

    /// `who` commits a change of `keys` by `commit`, whose answer waits for `rests`. The caller guards the keys.
    pub fn changing(
        &self,
        keys: &[Key],
        who: SessionId,
        rests: Transno,
        commit: impl FnOnce() -> Result<Done, Code>,
    ) -> Result<Done, Code> {
        for &key in keys {
            self.begin(key, who);
        }
        let done = commit();
        // Of one that was given up nothing is committed: what others of its session have under way is not newer than this.
        let transno = done.as_ref().map_or_else(|_| self.store.last_transno(), |done| done.transno);
        for &key in keys {
            if let Some(last) = self.shards.of(&key).lock().keys.get_mut(&key) {
                last.transno = transno;
                last.rests = last.rests.max(rests);
            }
        }
        done
    }

    fn begin(&self, key: Key, who: SessionId) {
        let mut shard = self.shards.of(&key).lock();
        if shard.keys.len() >= (2 * shard.were).clamp(KEYS_MIN, KEYS_MAX) {
            self.make_room(&mut shard);
        }
        let new = Last { by: who, transno: Transno(0), others: Transno(0), rests: Transno(0) };
        shard.keys.entry(key).or_insert(new).begin(who);
    }

    /// Drops what is durable; if that is not enough, everybody waits for the rest.
    fn make_room(&self, shard: &mut Shard) {
        let committed = self.store.last_committed();
        shard.keys.retain(|_, last| !last.is_settled(committed));
        if shard.keys.len() >= KEYS_MAX {
            self.forget(shard);
        }
        shard.were = shard.keys.len();
    }

    fn forget(&self, shard: &mut Shard) {
        self.floor.fetch_max(self.store.last_transno().0, Ordering::AcqRel);
        shard.keys.retain(|_, last| last.transno == UNDER_WAY);
    }

    /// As if there were too many keys everywhere.
    #[cfg(test)]
    pub fn forget_all(&self) {
        self.shards.iter().for_each(|shard| self.forget(&mut shard.lock()));
    }

    /// Waits until everything up to `until` is durable.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn settle(&self, until: Transno) -> Result<(), Code> {
        if until <= self.store.last_committed() || !self.is_on.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.store.committed(until).await.map_err(|error| code_of(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(by: SessionId, transno: u64, others: u64, rests: u64) -> Last {
        Last { by, transno: Transno(transno), others: Transno(others), rests: Transno(rests) }
    }

    #[test]
    fn who_changed_last_waits_for_others_only() {
        let mut last = last(1, 5, 3, 2);
        assert_eq!((last.foreign(1), last.foreign(2)), (Transno(3), Transno(5)));
        last.begin(2);
        assert_eq!((last.foreign(2), last.foreign(1)), (Transno(5), UNDER_WAY));
        last.transno = Transno(9);
        last.rests = Transno(7);
        assert_eq!((last.foreign(2), last.foreign(1)), (Transno(7), Transno(9)));
        assert!(last.is_settled(Transno(9)) && !last.is_settled(Transno(8)));
    }

    #[test]
    fn keys_differ() {
        let name = |text: &'static [u8]| Name::new(text).expect("a plain name");
        let fid = |oid| Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        let mut keys = vec![];
        for oid in 1..100 {
            keys.extend([Key::inode(fid(oid)), Key::entries(fid(oid)), Key::entry(fid(oid), &name(b"a"))]);
            keys.push(Key::entry(fid(oid), &name(b"b")));
        }
        keys.sort_unstable_by_key(|key| key.0);
        keys.dedup();
        assert_eq!(keys.len(), 99 * 4);
    }
}
