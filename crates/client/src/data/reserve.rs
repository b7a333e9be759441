//! Reserving space of files, and punching holes.

use std::ops::Range;
use std::sync::Arc;

use proto::layout::Place;
use proto::wire::messages::{AllocateObject, ObjectAttr};
use proto::{Code, Layout, Timestamp};
use rt::wait::join_all;

use crate::data::{Call, Extents, FileRef, Objects};
use crate::lock::{Eras, needs_of, parts, surely};
use crate::{Error, Result};

impl Extents {
    /// Punches a hole.
    pub(crate) async fn punch_locked(
        &self,
        file: &FileRef,
        layout: &Arc<Layout>,
        range: Range<u64>,
        call: Call,
    ) -> Result<()> {
        let needs = surely(needs_of(layout, range.start, range.end - range.start));
        let locked = self.locks.lock_change(file.fid, layout, &needs).await?;
        file.check_fence(call.fences)?;
        // A hole does not change the size: what only the cache has beyond the objects' end must arrive first.
        self.back.flush_file(file).await;
        file.inner.lock().untold = true;
        self.punch_stripes(file, layout, range, (call.time, &locked.eras)).await
    }

    async fn punch_stripes(
        &self,
        file: &FileRef,
        layout: &Layout,
        range: Range<u64>,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<()> {
        let punches = parts(layout, range)
            .map(|(place, part)| self.objects.punch(file, place, (part.start, part.end), (time, eras)));
        join_all(punches).await.into_iter().collect::<Result<Vec<ObjectAttr>>>()?;
        Ok(())
    }

    /// Reserves space as far as the file goes; what is there already becomes zeros with `zero`.
    pub(crate) async fn reserve_locked(
        &self,
        file: &FileRef,
        layout: &Arc<Layout>,
        range: Range<u64>,
        zero: bool,
        call: Call,
    ) -> Result<()> {
        let mut needs = surely(needs_of(layout, range.start, range.end - range.start));
        if layout.object_count() > 1 {
            // One that ends too early grows below: nobody may make it longer meanwhile, which would be cut off.
            needs.iter_mut().for_each(|need| need.end = u64::MAX);
        }
        let locked = self.locks.lock_change(file.fid, layout, &needs).await?;
        file.check_fence(call.fences)?;
        self.back.flush_file(file).await;
        let size = self.objects.true_size(file, layout).await?;
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(());
        }
        file.inner.lock().untold = true;
        let (time, eras) = (call.time, &locked.eras);
        if zero {
            self.punch_stripes(file, layout, range.clone(), (time, eras)).await?;
        }
        let reserved = parts(layout, range).map(|(place, part)| async move {
            // Of a sparse file an object may end before the file does: it grows, so that it can have the space.
            if self.objects.object_attr(place).await?.size < part.end {
                self.objects.punch(file, place, (part.end, u64::MAX), (time, eras)).await?;
            }
            self.objects.allocate_object(file, place, part, (time, eras)).await
        });
        join_all(reserved).await.into_iter().collect::<Result<Vec<ObjectAttr>>>()?;
        Ok(())
    }
}

impl Objects {
    async fn allocate_object(
        &self,
        file: &FileRef,
        place: Place,
        Range { start, end }: Range<u64>,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<ObjectAttr> {
        let target = self.targets.data(place.target).await?;
        let _permit = target.in_flight.writes.acquire().await?;
        {
            let mut inner = file.inner.lock();
            inner.end.forget();
            inner.own.forget();
        }
        let allocate = AllocateObject { object: place.object, start, end, time, owner: file.owner() };
        match target.call_locked(eras.of(place.target), allocate, Vec::new()).await {
            Ok(answered) => {
                file.inner.lock().note(place.target, answered.transno);
                Ok(answered.reply)
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }
}
