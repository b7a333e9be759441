//! The end of written files: once their data is durable on the OSTs, the MDT learns their size.
//!
//! close(2) does not wait for that. Closes gather for a tick of the client's timer and share the OSTs' commits, and frames: those
//! of files that this client made and never wrote, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{Close, SetSize, SizeUpdate};
use proto::{DataTarget, Fid, JobId, Layout, Transno};
use rpc::job::{self, OfJob};
use rt::Rt;
use rt::sync::{OwnedSemaphorePermit, Semaphore};
use rt::wait::join_all;

use crate::data::{Data, FileRef, Sum};
use crate::names::access::Accessed;
use crate::names::cache::{End, Taken};
use crate::names::later::Later;
use crate::names::{Layouts, MetadataCache, Relaying};
use crate::order::{CLOSES, LEAF, Mutex};
use crate::targets::Targets;
use crate::{OpenFlags, Result};

/// Closes that have not reached the MDT; more wait in [`crate::Client::release`].
const CLOSES_MAX: u32 = 8192;
/// So many closes do not wait for the timer.
const BATCH_MAX: usize = 1024;
/// The same of files that were never written: they go in one frame.
const UNTOUCHED_MAX: usize = 64;
/// More closes than this are not carried out by whoever comes last: he would wait for all of them, some milliseconds.
const IN_PLACE_MAX: usize = 16;
/// How long one OST may hold up the closes of files that are not on it.
const COMMIT_WAIT: Duration = Duration::from_secs(2);
/// How often the MDT may ask for the size of a file after one close: each time it has forgotten that it did, or others came in between.
const ASKED_MAX: u8 = 4;
/// How long after they could not be asked the objects of a file are asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(20);
/// Sizes that were told and may not be durable; of those before nobody is told again.
const TOLD_MAX: usize = 8192;

/// Something that ends with the MDT knowing the size.
pub(crate) struct Pending {
    file: FileRef,
    /// The handle to close; `None` after a truncate of a file that is not open for writing here.
    close: Option<Close>,
    /// The job that closes it.
    job: JobId,
    reason: Reason,
    _permit: OwnedSemaphorePermit,
}

/// Why the MDT is to know the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A handle that could write is closed.
    Closed,
    /// This client has cut the file. Until it has told, nobody else's word counts (`docs/wire.md#sizes`).
    Cut,
    /// The MDT has asked for it: the number of its question, and how often it has since.
    Asked { question: u64, times: u8 },
}

impl Reason {
    /// The MDT asks; `None` if it has done so too often.
    fn asked(self, question: u64) -> Option<Reason> {
        let times = match self {
            Reason::Closed | Reason::Cut => 0,
            Reason::Asked { times, .. } => times,
        };
        (times < ASKED_MAX).then_some(Reason::Asked { question, times: times + 1 })
    }
}

/// What became of a size.
#[derive(Default)]
struct Finished {
    /// The MDT asks for it once more.
    question: Option<u64>,
    /// The objects could not be asked.
    failed: bool,
}

impl Pending {
    /// Whether this client made the file and has never changed its data.
    fn is_untouched(&self) -> bool {
        self.file.inner.lock().end.is_untouched()
    }
}

/// A handle that is not used any more.
pub(crate) struct Ended {
    pub(crate) fid: Fid,
    /// The MDT's name for it.
    pub(crate) handle: u64,
    pub(crate) flags: OpenFlags,
    /// For regular files.
    pub(crate) file: Option<FileRef>,
    /// Something was written through it.
    pub(crate) wrote: bool,
}

/// What waits for the OSTs' commits.
pub(crate) struct Closer {
    pending: Mutex<CLOSES, Waiting>,
    permits: Arc<Semaphore>,
    /// For accesses: they keep no close waiting.
    access_permits: Arc<Semaphore>,
    /// Files whose size was told, with the change that took it, until that is durable: an MDT that restarts takes what is repeated for a close
    /// of before, and does not believe it.
    told: Mutex<LEAF, VecDeque<(Transno, Fid)>>,
    later: Later,
}

#[derive(Default)]
struct Waiting {
    /// Of files that were written.
    written: Vec<Pending>,
    /// Of files that this client made and never wrote: they wait for nothing but others of their kind.
    untouched: Vec<Pending>,
    /// What was read without the MDT having it open.
    accessed: Vec<Accessed>,
}

impl Waiting {
    fn take(&mut self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut taken: Vec<Pending> = self.written.extract_if(.., |pending| which(pending)).collect();
        taken.extend(self.untouched.extract_if(.., |pending| which(pending)));
        taken
    }
}

impl Closer {
    pub(crate) fn new() -> Closer {
        let permits = || Arc::new(Semaphore::new(CLOSES_MAX as usize));
        Closer {
            pending: Mutex::default(),
            permits: permits(),
            access_permits: permits(),
            told: Mutex::default(),
            later: Later::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let pending = self.pending.lock();
        pending.written.is_empty() && pending.untouched.is_empty() && pending.accessed.is_empty()
    }

    /// How many more closes may wait.
    pub(crate) fn room(&self) -> usize {
        self.permits.available_permits()
    }

    /// Notes an access; gives all that wait if they are many. `None` if there are too many: the MDT hears of it no more.
    pub(super) fn accessed(&self, fid: Fid, job: JobId) -> Option<Vec<Accessed>> {
        let permit = self.access_permits.clone().try_acquire_owned().ok()?;
        let mut pending = self.pending.lock();
        pending.accessed.push(Accessed { fid, job, permit });
        let is_due = pending.accessed.len() >= BATCH_MAX;
        Some(if is_due { std::mem::take(&mut pending.accessed) } else { Vec::new() })
    }

    /// The change `transno` took the size of a file; up to `durable` nothing is lost any more.
    fn told(&self, fid: Fid, transno: Transno, durable: Transno) {
        let mut told = self.told.lock();
        while told.front().is_some_and(|(first, _)| *first <= durable) || told.len() >= TOLD_MAX {
            told.pop_front();
        }
        if transno > durable {
            told.push_back((transno, fid));
        }
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Waits until every close has reached the MDT.
    pub(crate) async fn drained(&self) {
        let _all = self.permits.acquire_many(CLOSES_MAX).await;
        let _accesses = self.access_permits.acquire_many(CLOSES_MAX).await;
    }
}

/// Keeps the size of files true between the MDT and the objects.
pub(crate) struct Sizes {
    pub(super) rt: Rt,
    pub(super) targets: Arc<Targets>,
    pub(super) meta: Arc<MetadataCache>,
    pub(super) layouts: Arc<Layouts>,
    pub(super) data: Arc<Data>,
    pub(crate) closer: Closer,
}

impl Sizes {
    /// Nothing waits yet.
    pub(super) fn new(rt: Rt, targets: Arc<Targets>, layouts: Arc<Layouts>, data: Arc<Data>) -> Sizes {
        Sizes { rt, targets, meta: layouts.meta.clone(), layouts, data, closer: Closer::new() }
    }

    /// Ends `open`: at once if it has nothing to tell, else when the data is durable.
    pub(crate) async fn close(self: &Arc<Self>, open: Ended) {
        let end = self.meta.opens.own.close(open.fid, open.handle);
        if end != End::Unknown {
            // Apart from the end of the handle: the MDT does not know since when that is open.
            self.close_own(open.fid);
        }
        if end == End::Untold {
            return;
        }
        let Some(permit) = self.closer.permit().await else { return };
        let atime = self.meta.accesses.pending(open.fid).filter(|_| end == End::Unknown);
        if self.meta.opens.stays_open(&open, atime.is_some()) {
            return;
        }
        let mut close = Close { fid: open.fid, handle: open.handle, atime, size: None, wrote: open.wrote };
        if open.flags.write
            && let Some(file) = &open.file
        {
            let file = self.data.files.get(file.fid);
            let waits = {
                let mut inner = file.inner.lock();
                inner.writers -= 1;
                inner.mapped_writers -= u32::from(open.flags.read);
                let untouched = inner.end.is_untouched();
                // Pages that were changed through a mapping come through any handle.
                close.wrote |= inner.untold;
                inner.writers == 0 && !inner.gone && (inner.untold || close.wrote || untouched)
            };
            if waits {
                let pending = Pending {
                    file,
                    close: Some(close),
                    job: job::current(),
                    reason: Reason::Closed,
                    _permit: permit,
                };
                self.close_later(pending);
                return;
            }
        }
        let (sizes, job) = (self.clone(), job::current());
        self.rt.run_in_place(async move {
            if let Some(file) = &open.file {
                // The file's state may go with the last handle: its data has to be gone before.
                sizes.data.back.flush_file(file).await;
            }
            let taken = OfJob::new(job, pin!(sizes.meta.opens.send_close(close))).await;
            if let Some((file, question)) = open.file.as_ref().zip(taken.and_then(|taken| taken.question)) {
                sizes.asked_for_size(sizes.data.files.get(file.fid), Reason::Closed.asked(question));
            }
            let dead = open.file.as_ref().filter(|file| file.inner.lock().gone).map(|file| file.fid);
            drop((permit, open));
            dead.into_iter().for_each(|fid| sizes.data.forget_dead(fid));
        });
    }

    /// Tells the MDT the size of a file that was cut while nobody here has it open for writing. If closes of files whose OST does not answer
    /// have used up all room, the MDT goes on asking the objects: whoever cuts a file elsewhere does not wait for that OST.
    pub(crate) async fn tell_size(self: &Arc<Self>, file: FileRef) {
        self.tell(file, Reason::Cut).await;
    }

    async fn tell(self: &Arc<Self>, file: FileRef, reason: Reason) {
        let permit = pin!(self.closer.permit());
        match self.rt.timeout(COMMIT_WAIT, permit).await {
            Some(Some(permit)) => {
                self.close_later(Pending { file, close: None, job: job::current(), reason, _permit: permit });
            }
            Some(None) => {}
            None => self.tell_later(file.fid),
        }
    }

    /// The MDT wants to be told the size of a file that nobody has open to write: it has restarted since the file was opened, say, and
    /// what a close tells counts no more.
    fn asked_for_size(self: &Arc<Self>, file: FileRef, reason: Option<Reason>) {
        if let Some(reason) = reason {
            let sizes = self.clone();
            self.rt.spawn(async move { sizes.tell(file, reason).await });
        }
    }

    /// The MDT has restarted: the sizes that were told and may be lost are told again, once it answers.
    pub(crate) fn tell_again(self: &Arc<Self>) {
        let fids: BTreeSet<Fid> = self.closer.told.lock().drain(..).map(|(_, fid)| fid).collect();
        let sizes = self.clone();
        self.rt.spawn(async move {
            for fid in fids {
                // It asks once it hears that there is something to tell.
                sizes.tell_of(fid, Reason::Asked { question: 0, times: 1 }).await;
            }
        });
    }

    /// Tells the size of a file of which this client may know nothing any more.
    async fn tell_of(self: &Arc<Self>, fid: Fid, reason: Reason) {
        let file = self.data.files.get(fid);
        if file.inner.lock().layout.is_none() {
            match self.layouts.fetch_entry(fid).await {
                Ok(entry) => file.set_entry(entry),
                Err(_) => return,
            }
        }
        self.tell(file, reason).await;
    }

    /// The objects of a file could not be asked: an operator has nobody ask an OST, for one. They are asked again, until it works. The client may
    /// have cut the file, and nobody else's word counts before.
    fn tell_later(self: &Arc<Self>, fid: Fid) {
        if !self.closer.later.add(fid) {
            return;
        }
        let (rt, sizes) = (self.rt.clone(), Arc::downgrade(self));
        self.rt.spawn(async move {
            loop {
                rt.sleep(AGAIN_AFTER).await;
                let Some(sizes) = sizes.upgrade() else { return };
                let Some(due) = sizes.closer.later.take() else { return };
                for fid in due {
                    sizes.tell_of(fid, Reason::Cut).await;
                }
            }
        });
    }

    /// The MDT has taken a size with a change that it may lose.
    fn taken(&self, fid: Fid, transno: Transno) {
        if transno != Transno(0)
            && let Ok(mdt) = self.targets.mdt_of(fid)
        {
            self.closer.told(fid, transno, mdt.last_committed());
        }
    }

    fn close_later(self: &Arc<Self>, pending: Pending) {
        let untouched = pending.close.is_some() && pending.is_untouched();
        let due = {
            let mut waiting = self.closer.pending.lock();
            let (list, max) = match untouched {
                true => (&mut waiting.untouched, UNTOUCHED_MAX),
                false => (&mut waiting.written, BATCH_MAX),
            };
            list.push(pending);
            if list.len() >= max { std::mem::take(list) } else { Vec::new() }
        };
        self.data.back.dirty.arm();
        self.close_these(due);
    }

    /// The last link of `fid` is gone: a close that waits need not wait for the size of a file without a name.
    pub(crate) fn gone(self: &Arc<Self>, fid: Fid) {
        let Some(file) = self.data.files.find(fid) else { return };
        file.inner.lock().gone = true;
        self.close_now(|pending| pending.file.fid == fid);
    }

    /// Starts the closes of a file that wait: somebody waits until nobody has it open for writing.
    pub(crate) fn close_soon(self: &Arc<Self>, fid: Fid) {
        self.close_now(|pending| pending.file.fid == fid);
    }

    /// Starts every close that waits.
    pub(crate) fn close_pending(self: &Arc<Self>) {
        self.close_now(|_| true);
        let accessed = std::mem::take(&mut self.closer.pending.lock().accessed);
        if !accessed.is_empty() {
            self.rt.spawn(self.clone().tell_accesses(accessed));
        }
    }

    fn close_now(self: &Arc<Self>, which: impl Fn(&Pending) -> bool) {
        let batch = self.closer.pending.lock().take(which);
        self.close_these(batch);
    }

    fn close_these(self: &Arc<Self>, batch: Vec<Pending>) {
        let (sizes, count) = (self.clone(), batch.len());
        let closing = async move { sizes.close_batch(batch).await };
        match count {
            0 => {}
            1..=IN_PLACE_MAX => self.rt.run_in_place(closing),
            _ => self.rt.spawn_behind(closing),
        }
    }

    /// One commit on each OST for all of them, then each waits for what it needs.
    async fn close_batch(self: &Arc<Self>, batch: Vec<Pending>) {
        let mut newest: BTreeMap<DataTarget, Transno> = BTreeMap::new();
        for pending in &batch {
            let inner = pending.file.inner.lock();
            let on_osts = inner.changes.iter().filter(|(target, _)| target.ost().is_some());
            for (&ost, &transno) in on_osts.filter(|_| !inner.gone) {
                let most = newest.entry(ost).or_default();
                *most = transno.max(*most);
            }
        }
        let commits = newest
            .into_iter()
            .map(|(ost, transno)| async move { self.targets.data(ost).await?.commit(transno).await });
        // What an OST says matters to the files on it only, and they ask again.
        let _ = self.rt.timeout(COMMIT_WAIT, join_all(commits)).await;
        // Their questions for sizes go to each OST in few frames, and their closes to the MDT.
        let finishing = batch.into_iter().map(|pending| self.finish(pending)).collect();
        self.targets.hub().together(finishing).await;
    }

    async fn finish(self: &Arc<Self>, pending: Pending) {
        let untouched = pending.is_untouched();
        let Pending { file, close, job, reason, _permit } = pending;
        let finished = {
            let closing = pin!(async {
                match close {
                    // Nothing was ever written: what the MDT said of the size is true again.
                    Some(close) if untouched => {
                        let taken = self.send_close(close).await;
                        self.taken(file.fid, taken.transno);
                        Finished { question: taken.question, failed: false }
                    }
                    Some(close) if self.data.drop_unsent(&file) => {
                        Finished { question: self.send_close(close).await.question, failed: true }
                    }
                    close => self.finish_file(&file, close, reason).await,
                }
            });
            OfJob::new(job, closing).await
        };
        let dead = file.inner.lock().gone.then_some(file.fid);
        if let Some(question) = finished.question {
            self.asked_for_size(self.data.files.get(file.fid), reason.asked(question));
        } else if finished.failed && dead.is_none() {
            self.tell_later(file.fid);
        }
        drop(file);
        dead.into_iter().for_each(|fid| self.data.forget_dead(fid));
    }

    /// A close that the MDT has not taken changed nothing.
    async fn send_close(&self, close: Close) -> Taken {
        let taken = self.meta.opens.send_close(close).await;
        taken.unwrap_or(Taken { transno: Transno(0), question: None })
    }

    /// Tells it when all is durable.
    async fn finish_file(self: &Arc<Self>, file: &FileRef, close: Option<Close>, reason: Reason) -> Finished {
        self.data.back.flush_file(file).await;
        // What the MDT itself has comes before the close in the same log.
        if self.data.back.commit_on_osts(file).await.is_err() {
            // What is left of the file is not what was written: the objects have to be asked.
            let question = match close {
                Some(close) => self.send_close(close).await.question,
                None => None,
            };
            return Finished { question, failed: true };
        }
        // A size that was asked for earlier must not reach the MDT later.
        let Ok(_turn) = file.telling.acquire().await else { return Finished::default() };
        // No truncate may come between the question for the size and the answer to the MDT.
        let Ok(_order) = file.shared().await else { return Finished::default() };
        let size = self.size_to_tell(file).await;
        if let Err(error) = &size {
            tracing::debug!(fid = %file.fid, %error, "the size of a file stays unknown to the MDT");
        }
        let failed = size.is_err();
        let question = match (close, size.ok().flatten()) {
            (Some(close), size) => {
                let Taken { transno, question } = self.send_close(Close { size, ..close }).await;
                self.taken(file.fid, transno);
                match transno {
                    // Nothing of the file says what whoever makes it durable has to wait for.
                    Transno(0) => drop(self.data.back.commit_objects(file).await),
                    told => file.inner.lock().told(told),
                }
                question
            }
            (None, Some(update)) => {
                let question = if let Reason::Asked { question, .. } = reason { question } else { 0 };
                let set = SetSize { fid: file.fid, update, cut: reason == Reason::Cut, question };
                self.set_size(set).await.unwrap_or_else(|error| {
                    tracing::debug!(fid = %file.fid, %error, "the MDT did not take a size");
                    None
                })
            }
            (None, None) => None,
        };
        Finished { question, failed }
    }

    /// What the MDT asks for then.
    async fn set_size(self: &Arc<Self>, set: SetSize) -> Result<Option<u64>> {
        let changing = self.meta.inodes.change(&[set.fid], &[]);
        let (fid, answered) = (set.fid, self.targets.settled_mdt_of(set.fid).await?.call(set).await?);
        self.meta.changes.changed(fid, answered.transno);
        self.taken(fid, answered.transno);
        if let Some(file) = self.data.files.find(fid) {
            file.inner.lock().told(answered.transno);
        }
        let asked = changing.done(&[]);
        if let Some(entry) = &answered.reply.entry {
            self.meta.answers.learn(&asked, entry);
        }
        Ok(answered.reply.asked())
    }

    /// What the MDT is to be told; `None` if somebody else will do that, or nobody needs to know.
    async fn size_to_tell(self: &Arc<Self>, file: &FileRef) -> Result<Option<SizeUpdate>> {
        let layout = {
            let mut inner = file.inner.lock();
            // What changed again since the commit has a close or a truncate of its own behind it.
            if inner.gone || inner.writers > 0 || !inner.cache.is_empty() || inner.has_changes_on_osts() {
                return Ok(None);
            }
            inner.untold = false;
            inner.layout.clone()
        };
        let Some(mut layout) = layout else { return Ok(None) };
        // With the objects that others gave it.
        if layout.is_growing() {
            layout = match self.layouts.current(file).await {
                Ok(layout) => layout,
                Err(error) => {
                    file.inner.lock().untold = true;
                    return Err(error);
                }
            };
        }
        let sum = match self.own(file, &layout) {
            Some((sum, _)) => Ok(sum),
            None => self.ask_objects(file, layout).await?,
        };
        let mut inner = file.inner.lock();
        if sum.is_err() || inner.writers > 0 {
            inner.untold = true;
        }
        if inner.writers > 0 {
            return Ok(None);
        }
        Ok(Some(sum?.update()))
    }

    /// Other clients may have written too: the objects know.
    async fn ask_objects(self: &Arc<Self>, file: &FileRef, mut layout: Arc<Layout>) -> Result<Result<Sum>> {
        let mut relaying = Relaying::default();
        loop {
            match self.data.objects.object_attrs(&layout).await {
                Err(error) if self.layouts.relaid(file, &layout, error, &mut relaying).await? => {
                    layout = file.layout()?
                }
                asked => return Ok(asked.map(|objects| Sum::of(&layout, &objects))),
            }
        }
    }
}
