//! Inodes that the kernel may be about to make: nothing of them can be forgotten before.
//!
//! An answer is used when the thread that asked is scheduled, and nobody tells when that was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proto::Fid;

/// How long after an answer the kernel may still be about to make the inode that it tells of, which it cannot be told
/// to forget before. It is a matter of the application's thread being scheduled.
const SETTLING: Duration = Duration::from_millis(20);
/// Files whose last answer is remembered; those that share a place are taken for each other.
const RECENT: usize = 4096;

/// When an answer told of an inode that the kernel may keep.
pub struct Settling {
    start: Instant,
    /// Milliseconds since the start, and one.
    at: Box<[AtomicU64]>,
}

impl Default for Settling {
    fn default() -> Settling {
        Settling { start: Instant::now(), at: (0..RECENT).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Settling {
    fn place(&self, fid: Fid) -> Option<&AtomicU64> {
        let mixed = (fid.seq ^ u64::from(fid.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.at.get((mixed >> 40) as usize % RECENT)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + 1
    }

    /// An answer that lets the kernel keep attributes of `fid` is sent.
    pub fn told(&self, fid: Fid) {
        if let Some(place) = self.place(fid) {
            place.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The kernel has dropped the inode: it is not about to make it.
    pub fn dropped(&self, fid: Fid) {
        if let Some(place) = self.place(fid) {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the kernel may be making the inode right now.
    pub fn is_making(&self, fid: Fid) -> bool {
        let at = self.place(fid).map_or(0, |place| place.load(Ordering::Relaxed));
        at != 0 && self.now().saturating_sub(at) <= SETTLING.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn an_inode_settles_for_a_while() {
        let settling = Settling::default();
        assert!(!settling.is_making(FID));
        settling.told(FID);
        assert!(settling.is_making(FID));
        let early = Settling { start: settling.start - 2 * SETTLING, at: settling.at };
        assert!(!early.is_making(FID));
    }
}
