//! The ordered key-value engine behind the log.
//!
//! It holds what the log held, up to a position that it remembers in the same batch, and no operation waits for
//! it. It is never in the durable path: the log keeps everything that the engine has not made durable.

mod fjall;
mod memory;
mod tidy;

pub(crate) use fjall::FjallEngine;
pub(crate) use memory::MemoryEngine;

use std::sync::Arc;

use bytes::Bytes;

use crate::error::StoreError;

/// One key's newest change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// The key.
    pub key: Bytes,
    /// Its value; `None` takes the key away.
    pub value: Option<Bytes>,
    /// Transno of the change.
    pub version: u64,
}

/// Sees one key, its value and its version; says whether it wants the next.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8], u64) -> bool;

/// What an engine uses of the disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// In all.
    pub all: u64,
    /// For what was removed.
    pub stale: u64,
}

/// Keys as they were at one moment. What changed since then takes room as long as this lives.
pub(crate) trait Frozen: Send + Sync {
    /// The value and version of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError>;

    /// Shows `visit` the keys in `[from, until)` in order, until it has enough.
    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError>;
}

/// An ordered map of keys that many threads use at once.
pub(crate) trait Engine: Send + Sync {
    /// The value and version of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError>;

    /// Shows `visit` the keys in `[from, until)` in order, as of one moment, until it has enough.
    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError>;

    /// The keys as they are now: everything that was applied together, or nothing of it.
    fn freeze(self: Arc<Self>) -> Result<Arc<dyn Frozen>, StoreError>;

    /// Takes `items`, sorted by key and each key once, and with them, atomically, `position`.
    fn apply(&self, items: Vec<Item>, position: u64) -> Result<(), StoreError>;

    /// Whether it still has to tidy up what it got, so that it should not get more for now. An error if it never
    /// will.
    fn is_behind(&self) -> Result<bool, StoreError>;

    /// Merges some of what it got, as much as one step takes; whether there may be more to do.
    fn merge(&self) -> Result<bool, StoreError>;

    /// Whether it writes: it applies or merges something.
    fn is_busy(&self) -> bool;

    /// An error if it has failed, which it may without being asked for anything.
    fn check(&self) -> Result<(), StoreError>;

    /// About how much of the disk it uses.
    fn space(&self) -> Space;

    /// Gives some of them back, and uses up to `room` bytes more meanwhile; whether it did anything. The next call does more.
    fn tidy(&self, room: u64) -> Result<bool, StoreError>;

    /// The position as it was when the engine was opened: everything up to there is in it.
    fn position(&self) -> Result<u64, StoreError>;

    /// Makes what was applied durable and returns the position that is durable now.
    fn persist(&self) -> Result<u64, StoreError>;
}
