//! When a change is answered: before or after its metadata is durable.
//!
//! A write is answered when its data has been given to the disk; its metadata follows with the next group commit, and until then
//! the client can repeat it (`docs/recovery.md#promises`). A write that says `sync` is answered only when it is durable; with
//! `sync_journal` each change is: the old way of Lustre's servers, whose journal of the local file system was written for each request. It is there to compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::wire::messages::Parameter;
use proto::{Code, Transno};
use service::code_of;
use store::Store;

/// Its name, as in Lustre's `obdfilter.*.sync_journal`.
pub(super) const SYNC_JOURNAL: &str = "sync_journal";

/// The parameter, and what it does.
pub(super) struct Journal {
    store: Arc<Store>,
    is_sync: AtomicBool,
}

impl Journal {
    pub fn new(store: Arc<Store>) -> Journal {
        Journal { store, is_sync: AtomicBool::new(false) }
    }

    pub fn parameter(&self) -> Parameter {
        let value = u8::from(self.is_sync.load(Ordering::Relaxed));
        Parameter { name: SYNC_JOURNAL.to_owned(), value: value.to_string() }
    }

    /// # Errors
    /// There is no such value.
    pub fn set(&self, value: &str) -> Result<(), Code> {
        let is_sync = match value {
            "0" => false,
            "1" => true,
            _ => return Err(Code::Invalid),
        };
        self.is_sync.store(is_sync, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until a change is durable, if all are to be or its sender asks for it.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn settle(&self, transno: Transno, wanted: bool) -> Result<(), Code> {
        if !wanted && !self.is_sync.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.store.committed(transno).await.map_err(|error| code_of(&error))
    }
}
