//! SEEK_DATA and SEEK_HOLE: the objects are asked, each for its part.

use proto::layout::{Component, Place};
use proto::wire::messages::{SeekObject, Sought};
use proto::{Code, Layout};
use rt::wait::join_all;

use crate::data::Objects;
use crate::{Error, Result, Seek};

impl Objects {
    pub(crate) async fn seek_objects(
        &self,
        layout: &Layout,
        offset: u64,
        size: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let hole = what == Seek::Hole;
        let behind = size.saturating_sub(offset);
        let without = layout.touched(offset, behind).find(|component| hole && !component.is_placed());
        let without = without.map(|component| component.start.max(offset));
        let asked = layout.touched(offset, behind).flat_map(|component| {
            component.places().map(move |place| self.seek_object(component, place, offset, hole))
        });
        let found = join_all(asked).await.into_iter().collect::<Result<Vec<_>>>()?;
        let first = found.into_iter().flatten().chain(without).min();
        Ok(if hole { Some(first.unwrap_or(size).min(size)) } else { first.filter(|first| *first < size) })
    }

    /// The same in one object; offsets are those of the file.
    async fn seek_object(
        &self,
        component: &Component,
        place: Place,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        let object = place.object;
        let stripe = object.stripe;
        let mut from = component.reach(stripe, offset.max(component.start));
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
                // What lies behind the extent says nothing.
                found => {
                    let found = found.map(|at| component.file_offset(stripe, at));
                    return Ok(found.filter(|at| *at < component.end));
                }
            }
        }
    }
}
