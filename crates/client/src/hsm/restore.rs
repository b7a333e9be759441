//! What a copytool does to bring the data of a released file back: it fills a file without a name, whose layout the file gets.

use std::sync::Arc;

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::{Code, Fid, Layout, Timestamp};
use rt::BoxFuture;

use crate::data::{Call, FileRef, Resize};
use crate::lock::{Eras, Pages as Locking, Pins, whole};
use crate::{Caller, Client, Error, Handle, Result, Shared};

/// A file that gets its data back.
pub struct Restoring {
    shared: Arc<Shared>,
    fid: Fid,
    generation: u32,
    handle: Handle,
    target: FileRef,
    layout: Arc<Layout>,
    eras: Eras,
    pins: Pins,
    size: u64,
    time: Timestamp,
    copy: (u32, u64),
}

impl Client {
    /// Begins to bring the data of a file back; `None` if it is there.
    pub fn hsm_begin_restore(&self, fid: Fid) -> BoxFuture<'_, Result<Option<Restoring>>> {
        Box::pin(async move {
            let shared = &self.shared;
            let entry = shared.names.layouts.fetch_entry(fid).await?;
            let Some(released) = entry.layout.filter(Layout::is_released) else { return Ok(None) };
            let (size, time) = (entry.attr.size, entry.attr.data_time());
            let state = self.hsm_state(fid).await?;
            let copy = (state.archive, state.copy);
            let handle = match shared.create_heir(released.wish()).await {
                // The pool is gone, for example: it is better to have the data elsewhere than not at all.
                Err(Error::Refused(Code::Invalid | Code::NotFound)) => {
                    shared.create_heir(LayoutHint::default()).await?
                }
                made => made?,
            };
            match Self::prepare(shared, handle, (fid, released.generation), (size, time)).await {
                Ok(restoring) => Ok(Some(Restoring { copy, ..restoring })),
                Err(error) => {
                    shared.files.release(handle).await;
                    Err(error)
                }
            }
        })
    }

    async fn prepare(
        shared: &Arc<Shared>,
        handle: Handle,
        (fid, generation): (Fid, u32),
        (size, time): (u64, Timestamp),
    ) -> Result<Restoring> {
        let target = shared.names.data.files.get(shared.files.handles.get(handle)?.fid);
        let layout = match size {
            0 => target.layout()?,
            size => shared.names.layouts.placed(&target, (0, size)).await?,
        };
        let eras = shared.names.data.locks.eras(&layout).await?;
        let pins =
            shared.names.data.locks.pin(target.fid, &layout, &whole(&layout), true, Locking::No).await?;
        let shared = shared.clone();
        Ok(Restoring {
            shared,
            fid,
            generation,
            handle,
            target,
            layout,
            eras,
            pins,
            size,
            time,
            copy: (0, 0),
        })
    }
}

impl Restoring {
    /// Bytes that the file has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The archive, and the name of the copy in it.
    pub fn copy(&self) -> (u32, u64) {
        self.copy
    }

    /// Writes a part of the data. What is left out is a hole.
    pub fn write(&self, mut offset: u64, mut bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let call = Call { time: self.time, sync: false, fences: None };
            while !bytes.is_empty() {
                let stored = self.shared.names.data.store(
                    &self.target,
                    &self.layout,
                    (offset, &bytes),
                    call,
                    &self.pins,
                );
                let stored = stored.await?;
                if stored == 0 {
                    return Err(Error::Refused(Code::TryAgain));
                }
                offset += stored;
                bytes = bytes.slice(stored as usize..);
            }
            Ok(())
        })
    }

    /// The file has its data, durably. `TryAgain`: it has to be written once more.
    pub fn finish(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let finished = self.finish_data().await;
            self.shared.files.release(self.handle).await;
            finished
        })
    }

    async fn finish_data(&self) -> Result<()> {
        let (data, target) = (&self.shared.names.data, &self.target);
        data.back.flush_file(target).await;
        data.objects
            .set_object_sizes(target, &self.layout, Resize::To(self.size), (self.time, &self.eras))
            .await?;
        if !data.locks.table.still_counts(&self.pins) {
            return Err(Error::Refused(Code::TryAgain));
        }
        let failure_seen = &self.shared.files.handles.get(self.handle)?.failure_seen;
        let blocks = self.shared.settle_heir(target, failure_seen).await?;
        let caller = Caller::root();
        self.shared.swap(&caller, self.fid, target.fid, (self.generation, blocks)).await
    }

    /// Leaves the file as it is.
    pub async fn give_up(self) {
        self.shared.files.release(self.handle).await;
    }
}
