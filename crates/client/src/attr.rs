//! setattr, extended attributes.

use bytes::Bytes;
use proto::wire::messages::{GetXattr, ListXattr, RemoveXattr, SetAttr, SetXattr, TimeChange};
use proto::{Code, Fid, Timestamp};

use crate::namespace::no_change;
use crate::{AttrChange, Caller, Client, Error, Handle, Result, TimeSet, Told};

impl TimeSet {
    fn change(self, now: Timestamp) -> TimeChange {
        match self {
            TimeSet::Now => TimeChange { time: now, now: true },
            TimeSet::At(time) => TimeChange { time, now: false },
        }
    }
}

impl Client {
    /// Changes attributes; through an open `handle`, its open mode permits a change of size.
    pub async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        change: AttrChange,
        handle: Option<Handle>,
    ) -> Result<Told> {
        let time = self.shared.time();
        let mdt_handle = match handle {
            Some(handle) => Some(self.shared.handles.get(handle)?.mdt_handle),
            None => None,
        };
        let set = SetAttr {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime.map(|set| set.change(time)),
            mtime: change.mtime.map(|set| set.change(time)),
            handle: mdt_handle,
            kill_privileges: change.size.is_some() && caller.uid != 0,
            ..no_change(fid, time)
        };
        if let Some(size) = change.size {
            return Ok(Told::once(self.shared.truncate(caller, set, size).await?));
        }
        let file = self.shared.files.find(fid);
        if let Some(file) = file.as_ref().filter(|_| change.atime.is_some() || change.mtime.is_some()) {
            // Writes from before the call must not look newer than the times that it sets.
            self.shared.flush_file(file).await;
        }
        let changing = self.shared.inodes.change(&[fid], &[]);
        let answered = self.shared.ask(caller, |cred| SetAttr { cred, ..set.clone() }).await?;
        self.shared.changed(fid, answered.transno);
        if change.atime.is_some() {
            self.shared.access_set(fid, time);
        }
        self.shared.learn(&changing.done(&[]), &answered.reply);
        let attr = self.shared.complete(answered.reply).await?;
        Ok(self.shared.told(attr, None))
    }

    /// Value of an extended attribute.
    pub async fn get_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Bytes> {
        let known = self.shared.known_xattr(caller, fid, name);
        if let Some(known) = known {
            return known.ok_or(Error::Refused(Code::NoXattr));
        }
        let name = Bytes::copy_from_slice(name);
        let asked = self.shared.inodes.ask();
        let got = self.shared.ask(caller, |cred| GetXattr { fid, name: name.clone(), cred }).await?.reply;
        self.shared.learn_of(&asked, fid, got.lock, |inode| {
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
        let (name, time) = (Bytes::copy_from_slice(name), self.shared.time());
        let set = |cred| SetXattr { fid, name: name.clone(), value: value.clone(), flags, cred, time };
        let _changing = self.shared.inodes.change(&[fid], &[]);
        let answered = self.shared.ask(caller, set).await?;
        self.shared.changed(fid, answered.transno);
        Ok(())
    }

    /// Names of all extended attributes.
    pub async fn list_xattr(&self, fid: Fid) -> Result<Vec<Bytes>> {
        if let Some(names) = self.shared.known_xattr_names(fid) {
            return Ok(names);
        }
        let asked = self.shared.inodes.ask();
        let got = self.shared.targets.mdt()?.call(ListXattr { fid }).await?.reply;
        self.shared.learn_of(&asked, fid, got.lock, |inode| inode.learn_xattr_names(got.lock, &got.names));
        Ok(got.names)
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<()> {
        let (name, time) = (Bytes::copy_from_slice(name), self.shared.time());
        let _changing = self.shared.inodes.change(&[fid], &[]);
        let remove = |cred| RemoveXattr { fid, name: name.clone(), cred, time };
        let answered = self.shared.ask(caller, remove).await?;
        self.shared.changed(fid, answered.transno);
        Ok(())
    }
}
