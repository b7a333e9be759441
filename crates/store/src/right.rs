//! The right to write a target that other servers reach too.

use std::sync::Arc;

use rt::BoxFuture;

/// Says whether this process is still the owner of a target: nobody else writes there while it is. It ends by time, may
/// come back, and once lost is lost for good.
pub trait Right: Send + Sync {
    /// Whether nobody else can have had the target until now.
    fn is_valid(&self) -> bool;

    /// Whether the target has another owner, or none.
    fn is_lost(&self) -> bool;

    /// Waits until the right is valid at some moment of the call; false when it is lost.
    fn confirmed(&self) -> BoxFuture<'_, bool>;
}

/// How a target is opened that other servers reach too.
#[derive(Clone)]
pub struct Owned {
    /// The right to write it.
    pub right: Arc<dyn Right>,
    /// Larger than that of every owner before: its boot.
    pub epoch: u64,
    /// Epoch of the owner before; 0 if there was none.
    pub before: u64,
    /// Whether that one has said that it stopped, or was a process of this server whose place this one has taken.
    pub in_place: bool,
}

impl Owned {
    /// Whether the owner before is known to be gone, and is the one that used the directory last; `newest` is the newest
    /// boot that had read the log.
    pub(crate) fn follows(&self, newest: u64) -> bool {
        self.in_place && (self.before == 0 || self.before == newest)
    }
}
