//! What an OST counts, for those who measure.

use service::RangeCounts;

/// Figures of an OST's ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Ranges that are held now.
    pub held: usize,
    /// Requests for ranges.
    pub enqueues: u64,
    /// Those that were granted without waiting.
    pub granted_at_once: u64,
    /// Requests for ranges, and accesses without one, that had to wait.
    pub waits: u64,
    /// Callbacks for ranges.
    pub revocations: u64,
    /// Those for want of room, of all that a client holds of an object.
    pub reclaims: u64,
    /// Requests that were told to go without.
    pub contended: u64,
    /// Grants of what another session could change until then.
    pub passed: u64,
    /// Callbacks that asked for what was not sent yet.
    pub glimpses: u64,
    /// Accesses that waited for the commit of what another session had changed.
    pub shared: u64,
}

impl From<RangeCounts> for TokenCounts {
    fn from(counts: RangeCounts) -> TokenCounts {
        let RangeCounts { held, enqueues, granted_at_once, waits, revocations, reclaims, contended, passed } =
            counts;
        TokenCounts {
            held,
            enqueues,
            granted_at_once,
            waits,
            revocations,
            reclaims,
            contended,
            passed,
            glimpses: 0,
            shared: 0,
        }
    }
}
