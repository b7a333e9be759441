//! What an MDT keeps for each session: the sequences that it may make files from, and the files that it has open.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use proto::{ClientId, Code, Fid};

use super::opens::Opener;
use super::{Changes, Mdt, keys};
use crate::target::Session;

/// Most open files of one session.
const OPENS_MAX: usize = 1 << 20;
/// Most sequences of one session.
pub(super) const SEQUENCES_MAX: usize = 4096;

/// An MDT's part of a session.
#[derive(Default)]
pub struct Export {
    sequences: Mutex<Vec<u64>>,
    opens: Mutex<BTreeMap<u64, Fid>>,
}

impl Export {
    /// Whether the session may make a file with the name `fid`.
    pub fn owns(&self, fid: Fid) -> bool {
        // The newest sequence is the one in use.
        fid.is_sane() && self.sequences.lock().iter().rev().any(|&sequence| sequence == fid.seq)
    }

    /// The session has one sequence more.
    pub fn grant(&self, sequence: u64) {
        self.sequences.lock().push(sequence);
    }

    /// Number of the session's sequences.
    pub fn sequence_count(&self) -> usize {
        self.sequences.lock().len()
    }

    /// Whether the session may open one more file.
    pub fn has_room(&self) -> Result<(), Code> {
        if self.opens.lock().len() < OPENS_MAX { Ok(()) } else { Err(Code::NoSpace) }
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
    /// A session goes on after a restart with the sequences that it had.
    pub(super) fn load_grants(&self, session: &Session<Export>) {
        let from = keys::grants_of(session.client());
        let until = crate::target::keys::behind(&from);
        match self.store.scan(&from, &until, SEQUENCES_MAX) {
            Ok(found) if session.resumed() => {
                found.iter().filter_map(|(key, _)| keys::granted(key)).for_each(|s| session.data().grant(s));
            }
            Ok(_) => self.forget_grants(session.client()),
            Err(error) => tracing::error!(%error, "the sequences of a session are not known"),
        }
    }

    /// A client of before the restart does not come back.
    pub(super) fn forget_grants(&self, client: ClientId) {
        let from = keys::grants_of(client);
        let until = crate::target::keys::behind(&from);
        let mut changes = Changes::default();
        for (key, _) in self.store.scan(&from, &until, SEQUENCES_MAX).unwrap_or_default() {
            changes.remove(key);
        }
        self.commit_apart(changes, "sequences of a client that is gone");
    }

    /// A session is over: what it had open is closed. What it wrote and did not tell stays unknown.
    pub(super) fn end_export(&self, session: &Session<Export>) {
        let opens = std::mem::take(&mut *session.data().opens.lock());
        for (handle, fid) in opens {
            let _inode = self.locks.inodes(&[fid]);
            let opener = Opener { session: session.handle(), handle };
            let Some(closed) = self.opens.close(fid, opener, true, None) else { continue };
            if closed.last {
                let mut changes = Changes::default();
                if self.drop_if_nameless(&mut changes, fid).is_ok() {
                    self.commit_apart(changes, "a file that a lost session had open");
                }
            }
        }
        let mut changes = Changes::default();
        for sequence in std::mem::take(&mut *session.data().sequences.lock()) {
            changes.remove(keys::grant(session.client(), sequence));
        }
        self.commit_apart(changes, "sequences of a session that is over");
    }

    /// Commits changes that belong to no request.
    pub(super) fn commit_apart(&self, changes: Changes, what: &'static str) {
        if changes.is_empty() {
            return;
        }
        let destroys = changes.destroys();
        match self.store.commit(changes.into_batch()) {
            Ok(_) if destroys.is_empty() => {}
            Ok(_) => self.destroyer.wake(&destroys),
            Err(error) => tracing::error!(%error, "{what}: not committed"),
        }
    }
}
