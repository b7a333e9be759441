//! truncate, and cutting objects.

use rt::BoxFuture;
use std::sync::Arc;

use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::{Entry, SetAttr};
use proto::{Attr, Code};

use crate::data::{Call, FileRef, FileState, Resize, Sum, merge};
use crate::names::{Relaying, Sizes, is_released};
use crate::{Caller, Error, Result};

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

impl Sizes {
    /// Changes the size of a file: the MDT permits it and forgets the size, durably; the objects are cut, and the MDT learns
    /// the size when that is durable. With `fences` as in [`Call`].
    pub(crate) fn truncate<'a>(
        self: &'a Arc<Self>,
        caller: &'a Caller,
        (set, fences): (SetAttr, Option<u64>),
        resize: Resize,
    ) -> BoxFuture<'a, Result<Attr>> {
        Box::pin(async move {
            let size = resize.size();
            if size > FILE_BYTES_MAX {
                return Err(Error::Refused(Code::TooLarge));
            }
            let file = self.data.files.get(set.fid);
            let call = Call { time: set.time, sync: false, fences };
            let cut = Cut::of(&file);
            let attr = {
                let _alone = file.alone().await?;
                let changing = self.meta.inodes.change(&[set.fid], &[]);
                let answered = loop {
                    match self.targets.ask(set.fid, caller, |cred| SetAttr { cred, ..set.clone() }).await {
                        Err(error) if is_released(error) => drop(self.layouts.restored(set.fid).await?),
                        answered => break answered?,
                    }
                };
                self.meta.changes.changed(set.fid, answered.transno);
                self.meta.answers.not_kept(&changing, &answered.reply);
                // This client and the MDT may be lost together: an MDT that then knows an older size of objects that were cut would tell it
                // for ever.
                self.targets.mdt_of(set.fid)?.commit(answered.transno).await?;
                let Entry { attr, layout, .. } = answered.reply;
                file.set_layout(layout);
                file.set_owner(&attr);
                if size > 0 {
                    // An object that grows tells a size that the MDT must not contradict after a crash.
                    let mut inner = file.inner.lock();
                    inner.reopened = inner.reopened.max(answered.transno);
                }
                let mut dropped = false;
                let sum = self.cut_objects(&file, (resize, &mut dropped), call).await;
                if let Err(error) = sum
                    && dropped
                {
                    self.data.extents.cut_failed(&file, error);
                }
                sum.map(|sum| merge(attr, Some(sum), file.unsent()))
            };
            drop(cut);
            // If some objects were cut and others were not, too: nobody else's word for the size counts before.
            if file.inner.lock().writers == 0 {
                self.tell_size(file).await;
            }
            attr
        })
    }

    /// Cuts the objects of the layout that is in force.
    async fn cut_objects(
        &self,
        file: &FileRef,
        (resize, dropped): (Resize, &mut bool),
        call: Call,
    ) -> Result<Sum> {
        let mut relaying = Relaying::default();
        let last = resize.size().checked_sub(1);
        loop {
            // The object that holds the last byte tells the size: where the data was moved to meanwhile there may be none yet.
            if let Some(last) = last {
                self.layouts.placed(file, (last, 1)).await?;
            }
            let layout = self.data.back.placed(file).await?;
            if last.is_some_and(|last| !layout.is_placed(last, 1)) {
                continue;
            }
            match self.data.extents.cut(file, &layout, (resize, dropped), call).await {
                Err(error) if self.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                cut => return cut,
            }
        }
    }
}
