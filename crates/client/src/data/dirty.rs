//! Files with data that was not sent, and what wakes the timer that sends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::Fid;
use rt::sync::Notify;

use crate::data::FileState;
use crate::order::{DIRTY, Mutex};

/// Knows every file with dirty data, and whether there is any.
pub(crate) struct DirtyFiles {
    files: Mutex<DIRTY, BTreeMap<Fid, Arc<FileState>>>,
    armed: AtomicBool,
    wake: Notify,
}

impl DirtyFiles {
    pub(crate) fn new() -> DirtyFiles {
        DirtyFiles { files: Mutex::new(BTreeMap::new()), armed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Waits until the timer is started.
    pub(crate) async fn until_armed(&self) {
        self.wake.notified().await;
    }

    /// The timer rests unless somebody has started it since; whoever adds something later finds it at rest and wakes it.
    pub(crate) fn set_armed(&self, armed: bool) {
        self.armed.store(armed, Ordering::Release);
    }

    /// Starts the timer if it rests.
    pub(crate) fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// `file` has dirty data. Called under the file's lock.
    pub(crate) fn dirty(&self, file: &Arc<FileState>) {
        self.files.lock().insert(file.fid, file.clone());
        self.arm();
    }

    /// The file has no dirty data any more. Called under the file's lock.
    pub(crate) fn clean(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }

    /// Every file with dirty data.
    pub(crate) fn files(&self) -> Vec<Arc<FileState>> {
        self.files.lock().values().cloned().collect()
    }

    /// Whether any file has dirty data.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.files.lock().is_empty()
    }
}
