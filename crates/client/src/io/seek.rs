//! SEEK_DATA and SEEK_HOLE: the objects are asked, each for its part.

use std::sync::Arc;

use proto::layout::Place;
use proto::wire::messages::{Entry, SeekObject, Sought};
use proto::{Code, Fid, Layout};

use crate::file::{Relaying, is_of_layout};
use crate::lock::Pages as Locking;
use crate::lock::beyond;
use crate::util::join_all;
use crate::{Client, Error, Result, Seek, Shared};

impl Client {
    /// First offset at or behind `offset` at which what is looked for begins; `None` behind the end of the file, and
    /// for data that does not come any more.
    pub async fn seek(&self, fid: Fid, offset: u64, what: Seek) -> Result<Option<u64>> {
        // What was not sent has no place in an object yet.
        if let Some(file) = self.shared.files.find(fid) {
            self.shared.flush_file(&file).await;
        }
        let mut relaying = Relaying::default();
        loop {
            let entry = self.shared.fetch_entry(fid).await?;
            let layout = entry.layout.clone();
            match (self.seek_entry(entry, offset, what).await, layout) {
                // Told anew: the data was moved, or is being moved.
                (Err(error), Some(layout)) if is_of_layout(error) => {
                    let told = self.shared.fetch_entry(fid).await?.layout;
                    let moved = told.is_some_and(|told| !told.lies_as(&layout));
                    if !moved && !self.shared.still_sealed(fid, &layout, error, &mut relaying).await? {
                        return Err(error);
                    }
                }
                (sought, _) => return sought,
            }
        }
    }

    async fn seek_entry(&self, entry: Entry, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (fid, layout) = (entry.attr.fid, entry.layout.clone());
        let size = self.shared.complete(entry).await?.size;
        if offset >= size {
            return Ok(None);
        }
        match (layout, what) {
            (Some(layout), what) => {
                let layout = Arc::new(layout);
                // What other clients have not written yet has no place in an object either.
                let _pins =
                    self.shared.pin(fid, &layout, &beyond(&layout, offset), false, Locking::No).await?;
                self.shared.seek_objects(&layout, offset, size, what).await
            }
            (None, Seek::Data) => Ok(Some(offset)),
            (None, Seek::Hole) => Ok(Some(size)),
        }
    }
}

impl Shared {
    pub(crate) async fn seek_objects(
        self: &Arc<Self>,
        layout: &Layout,
        offset: u64,
        size: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let hole = what == Seek::Hole;
        let asked = layout.places().map(|place| self.seek_object(layout, place, offset, hole));
        let found = join_all(asked).await.into_iter().collect::<Result<Vec<_>>>()?;
        let first = found.into_iter().flatten().min();
        Ok(if hole { Some(first.unwrap_or(size).min(size)) } else { first.filter(|first| *first < size) })
    }

    /// The same in one object; offsets are those of the file.
    async fn seek_object(
        &self,
        layout: &Layout,
        place: Place,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        let object = place.object;
        let mut from = layout.object_size(object, offset);
        let target = self.targets.data(place.target).await?;
        loop {
            let Sought { offset, more } = match target.call(SeekObject { object, offset: from, hole }).await {
                Ok(answered) => answered.reply,
                Err(Error::Refused(Code::Gone)) => return Err(Error::Refused(Code::Stale)),
                Err(error) => return Err(error),
            };
            match offset {
                // A search that stands still would never end.
                Some(at) if more && at > from => from = at,
                _ if more => return Err(Error::Refused(Code::Malformed)),
                found => return Ok(found.and_then(|at| layout.file_offset(object, at))),
            }
        }
    }
}
