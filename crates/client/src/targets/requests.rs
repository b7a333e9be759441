//! How many requests were sent, by operation.

use proto::wire::messages::Operation;

use crate::order::{LEAF, Mutex};

/// Operations that are counted one by one.
const OPERATIONS: usize = 128;

/// Requests by operation.
pub(crate) struct Requests {
    counts: Mutex<LEAF, [(&'static str, u64); OPERATIONS]>,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests { counts: Mutex::new([("", 0); OPERATIONS]) }
    }

    /// A request is sent.
    pub(crate) fn count<O: Operation>(&self) {
        let mut counts = self.counts.lock();
        if let Some(entry) = counts.get_mut(O::OPCODE as usize) {
            *entry = (O::NAME, entry.1 + 1);
        }
    }

    /// How many there were of each operation that was used, by its name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.lock().iter().filter(|(_, count)| *count > 0).copied().collect()
    }
}
