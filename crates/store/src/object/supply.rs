//! When data files are made, and how long: enough of them for what is written next, and for what takes the place of something else
//! when the disk is full.

use std::sync::atomic::{AtomicU32, Ordering};

use rt::sync::Semaphore;

use super::extent::{BLOCK, EXTENT_BYTES_MAX, FileId};
use crate::target::Need;

/// Largest data file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Smallest data file, in bytes. Holds the largest extent.
pub(super) const FILE_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(FILE_BYTES_MIN >= EXTENT_BYTES_MAX && FILE_BYTES_MAX / BLOCK < u32::MAX as u64);
/// Largest free space that only overwrites take: as much as they give back, they take for the moment of a commit. So
/// space that is reserved or written can be written again however full the disk is. In bytes.
const OVERWRITE_BYTES_MAX: u64 = 8 << 20;
/// When the first data file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// When the target is opened.
    AtOnce,
    /// When it is needed.
    WithTheFirstWrite,
}

/// How data files are made.
pub(super) struct Supply {
    /// One file is made at a time.
    pub preparing: Semaphore,
    next_seq: AtomicU32,
    /// A file is made when fewer free blocks than this are left.
    ahead: AtomicU32,
    /// Free blocks that only overwrites take.
    pub overwrite_blocks: u64,
}

impl Supply {
    /// On a disk of `total` bytes.
    pub fn new(total: u64, ready: Ready) -> Supply {
        Supply {
            preparing: Semaphore::new(1),
            next_seq: AtomicU32::new(0),
            ahead: AtomicU32::new(u32::from(ready == Ready::AtOnce)),
            overwrite_blocks: (total / 64).min(OVERWRITE_BYTES_MAX) / BLOCK,
        }
    }

    /// The name of the next file.
    pub fn next_id(&self, boot: u64) -> FileId {
        FileId { boot, seq: self.next_seq.fetch_add(1, Ordering::Relaxed) }
    }

    /// A file of so many blocks was made.
    pub fn made(&self, blocks: u32) {
        self.ahead.store(blocks / 2, Ordering::Relaxed);
    }

    /// Free blocks that are kept for what is written next: two files like the last one, and those that only overwrites take.
    pub fn kept_blocks(&self) -> u64 {
        self.overwrite_blocks.max(4 * self.ahead())
    }

    /// A file is made when fewer free blocks than this are left.
    pub fn ahead(&self) -> u64 {
        u64::from(self.ahead.load(Ordering::Relaxed))
    }

    /// How long a file is made if the disk has `available` bytes, of which objects leave `kept` to others; `None` if that is too little.
    pub fn file_bytes(&self, need: Need, available: u64, kept: u64) -> Option<u64> {
        let bytes = (available.saturating_sub(kept) / 8).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let (least, kept) = match need {
            Need::Growth => (bytes, kept),
            Need::Release => {
                let overwrites = self.overwrite_blocks * BLOCK;
                (overwrites.min(FILE_BYTES_MIN) / 2, kept.saturating_sub(overwrites))
            }
        };
        let bytes = bytes.min(available.saturating_sub(kept));
        (bytes >= least.max(BLOCK)).then_some(bytes / BLOCK * BLOCK)
    }
}
