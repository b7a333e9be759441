//! Every limit of the store, with its name and unit.

use std::time::Duration;

use proto::TargetKind;

use crate::reserve::Sizes;

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
    /// Bytes of small changes that the engine gathers in memory before they become a table.
    pub engine_memory_bytes: u64,
    /// Bytes of a table of the engine: the smaller, the less space it needs to merge some.
    pub engine_target_bytes: u64,
    /// Tables that the engine has not merged yet beyond which reads get slow, merging takes much space, and no more should be added.
    pub engine_unmerged_max: usize,
    /// Bytes of what was removed beyond which they are merged away though there is room.
    pub engine_stale_max: u64,
    /// What is kept back of the disk.
    pub reserve: Sizes,
    /// Bytes that objects leave on the disk. More than the reserve of an MDT that may be on the same one: space that was
    /// allocated for objects ahead of need shall not be what it lacks.
    pub left_by_objects: u64,
}

/// Part of a process's memory that its targets may use together: besides them a mount keeps data and names there, and an allocator needs up to
/// half as much again as what is in use.
const TARGETS_PART: u64 = 3;
/// What is kept for the engine is set when a target is opened; others of the process may be opened later. So many are thought of.
const TARGETS_EXPECTED: u64 = 8;
/// Whatever the memory, a target may use so many bytes for each of its purposes.
const PURPOSE_BYTES_MIN: u64 = 1 << 20;

impl Limits {
    /// What is set once, for a target of a process that may use `memory` bytes.
    pub(crate) fn within(self, memory: u64) -> Limits {
        let eighth = (memory / TARGETS_PART / TARGETS_EXPECTED / 8).max(PURPOSE_BYTES_MIN);
        Limits {
            engine_cache_bytes: self.engine_cache_bytes.min(eighth),
            engine_memory_bytes: self.engine_memory_bytes.min(eighth),
            ..self
        }
    }

    /// What counts now, for a target whose share of its process's memory is `share` bytes.
    pub(crate) fn scaled(&self, share: u64) -> Limits {
        let part = |limit: u64, parts: u64| limit.min((share / TARGETS_PART / parts).max(PURPOSE_BYTES_MIN));
        Limits {
            unsynced_bytes_max: part(self.unsynced_bytes_max, 8),
            unapplied_bytes_max: part(self.unapplied_bytes_max, 4),
            apply_after_bytes: part(self.apply_after_bytes, 8),
            apply_bytes: part(self.apply_bytes, 8),
            table_bytes_max: part(self.table_bytes_max, 4),
            ..*self
        }
    }
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
            engine_memory_bytes: 16 << 20,
            engine_target_bytes: 16 << 20,
            engine_unmerged_max: 12,
            engine_stale_max: 16 << 20,
            reserve: Sizes { pieces: 128 << 20, margin: 256 << 20 },
            left_by_objects: 320 << 20,
        }
    }
}

/// Parts of a disk that log and engine may take, as divisors. They are so small that what lies in both at once, and what merging takes
/// for a while, fits into the reserve: one table of a level may overlap a quarter of the next one, some 25 tables. A level that takes less than
/// a few batches of the log's would be merged on at each of them.
const LOG_PART: u64 = 32;
/// A part of the disk for the pieces of the reserve, and as much again for its margin, as a divisor: of an MDT, whose engine is most of what
/// it has, and of others.
const RESERVE_PART_MDT: u64 = 16;
const RESERVE_PART: u64 = 64;
/// Disks from this size on are large: parts of them mean nothing, and the engine may have a journal of its own, which takes
/// 64 MiB and more.
const LARGE_DISK_BYTES: u64 = 8 << 30;

impl Limits {
    /// The limits of a target of this kind on a disk of `total` bytes.
    pub fn of_disk(total: u64, kind: TargetKind) -> Limits {
        const MIB: u64 = 1 << 20;
        let large = Limits::default();
        let part = |divisor: u64, least: u64, most: u64| (total / divisor).clamp(least, most);
        let log = part(LOG_PART, 4 * MIB, large.log_bytes_max);
        let reserve = match kind {
            TargetKind::Mdt => Sizes {
                pieces: part(RESERVE_PART_MDT, 4 * MIB, large.reserve.pieces),
                margin: part(RESERVE_PART_MDT, 4 * MIB, large.reserve.margin),
            },
            TargetKind::Ost => Sizes {
                pieces: part(RESERVE_PART, 2 * MIB, 64 * MIB),
                margin: part(RESERVE_PART, 2 * MIB, 64 * MIB),
            },
            TargetKind::Mgs => Sizes {
                pieces: part(RESERVE_PART, 2 * MIB, 8 * MIB),
                margin: part(RESERVE_PART, MIB, 8 * MIB),
            },
        };
        let apply_bytes = (log / 8).clamp(MIB, large.apply_bytes);
        let is_large = total >= LARGE_DISK_BYTES;
        Limits {
            segment_bytes: (log / 8).clamp(MIB, large.segment_bytes),
            allocate_bytes: (log / 16).clamp(MIB / 4, large.allocate_bytes),
            unsynced_bytes_max: (log / 4).clamp(MIB, large.unsynced_bytes_max),
            unapplied_bytes_max: (log / 2).clamp(2 * MIB, large.unapplied_bytes_max),
            log_bytes_max: log,
            apply_after_bytes: (log / 8).clamp(MIB, large.apply_after_bytes),
            apply_bytes,
            engine_table_bytes_min: if is_large { large.engine_table_bytes_min } else { MIB / 64 },
            engine_memory_bytes: part(RESERVE_PART, MIB, large.engine_memory_bytes),
            engine_target_bytes: apply_bytes / 2,
            engine_unmerged_max: if is_large { large.engine_unmerged_max } else { 6 },
            left_by_objects: (total / RESERVE_PART_MDT + total / RESERVE_PART).min(large.left_by_objects),
            reserve,
            ..large
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may lie in log and engine at once has to fit into what is kept back.
    #[test]
    fn the_reserve_is_enough_for_what_is_under_way() {
        for kind in [TargetKind::Mdt, TargetKind::Ost, TargetKind::Mgs] {
            for shift in 24..50 {
                let total = 1 << shift;
                let Limits { reserve, log_bytes_max, apply_after_bytes, segment_bytes, .. } =
                    Limits::of_disk(total, kind);
                assert!(
                    apply_after_bytes + segment_bytes < log_bytes_max,
                    "the log is cut before it is full"
                );
                assert!(reserve.pieces + reserve.margin <= total / 2, "{total}");
                if shift > 40 {
                    assert_eq!(Limits::of_disk(total, TargetKind::Mdt).log_bytes_max, 1 << 30);
                }
            }
        }
    }

    #[test]
    fn with_little_memory_less_is_kept() {
        let share = (512 << 20) / 6;
        let limits = Limits::default().within(512 << 20).scaled(share);
        // Besides the table and the records before the engine: the part that is being applied, and what the engine keeps.
        let sum = limits.table_bytes_max
            + limits.unapplied_bytes_max
            + limits.unsynced_bytes_max
            + limits.apply_bytes
            + limits.engine_cache_bytes
            + 2 * limits.engine_memory_bytes;
        assert!(sum <= share / 2, "{limits:?}");
        assert!(limits.apply_after_bytes <= limits.unapplied_bytes_max, "{limits:?}");
        let (plenty, default) = (Limits::default().within(64 << 30).scaled(8 << 30), Limits::default());
        assert_eq!(plenty.table_bytes_max, default.table_bytes_max);
        assert_eq!(plenty.engine_cache_bytes, default.engine_cache_bytes);
    }
}
