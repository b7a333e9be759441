//! A target that takes the place of a lost or a removed one (`docs/operations.md#replace`).
//!
//! Its index is that of the other one, and layouts still name objects that the other one had. Sequences of FIDs tell them from those that
//! are new: the MDT says which sequence is the first one that it gave no FIDs of before.

use bytes::Bytes;
use store::{Change, Store, StoreError};

use crate::keys;

/// The first sequence is not known yet.
pub const UNKNOWN: u64 = u64::MAX;

/// The first sequence whose objects are new; `None` of a target that has always been the one with its index, [`UNKNOWN`] of one that
/// was not told yet.
///
/// # Errors
/// `Corrupt` if what is stored was not written by [`change`].
pub fn first_sequence(store: &Store) -> Result<Option<u64>, StoreError> {
    let Some(value) = store.get(&[keys::REPLACES])? else { return Ok(None) };
    let number = value.bytes.as_ref().try_into();
    number
        .map(|bytes| Some(u64::from_le_bytes(bytes)))
        .map_err(|_| StoreError::Corrupt { what: "which objects of a lost target are new".into() })
}

/// Whether the target waits to be told.
pub fn waits(store: &Store) -> bool {
    matches!(first_sequence(store), Ok(Some(UNKNOWN)))
}

/// What makes the first sequence durable.
pub fn change(sequence: u64) -> Change {
    let value = Some(Bytes::copy_from_slice(&sequence.to_le_bytes()));
    Change { key: Bytes::from_static(&[keys::REPLACES]), value }
}
