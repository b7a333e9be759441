//! flock(2) and fcntl(2): the MDT grants, and this client remembers what it was granted.
//!
//! A request is a task of its own, so that one that was sent comes to an end whoever still waits for it. A caller that
//! stops waiting has its request cancelled, and undone if it was granted meanwhile; what the same owner asks for next
//! waits until that is over ([`ticket`]).

mod ticket;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use proto::lock::flock::{Kept, KeptLock, Kind, Mode, Place, Range};
use proto::wire::messages as msg;
use proto::wire::messages::{Flock, FlockCancel, FlockHeld, FlockTest, FlockWait, RestateFlocks};
use proto::{Code, Fid, TargetId, mdt_of};
use rpc::Restate;
use rt::sync::Notify;
use rt::wait::unless;
use rt::{Rt, Time};

use crate::files::Handles;
use crate::order::{FLOCKS, Mutex};
use crate::targets::Targets;
use crate::{Error, Handle, Result};
use ticket::{Busy, Outcome, Set, Ticket, Waiting};

/// Most outcomes that one request tells the MDT to forget.
const KNOWN_MAX: usize = 1024;

/// Most locks of one message.
const RESTATED_AT_ONCE: usize = 1024;
/// How long a signal may wait for the MDT to forget the request that it ended.
const GIVE_UP_TIME: Duration = Duration::from_secs(1);
/// How often a lock that is not to wait is asked for again because this mount was giving it up.
const ASKED_AGAIN_MAX: usize = 3;
/// Time for the kernel to tell of the last close of a file, which it does after close(2) has returned.
const CLOSE_TIME: Duration = Duration::from_millis(100);

/// A lock to set, change or take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlockRequest {
    /// fcntl(2) or flock(2).
    pub kind: Kind,
    /// Where; [`Range::ALL`] for flock.
    pub range: Range,
    /// What for; `None` unlocks.
    pub mode: Option<Mode>,
    /// The process that asks.
    pub pid: u32,
}

/// A lock that stands in the way of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundLock {
    /// Where.
    pub range: Range,
    /// What for.
    pub mode: Mode,
    /// The process that set it.
    pub pid: u32,
    /// Whether it is a process of this client; else the number means nothing here.
    pub own: bool,
}

/// The file locks of a client.
pub struct Flocks {
    rt: Rt,
    targets: Arc<Targets>,
    handles: Arc<Handles>,
    inner: Mutex<FLOCKS, Inner>,
    /// A request that nobody waits for any more is over, or a release.
    over: Notify,
}

#[derive(Default)]
struct Inner {
    kept: Kept,
    /// The open files through which locks were asked for: what is left goes with them.
    through: BTreeMap<Place, BTreeSet<u64>>,
    /// Requests that nobody waits for any more and that are not over.
    undoing: BTreeMap<Place, usize>,
    /// Open files with locks of which a descriptor was closed, and when.
    closing: BTreeMap<u64, Time>,
    /// Counts handles that were released and had locks.
    releases: u64,
    /// Files of which handles are being released: the kernel does not wait for that, but whoever locks a file after
    /// its last close expects it unlocked.
    releasing: BTreeMap<Fid, usize>,
    /// Number of the last request that may wait.
    waits: u64,
    /// Requests that the MDT need not remember any more.
    known: Vec<u64>,
}

/// A handle is being released.
struct Releasing<'a> {
    flocks: &'a Flocks,
    fid: Fid,
}

impl Flocks {
    /// None is held yet.
    pub(super) fn new(rt: Rt, targets: Arc<Targets>, handles: Arc<Handles>) -> Flocks {
        Flocks { rt, targets, handles, inner: Mutex::default(), over: Notify::new() }
    }

    /// The lock that keeps `owner` from having one as `request` says (F_GETLK); `None` if there is none. One that goes with the close of
    /// a file is none.
    pub async fn get_lock(
        &self,
        handle: Handle,
        owner: u64,
        request: FlockRequest,
    ) -> Result<Option<FoundLock>> {
        let open = self.handles.get(handle)?;
        let place = Place { fid: open.fid, kind: request.kind, owner };
        for _ in 0..ASKED_AGAIN_MAX {
            let releases = self.inner.lock().releases;
            let found = self.test_lock(place, request).await?;
            let is_own = found.as_ref().is_some_and(|found| found.own);
            if !is_own || !self.may_have_gone(place, releases).await {
                return Ok(found);
            }
        }
        self.test_lock(place, request).await
    }

    async fn test_lock(&self, place: Place, request: FlockRequest) -> Result<Option<FoundLock>> {
        let FlockRequest { range, mode, .. } = request;
        let Place { fid, kind, owner } = place;
        let Some(mode) = mode else { return Ok(None) };
        self.until_released(fid).await;
        let test = FlockTest {
            fid,
            owner,
            kind: kind_number(kind),
            mode: mode_number(Some(mode)),
            start: range.start,
            end: range.end,
        };
        let Some(lock) = self.targets.settled_mdt_of(fid).await?.call(test).await?.reply.lock else {
            return Ok(None);
        };
        let range = Range::new(lock.start, lock.end).ok_or(Error::Refused(Code::Malformed))?;
        let mode = if lock.mode == msg::FLOCK_WRITE { Mode::Write } else { Mode::Read };
        Ok(Some(FoundLock { range, mode, pid: lock.pid, own: lock.own }))
    }

    /// Sets, changes or takes away a lock; refused with [`Code::WouldBlock`] if others have it.
    pub async fn set_lock(self: &Arc<Self>, handle: Handle, owner: u64, request: FlockRequest) -> Result<()> {
        self.lock(handle, owner, request, false).await
    }

    /// The same, but waits. Dropping the future gives the request up, as if it had not been made.
    pub async fn set_lock_wait(
        self: &Arc<Self>,
        handle: Handle,
        owner: u64,
        request: FlockRequest,
    ) -> Result<()> {
        self.lock(handle, owner, request, true).await
    }

    /// Waits until a request whose future was dropped is in nobody's way any more; not for long if the MDT is not
    /// reached.
    pub async fn given_up(&self, handle: Handle, owner: u64, kind: Kind) {
        let Ok(open) = self.handles.get(handle) else { return };
        let undone = self.until_undone(Place { fid: open.fid, kind, owner });
        let _ = self.rt.timeout(GIVE_UP_TIME, undone).await;
    }

    async fn lock(
        self: &Arc<Self>,
        handle: Handle,
        owner: u64,
        request: FlockRequest,
        wait: bool,
    ) -> Result<()> {
        let open = self.handles.get(handle)?;
        let place = Place { fid: open.fid, kind: request.kind, owner };
        let ask = async || {
            self.until_released(place.fid).await;
            self.until_undone(place).await;
            let busy = Busy::new(self, place, &request, request.mode.and(Some(handle)));
            self.request_lock(busy, request, wait).await
        };
        for _ in 0..ASKED_AGAIN_MAX {
            let releases = self.inner.lock().releases;
            let answer = ask().await;
            let is_refused = answer == Err(Error::Refused(Code::WouldBlock));
            if !is_refused || !self.may_have_gone(place, releases).await {
                return answer;
            }
        }
        ask().await
    }

    /// A process has closed the file: its fcntl locks are gone, whatever they were set through. Costs nothing if it
    /// has none.
    pub async fn unlock_owner(self: &Arc<Self>, handle: Handle, owner: u64) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.closes(open.fid, handle, self.rt.now());
        self.unlock_all(Place { fid: open.fid, kind: Kind::Posix, owner }).await
    }

    /// The locks that the client has.
    pub fn locks(&self) -> Vec<KeptLock> {
        self.inner.lock().kept.locks()
    }
}

impl Flocks {
    /// Waits until what nobody waits for any more is over.
    async fn until_undone(&self, place: Place) {
        loop {
            let over = self.over.notified();
            if !self.inner.lock().undoing.contains_key(&place) {
                return;
            }
            over.await;
        }
    }

    /// Waits until files that were closed before are unlocked.
    async fn until_released(&self, fid: Fid) {
        loop {
            let over = self.over.notified();
            if !self.inner.lock().releasing.contains_key(&fid) {
                return;
            }
            over.await;
        }
    }

    /// Nobody waits for a request of `place` any more, and it is not over.
    fn undoing(&self, place: Place) {
        *self.inner.lock().undoing.entry(place).or_default() += 1;
    }

    /// It is over.
    fn undone(&self, place: Place) {
        {
            let mut inner = self.inner.lock();
            if let Some(count) = inner.undoing.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    inner.undoing.remove(&place);
                }
            }
        }
        self.over.notify_waiters();
    }

    /// A descriptor of an open file is closed; if it is the last one, the open file's own locks go soon.
    fn closes(&self, fid: Fid, handle: Handle, now: Time) {
        let mut inner = self.inner.lock();
        let mut locks = inner.through.range(locks_of(fid));
        if locks.any(|(_, through)| through.contains(&handle.0)) {
            inner.closing.insert(handle.0, now);
        }
    }

    /// Whether a descriptor of an open file that has locks on `fid`, others than those of `place`, was just closed.
    fn is_closing(&self, fid: Fid, place: Option<Place>, now: Time) -> bool {
        let inner = self.inner.lock();
        let closing = |handle| inner.closing.get(handle).is_some_and(|since| now < *since + CLOSE_TIME);
        let mut others = inner.through.range(locks_of(fid)).filter(|(other, _)| Some(**other) != place);
        others.any(|(_, through)| through.iter().any(closing))
    }

    /// Waits until that is not so any more.
    async fn until_closed(&self, fid: Fid, place: Option<Place>, rt: &Rt) {
        loop {
            let over = self.over.notified();
            if !self.is_closing(fid, place, rt.now()) {
                return;
            }
            over.await;
        }
    }

    fn take_known(&self) -> Vec<u64> {
        let known = &mut self.inner.lock().known;
        let count = known.len().min(KNOWN_MAX);
        known.drain(..count).collect()
    }

    /// The MDT need not remember the request `number`; 0 means none.
    fn known(&self, number: u64) {
        if number != 0 {
            self.inner.lock().known.push(number);
        }
    }

    fn next_wait(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.waits += 1;
        inner.waits
    }
}

impl Flocks {
    /// What was locked through a handle that is gone: locks of an open file description, which no process's close
    /// takes away.
    pub(crate) async fn unlock_handle(self: &Arc<Self>, fid: Fid, handle: Handle) {
        let places: Vec<Place> = {
            let mut inner = self.inner.lock();
            inner.closing.remove(&handle.0);
            let from = Place { fid, kind: Kind::Posix, owner: 0 };
            let of_file = inner.through.range(from..).take_while(|(place, _)| place.fid == fid);
            let places: Vec<Place> =
                of_file.filter(|(_, through)| through.contains(&handle.0)).map(|(place, _)| *place).collect();
            if places.is_empty() {
                return;
            }
            *inner.releasing.entry(fid).or_default() += 1;
            inner.releases += 1;
            places
        };
        let _releasing = Releasing { flocks: self, fid };
        for place in places {
            if let Err(error) = self.unlock_all(place).await {
                tracing::warn!(%fid, %error, "a closed file stays locked");
            }
        }
    }

    /// Whether a lock that was in the way of `place` may be gone: since `releases` was looked at, or with a close that the kernel has to
    /// tell of still, which is waited for.
    async fn may_have_gone(&self, place: Place, releases: u64) -> bool {
        if self.is_closing(place.fid, Some(place), self.rt.now()) {
            let closed = self.until_closed(place.fid, Some(place), &self.rt);
            let _ = self.rt.timeout(CLOSE_TIME, closed).await;
            return true;
        }
        self.inner.lock().releases != releases
    }

    /// Somebody else wants a lock that this client has: waits until files that were closed just now are unlocked.
    pub(crate) async fn settle_closes(&self, fid: Fid) {
        let closed = async {
            self.until_closed(fid, None, &self.rt).await;
            self.until_released(fid).await;
        };
        let _ = self.rt.timeout(CLOSE_TIME, closed).await;
    }

    /// States the locks that this client has to an MDT that restarted, but for those that it is giving up: requests are sent again later
    /// than this, and the MDT may have carried them out before, and told others of a grant. Gives the files that were locked for this client
    /// alone, and are not any more.
    pub(crate) async fn restate_flocks(&self, restate: &Restate) -> BTreeSet<Fid> {
        let held = {
            let mut inner = self.inner.lock();
            inner.kept.give_up_doubtful();
            inner.kept.locks()
        };
        let mut lost = BTreeSet::new();
        for some in held.chunks(RESTATED_AT_ONCE) {
            let held = |lock: &KeptLock| FlockHeld {
                fid: lock.place.fid,
                owner: lock.place.owner,
                pid: lock.pid,
                kind: kind_number(lock.place.kind),
                mode: mode_number(Some(lock.mode)),
                start: lock.range.start,
                end: lock.range.end,
            };
            let locks = some.iter().map(held).collect();
            if let Err(error) = restate.call(RestateFlocks { locks }).await {
                tracing::error!(%error, count = some.len(), "file locks are lost: the restarted MDT does not take them");
                // Of a place it may have taken some before: what it has and this client not, the session's end takes away.
                self.inner.lock().kept.clear(|place| some.iter().any(|lock| lock.place == *place));
                lost.append(&mut written_under(some));
            }
        }
        lost
    }

    /// An MDT has forgotten this client. Gives the files that it had locked for itself alone.
    pub(crate) fn flocks_lost(&self, mdt: TargetId) -> BTreeSet<Fid> {
        let locks = {
            let mut inner = self.inner.lock();
            inner.kept.clear(|place| TargetId::mdt(mdt_of(place.fid)) == mdt)
        };
        if !locks.is_empty() {
            tracing::error!(count = locks.len(), "file locks are lost: the MDT has given this client up");
        }
        written_under(&locks)
    }

    async fn unlock_all(self: &Arc<Self>, place: Place) -> Result<()> {
        self.until_undone(place).await;
        {
            let mut inner = self.inner.lock();
            inner.through.remove(&place);
            if !inner.kept.has(place) {
                return Ok(());
            }
        }
        let request = FlockRequest { kind: place.kind, range: Range::ALL, mode: None, pid: 0 };
        self.request_lock(Busy::new(self, place, &request, None), request, false).await
    }

    /// Makes a request a task and waits for it.
    async fn request_lock(self: &Arc<Self>, busy: Busy, request: FlockRequest, wait: bool) -> Result<()> {
        let place = busy.place;
        let ticket = Arc::new(Ticket::new());
        let (flocks, task) = (self.clone(), ticket.clone());
        self.rt.run_in_place(async move {
            let outcome = flocks.settle(place, request, wait, &task).await;
            if let Some((outcome, busy)) = task.finish(outcome, busy) {
                flocks.undo(outcome, busy).await;
            }
        });
        Waiting::new(self.clone(), place, request, ticket).outcome().await
    }

    /// Asks for the lock until it is granted or refused.
    async fn settle(&self, place: Place, request: FlockRequest, wait: bool, ticket: &Ticket) -> Outcome {
        let FlockRequest { range, mode, pid, .. } = request;
        loop {
            let number = if wait && mode.is_some() { self.next_wait() } else { 0 };
            let flock = Flock {
                fid: place.fid,
                owner: place.owner,
                pid,
                kind: kind_number(place.kind),
                mode: mode_number(mode),
                start: range.start,
                end: range.end,
                wait: number,
                known: self.take_known(),
            };
            let mdt = self.targets.settled_mdt_of(place.fid).await?;
            let answered = mdt.call(flock).await?;
            let (mut flocked, mut session) = (answered.reply, answered.session);
            if place.kind == Kind::Flock && flocked.state != msg::FLOCK_GRANTED {
                // What was there before is gone, even if what was to come in its place is not granted.
                self.inner.lock().kept.change(place, range, None, flocked.change);
            }
            while flocked.state == msg::FLOCK_WAITING {
                let asked = FlockWait { wait: number, known: self.take_known() };
                let Some(answer) = unless(ticket.abandoned(), mdt.call(asked)).await else {
                    self.cancel(place, number).await;
                    return Err(Error::Refused(Code::Interrupted));
                };
                let answered = answer?;
                (flocked, session) = (answered.reply, answered.session);
            }
            let code = match flocked.state {
                // Granted, and lost with its session before it was heard of.
                msg::FLOCK_GRANTED if mdt.session() != session => continue,
                msg::FLOCK_GRANTED => return Ok(Set { number, change: flocked.change, session }),
                // The MDT has restarted since.
                msg::FLOCK_UNKNOWN if number != 0 => continue,
                msg::FLOCK_CONFLICT => Code::WouldBlock,
                msg::FLOCK_DEADLOCK => Code::Deadlock,
                msg::FLOCK_CANCELLED => Code::Interrupted,
                msg::FLOCK_NO_LOCKS => Code::NoLocks,
                _ => Code::Malformed,
            };
            self.known(number);
            return Err(Error::Refused(code));
        }
    }

    /// A request is over that nobody waits for.
    async fn undo(&self, outcome: Outcome, busy: Busy) {
        let place = busy.place;
        match outcome {
            Ok(Set { number, .. }) if number != 0 => self.cancel(place, number).await,
            _ => {}
        }
        drop(busy);
        self.undone(place);
    }

    /// Ends a request; the owner has what it had before.
    async fn cancel(&self, place: Place, number: u64) {
        let cancelled = match self.targets.mdt_of(place.fid) {
            Ok(mdt) => mdt.call(FlockCancel { wait: number }).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = cancelled {
            tracing::debug!(fid = %place.fid, %error, "a lock request was not cancelled");
        }
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        {
            let mut inner = self.flocks.inner.lock();
            if let Some(count) = inner.releasing.get_mut(&self.fid) {
                *count -= 1;
                if *count == 0 {
                    inner.releasing.remove(&self.fid);
                }
            }
        }
        self.flocks.over.notify_waiters();
    }
}

/// Every lock of a file.
fn locks_of(fid: Fid) -> RangeInclusive<Place> {
    Place { fid, kind: Kind::Posix, owner: 0 }..=Place { fid, kind: Kind::Flock, owner: u64::MAX }
}

/// The files that are locked for one owner alone.
fn written_under(locks: &[KeptLock]) -> BTreeSet<Fid> {
    locks.iter().filter(|lock| lock.mode == Mode::Write).map(|lock| lock.place.fid).collect()
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Posix => msg::FLOCK_POSIX,
        Kind::Flock => msg::FLOCK_WHOLE,
    }
}

fn mode_number(mode: Option<Mode>) -> u8 {
    match mode {
        None => msg::FLOCK_UNLOCK,
        Some(Mode::Read) => msg::FLOCK_READ,
        Some(Mode::Write) => msg::FLOCK_WRITE,
    }
}
