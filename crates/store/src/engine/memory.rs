//! The engine of a simulation: a map that keeps nothing. It is empty at every open, and so the log is never cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use rt::Dir;

use super::{Engine, Frozen, Item, Space, Visit};
use crate::error::StoreError;

type Map = BTreeMap<Bytes, (Bytes, u64)>;

/// Keys in memory; nothing survives.
#[derive(Default)]
pub(crate) struct MemoryEngine {
    /// Copied by the first change while somebody reads it as it was.
    map: RwLock<Arc<Map>>,
    /// Where its files would lie: reading fails when they could not be read.
    dir: Option<Dir>,
}

impl MemoryEngine {
    /// The engine of the target in `dir`.
    pub(crate) fn new(dir: &Dir) -> MemoryEngine {
        MemoryEngine { map: RwLock::default(), dir: Some(dir.clone()) }
    }

    fn check_disk(&self) -> Result<(), StoreError> {
        Ok(self.dir.as_ref().map_or(Ok(()), Dir::look_up_result)?)
    }
}

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError> {
        self.check_disk()?;
        Ok(self.map.read().get(key).cloned())
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        self.check_disk()?;
        scan_map(&self.map.read(), from, until, visit);
        Ok(())
    }

    fn freeze(self: Arc<Self>) -> Result<Arc<dyn Frozen>, StoreError> {
        let map = self.map.read().clone();
        Ok(Arc::new(FrozenMap { map, engine: self }))
    }

    fn apply(&self, items: Vec<Item>, _position: u64) -> Result<(), StoreError> {
        let mut map = self.map.write();
        let map = Arc::make_mut(&mut map);
        for item in items {
            match item.value {
                // Copies, because items are slices of whole log records.
                Some(value) => map.insert(
                    Bytes::copy_from_slice(&item.key),
                    (Bytes::copy_from_slice(&value), item.version),
                ),
                None => map.remove(&item.key),
            };
        }
        Ok(())
    }

    fn is_behind(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn merge(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn space(&self) -> Space {
        Space::default()
    }

    fn tidy(&self, _room: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn position(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn persist(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

struct FrozenMap {
    map: Arc<Map>,
    engine: Arc<MemoryEngine>,
}

impl Frozen for FrozenMap {
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError> {
        self.engine.check_disk()?;
        Ok(self.map.get(key).cloned())
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from < until {
            self.engine.check_disk()?;
            scan_map(&self.map, from, until, visit);
        }
        Ok(())
    }
}

fn scan_map(map: &Map, from: &[u8], until: &[u8], visit: Visit<'_>) {
    let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(until));
    for (key, (value, version)) in map.range::<[u8], _>(bounds) {
        if !visit(key, value, *version) {
            break;
        }
    }
}
