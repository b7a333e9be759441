//! Makes a new target one that takes the place of a lost or a removed one (`docs/operations.md#replace`).

use proto::Transno;
use rt::Rt;
use service::replaced;
use store::{Batch, Store, StoreError};

/// Changes in a second for which a target has numbers.
const TRANSNOS_PER_SECOND: u64 = 1 << 20;
/// What a clock counts for that is wrong.
const SECONDS_MIN: u64 = 1 << 20;
const SECONDS_MAX: u64 = 1 << 40;

/// Has the new target in `path` take the place of another one. It begins behind all starts and all changes that the other one can have
/// had: who remembers those takes it for a later state, which knows nothing of him, and not for an older copy.
///
/// # Errors
/// The directory cannot be opened.
pub async fn replace_lost(rt: &Rt, path: &str) -> Result<(), StoreError> {
    let shared = !Store::read_label(rt, path).await?.service.is_empty();
    // Starts of a target with service nodes are numbered by its owners.
    let store = if shared { Store::open(rt, path).await } else { Store::open_copy(rt, path).await }?;
    let begun = begin(rt, &store).await;
    store.close().await?;
    begun
}

async fn begin(rt: &Rt, store: &Store) -> Result<(), StoreError> {
    let replay =
        Some(Transno(rt.wall().secs.cast_unsigned().clamp(SECONDS_MIN, SECONDS_MAX) * TRANSNOS_PER_SECOND));
    let changes = vec![replaced::change(replaced::UNKNOWN)];
    let transno = store.commit(Batch { changes, replay, ..Batch::default() })?;
    store.committed(transno).await
}
