//! All keys as they were at one moment.
//!
//! A commit is in the engine whole or not at all, and the engine can be read as of a moment that is past. So a snapshot is what the engine
//! has once it has got everything that was committed before the snapshot was asked for. It shows nothing that is not durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use proto::Transno;

use crate::engine::{Frozen, Visit};
use crate::error::StoreError;
use crate::shared::Shared;
use crate::target::{Store, Value};

/// The snapshots of a store. They end with it, and when the disk is short of space.
#[derive(Default)]
pub(crate) struct Snapshots {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    by_number: BTreeMap<u64, Arc<dyn Frozen>>,
    last: u64,
}

/// All keys as they were at one moment. What changed since then takes room as long as this lives: whoever has one bounds how many there
/// are, and how long.
pub struct Snapshot {
    shared: Arc<Shared>,
    number: u64,
    /// It has every change up to here.
    position: u64,
}

impl Snapshots {
    /// Nobody reads as of a former moment any more.
    pub fn end(&self) {
        // The engine may have to be closed with the last of them, which takes its time.
        let ended = std::mem::take(&mut self.taken.lock().by_number);
        drop(ended);
    }

    fn add(&self, frozen: Arc<dyn Frozen>) -> u64 {
        let mut taken = self.taken.lock();
        taken.last += 1;
        let number = taken.last;
        taken.by_number.insert(number, frozen);
        number
    }
}

impl Store {
    /// All keys with every change that was committed in memory before this was called, and perhaps some that were later.
    ///
    /// # Errors
    /// The store was poisoned or closed.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.applied(self.last_transno()).await?;
        let position = self.shared.view.applied.load(Ordering::Acquire);
        let frozen = self.shared.view.engine()?.freeze()?;
        let number = self.shared.view.snapshots.add(frozen);
        Ok(Snapshot { shared: self.shared.clone(), number, position })
    }
}

impl Snapshot {
    /// The value of `key`; may wait for the disk.
    ///
    /// # Errors
    /// The store cannot be read, or the snapshot has ended ([`StoreError::Ended`]).
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let frozen = self.frozen()?;
        // What has not changed since then is the same in memory. Of what is not there memory may know no version: it may have been there.
        let found = match self.shared.view.table.peek(key) {
            Some((value, version)) if version != 0 && version <= self.position => {
                value.map(|value| (value, version))
            }
            _ => frozen.get(key)?,
        };
        Ok(found.map(|(bytes, version)| Value { bytes, version: Transno(version) }))
    }

    /// Shows `visit` the keys in `[from, until)` in order, each with its value and version, until it has enough; may wait for the disk.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        self.frozen()?.scan(from, until, visit)
    }

    fn frozen(&self) -> Result<Arc<dyn Frozen>, StoreError> {
        self.shared.check()?;
        let taken = self.shared.view.snapshots.taken.lock();
        taken.by_number.get(&self.number).cloned().ok_or(StoreError::Ended)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut taken = self.shared.view.snapshots.taken.lock();
        let ended = taken.by_number.remove(&self.number);
        drop(taken);
        drop(ended);
    }
}
