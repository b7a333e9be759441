//! Keeping a former owner from a target's directory before the new one uses it.

use std::time::Duration;

use proto::{FsName, Nid, TargetId};
use rt::BoxFuture;

/// First pause after a former owner could not be fenced; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whom to keep from what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceOrder {
    /// The file system.
    pub fsname: FsName,
    /// The target.
    pub target: TargetId,
    /// Its directory here.
    pub directory: String,
    /// Epoch of the owner that orders it.
    pub epoch: u64,
    /// The former owner's name.
    pub server: String,
    /// Where it served.
    pub nids: Vec<Nid>,
}

/// Sees to it that a server does nothing any more: switches its machine off, or takes its disk away.
pub trait Fence: Send + Sync + 'static {
    /// Done when the former owner can write nothing any more; otherwise a sentence that says why not and what to do. Has a
    /// deadline of its own.
    fn fence(&self, order: FenceOrder) -> BoxFuture<'_, Result<(), String>>;
}

/// Pauses between attempts to fence, which grow until one succeeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(PAUSE_MIN)
    }
}

impl Pauses {
    /// After one more failure.
    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_minute() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..9).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
