//! Names: each operation is one request to the MDT.

use bytes::Bytes;
use proto::wire::messages::{
    Access, Create, DirPage, GetAttr, Link, Lookup, OPEN_EXCLUSIVE, Operation, ReadDir, ReadLink, Rename,
    SetAttr, Unlink,
};
use proto::{Attr, Code, Cred, Fid, FileKind, Timestamp};
use rpc::Answered;

use crate::{Caller, Client, Error, Result, Shared, name};

/// Bytes of a page of a directory.
const PAGE_BYTES_MAX: u32 = 128 << 10;

/// A request that changes no attribute, to be filled in.
pub(crate) fn no_change(fid: Fid, time: Timestamp) -> SetAttr {
    SetAttr {
        fid,
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        handle: None,
        kill_privileges: false,
        cred: Cred::default(),
        time,
    }
}

impl Shared {
    /// Asks the MDT on behalf of `caller`; its supplementary groups are looked up only if the answer depends on
    /// them.
    pub(crate) async fn ask<O: Operation>(
        &self,
        caller: &Caller,
        operation: impl Fn(Cred) -> O,
    ) -> Result<Answered<O::Reply>> {
        let mdt = self.targets.mdt()?;
        let groups = if caller.uid == 0 { Some(Vec::new()) } else { None };
        match mdt.call(operation(Cred { uid: caller.uid, gid: caller.gid, groups })).await {
            Err(Error::Refused(Code::NeedGroups)) => {
                let groups = Some((caller.groups)());
                mdt.call(operation(Cred { uid: caller.uid, gid: caller.gid, groups })).await
            }
            other => other,
        }
    }
}

impl Client {
    /// The file that `name` means in `parent`; `..` is the directory above.
    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<Attr> {
        let name = match name {
            b"." => return self.getattr(parent).await,
            b".." => None,
            name => Some(crate::name(name)?),
        };
        let asked = self.shared.ask(caller, |cred| Lookup { parent, name: name.clone(), cred }).await?;
        self.shared.complete(asked.reply).await
    }

    /// Attributes with the true size and times, own unflushed writes included.
    pub async fn getattr(&self, fid: Fid) -> Result<Attr> {
        let entry = self.shared.targets.mdt()?.call(GetAttr { fid }).await?.reply;
        self.shared.complete(entry).await
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        Ok(self.shared.targets.mdt()?.call(ReadLink { fid }).await?.reply.target)
    }

    /// mknod, mkdir, symlink (`target`), and a plain file that is not opened.
    pub async fn make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: Bytes,
    ) -> Result<Attr> {
        let name = crate::name(name)?;
        let time = self.shared.time();
        let create = |fid, cred| Create {
            parent,
            name: name.clone(),
            fid,
            mode,
            rdev,
            target: target.clone(),
            open: OPEN_EXCLUSIVE,
            hint: None,
            cred,
            time,
            umask: caller.umask,
        };
        Ok(self.shared.make(caller, create).await?.reply.attr)
    }

    /// Takes the name of anything but a directory away.
    pub async fn unlink(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        self.remove(caller, parent, name, false).await
    }

    /// Takes the name of an empty directory away.
    pub async fn rmdir(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        self.remove(caller, parent, name, true).await
    }

    async fn remove(&self, caller: &Caller, parent: Fid, name: &[u8], directory: bool) -> Result<()> {
        let (name, time) = (crate::name(name)?, self.shared.time());
        let unlink = |cred| Unlink { parent, name: name.clone(), directory, cred, time };
        let unlinked = self.shared.ask(caller, unlink).await?.reply;
        if unlinked.nlink == 0 && !directory {
            self.shared.gone(unlinked.fid);
        }
        Ok(())
    }

    /// Moves an entry. If that replaces a file, the data that takes its place is durable first: a crash leaves
    /// the old contents or the new, never neither.
    pub async fn rename(
        &self,
        caller: &Caller,
        parent: Fid,
        old_name: &[u8],
        new_parent: Fid,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let (old_name, new_name, time) = (name(old_name)?, name(new_name)?, self.shared.time());
        if !self.shared.files.is_empty() {
            let asked =
                self.shared.ask(caller, |cred| Lookup { parent, name: Some(old_name.clone()), cred }).await?;
            let file = self.shared.files.find(asked.reply.attr.fid);
            if let Some(file) = file.filter(|file| file.is_fresh()) {
                let new = |cred| Lookup { parent: new_parent, name: Some(new_name.clone()), cred };
                if self.shared.ask(caller, new).await.is_ok() {
                    self.shared.flush_file(&file).await;
                    self.shared.commit_objects(&file).await?;
                }
            }
        }
        let rename = |cred| Rename {
            parent,
            name: old_name.clone(),
            new_parent,
            new_name: new_name.clone(),
            flags,
            cred,
            time,
        };
        self.shared.ask(caller, rename).await?;
        Ok(())
    }

    /// Gives a file one more name.
    pub async fn link(&self, caller: &Caller, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> {
        let (name, time) = (crate::name(name)?, self.shared.time());
        let link = |cred| Link { fid, parent, name: name.clone(), cred, time };
        let entry = self.shared.ask(caller, link).await?.reply;
        self.shared.complete(entry).await
    }

    /// Whether the caller may do what `mask` (`ACCESS_*` bits) says.
    pub async fn access(&self, caller: &Caller, fid: Fid, mask: u32) -> Result<()> {
        self.shared.ask(caller, |cred| Access { fid, mask, cred }).await?;
        Ok(())
    }

    /// A page of a directory, behind `cookie`. With `plus`, entries carry attributes where these are the truth.
    pub async fn read_dir(&self, fid: Fid, cookie: u64, plus: bool) -> Result<DirPage> {
        let asked = ReadDir { fid, cookie, bytes_max: PAGE_BYTES_MAX, plus };
        let mut page = self.shared.targets.mdt()?.call(asked).await?.reply;
        for entry in &mut page.entries {
            let open = self.shared.files.find(entry.fid).is_some();
            let told = |attr: &Attr| attr.kind() != FileKind::File || (attr.size_known && !open);
            entry.entry = entry.entry.take().filter(|entry| told(&entry.attr));
        }
        Ok(page)
    }
}
