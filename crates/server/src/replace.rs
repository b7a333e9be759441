//! Makes a new target one that takes the place of a lost or a removed one (`docs/operations.md#replace`).

use rt::Rt;
use service::replaced;
use store::{Batch, Store, StoreError};

/// Has the new target in `path` take the place of another one. It begins behind all starts that the other one can have had, and, as soon as
/// the MGS has let it, behind all its changes: who remembers those takes it for a later state, which knows nothing of him, and not
/// for an older copy.
///
/// # Errors
/// The directory cannot be opened.
pub async fn replace_lost(rt: &Rt, path: &str) -> Result<(), StoreError> {
    let shared = !Store::read_label(rt, path).await?.service.is_empty();
    // Starts of a target with service nodes are numbered by its owners.
    let store = if shared { Store::open(rt, path).await } else { Store::open_copy(rt, path).await }?;
    let begun = begin(&store).await;
    store.close().await?;
    begun
}

async fn begin(store: &Store) -> Result<(), StoreError> {
    let changes = vec![replaced::change(replaced::UNKNOWN)];
    let transno = store.commit(Batch { changes, ..Batch::default() })?;
    store.committed(transno).await
}
