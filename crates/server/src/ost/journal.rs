//! When a change is answered: before or after its metadata is durable.
//!
//! A write is answered when its data has been given to the disk; its metadata follows with the next group commit, and until then
//! the client can repeat it (`docs/recovery.md#promises`). With `sync_journal` each change is answered only when it is durable:
//! the old way of Lustre's servers, whose journal of the local file system was written for each request. It is there to compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::wire::messages::Parameter;
use proto::{Code, Transno};
use store::Store;

use crate::target::code_of;

/// Its name, as in Lustre's `obdfilter.*.sync_journal`.
const SYNC_JOURNAL: &str = "sync_journal";

/// The parameter, and what it does.
pub(super) struct Journal {
    store: Arc<Store>,
    is_sync: AtomicBool,
}

impl Journal {
    pub fn new(store: Arc<Store>) -> Journal {
        Journal { store, is_sync: AtomicBool::new(false) }
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        let value = u8::from(self.is_sync.load(Ordering::Relaxed));
        vec![Parameter { name: SYNC_JOURNAL.to_owned(), value: value.to_string() }]
    }

    pub fn set(&self, parameter: &Parameter) -> Result<(), Code> {
        let is_sync = match (parameter.name.as_str(), parameter.value.as_str()) {
            (SYNC_JOURNAL, "0") => false,
            (SYNC_JOURNAL, "1") => true,
            (SYNC_JOURNAL, _) => return Err(Code::Invalid),
            _ => return Err(Code::NotFound),
        };
        self.is_sync.store(is_sync, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until a change is durable, if that is wanted.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn settle(&self, transno: Transno) -> Result<(), Code> {
        if !self.is_sync.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.store.committed(transno).await.map_err(|error| code_of(&error))
    }
}
