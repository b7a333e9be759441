//! What is kept of answers.

use std::sync::{Arc, OnceLock, Weak};

use proto::wire::messages::{DirPage, Entry, Granted, LOCK_LOOKUP, LOCK_UPDATE};
use proto::{Fid, Name};

use super::inode::Inode;
use super::{Asked, Changing, Inodes};
use crate::Behind;
use crate::targets::Targets;

/// Whoever makes room when there is too much.
pub(crate) trait MakesRoom: Send + Sync {
    /// Gives files up, in the background.
    fn leave(self: Arc<Self>, fids: Vec<Fid>);
}

/// Keeps what answers of the MDT bring.
pub(crate) struct Answers {
    inodes: Arc<Inodes>,
    targets: Arc<Targets>,
    /// To give a file up may take a close, which has an answer, too.
    room: OnceLock<Weak<dyn MakesRoom>>,
}

impl Answers {
    /// Keeps it in `inodes`.
    pub(super) fn new(inodes: Arc<Inodes>, targets: Arc<Targets>) -> Answers {
        Answers { inodes, targets, room: OnceLock::new() }
    }

    /// Says who makes room.
    pub(super) fn set_room(&self, room: Weak<dyn MakesRoom>) {
        let _ = self.room.set(room);
    }

    /// Keeps what a server told of a file, if it may be kept; says whether.
    pub(crate) fn learn(&self, asked: &Asked<'_>, entry: &Entry) -> bool {
        if entry.attr.nlink > 0 {
            self.inodes.note_permission(entry.lock.bits != 0);
        }
        if self.targets.pending.changes_of(entry.attr.fid) > 0 {
            // It lacks what was told ahead.
            self.inodes.not_kept(asked, entry.attr.fid, entry.lock);
            return false;
        }
        self.learn_of(asked, entry.attr.fid, entry.lock, |inode| inode.learn(entry))
    }

    /// The same of the file that a name means, and the name.
    pub(crate) fn learn_named(&self, asked: &Asked<'_>, parent: Fid, name: &Name, entry: &Entry) {
        // A lock that came with another answer says nothing of what this one read.
        if self.learn(asked, entry) && entry.lock.bits & LOCK_LOOKUP != 0 {
            self.learn_name(asked, (parent, name), (entry.attr.fid, None));
        }
    }

    /// The same of a file that this client has just made.
    pub(crate) fn learn_made(&self, asked: &Asked<'_>, parent: Fid, name: &Name, entry: &Entry) {
        let fid = entry.attr.fid;
        self.inodes.note_permission(entry.lock.bits != 0);
        let is_kept = self.learn_of(asked, fid, entry.lock, |inode| {
            inode.learn(entry);
            inode.made();
        });
        if is_kept && entry.lock.bits & LOCK_LOOKUP != 0 {
            self.learn_name(asked, (parent, name), (fid, None));
        }
    }

    /// Part of a change was made, and nothing of what the answer says of a file is kept.
    pub(crate) fn not_kept(&self, changing: &Changing<'_>, entry: &Entry) {
        changing.not_kept(entry.attr.fid, entry.lock);
        self.make_room();
    }

    /// Keeps something of a file that came with `granted`, as [`Answers::learn`] does.
    pub(crate) fn learn_of(
        &self,
        asked: &Asked<'_>,
        fid: Fid,
        granted: Granted,
        learn: impl FnOnce(&mut Inode),
    ) -> bool {
        // Without a lock there may be too much, as the MDT sees it.
        let may_keep = granted.bits != 0 || self.inodes.part(fid).inodes.contains_key(&fid);
        let is_kept = may_keep && self.inodes.learn(asked, fid, granted, learn);
        self.make_room();
        is_kept
    }

    /// Keeps a name of a file that was learnt before; with a stamp only if nothing has been called back since then: else somebody else may
    /// have changed it again by now.
    pub(crate) fn learn_name(
        &self,
        asked: &Asked<'_>,
        (parent, name): (Fid, &Name),
        (fid, of_before): (Fid, Option<u64>),
    ) {
        let stamp = {
            let mut part = self.inodes.part(fid);
            let Some(file) = part.inodes.get_mut(&fid).filter(|file| file.keeps_names()) else { return };
            if of_before.is_some_and(|stamp| stamp != file.stamp) {
                return;
            }
            file.named = Some((parent, name.clone()));
            file.stamp
        };
        // The lock is the file's, not the directory's.
        let granted = Granted { bits: 0, number: u64::MAX };
        self.inodes.learn(asked, parent, granted, |dir| dir.names.learn(name.clone(), fid, stamp));
        self.inodes.sweep(parent);
        self.make_room();
    }

    /// Keeps that a name is not there; `kept` is [`super::Kept::keeps_entries`] from before the question.
    pub(crate) fn learn_absence(&self, asked: &Asked<'_>, parent: Fid, name: &Name, kept: bool) {
        if !kept {
            return;
        }
        self.learn_of(asked, parent, Granted::default(), |dir| {
            if dir.has(LOCK_UPDATE) {
                dir.names.learn_absence(name.clone());
            }
        });
        self.inodes.sweep(parent);
    }

    /// Keeps a page of a directory.
    pub(crate) fn learn_page(&self, asked: &Asked<'_>, fid: Fid, behind: &Behind, page: &Arc<DirPage>) {
        let entries_max = self.inodes.page_entries_max();
        self.learn_of(asked, fid, page.lock, |dir| {
            dir.grant(page.lock);
            if page.lock.bits & LOCK_UPDATE != 0 {
                dir.pages.insert(behind, page.clone(), entries_max);
            }
        });
    }

    /// A file has another name now, in another directory perhaps.
    pub(crate) fn has_moved(&self, fid: Fid) {
        if let Some(inode) = self.inodes.part(fid).inodes.get_mut(&fid) {
            inode.named = None;
        }
    }

    /// Has what was not used lately given up, if there is too much.
    fn make_room(&self) {
        let Some(room) = self.room.get().and_then(Weak::upgrade) else { return };
        let fids = self.inodes.take_leavers();
        if !fids.is_empty() {
            room.leave(fids);
        }
    }
}
