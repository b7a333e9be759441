//! Files that are open for writing when an MDT gives this client up: it takes them for closed (`docs/recovery.md#evicted`).
//!
//! It would let others take the file's size for known, or its data for archived, while it is written here. So it is asked to open them
//! again: at once, and before the next write. One that cannot be opened any more is not written any more, and neither is one that this
//! client had locked for itself alone (flock, fcntl): others may have the lock by now, and whoever had it does not know. Its handles refuse
//! to write until they are closed, as NFS does it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::wire::messages::{Close, Entry, OPEN_AGAIN, OPEN_READ, OPEN_WRITE, Open};
use proto::{Code, Fid, TargetId, mdt_of};
use rt::wait::join_all;

use crate::files::{Handles, OpenFile};
use crate::names::{Names, is_released};
use crate::targets::Targets;
use crate::{Error, Result};

/// Files that are opened again at the same time.
const OPENED_AT_ONCE: usize = 64;

/// Has MDTs know what is open here.
pub(crate) struct Reopening {
    targets: Arc<Targets>,
    pub(super) names: Arc<Names>,
    pub(super) handles: Arc<Handles>,
}

impl Reopening {
    /// Nothing is lost yet.
    pub(super) fn new(targets: Arc<Targets>, names: Arc<Names>, handles: Arc<Handles>) -> Reopening {
        Reopening { targets, names, handles }
    }

    /// An MDT has ended its session with this client, and with it all that was open there, and the locks of the files `locked`.
    pub(crate) fn opens_lost(self: &Arc<Self>, mdt: TargetId, locked: &BTreeSet<Fid>) {
        // In this order: who sees that it is lost sees the other, too.
        self.fence(locked);
        let of_mdt = |open: &Arc<OpenFile>| TargetId::mdt(mdt_of(open.fid)) == mdt;
        let written = self.handles.all_open().filter(|open| open.flags.write && open.file.is_some());
        let lost: Vec<Arc<OpenFile>> = written.filter(of_mdt).collect();
        if lost.is_empty() {
            return;
        }
        for open in &lost {
            open.losses.fetch_add(1, Ordering::AcqRel);
        }
        let reopening = self.clone();
        self.names.data.rt.spawn(async move {
            for some in lost.chunks(OPENED_AT_ONCE) {
                // Who writes asks again, and is told.
                join_all(some.iter().map(|open| reopening.open_to_write(open))).await;
            }
        });
    }

    /// Nothing is written any more through what is open of these files: their locks are lost.
    pub(crate) fn fence(&self, locked: &BTreeSet<Fid>) {
        locked.iter().filter_map(|fid| self.names.data.files.find(*fid)).for_each(|file| file.fence());
    }

    /// The MDT has the file open, which is about to be written.
    ///
    /// # Errors
    /// [`Code::Evicted`]: it has closed it, and does not open it again.
    pub(super) async fn open_to_write(&self, open: &OpenFile) -> Result<()> {
        if open.is_fenced() {
            return Err(Error::Refused(Code::Evicted));
        }
        if open.is_lost() { Box::pin(self.open_again(open)).await } else { Ok(()) }
    }

    async fn open_again(&self, open: &OpenFile) -> Result<()> {
        let (fid, file) = (open.fid, open.file()?);
        let _alone = file.alone().await?;
        let losses = open.losses.load(Ordering::Acquire);
        if !open.is_lost() || open.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        if file.inner.lock().gone || open.is_fenced() {
            return Err(Error::Refused(Code::Evicted));
        }
        let changing = self.names.meta.inodes.change(&[fid], &[]);
        let bits = open.flags.bits() & (OPEN_READ | OPEN_WRITE) | OPEN_AGAIN;
        let answered = loop {
            match self.targets.ask(fid, &open.opener, |cred| Open { fid, open: bits, cred }).await {
                Ok(answered) => break answered,
                Err(error) if is_released(error) => drop(self.names.layouts.restored(fid).await?),
                Err(error) => {
                    tracing::warn!(%fid, %error, "a file that was being written is not opened again");
                    return Err(Error::Refused(Code::Evicted));
                }
            }
        };
        let (opened, transno) = (answered.reply, answered.transno);
        self.names.meta.changes.changed(fid, transno);
        let entry =
            Entry { attr: opened.attr, layout: opened.layout, xattrs: opened.xattrs, lock: opened.lock };
        self.names.meta.answers.learn(&changing.done(&[]), &entry);
        file.set_entry(entry);
        {
            let mut inner = file.inner.lock();
            inner.reopened = inner.reopened.max(transno);
        }
        let before = open.mdt_handle.swap(opened.handle, Ordering::SeqCst);
        // It may be of this session, if that was lost once more just after it was asked for.
        let twice = (open.opened.swap(losses, Ordering::AcqRel) != 0).then_some((before, false));
        let closed = open.closed.load(Ordering::SeqCst).then_some((opened.handle, true));
        for (handle, wrote) in twice.into_iter().chain(closed) {
            // Whether something was written under the one of before is not known.
            let close = Close { fid, handle, atime: None, size: None, wrote };
            if let Err(error) = self.targets.mdt_of(fid)?.call(close).await {
                tracing::debug!(%fid, %error, "a handle that nobody uses stays open");
            }
        }
        Ok(())
    }
}
