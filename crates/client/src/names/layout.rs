//! Layouts: `lfs getstripe`, `lfs setstripe`, and paths of FIDs.

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::wire::messages::{Create, DefaultLayout, FidToPath, GetDefaultLayout, OPEN_EXCLUSIVE, SetLayout};
use proto::{Attr, Fid, FileKind, Layout};

use crate::names::Names;
use crate::{Caller, Forget, Result};

impl Names {
    /// Where the data of a file lies; `None` for what has no data.
    pub async fn layout(&self, fid: Fid) -> Result<Option<Layout>> {
        Ok(self.layouts.fetch_entry(fid).await?.layout)
    }

    /// What the MDT knows of a file; nobody else is asked.
    pub async fn attr_on_mdt(&self, fid: Fid) -> Result<Attr> {
        Ok(self.layouts.fetch_entry(fid).await?.attr)
    }

    /// What new files in a directory get.
    pub async fn default_layout(&self, fid: Fid) -> Result<DefaultLayout> {
        Ok(self.targets.settled_mdt_of(fid).await?.call(GetDefaultLayout { fid }).await?.reply)
    }

    /// `lfs setstripe` on a directory or on a file without objects.
    pub async fn set_layout(&self, caller: &Caller, fid: Fid, hint: Option<LayoutHint>) -> Result<()> {
        let time = self.clock.time();
        let set = |cred| SetLayout { fid, hint: hint.clone(), cred, time };
        self.ahead.leave(fid);
        let changing = self.meta.inodes.change(&[fid], &[]);
        let answered = self.targets.ask(fid, caller, set).await?;
        self.meta.changes.changed(fid, answered.transno);
        self.meta.answers.not_kept(&changing, &answered.reply);
        if let Some(file) = self.data.files.find(fid) {
            file.set_layout(answered.reply.layout);
        }
        self.forget_past_kernel(fid).await;
        Ok(())
    }

    /// `lfs setstripe` on a new name.
    pub async fn create_with_layout(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        hint: LayoutHint,
    ) -> Result<Attr> {
        let name = crate::name(name)?;
        let time = self.clock.time();
        let create = |fid, cred| Create {
            parent,
            name: name.clone(),
            fid,
            mode: (mode & !proto::types::MODE_KIND) | FileKind::File.mode_bits(),
            rdev: 0,
            target: Bytes::new(),
            open: OPEN_EXCLUSIVE,
            hint: Some(hint.clone()),
            cred,
            time,
            umask: caller.umask,
            foretold: None,
        };
        let changing = self.meta.inodes.change(&[parent], &[(parent, &name)]);
        let made = self.fids.make(parent, caller, create).await?;
        self.keep_new(changing, (parent, &name), time, &made);
        self.forget_past_kernel(parent).await;
        let mut attr = made.reply.attr;
        self.meta.accesses.note(&mut attr);
        Ok(attr)
    }

    /// Paths of a file, without a leading slash: those along which `caller` may search every directory.
    pub async fn fid_to_path(&self, caller: &Caller, fid: Fid) -> Result<Vec<Bytes>> {
        Ok(self.targets.ask(fid, caller, |cred| FidToPath { fid, cred }).await?.reply.paths)
    }
}

impl Names {
    /// A file was changed in a way that the kernel does not know of.
    async fn forget_past_kernel(&self, fid: Fid) {
        self.meta.kernel.copies.forget(vec![Forget::SizeAndTimes(fid)]).await;
    }
}
