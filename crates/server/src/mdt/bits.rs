//! Inode bits of an MDT: what its clients may keep, in parts that are locked apart. Rules in
//! `docs/locks.md#inode-bits`.
//!
//! Bits are granted in two ways, and each makes it impossible that an answer older than a change carries a lock:
//! [`BitLocks::reading`] grants first and reads then; [`BitLocks::grant_guarded`] is for who holds the inode's guard,
//! under which nobody else changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use proto::lock::bits::{Bits, Conflict, Limits, OperationId, SessionId};
use proto::lock::range::Numbers;
use proto::wire::messages::{BitLock, Granted};
use proto::{Code, Fid};
use smallvec::SmallVec;

use crate::{Held, Holding};

/// Parts of the table; a power of two.
const SHARDS: usize = 64;
/// Memory that the bits of a session of one file take, about, in bytes.
const LOCK_BYTES: u64 = 256;
/// The part of the process's memory that is for them.
const MEMORY_PART: u64 = 16;
/// Files that one session may have bits of, if there is memory for them.
const LOCKS_PER_SESSION_MAX: usize = 1_000_000;
/// The same of all sessions together.
const LOCKS_MAX: usize = 10_000_000;

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
}

impl BitLocks {
    /// Nobody has anything, at the target's `boot`-th start, in a process that may use `memory` bytes.
    pub fn new(boot: u64, memory: u64) -> BitLocks {
        let limits = limits_within(memory);
        BitLocks {
            shards: (0..SHARDS).map(|_| Mutex::new(Bits::new(limits))).collect(),
            numbers: Numbers::new(boot),
            operation: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            callbacks: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
        }
    }

    fn shard(&self, fid: Fid) -> MutexGuard<'_, Bits> {
        self.shards[(fid.oid as usize ^ fid.seq as usize) & (SHARDS - 1)].lock()
    }

    fn grant(&self, session: SessionId, fid: Fid, bits: u32) -> Granted {
        let mut shard = self.shard(fid);
        // Drawn under the shard's lock: the numbers of a file's grants are in the order of the grants.
        let number = self.numbers.draw();
        let granted = shard.grant(session, fid, bits, number);
        drop(shard);
        if granted.bits != 0 {
            self.grants.fetch_add(1, Ordering::Relaxed);
        }
        granted
    }

    /// What `read` finds, and what of it the session may keep. A change that `read` does not see comes after the grant,
    /// and calls it back.
    pub fn reading<T>(
        &self,
        session: SessionId,
        fid: Fid,
        bits: u32,
        read: impl FnOnce() -> T,
    ) -> (T, Granted) {
        let granted = self.grant(session, fid, bits);
        (read(), granted)
    }

    /// What the session may keep of a file whose guard the caller has held since it read or changed it.
    pub fn grant_guarded(&self, session: SessionId, fid: Fid, bits: u32) -> Granted {
        self.grant(session, fid, bits)
    }

    /// The file has no name, so that its bits are worth nothing: what was granted up to now is forgotten.
    pub fn take_back(&self, session: SessionId, fid: Fid, granted: Granted) {
        if granted.bits != 0 {
            self.given_up(session, &BitLock { fid, bits: granted.bits, number: granted.number });
        }
    }

    /// A session has given something up; returns what is free now.
    pub fn given_up(&self, session: SessionId, lock: &BitLock) -> u32 {
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
        self.shards.iter().for_each(|shard| shard.lock().drop_session(session));
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
        self.shards.iter().flat_map(all).collect()
    }

    /// Which bits of which file one session has.
    pub fn held_by_session(&self, session: SessionId) -> Vec<Held> {
        let all = |shard: &Mutex<Bits>| -> Vec<Held> {
            let held = |(fid, bits)| Held { session, what: Holding::Bits { fid, bits } };
            shard.lock().held_by_session(session).map(held).collect()
        };
        self.shards.iter().flat_map(all).collect()
    }

    /// What operations claim, and who has some of it still: a line for each.
    pub fn waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for (operation, session, fid, bits) in shard.claims() {
                let others = shard
                    .held()
                    .filter(|(other, of, had)| *other != session && *of == fid && had & bits != 0);
                let others: Vec<String> = others
                    .map(|(other, _, had)| format!("{:#x} of session {other:#x}", had & bits))
                    .collect();
                lines.push(format!(
                    "operation {operation} of session {session:#x} claims bits {bits:#x} of {fid}; in its way: {others:?}"
                ));
            }
        }
        lines
    }

    /// The counters.
    pub fn counts(&self) -> LockCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LockCounts {
            locks: self.shards.iter().map(|shard| shard.lock().lock_count() as u64).sum(),
            grants: count(&self.grants),
            callbacks: count(&self.callbacks),
            cancels: count(&self.cancels),
        }
    }
}

/// What may be granted of one part of the table.
fn limits_within(memory: u64) -> Limits {
    let fit = usize::try_from(memory / MEMORY_PART / LOCK_BYTES).unwrap_or(LOCKS_MAX);
    Limits { per_session: fit.min(LOCKS_PER_SESSION_MAX) / SHARDS, total: fit.min(LOCKS_MAX) / SHARDS }
}

/// What one request claims. Dropped, it claims nothing any more.
pub struct Claims {
    locks: Arc<BitLocks>,
    session: SessionId,
    /// Drawn with the first claim; 0 before.
    operation: AtomicU64,
    state: Mutex<ClaimState>,
}

#[derive(Default)]
struct ClaimState {
    fids: SmallVec<[Fid; 4]>,
    conflicts: Vec<(Fid, Conflict)>,
}

impl Claims {
    /// A request of `session` that claims nothing yet.
    pub fn new(locks: &Arc<BitLocks>, session: SessionId) -> Claims {
        Claims {
            locks: locks.clone(),
            session,
            operation: AtomicU64::new(0),
            state: Mutex::new(ClaimState::default()),
        }
    }

    /// Claims what a change concerns. If other sessions have any of it this fails, with a code that nobody is told: the
    /// operation ends having changed nothing, they are called back, and it is carried out again from its start. The
    /// caller holds the guards of the files.
    pub fn need(&self, affected: &[(Fid, u32)]) -> Result<(), Code> {
        let operation = self.operation();
        let mut state = self.state.lock();
        for &(fid, bits) in affected.iter().filter(|(_, bits)| *bits != 0) {
            let found = self.locks.shard(fid).claim(operation, self.session, fid, bits);
            state.conflicts.extend(found.into_iter().map(|conflict| (fid, conflict)));
            if !state.fids.contains(&fid) {
                state.fids.push(fid);
            }
        }
        if state.conflicts.is_empty() { Ok(()) } else { Err(Code::TryAgain) }
    }

    /// Who has to be called back before the operation can be carried out.
    pub fn take_conflicts(&self) -> Vec<(Fid, Conflict)> {
        std::mem::take(&mut self.state.lock().conflicts)
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
        for fid in std::mem::take(&mut self.state.get_mut().fids) {
            self.locks.shard(fid).release(operation, fid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_little_memory_fewer_locks_are_granted() {
        let small = limits_within(512 << 20);
        assert_eq!((small.per_session * SHARDS, small.total * SHARDS), (131_072, 131_072));
        let plenty = limits_within(1 << 40);
        assert_eq!(plenty.per_session, LOCKS_PER_SESSION_MAX / SHARDS);
        assert_eq!(plenty.total, LOCKS_MAX / SHARDS);
    }
}
