//! Names: from what is kept, or by one request to the MDT.

use bytes::Bytes;
use proto::wire::messages::{
    Access, Create, Created, Entry, Granted, Link, Lookup, OPEN_ALONE, OPEN_EXCLUSIVE, ReadLink, Rename,
    SetAttr, Unlink,
};
use proto::{Attr, Code, Cred, Fid, FileKind, Name, Timestamp};
use rpc::Answered;

use super::Names;
use super::ahead::New;
use super::cache::{Asked, Changing, Known, Touch};
use crate::names::cache::Told;
use crate::{Caller, Error, Result, name};

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
        project: None,
        inherits: None,
    }
}

impl Names {
    /// The file that `name` means in `parent`; `..` is the directory above.
    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<Told> {
        match name {
            b"." => self.getattr(parent).await,
            b".." => {
                let asked = self.meta.inodes.ask();
                let above =
                    self.targets.ask(parent, caller, |cred| Lookup { parent, name: None, cred }).await?.reply;
                self.meta.answers.learn(&asked, &above);
                drop(asked);
                let above = self.with_what_was_told(above).await?;
                Ok(Told::once(self.sizes.complete_as_far(&above).await?))
            }
            name => {
                let name = crate::name(name)?;
                self.find(caller, parent, &name).await
            }
        }
    }

    /// Attributes with the true size and times, own unflushed writes included.
    pub async fn getattr(&self, fid: Fid) -> Result<Told> {
        // The MDT may learn of an access while this waits for an answer from before.
        let accessed = self.meta.accesses.pending(fid);
        let mut attr = match self.meta.kept.entry(fid) {
            Some(entry) => self.sizes.complete(&entry).await?,
            None => match self.fetch(fid).await {
                Err(Error::Refused(Code::Stale)) => {
                    let removed = self.removed.get(fid);
                    return removed.map(Told::once).ok_or(Error::Refused(Code::Stale));
                }
                fetched => fetched?,
            },
        };
        attr.atime = accessed.map_or(attr.atime, |accessed| attr.atime.max(accessed));
        Ok(self.meta.kernel.told(attr, None))
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        if let Some(target) = self.meta.kept.target(fid) {
            return Ok(target);
        }
        let asked = self.meta.inodes.ask();
        let target = self.targets.settled_mdt_of(fid).await?.call(ReadLink { fid }).await?.reply.target;
        self.meta
            .answers
            .learn_of(&asked, fid, Granted::default(), |inode| inode.target = Some(target.clone()));
        Ok(target)
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
    ) -> Result<Told> {
        let name = crate::name(name)?;
        let time = self.clock.time();
        let new = New { caller, parent, name: &name, mode, open: OPEN_EXCLUSIVE, target: &target, time };
        if let Some(made) = self.ahead.create(&new) {
            return Ok(self.meta.kernel.told(made.attr, Some((parent, &name))));
        }
        let is_dir = FileKind::from_mode(mode) == Some(FileKind::Dir);
        let making = is_dir.then(|| self.ahead.making()).flatten();
        let alone = if making.is_some() { OPEN_ALONE } else { 0 };
        let create = |fid, cred| Create {
            parent,
            name: name.clone(),
            fid,
            mode,
            rdev,
            target: target.clone(),
            open: OPEN_EXCLUSIVE | alone,
            hint: None,
            cred,
            time,
            umask: caller.umask,
            foretold: None,
        };
        let changing = self.meta.inodes.change(&[parent], &[(parent, &name)]);
        let answered = self.fids.make(parent, caller, create).await?;
        self.keep_new(changing, (parent, &name), time, &answered);
        let made = answered.reply;
        if let Some(making) = making {
            making.made(&made);
        }
        Ok(self.meta.kernel.told(made.attr, Some((parent, &name))))
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
        let (name, time) = (crate::name(name)?, self.clock.time());
        if let Some(gone) = self.ahead.remove(caller, parent, &name, directory, time) {
            if directory {
                self.removed.put(Attr { ctime: time, ..gone.attr.clone() });
                self.meta.accesses.removed(gone.attr.fid);
            } else {
                self.sizes.gone(gone.attr.fid);
                self.data.forget_dead(gone.attr.fid);
            }
            return Ok(());
        }
        let unlink = |cred| Unlink { parent, name: name.clone(), directory, cred, time };
        if directory {
            // What was told of its entries.
            self.ahead.all_settled().await;
        }
        let _leaving = self.meta.opens.leaving().await;
        let kept = self.meta.kept.keeps_entries(parent);
        let changing = self.meta.inodes.change(&[parent], &[(parent, &name)]);
        let answered = self.targets.ask(parent, caller, unlink).await?;
        let unlinked = answered.reply;
        self.meta.changes.changed(unlinked.fid, answered.transno);
        if directory && let Some(entry) = self.meta.kept.entry(unlinked.fid) {
            self.removed.put(Attr { ctime: time, ..entry.attr.clone() });
        }
        if directory {
            self.ahead.removed(unlinked.fid);
            self.meta.accesses.removed(unlinked.fid);
        }
        let touch = Touch { dir: parent, transno: answered.transno, time, links: -i32::from(directory) };
        let asked = changing.done_in(touch, &[unlinked.fid]);
        self.meta.answers.learn_absence(&asked, parent, &name, kept);
        if unlinked.nlink == 0 {
            self.meta.recalls.forget_nameless(unlinked.fid);
        }
        if unlinked.nlink == 0 && !directory {
            self.ahead.unlinked(parent, unlinked.fid);
            self.sizes.gone(unlinked.fid);
            self.data.forget_dead(unlinked.fid);
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
        let (old_name, new_name, time) = (name(old_name)?, name(new_name)?, self.clock.time());
        if !self.data.files.is_empty() {
            let moved = self.look_up(caller, parent, &old_name, &self.meta.inodes.ask()).await?;
            let file = self.data.files.find(moved.attr.fid);
            if let Some(file) = file.filter(|file| file.is_fresh()) {
                let asked = self.meta.inodes.ask();
                if self.look_up(caller, new_parent, &new_name, &asked).await.is_ok() {
                    self.data.back.flush_file(&file).await;
                    self.data.back.commit_on_osts(&file).await?;
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
        let names = [(parent, &old_name), (new_parent, &new_name)];
        // Both parents, and what is replaced.
        self.ahead.all_settled().await;
        match self.meta.kept.name(caller, parent, &old_name) {
            Known::File(fid) if flags == 0 => self.ahead.share(fid).await,
            // Both may move.
            _ => {
                self.ahead.leave_now(parent).await;
                self.ahead.leave_now(new_parent).await;
            }
        }
        let moved = match self.meta.kept.name(caller, parent, &old_name) {
            Known::File(fid) => self.meta.kept.stamp_of(fid),
            _ => None,
        };
        let _leaving = self.meta.opens.leaving().await;
        let changing = self.meta.inodes.change(&[parent, new_parent], &names);
        let answered = self.targets.ask(parent, caller, rename).await?;
        let renamed = answered.reply;
        let replaced = renamed.replaced.unwrap_or(Fid::ZERO);
        [renamed.fid, replaced].iter().for_each(|fid| self.meta.changes.changed(*fid, answered.transno));
        let asked = changing.done(&[renamed.fid, replaced]);
        self.meta.answers.has_moved(renamed.fid);
        if let Some((fid, stamp)) = moved.filter(|(fid, _)| *fid == renamed.fid) {
            self.meta.answers.learn_name(&asked, (new_parent, &new_name), (fid, Some(stamp)));
        }
        if replaced != Fid::ZERO {
            self.meta.recalls.forget_nameless(replaced);
        }
        Ok(())
    }

    /// Gives a file one more name.
    pub async fn link(&self, caller: &Caller, fid: Fid, parent: Fid, name: &[u8]) -> Result<Told> {
        let (name, time) = (crate::name(name)?, self.clock.time());
        let link = |cred| Link { fid, parent, name: name.clone(), cred, time };
        let changing = self.meta.inodes.change(&[parent, fid], &[(parent, &name)]);
        self.ahead.share(fid).await;
        let answered = self.targets.ask(parent, caller, link).await?;
        let entry = answered.reply;
        self.meta.changes.changed(fid, answered.transno);
        let touch = Touch { dir: parent, transno: answered.transno, time, links: 0 };
        self.meta.answers.learn_named(&changing.done_in(touch, &[]), parent, &name, &entry);
        let attr = self.sizes.complete_as_far(&entry).await?;
        Ok(self.meta.kernel.told(attr, Some((parent, &name))))
    }

    /// Whether the caller may do what `mask` (`ACCESS_*` bits) says.
    pub async fn access(&self, caller: &Caller, fid: Fid, mask: u32) -> Result<()> {
        self.targets.ask(fid, caller, |cred| Access { fid, mask, cred }).await?;
        Ok(())
    }

    /// The file of an entry of `dir`, if it is known without asking anybody.
    pub fn entry(&self, dir: Fid, entry: &super::PageEntry) -> Option<Told> {
        let known = self.meta.kept.entry(entry.fid)?;
        let attr = known.attr.clone();
        let exact =
            attr.kind() != FileKind::File || attr.size_known && self.data.files.find(entry.fid).is_none();
        exact.then(|| self.meta.kernel.told(attr, Some((dir, &entry.name))))
    }
}

impl Names {
    /// What a name means.
    async fn find(&self, caller: &Caller, parent: Fid, name: &Name) -> Result<Told> {
        if let Some(known) = self.find_known(caller, parent, name).await? {
            self.statahead.saw_known(caller, parent, name);
            return Ok(known);
        }
        if self.statahead.until_come(parent, name).await
            && let Some(known) = self.find_known(caller, parent, name).await?
        {
            self.statahead.saw_known(caller, parent, name);
            return Ok(known);
        }
        let kept = self.meta.kept.keeps_entries(parent);
        let asked = self.meta.inodes.ask();
        match self.look_up(caller, parent, name, &asked).await {
            Ok(entry) => {
                drop(asked);
                self.statahead.saw_asked(caller, parent, name);
                let attr = self.sizes.complete_as_far(&entry).await?;
                Ok(self.meta.kernel.told(attr, Some((parent, name))))
            }
            Err(error @ Error::Refused(Code::NotFound)) => {
                if kept {
                    self.meta.answers.learn_absence(&asked, parent, name, kept);
                } else {
                    // The next name that is not there will be known not to be there.
                    drop(asked);
                    let _ = self.fetch(parent).await;
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// What is kept of a name, with all that belongs to its file; `None` if the MDT has to be asked.
    async fn find_known(&self, caller: &Caller, parent: Fid, name: &Name) -> Result<Option<Told>> {
        let fid = match self.meta.kept.name(caller, parent, name) {
            Known::Nothing => return Err(Error::Refused(Code::NotFound)),
            Known::File(fid) => fid,
            Known::Unknown => return Ok(None),
        };
        let accessed = self.meta.accesses.pending(fid);
        let Some(entry) = self.meta.kept.entry(fid) else { return Ok(None) };
        let mut attr = self.sizes.complete_as_far(&entry).await?;
        attr.atime = accessed.map_or(attr.atime, |accessed| attr.atime.max(accessed));
        Ok(Some(self.meta.kernel.told(attr, Some((parent, name)))))
    }

    /// Asks the MDT what a name means, and keeps the answer.
    async fn look_up(&self, caller: &Caller, parent: Fid, name: &Name, asked: &Asked<'_>) -> Result<Entry> {
        let entry = self
            .targets
            .ask(parent, caller, |cred| Lookup { parent, name: Some(name.clone()), cred })
            .await?
            .reply;
        self.meta.answers.learn_named(asked, parent, name, &entry);
        self.with_what_was_told(entry).await
    }

    /// An answer about a file that was asked for by a name: the MDT may lack what was told of the file ahead.
    async fn with_what_was_told(&self, entry: Entry) -> Result<Entry> {
        let (fid, version) = (entry.attr.fid, entry.attr.version);
        if !self.ahead.is_on() && self.targets.pending.count() == 0 {
            return Ok(entry);
        }
        if let Some(known) = self.meta.kept.entry(fid).filter(|known| known.attr.version >= version) {
            return Ok((*known).clone());
        }
        if self.targets.pending.changes_of(fid) == 0 {
            return Ok(entry);
        }
        Box::pin(self.layouts.fetch_entry(fid)).await
    }

    /// Asks for the attributes of a file.
    async fn fetch(&self, fid: Fid) -> Result<Attr> {
        let entry = self.layouts.fetch_entry(fid).await?;
        self.sizes.complete(&entry).await
    }

    /// Keeps a file that was just made.
    pub(crate) fn keep_new(
        &self,
        changing: Changing<'_>,
        (parent, name): (Fid, &Name),
        time: Timestamp,
        answered: &Answered<Created>,
    ) {
        let made = &answered.reply;
        let entry = Entry {
            attr: made.attr.clone(),
            layout: made.layout.clone(),
            xattrs: made.xattrs,
            lock: made.lock,
        };
        if made.existed {
            let asked = changing.done(&[entry.attr.fid]);
            return self.meta.answers.learn_named(&asked, parent, name, &entry);
        }
        let links = i32::from(entry.attr.kind() == FileKind::Dir);
        let touch = Touch { dir: parent, transno: answered.transno, time, links };
        let asked = changing.done_in(touch, &[entry.attr.fid]);
        self.meta.answers.learn_made(&asked, parent, name, &entry);
    }
}
