//! Directories that one client has to itself, and may change ahead of the MDT (`docs/locks.md#alone`).
//!
//! A client gets one only with the answer to the request that made it, when nobody else can know of it, or states it again before
//! anybody is served after a restart. So whoever finds that no other session has a directory knows that none will. Every operation
//! that reads the inode of a directory finds out ([`super::namespace::Names::find_inode`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use proto::Fid;
use proto::limits::ALONE_MAX;
use proto::lock::bits::{Conflict, SessionId};
use proto::wire::messages::LOCK_ALONE;

use crate::{Held, Holding};

/// Which sessions have directories to themselves.
#[derive(Default)]
pub struct Alone {
    dirs: Mutex<Dirs>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Dirs {
    /// Who has a directory, and since which grant.
    holders: BTreeMap<Fid, (SessionId, u64)>,
    /// How many each session has.
    counts: BTreeMap<SessionId, usize>,
}

impl Dirs {
    fn take(&mut self, fid: Fid) {
        let Some((session, _)) = self.holders.remove(&fid) else { return };
        let Some(count) = self.counts.get_mut(&session) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&session);
        }
    }
}

impl Alone {
    /// The session has the directory to itself from now on; false if it has too many, or another one has it.
    pub fn grant(&self, session: SessionId, fid: Fid, number: u64) -> bool {
        let mut dirs = self.dirs.lock();
        if let Some((holder, _)) = dirs.holders.get(&fid) {
            return *holder == session;
        }
        let count = dirs.counts.entry(session).or_default();
        // A client may give some up at the same time, and counts them no more.
        if *count >= 2 * ALONE_MAX {
            return false;
        }
        *count += 1;
        dirs.holders.insert(fid, (session, number));
        self.counted(&dirs);
        true
    }

    /// The session that has the directory to itself, if it is another one.
    pub fn conflict(&self, session: SessionId, fid: Fid) -> Option<Conflict> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (holder, number) = self.dirs.lock().holders.get(&fid).copied()?;
        (holder != session).then_some(Conflict { session: holder, bits: LOCK_ALONE, number })
    }

    /// Whether the session has the directory to itself.
    pub fn is_of(&self, session: SessionId, fid: Fid) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && self.dirs.lock().holders.get(&fid).is_some_and(|(holder, _)| *holder == session)
    }

    /// A session has given a directory up.
    pub fn given_up(&self, session: SessionId, fid: Fid) {
        let mut dirs = self.dirs.lock();
        if dirs.holders.get(&fid).is_some_and(|(holder, _)| *holder == session) {
            dirs.take(fid);
            self.counted(&dirs);
        }
    }

    /// The directory is no more.
    pub fn removed(&self, fid: Fid) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut dirs = self.dirs.lock();
            dirs.take(fid);
            self.counted(&dirs);
        }
    }

    /// A session is over.
    pub fn drop_session(&self, session: SessionId) {
        let mut dirs = self.dirs.lock();
        if dirs.counts.remove(&session).is_some() {
            dirs.holders.retain(|_, (holder, _)| *holder != session);
            self.counted(&dirs);
        }
    }

    /// Every directory that a session has, to be called back.
    pub fn all(&self) -> Vec<(Fid, Conflict)> {
        let conflict = |(fid, (session, number)): (&Fid, &(SessionId, u64))| {
            (*fid, Conflict { session: *session, bits: LOCK_ALONE, number: *number })
        };
        self.dirs.lock().holders.iter().map(conflict).collect()
    }

    /// Who has which directory.
    pub fn held(&self) -> Vec<Held> {
        let held = |(fid, conflict): (Fid, Conflict)| Held {
            session: conflict.session,
            what: Holding::Bits { fid, bits: conflict.bits },
        };
        self.all().into_iter().map(held).collect()
    }

    /// How many directories a session has to itself.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn counted(&self, dirs: &Dirs) {
        self.count.store(dirs.holders.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = 1;
    const B: SessionId = 2;

    fn dir(oid: u32) -> Fid {
        Fid { seq: 0x2_0000_0400, oid, ver: 0 }
    }

    #[test]
    fn one_session_has_it() {
        let alone = Alone::default();
        assert!(alone.grant(A, dir(1), 5) && alone.grant(A, dir(1), 6));
        assert!(!alone.grant(B, dir(1), 7));
        assert_eq!(alone.conflict(A, dir(1)), None);
        assert!(alone.is_of(A, dir(1)) && !alone.is_of(B, dir(1)) && !alone.is_of(A, dir(2)));
        assert_eq!(alone.conflict(B, dir(1)), Some(Conflict { session: A, bits: LOCK_ALONE, number: 5 }));
        assert_eq!(alone.conflict(B, dir(2)), None);
        alone.given_up(B, dir(1));
        assert!(alone.conflict(B, dir(1)).is_some(), "it is not B's to give");
        alone.given_up(A, dir(1));
        assert_eq!((alone.conflict(B, dir(1)), alone.all()), (None, vec![]));
    }

    #[test]
    fn they_go_with_session_and_directory() {
        let alone = Alone::default();
        for oid in 1..=3 {
            assert!(alone.grant(A, dir(oid), 1) && alone.grant(B, dir(10 + oid), 1));
        }
        alone.removed(dir(2));
        alone.drop_session(B);
        let left: Vec<Fid> = alone.all().into_iter().map(|(fid, _)| fid).collect();
        assert_eq!(left, [dir(1), dir(3)]);
        alone.drop_session(A);
        assert_eq!(alone.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_session_has_so_many_at_most() {
        let alone = Alone::default();
        let granted = (1..=3 * ALONE_MAX as u32).filter(|oid| alone.grant(A, dir(*oid), 1)).count();
        assert_eq!(granted, 2 * ALONE_MAX);
        alone.given_up(A, dir(1));
        assert!(alone.grant(A, dir(1), 2));
    }
}
