//! The state of the configuration that is in force, and whoever waits for another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rt::sync::Notify;

use super::table::Table;

/// The state that is in force.
pub(in crate::mdt) struct Current {
    table: RwLock<Arc<Table>>,
    /// The MGS has told what there is since this start.
    told: AtomicBool,
    /// Whether another order is being made durable. Who makes a layout holds this until its commit.
    reordering: RwLock<bool>,
    changed: Notify,
}

impl Current {
    /// The target begins with `table`; `told` if no MGS will tell more.
    pub fn new(table: Table, told: bool) -> Current {
        Current {
            table: RwLock::new(Arc::new(table)),
            told: AtomicBool::new(told),
            reordering: RwLock::new(false),
            changed: Notify::new(),
        }
    }

    /// What is known now.
    pub fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    /// Whether `table` is what is known now.
    pub fn is(&self, table: &Arc<Table>) -> bool {
        Arc::ptr_eq(&self.table.read(), table)
    }

    /// Whether the MGS has told what there is.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// The order stays as it is until the result is dropped; `None` while it changes.
    pub fn ordered(&self) -> Option<impl Sized + '_> {
        Some(self.reordering.read()).filter(|reordering| !**reordering)
    }

    /// Waits until the order does not change any more.
    pub async fn until_ordered(&self) {
        self.until(|| !*self.reordering.read()).await;
    }

    /// Waits until `condition` holds, which is asked for each state.
    pub async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    /// From now on the order changes: nobody makes a layout by it.
    pub fn begin_reordering(&self) {
        *self.reordering.write() = true;
    }

    /// The order stays as it was.
    pub fn stays(&self) {
        *self.reordering.write() = false;
        self.changed.notify_waiters();
    }

    /// Takes a new state, and gives the one before.
    pub fn replace(&self, table: Table) -> Arc<Table> {
        let before = std::mem::replace(&mut *self.table.write(), Arc::new(table));
        self.told.store(true, Ordering::Release);
        *self.reordering.write() = false;
        before
    }

    /// Everything that follows from a new state is done: whoever waits looks at it.
    pub fn announce(&self) {
        self.changed.notify_waiters();
    }
}
