//! Inode bits of an MDT: what its clients may keep, in parts that are locked apart. Rules in
//! `docs/locks.md#inode-bits`.
//!
//! Bits are granted in two ways, and each makes it impossible that an answer older than a change carries a lock:
//! [`BitLocks::reading`] grants first and reads then; [`BitLocks::grant_guarded`] is for who holds the inode's guard,
//! under which nobody else changes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use proto::Fid;
use proto::lock::bits::{Bits, Conflict, OperationId, SessionId};
use proto::lock::range::Numbers;
use proto::parameters::TargetTree;
use proto::wire::messages::{BitLock, Granted, LOCK_ALONE, LOCK_LOOKUP, RestateNames};
use rt::sync::Notify;
use service::{LockRoom, Wait};
use smallvec::SmallVec;

use super::alone::Alone;
use crate::{Held, Holding};

/// Parts of the table; a power of two, and as many as a number has bits at most.
const SHARDS: usize = 64;
/// Pairs of a session and a file that it has bits of, unless an operator wants more.
const LOCKS_MAX: u64 = 10_000_000;

/// How often something happened since the MDT was started, and what there is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Pairs of a session and a file that it has bits of.
    pub locks: u64,
    /// Answers that carried bits.
    pub grants: u64,
    /// Clients that were called back.
    pub callbacks: u64,
    /// Locks that clients gave up without having been asked.
    pub cancels: u64,
    /// Locks that were called back because there were too many.
    pub reclaimed: u64,
}

/// What was granted to a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grant {
    /// What it is told.
    pub lock: Granted,
    /// Bits that it had before.
    pub had: u32,
}

/// Every inode bit that is granted, and what is claimed.
pub struct BitLocks {
    shards: Box<[Mutex<Bits>]>,
    numbers: Numbers,
    /// The newest operation that claimed something.
    operation: AtomicU64,
    grants: AtomicU64,
    callbacks: AtomicU64,
    cancels: AtomicU64,
    reclaimed: AtomicU64,
    room: LockRoom,
    /// Parts with too much in them, a bit for each, that were not looked at yet.
    excess: AtomicU64,
    /// Told when one of them is set.
    excessive: Notify,
    old_names: OldNames,
    alone: Alone,
}

/// Sessions whose kernels may use names that they were told before a restart (`docs/locks.md#kernel-names`): it is not known which, so
/// they are called back for every file.
#[derive(Default)]
struct OldNames {
    /// Which restart the client counted when it said so.
    sessions: Mutex<BTreeMap<SessionId, u64>>,
    /// There may be some.
    any: AtomicBool,
}

impl OldNames {
    fn stated(&self, session: SessionId, names: &RestateNames) {
        let mut sessions = self.sessions.lock();
        match names.kept {
            true => drop(sessions.insert(session, names.restart)),
            false if sessions.get(&session) == Some(&names.restart) => drop(sessions.remove(&session)),
            false => {}
        }
        self.any.store(!sessions.is_empty(), Ordering::Release);
    }

    fn drop_session(&self, session: SessionId) {
        let mut sessions = self.sessions.lock();
        sessions.remove(&session);
        self.any.store(!sessions.is_empty(), Ordering::Release);
    }

    /// All of them but `session`.
    fn others(&self, session: SessionId) -> Vec<SessionId> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.sessions.lock().keys().copied().filter(|other| *other != session).collect()
    }
}

impl BitLocks {
    /// Nobody has anything, at the target's `boot`-th start, in a process that may use `memory` bytes.
    pub fn new(boot: u64, memory: u64) -> BitLocks {
        let room = LockRoom::new(memory, LOCKS_MAX);
        let bounds = room.bounds(SHARDS);
        BitLocks {
            shards: (0..SHARDS).map(|_| Mutex::new(Bits::new(bounds))).collect(),
            numbers: Numbers::new(boot),
            operation: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            callbacks: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            room,
            excess: AtomicU64::new(0),
            excessive: Notify::new(),
            old_names: OldNames::default(),
            alone: Alone::default(),
        }
    }

    fn shard(&self, fid: Fid) -> MutexGuard<'_, Bits> {
        self.shards[part_of(fid)].lock()
    }

    fn grant(&self, session: SessionId, fid: Fid, bits: u32) -> Grant {
        let mut shard = self.shard(fid);
        let had = shard.held_by(session, fid);
        // Drawn under the shard's lock: the numbers of a file's grants are in the order of the grants.
        let number = self.numbers.draw();
        let lock = shard.grant(session, fid, bits, number);
        let is_excessive = shard.is_excessive(session);
        drop(shard);
        if lock.bits != 0 {
            self.grants.fetch_add(1, Ordering::Relaxed);
        }
        if is_excessive {
            self.note_excess(1 << part_of(fid));
        }
        Grant { lock, had }
    }

    /// `parts` of the table, a bit for each, are to be looked at: there is too much in them.
    pub fn note_excess(&self, parts: u64) {
        self.excess.fetch_or(parts, Ordering::Relaxed);
        self.excessive.notify_one();
    }

    /// Waits until there may be too much somewhere; gives the parts that were not looked at yet.
    pub async fn excess(&self) -> u64 {
        self.excessive.notified().await;
        self.excess.swap(0, Ordering::Relaxed)
    }

    /// Whether there is too much in a part, besides what is being called back.
    pub fn has_excess(&self, part: usize) -> bool {
        self.shards[part].lock().has_excess()
    }

    /// See [`Bits::next_excess`].
    pub fn next_excess(&self, part: usize, may_call: impl Fn(SessionId) -> bool) -> Option<(Fid, Conflict)> {
        self.shards[part].lock().next_excess(may_call)
    }

    /// See [`Bits::excess_answered`].
    pub fn excess_answered(&self, part: usize, session: SessionId) {
        let mut shard = self.shards[part].lock();
        shard.excess_answered(session);
        let is_excessive = shard.has_excess();
        drop(shard);
        if is_excessive {
            self.note_excess(1 << part);
        }
    }

    /// A session has given back what was too much.
    pub fn reclaimed(&self, session: SessionId, lock: &BitLock) {
        self.given_up(session, lock);
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Registers what operators can set.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.room.register(tree, || {
            let bounds = self.room.bounds(SHARDS);
            self.shards.iter().for_each(|shard| shard.lock().set_bounds(bounds));
            self.note_excess(u64::MAX);
        });
    }

    /// What `read` finds, and what of it the session may keep. A change that `read` does not see comes after the grant,
    /// and calls it back.
    pub fn reading<T>(
        &self,
        session: SessionId,
        fid: Fid,
        bits: u32,
        read: impl FnOnce() -> T,
    ) -> (T, Grant) {
        let grant = self.grant(session, fid, bits);
        (read(), grant)
    }

    /// What the session may keep of a file whose guard the caller has held since it read or changed it.
    pub fn grant_guarded(&self, session: SessionId, fid: Fid, bits: u32) -> Granted {
        self.grant(session, fid, bits).lock
    }

    /// The session is not told of `bits`: they are what they were before the grant, unless it had them, or was granted them
    /// again meanwhile. Gives what is left to be told.
    pub fn untold(&self, session: SessionId, fid: Fid, grant: Grant, bits: u32) -> Grant {
        let Grant { lock: Granted { bits: granted, number }, had } = grant;
        let back = granted & bits & !had;
        if back != 0 {
            self.given_up(session, &BitLock { fid, bits: back, number });
        }
        let left = granted & !bits;
        let lock = if left == 0 { Granted::default() } else { Granted { bits: left, number } };
        Grant { lock, had }
    }

    /// The file has no name, so that its bits are worth nothing: what was granted up to now is forgotten.
    pub fn take_back(&self, session: SessionId, fid: Fid, granted: Granted) {
        if granted.bits != 0 {
            self.given_up(session, &BitLock { fid, bits: granted.bits, number: granted.number });
        }
    }

    /// A session has given something up; returns what is free now.
    pub fn given_up(&self, session: SessionId, lock: &BitLock) -> u32 {
        if lock.bits & LOCK_ALONE != 0 {
            self.alone.given_up(session, lock.fid);
        }
        self.shard(lock.fid).given_up(session, lock)
    }

    /// A session has given something up that nobody had asked back.
    pub fn cancelled(&self, session: SessionId, lock: &BitLock) {
        if self.given_up(session, lock) != 0 {
            self.cancels.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A session is over.
    pub fn drop_session(&self, session: SessionId) {
        self.old_names.drop_session(session);
        self.alone.drop_session(session);
        self.shards.iter().for_each(|shard| shard.lock().drop_session(session));
    }

    /// The session has a directory to itself that it has just made, if it may have one more. The caller holds its guard.
    pub fn grant_alone(&self, session: SessionId, dir: Fid, number: u64) -> bool {
        self.alone.grant(session, dir, number)
    }

    /// Whether the session has a directory to itself.
    pub fn is_alone(&self, session: SessionId, dir: Fid) -> bool {
        self.alone.is_of(session, dir)
    }

    /// The session has had a directory to itself since before a restart, or since it foretold it; false if another one says so too.
    pub fn restate_alone(&self, session: SessionId, dir: Fid) -> bool {
        self.alone.grant(session, dir, self.numbers.draw())
    }

    /// A directory is no more.
    pub fn removed(&self, dir: Fid) {
        self.alone.removed(dir);
    }

    /// Every directory that a client has to itself.
    pub fn all_alone(&self) -> Vec<(Fid, Conflict)> {
        self.alone.all()
    }

    /// A client says whether its kernel may use names of before a restart.
    pub fn old_names(&self, session: SessionId, names: &RestateNames) {
        self.old_names.stated(session, names);
    }

    /// One more client is called back.
    pub fn called_back(&self) {
        self.callbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// The bits that a session has of a file.
    #[cfg(test)]
    pub fn held_by(&self, session: SessionId, fid: Fid) -> u32 {
        self.shard(fid).held_by(session, fid)
    }

    /// Who has which bits of which file.
    pub fn held(&self) -> Vec<Held> {
        let all = |shard: &Mutex<Bits>| -> Vec<Held> {
            let held = |(session, fid, bits)| Held { session, what: Holding::Bits { fid, bits } };
            shard.lock().held().map(held).collect()
        };
        self.shards.iter().flat_map(all).chain(self.alone.held()).collect()
    }

    /// How many that are, without a list of them.
    pub fn held_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().lock_count()).sum::<usize>() + self.alone.count()
    }

    /// Which bits of which file one session has.
    pub fn held_by_session(&self, session: SessionId) -> Vec<Held> {
        let all = |shard: &Mutex<Bits>| -> Vec<Held> {
            let held = |(fid, bits)| Held { session, what: Holding::Bits { fid, bits } };
            shard.lock().held_by_session(session).map(held).collect()
        };
        let alone = self.alone.held().into_iter().filter(|held| held.session == session);
        self.shards.iter().flat_map(all).chain(alone).collect()
    }

    /// What operations claim, and who has some of it still.
    pub fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for (operation, session, fid, bits) in shard.claims() {
                let others = shard.holders(fid).filter(|(other, had)| *other != session && had & bits != 0);
                let mut sessions = vec![session];
                let mut in_its_way = Vec::new();
                for (other, had) in others {
                    sessions.push(other);
                    in_its_way.push(format!("{:#x} of session {other:#x}", had & bits));
                }
                let text = format!(
                    "operation {operation} of session {session:#x} claims bits {bits:#x} of {fid}; in its way: {in_its_way:?}"
                );
                waits.push(Wait { sessions, text });
            }
        }
        waits
    }

    /// The counters.
    pub fn counts(&self) -> LockCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockCounts {
            locks: self.shards.iter().map(|shard| shard.lock().lock_count() as u64).sum(),
            grants: count(&self.grants),
            callbacks: count(&self.callbacks),
            cancels: count(&self.cancels),
            reclaimed: count(&self.reclaimed),
        }
    }
}

/// The part of the table in which a file is.
fn part_of(fid: Fid) -> usize {
    (fid.oid as usize ^ fid.seq as usize) & (SHARDS - 1)
}

/// What one request claims. Dropped, it claims nothing any more.
pub struct Claims {
    locks: Arc<BitLocks>,
    session: SessionId,
    /// Drawn with the first claim; 0 before.
    operation: AtomicU64,
    fids: Mutex<SmallVec<[Fid; 4]>>,
    /// Who was called back for names of before a restart, and of which file: each once.
    called: Mutex<Vec<(SessionId, Fid)>>,
}

impl Claims {
    /// A request of `session` that claims nothing yet.
    pub fn new(locks: &Arc<BitLocks>, session: SessionId) -> Claims {
        let (fids, called) = (Mutex::default(), Mutex::default());
        Claims { locks: locks.clone(), session, operation: AtomicU64::new(0), fids, called }
    }

    /// Claims what a change concerns; gives those who have any of it. If there are any, the operation ends having changed nothing, they
    /// are called back, and it is carried out again from its start. The caller holds the guards of the files.
    pub fn need(&self, affected: &[(Fid, u32)]) -> Vec<(Fid, Conflict)> {
        let operation = self.operation();
        let mut conflicts = Vec::new();
        let mut fids = self.fids.lock();
        for &(fid, bits) in affected.iter().filter(|(_, bits)| *bits != 0) {
            let found = self.locks.shard(fid).claim(operation, self.session, fid, bits);
            conflicts.extend(found.into_iter().map(|conflict| (fid, conflict)));
            if bits & LOCK_LOOKUP != 0 {
                self.need_old_names(fid, &mut conflicts);
            }
            if !fids.contains(&fid) {
                fids.push(fid);
            }
        }
        conflicts
    }

    /// Which other session has the directory to itself.
    pub fn alone(&self, dir: Fid) -> Option<Conflict> {
        self.locks.alone.conflict(self.session, dir)
    }

    /// Whoever may use a name of the file since before a restart has to forget it. The claim keeps everybody from being told anew.
    fn need_old_names(&self, fid: Fid, conflicts: &mut Vec<(Fid, Conflict)>) {
        for session in self.locks.old_names.others(self.session) {
            let mut called = self.called.lock();
            if !called.contains(&(session, fid)) {
                called.push((session, fid));
                let number = self.locks.numbers.draw();
                conflicts.push((fid, Conflict { session, bits: LOCK_LOOKUP, number }));
            }
        }
    }

    fn operation(&self) -> OperationId {
        match self.operation.load(Ordering::Relaxed) {
            0 => {
                let operation = self.locks.operation.fetch_add(1, Ordering::Relaxed) + 1;
                self.operation.store(operation, Ordering::Relaxed);
                operation
            }
            operation => operation,
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let operation = *self.operation.get_mut();
        for fid in std::mem::take(self.fids.get_mut()) {
            self.locks.shard(fid).release(operation, fid);
        }
    }
}
