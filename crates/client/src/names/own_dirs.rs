//! Directories that this client made, and in which nobody else has changed anything since, are opened without the MDT
//! (`docs/locks.md#made-here`).
//!
//! The MDT hears of the access only, later, and if the directory is still there by then: most are read to be removed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use proto::wire::messages::{Close, Entry, OPEN_READ, Open};
use proto::{Cred, Fid, FileKind, JobId};
use rpc::job::{self, OfJob};
use rt::sync::OwnedSemaphorePermit;

use super::cache::MetadataCache;
use super::close::Sizes;
use super::kept::may_open;
use crate::{Caller, OpenFlags, Result};

/// What a handle has in place of the MDT's name, if the MDT does not have the directory open.
pub(crate) const NOT_OPEN: u64 = 0;
/// How directories are opened.
pub(crate) const TO_LIST: OpenFlags = OpenFlags {
    read: true,
    write: false,
    execute: false,
    append: false,
    truncate: false,
    exclusive: false,
    sync: false,
    no_atime: false,
};

/// A directory that was listed, and of which the MDT does not know that.
pub(super) struct Accessed {
    fid: Fid,
    job: JobId,
    permit: OwnedSemaphorePermit,
}

impl MetadataCache {
    /// A directory that the caller certainly may open, and that nobody else can change, or remove, unseen.
    pub(crate) fn open_own_dir(&self, caller: &Caller, fid: Fid) -> Option<Arc<Entry>> {
        let entry = self.known_entry(fid)?;
        let is_dir = entry.attr.kind() == FileKind::Dir;
        (is_dir && may_open(caller, &entry, TO_LIST) && self.is_made_here(fid)).then_some(entry)
    }
}

impl Sizes {
    /// A handle has ended of a directory that the MDT does not have open.
    pub(super) fn close_own_dir(&self, fid: Fid, permit: OwnedSemaphorePermit) {
        if self.meta.accesses.pending(fid).is_some() {
            self.closer.accessed(Accessed { fid, job: job::current(), permit });
            self.data.back.dirty.arm();
        }
    }

    /// Tells the MDT of accesses.
    pub(super) async fn tell_accesses(self: Arc<Self>, accessed: Vec<Accessed>) {
        // Whoever waits until all is told waits for the permits.
        let (fids, _permits): (Vec<_>, Vec<_>) =
            accessed.into_iter().map(|Accessed { fid, job, permit }| ((fid, job), permit)).unzip();
        // A directory may have been listed several times.
        let fids: BTreeMap<Fid, JobId> = fids.into_iter().collect();
        let telling = fids.into_iter().map(|(fid, job)| {
            let sizes = self.clone();
            async move {
                let asking = pin!(sizes.tell_access(fid));
                if !OfJob::new(job, asking).await.is_ok_and(|is_told| is_told) {
                    tracing::debug!(%fid, "the MDT does not hear of an access");
                    sizes.meta.accesses.removed(fid);
                }
            }
        });
        self.targets.hub().together(telling.collect()).await;
    }

    /// Whether there is nothing left to tell.
    async fn tell_access(&self, fid: Fid) -> Result<bool> {
        let asked = self.meta.inodes.ask();
        let mdt = self.targets.settled_mdt_of(fid).await?;
        let Some(atime) = self.meta.accesses.pending(fid) else { return Ok(true) };
        let opened = mdt.call(Open { fid, open: OPEN_READ, cred: Cred::root() }).await?.reply;
        let entry =
            Entry { attr: opened.attr, layout: opened.layout, xattrs: opened.xattrs, lock: opened.lock };
        self.meta.learn(&asked, &entry);
        let close = Close { fid, handle: opened.handle, atime: Some(atime), size: None, wrote: false };
        Ok(self.meta.send_close(close).await.is_some())
    }
}
