//! An object storage target: sessions on the one side, [`Objects`] on the other.

mod copy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use proto::limits::{BULK_BYTES_MAX, FILE_BYTES_MAX, STRIPES_MAX};
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{Code, ObjectId, Timestamp};
use store::object::Extra;
use store::{Change, Objects, Store, StoreError};

use crate::target::{Ctx, Done, Env, Handler, Recorder, code_of};

/// Most objects that one request destroys.
const DESTROY_COUNT_MAX: usize = 4096;
/// Most objects that one reply lists.
const LIST_COUNT_MAX: u32 = 4096;

/// An object storage target.
pub struct Ost {
    objects: Arc<Objects>,
    store: Arc<Store>,
}

impl Handler for Ost {
    type Session = ();

    async fn open(env: Env) -> Result<Ost, StoreError> {
        Ok(Ost { objects: Objects::open(&env.rt, env.store.clone()).await?, store: env.store.clone() })
    }

    async fn handle(&self, ctx: &Ctx<()>, request: Request, bulk: Vec<Bytes>) -> Result<Done, Code> {
        match request {
            Request::Write(write) => self.write(ctx, write, bulk).await,
            Request::Read(read) => self.read(read).await,
            Request::Punch(punch) => self.punch(ctx, punch).await,
            Request::GetObjectAttr(get) => {
                check_id(get.object)?;
                let attr = self.objects.attr(get.object).map_err(|error| code_of(&error))?;
                Ok(Done::unchanged(Reply::GetObjectAttr(attr)))
            }
            Request::SeekObject(seek) => {
                check_id(seek.object)?;
                let sought = self.objects.seek(seek.object, seek.offset, seek.hole);
                Ok(Done::unchanged(Reply::SeekObject(sought.map_err(|error| code_of(&error))?)))
            }
            Request::AllocateObject(allocate) => self.allocate(ctx, allocate).await,
            Request::CopyObject(copy) => self.copy(ctx, copy).await,
            Request::Destroy(destroy) => self.destroy(ctx, destroy).await,
            Request::ListObjects(list) => self.list(ctx, &list),
            Request::Statfs(msg::Statfs {}) => {
                let space = self.objects.space().await.map_err(|error| code_of(&error))?;
                Ok(Done::unchanged(Reply::Statfs(space)))
            }
            _ => Err(Code::NotSupported),
        }
    }

    fn frees_space(request: &Request) -> bool {
        matches!(request, Request::Punch(_) | Request::Destroy(_))
    }

    async fn finish(&self) {
        if let Err(error) = self.objects.close().await {
            tracing::error!(%error, "the objects did not close in order");
        }
    }
}

impl Ost {
    async fn write(&self, ctx: &Ctx<()>, write: msg::Write, bulk: Vec<Bytes>) -> Result<Done, Code> {
        check_id(write.object)?;
        check_time(write.time)?;
        let len: usize = bulk.iter().map(Bytes::len).sum();
        if len > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        if write.offset.checked_add(len as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Code::TooLarge);
        }
        let extra = record(ctx.recorder(), Reply::Write);
        let written =
            self.objects.write(write.object, write.offset, bulk, write.time, ctx.replay, extra).await;
        let (attr, transno) = written.map_err(|error| code_of(&error))?;
        Ok(Done::changed(Reply::Write(attr), transno))
    }

    async fn read(&self, read: msg::Read) -> Result<Done, Code> {
        check_id(read.object)?;
        if read.len as usize > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        let found = self.objects.read(read.object, read.offset, read.len).await;
        let (bulk, size) = found.map_err(|error| code_of(&error))?;
        Ok(Done { bulk, ..Done::unchanged(Reply::Read(msg::ReadDone { size })) })
    }

    async fn punch(&self, ctx: &Ctx<()>, punch: msg::Punch) -> Result<Done, Code> {
        check_id(punch.object)?;
        check_time(punch.time)?;
        if punch.start > punch.end {
            return Err(Code::Invalid);
        }
        if punch.start > FILE_BYTES_MAX {
            return Err(Code::TooLarge);
        }
        let extra = record(ctx.recorder(), Reply::Punch);
        let punched =
            self.objects.punch(punch.object, punch.start, punch.end, punch.time, ctx.replay, extra).await;
        let (attr, transno) = punched.map_err(|error| code_of(&error))?;
        Ok(Done::changed(Reply::Punch(attr), transno))
    }

    async fn allocate(&self, ctx: &Ctx<()>, allocate: msg::AllocateObject) -> Result<Done, Code> {
        check_id(allocate.object)?;
        check_time(allocate.time)?;
        if allocate.start > allocate.end {
            return Err(Code::Invalid);
        }
        if allocate.end > FILE_BYTES_MAX {
            return Err(Code::TooLarge);
        }
        let extra = record(ctx.recorder(), Reply::AllocateObject);
        let range = allocate.start..allocate.end;
        let allocated = self.objects.allocate(allocate.object, range, allocate.time, ctx.replay, extra).await;
        let (attr, transno) = allocated.map_err(|error| code_of(&error))?;
        Ok(Done::changed(Reply::AllocateObject(attr), transno))
    }

    async fn destroy(&self, ctx: &Ctx<()>, destroy: msg::Destroy) -> Result<Done, Code> {
        ctx.only_servers()?;
        if destroy.objects.len() > DESTROY_COUNT_MAX {
            return Err(Code::TooBig);
        }
        destroy.objects.iter().try_for_each(|id| check_id(*id))?;
        let extra = record(ctx.recorder(), |_| Reply::Destroy(msg::Done {}));
        let transno = self
            .objects
            .destroy(&destroy.objects, ctx.replay, extra)
            .await
            .map_err(|error| code_of(&error))?;
        Ok(Done::changed(Reply::Destroy(msg::Done {}), transno))
    }

    fn list(&self, ctx: &Ctx<()>, list: &msg::ListObjects) -> Result<Done, Code> {
        ctx.only_servers()?;
        let count_max = list.count_max.min(LIST_COUNT_MAX) as usize;
        let objects = self.objects.list(list.after, count_max).map_err(|error| code_of(&error))?;
        Ok(Done::unchanged(Reply::ListObjects(msg::Objects { objects })))
    }
}

/// The record of the reply, for the batch of the change itself.
fn record(recorder: Recorder, reply: impl FnOnce(msg::ObjectAttr) -> Reply + Send + 'static) -> Extra {
    Box::new(move |attr| -> Vec<Change> {
        recorder.record(&reply(attr.clone())).map(|(change, _)| change).into_iter().collect()
    })
}

fn check_id(id: ObjectId) -> Result<(), Code> {
    let sane = id.layout.is_sane() && (id.stripe as usize) < STRIPES_MAX;
    if sane { Ok(()) } else { Err(Code::Invalid) }
}

fn check_time(time: Timestamp) -> Result<(), Code> {
    if time.nanos < 1_000_000_000 { Ok(()) } else { Err(Code::Invalid) }
}
