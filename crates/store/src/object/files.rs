//! The data files: made ahead of need, written, and given back.
//!
//! Lock order: nothing else is locked while `space` or `handles` is.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rt::sync::{Notify, Semaphore};
use rt::wait::{Either, race};
use rt::{Dir, File, Rt, Time};

use super::block::Slices;
use super::extent::{BLOCK, EXTENT_BYTES_MAX, Extent, FileId, Run};
use super::handles::Handles;
use super::logged;
use super::page_cache::{PageCache, Via};
use super::placed::{Durable, Placed};
use super::space::Space;
use super::supply::{FILE_BYTES_MIN, Ready, Supply};
use super::sweep::{BlockSet, Sweeping};
use super::taker::{Taker, Way};
use crate::error::StoreError;
use crate::target::{Need, Store};

/// Directory of the data files within the target's.
pub const DIR: &str = "data";
/// Most space that is given back to the file system at a time, in bytes: what reads and writes meanwhile shall not wait for long.
const GIVEN_BYTES_MAX: u64 = 128 << 20;
/// A file of a former boot is looked through if it takes more than this part of its length, as a divisor, and so many bytes, more than
/// what is used of it: what the file system itself needs for a file in pieces is less.
const LOOSE_PART: u64 = 256;
const LOOSE_BYTES_MIN: u64 = 64 << 10;
/// How long an overwrite waits for what others freed.
const OVERWRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long it waits each time for those who read that.
const READERS_PAUSE: Duration = Duration::from_millis(50);
/// How long freed blocks wait at most for somebody to look at them.
const RELEASE_AFTER: Duration = Duration::from_secs(1);
/// A pause between two steps of what takes long.
const STEP_PAUSE: Duration = Duration::from_micros(50);

/// All data files of a target.
pub struct Files {
    rt: Rt,
    store: Arc<Store>,
    dir: Dir,
    space: Mutex<Space>,
    handles: Mutex<Handles>,
    /// Files are punched and removed by one at a time.
    tidying: Semaphore,
    /// The search for what former boots left allocated.
    sweeping: Sweeping,
    supply: Supply,
    /// There is something to do in the background.
    work: Arc<Notify>,
    /// Blocks were freed, and somebody should look at them in a while.
    freed: Arc<Notify>,
    stopped: AtomicBool,
    page_cache: PageCache,
}

/// A promise that what a reader saw stays where it is.
pub struct Reading {
    files: Arc<Files>,
    ticket: u64,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.files.space.lock().leave(self.ticket);
    }
}

impl Files {
    /// Opens the directory; the files in it are told by [`Files::list`].
    pub async fn open(rt: &Rt, store: &Arc<Store>, ready: Ready) -> Result<Files, StoreError> {
        let dir = store.dir().subdir(DIR).await?;
        // The directory's own name has to be there after a crash, or every file in it is lost.
        store.dir().sync().await?;
        let supply = Supply::new(dir.space().await?.total, ready);
        Ok(Files {
            rt: rt.clone(),
            store: store.clone(),
            dir,
            space: Mutex::new(Space::default()),
            handles: Mutex::new(Handles::default()),
            tidying: Semaphore::new(1),
            sweeping: Sweeping::new(),
            supply,
            work: Arc::new(Notify::new()),
            freed: Arc::new(Notify::new()),
            stopped: AtomicBool::new(false),
            page_cache: PageCache::default(),
        })
    }

    /// Every data file. Files that are none are left alone.
    pub async fn list(&self) -> Result<Vec<FileId>, StoreError> {
        Ok(self.dir.list().await?.iter().filter_map(|name| FileId::parse(name)).collect())
    }

    /// Takes over a file of a former boot of which `used` blocks are used.
    pub fn adopt(&self, id: FileId, used: u64) {
        self.space.lock().add_former(id, used);
    }

    /// The files of former boots of which nothing is used, or that take clearly more of the disk than what is used of them, or any more if
    /// there is no space for further files; newest first.
    pub async fn loose(&self) -> Result<Vec<FileId>, StoreError> {
        let spare = self.dir.space().await?.available.saturating_sub(self.store.shared.kept_from_objects());
        let is_short = spare < FILE_BYTES_MIN + self.supply.overwrite_blocks * BLOCK;
        let former = self.space.lock().former();
        let mut loose = Vec::new();
        for (id, used) in former.into_iter().rev() {
            // Not by `handle`: those are for files that are read.
            let file = match self.dir.open(&id.to_string()).await {
                // It was removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let slack = if is_short { 0 } else { (file.len().await? / LOOSE_PART).max(LOOSE_BYTES_MIN) };
            if used == 0 || file.space().await? > used * BLOCK + slack {
                loose.push(id);
            }
        }
        Ok(loose)
    }

    /// Gives back what is not `used` of a file of a former boot: nothing durable refers to it, nor ever will.
    pub async fn give_unused(&self, id: FileId, used: &BlockSet) -> Result<(), StoreError> {
        let blocks = match self.dir.open(&id.to_string()).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => u32::try_from(file?.len().await? / BLOCK).unwrap_or(u32::MAX),
        };
        self.space.lock().give_gaps(self.store.last_committed(), id, blocks, &used.gaps(blocks));
        self.work.notify_one();
        self.sweeping.found.notify_waiters();
        Ok(())
    }

    /// Nothing more of former boots will be given back.
    pub fn end_sweep(&self) {
        self.sweeping.end();
    }

    /// Between two steps of what takes long: others of the same core have their turn.
    pub async fn pause(&self) {
        self.wait(STEP_PAUSE).await;
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.rt.now()
    }

    /// Waits for `time`.
    pub async fn wait(&self, time: Duration) {
        self.rt.sleep(time).await;
    }

    /// Runs `part` of a sweep, which the end of the target waits for; `None` if it has come.
    pub async fn in_sweep<T>(&self, part: impl Future<Output = T>) -> Option<T> {
        let _permit = self.sweeping.reader.acquire().await.ok()?;
        if self.stopped.load(Ordering::SeqCst) { None } else { Some(part.await) }
    }

    /// The open file `id`.
    async fn handle(&self, id: FileId) -> Result<File, StoreError> {
        if let Some(file) = self.handles.lock().get(id) {
            return Ok(file);
        }
        let file = self.dir.open(&id.to_string()).await?;
        self.handles.lock().put(id, file.clone());
        Ok(file)
    }

    /// Starts the task that makes files ahead of need and gives space back. It ends with `self`.
    pub fn start(self: &Arc<Files>) {
        let (rt, work, freed, files) =
            (self.rt.clone(), self.work.clone(), self.freed.clone(), Arc::downgrade(self));
        self.rt.spawn(async move {
            while let Some(pending) = in_background(&files).await {
                let waits = pending || is_freed(&work, &freed).await;
                if waits {
                    rt.timeout(RELEASE_AFTER, work.notified()).await;
                }
            }
        });
    }

    /// Writes `data` for the range of an object that starts at `offset`, without anything referring to it.
    pub async fn place(&self, way: Way, offset: u64, mut data: Slices) -> Result<Placed, StoreError> {
        let mut placed = Placed::default();
        let mut at = offset;
        while data.len() > 0 {
            // No extent crosses a border between chunks.
            let len = data.len().min(EXTENT_BYTES_MAX).min(super::chunk_end(at) - at);
            let done = self.place_part(way, at, data.split_to(len), &mut placed).await;
            if let Err(error) = done {
                self.give_back(placed);
                return Err(error);
            }
            at += len;
        }
        Ok(placed)
    }

    /// Takes blocks for `ranges` of an object, each at most an extent long, without writing to them or anything
    /// referring to them.
    pub async fn reserve(&self, taker: Taker, ranges: &[Range<u64>]) -> Result<Placed, StoreError> {
        let mut placed = Placed::default();
        for range in ranges {
            let runs = match self.take(taker, (range.end - range.start).div_ceil(BLOCK) as u32).await {
                Ok(runs) => runs,
                Err(error) => {
                    self.give_back(placed);
                    return Err(error);
                }
            };
            let mut at = range.start;
            for run in &runs {
                let len = (range.end - at).min(u64::from(run.count) * BLOCK);
                let (file, first) = (run.file, u64::from(run.block) * BLOCK);
                placed.extents.push((at, Extent { len: len as u32, file, at: first, sums: Bytes::new() }));
                at += len;
            }
            placed.runs.extend(runs);
        }
        Ok(placed)
    }

    async fn place_part(
        &self,
        way: Way,
        offset: u64,
        mut data: Slices,
        placed: &mut Placed,
    ) -> Result<(), StoreError> {
        let runs = self.take(way.taker, data.len().div_ceil(BLOCK) as u32).await?;
        let mut at = offset;
        let mut result = Ok(());
        for run in &runs {
            let part = data.split_to(data.len().min(u64::from(run.count) * BLOCK));
            let len = part.len();
            let extent = Extent {
                len: len as u32,
                file: run.file,
                at: u64::from(run.block) * BLOCK,
                sums: part.checksums(),
            };
            match (self.write_run(run, part.clone(), way.via).await, way.durable) {
                (Ok(file), Durable::Synced) => placed.files.push(file),
                (Ok(file), Durable::Logged) => {
                    placed.logged.files.push(file);
                    placed.logged.entries.push(logged::data(run, part.joined()));
                }
                (Err(error), _) => result = result.and(Err(error)),
            }
            placed.extents.push((at, extent));
            at += len;
        }
        placed.runs.extend(runs);
        result
    }

    async fn write_run(&self, run: &Run, data: Slices, via: Via) -> Result<File, StoreError> {
        let file = self.handle(run.file).await.map_err(|error| self.write_failed(error))?;
        let bytes = data.len().next_multiple_of(BLOCK) as usize;
        let under = self.store.counts().writes.begin(&self.rt);
        let offset = u64::from(run.block) * BLOCK;
        let written = match via {
            Via::PageCache => file.write_cached_at(offset, data.pad()).await,
            Via::Disk => file.write_at(offset, data.pad()).await,
        };
        written.map_err(|error| self.write_failed(no_space(error)))?;
        under.done(&self.rt, bytes);
        Ok(file)
    }

    /// After a failed write the target stops, as after a failed sync: it is opened again, and clients repeat what was not
    /// durable. That there is no space is no failure.
    fn write_failed(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Io(_)) {
            self.store.shared.poison(&error);
        }
        error
    }

    /// Gives the blocks of data back that nothing will refer to.
    pub fn give_back(&self, placed: Placed) {
        self.space.lock().give_back(&placed.runs);
    }

    /// Gives blocks back that a change freed. Called under the lock of the object that they belonged to.
    pub fn free(&self, runs: Vec<Run>) {
        if runs.is_empty() {
            return;
        }
        // A replayed change has an older transno than what is durable already, but lies behind it in the log.
        let until = self.store.last_transno();
        let mut space = self.space.lock();
        let first = !space.has_pending();
        space.free(until, runs);
        drop(space);
        if first {
            self.freed.notify_one();
        }
    }

    /// Takes `blocks` blocks: consecutive ones, or others if there are no consecutive ones. What takes the place of something may use
    /// what is left to it, and waits for what former boots left allocated: what was free before lies in their files.
    async fn take(&self, taker: Taker, blocks: u32) -> Result<Vec<Run>, StoreError> {
        let need = taker.need();
        let left = if need == Need::Growth { self.supply.overwrite_blocks } else { 0 };
        let leaves = |space: &Space| space.free_blocks() >= u64::from(blocks) + left;
        let mut until = self.rt.now() + OVERWRITE_WAIT_MAX;
        let (mut has_waited, mut has_tidied) = (false, taker == Taker::Merge);
        loop {
            let found = self.sweeping.found.notified();
            let waits_for_sweep = need == Need::Release && !self.sweeping.is_over();
            if let Some(run) = self.take_now(blocks, leaves) {
                return Ok(vec![run]);
            }
            match self.prepare(need, |space| leaves(space) && space.fits(blocks)).await {
                Ok(()) => continue,
                Err(StoreError::NoSpace) => {}
                Err(error) => return Err(error),
            }
            let scattered = {
                let mut space = self.space.lock();
                if leaves(&space) { space.take_scattered(blocks) } else { None }
            };
            if let Some(runs) = scattered {
                return Ok(runs);
            }
            let waits = match taker {
                Taker::Growth => !has_waited,
                Taker::Overwrite => self.rt.now() < until && !self.stopped.load(Ordering::SeqCst),
                Taker::Merge => false,
            };
            if waits && self.space.lock().has_pending() {
                // What was freed, but not durably, or is read, may be enough.
                has_waited = true;
                self.until_free(taker).await?;
            } else if waits_for_sweep {
                // What others freed in the meantime may be enough, too.
                self.rt.timeout(RELEASE_AFTER, found).await;
                self.tidy().await;
                until = self.rt.now() + OVERWRITE_WAIT_MAX;
            } else if !has_tidied {
                // Somebody may be giving it back just now.
                has_tidied = true;
                self.tidy().await;
            } else if self.stopped.load(Ordering::SeqCst) {
                return Err(StoreError::Poisoned);
            } else {
                return Err(StoreError::NoSpace);
            }
        }
    }

    /// Waits until what was freed so far is durable, or for those who read the oldest of it, if that is durable, and gives it back. Who needs
    /// more than before may be one of them.
    async fn until_free(&self, taker: Taker) -> Result<(), StoreError> {
        if taker == Taker::Overwrite && self.is_read() {
            self.wait(READERS_PAUSE).await;
        } else {
            self.store.committed(self.store.last_transno()).await?;
        }
        self.tidy().await;
        Ok(())
    }

    /// Whether nothing but readers keeps the oldest of what was freed.
    fn is_read(&self) -> bool {
        let committed = self.store.last_committed();
        let mut space = self.space.lock();
        space.release(committed);
        space.is_read(committed)
    }

    fn take_now(&self, blocks: u32, may: impl Fn(&Space) -> bool) -> Option<Run> {
        let committed = self.store.last_committed();
        let mut space = self.space.lock();
        space.release(committed);
        let run = if may(&space) { space.take(blocks) } else { None };
        if space.has_work() || space.free_blocks() < self.supply.ahead() {
            self.work.notify_one();
        }
        run
    }

    /// Whether there is room for `blocks` more blocks, without waiting for anybody.
    pub async fn has_room(&self, blocks: u64) -> Result<bool, StoreError> {
        if self.unused_blocks() >= blocks + self.supply.overwrite_blocks {
            return Ok(true);
        }
        let available = self.dir.space().await?.available;
        let kept = self.store.shared.kept_from_objects();
        Ok(self.supply.file_bytes(Need::Growth, available, kept).is_some())
    }

    /// Makes a data file, unless there is `enough` room by now.
    async fn prepare(&self, need: Need, enough: impl Fn(&Space) -> bool) -> Result<(), StoreError> {
        let Ok(_permit) = self.supply.preparing.acquire().await else {
            return Err(StoreError::Poisoned);
        };
        if enough(&self.space.lock()) {
            return Ok(());
        }
        let available = self.dir.space().await?.available;
        let kept = self.store.shared.kept_from_objects();
        let Some(bytes) = self.supply.file_bytes(need, available, kept) else {
            return Err(StoreError::NoSpace);
        };
        let id = self.supply.next_id(self.store.boot());
        let name = id.to_string();
        let file = self.dir.create(&name).await.map_err(|error| self.write_failed(no_space(error)))?;
        if let Err(error) = self.make_ready(&file, bytes).await {
            let _ = self.dir.remove(&name).await;
            return Err(self.write_failed(no_space(error)));
        }
        self.handles.lock().put(id, file);
        let blocks = (bytes / BLOCK) as u32;
        self.supply.made(blocks);
        self.space.lock().add_current(id, blocks);
        Ok(())
    }

    /// Everything that a later write could fail on, or a crash could undo, is done here.
    async fn make_ready(&self, file: &File, bytes: u64) -> std::io::Result<()> {
        file.allocate(0, bytes).await?;
        file.sync().await?;
        self.dir.sync().await
    }

    /// Gives back to the file system what nothing refers to; whether there is more of it.
    async fn tidy(&self) -> bool {
        let Ok(_permit) = self.tidying.acquire().await else {
            return false;
        };
        let committed = self.store.last_committed();
        let more;
        let work = {
            let mut space = self.space.lock();
            space.release(committed);
            let mut work = space.take_work();
            let keep = self.supply.kept_blocks();
            work.remove.extend(space.drop_unused(keep));
            let surplus = space.give_surplus(keep, GIVEN_BYTES_MAX / BLOCK);
            more = surplus.iter().map(|run| u64::from(run.count)).sum::<u64>() == GIVEN_BYTES_MAX / BLOCK;
            work.punch.extend(surplus);
            work
        };
        for id in work.remove {
            self.remove(id).await;
        }
        for hole in work.punch {
            let done = match self.handle(hole.file).await {
                Ok(file) => {
                    let (at, len) = (u64::from(hole.block) * BLOCK, u64::from(hole.count) * BLOCK);
                    file.punch(at, len).await.map_err(StoreError::from)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::warn!(file = %hole.file, %error, "freed space is not given back");
            }
        }
        more
    }

    /// Removes a file that nothing refers to. Its space goes first: the log has a file open whose data it carries, until the engine gets that
    /// ([`super::logged`]), and a file that is open keeps its space.
    async fn remove(&self, id: FileId) {
        if let Err(error) = self.empty(id).await {
            tracing::warn!(file = %id, %error, "the space of a data file that is removed is given back late");
        }
        self.handles.lock().forget(id);
        if let Err(error) = self.dir.remove(&id.to_string()).await {
            tracing::warn!(file = %id, %error, "a data file that nothing refers to stays");
        }
    }

    async fn empty(&self, id: FileId) -> Result<(), StoreError> {
        Ok(self.handle(id).await?.empty().await?)
    }

    /// Reads whole blocks.
    pub async fn read(&self, run: Run, via: Via) -> Result<Bytes, StoreError> {
        let file = match self.handle(run.file).await {
            Err(StoreError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::Corrupt {
                    what: format!("data file {}, which is missing,", run.file),
                });
            }
            file => file?,
        };
        let len = run.count as usize * BLOCK as usize;
        let under = self.store.counts().reads.begin(&self.rt);
        let offset = u64::from(run.block) * BLOCK;
        let bytes = match via {
            Via::PageCache => file.read_cached_at(offset, len).await?,
            Via::Disk => file.read_at(offset, len).await?,
        };
        under.done(&self.rt, len);
        Ok(bytes)
    }

    /// What the page cache keeps.
    pub fn page_cache(&self) -> &PageCache {
        &self.page_cache
    }

    /// Keeps everything where it is that is referred to from now on, until the result is dropped.
    pub fn reading(self: &Arc<Files>) -> Reading {
        Reading { files: self.clone(), ticket: self.space.lock().enter() }
    }

    /// Bytes that can be written into files that exist, but for what is left to overwrites.
    pub fn free_bytes(&self) -> u64 {
        self.unused_blocks().saturating_sub(self.supply.overwrite_blocks) * BLOCK
    }

    fn unused_blocks(&self) -> u64 {
        let committed = self.store.last_committed();
        let mut space = self.space.lock();
        space.release(committed);
        if space.has_work() {
            self.work.notify_one();
        }
        space.free_blocks()
    }

    /// Space of the disk, without the reserve. What overwrites lack, and what is too little for a file, is not available.
    pub async fn disk_space(&self) -> Result<rt::disk::Space, StoreError> {
        let space = self.dir.space().await?;
        let kept = self.store.shared.kept_from_objects();
        let lacking = self.supply.overwrite_blocks.saturating_sub(self.unused_blocks()) * BLOCK;
        let (free, available) = (space.free.saturating_sub(kept), space.available.saturating_sub(kept));
        let has_file = self.supply.file_bytes(Need::Growth, space.available, kept).is_some();
        let available = if has_file { available.saturating_sub(lacking) } else { 0 };
        Ok(rt::disk::Space { free, available, ..space })
    }

    /// Ends the background task and removes files without data.
    pub async fn close(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.work.notify_one();
        drop(self.sweeping.reader.acquire().await);
        self.tidy().await;
        let unused = self.space.lock().drop_unused(0);
        for id in unused {
            self.remove(id).await;
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.work.notify_one();
    }
}

/// Waits for something to do: whether it is only that blocks were freed, which can wait for more of them.
async fn is_freed(work: &Notify, freed: &Notify) -> bool {
    matches!(race(work.notified(), freed.notified()).await, Either::Second(()))
}

/// One round of the background task: whether freed blocks still wait. `None` ends the task.
async fn in_background(files: &Weak<Files>) -> Option<bool> {
    let files = files.upgrade()?;
    if files.stopped.load(Ordering::SeqCst) {
        return None;
    }
    let more = files.tidy().await;
    let ahead = files.supply.ahead();
    match files.prepare(Need::Growth, |space| space.free_blocks() >= ahead).await {
        Ok(()) | Err(StoreError::NoSpace) => {}
        Err(error) => tracing::warn!(%error, "no data file could be made ahead of need"),
    }
    Some(more || files.space.lock().has_pending())
}

/// Space that was reserved may still be missing: where the file system copies on write, or lives on a thin device.
fn no_space(error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::NoSpace,
        _ => error.into(),
    }
}
