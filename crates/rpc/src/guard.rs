//! What guards the connections of a process: its keys, and what is demanded of each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::seal::Protection;

use crate::frame::BulkChecksum;
use crate::keys::Keys;
use crate::protect::Protect;

/// The guard of one process.
pub(crate) struct Guard {
    pub(crate) keys: Keys,
    bulk_checksum: AtomicBool,
    protect: OnceLock<Protect>,
}

impl Guard {
    pub(crate) fn new(keys: Keys) -> Guard {
        Guard { keys, bulk_checksum: AtomicBool::new(true), protect: OnceLock::new() }
    }

    /// See [`crate::Hub::set_bulk_checksum`].
    pub(crate) fn set_bulk_checksum(&self, on: bool) {
        self.bulk_checksum.store(on, Ordering::Relaxed);
    }

    /// Whether bulk gets a checksum on a connection that is protected so.
    pub(crate) fn checksums(&self, protection: Protection) -> BulkChecksum {
        let is_added = protection < Protection::Frames && self.bulk_checksum.load(Ordering::Relaxed);
        if is_added { BulkChecksum::Added } else { BulkChecksum::Left }
    }

    /// See [`crate::Hub::set_protect`].
    pub(crate) fn set_protect(&self, protect: Protect) {
        assert!(self.protect.set(protect).is_ok(), "protection is set once");
    }

    pub(crate) fn protect(&self) -> &Protect {
        self.protect.get_or_init(Protect::default)
    }
}
