//! open, create, flush, fsync, and the start of close.

use std::iter::once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::types::Attr;
use proto::wire::messages::{
    Create, CreateUnnamed, Created, Entry, OPEN_EXCLUSIVE, OPEN_EXECUTE, OPEN_RANGE, OPEN_READ, OPEN_WRITE,
    Open,
};
use proto::{Code, Fid, FileKind, JobId, Layout, Name, Transno};
use rt::wait::join_all;

use crate::data::Resize;
use crate::files::{OpenFile, OpenFiles};
use crate::lock::whole;
use crate::names::{Ended, Made, New, Told as Answer, is_released, no_change};
use crate::targets::Targets;
use crate::{AttrChange, Caller, Error, Forget, Handle, OpenFlags, Result};

impl OpenFlags {
    pub(super) fn bits(self) -> u32 {
        let bit = |on, bit| if on { bit } else { 0 };
        // What is executed is read by the kernel alone: the right to execute takes the place of the right to read.
        let bits = bit(self.read && !self.execute, OPEN_READ)
            | bit(self.write, OPEN_WRITE)
            | bit(self.exclusive, OPEN_EXCLUSIVE)
            | bit(self.execute, OPEN_EXECUTE);
        // A file that is opened for nothing (O_PATH and the like) is opened for reading at the MDT.
        bits | bit(!self.read && !self.write && !self.execute, OPEN_READ)
    }
}

/// What the MDT has told about a file that it opened.
pub(super) struct Told {
    pub(super) attr: Attr,
    pub(super) layout: Option<Layout>,
    pub(super) handle: u64,
    pub(super) transno: Transno,
    /// Whether it may have capabilities: these are an extended attribute.
    pub(super) xattrs: bool,
    /// Whether the file was there before.
    pub(super) reopened: bool,
    /// The session in which it did; none for a file that it will make.
    pub(super) session: Option<u64>,
}

impl OpenFiles {
    /// Makes a regular file and opens it, or opens the one that is there.
    pub async fn create(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Answer, Handle)> {
        let name = crate::name(name)?;
        let time = self.names.clock.time();
        let mode = (mode & !proto::types::MODE_KIND) | FileKind::File.mode_bits();
        let open = flags.bits() | if flags.write { OPEN_RANGE } else { 0 };
        let new = New { caller, parent, name: &name, mode, open, target: &[], time };
        if let Some(made) = self.names.ahead.create(&new) {
            return Ok(self.made_ahead(caller, (parent, &name), flags, made));
        }
        let create = |fid, cred| Create {
            parent,
            name: name.clone(),
            fid,
            mode,
            rdev: 0,
            target: Bytes::new(),
            open,
            hint: None,
            cred,
            time,
            umask: caller.umask,
            foretold: None,
        };
        let changing = self.names.meta.inodes.change(&[parent], &[(parent, &name)]);
        let before = self.names.data.locks.before_new();
        let answered = loop {
            match self.names.fids.make(parent, caller, create).await {
                Err(error) if is_released(error) => Box::pin(self.restore_name(parent, &name)).await?,
                answered => break answered?,
            }
        };
        self.names.keep_new(changing, (parent, &name), time, &answered);
        let (made, transno) = (answered.reply, answered.transno);
        let opened = Told {
            attr: made.attr.clone(),
            layout: made.layout.clone(),
            handle: made.handle,
            transno,
            // A new file has no capabilities that a write would have to take away.
            xattrs: made.existed && made.xattrs,
            reopened: made.existed,
            session: Some(answered.session),
        };
        let handle = self.opened(caller, opened, flags);
        if let Some(token) = &made.range {
            self.heads.granted_new(made.attr.fid, token, before);
        }
        let attr = match made.existed {
            // Nobody can have written to it yet.
            false => Ok(Attr { size: 0, blocks: 0, ..made.attr }),
            true => Box::pin(self.opened_existing(caller, handle, flags, made)).await,
        };
        match attr {
            // That the name means this file is told after everything that had to be waited for.
            Ok(attr) => Ok((self.names.meta.kernel.told(attr, Some((parent, &name))), handle)),
            Err(error) => {
                self.release(handle).await;
                Err(error)
            }
        }
    }

    /// The name that was to be made is one of a released file.
    async fn restore_name(&self, parent: Fid, name: &Name) -> Result<()> {
        let fid = match self.names.lookup(&Caller::root(), parent, name.as_bytes()).await {
            Ok(found) => found.fid,
            // Somebody has removed it: there is none to be opened.
            Err(Error::Refused(Code::NotFound)) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.names.layouts.restored(fid).await.map(|_| ())
    }

    /// Opens a file that the MDT will make.
    fn made_ahead(
        &self,
        caller: &Caller,
        (parent, name): (Fid, &Name),
        flags: OpenFlags,
        made: Made,
    ) -> (Answer, Handle) {
        let opened = Told {
            attr: made.attr.clone(),
            layout: made.layout,
            handle: made.handle,
            transno: Transno(0),
            xattrs: false,
            reopened: false,
            session: None,
        };
        let handle = self.opened(caller, opened, flags);
        (self.names.meta.kernel.told(made.attr, Some((parent, name))), handle)
    }

    /// What is left to do if the file was there: it is emptied if that is asked for. Gives its true attributes.
    async fn opened_existing(
        &self,
        caller: &Caller,
        handle: Handle,
        flags: OpenFlags,
        made: Created,
    ) -> Result<Attr> {
        self.prepare_pages(handle, flags).await?;
        let entry = Entry { attr: made.attr, layout: made.layout, xattrs: made.xattrs, lock: made.lock };
        match flags.truncate {
            true => self.cut_opened(caller, handle, &entry.attr).await,
            false => self.names.sizes.complete(&entry).await,
        }
    }

    /// Makes a regular file without a name in `dir` and opens it (O_TMPFILE). [`crate::Names::link`] can give it a name,
    /// unless it is opened exclusively.
    pub async fn create_unnamed(
        &self,
        caller: &Caller,
        dir: Fid,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Answer, Handle)> {
        self.create_unnamed_with(caller, dir, mode, flags, None).await
    }

    /// The same with a layout after `hint`.
    pub(crate) async fn create_unnamed_with(
        &self,
        caller: &Caller,
        dir: Fid,
        mode: u32,
        flags: OpenFlags,
        hint: Option<LayoutHint>,
    ) -> Result<(Answer, Handle)> {
        let time = self.names.clock.time();
        let create = |fid, cred| CreateUnnamed {
            parent: dir,
            fid,
            mode,
            open: flags.bits(),
            hint: hint.clone(),
            cred,
            time,
            umask: caller.umask,
        };
        let answered = self.names.fids.make(dir, caller, create).await?;
        let (made, transno) = (answered.reply, answered.transno);
        let attr = made.attr.clone();
        let told = Told {
            attr: made.attr,
            layout: made.layout,
            handle: made.handle,
            transno,
            xattrs: false,
            reopened: false,
            session: Some(answered.session),
        };
        // Nobody else can ever have written to it.
        Ok((Answer::once(Attr { size: 0, blocks: 0, ..attr }), self.opened(caller, told, flags)))
    }

    /// Opens a regular file, or a directory to read it.
    pub async fn open(&self, caller: &Caller, fid: Fid, flags: OpenFlags) -> Result<Handle> {
        let session = session_of(&self.targets, fid);
        let meta = &self.names.meta;
        let at_hand =
            meta.opens.open_again(caller, fid, flags).or_else(|| self.heads.open_own(caller, fid, flags));
        if let Some((entry, mdt_handle)) = at_hand {
            let told = Told {
                attr: entry.attr.clone(),
                layout: entry.layout.clone(),
                handle: mdt_handle,
                transno: Transno(0),
                xattrs: entry.xattrs,
                reopened: true,
                session,
            };
            let handle = self.opened(caller, told, flags);
            self.prepare_pages(handle, flags).await?;
            return Ok(handle);
        }
        // Who opens to write changes what the MDT says of the size.
        let changing = self.names.meta.inodes.change(&[if flags.write { fid } else { Fid::ZERO }], &[]);
        let head = self.heads.of(fid, flags);
        let bits = flags.bits() | if head.is_some() { OPEN_RANGE } else { 0 };
        let answered = loop {
            match self.targets.ask(fid, caller, |cred| Open { fid, open: bits, cred }).await {
                Err(error) if is_released(error) => {
                    Box::pin(self.names.layouts.restored(fid)).await?;
                }
                answered => break answered?,
            }
        };
        let (open, transno, brought) = (answered.reply, answered.transno, answered.bulk);
        self.names.meta.changes.changed(fid, transno);
        let (attr, layout) = (open.attr.clone(), open.layout.clone());
        let entry = Entry { attr, layout, xattrs: open.xattrs, lock: open.lock };
        if self.names.meta.answers.learn(&changing.done(&[]), &entry) && !flags.write {
            self.names.meta.opens.keep_open(fid, open.handle);
        }
        let attr = open.attr.clone();
        let told = Told {
            attr: open.attr,
            layout: open.layout,
            handle: open.handle,
            transno,
            xattrs: open.xattrs,
            reopened: true,
            session: Some(answered.session),
        };
        let handle = self.opened(caller, told, flags);
        if let (Some(head), Some(token)) = (head, &open.range) {
            self.heads.brought(fid, head, token, &brought);
        }
        self.prepare_pages(handle, flags).await?;
        if flags.truncate {
            let cut = Box::pin(self.cut_opened(caller, handle, &attr)).await;
            if let Err(error) = cut {
                self.release(handle).await;
                return Err(error);
            }
        }
        Ok(handle)
    }

    /// Notes that a directory was read through `handle`: its access time follows at the close.
    pub fn accessed(&self, handle: Handle) {
        if let Ok(open) = self.handles.get(handle) {
            open.note_access(&self.names);
        }
    }

    /// The job for which a handle was opened; none for one that is not open.
    pub fn job_of(&self, handle: Handle) -> JobId {
        self.handles.get(handle).map_or(JobId::NONE, |open| open.job)
    }

    /// Whether another client had the file open for writing when this handle was opened, or has not told its size.
    pub fn is_written_elsewhere(&self, handle: Handle) -> bool {
        let Ok(open) = self.handles.get(handle) else { return false };
        let Some(file) = &open.file else { return false };
        let inner = file.inner.lock();
        !open.attr.size_known && inner.writers == 0 && !inner.untold
    }

    /// close(2): errors of earlier writes, once for each handle; data is readable by others when it returns: on the OSTs, unless nobody else can
    /// know of the file yet.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let open = self.handles.get(handle)?;
        let Ok(file) = open.writable() else { return Ok(()) };
        if !file.inner.lock().is_unknown {
            self.names.data.back.flush_file(file).await;
        }
        file.take_failure(&open.failure_seen)
    }

    /// Durable on OSTs and MDT when it returns.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let open = self.handles.get(handle)?;
        match &open.file {
            Some(file) => self.writer.sync_file(file, &open.failure_seen).await,
            None => {
                let committed = self.fsync_dir(open.fid).await;
                self.names.ahead.losses.take(&open.failure_seen).and(committed)
            }
        }
    }

    /// fsync of a directory: everything this client changed in the name space is durable.
    pub async fn fsync_dir(&self, _fid: Fid) -> Result<()> {
        self.names.ahead.all_settled().await;
        let commits =
            self.targets.mdts().into_iter().map(|mdt| async move { mdt.commit(mdt.newest()).await });
        join_all(commits).await.into_iter().collect()
    }

    /// Ends a handle. What it wrote becomes durable, and its size known to the MDT, in the background.
    pub async fn release(&self, handle: Handle) {
        if let Some(open) = self.handles.take(handle) {
            // Before its name at the MDT is looked at: it may just be opened again.
            open.closed.store(true, Ordering::SeqCst);
            self.flocks.unlock_handle(open.fid, handle).await;
            if let Some(file) = &open.file {
                file.inner.lock().handles -= 1;
                self.names.data.no_more_reads(file, handle.0);
            }
            let file = open.file.as_ref().map(|file| self.names.data.files.get(file.fid));
            let (flags, wrote) = (open.flags, open.wrote.load(Ordering::Relaxed));
            if file.as_ref().is_some_and(|file| self.names.ahead.closed(file, flags)) {
                return;
            }
            self.names
                .sizes
                .close(Ended { fid: open.fid, handle: open.mdt_handle(), flags, file, wrote })
                .await;
        }
    }
}

/// The present session with the MDT of a file.
fn session_of(targets: &Targets, fid: Fid) -> Option<u64> {
    targets.mdt_of(fid).ok().map(|mdt| mdt.session())
}

impl OpenFiles {
    fn opened(&self, caller: &Caller, told: Told, flags: OpenFlags) -> Handle {
        let fid = told.attr.fid;
        let file = (told.attr.kind() == FileKind::File).then(|| self.names.data.files.get(fid));
        if let Some(file) = &file {
            file.set_layout(told.layout);
            file.set_owner(&told.attr);
            if !told.reopened {
                let mut inner = file.inner.lock();
                inner.end.made();
                inner.own.made();
            }
            let mut inner = file.inner.lock();
            inner.handles += 1;
            if told.attr.size_known {
                inner.ahead.opened(told.attr.size);
            }
            if flags.write {
                inner.writers += 1;
                inner.mapped_writers += u32::from(flags.read);
                if told.reopened {
                    inner.reopened = inner.reopened.max(told.transno);
                }
            }
        }
        let failures = file.as_ref().map(|file| file.failures());
        let failure_seen = AtomicU64::new(failures.unwrap_or_else(|| self.names.ahead.losses.told()));
        let handle = self.handles.put(OpenFile {
            fid,
            mdt_handle: AtomicU64::new(told.handle),
            losses: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            fences: file.as_ref().map_or(0, |file| file.fences()),
            flags,
            file,
            attr: told.attr,
            xattrs: told.xattrs,
            opener: Caller { umask: 0, gives_way: false, ..caller.clone() },
            job: rpc::job::current(),
            read: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
            failure_seen,
        });
        // If the session ended just now it was not among what was lost, as it was not there yet.
        if told.session.is_some_and(|session| session_of(&self.targets, fid) != Some(session))
            && let Ok(open) = self.handles.get(handle)
        {
            open.losses.fetch_add(1, Ordering::AcqRel);
        }
        handle
    }

    /// Changes attributes; through an open `handle`, its open mode permits a change of size.
    pub async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        change: AttrChange,
        handle: Option<Handle>,
    ) -> Result<Answer> {
        let open = handle.map(|handle| self.handles.get(handle)).transpose()?;
        if let Some(open) = open.as_ref().filter(|open| change.size.is_some() && open.flags.write) {
            self.reopening.open_to_write(open).await?;
        }
        self.names.setattr(caller, fid, change, open.map(|open| open.through())).await
    }

    /// What the kernel has in its page cache needs care. Through a handle that reads and writes pages may be mapped and
    /// changed without a call: those that were filled under a right to read have to be filled again. Through one that
    /// only reads they are read without a call: that counts as an access from now on.
    async fn prepare_pages(&self, handle: Handle, flags: OpenFlags) -> Result<()> {
        let open = self.handles.get(handle)?;
        let Some(file) = &open.file else { return Ok(()) };
        let Ok(layout) = file.layout() else { return Ok(()) };
        if !flags.read || !self.names.data.locks.pages.kernel_has(&whole(&layout)) {
            return Ok(());
        }
        if flags.write {
            Box::pin(self.names.data.locks.filling.forget_data(open.fid, once(0..u64::MAX))).await;
        } else if open.access_if_due(&self.names) {
            Box::pin(self.names.meta.kernel.copies.forget(vec![Forget::SizeAndTimes(open.fid)])).await;
        }
        Ok(())
    }

    /// O_TRUNC.
    async fn cut_opened(&self, caller: &Caller, handle: Handle, attr: &Attr) -> Result<Attr> {
        let open = self.handles.get(handle)?;
        let set = proto::wire::messages::SetAttr {
            size: Some(0),
            handle: Some(open.mdt_handle()),
            kill_privileges: caller.uid != 0,
            ..no_change(attr.fid, self.names.clock.time())
        };
        self.names.sizes.truncate(caller, (set, Some(open.fences)), Resize::To(0)).await
    }
}

impl OpenFiles {
    /// Has the kernel write back what was changed through mappings.
    pub async fn write_mappings_back(&self) {
        let files = self.handles.all().into_iter().filter_map(|handle| {
            let open = self.handles.get(handle).ok()?;
            let is_mapped = open.file().ok()?.inner.lock().mapped_writers > 0;
            is_mapped.then_some(open.fid)
        });
        let files: std::collections::BTreeSet<Fid> = files.collect();
        join_all(
            files.into_iter().map(|fid| self.names.data.locks.filling.forget_data(fid, once(0..u64::MAX))),
        )
        .await;
    }
}
