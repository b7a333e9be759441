//! read(2).

use bytes::Bytes;

use crate::data::FileRef;
use crate::files::OpenFiles;
use crate::names::Relaying;
use crate::{Handle, Pages, Result};

impl OpenFiles {
    /// Reads up to `len` bytes at `offset`; less only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let open = self.handles.get(handle)?;
        let file = open.readable()?;
        self.note_access(&open);
        self.read_ahead((handle, false), file, offset, len).await;
        let mut relaying = Relaying::default();
        loop {
            let Ok(layout) = file.layout() else { return Ok(Vec::new()) };
            match self.names.data.read_locked(file, &layout, (offset, u64::from(len))).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                read => return read,
            }
        }
    }

    /// The same for the kernel's page cache, which holds the pages locked until it has the answer.
    pub async fn read_pages(&self, handle: Handle, offset: u64, len: u32) -> Result<Pages> {
        let open = self.handles.get(handle)?;
        let file = open.file()?;
        self.note_access(&open);
        self.read_ahead((handle, true), file, offset, len).await;
        let mut relaying = Relaying::default();
        loop {
            let Ok(layout) = file.layout() else { return Ok(Pages::default()) };
            match self.names.data.fill_pages(file, &layout, (offset, len)).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                filled => return filled,
            }
        }
    }

    async fn read_ahead(&self, (handle, pages): (Handle, bool), file: &FileRef, offset: u64, len: u32) {
        let Ok(layout) = file.layout() else { return };
        let range = offset..offset.saturating_add(u64::from(len));
        self.names.data.read_ahead(file, &layout, (handle.0, pages), range).await;
    }
}
