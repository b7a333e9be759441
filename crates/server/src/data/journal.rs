//! When a change is answered: before or after its metadata is durable.
//!
//! A write is answered when its data has been given to the disk; its metadata follows with the next group commit, and until then
//! the client can repeat it (`docs/recovery.md#promises`). A write that says `sync` is answered only when it is durable; with
//! `sync_journal` each change is: the old way of Lustre's servers, whose journal of the local file system was written for each request. It is there to compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::parameters::{Parameter, SWITCH, TargetTree, Unit, switch};
use proto::{Code, Transno};
use service::code_of;
use store::Store;

/// The parameter, and what it does.
pub(super) struct Journal {
    store: Arc<Store>,
    is_sync: AtomicBool,
}

impl Journal {
    pub fn new(store: Arc<Store>) -> Journal {
        Journal { store, is_sync: AtomicBool::new(false) }
    }

    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let is_sync =
            Parameter::gauge("sync_journal", Unit::None, || u8::from(self.is_sync.load(Ordering::Relaxed)));
        tree.of_device(is_sync.settable(SWITCH, |text: &str| {
            self.is_sync.store(switch(text)?, Ordering::Relaxed);
            Ok(())
        }));
    }

    /// Waits until a change is durable, if all are to be.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn settle(&self, transno: Transno) -> Result<(), Code> {
        if self.is_sync.load(Ordering::Relaxed) { self.sync(transno).await } else { Ok(()) }
    }

    /// Waits until a change is durable.
    ///
    /// # Errors
    /// The commit failed: the target stops.
    pub async fn sync(&self, transno: Transno) -> Result<(), Code> {
        self.store.committed(transno).await.map_err(|error| code_of(&error))
    }
}
