//! Files that are open for writing when an MDT gives this client up: it takes them for closed (`docs/recovery.md#evicted`).
//!
//! It would let others take the file's size for known, or its data for archived, while it is written here. So it is asked to open them
//! again: at once, and before the next write. One that cannot be opened any more is not written any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::wire::messages::{Entry, OPEN_READ, OPEN_WRITE, Open};
use proto::{Code, TargetId, mdt_of};

use crate::files::{OpenFile, OpenFiles};
use crate::names::is_released;
use crate::{Error, Result};

impl OpenFiles {
    /// An MDT has ended its session with this client, and with it all that was open there.
    pub(crate) fn opens_lost(self: &Arc<Self>, mdt: TargetId) {
        let all = self.handles.all().into_iter().filter_map(|handle| self.handles.get(handle).ok());
        let lost: Vec<Arc<OpenFile>> = all
            .filter(|open| open.flags.write && open.file.is_some() && TargetId::mdt(mdt_of(open.fid)) == mdt)
            .collect();
        if lost.is_empty() {
            return;
        }
        lost.iter().for_each(|open| open.is_lost.store(true, Ordering::Release));
        let files = self.clone();
        self.names.data.rt.spawn(async move {
            for open in lost {
                // Who writes asks again, and is told.
                let _ = files.open_to_write(&open).await;
            }
        });
    }

    /// The MDT has the file open, which is about to be written.
    ///
    /// # Errors
    /// [`Code::Evicted`]: it has closed it, and does not open it again.
    pub(super) async fn open_to_write(&self, open: &OpenFile) -> Result<()> {
        match open.is_lost.load(Ordering::Acquire) {
            true => Box::pin(self.open_again(open)).await,
            false => Ok(()),
        }
    }

    async fn open_again(&self, open: &OpenFile) -> Result<()> {
        let (fid, file) = (open.fid, open.file()?);
        let _alone = file.alone().await?;
        if !open.is_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        if file.inner.lock().gone {
            return Err(Error::Refused(Code::Evicted));
        }
        let era = self.targets.mdt_of(fid)?.era();
        let changing = self.names.meta.inodes.change(&[fid], &[]);
        let bits = open.flags.bits() & (OPEN_READ | OPEN_WRITE);
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
        self.names.meta.learn(&changing.done(&[]), &entry);
        file.set_entry(entry);
        {
            let mut inner = file.inner.lock();
            inner.reopened = inner.reopened.max(transno);
        }
        open.mdt_handle.store(opened.handle, Ordering::Release);
        let is_lost = self.targets.mdt_of(fid)?.era() != era;
        open.is_lost.store(is_lost, Ordering::Release);
        Ok(())
    }
}
