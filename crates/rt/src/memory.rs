//! The memory that a process may use, and the shares of it that its parts take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What every process of a simulation may use, in bytes: so much that no limit depends on it.
pub(crate) const SIM_BYTES: u64 = 64 << 30;

/// The memory of a process.
pub(crate) struct Memory {
    bytes: u64,
    shares: Arc<AtomicUsize>,
}

impl Memory {
    /// `bytes` in all, of which nobody has a share.
    pub(crate) fn new(bytes: u64) -> Memory {
        Memory { bytes, shares: Arc::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn share(&self) -> Share {
        self.shares.fetch_add(1, Ordering::Relaxed);
        Share { bytes: self.bytes, shares: self.shares.clone() }
    }
}

/// A share of a process's memory, the same for everybody who has one; given back when dropped.
#[derive(Debug)]
pub struct Share {
    bytes: u64,
    shares: Arc<AtomicUsize>,
}

impl Share {
    /// All of `bytes`, for somebody alone.
    pub fn of(bytes: u64) -> Share {
        Memory::new(bytes).share()
    }

    /// How much it is now, in bytes: less when somebody else gets one.
    pub fn bytes(&self) -> u64 {
        self.bytes / self.shares.load(Ordering::Relaxed).max(1) as u64
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_go_back() {
        let memory = Memory::new(1200);
        let one = memory.share();
        assert_eq!(one.bytes(), 1200);
        let two = memory.share();
        assert_eq!((one.bytes(), two.bytes()), (600, 600));
        drop(one);
        assert_eq!(two.bytes(), 1200);
    }
}
