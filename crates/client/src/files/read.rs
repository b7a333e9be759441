//! read(2).

use bytes::Bytes;
use proto::{Code, Layout};

use crate::data::FileRef;
use crate::files::OpenFiles;
use crate::names::Relaying;
use crate::{Error, Handle, Pages, Result};

impl OpenFiles {
    /// Reads up to `len` bytes at `offset`; less only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let open = self.handles.get(handle)?;
        let file = open.readable()?;
        open.note_access(&self.names);
        self.read_ahead((handle, false), file, offset, len).await;
        let mut relaying = Relaying::default();
        loop {
            if file.layout().is_err() {
                return Ok(Vec::new());
            }
            let layout = self.names.layouts.there(file).await?;
            match self.names.data.read_locked(file, &layout, (offset, u64::from(len))).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                read => {
                    let got =
                        read.as_ref().map_or(len as usize, |slices| slices.iter().map(Bytes::len).sum());
                    if !self.may_lack(file, &layout, (offset, len), got).await? {
                        return read;
                    }
                }
            }
        }
    }

    /// The same for the kernel's page cache, which holds the pages locked until it has the answer.
    pub async fn read_pages(&self, handle: Handle, offset: u64, len: u32) -> Result<Pages> {
        let open = self.handles.get(handle)?;
        let file = open.file()?;
        open.note_access(&self.names);
        self.read_ahead((handle, true), file, offset, len).await;
        let mut relaying = Relaying::default();
        loop {
            let Ok(layout) = file.layout() else { return Ok(Pages::default()) };
            // What the kernel keeps has to be protected, and only objects can be locked.
            let layout = match self.names.layouts.placed(file, (offset, u64::from(len))).await {
                Err(Error::Refused(Code::NoComponent)) => layout,
                placed => placed?,
            };
            match self.names.data.fill_pages(file, &layout, (offset, len)).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                filled => {
                    let slices = filled.as_ref().map(|filled| filled.slices.iter().map(Bytes::len).sum());
                    let got = slices.unwrap_or(len as usize);
                    if !self.may_lack(file, &layout, (offset, len), got).await? {
                        return filled;
                    }
                }
            }
        }
    }

    /// Whether a read that gave `got` bytes has to be done again: what `layout` has no objects for may have been written by
    /// others. Asked afterwards, so that what was read is what was there at the time of this question.
    async fn may_lack(
        &self,
        file: &FileRef,
        layout: &Layout,
        (offset, len): (u64, u32),
        got: usize,
    ) -> Result<bool> {
        let is_whole = got >= len as usize && layout.is_placed(offset, u64::from(len));
        Ok(!is_whole && self.names.layouts.has_grown(file, layout).await?)
    }

    async fn read_ahead(&self, (handle, pages): (Handle, bool), file: &FileRef, offset: u64, len: u32) {
        let Ok(layout) = file.layout() else { return };
        let range = offset..offset.saturating_add(u64::from(len));
        self.names.data.read_ahead(file, &layout, (handle.0, pages), range).await;
    }
}
