//! The merging task: has the engine merge what it got. It is the only one that does so in the normal course of things; the engine's task gives it
//! no more while too much is unmerged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::StoreError;
use crate::shared::Shared;

/// Runs until the engine's task has ended, or the store is poisoned.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let woken = shared.merge_wake.notified();
        if let Err(error) = merge_all(&shared).await {
            return shared.poison(&error);
        }
        if is_over(&shared) {
            return;
        }
        woken.await;
    }
}

async fn merge_all(shared: &Shared) -> Result<(), StoreError> {
    while !is_over(shared) {
        let engine = shared.view.engine()?;
        if !shared.rt.offload(move || engine.merge()).await? {
            break;
        }
    }
    Ok(())
}

fn is_over(shared: &Shared) -> bool {
    shared.is_poisoned() || shared.apply_ended.load(Ordering::Acquire)
}
