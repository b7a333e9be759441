//! What is known here of what the kernel knows.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::asking::Asking;
use crate::learning::Learning;
use crate::names::Names;
use crate::settling::Settling;

/// Shared by those that answer the kernel and those that have it forget.
#[derive(Clone, Default)]
pub struct Known {
    /// Names that it keeps.
    pub names: Arc<Mutex<Names>>,
    /// Inodes that it may be making.
    pub settling: Arc<Settling>,
    /// Threads that are about to use attributes.
    pub asking: Arc<Asking>,
    /// Files whose mode and owner it has to learn.
    pub learning: Arc<Learning>,
}

impl Known {
    /// Nothing yet, in a process that may use `memory` bytes.
    pub fn within(memory: u64) -> Known {
        Known { names: Arc::new(Mutex::new(Names::within(memory))), ..Known::default() }
    }
}
