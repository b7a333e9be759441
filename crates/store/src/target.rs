//! One target's store: keys and values with a commit log in front. Stub: signatures only.
#![allow(unused_variables, clippy::unused_async, missing_docs)]

use std::sync::Arc;

use bytes::Bytes;
use proto::Transno;
use rt::{Dir, File, Rt};

use crate::error::StoreError;
use crate::label::Label;

/// A stored value and the transno of the change that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub bytes: Bytes,
    pub version: Transno,
}

/// One key's new value; `None` takes the key away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// Changes that become visible and durable together.
#[derive(Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    /// Files with data that the changes refer to: written already, synced before the log record.
    pub data: Vec<File>,
    /// Transno that a replayed change had before; `None` draws a new one.
    pub replay: Option<Transno>,
}

/// An open target. One per directory and process.
pub struct Store {}

impl Store {
    /// Makes a target in `path`, which is made if missing and has to be empty.
    pub async fn format(rt: &Rt, path: &str, label: &Label) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Reads the label of the target in `path`; changes nothing.
    pub async fn read_label(rt: &Rt, path: &str) -> Result<Label, StoreError> {
        unimplemented!()
    }
    /// Opens the target in `path`: takes its lock, counts its boot, applies the log behind the engine's position.
    pub async fn open(rt: &Rt, path: &str) -> Result<Arc<Store>, StoreError> {
        unimplemented!()
    }
    pub fn label(&self) -> &Label {
        unimplemented!()
    }
    /// How often the target was opened: the owner's epoch in file names.
    pub fn boot(&self) -> u64 {
        unimplemented!()
    }
    pub fn dir(&self) -> &Dir {
        unimplemented!()
    }
    /// The value of `key` with every change that was committed in memory, durable or not.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        unimplemented!()
    }
    /// Up to `count_max` keys in `[from, until)` in order.
    pub fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Bytes, Value)>, StoreError> {
        unimplemented!()
    }
    /// Makes `batch` visible now and durable with the next group commit. Does not wait. The caller holds whatever
    /// guards the keys.
    pub fn commit(&self, batch: Batch) -> Result<Transno, StoreError> {
        unimplemented!()
    }
    /// Every change up to here is durable.
    pub fn last_committed(&self) -> Transno {
        unimplemented!()
    }
    /// The newest change, durable or not.
    pub fn last_transno(&self) -> Transno {
        unimplemented!()
    }
    /// Waits until every change up to `transno` is durable; starts a commit at once.
    pub async fn committed(&self, transno: Transno) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Waits while so much is uncommitted or unapplied that clients have to slow down. Call before `commit`.
    pub async fn room(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Commits what there is and gives the directory back.
    pub async fn close(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
}
