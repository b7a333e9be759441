//! write(2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::types::{MODE_SETGID, MODE_SETUID};
use proto::wire::messages::SetAttr;
use proto::{Code, Fid, Layout, Timestamp};

use crate::data::{Call, FileRef, Span, Taking};
use crate::files::{OpenFile, OpenFiles};
use crate::names::{Relaying, no_change};
use crate::{Caller, Error, Handle, Result};

impl OpenFiles {
    /// Whether a file had set-user-id or set-group-id bits when it was opened.
    pub fn is_privileged(&self, handle: Handle) -> bool {
        self.handles.get(handle).is_ok_and(|open| open.attr.mode & (MODE_SETUID | MODE_SETGID) != 0)
    }

    /// The same now, as far as that is known: another mount may have set them since.
    pub fn is_privileged_now(&self, fid: Fid) -> bool {
        let mode = self.names.meta.kept.entry(fid).map_or(0, |entry| entry.attr.mode);
        mode & (MODE_SETUID | MODE_SETGID) != 0
    }

    /// Takes privileges away as a write of `caller` does.
    pub async fn drop_privileges(&self, handle: Handle, caller: &Caller) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.open_to_write(&open).await?;
        self.drop_privileges_of(&open, caller, self.names.clock.time()).await
    }

    /// Writes if there is nothing to wait for; `None`: nothing was done. For callers who have `data` for a moment only.
    pub fn write_at_once(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<Option<u32>> {
        let open = self.handles.get(handle)?;
        let file = open.writable()?;
        let len = u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        file.take_full(&open.failure_seen)?;
        let waits = open.flags.sync || open.drops_privileges() || open.is_lost() || open.is_fenced();
        if waits || len == 0 || file.inner.lock().write_through {
            return Ok(None);
        }
        let layout = file.layout()?;
        if !open.flags.append && !layout.is_placed(offset, u64::from(len)) {
            return Ok(None);
        }
        if self.names.data.lacks_room(file, &layout, u64::from(len)) {
            return Ok(None);
        }
        let budgets = &self.names.data.budgets;
        let taking = open.is_limited().then(|| budgets.try_take(file, open.span(offset, data.len())));
        if matches!(taking, Some(None)) {
            return Ok(None);
        }
        let stored = match open.flags.append {
            true => self.names.data.append_at_once(file, &layout, data)? as u32,
            false if self.names.data.write_there_at_once(file, &layout, (offset, data))? => len,
            false => 0,
        };
        if stored == 0 {
            return Ok(None);
        }
        open.wrote.store(true, Ordering::Relaxed);
        Ok(Some(stored))
    }

    /// Takes a copy of `data`; returns when it is in the write-behind cache (or durable, for a `sync` handle). An
    /// append handle writes at the end whatever `offset` says.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32> {
        let open = self.handles.get(handle)?;
        let appends = open.flags.append;
        self.write_or_append(&open, (offset, appends), data).await
    }

    /// The same at the end of the file, through any handle.
    pub async fn append(&self, handle: Handle, data: &[u8]) -> Result<u32> {
        let open = self.handles.get(handle)?;
        self.write_or_append(&open, (0, true), data).await
    }

    async fn write_or_append(
        &self,
        open: &OpenFile,
        (offset, appends): (u64, bool),
        data: &[u8],
    ) -> Result<u32> {
        let file = open.writable()?;
        u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        file.take_full(&open.failure_seen)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.open_to_write(open).await?;
        let time = self.names.clock.time();
        // What is rare is boxed, so that a write's future has no room for it.
        if open.drops_privileges() {
            Box::pin(self.drop_own_privileges(open, time)).await?;
        }
        let _taking = match open.is_limited() {
            true => {
                let span = Span { offset: (!appends).then_some(offset), len: data.len() as u64 };
                if !appends {
                    // Limits of pools depend on where it lies.
                    self.names.layouts.placed(file, (offset, span.len)).await?;
                }
                Some(Box::pin(self.permitted(file, span)).await?)
            }
            false => None,
        };
        // Before anything is stored: a close that tells no size has to say that there may be a new one.
        open.wrote.store(true, Ordering::Relaxed);
        let call = Call { sync: open.flags.sync, ..open.call(time) };
        let mut relaying = Relaying::default();
        let mut stored = 0;
        while stored < data.len() as u64 {
            let (at, rest) = (offset + stored, &data[stored as usize..]);
            let layout = match appends {
                true => file.layout()?,
                false => self.names.layouts.placed(file, (at, rest.len() as u64)).await?,
            };
            self.names.data.lacks_room(file, &layout, rest.len() as u64);
            let done = match appends {
                true => Box::pin(self.append_to(file, &layout, rest, call)).await,
                false => self.names.data.write_at(file, &layout, (at, rest), call).await,
            };
            match done {
                Ok(done) => stored += done,
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                Err(error) if stored == 0 => return Err(error),
                Err(_) => break,
            }
            // What follows at the end may not be the end any more.
            if appends && stored > 0 {
                break;
            }
        }
        if open.flags.sync {
            Box::pin(self.sync_file(file, &open.failure_seen)).await?;
        } else if file.inner.lock().write_through {
            Box::pin(self.names.data.back.flush_file(file)).await;
            file.take_failure(&open.failure_seen)?;
            file.inner.lock().write_through = false;
        }
        Ok(stored as u32)
    }

    /// Takes what the limits of the file's owner have left for a write. Where that lies may depend on the end of the file, which is
    /// waited for while the file is being moved.
    pub(super) async fn permitted(&self, file: &FileRef, span: Span) -> Result<Taking<'_>> {
        let mut relaying = Relaying::default();
        loop {
            let layout = file.layout()?;
            match self.names.data.budgets.take(file, span).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                taken => return taken,
            }
        }
    }

    /// Whether the data is to be written again, under the layout that the file has now.
    async fn relaid(
        &self,
        file: &FileRef,
        layout: &Arc<Layout>,
        error: Error,
        relaying: &mut Relaying,
    ) -> Result<bool> {
        Box::pin(self.names.layouts.relaid(file, layout, error, relaying)).await
    }

    /// Bytes written at the end of a file that has `layout`. Stale if it has more objects now.
    async fn append_to(&self, file: &FileRef, layout: &Arc<Layout>, data: &[u8], call: Call) -> Result<u64> {
        let _alone = file.alone().await?;
        loop {
            let pins = self.names.data.pin_whole(file, layout).await?;
            // Asked under the locks: whoever appends after this has waited for them.
            if self.names.layouts.has_grown(file, layout).await? {
                return Err(Error::Refused(Code::Stale));
            }
            let end = self.names.data.end_under(file, layout, &pins).await?;
            file.check_fence(call.fences)?;
            if !layout.is_placed(end, data.len() as u64) {
                drop(pins);
                self.names.layouts.placed(file, (end, data.len() as u64)).await?;
                return Err(Error::Refused(Code::Stale));
            }
            let stored = self.names.data.append_under(file, layout, (end, data), call, &pins).await?;
            if stored > 0 {
                return Ok(stored);
            }
        }
    }

    /// The kernel writes pages back that were changed through a mapping. It holds them locked, and a truncate or a
    /// callback may be waiting for just that: this waits for neither.
    pub async fn write_pages(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32> {
        let open = self.handles.get(handle)?;
        let file = open.writable()?;
        let len = u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        open.wrote.store(true, Ordering::Relaxed);
        let call = open.call(self.names.clock.time());
        let mut relaying = Relaying::default();
        loop {
            let layout = self.names.layouts.placed(file, (offset, data.len() as u64)).await?;
            match self.names.data.write_pages_back(file, &layout, (offset, data), call).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                written => return written.map(|()| len),
            }
        }
    }

    /// The first write through a handle takes capabilities away, whoever writes. What takes setuid and setgid away depends on who
    /// writes, and not on who opened the file ([`crate::Posix`]).
    pub(super) async fn drop_own_privileges(&self, open: &OpenFile, time: Timestamp) -> Result<()> {
        if open.drops_privileges() {
            self.drop_privileges_of(open, &open.opener, time).await?;
        }
        open.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn drop_privileges_of(&self, open: &OpenFile, caller: &Caller, time: Timestamp) -> Result<()> {
        let change =
            SetAttr { handle: Some(open.mdt_handle()), kill_privileges: true, ..no_change(open.fid, time) };
        let changing = self.names.meta.inodes.change(&[open.fid], &[]);
        let answered = self.targets.ask(open.fid, caller, |cred| SetAttr { cred, ..change.clone() }).await?;
        self.names.meta.answers.not_kept(&changing, &answered.reply);
        Ok(())
    }
}

impl OpenFile {
    /// Whether the next write is the first one, and has privileges of the file to take away.
    fn drops_privileges(&self) -> bool {
        self.xattrs && !self.wrote.load(Ordering::Relaxed)
    }
}
