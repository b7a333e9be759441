//! write(2), through handles.

use std::sync::atomic::Ordering;

use proto::types::{MODE_SETGID, MODE_SETUID};
use proto::{Code, Fid};

use crate::files::OpenFiles;
use crate::names::Relaying;
use crate::{Caller, Error, Handle, Result};

impl OpenFiles {
    /// Whether a file had set-user-id or set-group-id bits when it was opened.
    pub fn is_privileged(&self, handle: Handle) -> bool {
        self.handles.get(handle).is_ok_and(|open| open.attr.mode & (MODE_SETUID | MODE_SETGID) != 0)
    }

    /// The same now; `None`: another mount may have set them since this one looked.
    pub fn is_privileged_now(&self, fid: Fid) -> Option<bool> {
        self.names.meta.kept.is_privileged(fid)
    }

    /// Whether the file may have extended attributes now, of which capabilities are one.
    pub fn may_have_xattrs(&self, fid: Fid) -> bool {
        self.names.meta.kept.entry(fid).is_none_or(|entry| entry.xattrs)
    }

    /// Takes privileges away as a write of `caller` does.
    pub async fn drop_privileges(&self, handle: Handle, caller: &Caller) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.reopening.open_to_write(&open).await?;
        self.writer.drop_privileges_of(&open, caller, self.names.clock.time()).await
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
        self.writer.write(&open, (offset, appends), data).await
    }

    /// The same at the end of the file, through any handle.
    pub async fn append(&self, handle: Handle, data: &[u8]) -> Result<u32> {
        let open = self.handles.get(handle)?;
        self.writer.write(&open, (0, true), data).await
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
                Err(error) if self.writer.relaid(file, &layout, error, &mut relaying).await? => {}
                written => return written.map(|()| len),
            }
        }
    }
}
