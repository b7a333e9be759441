//! Cutting files and objects.

use std::sync::Arc;

use proto::layout::Place;
use proto::wire::messages::{ObjectAttr, Punch};
use proto::{Code, Layout, ObjectId, Timestamp};
use rt::wait::join_all;

use crate::data::{Call, Extents, FileRef, FileState, Objects, Sum};
use crate::lock::{Eras, beyond};
use crate::{Error, Result};

/// What a change of size asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resize {
    /// The file ends here: truncate(2).
    To(u64),
    /// It ends here or later: nothing goes that somebody wrote behind (fallocate(2)).
    AtLeast(u64),
}

impl Resize {
    /// In bytes.
    pub(crate) fn size(self) -> u64 {
        let (Resize::To(size) | Resize::AtLeast(size)) = self;
        size
    }
}

impl Extents {
    /// Makes the objects fit a file of another size; what they say then. `dropped` is set once something is dropped that was written
    /// here and not sent: if the file is not cut after all, that is lost ([`Extents::cut_failed`]).
    pub(crate) async fn cut(
        &self,
        file: &FileRef,
        layout: &Arc<Layout>,
        (resize, dropped): (Resize, &mut bool),
        call: Call,
    ) -> Result<Sum> {
        let size = resize.size();
        let locked = self.locks.lock_change(file.fid, layout, &beyond(layout, size)).await?;
        file.check_fence(call.fences)?;
        match resize {
            Resize::To(_) => {
                *dropped |= self.forget(file, |object| (layout.object_size(object, size), u64::MAX)).await;
            }
            // The objects say where the file ends.
            Resize::AtLeast(_) => self.back.flush_file(file).await,
        }
        file.inner.lock().untold = true;
        let objects = self.objects.set_object_sizes(file, layout, resize, (call.time, &locked.eras)).await?;
        let sum = Sum::of(layout, &objects);
        Ok(match resize {
            Resize::To(size) => Sum { size, ..sum },
            Resize::AtLeast(_) => sum,
        })
    }

    /// A file was not cut, and what had been written behind its new end is dropped: whoever asks whether all is durable is told.
    pub(crate) fn cut_failed(&self, file: &FileState, error: Error) {
        let mut inner = file.inner.lock();
        inner.fail(error);
        if !inner.gone {
            tracing::warn!(fid = %file.fid, %error, "a file was not cut, what was written behind its new end is lost");
            self.back.losses.add();
        }
    }

    /// Drops what was not sent of the range that `range` gives for each object, and waits for what was: a write
    /// that arrives late would undo the cut. Whether there was anything to drop.
    async fn forget(&self, file: &FileRef, range: impl Fn(ObjectId) -> (u64, u64)) -> bool {
        let refund = {
            let mut inner = file.inner.lock();
            inner.end.forget();
            let refund = inner.cache.cut(range);
            if inner.cache.is_empty() && inner.listed {
                inner.listed = false;
                self.back.dirty.clean(file.fid);
            }
            refund
        };
        let dropped = refund.iter().any(|(_, bytes)| *bytes > 0);
        self.back.refund(refund);
        self.back.drain_file(file).await;
        dropped
    }
}

impl Objects {
    /// Makes the objects fit a file of another size: cuts those that are longer, if it is to end there, and enlarges the one that
    /// holds the last byte, so that the objects tell the file's size.
    pub(crate) async fn set_object_sizes(
        &self,
        file: &Arc<FileState>,
        layout: &Layout,
        resize: Resize,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<Vec<ObjectAttr>> {
        let (size, cuts) = (resize.size(), matches!(resize, Resize::To(_)));
        let last = match size.checked_sub(1) {
            // Without an object there nobody would tell the size.
            Some(last) => Some(layout.locate(last).ok_or(Error::Refused(Code::Io))?.0),
            None => None,
        };
        let single = layout.object_count() == 1;
        let cut = layout.places().map(|place| async move {
            let wanted = layout.object_size(place.object, size);
            if !(single && cuts) {
                let object = self.object_attr(place).await?;
                let short = last == Some(place) && object.size < wanted;
                let long = cuts && object.size > wanted;
                if !long && !short {
                    return Ok(object);
                }
            }
            self.punch(file, place, (wanted, u64::MAX), (time, eras)).await
        });
        join_all(cut).await.into_iter().collect()
    }

    pub(crate) async fn punch(
        &self,
        file: &FileState,
        place: Place,
        (start, end): (u64, u64),
        (time, eras): (Timestamp, &Eras),
    ) -> Result<ObjectAttr> {
        let target = self.targets.data(place.target).await?;
        let _permit = target.in_flight.writes.acquire().await?;
        let object = place.object;
        let dropped = || {
            self.clean.drop_range(object, start, end);
            file.inner.lock().end.forget();
        };
        dropped();
        let punch = Punch { object, start, end, time };
        let answered = target.call_locked(eras.of(place.target), punch, Vec::new()).await;
        // Who read meanwhile may have the bytes of before, and may have asked how many there are.
        dropped();
        match answered {
            Ok(answered) => {
                let mut inner = file.inner.lock();
                inner.note(place.target, answered.transno);
                inner.own.answered(object, answered.transno, &answered.reply);
                Ok(answered.reply)
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }
}
