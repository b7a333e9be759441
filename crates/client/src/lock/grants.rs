//! What names a time in which nobody else could change a file.

use proto::{Fid, Layout};
use smallvec::SmallVec;

/// What a client holds when it may change every byte of every object of a file. Whatever of it is lost and granted again has
/// other numbers: two that are equal stand for one time in which nobody else could change the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) layouts: SmallVec<[Fid; 1]>,
    /// Of each object, the newest number of what is held of it.
    pub(crate) numbers: SmallVec<[u64; 4]>,
}

impl Grants {
    /// Of the objects of a layout, in the order in which they are locked.
    pub(super) fn new(layout: &Layout, numbers: SmallVec<[u64; 4]>) -> Grants {
        Grants { layouts: layout.ids().collect(), numbers }
    }
}
