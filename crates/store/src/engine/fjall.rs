//! The engine of production: fjall, a log-structured merge tree in files of its own.
//!
//! One keyspace holds the keys and, under a reserved key behind all others, the position. A large batch becomes
//! sorted tables at once, without the detour over fjall's journal and memory table; they are registered together. A
//! small one goes through the journal, which is not synced per batch; its changes and the position lie in the same
//! journal batch and the same memory table. So neither a crash nor a flush separates them. Values are stored as
//! version (8 bytes, little endian) and bytes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Readable, SeqNo, Snapshot,
};
use parking_lot::Mutex;
use rt::os::disk::tree;
use xxhash_rust::xxh3::xxh3_128;

use super::{Engine, Frozen, Item, Space, Visit};
use crate::error::StoreError;
use crate::limits::{KEY_RESERVED, Limits};

const KEYSPACE: &str = "data";
const POSITION_KEY: [u8; 9] = [KEY_RESERVED, b'p', b'o', b's', b'i', b't', b'i', b'o', b'n'];
const VERSION_BYTES: usize = 8;
/// Threads of the library's own. They make tables of what is in memory, and merge nothing.
const WORKERS: usize = 1;
/// Tables and bytes of a level before the library's own thread would merge it: never so many. It may still move tables that overlap
/// nothing in the levels below.
const NEVER_TABLES: u8 = u8::MAX;
const NEVER_BYTES: u64 = 1 << 40;
/// Bytes of the journal beyond which what is in memory becomes a table, so that the journal can go: the least that fjall takes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of a file that names tables: each takes 33.
const NAMING_BYTES_MAX: u64 = 256 << 20;

/// Most bytes of the file with the library's version: it has four.
const VERSION_FILE_BYTES_MAX: u64 = 4096;

/// A fjall database.
pub(crate) struct FjallEngine {
    // Before the database: its handle has to go first.
    pub(super) keys: Keyspace,
    pub(super) database: Database,
    applied: AtomicU64,
    /// How many calls write something now.
    at_work: AtomicU64,
    /// Held by the one that merges. The library can merge in several threads, but two merges at once may leave tables of one level that
    /// overlap; the next merge then drops a removal whose value it does not see, and the value is back.
    pub(super) merging: Mutex<()>,
    /// How many merge, or wait for that.
    merges: AtomicU64,
    /// The moments as of which somebody reads, and how many do. Merging leaves alone what they see.
    frozen: Mutex<BTreeMap<SeqNo, usize>>,
    /// Bytes of a table.
    pub(super) target_bytes: u64,
    /// Batches of at least so many bytes become tables at once.
    table_bytes_min: u64,
    unmerged_max: usize,
}

impl FjallEngine {
    /// Opens the database in the directory `path`, or makes one.
    pub(crate) fn open(path: &Path, limits: &Limits) -> Result<FjallEngine, StoreError> {
        check_version(path)?;
        check_tables_named(path)?;
        let engine = FjallEngine::open_files(path, limits).map_err(|error| not_opened(path, error))?;
        engine.applied.store(engine.position()?, Ordering::Relaxed);
        Ok(engine)
    }

    fn open_files(path: &Path, limits: &Limits) -> Result<FjallEngine, fjall::Error> {
        let database = Database::builder(path)
            .cache_size(limits.engine_cache_bytes)
            .manual_journal_persist(true)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(WORKERS)
            .open()?;
        let never = Leveled::default().with_l0_threshold(NEVER_TABLES).with_table_target_size(NEVER_BYTES);
        let options = || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(limits.engine_memory_bytes)
                .compaction_strategy(Arc::new(never))
        };
        let keys = database.keyspace(KEYSPACE, options)?;
        Ok(FjallEngine {
            keys,
            database,
            applied: AtomicU64::new(0),
            at_work: AtomicU64::new(0),
            merging: Mutex::new(()),
            merges: AtomicU64::new(0),
            frozen: Mutex::default(),
            target_bytes: limits.engine_target_bytes,
            table_bytes_min: limits.engine_table_bytes_min,
            unmerged_max: limits.engine_unmerged_max,
        })
    }

    /// Of what was changed before this only the newest is read: by those who read now, whoever begins to read later, and as of the
    /// moments that are frozen. A scan keeps the tables that it began with.
    pub(super) fn watermark(&self) -> SeqNo {
        let frozen = self.frozen.lock();
        frozen.keys().next().copied().unwrap_or_else(|| self.database.visible_seqno())
    }

    /// Writes `items` and `position` as tables of their own.
    fn add_tables(&self, items: &[Item], position: u64) -> Result<(), StoreError> {
        let mut tables = self.keys.start_ingestion().map_err(failed)?;
        let mut stored = Vec::new();
        for item in items {
            if encode(item, &mut stored) {
                tables.write(&item.key[..], &stored[..]).map_err(failed)?;
            } else {
                tables.write_tombstone(&item.key[..]).map_err(failed)?;
            }
        }
        tables.write(POSITION_KEY, position.to_le_bytes()).map_err(failed)?;
        tables.finish().map_err(failed)
    }

    /// Writes `items` and `position` through the journal.
    fn add_batch(&self, items: &[Item], position: u64) -> Result<(), StoreError> {
        let mut batch = self.database.batch();
        let mut stored = Vec::new();
        for item in items {
            if encode(item, &mut stored) {
                batch.insert(&self.keys, &item.key[..], &stored[..]);
            } else {
                batch.remove(&self.keys, &item.key[..]);
            }
        }
        batch.insert(&self.keys, POSITION_KEY, position.to_le_bytes());
        batch.commit().map_err(failed)
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
        show(self.keys.range(from..until), visit)
    }

    fn freeze(self: Arc<Self>) -> Result<Arc<dyn Frozen>, StoreError> {
        let mut frozen = self.frozen.lock();
        let snapshot = self.database.snapshot();
        *frozen.entry(snapshot.seqno()).or_default() += 1;
        drop(frozen);
        Ok(Arc::new(FrozenKeys { snapshot, engine: self }))
    }

    fn apply(&self, items: Vec<Item>, position: u64) -> Result<(), StoreError> {
        let _at_work = AtWork::begin(&self.at_work);
        let size = |item: &Item| (item.key.len() + item.value.as_ref().map_or(0, Bytes::len)) as u64;
        if items.iter().map(size).sum::<u64>() >= self.table_bytes_min {
            self.add_tables(&items, position)?;
        } else {
            self.add_batch(&items, position)?;
        }
        self.applied.store(position, Ordering::Release);
        Ok(())
    }

    fn is_behind(&self) -> Result<bool, StoreError> {
        self.check()?;
        // When nobody merges, there is nothing that waiting would help.
        Ok(self.keys.l0_table_count() > self.unmerged_max && self.merges.load(Ordering::Relaxed) > 0)
    }

    fn is_busy(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
            || self.merges.load(Ordering::Relaxed) > 0
            || self.keys.sealed_memtable_count() > 0
    }

    fn check(&self) -> Result<(), StoreError> {
        // Fails if a worker has failed; then nothing is merged any more.
        self.database.persist(PersistMode::Buffer).map_err(failed)
    }

    fn merge(&self) -> Result<bool, StoreError> {
        let _counted = AtWork::begin(&self.merges);
        let _merging = self.merging.lock();
        let before = self.version();
        let strategy = Leveled::default().with_table_target_size(self.target_bytes);
        let watermark = self.watermark();
        self.keys.tree.compact(Arc::new(strategy), watermark).map_err(|error| failed(error.into()))?;
        self.forget_merged()?;
        Ok(self.version() != before)
    }

    fn space(&self) -> Space {
        Space { all: self.keys.disk_space(), stale: self.estimate_stale() }
    }

    fn tidy(&self, room: u64) -> Result<bool, StoreError> {
        let _at_work = AtWork::begin(&self.at_work);
        self.tidy_step(room)
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

/// The keys as of one moment.
struct FrozenKeys {
    // Before the engine: the library counts who reads.
    snapshot: Snapshot,
    engine: Arc<FjallEngine>,
}

impl Frozen for FrozenKeys {
    fn get(&self, key: &[u8]) -> Result<Option<(Bytes, u64)>, StoreError> {
        let Some(stored) = self.snapshot.get(&self.engine.keys, key).map_err(failed)? else {
            return Ok(None);
        };
        let (version, value) = split(&stored)?;
        Ok(Some((Bytes::copy_from_slice(value), version)))
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        show(self.snapshot.range(&self.engine.keys, from..until), visit)
    }
}

impl Drop for FrozenKeys {
    fn drop(&mut self) {
        let mut frozen = self.engine.frozen.lock();
        if let Some(count) = frozen.get_mut(&self.snapshot.seqno()) {
            *count -= 1;
        }
        frozen.retain(|_, count| *count > 0);
    }
}

/// Shows `visit` what `found` gives, until it has enough.
fn show(found: fjall::Iter, visit: Visit<'_>) -> Result<(), StoreError> {
    for guard in found {
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

/// A call that writes something.
struct AtWork<'a>(&'a AtomicU64);

impl AtWork<'_> {
    fn begin(count: &AtomicU64) -> AtWork<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        AtWork(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Puts what is stored of the item's value into `stored`; whether it has one.
fn encode(item: &Item, stored: &mut Vec<u8>) -> bool {
    let Some(value) = &item.value else { return false };
    stored.clear();
    stored.extend_from_slice(&item.version.to_le_bytes());
    stored.extend_from_slice(value);
    true
}

fn split(stored: &[u8]) -> Result<(u64, &[u8]), StoreError> {
    let (version, value) = stored.split_first_chunk::<VERSION_BYTES>().ok_or_else(corrupt)?;
    Ok((u64::from_le_bytes(*version), value))
}

fn corrupt() -> StoreError {
    StoreError::Corrupt { what: "a value of the key-value engine".into() }
}

pub(super) fn failed(error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => StoreError::Io(error),
        // A thread of the engine could not write, and has said why.
        fjall::Error::Poisoned => StoreError::Io(io::Error::other("the key-value engine has failed")),
        other => {
            tracing::error!(cause = cause(&other), "the key-value engine cannot be read");
            StoreError::Corrupt { what: "a file of the key-value engine".into() }
        }
    }
}

/// Why the engine in `path` cannot be opened. Its files were there and whole when they were last written.
fn not_opened(path: &Path, error: fjall::Error) -> StoreError {
    let why = match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => match error.kind() {
            io::ErrorKind::NotFound => "a file that it needs is missing",
            io::ErrorKind::UnexpectedEof => "a file is too short",
            io::ErrorKind::InvalidData => "a file is not what was written",
            _ => return StoreError::Io(error),
        },
        fjall::Error::Locked => return StoreError::Io(io::ErrorKind::WouldBlock.into()),
        fjall::Error::Poisoned => return failed(error),
        other => cause(&other),
    };
    damaged(path, why)
}

fn damaged(path: &Path, why: &str) -> StoreError {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    StoreError::Damaged(format!("the key-value engine in {name} is damaged: {why}"))
}

/// Checks the length of the file that tells the library's version: the library reads all of it.
fn check_version(path: &Path) -> Result<(), StoreError> {
    match tree::read_file(&path.join("version"), VERSION_FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(damaged(path, "its file version is too long"))
        }
        version => Ok(version.map(drop)?),
    }
}

/// Checks that the tables of a keyspace are files: the library ends the process where one is a directory.
fn check_tables(path: &Path, keyspace: &Path) -> Result<(), StoreError> {
    let tables = match tree::entries(&keyspace.join("tables")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        tables => tables?,
    };
    for table in tables {
        match tree::read_file(&table, 0) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let name = table.strip_prefix(path).unwrap_or(&table).display();
                return Err(damaged(path, &format!("its file {name} is a directory")));
            }
            // It has something to read, or is gone.
            Err(error) if matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::NotFound) => {}
            table => drop(table?),
        }
    }
    Ok(())
}

/// Checks the files that name the tables of each keyspace in the engine `path`: `keyspaces/N/current` holds the number of a file `vNUMBER` beside
/// it (8 bytes, little endian) and the XXH3 of that file's bytes (16 bytes). The library looks at neither before it believes what
/// the second file says, and ends the process where that makes no sense.
fn check_tables_named(path: &Path) -> Result<(), StoreError> {
    let keyspaces = match tree::entries(&path.join("keyspaces")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        keyspaces => keyspaces?,
    };
    for keyspace in keyspaces {
        let name = keyspace.file_name().unwrap_or_default().to_string_lossy();
        let current = match tree::read_file(&keyspace.join("current"), NAMING_BYTES_MAX) {
            // A keyspace that was being made: the library makes it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            current => current?,
        };
        let (Some(number), Some(sum)) =
            (current.first_chunk(), current.get(8..).and_then(<[u8]>::first_chunk))
        else {
            return Err(damaged(path, &format!("its file keyspaces/{name}/current is too short")));
        };
        let named = format!("v{}", u64::from_le_bytes(*number));
        let tables = match tree::read_file(&keyspace.join(&named), NAMING_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!("its file keyspaces/{name}/current names {named}, which is not there");
                return Err(damaged(path, &why));
            }
            tables => tables?,
        };
        if xxh3_128(&tables) != u128::from_le_bytes(*sum) {
            let why = format!(
                "its file keyspaces/{name}/{named} is not the one that keyspaces/{name}/current names"
            );
            return Err(damaged(path, &why));
        }
        check_tables(path, &keyspace)?;
    }
    Ok(())
}

/// What is wrong with what the library found, in words.
fn cause(error: &fjall::Error) -> &'static str {
    use fjall::Error as E;
    match error {
        E::Storage(LsmError::ChecksumMismatch { .. }) => "a file does not match its checksum",
        E::Storage(LsmError::Unrecoverable) | E::Unrecoverable => {
            "a file that it needs is missing, or is not what was written"
        }
        E::Storage(LsmError::InvalidVersion(_)) | E::InvalidVersion(_) => {
            "a file has a version that this program does not know"
        }
        E::JournalRecovery(_) => "its journal is not what was written",
        E::KeyspaceDeleted => "its keys were removed",
        _ => "a file is not what was written",
    }
}
