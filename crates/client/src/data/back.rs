//! Write-back: what was written and is not on the OSTs yet.

use std::sync::Arc;

use rt::Rt;

use super::{Clean, DirtyFiles, Files, Rooms};
use crate::lock::RangeLocks;
use crate::losses::Losses;
use crate::targets::Targets;

/// Sends what was written, within bounds.
pub(crate) struct WriteBack {
    pub(super) rt: Rt,
    pub(super) targets: Arc<Targets>,
    pub(super) files: Arc<Files>,
    pub(super) locks: Arc<RangeLocks>,
    /// What was read and is still true.
    pub(super) clean: Arc<Clean>,
    /// Bounds of what is written.
    pub(crate) rooms: Arc<Rooms>,
    /// Files with something to send.
    pub(crate) dirty: DirtyFiles,
    /// What was written and is lost.
    pub(crate) losses: Losses,
}

impl WriteBack {
    /// Nothing is written yet.
    pub(crate) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        files: Arc<Files>,
        locks: Arc<RangeLocks>,
        rooms: Arc<Rooms>,
    ) -> WriteBack {
        let clean = Arc::new(Clean::new(rooms.clone()));
        WriteBack {
            rt,
            targets,
            files,
            locks,
            clean,
            rooms,
            dirty: DirtyFiles::new(),
            losses: Losses::default(),
        }
    }

    /// What it shares with the rest of the data.
    pub(super) fn parts(&self) -> (Rt, Arc<Targets>, Arc<Files>, Arc<Clean>) {
        (self.rt.clone(), self.targets.clone(), self.files.clone(), self.clean.clone())
    }
}
