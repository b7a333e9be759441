//! What an application is told before the MDT has done it.

use std::sync::Arc;

use proto::limits::PROMISES_MAX;
use proto::wire::messages::{
    self as msg, Entry, Granted, LOCK_ALL, LOCK_OPEN, OPEN_EXCLUSIVE, OPEN_WRITE, Remove, SetAttr, Unlink,
};
use proto::{Attr, Fid, FileKind, Layout, Name, TargetId, Timestamp};
use rpc::job;
use smallvec::{SmallVec, smallvec};

use super::foretell::{self, New};
use super::{Ahead, Promise, State};
use crate::data::FileState;
use crate::names::cache::Known;
use crate::{Caller, OpenFlags};

/// Promises that are not on their way yet.
const WAITING_MAX: usize = 16 * PROMISES_MAX;
/// An MDT that has less space than this for the client is asked first: it might refuse (bytes).
const ROOM_MIN: u64 = 16 << 20;
/// Objects of a file whose name goes ahead, at most.
const OBJECTS_FEW: usize = 64;
/// What the answer to a create lets a client keep, unless the MDT has granted too much.
pub(super) const FORETOLD: u32 = LOCK_ALL & !LOCK_OPEN;

/// What the MDT will say of a new file.
pub(crate) struct Made {
    pub(crate) attr: Attr,
    /// Of a regular file.
    pub(crate) layout: Option<Layout>,
    pub(crate) handle: u64,
}

/// Nothing is made, and that is done.
fn none_and<T>(done: impl FnOnce()) -> Option<T> {
    done();
    None
}

impl Ahead {
    /// Makes a file, a directory or a symbolic link, and has the MDT make it later; `None` if it has to be asked first.
    pub(crate) fn create(self: &Arc<Self>, new: &New<'_>) -> Option<Made> {
        if !self.is_on() {
            return None;
        }
        let kind = new.kind()?;
        let mdt = self.targets.mdt_of(new.parent).ok()?;
        if mdt.room().is_some_and(|room| room < ROOM_MIN) {
            return None;
        }
        let mut state = self.state.lock();
        let own = state.dirs.get(new.parent).filter(|_| state.waiting.len() < WAITING_MAX)?;
        if !self.meta.promises.may_foretell(new.parent, new.name, |dir| new.is_certain_in(dir)) {
            return None;
        }
        let (spread, session) = (own.spread.clone(), mdt.session());
        let fid = self.fids.at_hand(session)?;
        let unused = || self.fids.give_back(fid, session);
        let layout = match kind {
            FileKind::File => match spread.layout_of(fid).filter(|layout| self.are_usable(layout)) {
                Some(layout) => Some(layout),
                None => return none_and(unused),
            },
            _ => None,
        };
        if !self.targets.pending.begin(&[new.parent, fid]) {
            return none_and(unused);
        }
        // Looked at after the other one can see this: of two that concern one name, one waits for the other.
        let Some(dir) = self.meta.promises.unchanging_dir(new.parent) else {
            self.targets.pending.end(&[new.parent, fid]);
            return none_and(unused);
        };
        let attr = new.foretell(kind, &dir, fid);
        let lock = Granted { bits: FORETOLD, number: 0 };
        let entry = Entry { attr: attr.clone(), layout: layout.clone(), xattrs: false, lock };
        self.meta.promises.learn_promise(new.parent, new.name, new.time, &entry, new.target);
        let file = (kind == FileKind::File).then(|| self.data.files.get(fid));
        if let Some(file) = file.as_ref().filter(|_| new.open & OPEN_WRITE != 0) {
            file.inner.lock().is_unknown = true;
            let leaves = state.dirs.add_file(new.parent, fid).into_iter().collect();
            self.give_back(self.leaving(leaves));
        }
        let mut dirs: SmallVec<[Fid; 2]> = smallvec![new.parent];
        match kind {
            FileKind::Dir => {
                dirs.push(fid);
                let leaves = state.dirs.add(fid, spread).into_iter().collect();
                self.give_back(self.leaving(leaves));
            }
            _ => state.dirs.made(fid, new.parent),
        }
        let create = new.request(fid, layout.as_ref());
        let handle = create.foretold.as_ref().map_or(0, |foretold| foretold.handle);
        let promise = msg::Promise { create: Some(create), ..msg::Promise::default() };
        let fids = smallvec![new.parent, fid];
        let (job, era) = (job::current(), self.era_of(new.parent));
        self.told(&mut state, Promise { promise, fids, dirs, job, era, file });
        Some(Made { attr, layout, handle })
    }

    /// Changes attributes of a file or directory that nobody else can see, and has the MDT change them later; `None` if it has to be asked
    /// first. Gives the file as the MDT will know it.
    pub(crate) fn set_attr(self: &Arc<Self>, caller: &Caller, set: &SetAttr) -> Option<Entry> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        let fid = set.fid;
        let dir = match state.dirs.get(fid) {
            Some(_) => fid,
            None => state.dirs.dir_of(fid)?,
        };
        let gives_away = set.uid.is_some() || set.gid.is_some();
        if state.waiting.len() >= WAITING_MAX || gives_away && !self.has_few_objects(fid) {
            return None;
        }
        let set = SetAttr { cred: foretell::cred_of(caller), ..set.clone() };
        let fids: SmallVec<[Fid; 2]> = if dir == fid { smallvec![fid] } else { smallvec![dir, fid] };
        if !self.targets.pending.begin(&fids) {
            return None;
        }
        let Some(entry) = self.meta.promises.change_ahead(fid, |entry| foretell::changed(entry, &set)) else {
            self.targets.pending.end(&fids);
            return None;
        };
        let file = self.data.files.find(fid);
        let promise = msg::Promise { set_attr: Some(set), ..msg::Promise::default() };
        let (job, era) = (job::current(), self.era_of(fid));
        self.told(&mut state, Promise { promise, fids, dirs: smallvec![dir], job, era, file });
        Some(entry)
    }

    /// Each object of a file has to be told what becomes of it: the MDT writes much for many.
    fn has_few_objects(&self, fid: Fid) -> bool {
        self.meta.kept.entry(fid).is_some_and(|entry| are_few(&entry))
    }

    /// Takes the only name of a file away of which nobody else can know, or of an empty directory, and has the MDT take it later; `None` if it has
    /// to be asked first. Gives what the name meant, as it was.
    pub(crate) fn remove(
        self: &Arc<Self>,
        caller: &Caller,
        parent: Fid,
        name: &Name,
        directory: bool,
        time: Timestamp,
    ) -> Option<Arc<Entry>> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        state.dirs.get(parent).filter(|_| state.waiting.len() < WAITING_MAX)?;
        let Known::File(fid) = self.meta.kept.name(caller, parent, name) else { return None };
        let is_ours = match directory {
            true => state.dirs.get(fid).is_some() && self.meta.promises.is_empty_dir(fid),
            false => state.dirs.dir_of(fid) == Some(parent),
        };
        // One of many attributes or objects is asked for apart: the MDT has much to write for it.
        let is_small = |entry: &Entry| !entry.xattrs && are_few(entry);
        let known = self.meta.kept.entry(fid).filter(|entry| is_ours && is_small(entry))?;
        if !self.meta.promises.may_remove_ahead(parent, |dir| foretell::may_change(caller, dir)) {
            return None;
        }
        let _leaving = self.meta.opens.leaving_ahead(fid)?;
        if !self.targets.pending.begin(&[parent, fid]) {
            return None;
        }
        if self.meta.promises.is_changing(&[parent, fid]) {
            self.targets.pending.end(&[parent, fid]);
            return None;
        }
        self.meta.promises.promise_removed(parent, name, fid, (time, directory));
        state.dirs.unmake(fid);
        state.dirs.remove_file_of(parent, fid);
        state.dirs.remove(fid);
        let unlink = Unlink { parent, name: name.clone(), directory, cred: foretell::cred_of(caller), time };
        let promise = msg::Promise { remove: Some(Remove { unlink, fid }), ..msg::Promise::default() };
        let fids = smallvec![parent, fid];
        let (job, era) = (job::current(), self.era_of(parent));
        let told = Promise { promise, fids, dirs: smallvec![parent], job, era, file: None };
        self.told(&mut state, told);
        Some(known)
    }

    /// The session with the MDT of a file or directory. To be asked while the state is locked that says that the client has it to itself:
    /// that is lost before the session is another one.
    fn era_of(&self, fid: Fid) -> u64 {
        self.targets.mdt_of(fid).map_or(0, |mdt| mdt.era())
    }

    fn told(self: &Arc<Self>, state: &mut State, promise: Promise) {
        state.told(promise);
        self.targets.pending.told();
        if !std::mem::replace(&mut state.is_sending, true) {
            let ahead = self.clone();
            self.rt.spawn(async move { ahead.send().await });
        }
    }

    /// The only handle of a file ends through which it could be written, and nothing was: if the MDT was not asked for the file yet, it is
    /// asked for one that is not open. Whether that is all.
    pub(crate) fn closed(&self, file: &FileState, flags: OpenFlags) -> bool {
        if !flags.write || self.targets.pending.count() == 0 || !file.inner.lock().end.is_untouched() {
            return false;
        }
        let mut state = self.state.lock();
        // Mostly it is the newest.
        let mut creates = state.waiting.iter_mut().rev().filter_map(|told| told.promise.create.as_mut());
        let Some(create) = creates.find(|create| create.fid == file.fid) else { return false };
        if !file.ends_untouched(flags) {
            return false;
        }
        create.open = OPEN_EXCLUSIVE;
        let dir = create.parent;
        state.dirs.remove_file_of(dir, file.fid);
        file.inner.lock().is_unknown = false;
        self.meta.promises.promise_closed(file.fid);
        true
    }

    /// Whether every OST of a layout may be used.
    fn are_usable(&self, layout: &Layout) -> bool {
        layout.osts().map(|ost| TargetId::ost(ost.0)).all(|id| {
            let config = self.targets.config();
            self.targets.switches().is_active(id) && config.target(id).is_some() && !config.is_removed(id)
        })
    }
}

/// Whether a file has few objects.
fn are_few(entry: &Entry) -> bool {
    entry.layout.as_ref().map_or(0, |layout| layout.object_count()) <= OBJECTS_FEW
}
