//! The objects of a target, as its clients use them: an OST's, and those of an MDT, which has the first bytes of files
//! ([`proto::layout::Pattern::Mdt`]).
//!
//! Sessions on the one side, [`Objects`] on the other; between them the locks of ranges, and what waits for what.

mod advise;
mod brw;
mod copy;
mod counts;
mod glimpse;
mod inspect;
mod journal;
mod locks;
mod lost;
mod owners;
mod page_cache;
mod room;
mod seal;
mod sharing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proto::limits::{BULK_BYTES_MAX, STRIPES_MAX, WRITE_PARTS_MAX};
use proto::lock::range::{Holder, Mode, Range};
use proto::parameters::TargetTree;
use proto::wire::Reply;
use proto::wire::header::Room;
use proto::wire::messages as msg;
use proto::wire::messages::DataRequest;
use proto::{Code, Fid, ObjectId, Timestamp, Transno};
use service::{Ctx, Done, Env, code_of};
use store::object::{By, Extra, Seek};
use store::{Batch, Objects, Store, StoreError};

use brw::BrwStats;
use journal::Journal;
use locks::ObjectLocks;
use lost::Lost;
use room::Left;

pub use counts::TokenCounts;

/// Most objects that one request destroys.
const DESTROY_COUNT_MAX: usize = 16_384;
/// Ranges of dead layout ids of one Destroy.
const DEAD_COUNT_MAX: usize = 1024;

/// The objects of a target, and what its clients hold of them.
pub(crate) struct Data {
    objects: Arc<Objects>,
    store: Arc<Store>,
    locks: ObjectLocks,
    journal: Journal,
    /// No object is larger, in bytes.
    bytes_max: u64,
    /// Switch for simulations: sealed objects are refused.
    seals: bool,
    lost: Lost,
    left: Left,
    brw: BrwStats,
    /// Reads that the disk failed.
    unreadable: AtomicU64,
}

impl Data {
    /// The objects in the store ([`Objects::open`], [`Objects::open_few`]), none of which has more than `bytes_max` bytes; nothing is held
    /// of them.
    ///
    /// # Errors
    /// `Corrupt` if the store does not say which of them are lost.
    pub fn new(env: &Env, objects: Arc<Objects>, bytes_max: u64) -> Result<Data, StoreError> {
        let locks = ObjectLocks::new(env);
        let (recovery, stop, unfinished) = (env.recovery.clone(), env.stop.clone(), objects.clone());
        env.rt.spawn(async move {
            stop.unless(async {
                recovery.until_over().await;
                unfinished.go_on_finishing().await;
            })
            .await;
        });
        Ok(Data {
            bytes_max,
            store: env.store.clone(),
            locks,
            journal: Journal::new(env.store.clone()),
            seals: env.hub.habits().safeguards.seals,
            lost: Lost::open(&env.store)?,
            left: Left::new(&env.rt, &env.store, &objects),
            objects,
            brw: BrwStats::new(&env.rt, env.store.clone()),
            unreadable: AtomicU64::new(0),
        })
    }

    /// Carries out what is asked of an object.
    pub async fn handle<S>(
        &self,
        ctx: &Ctx<S>,
        request: DataRequest,
        bulk: Vec<Bytes>,
    ) -> Result<Done, Code> {
        match request {
            DataRequest::Write(write) => self.write(ctx, write, bulk).await,
            DataRequest::WriteParts(write) => self.write_parts(ctx, write, bulk).await,
            DataRequest::Read(read) => self.read(ctx, read).await,
            DataRequest::Punch(punch) => self.punch(ctx, punch).await,
            DataRequest::GetObjectAttr(get) => self.get_attr(ctx, get.object).await,
            DataRequest::Enqueue(enqueue) => self.enqueue(ctx, &enqueue).await,
            DataRequest::CancelRanges(cancel) => self.locks.cancel(ctx, &cancel).await,
            DataRequest::SealLayout(seal) => self.seal(ctx, &seal).await,
            DataRequest::SeekObject(seek) => {
                check_id(seek.object)?;
                self.in_force(ctx, seek.object)?;
                let what = if seek.hole { Seek::Hole } else { Seek::Data };
                let sought = self.objects.seek(seek.object, seek.offset, what);
                Ok(Done::unchanged(Reply::SeekObject(sought.map_err(|error| code_of(&error))?)))
            }
            DataRequest::AdviseObject(advise) => Box::pin(self.advise(ctx, advise)).await,
            DataRequest::AllocateObject(allocate) => self.allocate(ctx, allocate).await,
            DataRequest::CopyObject(copy) => self.copy(ctx, copy).await,
            DataRequest::Destroy(destroy) => self.destroy(ctx, destroy).await,
            DataRequest::ReadUsage(read) => self.usage(&read),
            DataRequest::InspectObjects(asked) => Box::pin(self.inspect(ctx, &asked)).await,
            DataRequest::SetOwners(set) => self.set_owners(ctx, &set).await,
            DataRequest::LoseBefore(lose) => self.lose_before(ctx, &lose).await,
        }
    }

    /// What its clients hold of the objects.
    pub fn locks(&self) -> &ObjectLocks {
        &self.locks
    }

    /// The space of the target.
    pub async fn space(&self) -> Result<msg::Space, Code> {
        self.objects.space().await.map_err(|error| code_of(&error))
    }

    /// Grants a session all of an object, to change it if `mode` says so and nobody else has any of it, or to read it, and gives its bytes; `None`
    /// if somebody would have to be called back, or if it has more than `len_max` bytes.
    pub async fn grant_and_read(
        &self,
        session: u64,
        object: ObjectId,
        mode: Mode,
        len_max: u32,
    ) -> Option<(msg::Token, Vec<Bytes>)> {
        let holder = Holder(session);
        self.may_be_granted(object).ok()?;
        // What was granted could not be taken back: it may have become one with what the client held before.
        let size = self.objects.attr(object).ok()?.size;
        if size > u64::from(len_max) {
            return None;
        }
        let to_write = if mode.writes() { self.locks.grant_free(holder, object, Mode::Write) } else { None };
        let token = to_write.or_else(|| self.locks.grant_free(holder, object, Mode::Read))?;
        self.may_be_granted(object).ok()?;
        self.locks.settle(object, Range::ALL, holder).await.ok()?;
        // Whoever reads it later hears of what is wrong.
        let (bytes, size) = self.objects.read(object, 0, len_max).await.ok()?;
        if size > u64::from(len_max) {
            return None;
        }
        self.brw.read(bytes.iter().map(|part| part.len() as u64).sum());
        Some((token, bytes))
    }

    /// How much each client may write before it sends it; `sessions` counts them.
    pub fn room(&self, sessions: impl FnOnce() -> usize) -> Room {
        self.left.room(sessions)
    }

    /// The last step before the store is closed.
    pub async fn finish(&self) {
        if let Err(error) = self.objects.close().await {
            tracing::error!(%error, "the objects did not close in order");
        }
    }

    /// Registers `brw_stats`.
    pub fn statistics<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.brw.parameters(tree);
    }

    /// Registers when a change is answered, and when others may see it.
    pub fn durability_parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.journal.parameters(tree);
        self.locks.durability_parameters(tree);
    }

    /// What is wrong with the data, a sentence for each.
    pub fn problems(&self) -> Vec<String> {
        match self.unreadable.load(Ordering::Relaxed) {
            0 => Vec::new(),
            count => {
                vec![format!("data could not be read {count} times since its start; its log says which")]
            }
        }
    }

    /// Destroys objects of files that are gone, in the target itself; durable when the transno is.
    ///
    /// # Errors
    /// As [`Objects::destroy`] has them.
    pub async fn destroy_here(
        &self,
        objects: &[ObjectId],
        dead: &[msg::DeadRange],
    ) -> Result<Transno, StoreError> {
        let transno = self.objects.destroy(objects, dead, None, Extra::default()).await?;
        self.locks.forget(objects);
        Ok(transno)
    }
}

impl Data {
    async fn enqueue<S>(&self, ctx: &Ctx<S>, enqueue: &msg::Enqueue) -> Result<Done, Code> {
        check_id(enqueue.object)?;
        self.lost.check(enqueue.object)?;
        if !enqueue.restate {
            self.may_be_granted(enqueue.object)?;
        }
        let token = self.locks.enqueue(ctx, enqueue).await?;
        if !enqueue.restate && !token.contended {
            self.may_be_granted(enqueue.object)?;
            let range = Range { start: token.start, end: token.end };
            self.locks.settle(enqueue.object, range, holder(ctx)).await?;
        }
        Ok(Done::unchanged(Reply::Enqueue(token)))
    }

    async fn get_attr<S>(&self, ctx: &Ctx<S>, object: ObjectId) -> Result<Done, Code> {
        check_id(object)?;
        // Before the object is looked at: what is sent meanwhile is in it then.
        let unsent = self.locks.glimpse(object, holder(ctx)).await?;
        self.in_force(ctx, object)?;
        let mut attr = self.objects.attr(object).map_err(|error| code_of(&error))?;
        tracing::trace!(?object, ?unsent, size = attr.size, "the size is asked for");
        if let Some(unsent) = unsent {
            attr.size = attr.size.max(unsent.size);
            attr.mtime = attr.mtime.max(unsent.time);
            attr.ctime = attr.ctime.max(unsent.time);
        }
        Ok(Done::unchanged(Reply::GetObjectAttr(attr)))
    }

    async fn write<S>(&self, ctx: &Ctx<S>, write: msg::Write, bulk: Vec<Bytes>) -> Result<Done, Code> {
        check_id(write.object)?;
        check_time(write.time)?;
        let len: usize = bulk.iter().map(Bytes::len).sum();
        if len > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        let end = write.offset.checked_add(len as u64).filter(|end| *end <= self.bytes_max);
        let range = Range { start: write.offset, end: end.ok_or(Code::TooLarge)? };
        let _locked = match write.locked {
            true => self.locks.lock_for(ctx, write.object, Mode::Write, range).await?,
            false => None,
        };
        self.in_force(ctx, write.object)?;
        tracing::trace!(object = ?write.object, ?range, write.locked, holder = ?holder(ctx), "write");
        let extra = record(ctx, Reply::Write);
        let by = By { time: write.time, owner: write.owner };
        let written = self.objects.write(write.object, write.offset, bulk, by, ctx.replay, extra).await;
        let (attr, transno) = written.map_err(|error| code_of(&error))?;
        self.brw.written(len as u64, 0);
        self.locks.changed(write.object, range, holder(ctx), transno);
        match write.sync {
            true => self.journal.sync(transno).await?,
            false => self.journal.settle(transno).await?,
        }
        Ok(Done::changed(Reply::Write(attr), transno))
    }

    async fn write_parts<S>(
        &self,
        ctx: &Ctx<S>,
        write: msg::WriteParts,
        bulk: Vec<Bytes>,
    ) -> Result<Done, Code> {
        check_id(write.object)?;
        check_time(write.time)?;
        self.in_force(ctx, write.object)?;
        let parts = parts_of(&write.parts, bulk, self.bytes_max)?;
        let ranges: Vec<Range> = write.parts.iter().map(range_of).collect();
        tracing::trace!(object = ?write.object, parts = parts.len(), holder = ?holder(ctx), "write parts");
        let bytes: u64 = write.parts.iter().map(|part| u64::from(part.len)).sum();
        let gaps = ranges.windows(2).filter(|pair| pair[0].end != pair[1].start).count();
        let extra = record(ctx, Reply::WriteParts);
        let by = By { time: write.time, owner: write.owner };
        let written = self.objects.write_parts(write.object, parts, by, ctx.replay, extra).await;
        let (attr, transno) = written.map_err(|error| code_of(&error))?;
        self.brw.written(bytes, gaps as u64);
        for range in ranges {
            self.locks.changed(write.object, range, holder(ctx), transno);
        }
        match write.sync {
            true => self.journal.sync(transno).await?,
            false => self.journal.settle(transno).await?,
        }
        Ok(Done::changed(Reply::WriteParts(attr), transno))
    }

    async fn read<S>(&self, ctx: &Ctx<S>, read: msg::Read) -> Result<Done, Code> {
        check_id(read.object)?;
        if read.len as usize > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        let range = Range { start: read.offset, end: read.offset.saturating_add(u64::from(read.len)) };
        let _locked = match read.locked {
            true => self.locks.lock_for(ctx, read.object, Mode::Read, range).await?,
            false => None,
        };
        self.in_force(ctx, read.object)?;
        tracing::trace!(object = ?read.object, ?range, read.locked, holder = ?holder(ctx), "read");
        let found = self.objects.read(read.object, read.offset, read.len).await;
        if matches!(found, Err(StoreError::Io(_))) {
            self.look_at_disk().await;
        }
        let (bulk, size) = found.map_err(|error| self.unreadable(&error))?;
        self.brw.read(bulk.iter().map(|part| part.len() as u64).sum());
        Ok(Done { bulk, ..Done::unchanged(Reply::Read(msg::ReadDone { size })) })
    }

    /// A read failed. If the disk does, a write fails, too, and the target stops: then the reader is not told of an error, but waits for it.
    async fn look_at_disk(&self) {
        if let Ok(transno) = self.store.commit(Batch::default()) {
            _ = self.store.committed(transno).await;
        }
    }

    /// What a reader is told whom the disk failed. An operator hears of it, too.
    fn unreadable(&self, error: &StoreError) -> Code {
        if matches!(error, StoreError::Io(_) | StoreError::Corrupt { .. }) {
            tracing::error!(%error, "data cannot be read");
            self.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        code_of(error)
    }

    async fn punch<S>(&self, ctx: &Ctx<S>, punch: msg::Punch) -> Result<Done, Code> {
        check_id(punch.object)?;
        check_time(punch.time)?;
        self.in_force(ctx, punch.object)?;
        if punch.start > punch.end {
            return Err(Code::Invalid);
        }
        if punch.start > self.bytes_max {
            return Err(Code::TooLarge);
        }
        let extra = record(ctx, Reply::Punch);
        let punched =
            self.objects.punch(punch.object, punch.start, punch.end, punch.time, ctx.replay, extra).await;
        let (attr, transno) = punched.map_err(|error| code_of(&error))?;
        self.locks.changed(punch.object, Range { start: punch.start, end: punch.end }, holder(ctx), transno);
        self.journal.settle(transno).await?;
        Ok(Done::changed(Reply::Punch(attr), transno))
    }

    async fn allocate<S>(&self, ctx: &Ctx<S>, allocate: msg::AllocateObject) -> Result<Done, Code> {
        check_id(allocate.object)?;
        check_time(allocate.time)?;
        self.in_force(ctx, allocate.object)?;
        if allocate.start > allocate.end {
            return Err(Code::Invalid);
        }
        if allocate.end > self.bytes_max {
            return Err(Code::TooLarge);
        }
        let extra = record(ctx, Reply::AllocateObject);
        let range = allocate.start..allocate.end;
        let by = By { time: allocate.time, owner: allocate.owner };
        let allocated = self.objects.allocate(allocate.object, range, by, ctx.replay, extra).await;
        let (attr, transno) = allocated.map_err(|error| code_of(&error))?;
        self.journal.settle(transno).await?;
        Ok(Done::changed(Reply::AllocateObject(attr), transno))
    }

    async fn destroy<S>(&self, ctx: &Ctx<S>, destroy: msg::Destroy) -> Result<Done, Code> {
        ctx.only_servers()?;
        if destroy.objects.len() > DESTROY_COUNT_MAX {
            return Err(Code::TooBig);
        }
        destroy.objects.iter().try_for_each(|id| check_id(*id))?;
        if destroy.dead.len() > DEAD_COUNT_MAX {
            return Err(Code::TooBig);
        }
        destroy.dead.iter().try_for_each(check_dead)?;
        let extra = record(ctx, |_| Reply::Destroy(msg::Done {}));
        let transno = self
            .objects
            .destroy(&destroy.objects, &destroy.dead, ctx.replay, extra)
            .await
            .map_err(|error| code_of(&error))?;
        self.locks.forget(&destroy.objects);
        Ok(Done::changed(Reply::Destroy(msg::Done {}), transno))
    }
}

/// The record of the reply, for the batch of the change itself.
fn record<S>(ctx: &Ctx<S>, reply: impl FnOnce(msg::ObjectAttr) -> Reply + Send + 'static) -> Extra {
    let (author, recorder) = (Some(ctx.author()), ctx.recorder());
    let keys = move |attr: &msg::ObjectAttr| {
        recorder.record(&reply(attr.clone())).map(|(change, _)| change).into_iter().collect()
    };
    Extra { author, keys: Some(Box::new(keys)) }
}

fn range_of(part: &msg::WritePart) -> Range {
    Range { start: part.offset, end: part.offset.saturating_add(u64::from(part.len)) }
}

/// Gives each part its bytes; parts are in order and apart from each other.
fn parts_of(
    parts: &[msg::WritePart],
    bulk: Vec<Bytes>,
    end_max: u64,
) -> Result<Vec<(u64, Vec<Bytes>)>, Code> {
    if parts.len() > WRITE_PARTS_MAX {
        return Err(Code::TooBig);
    }
    let (mut bulk, mut end, mut found) = (VecDeque::from(bulk), 0, Vec::with_capacity(parts.len()));
    for part in parts {
        if part.len == 0 || part.offset < end {
            return Err(Code::Invalid);
        }
        end = part.offset.checked_add(u64::from(part.len)).ok_or(Code::TooLarge)?;
        let (mut left, mut slices) = (part.len as usize, Vec::new());
        while left > 0 {
            let mut slice = bulk.pop_front().ok_or(Code::Invalid)?;
            if slice.len() > left {
                bulk.push_front(slice.split_off(left));
            }
            left -= slice.len();
            slices.push(slice);
        }
        found.push((part.offset, slices));
    }
    match end {
        0 => Err(Code::Invalid),
        _ if end > end_max => Err(Code::TooLarge),
        _ if bulk.iter().any(|slice| !slice.is_empty()) => Err(Code::Invalid),
        _ => Ok(found),
    }
}

/// The session, as one that holds ranges.
fn holder<S>(ctx: &Ctx<S>) -> Holder {
    Holder(ctx.session().handle())
}

fn check_id(id: ObjectId) -> Result<(), Code> {
    let sane = id.layout.is_sane() && (id.stripe as usize) < STRIPES_MAX;
    if sane { Ok(()) } else { Err(Code::Invalid) }
}

fn check_dead(dead: &msg::DeadRange) -> Result<(), Code> {
    let sane = |oid| Fid { seq: dead.seq, oid, ver: 0 }.is_sane();
    if dead.first <= dead.last && sane(dead.first) && sane(dead.last) { Ok(()) } else { Err(Code::Invalid) }
}

fn check_time(time: Timestamp) -> Result<(), Code> {
    if time.nanos < 1_000_000_000 { Ok(()) } else { Err(Code::Invalid) }
}
