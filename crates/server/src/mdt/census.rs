//! How many inodes there are, for `df -i`.

use std::sync::atomic::{AtomicU64, Ordering};

use store::{Store, StoreError};

use super::keys;

/// Inodes that one scan brings.
const SCAN_COUNT: usize = 16_384;

/// The count; exact, made by one pass over the inodes when the target is opened.
pub struct Census(AtomicU64);

impl Census {
    /// Counts the inodes of `store`.
    pub fn take(store: &Store) -> Result<Census, StoreError> {
        let (mut from, until) = (vec![keys::INODE], [keys::INODE + 1]);
        let mut count = 0;
        loop {
            let found = store.scan(&from, &until, SCAN_COUNT)?;
            count += found.len() as u64;
            match found.last() {
                Some((last, _)) if found.len() == SCAN_COUNT => {
                    from.clear();
                    from.extend_from_slice(last);
                    from.push(0);
                }
                _ => return Ok(Census(AtomicU64::new(count))),
            }
        }
    }

    /// An inode was made.
    pub fn made(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many inodes are gone.
    pub fn gone(&self, count: usize) {
        self.0.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn inodes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
