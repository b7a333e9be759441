//! Keys as readers see them: the memory tables in front of the engine.
//!
//! The engine may block, for as long as the disk takes. So nobody asks it who holds a guard that others wait for: what is read under
//! one is known ([`View::known`]), or was read before. In a simulation this is checked ([`Guarded`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use proto::Transno;
use rt::memory::Share;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::limits::Limits;
use crate::shared::Shared;
use crate::snapshot::Snapshots;
use crate::table::{Found, Table};
use crate::target::Value;

/// Memory tables and engine of one target.
pub struct View {
    pub(crate) table: Table,
    /// `None` after the store was closed: the engine's files are given back.
    engine: RwLock<Option<Arc<dyn Engine>>>,
    pub(crate) snapshots: Snapshots,
    /// The engine has every change up to here.
    pub(crate) applied: AtomicU64,
    limits: Limits,
    /// The target's share of the process's memory, which bounds the tables.
    share: Share,
    /// Guards under which the engine must not be asked; counted where that is checked.
    guards: AtomicUsize,
}

/// What is known of a key without the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// Its value, if it has one.
    Value(Option<Value>),
    /// The engine has to be asked.
    Nothing,
}

/// While it lives, nobody asks the engine for anything.
pub struct Guarded {
    /// `None` where nobody checks it.
    shared: Option<Arc<Shared>>,
}

impl Guarded {
    pub(crate) fn new(shared: &Arc<Shared>) -> Guarded {
        let shared = shared.rt.verify().then(|| shared.clone());
        shared.iter().for_each(|shared| _ = shared.view.guards.fetch_add(1, Ordering::Relaxed));
        Guarded { shared }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.shared.iter().for_each(|shared| _ = shared.view.guards.fetch_sub(1, Ordering::Relaxed));
    }
}

/// While it lives, what its key says is known without the engine.
///
/// Its holder took it to carry out something that needs several keys at once: if each were forgotten while the next one is read, and many
/// did the same with little memory, nobody would come to an end.
pub struct Held {
    shared: Arc<Shared>,
    key: Bytes,
}

impl Held {
    /// Holds `key`, and asks the engine for it if need be.
    pub(crate) fn new(shared: &Arc<Shared>, key: Bytes) -> Result<Held, StoreError> {
        shared.view.table.pin(&key);
        let held = Held { shared: shared.clone(), key };
        shared.view.learn(&held.key)?;
        Ok(held)
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.key).finish()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.view.table.unpin(&self.key);
    }
}

impl View {
    pub(crate) fn new(engine: Arc<dyn Engine>, position: u64, limits: Limits, share: Share) -> View {
        View {
            table: Table::accounted(share.memory().user("tables")),
            engine: RwLock::new(Some(engine)),
            snapshots: Snapshots::default(),
            applied: AtomicU64::new(position),
            limits,
            share,
            guards: AtomicUsize::new(0),
        }
    }

    /// The limits, as the memory allows now.
    pub(crate) fn limits(&self) -> Limits {
        self.limits.scaled(self.share.bytes())
    }

    /// The target's share of the process's memory, in bytes.
    pub(crate) fn share_bytes(&self) -> u64 {
        self.share.bytes()
    }

    pub(crate) fn engine(&self) -> Result<Arc<dyn Engine>, StoreError> {
        self.engine.read().clone().ok_or(StoreError::Poisoned)
    }

    /// Takes the engine away: from now on only what is in memory can be read.
    pub(crate) fn close_engine(&self) -> Option<Arc<dyn Engine>> {
        let engine = self.engine.write().take();
        self.snapshots.end();
        engine
    }

    /// What is known of `key` without the engine.
    pub fn known(&self, key: &[u8]) -> Known {
        match self.table.get(key) {
            Found::Value(bytes, version) => Known::Value(Some(Value { bytes, version: Transno(version) })),
            Found::Absent => Known::Value(None),
            Found::Unknown(_) => Known::Nothing,
        }
    }

    /// The engine, to read.
    fn readable(&self) -> Result<Arc<dyn Engine>, StoreError> {
        assert!(self.guards.load(Ordering::Relaxed) == 0, "the engine is read under a guard");
        self.engine()
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let ticket = match self.table.get(key) {
            Found::Value(bytes, version) => return Ok(Some(Value { bytes, version: Transno(version) })),
            Found::Absent => return Ok(None),
            Found::Unknown(ticket) => ticket,
        };
        let found = self.readable()?.get(key)?;
        self.table.trim_step(self.applied.load(Ordering::Acquire), self.limits().table_bytes_max);
        self.table.remember(key, found.clone(), Some(ticket));
        Ok(found.map(|(bytes, version)| Value { bytes, version: Transno(version) }))
    }

    /// Has the table know of `key`, which is pinned.
    fn learn(&self, key: &[u8]) -> Result<(), StoreError> {
        if let Found::Unknown(_) = self.table.get(key) {
            let found = self.readable()?.get(key)?;
            self.table.trim_step(self.applied.load(Ordering::Acquire), self.limits().table_bytes_max);
            self.table.remember(key, found, None);
        }
        Ok(())
    }

    /// Up to `count_max` keys in `[from, until)` in order. Each is as it was at some moment of the call: with
    /// changes under way the result is not a snapshot.
    pub fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Bytes, Value)>, StoreError> {
        if from >= until || count_max == 0 {
            return Ok(Vec::new());
        }
        // First the table, then the engine: an entry leaves the table only when the engine has it.
        let part = self.table.range(from, until, count_max);
        let mut merge = Merge { out: Vec::new(), count_max, table: part.entries.into_iter().peekable() };
        let end;
        let until = match &part.complete_to {
            // Up to the last key that the table told, that key included.
            Some(last) => {
                end = [last, &[0][..]].concat();
                &end[..]
            }
            None => until,
        };
        self.readable()?.scan(from, until, &mut |key, value, version| merge.push(key, value, version))?;
        merge.finish();
        Ok(merge.out)
    }

    /// Forgets what the engine has, whatever room there is.
    pub(crate) fn forget(&self) {
        self.table.trim(self.applied.load(Ordering::Acquire), 0);
    }

    pub(crate) fn trim(&self) {
        self.table.trim(self.applied.load(Ordering::Acquire), self.limits().table_bytes_max);
    }
}

type TableEntry = (Bytes, Option<(Bytes, u64)>);

/// Merges the engine's keys into the table's, which win.
struct Merge {
    out: Vec<(Bytes, Value)>,
    count_max: usize,
    table: std::iter::Peekable<std::vec::IntoIter<TableEntry>>,
}

impl Merge {
    /// Takes the engine's next key; says whether more are wanted.
    fn push(&mut self, key: &[u8], value: &[u8], version: u64) -> bool {
        let mut covered = false;
        while let Some((table_key, found)) = self.table.next_if(|(table_key, _)| table_key[..] <= *key) {
            covered = table_key[..] == *key;
            self.emit(table_key, found);
        }
        if !covered {
            self.emit(Bytes::copy_from_slice(key), Some((Bytes::copy_from_slice(value), version)));
        }
        self.out.len() < self.count_max
    }

    fn finish(&mut self) {
        while let Some((key, found)) = self.table.next() {
            self.emit(key, found);
        }
    }

    fn emit(&mut self, key: Bytes, found: Option<(Bytes, u64)>) {
        if let Some((bytes, version)) = found
            && self.out.len() < self.count_max
        {
            self.out.push((key, Value { bytes, version: Transno(version) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Item, MemoryEngine};

    #[test]
    fn the_table_wins_over_the_engine() {
        let engine = MemoryEngine::default();
        let item = |key: &'static str, version| Item {
            key: Bytes::from(key),
            value: Some(Bytes::from("engine")),
            version,
        };
        engine
            .apply(vec![item("a", 1), item("b", 2), item("c", 3), item("e", 4)], 4)
            .expect("memory takes all");
        let view = View::new(Arc::new(engine), 4, Limits::default(), rt::memory::Share::of(1 << 30));
        view.table.put(b"b", None, 5);
        view.table.put(b"c", Some(Bytes::from("table")), 6);
        view.table.put(b"d", Some(Bytes::from("table")), 7);
        let keys = |count| -> Vec<(Bytes, u64)> {
            let found = view.scan(b"a", b"z", count).expect("memory does not fail");
            found.into_iter().map(|(key, value)| (key, value.version.0)).collect()
        };
        let all: Vec<(Bytes, u64)> =
            [("a", 1), ("c", 6), ("d", 7), ("e", 4)].map(|(key, version)| (Bytes::from(key), version)).into();
        for count in 0..6 {
            assert_eq!(keys(count), all[..count.min(4)], "{count}");
        }
        assert_eq!(view.get(b"b").expect("memory does not fail"), None);
        assert_eq!(view.get(b"a").expect("memory does not fail").map(|v| v.version), Some(Transno(1)));
    }
}
