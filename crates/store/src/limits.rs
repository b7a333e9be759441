//! Every limit of the store, with its name and unit.

use std::time::Duration;

/// Longest key, in bytes (what the engine can hold).
pub const KEY_BYTES_MAX: usize = 65_535;
/// Largest batch as it lies in the log, in bytes.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// A record takes no further batch once its body has this many bytes.
pub const RECORD_BYTES_TARGET: usize = 1 << 20;
/// Largest body of a record that a reader accepts, in bytes.
pub const RECORD_BYTES_MAX: usize = RECORD_BYTES_TARGET + BATCH_BYTES_MAX;
/// Unit of all offsets in a segment file, in bytes: what a disk takes without a copy.
pub const BLOCK_BYTES: usize = rt::buf::ALIGN;
/// First byte of a key that only the store itself uses.
pub const KEY_RESERVED: u8 = 0xff;

/// Limits that tests make smaller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Longest time that a change waits for a group commit.
    pub commit_after: Duration,
    /// Pending bytes that start a group commit at once.
    pub commit_bytes: u64,
    /// Bytes after which a segment file gets no further record.
    pub segment_bytes: u64,
    /// Segment files grow by at most this many bytes at a time, ahead of the records.
    pub allocate_bytes: u64,
    /// Bytes that are not yet durable; beyond them clients have to slow down.
    pub unsynced_bytes_max: u64,
    /// Bytes that the engine has not yet got; beyond them clients have to slow down.
    pub unapplied_bytes_max: u64,
    /// Bytes of all segment files; beyond them clients have to slow down.
    pub log_bytes_max: u64,
    /// Unapplied bytes that start the engine's task.
    pub apply_after_bytes: u64,
    /// Bytes that the engine gets in one batch.
    pub apply_bytes: u64,
    /// Changes of at least so many bytes become tables of the engine at once.
    pub engine_table_bytes_min: u64,
    /// Bytes of memory tables beyond which entries that the engine has are forgotten.
    pub table_bytes_max: u64,
    /// Bytes of blocks that the engine keeps in memory.
    pub engine_cache_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            commit_after: Duration::from_millis(200),
            commit_bytes: 4 << 20,
            segment_bytes: 64 << 20,
            allocate_bytes: 8 << 20,
            unsynced_bytes_max: 64 << 20,
            unapplied_bytes_max: 256 << 20,
            log_bytes_max: 1 << 30,
            apply_after_bytes: 32 << 20,
            apply_bytes: 32 << 20,
            engine_table_bytes_min: 1 << 20,
            table_bytes_max: 256 << 20,
            engine_cache_bytes: 64 << 20,
        }
    }
}
