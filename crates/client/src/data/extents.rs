//! What of a file has space, which is changed on the OSTs at once: its end ([`cut`](super::cut)), holes and reservations
//! ([`reserve`](super::reserve)).

use std::sync::Arc;

use crate::data::{Objects, WriteBack};
use crate::lock::RangeLocks;

/// Changes what of files has space.
pub(crate) struct Extents {
    pub(super) locks: Arc<RangeLocks>,
    pub(super) objects: Objects,
    pub(super) back: Arc<WriteBack>,
}
