//! The memory of a mount for bytes that nobody has read yet.
//!
//! It refuses and never evicts: what was fetched stays until somebody reads it, or until its owner says that it is lost or given up.

/// Accounts of bytes that are ahead of all readers of a mount, asked for or there. At every moment
/// `granted = held + used + dropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    held: u64,
    granted: u64,
    used: u64,
    dropped: u64,
}

impl Budget {
    /// Bytes that are ahead now, asked for or there (`used_read_ahead_mb`).
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Bytes that were asked for ahead since the mount.
    pub fn granted_bytes(&self) -> u64 {
        self.granted
    }

    /// Bytes of these that somebody read.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Bytes of these that nobody read: lost, or given up.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped
    }

    /// Grants `bytes` if not more than `max` are held then; all of them or none.
    pub(super) fn grant(&mut self, bytes: u64, max: u64) -> bool {
        let held = self.held.saturating_add(bytes);
        if held > max {
            return false;
        }
        self.held = held;
        self.granted += bytes;
        true
    }

    /// Granted bytes were read.
    pub(super) fn use_bytes(&mut self, bytes: u64) {
        self.give(bytes);
        self.used += bytes;
    }

    /// Granted bytes are gone, and nobody read them.
    pub(super) fn drop_bytes(&mut self, bytes: u64) {
        self.give(bytes);
        self.dropped += bytes;
    }

    fn give(&mut self, bytes: u64) {
        assert!(bytes <= self.held, "what is given back was granted before");
        self.held -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_and_does_not_evict() {
        let mut budget = Budget::default();
        assert!(budget.grant(60, 100) && budget.grant(40, 100));
        assert!(!budget.grant(1, 100));
        assert!(!budget.grant(u64::MAX, 100));
        budget.use_bytes(30);
        assert!(!budget.grant(31, 100) && budget.grant(30, 100));
        budget.drop_bytes(100);
        let accounts =
            (budget.held_bytes(), budget.granted_bytes(), budget.used_bytes(), budget.dropped_bytes());
        assert_eq!(accounts, (0, 130, 30, 100));
    }

    #[test]
    fn a_maximum_that_falls_takes_nothing_away() {
        let mut budget = Budget::default();
        assert!(budget.grant(100, 100));
        assert!(!budget.grant(1, 50));
        assert_eq!(budget.held_bytes(), 100);
        budget.use_bytes(60);
        assert!(budget.grant(10, 50));
    }
}
