//! `lfs hsm_release`: the data of a file goes, which an archive has. The same steps as a move (`docs/locks.md#layouts`), without a copy.

use std::sync::Arc;

use proto::hsm::flag;
use proto::layout::LayoutHint;
use proto::wire::messages::{HsmState, ReleaseData, SizeUpdate};
use proto::{Attr, Code, Fid};

use rt::BoxFuture;

use crate::migrate::{Source, Work};
use crate::{Caller, Client, Error, Handle, Result, Shared};

/// The data of a file goes: an archive has it.
struct Release;

impl Work for Release {
    fn carry_out<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        caller: &'a Caller,
        source: Source,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(shared.release_locked(caller, source))
    }
}

impl Client {
    /// Gives the data of a file up that an archive has. Only its owner may; others who use the file wait meanwhile.
    ///
    /// # Errors
    /// `NotPermitted`: there is no copy, or the file is not to be released. `Busy`: the copy may be old, or somebody has the file open
    /// for writing.
    pub async fn hsm_release(&self, caller: &Caller, fid: Fid) -> Result<()> {
        let HsmState { flags, .. } = self.hsm_state(fid).await?;
        if flags & flag::RELEASED != 0 {
            return Ok(());
        }
        // Before anybody is kept out.
        if flags & flag::ARCHIVED == 0 || flags & flag::NORELEASE != 0 {
            return Err(Error::Refused(Code::NotPermitted));
        }
        if flags & (flag::DIRTY | flag::LOST) != 0 {
            return Err(Error::Refused(Code::Busy));
        }
        match self.by_mover(caller, fid, &Release).await {
            // Somebody else has done it meanwhile.
            Err(Error::Refused(Code::Released)) => Ok(()),
            released => released,
        }
    }
}

impl Shared {
    /// The MDT says no if the archive may have other data: that may have come to be so before the locks came.
    async fn release_locked(self: &Arc<Self>, caller: &Caller, source: Source) -> Result<()> {
        let handle = self.create_heir(LayoutHint::default()).await?;
        let released = self.release_into(caller, &source, handle).await;
        self.files.release(handle).await;
        released
    }

    async fn release_into(self: &Arc<Self>, caller: &Caller, source: &Source, handle: Handle) -> Result<()> {
        let (fid, layout) = (source.file.fid, &source.layout);
        let heir = self.files.handles.get(handle)?;
        // Nobody is told its size from now on: its objects will be those that are given up.
        heir.file()?.inner.lock().gone = true;
        let (with, generation) = (heir.fid, layout.generation);
        let Attr { size, blocks, mtime, ctime, .. } = source.attr;
        let size = SizeUpdate { size, blocks, mtime, ctime };
        let released = match self.seal(layout).await {
            Ok(()) => {
                let _changing = self.names.meta.inodes.change(&[fid, with], &[]);
                let release = |cred| ReleaseData { fid, with, generation, cred, size: size.clone() };
                self.targets.ask(fid, caller, release).await
            }
            Err(error) => Err(error),
        };
        match released {
            Ok(answered) => {
                [fid, with].iter().for_each(|fid| self.names.meta.changes.changed(*fid, answered.transno));
                source.file.set_layout(answered.reply.layout);
                Ok(())
            }
            Err(error) => {
                // Whoever meets the seal first does it otherwise.
                if let Err(error) = self.names.layouts.unseal(fid, layout).await {
                    tracing::warn!(%fid, %error, "a file that could not be released stays sealed for a while");
                }
                Err(error)
            }
        }
    }
}
