//! flock(2) and fcntl(2) locks of the files of one MDT, and who waits for them.
//!
//! The two kinds never see each other. A POSIX lock has a range and belongs to a process; setting one replaces what the
//! process had there, and splits and merges as POSIX says. A flock is of the whole file. The rules are those of Linux
//! on a local file system:
//!
//! - A request is granted if no other owner *has* a conflicting lock; who only waits does not count.
//! - A POSIX lock that is to be changed stays while the change waits. A flock that is to be changed goes first, and is
//!   gone even if the change is refused (flock(2): conversion is not atomic).
//! - A POSIX request that would wait in a circle is refused. The circle is looked for over all files, when a request
//!   is about to wait and when a grant makes a new obstacle for somebody who waits already.
//!
//! Whatever weakens a lock (an unlock, a change from write to read, a cancelled grant) grants every request that can be
//! granted now, in the order of their arrival, before the call returns: [`Flocks::take_settled`] says which.

mod kept;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Fid;

pub use kept::{Kept, KeptLock, Place};
pub use spans::{Mode, Range, Span};

use spans::Spans;

/// Most locks of one file, of both kinds.
pub const LOCKS_PER_FILE_MAX: usize = 65_536;
/// Most locks of one session.
pub const LOCKS_PER_SESSION_MAX: usize = 262_144;
/// Most requests of one session that wait, or whose outcome it has not said to know.
pub const WAITS_PER_SESSION_MAX: usize = 16_384;
/// Owners that a search for a circle looks at; a circle that is longer is not found.
pub const CIRCLE_OWNERS_MAX: usize = 4096;

/// The two kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// fcntl(2): ranges.
    Posix,
    /// flock(2): the whole file.
    Flock,
}

/// Whose lock it is: a process (POSIX) or an open file (flock) of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The session of the client.
    pub session: u64,
    /// The client's name for the owner.
    pub number: u64,
}

/// Names a request that may wait; the client draws the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitId {
    /// The session of the client.
    pub session: u64,
    /// Its number in the session, used once.
    pub number: u64,
}

/// A lock that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The file.
    pub fid: Fid,
    /// Who asks.
    pub owner: Owner,
    /// Which kind.
    pub kind: Kind,
    /// Where; [`Range::ALL`] for a flock.
    pub range: Range,
    /// What for.
    pub mode: Mode,
    /// The process, for F_GETLK.
    pub pid: u32,
}

/// Why a request is not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Others have conflicting locks (EAGAIN).
    Conflict,
    /// Waiting would close a circle (EDEADLK).
    Deadlock,
    /// There are too many locks or requests (ENOLCK).
    NoLocks,
    /// It was cancelled.
    Cancelled,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It was granted. Of two changes of an owner's locks on a file, the one with the greater number came later.
    Granted(u64),
    /// It waits.
    Waiting,
    /// It was refused. The number says when, for a flock that went on the way.
    Refused(Refusal, u64),
}

/// A lock that stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obstacle {
    /// Whose it is.
    pub owner: Owner,
    /// The lock.
    pub span: Span,
}

#[derive(Default)]
struct File {
    posix: BTreeMap<Owner, Spans>,
    flock: BTreeMap<Owner, Spans>,
    /// Locks of both kinds.
    count: usize,
    /// Requests that wait, in the order of their arrival.
    queue: BTreeMap<u64, WaitId>,
}

struct Wait {
    lock: Lock,
    stage: Stage,
}

enum Stage {
    /// Its place in the file's queue.
    Waiting(u64),
    /// With what the owner had in the range before.
    Granted(u64, Vec<Span>),
    Refused(Refusal, u64),
}

#[derive(Default)]
struct Session {
    locks: usize,
    waits: usize,
    files: BTreeSet<Fid>,
}

/// All locks of an MDT.
pub struct Flocks {
    files: BTreeMap<Fid, File>,
    waits: BTreeMap<WaitId, Wait>,
    /// The POSIX requests by which each owner waits.
    blocked: BTreeMap<Owner, BTreeSet<WaitId>>,
    sessions: BTreeMap<u64, Session>,
    /// Number of the last change.
    changes: u64,
    /// Number of the last request that had to wait.
    tickets: u64,
    /// Requests that wait no more.
    settled: Vec<WaitId>,
}

impl File {
    fn owners(&self, kind: Kind) -> &BTreeMap<Owner, Spans> {
        match kind {
            Kind::Posix => &self.posix,
            Kind::Flock => &self.flock,
        }
    }

    fn owners_mut(&mut self, kind: Kind) -> &mut BTreeMap<Owner, Spans> {
        match kind {
            Kind::Posix => &mut self.posix,
            Kind::Flock => &mut self.flock,
        }
    }

    /// The first obstacle of every other owner.
    fn obstacles(&self, lock: &Lock) -> impl Iterator<Item = Obstacle> + '_ {
        let Lock { owner: asking, range, mode, .. } = *lock;
        let others = self.owners(lock.kind).iter().filter(move |(owner, _)| **owner != asking);
        others.filter_map(move |(owner, spans)| {
            let span = *spans.first_conflict(range, mode)?;
            Some(Obstacle { owner: *owner, span })
        })
    }

    fn is_free(&self, lock: &Lock) -> bool {
        self.obstacles(lock).next().is_none()
    }

    fn has_session(&self, session: u64) -> bool {
        let all = Owner { session, number: 0 }..=Owner { session, number: u64::MAX };
        self.posix.range(all.clone()).next().is_some() || self.flock.range(all).next().is_some()
    }

    fn is_unused(&self) -> bool {
        self.posix.is_empty() && self.flock.is_empty() && self.queue.is_empty()
    }
}

impl Flocks {
    /// No locks. Changes are numbered from `base` on, which is beyond all numbers of before a restart.
    pub fn new(base: u64) -> Flocks {
        Flocks {
            files: BTreeMap::new(),
            waits: BTreeMap::new(),
            blocked: BTreeMap::new(),
            sessions: BTreeMap::new(),
            changes: base,
            tickets: 0,
            settled: Vec::new(),
        }
    }

    /// Asks for a lock; it is granted or refused at once.
    pub fn set(&mut self, lock: &Lock) -> State {
        match self.try_set(lock) {
            Ok(state) => state,
            Err(()) => State::Refused(Refusal::Conflict, self.changes),
        }
    }

    /// Asks for a lock, and waits for it under the name `id` if others have it. A grant is remembered under that name
    /// too, so that it can be cancelled.
    pub fn set_or_wait(&mut self, lock: &Lock, id: WaitId) -> State {
        if self.waits.contains_key(&id) || self.waits_of(id.session) >= WAITS_PER_SESSION_MAX {
            return State::Refused(Refusal::NoLocks, self.changes);
        }
        let before = self.owned(lock);
        if let Ok(state) = self.try_set(lock) {
            if let State::Granted(change) = state {
                self.remember(id, Wait { lock: *lock, stage: Stage::Granted(change, before) });
            }
            return state;
        }
        if lock.kind == Kind::Posix {
            let file = self.files.get(&lock.fid);
            let obstacles = file.into_iter().flat_map(|file| file.obstacles(lock));
            if self.reaches(obstacles.map(|obstacle| obstacle.owner).collect(), lock.owner) {
                return State::Refused(Refusal::Deadlock, self.changes);
            }
            self.blocked.entry(lock.owner).or_default().insert(id);
        }
        self.tickets += 1;
        self.files.entry(lock.fid).or_default().queue.insert(self.tickets, id);
        self.remember(id, Wait { lock: *lock, stage: Stage::Waiting(self.tickets) });
        State::Waiting
    }

    /// Unlocks a range of an owner. Only the limits can refuse it, where it splits a lock.
    pub fn unlock(&mut self, fid: Fid, owner: Owner, kind: Kind, range: Range) -> State {
        match self.replace(fid, owner, kind, range, None) {
            Ok(weakened) => {
                self.wake(fid, kind, weakened.then_some(range));
                State::Granted(self.changes)
            }
            Err(refusal) => State::Refused(refusal, self.changes),
        }
    }

    /// The conflicting lock that begins first, if there is any (F_GETLK).
    pub fn test(&self, lock: &Lock) -> Option<Obstacle> {
        let file = self.files.get(&lock.fid)?;
        file.obstacles(lock).min_by_key(|obstacle| (obstacle.span.range.start, obstacle.owner))
    }

    /// The sessions, each once, whose locks a request waits for.
    pub fn in_the_way(&self, id: WaitId) -> Vec<u64> {
        let waiting = self.waits.get(&id).filter(|wait| matches!(wait.stage, Stage::Waiting(_)));
        let Some((wait, file)) = waiting.and_then(|wait| Some((wait, self.files.get(&wait.lock.fid)?)))
        else {
            return Vec::new();
        };
        let sessions: BTreeSet<u64> = file.obstacles(&wait.lock).map(|of| of.owner.session).collect();
        sessions.into_iter().collect()
    }

    /// What became of a request that had to wait; `None` if it is not known.
    pub fn state(&self, id: WaitId) -> Option<State> {
        Some(match self.waits.get(&id)?.stage {
            Stage::Waiting(_) => State::Waiting,
            Stage::Granted(change, _) => State::Granted(change),
            Stage::Refused(refusal, change) => State::Refused(refusal, change),
        })
    }

    /// The client knows what became of the request.
    pub fn known(&mut self, id: WaitId) {
        if self.waits.get(&id).is_some_and(|wait| !matches!(wait.stage, Stage::Waiting(_))) {
            self.forget(id);
        }
    }

    /// Ends a request. If it was granted meanwhile, the owner gets back what it had before, as far as nobody else has
    /// taken it.
    pub fn cancel(&mut self, id: WaitId) -> State {
        let Some(wait) = self.forget(id) else { return State::Refused(Refusal::Cancelled, self.changes) };
        match wait.stage {
            Stage::Waiting(ticket) => self.leave_queue(&wait.lock, ticket, id),
            Stage::Granted(_, before) => self.restore(&wait.lock, before),
            Stage::Refused(refusal, change) => return State::Refused(refusal, change),
        }
        State::Refused(Refusal::Cancelled, self.changes)
    }

    /// Frees all that a session has, and ends what it waits for.
    pub fn end_session(&mut self, session: u64) {
        let all = WaitId { session, number: 0 }..=WaitId { session, number: u64::MAX };
        let waits: Vec<WaitId> = self.waits.range(all).map(|(id, _)| *id).collect();
        for id in waits {
            if let Some(Wait { lock, stage: Stage::Waiting(ticket) }) = self.forget(id) {
                self.leave_queue(&lock, ticket, id);
                self.settled.push(id);
            }
        }
        let files = self.sessions.get(&session).map(|known| known.files.clone()).unwrap_or_default();
        for fid in files {
            for kind in [Kind::Posix, Kind::Flock] {
                let Some(file) = self.files.get(&fid) else { continue };
                let all = Owner { session, number: 0 }..=Owner { session, number: u64::MAX };
                let owners: Vec<Owner> = file.owners(kind).range(all).map(|(owner, _)| *owner).collect();
                for owner in &owners {
                    // Taking all of an owner's locks away is never refused.
                    let _ = self.replace(fid, *owner, kind, Range::ALL, None);
                }
                self.wake(fid, kind, (!owners.is_empty()).then_some(Range::ALL));
            }
        }
        self.sessions.remove(&session);
    }

    /// The requests that waited and were settled since the last call: granted, refused, or ended with their session.
    pub fn take_settled(&mut self) -> Vec<WaitId> {
        std::mem::take(&mut self.settled)
    }

    /// Number of the last change.
    pub fn last_change(&self) -> u64 {
        self.changes
    }

    /// Number of locks of both kinds, and of requests that wait.
    pub fn counts(&self) -> (usize, usize) {
        let waiting = self.files.values().map(|file| file.queue.len()).sum();
        (self.files.values().map(|file| file.count).sum(), waiting)
    }

    /// Grants a lock, or says why the limits do not allow it; an error if others are in the way.
    fn try_set(&mut self, lock: &Lock) -> Result<State, ()> {
        let mut freed = None;
        if lock.kind == Kind::Flock && self.mode_of_flock(lock).is_some_and(|mode| mode != lock.mode) {
            // Taking all of an owner's locks away is never refused.
            let _ = self.replace(lock.fid, lock.owner, lock.kind, Range::ALL, None);
            freed = Some(Range::ALL);
        }
        if !self.files.get(&lock.fid).is_none_or(|file| file.is_free(lock)) {
            self.wake(lock.fid, lock.kind, freed);
            return Err(());
        }
        let new = Some((lock.mode, lock.pid));
        let state = match self.replace(lock.fid, lock.owner, lock.kind, lock.range, new) {
            Ok(weakened) => {
                self.look_for_circles(lock);
                freed = freed.or(weakened.then_some(lock.range));
                State::Granted(self.changes)
            }
            Err(refusal) => State::Refused(refusal, self.changes),
        };
        self.wake(lock.fid, lock.kind, freed);
        Ok(state)
    }

    fn mode_of_flock(&self, lock: &Lock) -> Option<Mode> {
        let spans = self.files.get(&lock.fid)?.flock.get(&lock.owner)?;
        spans.iter().next().map(|span| span.mode)
    }

    /// Changes what an owner has in a range; says whether that weakened anything. The caller has looked for conflicts.
    fn replace(
        &mut self,
        fid: Fid,
        owner: Owner,
        kind: Kind,
        range: Range,
        new: Option<(Mode, u32)>,
    ) -> Result<bool, Refusal> {
        if new.is_none() && !self.files.contains_key(&fid) {
            return Ok(false);
        }
        let file = self.files.entry(fid).or_default();
        let session = self.sessions.entry(owner.session).or_default();
        let spans = file.owners_mut(kind).entry(owner).or_default();
        let plan = spans.plan(range, new);
        let (growth, weakens, idle) = (plan.growth(), plan.weakens, plan.idle);
        let (in_file, in_session) =
            (file.count.saturating_add_signed(growth), session.locks.saturating_add_signed(growth));
        let fits = growth <= 0 || (in_file <= LOCKS_PER_FILE_MAX && in_session <= LOCKS_PER_SESSION_MAX);
        if fits && !idle {
            file.owners_mut(kind).entry(owner).or_default().apply(plan);
            file.count = in_file;
            session.locks = in_session;
            session.files.insert(fid);
            self.changes += 1;
        }
        self.tidy(fid, owner, kind);
        if fits { Ok(weakens) } else { Err(Refusal::NoLocks) }
    }

    /// Drops what is empty.
    fn tidy(&mut self, fid: Fid, owner: Owner, kind: Kind) {
        let Some(file) = self.files.get_mut(&fid) else { return };
        if file.owners(kind).get(&owner).is_some_and(Spans::is_empty) {
            file.owners_mut(kind).remove(&owner);
        }
        let gone = !file.has_session(owner.session);
        if file.is_unused() {
            self.files.remove(&fid);
        }
        if let Some(session) = self.sessions.get_mut(&owner.session) {
            if gone {
                session.files.remove(&fid);
            }
            if session.files.is_empty() && session.waits == 0 {
                self.sessions.remove(&owner.session);
            }
        }
    }

    /// Grants what can be granted now that something in `freed` was weakened.
    fn wake(&mut self, fid: Fid, kind: Kind, freed: Option<Range>) {
        let mut freed: Vec<Range> = freed.into_iter().collect();
        let mut seen = 0;
        // A grant may weaken something itself: who has a write lock in a range that it waited to read. Those who come later in the queue
        // are looked at in the same turn, and those before them in another one.
        while seen < freed.len() {
            seen = freed.len();
            let Some(file) = self.files.get(&fid) else { return };
            let queue: Vec<WaitId> = file.queue.values().copied().collect();
            for id in queue {
                // A grant of this turn may have refused it.
                let Some(Wait { lock, stage: Stage::Waiting(_) }) = self.waits.get(&id) else { continue };
                let lock = *lock;
                let concerned = lock.kind == kind && freed.iter().any(|range| lock.range.overlaps(*range));
                if concerned && self.files.get(&fid).is_some_and(|file| file.is_free(&lock)) {
                    freed.extend(self.grant(&lock, id));
                }
            }
        }
    }

    /// Grants a request that waited; gives its range if that weakened anything.
    fn grant(&mut self, lock: &Lock, id: WaitId) -> Option<Range> {
        let before = self.owned(lock);
        let new = Some((lock.mode, lock.pid));
        match self.replace(lock.fid, lock.owner, lock.kind, lock.range, new) {
            Ok(weakened) => {
                self.settle(id, Stage::Granted(self.changes, before));
                self.look_for_circles(lock);
                weakened.then_some(lock.range)
            }
            Err(refusal) => {
                self.settle(id, Stage::Refused(refusal, self.changes));
                None
            }
        }
    }

    /// What the owner has in the range already.
    fn owned(&self, lock: &Lock) -> Vec<Span> {
        let spans = self.files.get(&lock.fid).and_then(|file| file.owners(lock.kind).get(&lock.owner));
        spans.map(|spans| spans.within(lock.range).collect()).unwrap_or_default()
    }

    fn remember(&mut self, id: WaitId, wait: Wait) {
        self.sessions.entry(id.session).or_default().waits += 1;
        self.waits.insert(id, wait);
    }

    /// A request waits no more.
    fn settle(&mut self, id: WaitId, stage: Stage) {
        let Some(wait) = self.waits.get_mut(&id) else { return };
        let lock = wait.lock;
        if let Stage::Waiting(ticket) = std::mem::replace(&mut wait.stage, stage) {
            self.leave_queue(&lock, ticket, id);
            self.settled.push(id);
        }
    }

    fn leave_queue(&mut self, lock: &Lock, ticket: u64, id: WaitId) {
        if let Some(file) = self.files.get_mut(&lock.fid) {
            file.queue.remove(&ticket);
        }
        if let Some(waits) = self.blocked.get_mut(&lock.owner) {
            waits.remove(&id);
            if waits.is_empty() {
                self.blocked.remove(&lock.owner);
            }
        }
        self.tidy(lock.fid, lock.owner, lock.kind);
    }

    fn forget(&mut self, id: WaitId) -> Option<Wait> {
        let wait = self.waits.remove(&id)?;
        if let Some(session) = self.sessions.get_mut(&id.session) {
            session.waits -= 1;
            if session.files.is_empty() && session.waits == 0 {
                self.sessions.remove(&id.session);
            }
        }
        Some(wait)
    }

    fn waits_of(&self, session: u64) -> usize {
        self.sessions.get(&session).map_or(0, |known| known.waits)
    }

    /// Undoes a grant. What it took from write to read others may read by now: then it stays with read.
    fn restore(&mut self, lock: &Lock, before: Vec<Span>) {
        let Lock { fid, owner, kind, range, .. } = *lock;
        let _ = self.replace(fid, owner, kind, range, None);
        for span in before {
            let wanted = Lock { range: span.range, mode: span.mode, ..*lock };
            let free = self.files.get(&fid).is_none_or(|file| file.is_free(&wanted));
            let mode = if free { span.mode } else { Mode::Read };
            if self.replace(fid, owner, kind, span.range, Some((mode, span.pid))).is_ok() {
                self.look_for_circles(&Lock { mode, ..wanted });
            }
        }
        self.wake(fid, kind, Some(range));
    }

    /// `lock` was granted, and is an obstacle for some that wait already. If its owner waits too (another thread of
    /// it), that may close a circle: who waits for the new lock is refused, as it would be if it asked again.
    fn look_for_circles(&mut self, lock: &Lock) {
        if lock.kind != Kind::Posix || !self.blocked.contains_key(&lock.owner) {
            return;
        }
        let Some(file) = self.files.get(&lock.fid) else { return };
        let queue: Vec<WaitId> = file.queue.values().copied().collect();
        for id in queue {
            let Some(wait) = self.waits.get(&id) else { continue };
            let other = wait.lock;
            let waits = other.kind == Kind::Posix && other.owner != lock.owner;
            if waits
                && other.range.overlaps(lock.range)
                && other.mode.conflicts(lock.mode)
                && self.reaches(vec![lock.owner], other.owner)
            {
                self.settle(id, Stage::Refused(Refusal::Deadlock, self.changes));
            }
        }
    }

    /// Whether one of `owners` waits, however indirectly, for `wanted`.
    fn reaches(&self, mut owners: Vec<Owner>, wanted: Owner) -> bool {
        let mut seen: BTreeSet<Owner> = owners.iter().copied().collect();
        while let Some(owner) = owners.pop() {
            for id in self.blocked.get(&owner).into_iter().flatten() {
                let Some(wait) = self.waits.get(id) else { continue };
                let Some(file) = self.files.get(&wait.lock.fid) else { continue };
                for obstacle in file.obstacles(&wait.lock) {
                    if obstacle.owner == wanted {
                        return true;
                    }
                    if seen.len() < CIRCLE_OWNERS_MAX && seen.insert(obstacle.owner) {
                        owners.push(obstacle.owner);
                    }
                }
            }
        }
        false
    }
}
