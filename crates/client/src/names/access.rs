//! Times of access that the MDT does not know yet: it is told when the file is closed, and an application that looks
//! before sees them all the same.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use proto::wire::messages::{Close, NOT_OPEN};
use proto::{Attr, Fid, JobId, Timestamp};
use rpc::job::{self, OfJob};
use rt::sync::OwnedSemaphorePermit;

use super::close::Sizes;
use crate::order::{LEAF, Mutex};

/// The newest access of each file that is open, or is just being closed.
#[derive(Default)]
pub(crate) struct Accesses {
    pending: Mutex<LEAF, BTreeMap<Fid, Timestamp>>,
}

impl Accesses {
    /// A file was read at `now`.
    pub(crate) fn accessed(&self, fid: Fid, now: Timestamp) {
        let mut pending = self.pending.lock();
        let newest = pending.entry(fid).or_insert(now);
        *newest = now.max(*newest);
    }

    /// The access of a file that the MDT does not know of.
    pub(crate) fn pending(&self, fid: Fid) -> Option<Timestamp> {
        self.pending.lock().get(&fid).copied()
    }

    /// The MDT was told of accesses up to `time`.
    pub(crate) fn told(&self, fid: Fid, time: Timestamp) {
        let mut pending = self.pending.lock();
        if pending.get(&fid).is_some_and(|newest| *newest <= time) {
            pending.remove(&fid);
        }
    }

    /// The file is gone, or the MDT cannot be told.
    pub(crate) fn removed(&self, fid: Fid) {
        self.pending.lock().remove(&fid);
    }

    /// The time of access was set in a call of `time`: what was read before does not count any more.
    pub(crate) fn set(&self, fid: Fid, time: Timestamp) {
        self.told(fid, time);
    }

    /// Whether there is an access of the file that the MDT does not know of; then `attr` tells it.
    pub(crate) fn note(&self, attr: &mut Attr) -> bool {
        let Some(time) = self.pending(attr.fid) else { return false };
        attr.atime = attr.atime.max(time);
        true
    }
}

/// What was read, and of which the MDT does not know that.
pub(super) struct Accessed {
    pub(super) fid: Fid,
    pub(super) job: JobId,
    pub(super) permit: OwnedSemaphorePermit,
}

impl Sizes {
    /// A handle has ended of what the MDT does not have open.
    pub(super) fn close_own(self: &Arc<Self>, fid: Fid) {
        if self.meta.accesses.pending(fid).is_none() {
            return;
        }
        match self.closer.accessed(fid, job::current()) {
            Some(due) if due.is_empty() => self.data.back.dirty.arm(),
            Some(due) => self.rt.spawn(self.clone().tell_accesses(due)),
            None => self.meta.accesses.removed(fid),
        }
    }

    /// Tells the MDT of accesses.
    pub(super) async fn tell_accesses(self: Arc<Self>, accessed: Vec<Accessed>) {
        // Whoever waits until all is told waits for the permits.
        let (fids, _permits): (Vec<_>, Vec<_>) =
            accessed.into_iter().map(|Accessed { fid, job, permit }| ((fid, job), permit)).unzip();
        // It may have been read several times.
        let fids: BTreeMap<Fid, JobId> = fids.into_iter().collect();
        let telling = fids.into_iter().map(|(fid, job)| {
            let sizes = self.clone();
            async move {
                let asking = pin!(sizes.tell_access(fid));
                if !OfJob::new(job, asking).await {
                    tracing::debug!(%fid, "the MDT does not hear of an access");
                    sizes.meta.accesses.removed(fid);
                }
            }
        });
        self.targets.hub().together(telling.collect()).await;
    }

    /// Whether there is nothing left to tell.
    async fn tell_access(&self, fid: Fid) -> bool {
        let Some(atime) = self.meta.accesses.pending(fid) else { return true };
        let close = Close { fid, handle: NOT_OPEN, atime: Some(atime), size: None, wrote: false };
        self.meta.opens.send_close(close).await.is_some()
    }
}
