//! Files that are about to be opened once more, since the last try found them gone.
//!
//! The kernel opens a file in two requests: it looks its name up, and opens what that means. A file that loses its name in between
//! is gone. The kernel then does both again, but only once, and tells its caller ESTALE if the second file is gone, too: so it went
//! with names that others replace all the time. A local file system knows no such error. So what is looked up shortly after such a
//! failure keeps its name for a moment: whoever wants to take it waits until the file is open, as a callback waits for a grant that
//! it overtook.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use proto::Fid;
use rt::sync::Notify;
use rt::{Rt, Time};

use crate::order::{LEAF, Mutex};

/// How long after a failure names that are looked up count.
const AGAIN_TIME: Duration = Duration::from_millis(50);
/// How long a file may keep others waiting.
const OPEN_TIME: Duration = Duration::from_millis(20);
/// Files at the same time; others are not waited for.
const FILES_MAX: usize = 256;

/// The files, until when each is waited for.
#[derive(Default)]
pub(crate) struct Expected {
    /// Until when names that are looked up count; 0 for not at all.
    again_until: AtomicU64,
    /// How many files there are.
    count: AtomicUsize,
    files: Mutex<LEAF, BTreeMap<Fid, Time>>,
    opened: Notify,
}

impl Expected {
    /// A file that was looked up was gone when it was opened.
    pub(crate) fn was_gone(&self, now: Time) {
        self.again_until.store((now + AGAIN_TIME).0, Ordering::Relaxed);
    }

    /// A name was found to mean `fid`.
    pub(crate) fn looked_up(&self, fid: Fid, rt: &Rt) {
        let until = self.again_until.load(Ordering::Relaxed);
        if until == 0 {
            return;
        }
        let now = rt.now();
        if now.0 >= until {
            let _ = self.again_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        let mut files = self.files.lock();
        files.retain(|_, until| now < *until);
        if files.len() < FILES_MAX {
            files.insert(fid, now + OPEN_TIME);
        }
        self.count.store(files.len(), Ordering::Release);
    }

    /// The file is open, or cannot be opened.
    pub(crate) fn opened(&self, fid: Fid) {
        if self.is_empty() {
            return;
        }
        let mut files = self.files.lock();
        let was_expected = files.remove(&fid).is_some();
        self.count.store(files.len(), Ordering::Release);
        drop(files);
        if was_expected {
            self.opened.notify_waiters();
        }
    }

    /// Whether no file is waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits until a file that is expected is open, not for long.
    pub(crate) async fn until_opened(&self, fid: Fid, rt: &Rt) {
        loop {
            let opened = self.opened.notified();
            let until = if self.is_empty() { None } else { self.files.lock().get(&fid).copied() };
            let now = rt.now();
            let Some(left) = until.filter(|until| now < *until).map(|until| until - now) else { return };
            rt.timeout(left, opened).await;
        }
    }
}
