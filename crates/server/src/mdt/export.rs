//! What an MDT keeps for each session: the sequences that it may make files from, and the files that it has open.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::OWN_OPENS_MAX;
use proto::{ClientId, Code, Fid};
use service::Session;
use store::Value;

use super::cuts::Cutter;
use super::inode::Inode;
use super::opens::Opener;
use super::plan::{Plan, Reads, Step};
use super::{Changes, Ctx, Mdt, keys};

/// Most open files of one session.
const OPENS_MAX: usize = 1 << 20;
/// Most sequences of one session. A client uses one to its end before it begins the next, so what the oldest of so many names was made
/// four thousand million files ago.
const SEQUENCES_MAX: usize = 4096;

/// An MDT's part of a session.
#[derive(Default)]
pub struct Export {
    /// The oldest first.
    sequences: Mutex<VecDeque<u64>>,
    opens: Mutex<BTreeMap<u64, Fid>>,
}

impl Export {
    /// Whether the session may make a file with the name `fid`.
    pub fn owns(&self, fid: Fid) -> bool {
        // The newest sequence is the one in use.
        fid.is_sane() && self.sequences.lock().iter().rev().any(|&sequence| sequence == fid.seq)
    }

    /// The session has one sequence more, and may make nothing more from the one that is returned.
    pub fn grant(&self, sequence: u64) -> Option<u64> {
        let mut sequences = self.sequences.lock();
        sequences.push_back(sequence);
        if sequences.len() > SEQUENCES_MAX { sequences.pop_front() } else { None }
    }

    /// Whether the session may open one more file.
    pub fn has_room(&self) -> Result<(), Code> {
        if self.opens.lock().len() < OPENS_MAX { Ok(()) } else { Err(Code::NoSpace) }
    }

    /// Whether the session may state one more that it has opened already: there is room of its own for that, as much as a client uses.
    pub fn has_room_for_stated(&self) -> Result<(), Code> {
        if self.opens.lock().len() < OPENS_MAX + OWN_OPENS_MAX { Ok(()) } else { Err(Code::NoSpace) }
    }

    /// The session has `fid` open as `handle`.
    pub fn opened(&self, handle: u64, fid: Fid) {
        self.opens.lock().insert(handle, fid);
    }

    /// The session has `handle` open no more; false if it had not, or not for `fid`.
    pub fn closed(&self, handle: u64, fid: Fid) -> bool {
        let mut opens = self.opens.lock();
        opens.get(&handle) == Some(&fid) && opens.remove(&handle).is_some()
    }
}

impl Mdt {
    /// Whether the client may say now what it had before a restart. One of this process is not waited for by others, and nothing
    /// of it comes late.
    pub(super) fn takes_restatements(&self, ctx: &Ctx) -> bool {
        let local = ctx.session().resumed() && ctx.peer.from.is_here();
        self.recovery.is_active() || local
    }

    /// A session goes on after a restart with the sequences and the files that it had.
    pub(super) fn begin_export(&self, session: &Session<Export>) {
        if !session.resumed() {
            return self.forget_export(session.client());
        }
        let export = session.data();
        for (key, _) in self.keys_of(keys::GRANT, session.client()) {
            keys::number_of(&key).into_iter().for_each(|sequence| _ = export.grant(sequence));
        }
        for (key, value) in self.keys_of(keys::OPEN, session.client()) {
            let Some((handle, fid)) = keys::number_of(&key).zip(keys::opened(&value.bytes)) else { continue };
            let _inode = self.names.locks.inodes(&[fid]);
            // Whether it was written before the restart nobody knows.
            self.opens.restore(fid, Opener { session: session.handle(), handle });
            export.opened(handle, fid);
        }
        self.begin_cuts(session);
    }

    /// What the session cut when the target restarted. Nothing is kept of what is not remembered, or is no more.
    fn begin_cuts(&self, session: &Session<Export>) {
        let cutter = Cutter { session: session.handle(), client: session.client() };
        let mut changes = Changes::default();
        for (key, value) in self.keys_of(keys::CUT, session.client()) {
            let cut = keys::cut_of(&key, &value.bytes);
            let cut = cut.filter(|fid| {
                let is_gone = matches!(self.names.read_inode(Reads::All, *fid), Ok(None));
                let _inode = self.names.locks.inodes(&[*fid]);
                !is_gone && self.opens.restore_cut(*fid, cutter)
            });
            if cut.is_none() {
                changes.remove(key);
            }
        }
        self.commit_apart(changes, "a cut that is not remembered");
    }

    /// A client of before the restart does not come back, or begins anew.
    pub(super) fn forget_export(&self, client: ClientId) {
        let mut changes = Changes::default();
        for prefix in [keys::GRANT, keys::OPEN, keys::CUT] {
            self.keys_of(prefix, client).into_iter().for_each(|(key, _)| changes.remove(key));
        }
        self.commit_apart(changes, "what a client had that is gone");
    }

    fn keys_of(&self, prefix: u8, client: ClientId) -> Vec<(Bytes, Value)> {
        let from = keys::of_client(prefix, client);
        let until = service::keys::behind(&from);
        self.store.scan(&from, &until, OPENS_MAX).unwrap_or_else(|error| {
            tracing::error!(%error, %client, "what the client had is not known");
            Vec::new()
        })
    }

    /// A session is over: what it had open is closed. What it wrote and did not tell stays unknown.
    pub(super) fn end_export(&self, session: &Session<Export>) {
        self.grants.bits.drop_session(session.handle());
        let cut = self.opens.ended(session.handle());
        let opens = std::mem::take(&mut *session.data().opens.lock());
        for (handle, fid) in opens {
            let opener = Opener { session: session.handle(), handle };
            let closed = {
                let _inode = self.names.locks.inodes(&[fid]);
                self.opens.close(fid, opener, true, None)
            };
            let Some(closed) = closed else { continue };
            if closed.write {
                let mut changes = Changes::default();
                changes.remove(keys::open(session.client(), handle));
                self.commit_apart(changes, "a file that a lost session had open");
            }
            if closed.last
                && let Err(code) =
                    self.drop_unopened(fid, "a file that a lost session had open", Mdt::closed_last)
            {
                tracing::error!(%code, %fid, "a file without a name stays until the next restart");
            }
        }
        let mut changes = Changes::default();
        cut.into_iter().for_each(|fid| changes.remove(keys::cut(session.client(), fid)));
        for sequence in std::mem::take(&mut *session.data().sequences.lock()) {
            changes.remove(keys::grant(session.client(), sequence));
        }
        self.commit_apart(changes, "sequences and cuts of a session that is over");
    }

    /// Does to an inode that is there what `last` says, and commits it, unless somebody has it open: then that one's close does it.
    pub(super) fn drop_unopened(
        &self,
        fid: Fid,
        what: &'static str,
        last: impl Fn(&Mdt, &Plan, &mut Changes, &Inode) -> Step<()>,
    ) -> Result<(), Code> {
        let plan = Plan::default();
        self.names.carry_out_apart(&plan, || {
            let _inode = self.names.locks.inodes(&[fid]);
            let mut changes = Changes::default();
            if let Some(inode) =
                self.names.read_inode(Reads::Known, fid)?.filter(|_| !self.opens.is_open(fid))
            {
                self.names.counted(Reads::Known, &inode)?;
                last(self, &plan, &mut changes, &inode)?;
                self.commit_apart(changes, what);
            }
            Ok(())
        })
    }

    /// Commits changes that belong to no request.
    pub(super) fn commit_apart(&self, mut changes: Changes, what: &'static str) {
        if changes.is_empty() {
            return;
        }
        assert!(!changes.concerns_others(), "{what}: nobody is called back");
        let (ordered, dead, gone) = (changes.ordered(), changes.dead(), changes.gone());
        match self.store.commit(changes.into_batch()) {
            Ok(transno) => {
                self.objects.destroyer.note_dead(&dead, transno);
                gone.into_iter().for_each(|fid| self.opens.gone(fid));
                if !ordered.is_empty() {
                    self.objects.destroyer.wake(&ordered);
                }
            }
            Err(error) => tracing::error!(%error, "{what}: not committed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sequence_makes_room() {
        let export = Export::default();
        let first = Fid::SEQ_NORMAL_START;
        let count = SEQUENCES_MAX as u64;
        let owns = |seq| export.owns(Fid { seq, oid: 1, ver: 0 });
        assert!((0..count).all(|n| export.grant(first + n).is_none()));
        assert!(owns(first));
        assert_eq!(export.grant(first + count), Some(first));
        assert!(!owns(first) && owns(first + 1) && owns(first + count));
    }
}
