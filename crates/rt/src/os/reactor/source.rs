//! Others who have entries in a core's ring, and are served by its thread.

use std::io;
use std::sync::Arc;

use super::core::Core;
use super::ring::Ring;

/// Whether a source has more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// It has.
    On,
    /// It has no entries in the ring any more and is to be dropped.
    Away,
}

/// Whoever has entries in the ring of a core. All is called on the core's thread. Nothing here may block for long.
pub trait Source: Send {
    /// Puts the first entries in.
    fn begin(&mut self, ring: &mut Ring);

    /// An entry is completed. Tasks may be spawned and operations begun; entries are put in by `submit`.
    fn completed(&mut self, name: u64, result: i32);

    /// The thread is about to wait: the last chance to put entries in before.
    ///
    /// # Errors
    /// The ring itself fails: the process ends, because nobody could serve in its place.
    fn submit(&mut self, ring: &mut Ring) -> io::Result<Goes>;
}

/// The way to a source's thread.
pub struct Attached {
    core: Arc<Core>,
}

impl Attached {
    pub(super) fn new(core: Arc<Core>) -> Attached {
        Attached { core }
    }

    /// Has [`Source::submit`] called soon. Costs nothing on the source's own thread, where it is called anyway.
    pub fn wake(&self) {
        if !self.core.is_here() {
            self.core.signal();
        }
    }
}
