//! Space that fjall's tables take for what was removed is given back: in the normal course of things a removed key is merged away only when
//! further batches have filled the levels above it.
//!
//! Reads see the newest version of each key and never an older one, so everything else may go at once.

use std::sync::Arc;

use fjall::AbstractTree;
use fjall::compaction::Leveled;

use super::fjall::{FjallEngine, failed};
use crate::error::StoreError;

/// A merge of the leveled strategy reads up to so many times its table size of the lower level.
const MERGE_TABLES: u64 = 50;
/// The first try is with tables smaller by this factor: a small table overlaps fewer of the lower level, and its merge takes less space.
const SPLIT: u64 = 8;
/// Everything is merged at once only if not more than this stays, in bytes: nothing else is merged or added meanwhile.
const WHOLE_BYTES_MAX: u64 = 512 << 20;
/// Everything is merged at once if this part of it goes, as a divisor. If less goes, that is the last resort.
const WHOLE_PART: u64 = 8;
/// What an entry takes in a table besides key and value, at most, in bytes.
const ENTRY_BYTES: u64 = 32;

impl FjallEngine {
    /// An estimate, in bytes: that each removed key hides one value, and that all entries are of one size.
    pub(super) fn estimate_stale(&self) -> u64 {
        let tree = &self.keys.tree;
        let (removed, all) = (tree.tombstone_count(), self.keys.approximate_len() as u64);
        let bytes = u128::from(self.keys.disk_space());
        let stale = bytes * u128::from(2 * removed) / u128::from(all.max(1));
        u64::try_from(stale.min(bytes)).unwrap_or(u64::MAX)
    }

    /// One step of giving space back, for which `room` bytes are there; whether anything was done.
    pub(super) fn tidy_step(&self, room: u64) -> Result<bool, StoreError> {
        // What is in memory hides values, too, and is not merged.
        if self.keys.sealed_memtable_count() > 0 || self.keys.rotate_memtable().map_err(failed)? {
            return Ok(true);
        }
        let stale = self.estimate_stale();
        let _merging = self.merging.lock();
        let before = self.version();
        if stale > 0 {
            if stale >= self.keys.disk_space() / WHOLE_PART {
                self.merge_all(stale, room)?;
            }
            let table_bytes = self.target_bytes.min(room / MERGE_TABLES);
            for table_bytes in [table_bytes / SPLIT, table_bytes] {
                if self.version() == before && table_bytes > 0 {
                    self.push_down(table_bytes)?;
                }
            }
            // A table of removals may overlap more of the next level than a merge takes.
            if self.version() == before {
                self.merge_all(stale, room)?;
            }
        }
        self.forget_merged()?;
        Ok(self.version() != before)
    }

    /// Changes whenever a table comes, goes or moves.
    pub(super) fn version(&self) -> u64 {
        self.keys.tree.current_version().id()
    }

    /// Merges all tables if what stays is little, for the old ones are there until the new ones are complete.
    fn merge_all(&self, stale: u64, room: u64) -> Result<(), StoreError> {
        let all = self.keys.disk_space();
        let most = (room / 4 * 3).min(WHOLE_BYTES_MAX);
        // The engine may have merged some of it since that was estimated.
        if all.saturating_sub(stale) <= most && self.live_bytes_up_to(most)? < most {
            let merged = self.keys.tree.major_compact(self.target_bytes, self.watermark());
            merged.map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    /// Bytes of all entries that are not removed, or `most` if they have more.
    fn live_bytes_up_to(&self, most: u64) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for guard in self.keys.iter() {
            let (key, value) = guard.into_inner().map_err(failed)?;
            bytes += (key.len() + value.len()) as u64 + ENTRY_BYTES;
            if bytes >= most {
                return Ok(most);
            }
        }
        Ok(bytes)
    }

    /// Merges some tables into the next lower level, from the lowest up, as if no level but the last should have anything.
    fn push_down(&self, table_bytes: u64) -> Result<(), StoreError> {
        let strategy = Leveled::default().with_l0_threshold(0).with_table_target_size(table_bytes);
        self.keys.tree.compact(Arc::new(strategy), self.watermark()).map_err(|error| failed(error.into()))
    }

    /// The tables of former versions are kept for those who read as of then. What nobody reads any more goes.
    pub(super) fn forget_merged(&self) -> Result<(), StoreError> {
        let watermark = self.watermark();
        let mut versions = self.keys.tree.get_version_history_lock();
        versions.maintenance(self.keys.path(), watermark).map_err(|error| failed(error.into()))
    }
}

#[cfg(test)]
mod tests {
    // The files are looked at behind the engine's back.
    #![allow(clippy::disallowed_methods, clippy::disallowed_types)]

    use bytes::Bytes;
    use proto::shards::mix;

    use super::*;
    use crate::engine::{Engine, Item};
    use crate::limits::Limits;

    const KEYS: u64 = 20_000;

    fn open(path: &std::path::Path) -> FjallEngine {
        let limits = Limits {
            engine_target_bytes: 64 << 10,
            engine_table_bytes_min: 1 << 10,
            engine_memory_bytes: 1 << 20,
            ..Limits::default()
        };
        FjallEngine::open(path, &limits).expect("it opens")
    }

    /// What cannot be compressed.
    fn value(key: u64) -> Bytes {
        let mut state = mix(0, key) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..60).flat_map(|_| next()).collect()
    }

    /// Adds or removes `keys`, which are spread over the range of all keys, in batches.
    fn change(engine: &FjallEngine, keys: &[u64], is_there: bool, version: &mut u64) {
        for part in keys.chunks(500) {
            *version += 1;
            let spread = |key: u64| format!("{:016x}", mix(0, key));
            let item = |key: &u64| Item {
                key: Bytes::from(spread(*key)),
                value: is_there.then(|| value(*key)),
                version: *version,
            };
            let mut items: Vec<Item> = part.iter().map(item).collect();
            items.sort_by(|a, b| a.key.cmp(&b.key));
            engine.apply(items, *version).expect("there is space");
        }
    }

    fn tidy(engine: &FjallEngine, room: u64) {
        for _ in 0..10_000 {
            // The engine's own thread may be at the same tables.
            while engine.is_busy() {
                std::thread::yield_now();
            }
            if !engine.tidy(room).expect("there is space") {
                return;
            }
        }
        panic!("it never ends");
    }

    fn count(engine: &FjallEngine) -> u64 {
        let mut count = 0;
        let visit = &mut |_: &[u8], _: &[u8], _| {
            count += 1;
            true
        };
        engine.scan(b"", &[0xff], visit).expect("it can be read");
        count
    }

    fn disk_bytes(path: &std::path::Path) -> u64 {
        let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.expect("it is listed").path();
            if path.is_dir() { disk_bytes(&path) } else { path.metadata().map_or(0, |data| data.len()) }
        };
        std::fs::read_dir(path).expect("it is there").map(bytes).sum()
    }

    /// The estimate is of before, and the engine's own thread merges meanwhile.
    #[test]
    fn more_may_be_stale_than_there_is() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let engine = open(temp.path());
        change(&engine, &[1, 2, 3], true, &mut 0);
        engine.merge_all(u64::MAX, 1 << 20).expect("there is space");
        assert_eq!(count(&engine), 3);
    }

    /// A disk that had been filled and emptied still had no room for anything a minute later.
    #[test]
    fn what_was_removed_is_gone_without_another_batch() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let tables = temp.path().join("keyspaces");
        let mut version = 0;
        let keys: Vec<u64> = (0..KEYS).collect();
        let engine = open(temp.path());
        change(&engine, &keys, true, &mut version);
        let full = disk_bytes(&tables);
        drop(engine);
        let engine = open(temp.path());
        change(&engine, &keys, false, &mut version);
        tidy(&engine, 1 << 20);
        let left = disk_bytes(&tables);
        assert!(left < full / 50, "{left} of {full}");
        assert_eq!((count(&engine), engine.position().expect("it can be read")), (0, version));
        drop(engine);
        assert_eq!(count(&open(temp.path())), 0);
    }
}
