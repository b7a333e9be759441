//! truncate, and cutting objects.

use std::sync::Arc;

use proto::layout::Place;
use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::{Entry, ObjectAttr, Punch, SetAttr};
use proto::{Attr, Code, Layout, ObjectId, Timestamp};

use super::relaid::Relaying;
use super::state::FileState;
use super::table::FileRef;
use crate::io::{Sum, merge};
use crate::lock::{Eras, beyond};
use crate::util::join_all;
use crate::{Caller, Error, Result, Shared};

/// A truncate that an application waits for: meanwhile the kernel writes none of the file's pages back.
struct Cut<'a>(&'a FileState);

impl Cut<'_> {
    fn of(file: &FileState) -> Cut<'_> {
        file.inner.lock().cuts += 1;
        Cut(file)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().cuts -= 1;
    }
}

impl Shared {
    /// Sets the size of a file: the MDT permits it and forgets the size, the objects are cut, and the MDT learns
    /// the size when that is durable.
    pub(crate) async fn truncate(self: &Arc<Self>, caller: &Caller, set: SetAttr, size: u64) -> Result<Attr> {
        if size > FILE_BYTES_MAX {
            return Err(Error::Refused(Code::TooLarge));
        }
        let file = self.file(set.fid);
        let time = set.time;
        let cut = Cut::of(&file);
        let attr = {
            let _alone = file.alone().await?;
            let changing = self.inodes.change(&[set.fid], &[]);
            let answered = self.ask(caller, |cred| SetAttr { cred, ..set.clone() }).await?;
            self.changed(set.fid, answered.transno);
            self.not_kept(&changing, &answered.reply);
            let Entry { attr, layout, .. } = answered.reply;
            file.set_layout(layout);
            if size > 0 {
                // An object that grows tells a size that the MDT must not contradict after a crash.
                let mut inner = file.inner.lock();
                inner.reopened = inner.reopened.max(answered.transno);
            }
            let mut relaying = Relaying::default();
            let sum = loop {
                let layout = self.placed(&file).await?;
                match self.cut(&file, &layout, size, time).await {
                    Ok(sum) => break sum,
                    Err(error) if self.relaid(&file, &layout, error, &mut relaying).await? => {}
                    Err(error) => return Err(error),
                }
            };
            merge(attr, Some(sum), file.unsent())
        };
        drop(cut);
        if file.inner.lock().writers == 0 {
            self.tell_size(file).await;
        }
        Ok(attr)
    }

    /// Makes the objects fit a file of `size` bytes; what they say then.
    async fn cut(
        self: &Arc<Self>,
        file: &FileRef,
        layout: &Arc<Layout>,
        size: u64,
        time: Timestamp,
    ) -> Result<Sum> {
        let locked = self.lock_change(file.fid, layout, &beyond(layout, size)).await?;
        self.forget(file, |object| (layout.object_size(object, size), u64::MAX)).await;
        file.inner.lock().untold = true;
        let objects = self.set_object_sizes(file, layout, size, (time, &locked.eras)).await?;
        Ok(Sum { size, ..Sum::of(layout, &objects) })
    }

    /// Drops what was not sent of the range that `range` gives for each object, and waits for what was: a write
    /// that arrives late would undo the cut.
    async fn forget(self: &Arc<Self>, file: &FileRef, range: impl Fn(ObjectId) -> (u64, u64)) {
        let refund = {
            let mut inner = file.inner.lock();
            inner.end.forget();
            let refund = inner.cache.cut(range);
            if inner.cache.is_empty() && inner.listed {
                inner.listed = false;
                self.keeper.clean(file.fid);
            }
            refund
        };
        self.refund(refund);
        self.drain_file(file).await;
    }

    /// Makes the objects fit a file of `size` bytes: cuts those that are longer, and enlarges the one that holds
    /// the last byte, so that the objects tell the file's size.
    pub(crate) async fn set_object_sizes(
        &self,
        file: &Arc<FileState>,
        layout: &Layout,
        size: u64,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<Vec<ObjectAttr>> {
        let last = size.checked_sub(1).and_then(|last| layout.locate(last)).map(|(place, _)| place);
        let single = layout.object_count() == 1;
        let cut = layout.places().map(|place| async move {
            let wanted = layout.object_size(place.object, size);
            if !single {
                let object = self.object_attr(place).await?;
                let short = last == Some(place) && object.size < wanted;
                if object.size <= wanted && !short {
                    return Ok(object);
                }
            }
            self.punch(file, place, (wanted, u64::MAX), (time, eras)).await
        });
        join_all(cut).await.into_iter().collect()
    }

    pub(super) async fn punch(
        &self,
        file: &FileState,
        place: Place,
        (start, end): (u64, u64),
        (time, eras): (Timestamp, &Eras),
    ) -> Result<ObjectAttr> {
        let target = self.targets.data(place.target).await?;
        let _permit = target.writes.acquire().await.map_err(|_| Error::Closed)?;
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
                file.inner.lock().note(place.target, answered.transno);
                Ok(answered.reply)
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }
}
