//! Open files and directories: what a program does through a handle, and its file locks.

mod access;
mod allocate;
mod copy;
mod flock;
mod handles;
mod open;
mod opened_again;
mod read;
mod restate;
mod seek;
mod sync;
mod write;

use std::sync::Arc;

use rt::Rt;

use crate::names::Names;
use crate::targets::Targets;

pub use flock::{FlockRequest, Flocks, FoundLock};
pub(crate) use handles::{Handles, OpenFile};

/// The open files and directories of a client.
pub struct OpenFiles {
    targets: Arc<Targets>,
    names: Arc<Names>,
    pub(crate) handles: Arc<Handles>,
    /// The file locks that were asked for through them.
    pub(crate) flocks: Arc<Flocks>,
}

impl OpenFiles {
    /// Nothing is open yet.
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, names: Arc<Names>) -> OpenFiles {
        let handles = Arc::new(Handles::new());
        let flocks = Arc::new(Flocks::new(rt, targets.clone(), handles.clone()));
        OpenFiles { targets, names, handles, flocks }
    }
}
