//! Files that are open: at the MDT after their last close here, so that the next open to read costs no request, or without the MDT.
//!
//! The MDT permits the one with [`LOCK_OPEN`], and calls that back when the file's last name goes. The other is for what nobody
//! removes unseen ([`OwnOpens`]).

use std::sync::Arc;

use proto::wire::messages::{Close, Entry, FEATURE_STATED_OPENS, LOCK_OPEN, OpenHeld, StateOpens};
use proto::{Attr, Fid, FileKind, Transno};
use rt::wait::join_all;

use super::inode::{ATTR_BITS, Inode};
use super::own_opens::{Leaving, OwnOpens, Untold};
use super::{Answers, Inodes, Kept, OpenKept};
use crate::names::{Accesses, Changes, Ended};
use crate::targets::Targets;
use crate::{Caller, OpenFlags};

/// Permission to read and to execute, in each of the three classes.
const MODE_READ: u32 = 0o444;
const MODE_EXECUTE: u32 = 0o111;
/// The owner's part of them.
const MODE_OWNER: u32 = 0o700;
/// Most opens that one request states.
const STATED_AT_ONCE: usize = 8192;

/// Files that are open at the MDT for this client, or without it.
pub(crate) struct Opens {
    inodes: Arc<Inodes>,
    kept: Arc<Kept>,
    answers: Arc<Answers>,
    targets: Arc<Targets>,
    accesses: Arc<Accesses>,
    changes: Arc<Changes>,
    /// Files that are open without the MDT.
    pub(in crate::names) own: OwnOpens,
}

impl Opens {
    /// Nothing is open yet.
    pub(super) fn new(
        kept: Arc<Kept>,
        answers: Arc<Answers>,
        targets: Arc<Targets>,
        accesses: Arc<Accesses>,
        changes: Arc<Changes>,
    ) -> Opens {
        let inodes = kept.inodes.clone();
        Opens { inodes, kept, answers, targets, accesses, changes, own: OwnOpens::default() }
    }

    /// Opens a file that is open at the MDT anyway, if the caller certainly may: its entry, and the MDT's name for it.
    pub(crate) fn open_again(
        &self,
        caller: &Caller,
        fid: Fid,
        flags: OpenFlags,
    ) -> Option<(Arc<Entry>, u64)> {
        if flags.write || flags.truncate {
            return None;
        }
        let entry = self.kept.entry(fid)?;
        if !may_open(caller, &entry, flags) {
            return None;
        }
        let open = {
            let mut part = self.inodes.part(fid);
            let inode = part.inodes.get_mut(&fid)?;
            let usable = inode.has(LOCK_OPEN);
            let open = inode.open.as_mut().filter(|_| usable)?;
            open.users += 1;
            *open
        };
        Some((entry, open.handle))
    }

    /// Remembers that a file was opened to read, if the MDT lets it stay open.
    pub(crate) fn keep_open(&self, fid: Fid, handle: u64) {
        let mut part = self.inodes.part(fid);
        let Some(inode) = part.inodes.get_mut(&fid) else { return };
        if inode.has(LOCK_OPEN) && inode.open.is_none() {
            inode.open = Some(OpenKept { handle, users: 1 });
        }
    }

    /// A handle is not used any more. Whether the file stays open at the MDT: then there is nothing to tell. An access
    /// time that is due is told, with the close, by the last user.
    pub(crate) fn stays_open(&self, open: &Ended, atime_due: bool) -> bool {
        if open.flags.write {
            return false;
        }
        let mut part = self.inodes.part(open.fid);
        let Some(inode) = part.inodes.get_mut(&open.fid) else { return false };
        let usable = inode.has(LOCK_OPEN);
        let Some(kept) = inode.open.as_mut().filter(|kept| kept.handle == open.handle) else {
            return false;
        };
        kept.users = kept.users.saturating_sub(1);
        if kept.users > 0 {
            return true;
        }
        if !usable || atime_due {
            inode.open = None;
            return false;
        }
        true
    }

    /// Opens to read what the caller certainly may read, and nobody else can change, or remove, unseen: its entry, and the number of the
    /// open.
    pub(crate) fn open_own(&self, caller: &Caller, fid: Fid, flags: OpenFlags) -> Option<(Arc<Entry>, u64)> {
        if flags.write || flags.truncate || !self.states_opens(fid) {
            return None;
        }
        let is_either = |entry: &Arc<Entry>| matches!(entry.attr.kind(), FileKind::File | FileKind::Dir);
        let entry = self.kept.entry(fid).filter(is_either)?;
        if !may_open(caller, &entry, flags) || !self.kept.may_use(fid) {
            return None;
        }
        // Under this lock: whoever takes away what it is opened under looks at what is open afterwards.
        let part = self.inodes.part(fid);
        part.inodes.get(&fid).filter(|inode| inode.has(ATTR_BITS))?;
        Some((entry, self.own.open(fid)?))
    }

    fn states_opens(&self, fid: Fid) -> bool {
        self.targets.mdt_of(fid).is_ok_and(|mdt| mdt.features() & FEATURE_STATED_OPENS != 0)
    }

    /// Takes a name away: has the MDT know first of what is open. Which file the name means when the MDT takes it away is not known.
    pub(crate) async fn leaving(&self) -> Leaving<'_> {
        let leaving = self.own.leave(None);
        self.state_opens(Untold::All).await;
        leaving
    }

    /// The same of the only name of a file, without the MDT; `None` if that has to know of what is open.
    pub(crate) fn leaving_ahead(&self, fid: Fid) -> Option<Leaving<'_>> {
        let leaving = self.own.leave(Some(fid));
        (!self.own.is_untold(fid)).then_some(leaving)
    }

    /// Has the MDT know of what is open here.
    pub(crate) async fn state_opens(&self, which: Untold) {
        let untold = self.own.untold(which);
        if untold.is_empty() {
            return;
        }
        join_all(untold.iter().map(|held| self.targets.pending.settled(held.fid))).await;
        for (mdt, opens) in self.targets.by_mdt(untold, |held| held.fid) {
            for some in opens.chunks(STATED_AT_ONCE) {
                if let Err(error) = mdt.call(StateOpens { opens: some.to_vec() }).await {
                    tracing::warn!(
                        count = some.len(), %error,
                        "the MDT does not take open files: they are lost when their last names are removed"
                    );
                }
                let closed = some.iter().filter(|held| !self.own.told(held));
                join_all(closed.map(|OpenHeld { fid, handle }| {
                    self.send_close(Close {
                        fid: *fid,
                        handle: *handle,
                        atime: None,
                        size: None,
                        wrote: false,
                    })
                }))
                .await;
            }
        }
    }

    /// Files that are kept open and that handles of here use, with the MDT's names for the opens. A handle that was given out just now
    /// may not be in the list of handles yet.
    pub(crate) fn in_use(&self) -> Vec<(Fid, u64)> {
        let mut opens = self.own.told_all();
        for part in self.inodes.parts() {
            let part = part.lock();
            let used = |inode: &Inode| inode.open.filter(|open| open.users > 0).map(|open| open.handle);
            opens.extend(part.inodes.iter().filter_map(|(fid, inode)| Some((*fid, used(inode)?))));
        }
        opens
    }

    /// Whether a handle is one of which a restarted MDT is told later than of others.
    pub(crate) fn is_bare(&self, fid: Fid, handle: u64) -> bool {
        self.own.is_bare(fid, handle)
    }

    /// Has the MDT close a file that nobody uses here.
    pub(super) async fn close_kept(&self, fid: Fid, open: OpenKept) {
        self.send_close(Close { fid, handle: open.handle, atime: None, size: None, wrote: false }).await;
    }

    /// Tells the MDT that a handle is not used any more; a refusal has no one to tell it to.
    pub(crate) async fn send_close(&self, close: Close) -> Option<Taken> {
        let (fid, atime) = (close.fid, close.atime);
        // A writer that has written nothing lets the MDT know the size again, too.
        let unknown = self.kept.entry(fid).is_some_and(|entry| !entry.attr.size_known);
        let changes = close.size.is_some() || close.wrote || close.atime.is_some() || unknown;
        let changing = changes.then(|| self.inodes.change(&[fid], &[]));
        let asked = self.inodes.ask();
        tracing::debug!(%fid, handle = close.handle, size = close.size.as_ref().map(|size| size.size), "close");
        let result = match self.targets.settled_mdt_of(fid).await {
            Ok(mdt) => mdt.call(close).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(answered) => {
                // First this: what is kept from now on has the new time of access.
                let asked = changing.map_or(asked, |changing| changing.done(&[]));
                if let Some(entry) = &answered.reply.entry {
                    self.answers.learn(&asked, entry);
                }
                self.changes.changed(fid, answered.transno);
                if let Some(atime) = atime {
                    self.accesses.told(fid, atime);
                }
                Some(Taken { transno: answered.transno, question: answered.reply.asked() })
            }
            Err(error) => {
                tracing::debug!(%fid, %error, "the MDT did not take a close");
                None
            }
        }
    }
}

/// A close that the MDT has taken.
pub(crate) struct Taken {
    /// 0 if it changed nothing.
    pub transno: Transno,
    /// The MDT does not know the size yet, and asks for it.
    pub question: Option<u64>,
}

/// Whether the mode alone permits it, whatever the caller's groups are.
fn may_open(caller: &Caller, entry: &Entry, flags: OpenFlags) -> bool {
    let Attr { mode, uid, .. } = entry.attr;
    let wanted = if flags.execute { MODE_EXECUTE } else { MODE_READ };
    if caller.uid == 0 {
        return !flags.execute || mode & MODE_EXECUTE != 0;
    }
    if entry.xattrs {
        return false;
    }
    let wanted = if caller.uid == uid { wanted & MODE_OWNER } else { wanted };
    mode & wanted == wanted
}
