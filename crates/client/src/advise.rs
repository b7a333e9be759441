//! Advice about what will be done with a file (`lfs ladvise`): the OSTs are told.

use std::ops::Range;

use proto::layout::{Component, Place};
use proto::wire::messages::{ACCESS_READ, ADVICE_WILL_READ, ADVISE_BYTES_MAX, AdviseObject};
use proto::{Code, DataTarget, Fid};
use rt::wait::join_all;

use crate::{Caller, Client, Error, Result};

impl Client {
    /// Has the OSTs read a range of a file into their page caches; returns when it is there. Data that lies on an MDT is in its
    /// memory anyway.
    ///
    /// # Errors
    /// `NotSupported`: an OST keeps nothing of what it reads (`read_cache_enable`). `Invalid`: it is no regular file. The file has to
    /// be readable for the caller.
    pub async fn will_read(&self, caller: &Caller, fid: Fid, range: Range<u64>) -> Result<()> {
        let names = &self.shared.names;
        names.access(caller, fid, ACCESS_READ).await?;
        let Some(layout) = names.layout(fid).await? else { return Err(Error::Refused(Code::Invalid)) };
        let len = range.end.saturating_sub(range.start);
        let objects = layout.touched(range.start, len).flat_map(|component| {
            let range = &range;
            let is_on_ost = |place: &Place| matches!(place.target, DataTarget::Ost(_));
            component.places().filter(is_on_ost).map(move |place| self.advise(component, place, range))
        });
        join_all(objects).await.into_iter().collect()
    }

    /// The part of `range` that one object has.
    async fn advise(&self, component: &Component, place: Place, range: &Range<u64>) -> Result<()> {
        let object = place.object;
        let mut start = component.reach(object.stripe, range.start.max(component.start));
        // The OST ends at the object's end, wherever the file may end.
        let end = component.reach(object.stripe, range.end);
        let size = self.shared.names.data.objects.object_attr(place).await?.size;
        let target = self.shared.targets.data(place.target).await?;
        while start < end.min(size) {
            let to = end.min(start.saturating_add(ADVISE_BYTES_MAX));
            let advise = AdviseObject { object, start, end: to, advice: ADVICE_WILL_READ };
            target.call(advise).await?;
            start = to;
        }
        Ok(())
    }
}
