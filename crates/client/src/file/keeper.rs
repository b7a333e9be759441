//! The one timer of a client: sends what has been dirty for long, and closes what was written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::Fid;
use rt::Time;
use rt::sync::Notify;

use super::state::FileState;
use crate::Shared;

/// How often the timer looks, while there is anything to look at.
const TICK: Duration = Duration::from_millis(500);
/// Age at which dirty data is sent; with a tick, 5 s at most.
const DIRTY_AGE_MAX: Duration = Duration::from_millis(4500);

/// Knows every file with dirty data, and whether there is any.
pub(crate) struct Keeper {
    dirty: Mutex<BTreeMap<Fid, Arc<FileState>>>,
    armed: AtomicBool,
    wake: Notify,
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        Keeper { dirty: Mutex::new(BTreeMap::new()), armed: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Starts the timer if it rests.
    pub(crate) fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// `file` has dirty data. Called under the file's lock.
    pub(crate) fn dirty(&self, file: &Arc<FileState>) {
        self.dirty.lock().insert(file.fid, file.clone());
        self.arm();
    }

    /// The file has no dirty data any more. Called under the file's lock.
    pub(crate) fn clean(&self, fid: Fid) {
        self.dirty.lock().remove(&fid);
    }

    /// Every file with dirty data.
    pub(crate) fn files(&self) -> Vec<Arc<FileState>> {
        self.dirty.lock().values().cloned().collect()
    }

    /// Whether any file has dirty data.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.lock().is_empty()
    }
}

impl Shared {
    /// Runs the timer until the client is unmounted.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            if crate::util::unless(self.ended(), self.keeper.wake.notified()).await.is_none() {
                return;
            }
            loop {
                if crate::util::unless(self.ended(), self.rt.sleep(TICK)).await.is_none() {
                    return;
                }
                self.tick();
                // Whoever adds something after the look finds the timer at rest and wakes it.
                self.keeper.armed.store(false, Ordering::Release);
                if !self.keeper.has_dirty() && self.closer.is_empty() {
                    break;
                }
                self.keeper.armed.store(true, Ordering::Release);
            }
        }
    }

    fn tick(self: &Arc<Self>) {
        let now = self.rt.now();
        let until = Time(now.0.saturating_sub(DIRTY_AGE_MAX.as_nanos() as u64));
        for file in self.keeper.files() {
            let due = file.inner.lock().cache.oldest().is_some_and(|oldest| oldest <= until);
            if due {
                self.send_older(&file, until);
            }
        }
        self.close_pending();
    }
}
