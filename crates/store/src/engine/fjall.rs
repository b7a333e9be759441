//! The engine of production: fjall, a log-structured merge tree in files of its own.
//!
//! Its own journal is not synced per batch. One keyspace holds the keys and, under a reserved key that is the last
//! of each batch, the position: both lie in the same journal batch and the same memory table, so neither a crash
//! nor a flush separates them. Values are stored as version (8 bytes, little endian) and bytes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Engine, Item, Visit};
use crate::error::StoreError;
use crate::limits::KEY_RESERVED;

const KEYSPACE: &str = "data";
const POSITION_KEY: [u8; 9] = [KEY_RESERVED, b'p', b'o', b's', b'i', b't', b'i', b'o', b'n'];
const VERSION_BYTES: usize = 8;
/// Threads that flush and compact.
const WORKERS: usize = 2;

/// A fjall database.
pub struct FjallEngine {
    // Before the database: its handle has to go first.
    keys: Keyspace,
    database: Database,
    applied: AtomicU64,
}

impl FjallEngine {
    /// Opens the database in the directory `path`, or makes one.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<FjallEngine, StoreError> {
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            .manual_journal_persist(true)
            .worker_threads(WORKERS)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().manual_journal_persist(true);
        let keys = database.keyspace(KEYSPACE, options).map_err(failed)?;
        let engine = FjallEngine { keys, database, applied: AtomicU64::new(0) };
        engine.applied.store(engine.position()?, Ordering::Relaxed);
        Ok(engine)
    }
}

impl Engine for FjallEngine {
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError> {
        let Some(stored) = self.keys.get(key).map_err(failed)? else { return Ok(None) };
        let (version, value) = split(&stored)?;
        Ok(Some((Bytes::copy_from_slice(value), version)))
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        for guard in self.keys.range(from..until) {
            let (key, stored) = guard.into_inner().map_err(failed)?;
            if key[..] == POSITION_KEY {
                continue;
            }
            let (version, value) = split(&stored)?;
            if !visit(&key, value, version) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, items: Vec<Item>, position: u64) -> Result<(), StoreError> {
        let mut batch = self.database.batch();
        let mut stored = Vec::new();
        for item in items {
            match item.value {
                Some(value) => {
                    stored.clear();
                    stored.extend_from_slice(&item.version.to_le_bytes());
                    stored.extend_from_slice(&value);
                    batch.insert(&self.keys, &item.key[..], &stored[..]);
                }
                None => batch.remove(&self.keys, &item.key[..]),
            }
        }
        batch.insert(&self.keys, POSITION_KEY, position.to_le_bytes());
        batch.commit().map_err(failed)?;
        self.applied.store(position, Ordering::Release);
        Ok(())
    }

    fn position(&self) -> Result<u64, StoreError> {
        let Some(stored) = self.keys.get(POSITION_KEY).map_err(failed)? else { return Ok(0) };
        let bytes = stored.first_chunk::<8>().ok_or_else(corrupt)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn persist(&self) -> Result<u64, StoreError> {
        let position = self.applied.load(Ordering::Acquire);
        self.database.persist(PersistMode::SyncData).map_err(failed)?;
        Ok(position)
    }
}

fn split(stored: &[u8]) -> Result<(u64, &[u8]), StoreError> {
    let (version, value) = stored.split_first_chunk::<VERSION_BYTES>().ok_or_else(corrupt)?;
    Ok((u64::from_le_bytes(*version), value))
}

fn corrupt() -> StoreError {
    StoreError::Corrupt { what: "a value of the key-value engine".into() }
}

fn failed(error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) => StoreError::Io(error),
        other => StoreError::Corrupt { what: format!("the key-value engine ({other})") },
    }
}
