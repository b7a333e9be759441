//! Sends what the cache hands out, and waits for it.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use proto::layout::Place;
use proto::limits::{BULK_BYTES_MAX, WRITE_PARTS_MAX};
use proto::wire::messages::{ObjectAttr, Write, WritePart, WriteParts};
use proto::{Code, DataTarget, Fid, Layout, ObjectId, Transno};
use rpc::job::OfJob;
use rt::Time;
use rt::wait::join_all;

use super::cache::{Answered, Cache, Job, Refund};
use super::sent::Sent;
use crate::data::{Call, FileState, WriteBack};
use crate::targets::Way;
use crate::{Error, Result};

/// Puts writes, which are in the order of their offsets, into as few requests as they fit in.
fn in_requests(writes: Vec<(u64, Vec<Bytes>)>) -> Vec<(Vec<WritePart>, Vec<Bytes>)> {
    let mut requests: Vec<(Vec<WritePart>, Vec<Bytes>)> = Vec::new();
    let mut bytes = 0;
    for (offset, slices) in writes {
        let len: usize = slices.iter().map(Bytes::len).sum();
        let part = WritePart { offset, len: len as u32 };
        bytes += len;
        match requests
            .last_mut()
            .filter(|(parts, _)| parts.len() < WRITE_PARTS_MAX && bytes <= BULK_BYTES_MAX)
        {
            Some((parts, bulk)) => {
                parts.push(part);
                bulk.extend(slices);
            }
            None => {
                bytes = len;
                requests.push((vec![part], slices));
            }
        }
    }
    requests
}

impl WriteBack {
    /// Sends `jobs`: what needs no waiting is done when this returns, the rest goes on by itself.
    pub(crate) fn send(self: &Arc<Self>, file: &Arc<FileState>, jobs: impl IntoIterator<Item = Job>) {
        for job in jobs {
            let (back, file) = (self.clone(), file.clone());
            self.rt.run_in_place(async move { back.send_chunk(&file, job).await });
        }
    }

    /// Sends one chunk, and then what was written to it in the meantime if that has to go too.
    async fn send_chunk(self: &Arc<Self>, file: &Arc<FileState>, mut job: Job) {
        loop {
            let room = self.rooms.of(job.target);
            self.rooms.sent(&room, job.charge);
            let ready = self.ready_to_send(file, &job).await;
            // Behind that: what is granted of a new object by then counts for what its answer says.
            let sent = self.before_sent(file, &job);
            let results = match ready {
                Ok(()) => {
                    let owner = job.owner;
                    let writing = pin!(self.write_object(file, &mut job));
                    OfJob::new(owner, writing).await
                }
                Err(error) => vec![Err(error)],
            };
            let Answered { charge, next, .. } = self.apply_answers(file, &job, sent, results);
            self.rooms.answered(&room, job.charge);
            self.rooms.give(job.target, charge);
            if self.rooms.wants_commit()
                && let Some(target) = self.targets.made(job.target.into())
            {
                target.commit_soon();
            }
            self.clean.fit();
            file.answered.notify_waiters();
            match next {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    /// So much, by target, was written and is not to be sent any more.
    pub(crate) fn refund(&self, refund: Refund) {
        for (target, bytes) in refund {
            self.rooms.give(target, bytes);
        }
    }

    /// Where the data goes, once it may go there. After a crash the MDT must not know a size that was right before
    /// data which an OST has kept: the opening that cleared the size is durable before the first byte is sent. Data on the MDT itself
    /// comes behind the opening in the same log.
    pub(crate) async fn placed(&self, file: &FileState) -> Result<Arc<Layout>> {
        let layout = file.layout()?;
        if layout.osts().next().is_some() {
            self.until_reopened(file).await?;
        }
        Ok(layout)
    }

    /// The same of data that goes to `target`.
    async fn placed_on(&self, file: &FileState, target: DataTarget) -> Result<()> {
        file.layout()?;
        if target.ost().is_some() { self.until_reopened(file).await } else { Ok(()) }
    }

    /// Waits until a chunk may be sent: its target knows of the object, and that this client has locked it.
    async fn ready_to_send(&self, file: &FileState, job: &Job) -> Result<()> {
        self.placed_on(file, job.target).await?;
        self.locks.make_known(job.chunk.object).await
    }

    /// Waits until the MDT has the file, and does not know the size for good.
    async fn until_reopened(&self, file: &FileState) -> Result<()> {
        // Nobody knows of the objects of a file that is made nowhere.
        self.targets.pending.settled(file.fid).await;
        let reopened = file.inner.lock().reopened;
        if reopened != Transno(0) {
            self.targets.mdt_of(file.fid)?.commit(reopened).await?;
            let mut inner = file.inner.lock();
            if inner.reopened == reopened {
                inner.reopened = Transno(0);
            }
        }
        Ok(())
    }

    async fn write_object(&self, file: &FileState, job: &mut Job) -> Vec<Result<rpc::Answered<ObjectAttr>>> {
        let (object, time) = (job.chunk.object, job.time);
        let target = match self.targets.data(job.target).await {
            Ok(target) => target,
            Err(error) => return vec![Err(error)],
        };
        // In this order: whatever was locked is lost before the era changes.
        let era = target.era();
        if file.inner.lock().cache.is_lost(job.chunk) {
            return vec![Err(Error::Refused(Code::Evicted))];
        }
        let requests = in_requests(std::mem::take(&mut job.writes));
        let (sync, owner) = (job.sync && requests.len() == 1, file.owner());
        let writes = requests.into_iter().map(|(parts, bulk)| {
            let target = &target;
            async move {
                let _permit = target.in_flight.writes.acquire().await?;
                let began = self.rt.now();
                let bytes = parts.iter().map(|part| u64::from(part.len)).sum();
                let first = parts.first().map_or(0, |part| part.offset);
                let rpcs = target.counters.rpcs();
                let under = rpcs.begin(Way::Write, (first, bytes), began);
                let answered = match parts[..] {
                    [WritePart { offset, len }] => {
                        tracing::trace!(?object, offset, len, "write");
                        let write = Write { object, offset, time, locked: false, sync, owner };
                        target.call_locked(era, write, bulk).await?
                    }
                    _ => {
                        tracing::trace!(?object, parts = parts.len(), "write parts");
                        let write = WriteParts { object, parts, time, sync, owner };
                        target.call_locked(era, write, bulk).await?
                    }
                };
                let now = self.rt.now();
                under.done(now);
                // One that waits for its commit says more of the commit.
                if !sync {
                    target.pace.note(now, bytes, now - began);
                }
                Ok(answered)
            }
        });
        join_all(writes).await
    }

    /// Writes one piece past the cache; `locked`: under a lock that the OST takes for it, for several clients want the
    /// same bytes.
    pub(crate) async fn write_now(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        (place, offset): (Place, u64),
        data: &[u8],
        (Call { time, sync, fences }, locked): (Call, bool),
    ) -> Result<()> {
        let Place { object, target: holder } = place;
        tracing::trace!(fid = %file.fid, ?object, offset, len = data.len(), locked, "write past the cache");
        // What was written before must not arrive later.
        self.flush_range(file.fid, object, offset, offset.saturating_add(data.len() as u64)).await;
        self.placed_on(file, holder).await?;
        self.locks.make_known(object).await?;
        let dropped = || {
            self.clean.drop_range(object, offset, offset.saturating_add(data.len() as u64));
            file.inner.lock().end.forget();
        };
        dropped();
        let target = self.targets.data(holder).await?;
        // Without a permit: it waits for others, who may wait for a write of ours that needs one.
        let write = Write { object, offset, time, locked, sync, owner: file.owner() };
        let rpcs = target.counters.rpcs();
        // The longest waiting is over.
        file.check_fence(fences)?;
        let under = rpcs.begin(Way::WritePast, (offset, data.len() as u64), self.rt.now());
        let answered = target.call_bulk(write, vec![Bytes::copy_from_slice(data)]).await;
        under.done(self.rt.now());
        // Who read meanwhile may have the bytes of before.
        dropped();
        let answered = answered?;
        let mut inner = file.inner.lock();
        inner.untold = true;
        inner.note(holder, answered.transno);
        inner.own.answered(object, answered.transno, &answered.reply);
        Ok(())
    }

    /// Takes the answers over. Data that an OST refused is dropped once the failure is on record: repeating it
    /// would not end.
    fn apply_answers(
        &self,
        file: &Arc<FileState>,
        job: &Job,
        sent: Option<Sent<'_>>,
        results: Vec<Result<rpc::Answered<ObjectAttr>>>,
    ) -> Answered {
        let mut inner = file.inner.lock();
        // Where the object ends, if one answer tells it.
        let end = match results[..] {
            [Ok(rpc::Answered { ref reply, .. })] => Some(reply.size),
            _ => None,
        };
        for result in results {
            match result {
                Ok(rpc::Answered { transno, reply, .. }) => {
                    inner.note(job.target, transno);
                    inner.own.answered(job.chunk.object, transno, &reply);
                }
                Err(error) => {
                    let error =
                        if error == Error::Refused(Code::Gone) { Error::Refused(Code::Stale) } else { error };
                    inner.fail(error);
                    // The object went with the last name that this client took away: nobody misses what was written. Of a file
                    // that others remove the object stays until this client has closed it.
                    let is_missed =
                        !inner.gone || !matches!(error, Error::Refused(Code::Stale | Code::Evicted));
                    if is_missed {
                        tracing::warn!(fid = %file.fid, stripe = job.chunk.object.stripe, %error, "a write failed, its data is lost");
                        self.losses.add();
                    }
                }
            }
        }
        let answered = inner.cache.answered(job.chunk);
        if let (Some(sent), Some(end)) = (sent, end)
            && !inner.cache.has_chunk(job.chunk)
        {
            sent.keep(&self.locks, &answered, end);
        }
        if inner.cache.is_empty() && inner.listed {
            inner.listed = false;
            self.dirty.clean(file.fid);
        }
        answered
    }

    /// Sends everything of `file` and waits until the OSTs have answered what was written before the call.
    pub(crate) async fn flush_file(self: &Arc<Self>, file: &Arc<FileState>) {
        self.flush_started(file, Cache::start_all).await;
    }

    /// The same for what is to be durable.
    pub(crate) async fn flush_durably(self: &Arc<Self>, file: &Arc<FileState>) {
        self.flush_started(file, Cache::start_durably).await;
    }

    /// Sends what `start` hands out, and waits as [`WriteBack::flush_file`] does.
    async fn flush_started(self: &Arc<Self>, file: &Arc<FileState>, start: fn(&mut Cache) -> Vec<Job>) {
        let (last, jobs) = {
            let mut inner = file.inner.lock();
            (inner.cache.last_write(), start(&mut inner.cache))
        };
        self.send(file, jobs);
        loop {
            let answered = file.answered.notified();
            if !file.inner.lock().cache.is_pending(last) {
                return;
            }
            answered.await;
        }
    }

    /// Sends what was written up to now of `[from, to)` of an object, and waits until the OST has answered. Somebody may go on writing
    /// to the same chunks beside the range.
    pub(crate) async fn flush_range(self: &Arc<Self>, fid: Fid, object: ObjectId, from: u64, to: u64) {
        let Some(file) = self.files.find(fid) else { return };
        let last = file.inner.lock().cache.last_write();
        loop {
            let answered = file.answered.notified();
            let jobs = file.inner.lock().cache.start_range(object, (from, to), last);
            self.send(&file, jobs);
            if !file.inner.lock().cache.has_range(object, (from, to), last) {
                return;
            }
            answered.await;
        }
    }

    /// Waits until what was sent so far is answered.
    pub(crate) async fn drain_file(&self, file: &FileState) {
        let last = file.inner.lock().cache.last_write();
        loop {
            let answered = file.answered.notified();
            if !file.inner.lock().cache.is_sending(last) {
                return;
            }
            answered.await;
        }
    }

    /// Sends what was written first to a target of a file that is `meant`, until that is `bytes`; returns how much that was, as the bounds
    /// of dirty data count it.
    pub(crate) fn send_oldest(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        bytes: u64,
        meant: impl Fn(DataTarget) -> bool,
    ) -> u64 {
        let jobs = file.inner.lock().cache.start_oldest(bytes, meant);
        let charged = jobs.iter().map(|job| job.charge).sum();
        self.send(file, jobs);
        charged
    }

    /// Sends what is older than `until`.
    pub(crate) fn send_older(self: &Arc<Self>, file: &Arc<FileState>, until: Time) {
        let jobs = file.inner.lock().cache.start_older(until);
        self.send(file, jobs);
    }

    /// Waits until everything of `file` that was answered so far is durable. What is lost counts as a failed write.
    pub(crate) async fn commit_objects(&self, file: &FileState) -> Result<()> {
        self.commit_on(file, |_| true).await
    }

    /// The same of what lies on OSTs.
    pub(crate) async fn commit_on_osts(&self, file: &FileState) -> Result<()> {
        self.commit_on(file, |target| target.ost().is_some()).await
    }

    async fn commit_on(&self, file: &FileState, which: impl Fn(DataTarget) -> bool) -> Result<()> {
        let changes: Vec<(DataTarget, Transno)> = {
            let inner = file.inner.lock();
            inner.changes.iter().map(|(of, transno)| (*of, *transno)).filter(|(of, _)| which(*of)).collect()
        };
        let commits = changes.into_iter().map(|(ost, transno)| async move {
            let committed = match self.targets.data(ost).await {
                Ok(target) => target.commit(transno).await,
                Err(error) => Err(error),
            };
            (ost, transno, committed)
        });
        let committed = join_all(commits).await;
        let mut inner = file.inner.lock();
        let mut result = Ok(());
        for (ost, transno, committed) in committed {
            // Whoever waited for the same has told of it.
            let known = !inner.changes.contains_key(&ost);
            if inner.changes.get(&ost) == Some(&transno) {
                inner.changes.remove(&ost);
            }
            if let Err(error) = committed {
                if !known {
                    tracing::warn!(fid = %file.fid, %ost, %error, "data of a file is lost");
                    inner.fail(error);
                    self.losses.add();
                }
                result = Err(error);
            }
        }
        result
    }
}
