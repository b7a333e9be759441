//! Files that are made ahead of the MDT (FEATURES X14, `docs/locks.md#alone`).
//!
//! A client that has a directory to itself knows what the MDT will answer when it makes a file there, or changes its attributes: it tells
//! the application at once ([`tell`]), and asks the MDT behind, many in one request, in the order in which they were told ([`send`]). What it has told
//! is a *promise*. Every other question to the MDT about the directory or the file waits until the promise is answered
//! ([`crate::targets::Pending`]), so they never pass each other.

mod dirs;
mod foretell;
mod send;
mod tell;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use proto::limits::ALONE_STATED_MAX;
use proto::wire::messages::{self as msg, BitLock, CancelBits, Created, LOCK_ALONE, RestateAlone};
use proto::{Fid, JobId};
use rpc::Restate;
use rt::Rt;
use rt::wait::join_all;
use smallvec::SmallVec;

use super::cache::{MetadataCache, Untold};
use super::fids::Fids;
use crate::data::{Data, FileRef};
use crate::losses::Losses;
use crate::order::{AHEAD, Mutex};
use crate::targets::{Pending, Targets};
use dirs::{Dirs, Own};
pub(crate) use foretell::New;
pub(crate) use tell::Made;

/// So many files are opened up at the same time.
const OPENED_UP_AT_ONCE: usize = 64;

/// Makes files ahead of the MDT.
pub(crate) struct Ahead {
    rt: Rt,
    targets: Arc<Targets>,
    meta: Arc<MetadataCache>,
    data: Arc<Data>,
    fids: Arc<Fids>,
    is_on: AtomicBool,
    state: Mutex<AHEAD, State>,
    /// Directories of whose files the kernel is forgetting something, or that are being given back: others are not let in before that is done.
    forgetting: Pending,
    kept: AtomicU64,
    broken: AtomicU64,
    /// How many promises the MDT takes in one request; 0 if it has said nothing.
    most: AtomicUsize,
    /// What was told and the MDT has not done.
    pub(crate) losses: Losses,
}

#[derive(Default)]
struct State {
    /// Directories that this client has to itself.
    dirs: Dirs,
    /// Directories with promises that are not answered, and how many.
    unanswered: BTreeMap<Fid, usize>,
    waiting: VecDeque<Promise>,
    is_sending: bool,
    /// Directories that are being made.
    making: usize,
    /// Those that were called back meanwhile: the answer that grants one may come later.
    recalled: BTreeSet<Fid>,
}

/// What an application was told of, and the MDT has not done.
struct Promise {
    promise: msg::Promise,
    /// The directories and files that it concerns.
    fids: SmallVec<[Fid; 2]>,
    /// Those of them that others must not see before it is answered.
    dirs: SmallVec<[Fid; 2]>,
    job: JobId,
    /// The session with the MDT in which it was told. In the next one it is not done: others may have had the directory in between.
    era: u64,
    /// Learns of it if the MDT does not do it.
    file: Option<FileRef>,
}

/// How often something was told ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Promises that the MDT has kept.
    pub(crate) kept: u64,
    /// Promises that it has not.
    pub(crate) broken: u64,
    /// Files and directories with promises that are not answered.
    pub(crate) pending: usize,
    /// Directories that this client has to itself.
    pub(crate) dirs: usize,
}

/// A directory is being made, which the client may get to itself.
pub(crate) struct Making<'a>(&'a Arc<Ahead>);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.making -= 1;
        if state.making == 0 {
            state.recalled.clear();
        }
    }
}

impl Making<'_> {
    /// The answer: the client has the directory to itself, unless it was called back already.
    pub(crate) fn made(self, made: &Created) {
        let Some(spread) = made.spread.clone().filter(|_| made.lock.bits & LOCK_ALONE != 0) else { return };
        let (ahead, fid) = (self.0, made.attr.fid);
        let leaves = {
            let mut state = ahead.state.lock();
            if state.recalled.contains(&fid) {
                return;
            }
            ahead.leaving(state.dirs.add(fid, Arc::new(spread)).into_iter().collect())
        };
        ahead.give_back(leaves);
    }
}

impl State {
    /// One more promise.
    fn told(&mut self, promise: Promise) {
        for dir in &promise.dirs {
            *self.unanswered.entry(*dir).or_default() += 1;
        }
        self.waiting.push_back(promise);
    }

    /// A promise about these directories is answered.
    fn answered(&mut self, dirs: &[Fid]) {
        for dir in dirs {
            let Some(count) = self.unanswered.get_mut(dir) else { continue };
            *count -= 1;
            if *count == 0 {
                self.unanswered.remove(dir);
            }
        }
    }
}

impl Ahead {
    /// Files are made ahead until somebody switches it off.
    pub(super) fn new(meta: Arc<MetadataCache>, data: Arc<Data>, fids: Arc<Fids>) -> Ahead {
        Ahead {
            rt: data.rt.clone(),
            targets: data.targets.clone(),
            meta,
            data,
            fids,
            is_on: AtomicBool::new(true),
            state: Mutex::default(),
            forgetting: Pending::default(),
            kept: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            most: AtomicUsize::new(0),
            losses: Losses::default(),
        }
    }

    /// Whether files are made ahead.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// From now on files are made ahead, or are not. What was told stays told.
    pub(crate) fn set(self: &Arc<Self>, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            let dirs = self.take_all();
            self.give_back(dirs);
        }
    }

    /// How often something was told ahead.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            kept: self.kept.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            pending: self.targets.pending.count(),
            dirs: self.state.lock().dirs.len(),
        }
    }

    /// A directory is being made; `None` if files are not made ahead.
    pub(super) fn making(self: &Arc<Self>) -> Option<Making<'_>> {
        if !self.is_on() {
            return None;
        }
        self.state.lock().making += 1;
        Some(Making(self))
    }

    /// The MDT wants a directory back: another client is about to look at it. Done when it knows of everything in it.
    pub(crate) async fn give_up(&self, dir: Fid) {
        let own = {
            let mut state = self.state.lock();
            if state.making > 0 {
                state.recalled.insert(dir);
            }
            self.leaving(state.dirs.remove(dir).into_iter().collect())
        };
        self.targets.pending.settled(dir).await;
        self.meta.opens.state_opens(Untold::Bare).await;
        for (dir, own) in own {
            self.open_up(own.files).await;
            self.forgetting.end(&[dir]);
        }
        self.forgetting.settled(dir).await;
    }

    /// Files in this directory are not made ahead any more.
    pub(super) fn leave(self: &Arc<Self>, dir: Fid) {
        let own = self.take(dir);
        self.give_back(own);
    }

    /// The same, done when others may know of each file in it.
    pub(super) async fn leave_now(self: &Arc<Self>, dir: Fid) {
        let own = self.take(dir);
        self.clone().give_back_now(own).await;
        self.forgetting.settled(dir).await;
    }

    /// The same of every directory.
    pub(crate) async fn leave_all(self: &Arc<Self>) {
        let dirs = self.take_all();
        self.clone().give_back_now(dirs).await;
    }

    /// Another client may know of this file from now on, by another way than its directory.
    pub(crate) async fn share(&self, file: Fid) {
        self.targets.pending.settled(file).await;
        self.meta.opens.state_opens(Untold::Bare).await;
        {
            let mut state = self.state.lock();
            state.dirs.remove_file(file);
            state.dirs.unmake(file);
        }
        // Its directory may be on its way back: then it is in none.
        self.open_up(BTreeSet::from([file])).await;
    }

    /// The last name of a file in `dir` is gone.
    pub(super) fn unlinked(&self, dir: Fid, file: Fid) {
        let mut state = self.state.lock();
        state.dirs.remove_file_of(dir, file);
        state.dirs.unmake(file);
    }

    /// Others may know of these files from now on.
    async fn open_up(&self, files: BTreeSet<Fid>) {
        let mut files = files.into_iter();
        loop {
            let some: Vec<Fid> = files.by_ref().take(OPENED_UP_AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            some.iter().for_each(|file| self.is_known(*file));
            let opening = some.iter().map(|file| self.data.locks.open_up(*file)).collect();
            self.targets.hub().together(opening).await;
        }
    }

    fn is_known(&self, file: Fid) {
        if let Some(file) = self.data.files.find(file) {
            file.inner.lock().is_unknown = false;
        }
    }

    /// The directory is no more.
    pub(super) fn removed(&self, dir: Fid) {
        self.state.lock().dirs.remove(dir);
    }

    /// The MDT has ended the session: nobody has anything to itself.
    pub(crate) fn lost(&self) {
        let dirs = self.state.lock().dirs.take();
        dirs.into_values().flat_map(|own| own.files).for_each(|file| self.is_known(file));
        // Those of directories that are on their way back, too.
        self.data.locks.lose_all_unknown(|file| self.is_known(file));
    }

    /// The MDT has restarted: it is told which directories others must not see yet, before it serves anybody else. They are given
    /// back.
    pub(crate) async fn restate(self: &Arc<Self>, restate: &Restate) {
        let (dirs, fids) = {
            let mut state = self.state.lock();
            let mut dirs = state.dirs.take();
            for dir in state.unanswered.keys() {
                dirs.entry(*dir).or_insert_with(Own::given_up);
            }
            self.forgetting.add(&dirs.keys().copied().collect::<Vec<Fid>>());
            // With those that are on their way back since an earlier restart.
            (dirs, self.forgetting.all())
        };
        // First of all: if the MDT restarts again this is not carried on.
        self.give_back(dirs.into_iter().collect());
        for some in fids.chunks(ALONE_STATED_MAX) {
            if let Err(error) = restate.call(RestateAlone { dirs: some.to_vec() }).await {
                tracing::error!(%error, "the restarted MDT does not keep others out of directories with new files");
            }
        }
    }

    /// Others are not let into these directories before they are given back. Called under the lock under which they are taken out.
    fn leaving(&self, dirs: Vec<(Fid, Own)>) -> Vec<(Fid, Own)> {
        dirs.iter().for_each(|(dir, _)| self.forgetting.add(&[*dir]));
        dirs
    }

    fn take(&self, dir: Fid) -> Vec<(Fid, Own)> {
        let mut state = self.state.lock();
        self.leaving(state.dirs.remove(dir).into_iter().collect())
    }

    fn take_all(&self) -> Vec<(Fid, Own)> {
        let mut state = self.state.lock();
        self.leaving(state.dirs.take().into_iter().collect())
    }

    /// Gives directories back that nobody has asked for, once the MDT knows of everything in them.
    fn give_back(self: &Arc<Self>, dirs: Vec<(Fid, Own)>) {
        if !dirs.is_empty() {
            let ahead = self.clone();
            self.rt.spawn(async move { ahead.give_back_now(dirs).await });
        }
    }

    async fn give_back_now(self: Arc<Self>, dirs: Vec<(Fid, Own)>) {
        join_all(dirs.iter().map(|(dir, _)| self.targets.pending.settled(*dir))).await;
        self.meta.opens.state_opens(Untold::Bare).await;
        let mut locks = Vec::with_capacity(dirs.len());
        for (fid, own) in dirs {
            self.open_up(own.files).await;
            self.forgetting.end(&[fid]);
            locks.push(BitLock { fid, bits: LOCK_ALONE, number: u64::MAX });
        }
        for (mdt, locks) in self.targets.by_mdt(locks, |lock| lock.fid) {
            if let Err(error) = mdt.call(CancelBits { locks }).await {
                tracing::debug!(%error, "the MDT did not take a directory back");
            }
        }
    }

    /// Waits until the MDT has answered everything that was told ahead of it.
    pub(crate) async fn all_settled(&self) {
        self.targets.pending.all_settled().await;
    }
}
