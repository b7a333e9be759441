//! What a store's callers and its two tasks share.
//!
//! Lock order: `tail`, then a shard of the table; `tail`, then `waiters`. `backlog` and `writer` are taken alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rt::sync::{Notify, oneshot};
use rt::{Dir, File, Rt};

use crate::counts::DiskCounts;
use crate::engine::{Engine, Visit};
use crate::error::StoreError;
use crate::limits::Limits;
use crate::log::record::stride;
use crate::log::scan::Closed;
use crate::log::segment::Record;
use crate::log::tail::{Tail, add_each_once};
use crate::log::writer::{Appended, Writer};
use crate::reserve::{Others, Reserve};
use crate::right::Right;
use crate::view::View;

/// How long the engine is left alone when it is behind with its own work.
pub(crate) const BEHIND_WAIT: Duration = Duration::from_millis(10);

/// After so many files with data that only the log is sure to have, the engine gets it.
const BEHIND_FILES_MAX: usize = 512;

/// Durable records that the engine has not got, and segments that wait to be deleted.
#[derive(Default)]
pub(crate) struct Backlog {
    /// In order.
    pub records: VecDeque<Record>,
    /// Files with data that the records have and the disk may not.
    pub behind: Vec<File>,
    /// In order; they get no further record.
    pub segments: VecDeque<Closed>,
    /// Apply what there is even if it is little.
    pub flush: bool,
    /// The commit task has ended: no record follows.
    pub log_ended: bool,
    /// End without applying.
    pub abandoned: bool,
}

/// People waiting for a transno, with a number to tell those of one transno apart.
#[derive(Default)]
struct Waiters {
    by_transno: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next: u64,
}

pub(crate) struct Shared {
    pub rt: Rt,
    pub limits: Limits,
    pub log_dir: Dir,
    pub view: View,
    pub tail: Mutex<Tail>,
    /// The log's open end; `None` while somebody writes there.
    pub writer: Mutex<Option<Writer>>,
    pub commit_wake: Notify,
    pub backlog: Mutex<Backlog>,
    pub apply_wake: Notify,
    /// Woken when the engine got something, or the engine's task has ended.
    pub merge_wake: Notify,
    pub apply_ended: AtomicBool,
    /// Woken whenever there is more room.
    pub room: Notify,
    pub last_transno: AtomicU64,
    last_committed: AtomicU64,
    poisoned: AtomicBool,
    /// It is poisoned.
    failure: Notify,
    waiters: Mutex<Waiters>,
    /// Bytes of changes that are not durable.
    pub unsynced: AtomicU64,
    /// Bytes of records that the engine has not got.
    pub unapplied: AtomicU64,
    /// Bytes of all segment files.
    pub log_bytes: AtomicU64,
    /// Whether the engine keeps what it gets, so that the log can be cut.
    pub log_is_cut: bool,
    /// Space for the log could not be reserved.
    pub short_of_space: AtomicBool,
    /// What is kept back of the disk.
    pub reserve: Reserve,
    /// The right to write, where others may have it too.
    pub right: Option<Arc<dyn Right>>,
    pub counts: DiskCounts,
}

impl Shared {
    pub fn new(
        rt: &Rt,
        limits: Limits,
        log_dir: Dir,
        view: View,
        last: u64,
        right: Option<Arc<dyn Right>>,
        reserve: Reserve,
    ) -> Shared {
        Shared {
            rt: rt.clone(),
            limits,
            log_dir,
            view,
            tail: Mutex::new(Tail::new(last)),
            writer: Mutex::new(None),
            commit_wake: Notify::new(),
            backlog: Mutex::default(),
            apply_wake: Notify::new(),
            merge_wake: Notify::new(),
            apply_ended: AtomicBool::new(false),
            room: Notify::new(),
            last_transno: AtomicU64::new(last),
            last_committed: AtomicU64::new(last),
            poisoned: AtomicBool::new(false),
            failure: Notify::new(),
            waiters: Mutex::default(),
            unsynced: AtomicU64::new(0),
            unapplied: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_is_cut: !rt.is_sim(),
            short_of_space: AtomicBool::new(false),
            reserve,
            right,
            counts: DiskCounts::default(),
        }
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    pub fn check(&self) -> Result<(), StoreError> {
        if self.is_poisoned() { Err(StoreError::Poisoned) } else { Ok(()) }
    }

    /// Whether there is no room for what grows.
    pub fn is_full(&self) -> bool {
        self.reserve.is_tight() || self.short_of_space.load(Ordering::Relaxed)
    }

    /// Has somebody look whether there is room again.
    pub fn look_for_space(&self) {
        self.tail.lock().reserve = true;
        self.commit_wake.notify_one();
    }

    /// Looks how much room there is, unless that was just done.
    pub async fn look_now_and_then(&self) -> std::io::Result<()> {
        self.reserve.look_now_and_then(&self.rt, self.others()).await
    }

    /// Looks how much room there is.
    pub async fn look(&self) -> std::io::Result<()> {
        self.reserve.look(&self.rt, self.others()).await
    }

    /// Waits until the engine can take more. If it is not known how much space there is, it has to be at rest: then that is tried.
    pub async fn wait_for_engine(&self, engine: &dyn Engine) -> Result<(), StoreError> {
        while (engine.is_behind()? || self.reserve.is_denied() && engine.is_busy()) && !self.is_poisoned() {
            self.rt.sleep(BEHIND_WAIT).await;
        }
        Ok(())
    }

    /// Bytes that objects leave to log, engine and reserve.
    pub fn kept_from_objects(&self) -> u64 {
        let Limits { left_by_objects, log_bytes_max, .. } = self.limits;
        let log_left = log_bytes_max.saturating_sub(self.log_bytes.load(Ordering::Relaxed));
        // Of a large disk the log takes that much only under load, and objects are given space in small parts.
        left_by_objects + log_left.min(left_by_objects / 4)
    }

    /// Shows `visit` the keys in `[from, until)` that the engine has, as they were at one moment, until it has enough.
    pub fn scan_applied(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        self.check()?;
        self.view.engine()?.scan(from, until, visit)
    }

    fn others(&self) -> Others {
        // An engine that is closed writes nothing.
        let is_busy = self.view.engine().is_ok_and(|engine| engine.is_busy());
        if is_busy { Others::Write } else { Others::Rest }
    }

    /// Whether it is being closed, or given up.
    pub fn is_ending(&self) -> bool {
        self.is_poisoned() || self.tail.lock().closing
    }

    /// Waits until it is sure that nobody else had the target until now.
    pub async fn confirmed(&self) -> Result<(), StoreError> {
        match &self.right {
            Some(right) if !right.confirmed().await => Err(StoreError::NotOwner),
            _ => Ok(()),
        }
    }

    /// Nothing is accepted from now on; everybody who waits gets an error.
    pub fn poison(&self, error: &StoreError) {
        match error {
            StoreError::NotOwner => tracing::warn!("the target has another owner and is given up"),
            error => tracing::error!(%error, "the store failed; the target has to be restarted"),
        }
        self.poisoned.store(true, Ordering::SeqCst);
        self.failure.notify_waiters();
        self.waiters.lock().by_transno.clear();
        self.room.notify_waiters();
        self.commit_wake.notify_one();
        self.apply_wake.notify_one();
        self.merge_wake.notify_one();
    }

    /// Waits until nothing is accepted any more.
    pub async fn failed(&self) {
        loop {
            let mut failure = std::pin::pin!(self.failure.notified());
            failure.as_mut().enable();
            if self.is_poisoned() {
                return;
            }
            failure.await;
        }
    }

    pub fn last_committed(&self) -> u64 {
        self.last_committed.load(Ordering::Acquire)
    }

    /// Everything up to `last` is durable.
    pub fn announce(&self, last: u64) {
        let mut waiters = self.waiters.lock();
        self.last_committed.store(last, Ordering::Release);
        let later = waiters.by_transno.split_off(&(last + 1, 0));
        let done = std::mem::replace(&mut waiters.by_transno, later);
        drop(waiters);
        for sender in done.into_values() {
            // Who waited may have gone.
            let _ = sender.send(());
        }
        self.room.notify_waiters();
    }

    /// A receiver that is told when `transno` is durable; `None` if it is already.
    pub fn wait_for(&self, transno: u64) -> Result<Option<oneshot::Receiver<()>>, StoreError> {
        let mut waiters = self.waiters.lock();
        self.check()?;
        if transno <= self.last_committed() {
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        waiters.next += 1;
        let key = (transno, waiters.next);
        waiters.by_transno.insert(key, sender);
        Ok(Some(receiver))
    }

    /// Hands durable records to the engine's task, and the files that it syncs first.
    pub fn enqueue(&self, appended: Appended, behind: Vec<File>) {
        let bytes: u64 = appended.records.iter().map(record_bytes).sum();
        let total = self.unapplied.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut backlog = self.backlog.lock();
        backlog.records.extend(appended.records);
        backlog.segments.extend(appended.closed);
        add_each_once(&mut backlog.behind, behind);
        // They are open.
        let is_much = backlog.behind.len() >= BEHIND_FILES_MAX;
        backlog.flush |= is_much;
        drop(backlog);
        if is_much || total >= self.view.limits().apply_after_bytes {
            self.apply_wake.notify_one();
        }
    }

    /// Has the engine's task apply what there is.
    pub fn flush(&self) {
        self.backlog.lock().flush = true;
        self.apply_wake.notify_one();
    }
}

/// Bytes that a record counts for while it waits for the engine.
pub(crate) fn record_bytes(record: &Record) -> u64 {
    stride(record.header.body_bytes as usize) as u64
}
