//! Files that are made ahead of the MDT (FEATURES X14, `docs/locks.md#alone`).
//!
//! A client that has a directory to itself knows what the MDT will answer when it makes a file there: it tells the application at once,
//! and asks the MDT behind, many in one frame. What it has told is a *promise*. Every other question to the MDT about the directory or
//! the file waits until the promise is answered ([`crate::targets::Pending`]), so they never pass each other.

mod dirs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proto::limits::{ALONE_MAX, BATCH_MAX};
use proto::types::{MODE_KIND, MODE_PERMISSIONS, MODE_SETGID};
use proto::wire::messages::{
    BitLock, CancelBits, Create, Created, Entry, Foretold, Granted, LOCK_ALL, LOCK_ALONE, LOCK_OPEN,
    OPEN_EXCLUSIVE, OPEN_RANGE, OPEN_WRITE, RestateAlone, RevokeBits,
};
use proto::{Attr, Code, Fid, JobId, Layout, Name, TargetId, Timestamp};
use rpc::job::{self, OfJob};
use rpc::{Answered, Restate};
use rt::Rt;
use rt::wait::join_all;

use super::cache::{Asked, MetadataCache};
use super::fids::Fids;
use crate::data::{Data, FileRef, FileState};
use crate::order::{AHEAD, Mutex};
use crate::targets::{Pending, Targets};
use crate::{Caller, Error, Forget, OpenFlags};
use dirs::{Dirs, Own};

/// Promises that are not on their way yet.
const WAITING_MAX: usize = 1024;
/// So many of them are opened up at the same time.
const OPENED_UP_AT_ONCE: usize = 64;
/// How long a promise may wait for others to travel with.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// An MDT that has less space than this for the client is asked first: it might refuse (bytes).
const ROOM_MIN: u64 = 16 << 20;
/// The owner's right to write to a directory and to search it.
const MODE_CHANGE: u32 = 0o300;
/// What a umask takes away.
const MODE_ACCESS: u32 = 0o777;
/// What the answer to a create lets a client keep, unless the MDT has granted too much.
const FORETOLD: u32 = LOCK_ALL & !LOCK_OPEN;

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

/// A file that an application has made, and the MDT has not.
struct Promise {
    create: Create,
    caller: Caller,
    job: JobId,
    /// Learns of it if the MDT does not make the file.
    file: FileRef,
}

/// A file that is to be made.
pub(crate) struct New<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) parent: Fid,
    pub(crate) name: &'a Name,
    /// With the kind's bits.
    pub(crate) mode: u32,
    /// `OPEN_*` bits.
    pub(crate) open: u32,
    pub(crate) time: Timestamp,
}

/// What the MDT will say of a new file.
pub(crate) struct Made {
    pub(crate) attr: Attr,
    pub(crate) layout: Layout,
    pub(crate) handle: u64,
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
            ahead.leaving(state.dirs.add(fid, spread).into_iter().collect())
        };
        ahead.give_back(leaves);
    }
}

impl State {
    /// A promise in `dir` is answered.
    fn answered(&mut self, dir: Fid) {
        let Some(count) = self.unanswered.get_mut(&dir) else { return };
        *count -= 1;
        if *count == 0 {
            self.unanswered.remove(&dir);
        }
    }
}

impl Ahead {
    /// Nothing is made ahead until somebody switches it on.
    pub(super) fn new(meta: Arc<MetadataCache>, data: Arc<Data>, fids: Arc<Fids>) -> Ahead {
        Ahead {
            rt: data.rt.clone(),
            targets: data.targets.clone(),
            meta,
            data,
            fids,
            is_on: AtomicBool::new(false),
            state: Mutex::default(),
            forgetting: Pending::default(),
            kept: AtomicU64::new(0),
            broken: AtomicU64::new(0),
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

    /// A directory is being made in `parent`; `None` if it is of no use to have it alone: an MDT of the same process answers at once.
    pub(super) fn making(self: &Arc<Self>, parent: Fid) -> Option<Making<'_>> {
        let is_near = || self.targets.mdt_of(parent).is_ok_and(|mdt| mdt.is_in_process());
        if !self.is_on() || is_near() {
            return None;
        }
        self.state.lock().making += 1;
        Some(Making(self))
    }

    /// Makes a regular file, and has the MDT make it later; `None` if it has to be asked first.
    pub(crate) fn create(self: &Arc<Self>, new: &New<'_>) -> Option<Made> {
        if !self.is_on() {
            return None;
        }
        let mdt = self.targets.mdt_of(new.parent).ok()?;
        if mdt.room().is_some_and(|room| room < ROOM_MIN) {
            return None;
        }
        let mut state = self.state.lock();
        let own = state.dirs.get(new.parent).filter(|_| state.waiting.len() < WAITING_MAX)?;
        if !self.meta.may_foretell(new.parent, new.name, |dir| may_make(new.caller, dir)) {
            return None;
        }
        let fid = self.fids.at_hand(mdt.session())?;
        let layout = own.spread.layout_of(fid).filter(|layout| self.are_usable(layout))?;
        if !self.targets.pending.begin(&[new.parent, fid]) {
            return None;
        }
        // Looked at after the other one can see this: of two that concern one name, one waits for the other.
        let Some(dir) = self.meta.unchanging_dir(new.parent) else {
            self.targets.pending.end(&[new.parent, fid]);
            return None;
        };
        let made = foretell(new, &dir, fid, layout);
        let lock = Granted { bits: FORETOLD, number: 0 };
        let entry = Entry { attr: made.attr.clone(), layout: Some(made.layout.clone()), xattrs: false, lock };
        self.meta.learn_promise(new.parent, new.name, new.time, &entry);
        let file = self.data.files.get(fid);
        if new.open & OPEN_WRITE != 0 {
            file.inner.lock().is_unknown = true;
            let leaves = state.dirs.add_file(new.parent, fid).into_iter().collect();
            self.give_back(self.leaving(leaves));
        }
        *state.unanswered.entry(new.parent).or_default() += 1;
        state.waiting.push_back(promise(new, &made, file));
        if !std::mem::replace(&mut state.is_sending, true) {
            let ahead = self.clone();
            self.rt.spawn(async move { ahead.send().await });
        }
        Some(made)
    }

    /// The only handle of a file ends through which it could be written, and nothing was: if the MDT was not asked for the file yet, it is
    /// asked for one that is not open. Whether that is all.
    pub(crate) fn closed(&self, file: &FileState, flags: OpenFlags) -> bool {
        if !flags.write || self.targets.pending.count() == 0 {
            return false;
        }
        let mut state = self.state.lock();
        // Mostly it is the newest.
        let Some(promise) = state.waiting.iter_mut().rev().find(|promise| promise.create.fid == file.fid)
        else {
            return false;
        };
        if !file.ends_untouched(flags) {
            return false;
        }
        promise.create.open = OPEN_EXCLUSIVE;
        let dir = promise.create.parent;
        state.dirs.remove_file_of(dir, file.fid);
        file.inner.lock().is_unknown = false;
        self.meta.promise_closed(file.fid);
        true
    }

    /// Whether every OST of a layout may be used.
    fn are_usable(&self, layout: &Layout) -> bool {
        layout.osts().map(|ost| TargetId::ost(ost.0)).all(|id| {
            let config = self.targets.config();
            self.targets.is_active(id) && config.target(id).is_some() && !config.is_removed(id)
        })
    }

    /// Has the MDT make what was promised, until nothing is left.
    async fn send(self: Arc<Self>) {
        loop {
            let begun = self.rt.now();
            let due: Vec<Promise> = loop {
                let waited = self.rt.now() - begun;
                let left = GATHER_TIME.saturating_sub(waited);
                {
                    let mut state = self.state.lock();
                    let count = state.waiting.len();
                    if count == 0 {
                        state.is_sending = false;
                        return;
                    }
                    let is_due = count >= BATCH_MAX || left.is_zero() || self.targets.pending.is_waited_for();
                    if is_due {
                        break state.waiting.drain(..count.min(BATCH_MAX)).collect();
                    }
                }
                let _ = self.rt.timeout(left, self.targets.pending.hurried()).await;
            };
            let sending = due.into_iter().map(|promise| self.ask_for(promise)).collect();
            self.targets.hub().together(sending).await;
        }
    }

    async fn ask_for(self: &Arc<Self>, promise: Promise) {
        let Promise { create, caller, job, file } = promise;
        let asked = self.meta.inodes.ask();
        let answer = {
            let asking =
                self.targets.ask_ahead(create.parent, &caller, |cred| Create { cred, ..create.clone() });
            OfJob::new(job, pin!(asking)).await
        };
        match answer {
            Ok(answered) if !answered.reply.existed => self.is_kept(&asked, &create, answered),
            Ok(_) => self.is_broken(&create, &file, Error::Refused(Code::Exists)),
            Err(error) => self.is_broken(&create, &file, error),
        }
        let is_gone = file.inner.lock().gone;
        drop((asked, file));
        if is_gone {
            self.data.forget_dead(create.fid);
        }
        self.state.lock().answered(create.parent);
        self.targets.pending.end(&[create.parent, create.fid]);
    }

    /// The MDT has made the file.
    fn is_kept(self: &Arc<Self>, asked: &Asked<'_>, create: &Create, answered: Answered<Created>) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        let Answered { reply: made, transno, .. } = answered;
        self.meta.changes.changed(create.fid, transno);
        let (lock, spread) = (made.lock, made.spread);
        let entry = Entry { attr: made.attr, layout: made.layout, xattrs: made.xattrs, lock };
        let as_told = self.meta.promise_kept(asked, create.parent, transno, &entry);
        if let Some(spread) = spread {
            self.state.lock().dirs.set_spread(create.parent, spread);
        }
        let lacking = FORETOLD & !lock.bits;
        if lacking == 0 && as_told {
            return;
        }
        // Whoever is to see the directory waits for this, and nobody who may hold the kernel's lock of it.
        let (ahead, parent, fid) = (self.clone(), create.parent, create.fid);
        self.forgetting.add(&[parent]);
        self.rt.spawn(async move {
            ahead.meta.revoke_bits(RevokeBits { fid, bits: lacking, number: 0 }).await;
            if !as_told {
                ahead.meta.copies.forget(vec![Forget::Attributes(fid)]).await;
            }
            ahead.forgetting.end(&[parent]);
        });
    }

    /// The MDT has not made a file that an application has: its handles say so, and the name is gone.
    fn is_broken(self: &Arc<Self>, create: &Create, file: &FileRef, error: Error) {
        self.broken.fetch_add(1, Ordering::Relaxed);
        let (parent, fid) = (create.parent, create.fid);
        if error != Error::Closed {
            tracing::error!(%parent, name = ?create.name, %fid, %error, "a file that was made ahead of the MDT is lost");
        }
        self.meta.promise_broken(parent, &create.name, fid);
        {
            let mut inner = file.inner.lock();
            inner.fail(failure_of(error));
            inner.gone = true;
        }
        let ahead = self.clone();
        self.rt.spawn(async move {
            let forget = vec![Forget::NamesOf(fid), Forget::Attributes(fid), Forget::Attributes(parent)];
            ahead.meta.copies.forget(forget).await;
        });
    }

    /// The MDT wants a directory back: another client is about to look at it. Done when it knows of everything in it.
    pub(crate) async fn give_up(&self, dir: Fid) {
        let own = {
            let mut state = self.state.lock();
            if state.making > 0 {
                state.recalled.insert(dir);
            }
            state.dirs.remove(dir)
        };
        self.targets.pending.settled(dir).await;
        self.open_up(own.map(|(_, own)| own.files).unwrap_or_default()).await;
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
        self.state.lock().dirs.remove_file(file);
        // Its directory may be on its way back: then it is in none.
        self.open_up(BTreeSet::from([file])).await;
    }

    /// The last name of a file in `dir` is gone.
    pub(super) fn unlinked(&self, dir: Fid, file: Fid) {
        self.state.lock().dirs.remove_file_of(dir, file);
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
        let dirs: BTreeMap<Fid, Own> = {
            let mut state = self.state.lock();
            let mut dirs = state.dirs.take();
            for dir in state.unanswered.keys() {
                dirs.entry(*dir).or_insert_with(Own::given_up);
            }
            self.forgetting.add(&dirs.keys().copied().collect::<Vec<Fid>>());
            dirs
        };
        let fids: Vec<Fid> = dirs.keys().copied().collect();
        for some in fids.chunks(ALONE_MAX) {
            if let Err(error) = restate.call(RestateAlone { dirs: some.to_vec() }).await {
                tracing::error!(%error, "the restarted MDT does not keep others out of directories with new files");
            }
        }
        self.give_back(dirs.into_iter().collect());
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

/// What the handles of a file say that the MDT has not made: its reason means nothing to them, but for want of room.
fn failure_of(error: Error) -> Error {
    match error {
        Error::Refused(Code::NoSpace | Code::Quota) | Error::Closed => error,
        _ => Error::Refused(Code::Evicted),
    }
}

/// Whether the caller certainly may make a file in a directory, and what the file gets follows from that alone: its owner makes it, and
/// nothing is handed on but a project.
fn may_make(caller: &Caller, dir: &Entry) -> bool {
    let Attr { mode, uid, nlink, .. } = dir.attr;
    let may = caller.uid == 0 || mode & MODE_CHANGE == MODE_CHANGE;
    caller.uid == uid && may && nlink != 0 && !dir.xattrs && mode & MODE_SETGID == 0
}

/// What the MDT will say of a file.
fn foretell(new: &New<'_>, dir: &Attr, fid: Fid, layout: Layout) -> Made {
    let attr = Attr {
        fid,
        mode: new.mode & (MODE_KIND | MODE_PERMISSIONS) & !(new.caller.umask & MODE_ACCESS),
        nlink: 1,
        uid: new.caller.uid,
        gid: new.caller.gid,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: new.time,
        mtime: new.time,
        ctime: new.time,
        btime: new.time,
        size_known: new.open & OPEN_WRITE == 0,
        version: 0,
        mtime_set: new.time,
        project: if dir.inherits { dir.project } else { 0 },
        inherits: false,
    };
    Made { attr, layout, handle: Foretold::handle_of(fid) }
}

fn promise(new: &New<'_>, made: &Made, file: FileRef) -> Promise {
    let create = Create {
        parent: new.parent,
        name: new.name.clone(),
        fid: made.attr.fid,
        mode: new.mode,
        rdev: 0,
        target: Bytes::new(),
        open: new.open & !OPEN_RANGE,
        hint: None,
        cred: proto::Cred::default(),
        time: new.time,
        umask: new.caller.umask,
        foretold: Some(Box::new(Foretold { handle: made.handle, layout: Some(made.layout.clone()) })),
    };
    Promise { create, caller: Caller { gives_way: false, ..new.caller.clone() }, job: job::current(), file }
}
