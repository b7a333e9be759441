//! One target's store: keys and values with a commit log in front.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::Transno;
use rt::sync::oneshot;
use rt::{BoxFuture, Dir, File, Rt};
use smallvec::SmallVec;

use crate::counts::DiskCounts;
use crate::error::StoreError;
use crate::label::Label;
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, KEY_RESERVED, Limits};
use crate::log::record::{BEFORE_UNKNOWN, change_bytes};
use crate::open::{self, Opened, Way};
use crate::right::Owned;
use crate::shared::Shared;
use crate::sums::{self, Sums};
use crate::view::{Guarded, Held, Known};
use crate::{apply, log, merge};

/// How often a target is not opened while an older copy of it exists.
const COPY_BOOTS: u64 = 1 << 20;

/// A stored value and the transno of the change that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub bytes: Bytes,
    /// Transno of the change that wrote it.
    pub version: Transno,
}

/// One key's new value; `None` takes the key away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key: 1 to 65,535 bytes, the first not 0xff. Keys that are listed together share their first 17 bytes.
    pub key: Bytes,
    /// The new value.
    pub value: Option<Bytes>,
}

/// Data that the log carries for blocks of data files, until the engine has the batch.
#[derive(Clone, Default)]
pub struct Logged {
    /// Data, and which blocks are free. The keys begin with 0xff; nobody but the log gets them.
    pub(crate) entries: Vec<Change>,
    /// The files, with the data: written already, synced before the engine gets the batch.
    pub(crate) files: Vec<File>,
}

/// Changes that become visible and durable together.
#[derive(Default)]
pub struct Batch {
    /// In order: of several changes of one key the last counts.
    pub changes: Vec<Change>,
    /// What is added to sums. Their keys are changed in no other way.
    pub sums: Sums,
    /// Files with data that the changes refer to: written already, synced before the log record.
    pub data: Vec<File>,
    /// Data that the log carries.
    pub logged: Logged,
    /// Transno that a replayed change had before; `None` draws a new one. It is kept if it is larger than all that
    /// this target has given out; otherwise a new one is drawn, and the caller tells its client.
    pub replay: Option<Transno>,
    /// Whom the changes are made for, if they are to be left out once that is over.
    pub author: Option<Arc<Author>>,
}

/// Whoever changes are made for, until it is over ([`Author::end`]).
#[derive(Debug, Default)]
pub struct Author {
    over: AtomicBool,
}

impl Author {
    /// From now on nothing of `store` is committed for it: what is under way fails with [`StoreError::Over`].
    pub fn end(&self, store: &Store) {
        // Under the lock that every commit takes: what was committed before is there when this returns.
        let _tail = store.shared.tail.lock();
        self.over.store(true, Ordering::Release);
    }

    /// Nothing is committed for it any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// What a change needs of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// More than before.
    Growth,
    /// Nothing but a place in the log: it frees space, or puts something in the place of something else.
    Release,
}

impl Need {
    /// What a change needs that grows: nothing more than a place if it was carried out before, under the transno that is given.
    pub fn of(replay: Option<Transno>) -> Need {
        if replay.is_some() { Need::Release } else { Need::Growth }
    }
}

/// An open target. One per directory and process. Dropping it without [`Store::close`] loses what is not committed,
/// like a crash of the process.
pub struct Store {
    label: Label,
    boot: u64,
    first: Transno,
    dir: Dir,
    pub(crate) shared: Arc<Shared>,
    /// Told when the store's tasks have ended; taken by the first `close`.
    ended: Mutex<Vec<oneshot::Receiver<()>>>,
}

impl Store {
    /// Makes a target in `path`, which is made if missing and has to be empty.
    pub async fn format(rt: &Rt, path: &str, label: &Label) -> Result<(), StoreError> {
        open::format(rt, path, label).await
    }

    /// Reads the label of the target in `path`; changes nothing.
    pub async fn read_label(rt: &Rt, path: &str) -> Result<Label, StoreError> {
        let dir = rt.disk().open_dir(path).await?;
        Label::read(&dir, path).await
    }

    /// How often the target in `path` was opened so far; changes nothing.
    pub async fn newest_boot(rt: &Rt, path: &str) -> Result<u64, StoreError> {
        let dir = rt.disk().open_dir(path).await?;
        Label::read(&dir, path).await?;
        open::last_boot(&dir, &dir.subdir(log::DIR).await?).await
    }

    /// Binds the target in `path` to a store of owners, by name, unless it is bound to it already.
    ///
    /// # Errors
    /// It is bound to another one: whoever asks that may serve the target.
    pub async fn bind_owners(rt: &Rt, path: &str, identity: &str) -> Result<(), StoreError> {
        let dir = rt.disk().open_dir(path).await?;
        crate::binding::bind(&dir, path, identity).await
    }

    /// Opens the target in `path`: takes its lock, counts its boot, applies the log behind the engine's position.
    pub async fn open(rt: &Rt, path: &str) -> Result<Arc<Store>, StoreError> {
        Store::start(rt, path, None, Way::Sole { boots: 1 }).await
    }

    /// Opens the target in `path` by a right that others may have had before, and may get.
    pub async fn open_owned(rt: &Rt, path: &str, owned: Owned) -> Result<Arc<Store>, StoreError> {
        Store::start(rt, path, None, Way::Owned(owned)).await
    }

    /// Opens the target in `path`, a copy of one that may have been opened and changed since: its boot is behind all that the other
    /// one can have had.
    pub async fn open_copy(rt: &Rt, path: &str) -> Result<Arc<Store>, StoreError> {
        Store::start(rt, path, None, Way::Sole { boots: COPY_BOOTS }).await
    }

    #[cfg(test)]
    pub(crate) async fn open_with(rt: &Rt, path: &str, limits: Limits) -> Result<Arc<Store>, StoreError> {
        Store::start(rt, path, Some(limits), Way::Sole { boots: 1 }).await
    }

    pub(crate) fn start<'a>(
        rt: &'a Rt,
        path: &'a str,
        limits: Option<Limits>,
        way: Way,
    ) -> BoxFuture<'a, Result<Arc<Store>, StoreError>> {
        Box::pin(async move {
            let opened = open::open(rt, path, limits, way).await;
            let Opened { label, boot, first, dir, shared, writer } = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    open::let_go(rt, path).await;
                    return Err(error);
                }
            };
            let shared = Arc::new(shared);
            let mut ended = vec![
                spawn(rt, log::commit::run(shared.clone(), writer)),
                spawn(rt, apply::run(shared.clone())),
            ];
            if shared.log_is_cut {
                // An engine that keeps nothing has nothing to merge.
                ended.push(spawn(rt, merge::run(shared.clone())));
            }
            let first = Transno(first);
            Ok(Arc::new(Store { label, boot, first, dir, shared, ended: Mutex::new(ended) }))
        })
    }

    /// Who the target is.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// How often the target was opened: the owner's epoch in file names.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Greater than every transno that a boot before has drawn, whether it is durable or not ([`Store::draw_from`]).
    pub fn first_transno(&self) -> Transno {
        self.first
    }

    /// The target's directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Whether nobody else had the target until now.
    pub fn is_owner(&self) -> bool {
        self.shared.right.as_ref().is_none_or(|right| right.is_valid())
    }

    /// Waits until it is sure that nobody else had the target until some moment of the call; an error if it is not any
    /// more, or does not work.
    pub async fn confirmed(&self) -> Result<(), StoreError> {
        self.shared.check()?;
        self.shared.confirmed().await
    }

    /// How large and how slow the disk's reads and writes are.
    pub fn counts(&self) -> &DiskCounts {
        &self.shared.counts
    }

    /// Whether a read or a write failed: nothing is accepted any more.
    pub fn has_failed(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Waits until it has.
    pub async fn failed(&self) {
        self.shared.failed().await;
    }

    /// The value of `key` with every change that was committed in memory, durable or not.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.shared.check()?;
        self.shared.view.get(key)
    }

    /// The same as far as it is known without the engine, which may block: for those who hold a guard.
    pub fn known(&self, key: &[u8]) -> Result<Known, StoreError> {
        self.shared.check()?;
        Ok(self.shared.view.known(key))
    }

    /// Has it known what `key` says, until what is given back is dropped: however short memory is, nobody forgets it. Meant for the few keys
    /// of an operation under way.
    ///
    /// # Errors
    /// [`StoreError`] if the engine cannot be read, or the store is poisoned.
    pub fn hold(&self, key: Bytes) -> Result<Held, StoreError> {
        self.shared.check()?;
        Held::new(&self.shared, key)
    }

    /// Waits for as long as the engine is going to take for an answer, as far as a simulation adds that: memory is short there, too, and
    /// all that the engine has is forgotten again and again. Who can wait calls this before [`Store::get`] or [`Store::scan`].
    pub async fn look_up_time(&self) {
        if self.dir.look_up_time().await {
            self.forget_known();
        }
    }

    /// Forgets what the engine has, and has it take what is durable: as if memory were short. For tests.
    pub fn forget_known(&self) {
        self.shared.view.forget();
        self.shared.flush();
    }

    /// The caller holds a guard that others wait for: nothing of the store that may ask the engine is called until this is dropped.
    pub fn guarded(&self) -> Guarded {
        Guarded::new(&self.shared)
    }

    /// Up to `count_max` keys in `[from, until)` in order. Each is as it was at some moment of the call: with
    /// changes under way the result is not a snapshot.
    pub fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Bytes, Value)>, StoreError> {
        self.shared.check()?;
        self.shared.view.scan(from, until, count_max)
    }

    /// The sum with `key`, with every change that was committed in memory.
    pub fn sum(&self, key: &[u8]) -> Result<u64, StoreError> {
        sums::sum_of(self.get(key)?.map(|value| value.bytes).as_ref())
    }

    /// Makes `batch` visible now and durable with the next group commit. Does not wait. The caller holds whatever
    /// guards the keys, but for sums. Keys and values are copied: slices of a received frame do not keep the frame.
    pub fn commit(&self, batch: Batch) -> Result<Transno, StoreError> {
        let Shared { tail, limits, view, .. } = &*self.shared;
        self.shared.check()?;
        let values: SmallVec<[Option<Bytes>; 8]> = batch.changes.iter().map(checked_copy).collect();
        batch.sums.fetch(view)?;

        let mut tail = tail.lock();
        if tail.closing {
            return Err(StoreError::Poisoned);
        }
        if batch.author.is_some_and(|author| author.is_over()) {
            return Err(StoreError::Over);
        }
        let sums = batch.sums.settle(view)?;
        let changes = batch.changes.iter().chain(&sums);
        let values = values.into_iter().chain(sums.iter().map(|sum| sum.value.clone()));
        let all = changes.clone().chain(&batch.logged.entries);
        let (count, bytes) = all.fold((0, 0), |(count, bytes), change| {
            (count + 1, bytes + change_bytes(&change.key, change.value.as_deref()))
        });
        if bytes > BATCH_BYTES_MAX {
            return Err(StoreError::TooBig);
        }
        let (was_empty, was_full) = (tail.is_empty(), tail.bytes() >= limits.commit_bytes);
        let wanted = batch.replay.map(|transno| transno.0);
        let now = || self.shared.rt.now();
        let (transno, body) = tail.begin(wanted, count, bytes, now);
        for (change, value) in changes.zip(values) {
            let before = view.table.put(&change.key, value, transno);
            body.push(&change.key, change.value.as_deref(), before.unwrap_or(BEFORE_UNKNOWN));
        }
        for Change { key, value } in &batch.logged.entries {
            body.push(key, value.as_deref(), BEFORE_UNKNOWN);
        }
        tail.sync_first(batch.data);
        tail.sync_later(batch.logged.files);
        self.shared.last_transno.store(transno, Ordering::Release);
        self.shared.unsynced.fetch_add(bytes as u64, Ordering::Relaxed);
        let wake = was_empty || !was_full && tail.bytes() >= limits.commit_bytes;
        drop(tail);
        if wake {
            self.shared.commit_wake.notify_one();
        }
        Ok(Transno(transno))
    }

    /// Changes that do not bring a transno get none below `floor` from now on.
    pub fn draw_from(&self, floor: Transno) {
        self.shared.tail.lock().floor = floor.0;
    }

    /// Every change up to here is durable.
    pub fn last_committed(&self) -> Transno {
        Transno(self.shared.last_committed())
    }

    /// The newest change, durable or not.
    pub fn last_transno(&self) -> Transno {
        Transno(self.shared.last_transno.load(Ordering::Acquire))
    }

    /// Waits until the engine has every change up to `transno`; has it get what there is.
    pub(crate) async fn applied(&self, transno: Transno) -> Result<(), StoreError> {
        self.committed(transno).await?;
        loop {
            let more = self.shared.room.notified();
            self.shared.check()?;
            if self.shared.view.applied.load(Ordering::Acquire) >= transno.0 {
                return Ok(());
            }
            self.shared.flush();
            more.await;
        }
    }

    /// Waits until every change up to `transno` is durable; starts a commit at once.
    pub async fn committed(&self, transno: Transno) -> Result<(), StoreError> {
        let (receiver, is_pending) = {
            let mut tail = self.shared.tail.lock();
            // Nobody can wait for a change that was not made yet.
            let transno = transno.0.min(tail.last);
            let receiver = self.shared.wait_for(transno)?;
            let is_pending = receiver.is_some() && transno > tail.taken;
            tail.urgent |= is_pending;
            (receiver, is_pending)
        };
        if is_pending {
            log::commit::hurry(&self.shared);
        }
        match receiver {
            None => Ok(()),
            Some(receiver) => receiver.await.map_err(|_| StoreError::Poisoned),
        }
    }

    /// Waits while so much is uncommitted or unapplied that clients have to slow down. Call before `commit`.
    ///
    /// # Errors
    /// `NoSpace` if the disk has no room for what grows; what frees space gets it only when the reserve is used up, too.
    pub async fn room(&self, need: Need) -> Result<(), StoreError> {
        let shared = &*self.shared;
        if shared.is_full() {
            // Once, as the answer to that wakes all who wait below.
            shared.look_for_space();
        }
        let mut has_looked = false;
        loop {
            let more = shared.room.notified();
            shared.check()?;
            if shared.is_full() {
                if need == Need::Growth {
                    return Err(StoreError::NoSpace);
                }
                if shared.short_of_space.load(Ordering::Relaxed) && shared.reserve.is_used_up() {
                    // The log is cut when the engine has what is in it.
                    if shared.unapplied.load(Ordering::Relaxed) > 0 {
                        shared.flush();
                    } else if has_looked {
                        return Err(StoreError::NoSpace);
                    } else {
                        has_looked = true;
                        shared.look_for_space();
                    }
                    more.await;
                    continue;
                }
            }
            let limits = shared.view.limits();
            let unsynced = shared.unsynced.load(Ordering::Relaxed) > limits.unsynced_bytes_max;
            let unapplied = shared.unapplied.load(Ordering::Relaxed) > limits.unapplied_bytes_max;
            let log_full =
                shared.log_is_cut && shared.log_bytes.load(Ordering::Relaxed) > limits.log_bytes_max;
            if !unsynced && !unapplied && !log_full {
                return Ok(());
            }
            if unapplied || log_full {
                shared.flush();
            }
            more.await;
        }
    }

    /// Whether there is no room for what grows.
    pub fn is_full(&self) -> bool {
        self.shared.is_full()
    }

    /// Has somebody look whether there is room again.
    pub fn look_for_space(&self) {
        self.shared.look_for_space();
    }

    /// Space of the disk, without what is kept back of it: nothing is available when what grows is refused.
    pub async fn space(&self) -> Result<rt::disk::Space, StoreError> {
        let space = self.dir.space().await?;
        let margin = self.shared.reserve.margin();
        let available = if self.is_full() { 0 } else { space.available.saturating_sub(margin) };
        Ok(rt::disk::Space { available, ..space })
    }

    /// Commits what there is and gives the directory back.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.shared.tail.lock().closing = true;
        self.shared.commit_wake.notify_one();
        self.give_back().await;
        self.shared.check()
    }

    /// Gives the directory back without committing, as if the process had been killed.
    pub async fn abandon(&self) {
        self.end_tasks();
        self.give_back().await;
    }

    async fn give_back(&self) {
        let ended = std::mem::take(&mut *self.ended.lock());
        for task in ended {
            // An error means that the task ended with its node, which is an end too.
            let _ = task.await;
        }
        let engine = self.shared.view.close_engine();
        // Closing the engine waits for its threads.
        self.shared.rt.offload(move || drop(engine)).await;
        if let Err(error) = self.dir.unlock().await {
            tracing::warn!(%error, "the directory stays locked");
        }
    }

    fn end_tasks(&self) {
        let mut tail = self.shared.tail.lock();
        tail.closing = true;
        tail.abandoned = true;
        drop(tail);
        self.shared.backlog.lock().abandoned = true;
        self.shared.commit_wake.notify_one();
        self.shared.apply_wake.notify_one();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

/// Runs a task; the receiver is told when it has ended.
fn spawn(rt: &Rt, task: impl Future<Output = ()> + Send + 'static) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    rt.spawn(async move {
        task.await;
        // Nobody may be waiting.
        let _ = sender.send(());
    });
    receiver
}

fn checked_copy(change: &Change) -> Option<Bytes> {
    let key = &change.key;
    assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX, "keys have 1 to 65,535 bytes");
    assert!(key[0] != KEY_RESERVED, "keys that begin with 0xff belong to the store");
    change.value.as_deref().map(Bytes::copy_from_slice)
}
