//! The file locks of applications (flock(2), fcntl(2)) of all files of this MDT, and the requests that wait for them.
//!
//! What they do to each other is decided in [`proto::lock::flock`]. They are memory only: they die with their session,
//! and after a restart the clients state them again.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use proto::Code;
use proto::lock::flock::{self, Kind, Lock, Obstacle, State, WaitId};
use rt::sync::oneshot;

/// Bits of the number of a change; the boot of the store stands above them, so that numbers grow over restarts.
const CHANGE_BITS: u32 = 40;

/// Every file lock.
pub struct Flocks {
    inner: Mutex<Inner>,
}

struct Inner {
    locks: flock::Flocks,
    /// Who is told when a request waits no more; the last one that asked.
    asking: BTreeMap<WaitId, oneshot::Sender<()>>,
    /// Sessions that have begun and not ended: a request that is slower than the end of its session is refused.
    live: BTreeSet<u64>,
}

/// What became of a request, or a way to learn it.
pub enum Asked {
    /// This.
    Known(Option<State>),
    /// It waits; ask again after this.
    Waiting(oneshot::Receiver<()>),
}

impl Flocks {
    /// No locks, at a start of the target.
    pub fn new(boot: u64) -> Flocks {
        let locks = flock::Flocks::new(boot << CHANGE_BITS);
        Flocks { inner: Mutex::new(Inner { locks, asking: BTreeMap::new(), live: BTreeSet::new() }) }
    }

    /// A session begins.
    pub fn begin_session(&self, session: u64) {
        self.inner.lock().live.insert(session);
    }

    /// A session is over: its locks are free.
    pub fn end_session(&self, session: u64) {
        self.change(|inner| {
            inner.live.remove(&session);
            inner.locks.end_session(session);
        });
    }

    /// Sets a lock; waits for it under the name `wait`, if there is one. Gives the number of the last change too: a
    /// flock that is to be changed goes before its change is granted or waits.
    pub fn set(&self, lock: &Lock, wait: Option<WaitId>) -> Result<(State, u64), Code> {
        self.change(|inner| {
            inner.check_live(lock.owner.session)?;
            let state = match wait {
                Some(id) => inner.locks.set_or_wait(lock, id),
                None => inner.locks.set(lock),
            };
            Ok((state, inner.locks.last_change()))
        })
    }

    /// Takes locks of an owner away.
    pub fn unlock(&self, lock: &Lock) -> State {
        self.change(|inner| inner.locks.unlock(lock.fid, lock.owner, lock.kind, lock.range))
    }

    /// The lock that stands in the way of `lock`.
    pub fn test(&self, lock: &Lock) -> Option<Obstacle> {
        self.inner.lock().locks.test(lock)
    }

    /// The client knows what became of these requests.
    pub fn known(&self, session: u64, numbers: &[u64]) {
        if numbers.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        for &number in numbers {
            inner.locks.known(WaitId { session, number });
        }
    }

    /// What became of a request.
    pub fn ask(&self, id: WaitId) -> Asked {
        let mut inner = self.inner.lock();
        match inner.locks.state(id) {
            Some(State::Waiting) => {
                let (sender, settled) = oneshot::channel();
                // Who asked before did so over an older connection, or its question was sent twice.
                inner.asking.insert(id, sender);
                Asked::Waiting(settled)
            }
            state => Asked::Known(state),
        }
    }

    /// The sessions whose locks a request waits for.
    pub fn in_the_way(&self, id: WaitId) -> Vec<u64> {
        self.inner.lock().locks.in_the_way(id)
    }

    /// The same for somebody who does not wait any longer.
    pub fn state(&self, id: WaitId) -> Option<State> {
        self.inner.lock().locks.state(id)
    }

    /// Ends a request.
    pub fn cancel(&self, id: WaitId) -> State {
        self.change(|inner| {
            // Dropping the sender tells who asks.
            inner.asking.remove(&id);
            inner.locks.cancel(id)
        })
    }

    /// Number of locks, and of requests that wait.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        self.inner.lock().locks.counts()
    }

    /// Changes something, and tells who waits for it when no guard is held any more.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, told) = {
            let mut inner = self.inner.lock();
            let result = change(&mut inner);
            let settled = inner.locks.take_settled();
            let told: Vec<_> = settled.iter().filter_map(|id| inner.asking.remove(id)).collect();
            (result, told)
        };
        for asking in told {
            // Who asked may have gone.
            let _ = asking.send(());
        }
        result
    }
}

impl Inner {
    fn check_live(&self, session: u64) -> Result<(), Code> {
        if self.live.contains(&session) { Ok(()) } else { Err(Code::NoSession) }
    }
}

/// The kind that a message says.
pub fn kind(number: u8) -> Result<Kind, Code> {
    match number {
        proto::wire::messages::FLOCK_POSIX => Ok(Kind::Posix),
        proto::wire::messages::FLOCK_WHOLE => Ok(Kind::Flock),
        _ => Err(Code::Invalid),
    }
}
