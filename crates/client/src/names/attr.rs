//! setattr, extended attributes.

use bytes::Bytes;
use proto::wire::messages::{Entry, GetXattr, ListXattr, RemoveXattr, SetAttr, SetXattr, TimeChange};
use proto::{Attr, Code, Fid, Timestamp};

use crate::data::{FileRef, Resize};
use crate::names::{Names, no_change};
use crate::{AttrChange, Caller, Error, Result, TimeSet, Told};

impl TimeSet {
    fn change(self, now: Timestamp) -> TimeChange {
        match self {
            TimeSet::Now => TimeChange { time: now, now: true },
            TimeSet::At(time) => TimeChange { time, now: false },
        }
    }
}

/// An open file through which attributes are changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Through {
    /// What the MDT calls it.
    pub(crate) handle: u64,
    /// As [`crate::data::Call::fences`].
    pub(crate) fences: u64,
}

impl Names {
    /// Changes attributes; `through` an open file, its open mode permits a change of size.
    pub(crate) async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        change: AttrChange,
        through: Option<Through>,
    ) -> Result<Told> {
        let time = self.clock.time();
        let set = SetAttr {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime.map(|set| set.change(time)),
            mtime: change.mtime.map(|set| set.change(time)),
            handle: through.map(|through| through.handle),
            kill_privileges: change.size.is_some() && caller.uid != 0,
            project: change.project,
            inherits: change.inherits,
            ..no_change(fid, time)
        };
        if let Some(size) = change.size {
            let fences = through.map(|through| through.fences);
            return Ok(Told::once(
                Box::pin(self.sizes.truncate(caller, (set, fences), Resize::To(size))).await?,
            ));
        }
        let file = self.data.files.find(fid);
        if let Some(entry) = self.ahead.set_attr(caller, &set) {
            if let Some(file) = &file {
                file.set_owner(&Attr { version: 0, ..entry.attr.clone() });
            }
            return self.told_set(&entry, file.as_ref(), &set).await;
        }
        let changing = self.meta.inodes.change(&[fid], &[]);
        let answered = self.targets.ask(fid, caller, |cred| SetAttr { cred, ..set.clone() }).await?;
        self.meta.changes.changed(fid, answered.transno);
        self.meta.answers.learn(&changing.done(&[]), &answered.reply);
        self.told_set(&answered.reply, file.as_ref(), &set).await
    }

    /// Attributes are set: what follows from that, and what the caller is told.
    async fn told_set(&self, entry: &Entry, file: Option<&FileRef>, set: &SetAttr) -> Result<Told> {
        if set.atime.is_some() {
            self.meta.accesses.set(set.fid, set.time);
        }
        if let Some(file) = file {
            file.set_owner(&entry.attr);
        }
        let attr = self.sizes.complete_as_far(entry).await?;
        Ok(self.meta.kernel.told(attr, None))
    }

    /// Value of an extended attribute.
    pub async fn get_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Bytes> {
        let known = self.meta.kept.xattr(caller, fid, name);
        if let Some(known) = known {
            return known.ok_or(Error::Refused(Code::NoXattr));
        }
        let name = Bytes::copy_from_slice(name);
        let asked = self.meta.inodes.ask();
        let got =
            self.targets.ask(fid, caller, |cred| GetXattr { fid, name: name.clone(), cred }).await?.reply;
        self.meta.answers.learn_of(&asked, fid, got.lock, |inode| {
            inode.learn_xattr(got.lock, name.clone(), Some(got.value.clone()));
        });
        Ok(got.value)
    }

    /// Sets an extended attribute; `flags` are `XATTR_*` bits.
    pub async fn set_xattr(
        &self,
        caller: &Caller,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        let (name, time) = (Bytes::copy_from_slice(name), self.clock.time());
        let set = |cred| SetXattr { fid, name: name.clone(), value: value.clone(), flags, cred, time };
        let _changing = self.meta.inodes.change(&[fid], &[]);
        let answered = self.targets.ask(fid, caller, set).await?;
        self.meta.changes.changed(fid, answered.transno);
        Ok(())
    }

    /// Names of all extended attributes.
    pub async fn list_xattr(&self, fid: Fid) -> Result<Vec<Bytes>> {
        if let Some(names) = self.meta.kept.xattr_names(fid) {
            return Ok(names);
        }
        let asked = self.meta.inodes.ask();
        let got = self.targets.settled_mdt_of(fid).await?.call(ListXattr { fid }).await?.reply;
        self.meta
            .answers
            .learn_of(&asked, fid, got.lock, |inode| inode.learn_xattr_names(got.lock, &got.names));
        Ok(got.names)
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<()> {
        let (name, time) = (Bytes::copy_from_slice(name), self.clock.time());
        let _changing = self.meta.inodes.change(&[fid], &[]);
        let remove = |cred| RemoveXattr { fid, name: name.clone(), cred, time };
        let answered = self.targets.ask(fid, caller, remove).await?;
        self.meta.changes.changed(fid, answered.transno);
        Ok(())
    }
}
