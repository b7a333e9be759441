//! The engine of a simulation: a map that keeps nothing. It is empty at every open, and so the log is never cut.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::RwLock;

use super::{Engine, Item, Space, Visit};
use crate::error::StoreError;

/// Keys in memory; nothing survives.
#[derive(Default)]
pub(crate) struct MemoryEngine {
    map: RwLock<BTreeMap<Bytes, (Bytes, u64)>>,
}

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError> {
        Ok(self.map.read().get(key).cloned())
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        let map = self.map.read();
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(until));
        for (key, (value, version)) in map.range::<[u8], _>(bounds) {
            if !visit(key, value, *version) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, items: Vec<Item>, _position: u64) -> Result<(), StoreError> {
        let mut map = self.map.write();
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
