//! Open files and directories: what a program does through a handle, and its file locks.

mod access;
mod allocate;
mod copy;
mod flock;
mod handles;
mod heads;
mod open;
mod opened_again;
mod read;
mod restate;
mod seek;
mod write;
mod writer;

use std::sync::Arc;

use rt::Rt;

use crate::names::Names;
use crate::targets::Targets;

pub use flock::{FlockRequest, Flocks, FoundLock};
pub(crate) use handles::{Handles, OpenFile};
use heads::Heads;
pub(crate) use opened_again::Reopening;
pub(crate) use writer::Writer;

/// The open files and directories of a client.
pub struct OpenFiles {
    targets: Arc<Targets>,
    names: Arc<Names>,
    pub(crate) handles: Arc<Handles>,
    /// The file locks that were asked for through them.
    pub(crate) flocks: Arc<Flocks>,
    /// Has MDTs know what is open.
    pub(crate) reopening: Arc<Reopening>,
    /// What opens bring.
    heads: Heads,
    /// Writes to what is open.
    pub(crate) writer: Writer,
}

impl OpenFiles {
    /// Nothing is open yet.
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, names: Arc<Names>) -> OpenFiles {
        let handles = Arc::new(Handles::new());
        let flocks = Arc::new(Flocks::new(rt, targets.clone(), handles.clone()));
        let reopening = Arc::new(Reopening::new(targets.clone(), names.clone(), handles.clone()));
        let heads = Heads::new(names.clone());
        let writer = Writer::new(targets.clone(), names.clone(), reopening.clone());
        OpenFiles { targets, names, handles, flocks, reopening, heads, writer }
    }
}
