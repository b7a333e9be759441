//! lseek(2) with SEEK_DATA and SEEK_HOLE.

use std::iter::once;
use std::sync::Arc;

use proto::Fid;
use proto::wire::messages::Entry;

use crate::files::OpenFiles;
use crate::lock::{Pages as Locking, beyond};
use crate::names::{Relaying, is_of_layout};
use crate::{Result, Seek};

impl OpenFiles {
    /// First offset at or behind `offset` at which what is looked for begins; `None` behind the end of the file, and
    /// for data that does not come any more.
    pub async fn seek(&self, fid: Fid, offset: u64, what: Seek) -> Result<Option<u64>> {
        if let Some(file) = self.names.data.files.find(fid) {
            // The kernel asks without writing back what programs have stored through mappings.
            if file.inner.lock().mapped_writers > 0 {
                self.names.data.locks.filling.forget_data(fid, once(offset..u64::MAX)).await;
            }
            // What was not sent has no place in an object yet.
            self.names.data.back.flush_file(&file).await;
        }
        let mut relaying = Relaying::default();
        loop {
            let entry = self.names.layouts.fetch_entry(fid).await?;
            let layout = entry.layout.clone();
            match (self.seek_entry(entry, offset, what).await, layout) {
                // Told anew: the data was moved, or is being moved.
                (Err(error), Some(layout)) if is_of_layout(error) => {
                    let told = self.names.layouts.fetch_entry(fid).await?.layout;
                    let moved = told.is_some_and(|told| !told.lies_as(&layout));
                    let sealed = [(fid, layout)];
                    if !moved && !self.names.layouts.still_sealed(&sealed, error, &mut relaying).await? {
                        return Err(error);
                    }
                }
                (sought, _) => return sought,
            }
        }
    }

    async fn seek_entry(&self, entry: Entry, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (fid, layout) = (entry.attr.fid, entry.layout.clone());
        let size = self.names.sizes.complete(&entry).await?.size;
        if offset >= size {
            return Ok(None);
        }
        match (layout, what) {
            // What is in an archive is data: whoever copies it has it restored.
            (Some(layout), Seek::Data) if layout.is_released() => Ok(Some(offset)),
            (Some(layout), Seek::Hole) if layout.is_released() => Ok(Some(size)),
            (Some(layout), what) => {
                let layout = Arc::new(layout);
                // What other clients have not written yet has no place in an object either.
                let _pins = self
                    .names
                    .data
                    .locks
                    .pin(fid, &layout, &beyond(&layout, offset), false, Locking::No)
                    .await?;
                self.names.data.objects.seek_objects(&layout, offset, size, what).await
            }
            (None, Seek::Data) => Ok(Some(offset)),
            (None, Seek::Hole) => Ok(Some(size)),
        }
    }
}
