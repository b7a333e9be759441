//! Flock, FlockWait, FlockCancel, FlockTest: locks that applications take on files.

use std::time::Duration;

use proto::lock::flock::{Lock, Mode, Owner, Range, Refusal, State, WaitId};
use proto::wire::Reply;
use proto::wire::messages::{
    self as msg, Flock, FlockCancel, FlockHeld, FlockTest, FlockWait, Flocked, RestateFlocks,
};
use proto::{Code, Fid};
use service::Done;
use smallvec::SmallVec;

use crate::mdt::flocks::{Asked, kind};
use crate::mdt::plan::Step;
use crate::mdt::{Ctx, Mdt, Outcome};

/// How long a FlockWait is kept: a connection that says nothing for longer is taken for dead.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Clients that one request asks whether they are about to unlock what it wants.
const HOLDERS_ASKED_MAX: usize = 16;

/// What a message says about a lock.
struct Said {
    fid: Fid,
    owner: u64,
    pid: u32,
    kind: u8,
    start: u64,
    end: u64,
}

impl Said {
    fn lock(self, ctx: &Ctx, mode: Mode) -> Result<Lock, Code> {
        let Said { fid, owner, pid, kind: number, start, end } = self;
        let owner = Owner { session: ctx.session().handle(), number: owner };
        let range = Range::new(start, end).ok_or(Code::Invalid)?;
        let kind = kind(number)?;
        if kind == proto::lock::flock::Kind::Flock && range != Range::ALL {
            return Err(Code::Invalid);
        }
        Ok(Lock { fid, owner, kind, range, mode, pid })
    }
}

/// A lock that others have is refused only when their clients have nothing to unlock: the kernel tells of the last close
/// of a file after close(2) has returned.
pub(in crate::mdt) async fn flock(mdt: &Mdt, ctx: &Ctx<'_>, request: &Flock) -> Outcome {
    let mut asked: SmallVec<[u64; 4]> = SmallVec::new();
    loop {
        let (flocked, holder) = try_flock(mdt, ctx, request)?;
        let holder = holder.filter(|holder| !asked.contains(holder) && asked.len() < HOLDERS_ASKED_MAX);
        let Some(holder) = holder.filter(|_| flocked.state == msg::FLOCK_CONFLICT) else {
            return Ok(Done::unchanged(Reply::Flock(flocked)));
        };
        asked.push(holder);
        mdt.grants.revoker.settle_closes(holder, request.fid).await;
    }
}

/// The outcome, and the session of another client that has a lock which is in the way.
fn try_flock(mdt: &Mdt, ctx: &Ctx<'_>, request: &Flock) -> Step<(Flocked, Option<u64>)> {
    let Flock { fid, owner, pid, kind, start, end, .. } = *request;
    let said = Said { fid, owner, pid, kind, start, end };
    let session = ctx.session().handle();
    mdt.flocks.known(session, &request.known);
    let (state, change, holder) = match request.mode {
        msg::FLOCK_UNLOCK => (mdt.flocks.unlock(&said.lock(ctx, Mode::Read)?), 0, None),
        number => {
            let lock = said.lock(ctx, mode(number)?)?;
            mdt.names.inode(ctx, fid)?;
            let number = request.wait;
            let wait = (number != 0).then_some(WaitId { session, number });
            let (state, change) = mdt.flocks.set(&lock, wait)?;
            let holder = mdt.flocks.test(&lock).map(|found| found.owner.session);
            (state, change, holder.filter(|holder| *holder != session))
        }
    };
    let mut flocked = flocked(Some(state));
    flocked.change = flocked.change.max(change);
    Ok((flocked, holder))
}

/// What was granted before a restart is granted again before anybody else asks for anything.
pub(in crate::mdt) fn restate_flocks(mdt: &Mdt, ctx: &Ctx, request: &RestateFlocks) -> Outcome {
    if !mdt.takes_restatements(ctx) {
        return Err(Code::Invalid.into());
    }
    for held in &request.locks {
        let FlockHeld { fid, owner, pid, kind, mode: number, start, end } = *held;
        let lock = Said { fid, owner, pid, kind, start, end }.lock(ctx, mode(number)?)?;
        if let (State::Refused(..), _) = mdt.flocks.set(&lock, None)? {
            tracing::error!(%fid, client = %ctx.session().client(), "a file lock is lost: another client has it");
        }
    }
    Ok(Done::unchanged(Reply::RestateFlocks(msg::Done {})))
}

pub(in crate::mdt) async fn flock_wait(mdt: &Mdt, ctx: &Ctx<'_>, request: &FlockWait) -> Outcome {
    let session = ctx.session().handle();
    mdt.flocks.known(session, &request.known);
    let id = WaitId { session, number: request.wait };
    let state = match mdt.flocks.ask(id) {
        Asked::Known(state) => state,
        Asked::Waiting(settled) => {
            let waited = mdt.stop.unless(mdt.rt.timeout(WAIT_MAX, settled)).await;
            match waited {
                None => return Err(Code::TryAgain.into()),
                // Somebody else asks for the same now, and is told.
                Some(Some(Err(_))) => Some(State::Waiting),
                Some(Some(Ok(()))) => mdt.flocks.state(id),
                Some(None) => {
                    for holder in mdt.flocks.in_the_way(id) {
                        mdt.grants.revoker.end_if_dead(holder).await;
                    }
                    mdt.flocks.state(id)
                }
            }
        }
    };
    Ok(Done::unchanged(Reply::FlockWait(flocked(state))))
}

pub(in crate::mdt) fn flock_cancel(mdt: &Mdt, ctx: &Ctx, request: &FlockCancel) -> Outcome {
    let id = WaitId { session: ctx.session().handle(), number: request.wait };
    Ok(Done::unchanged(Reply::FlockCancel(flocked(Some(mdt.flocks.cancel(id))))))
}

/// The lock in the way, unless it goes with a close.
pub(in crate::mdt) async fn flock_test(mdt: &Mdt, ctx: &Ctx<'_>, request: &FlockTest) -> Outcome {
    let FlockTest { fid, owner, kind, start, end, .. } = *request;
    let lock = Said { fid, owner, pid: 0, kind, start, end }.lock(ctx, mode(request.mode)?)?;
    let mut asked: SmallVec<[u64; 4]> = SmallVec::new();
    let mut found = mdt.flocks.test(&lock);
    while let Some(holder) = found.as_ref().map(|found| found.owner.session)
        && holder != ctx.session().handle()
        && !asked.contains(&holder)
        && asked.len() < HOLDERS_ASKED_MAX
    {
        asked.push(holder);
        mdt.grants.revoker.settle_closes(holder, fid).await;
        found = mdt.flocks.test(&lock);
    }
    let lock = found.map(|found| msg::FlockLock {
        start: found.span.range.start,
        end: found.span.range.end,
        mode: match found.span.mode {
            Mode::Read => msg::FLOCK_READ,
            Mode::Write => msg::FLOCK_WRITE,
        },
        pid: found.span.pid,
        own: found.owner.session == ctx.session().handle(),
    });
    Ok(Done::unchanged(Reply::FlockTest(msg::FlockFound { lock })))
}

fn mode(number: u8) -> Result<Mode, Code> {
    match number {
        msg::FLOCK_READ => Ok(Mode::Read),
        msg::FLOCK_WRITE => Ok(Mode::Write),
        _ => Err(Code::Invalid),
    }
}

/// A state as it travels.
fn flocked(state: Option<State>) -> Flocked {
    let (state, change) = match state {
        Some(State::Granted(change)) => (msg::FLOCK_GRANTED, change),
        Some(State::Waiting) => (msg::FLOCK_WAITING, 0),
        Some(State::Refused(Refusal::Conflict, change)) => (msg::FLOCK_CONFLICT, change),
        Some(State::Refused(Refusal::Deadlock, change)) => (msg::FLOCK_DEADLOCK, change),
        Some(State::Refused(Refusal::Cancelled, change)) => (msg::FLOCK_CANCELLED, change),
        Some(State::Refused(Refusal::NoLocks, change)) => (msg::FLOCK_NO_LOCKS, change),
        None => (msg::FLOCK_UNKNOWN, 0),
    };
    Flocked { state, change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{Client, Pending, World};
    use proto::wire::messages::*;

    /// A lock of the bytes `[start, end)`.
    fn posix(fid: Fid, owner: u64, mode: u8, start: u64, end: u64) -> Flock {
        let pid = 100 + owner as u32;
        let end = end - 1;
        Flock { fid, owner, pid, kind: FLOCK_POSIX, mode, start, end, wait: 0, known: vec![] }
    }

    fn whole(fid: Fid, owner: u64, mode: u8) -> Flock {
        Flock { kind: FLOCK_WHOLE, start: 0, end: u64::MAX, ..posix(fid, owner, mode, 0, 1) }
    }

    fn waiting(number: u64, flock: Flock) -> Flock {
        Flock { wait: number, ..flock }
    }

    fn set(client: &Client, flock: Flock) -> u8 {
        client.call(flock).map(|flocked| flocked.state).expect("the request makes sense")
    }

    fn ask(client: &Client, wait: u64) -> Pending {
        client.start(1000 + wait, FlockWait { wait, known: vec![] })
    }

    fn told(world: &World, pending: Pending) -> u8 {
        match world.sim.run(pending).result {
            Ok(Reply::FlockWait(flocked)) => flocked.state,
            other => panic!("a FlockWait is answered, not {other:?}"),
        }
    }

    #[test]
    fn a_lock_is_granted_kept_from_others_and_waited_for() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        assert_eq!(set(&a, posix(file, 7, FLOCK_WRITE, 0, 10)), FLOCK_GRANTED);
        assert_eq!(
            set(&b, posix(file, 7, FLOCK_READ, 9, 11)),
            FLOCK_CONFLICT,
            "owners of two clients are two"
        );
        assert_eq!(set(&b, posix(file, 7, FLOCK_READ, 10, 11)), FLOCK_GRANTED);
        assert_eq!(
            set(&b, whole(file, 7, FLOCK_WRITE)),
            FLOCK_GRANTED,
            "the two kinds do not see each other"
        );
        let test = |client: &Client, mode| {
            let test = FlockTest { fid: file, owner: 7, kind: FLOCK_POSIX, mode, start: 0, end: u64::MAX };
            client.call(test).expect("the request makes sense").lock
        };
        let found = FlockLock { start: 0, end: 9, mode: FLOCK_WRITE, pid: 107, own: false };
        assert_eq!(test(&b, FLOCK_READ), Some(found));
        assert_eq!(test(&a, FLOCK_READ), None);
        assert_eq!(set(&b, waiting(1, posix(file, 7, FLOCK_WRITE, 5, 20))), FLOCK_WAITING);
        let asked = ask(&b, 1);
        let again = ask(&b, 1);
        assert_eq!(told(&world, asked), FLOCK_WAITING, "the newer question is answered");
        assert_eq!(set(&a, posix(file, 7, FLOCK_UNLOCK, 0, 100)), FLOCK_GRANTED);
        assert_eq!(told(&world, again), FLOCK_GRANTED);
        assert_eq!(told(&world, ask(&b, 1)), FLOCK_GRANTED, "the answer may have been lost");
        b.call(Flock { known: vec![1], ..posix(file, 8, FLOCK_UNLOCK, 0, 1) })
            .expect("the request makes sense");
        assert_eq!(told(&world, ask(&b, 1)), FLOCK_UNKNOWN);
    }

    #[test]
    fn a_downgrade_lets_waiting_readers_in_at_once() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        let start = world.sim.rt("test").now();
        assert_eq!(set(&a, posix(file, 1, FLOCK_WRITE, 0, 100)), FLOCK_GRANTED);
        assert_eq!(set(&b, waiting(1, posix(file, 1, FLOCK_READ, 60, 70))), FLOCK_WAITING);
        assert_eq!(set(&b, waiting(2, posix(file, 2, FLOCK_READ, 10, 20))), FLOCK_WAITING);
        let (behind, within) = (ask(&b, 1), ask(&b, 2));
        assert_eq!(set(&a, posix(file, 1, FLOCK_READ, 0, 50)), FLOCK_GRANTED);
        assert_eq!(told(&world, within), FLOCK_GRANTED);
        assert!(world.sim.rt("test").now() - start < Duration::from_millis(100));
        assert_eq!(
            world.target.handler().flocks.counts().1,
            1,
            "who waits for the other part goes on waiting"
        );
        assert_eq!(set(&a, posix(file, 1, FLOCK_READ, 0, 100)), FLOCK_GRANTED);
        assert_eq!(told(&world, behind), FLOCK_GRANTED);
        assert!(world.sim.rt("test").now() - start < Duration::from_millis(100));
    }

    #[test]
    fn a_question_that_waits_long_is_answered_and_asked_again() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        assert_eq!(set(&a, whole(file, 1, FLOCK_WRITE)), FLOCK_GRANTED);
        assert_eq!(set(&b, waiting(1, whole(file, 1, FLOCK_READ))), FLOCK_WAITING);
        assert_eq!(told(&world, ask(&b, 1)), FLOCK_WAITING);
        let asked = ask(&b, 1);
        world.sim.run(world.target.close());
        assert_eq!(world.sim.run(asked).result.err(), Some(Code::TryAgain), "a stop does not wait for it");
    }

    #[test]
    fn two_clients_over_two_files_do_not_wait_in_a_circle() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let (f, g) = (a.file(Fid::ROOT, "f"), a.file(Fid::ROOT, "g"));
        assert_eq!(set(&a, posix(f, 1, FLOCK_WRITE, 0, 1)), FLOCK_GRANTED);
        assert_eq!(set(&b, posix(g, 1, FLOCK_WRITE, 0, 1)), FLOCK_GRANTED);
        assert_eq!(set(&a, waiting(1, posix(g, 1, FLOCK_WRITE, 0, 1))), FLOCK_WAITING);
        assert_eq!(set(&b, waiting(1, posix(f, 1, FLOCK_READ, 0, 1))), FLOCK_DEADLOCK);
        assert_eq!(set(&b, posix(g, 1, FLOCK_UNLOCK, 0, 1)), FLOCK_GRANTED);
        assert_eq!(told(&world, ask(&a, 1)), FLOCK_GRANTED);
    }

    #[test]
    fn the_end_of_a_session_frees_its_locks() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        assert_eq!(set(&a, posix(file, 1, FLOCK_WRITE, 0, 1)), FLOCK_GRANTED);
        assert_eq!(set(&a, whole(file, 1, FLOCK_WRITE)), FLOCK_GRANTED);
        assert_eq!(set(&a, waiting(5, posix(file, 2, FLOCK_WRITE, 0, 1))), FLOCK_WAITING);
        let own = ask(&a, 5);
        assert_eq!(set(&b, waiting(1, posix(file, 1, FLOCK_WRITE, 0, 1))), FLOCK_WAITING);
        let asked = ask(&b, 1);
        // Both questions reach the target.
        world.sim.run_for(Duration::from_millis(1));
        // The client comes back and knows nothing of its session.
        let again = world.connect(proto::ClientId(1), 0, 2).expect("a new session");
        assert_eq!(told(&world, asked), FLOCK_GRANTED);
        assert_eq!(told(&world, own), FLOCK_UNKNOWN);
        assert_eq!(set(&again, whole(file, 1, FLOCK_WRITE)), FLOCK_GRANTED);
        assert_eq!(world.target.handler().flocks.counts(), (2, 0));
    }

    #[test]
    fn an_interrupted_request_leaves_nothing() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        let cancel = |wait| b.call(FlockCancel { wait }).expect("a cancel is not refused").state;
        assert_eq!(set(&a, posix(file, 1, FLOCK_WRITE, 0, 10)), FLOCK_GRANTED);
        assert_eq!(set(&b, waiting(1, posix(file, 1, FLOCK_WRITE, 0, 10))), FLOCK_WAITING);
        assert_eq!(cancel(1), FLOCK_CANCELLED);
        assert_eq!(world.target.handler().flocks.counts(), (1, 0));
        assert_eq!(set(&b, waiting(2, posix(file, 1, FLOCK_WRITE, 0, 10))), FLOCK_WAITING);
        assert_eq!(set(&a, posix(file, 1, FLOCK_UNLOCK, 0, 10)), FLOCK_GRANTED);
        assert_eq!(cancel(2), FLOCK_CANCELLED, "granted while the cancel was on its way");
        assert_eq!(cancel(3), FLOCK_CANCELLED);
        assert_eq!(world.target.handler().flocks.counts(), (0, 0));
    }

    #[test]
    fn a_request_is_done_once() {
        let world = World::new();
        let a = world.client(1);
        let file = a.file(Fid::ROOT, "f");
        let xid = a.xid() + 1;
        let first = a.send(xid, posix(file, 1, FLOCK_WRITE, 0, 10));
        let again = a.send(xid, posix(file, 1, FLOCK_WRITE, 0, 10));
        assert_eq!(first.result, again.result);
        assert_eq!((first.transno.0, again.transno.0), (0, 0));
        a.skip_to(xid);
        assert_eq!(set(&a, posix(file, 1, FLOCK_UNLOCK, 0, 10)), FLOCK_GRANTED);
        assert_eq!(
            a.send(xid, posix(file, 1, FLOCK_WRITE, 0, 10)).result.err(),
            Some(Code::Invalid),
            "long ago"
        );
        assert_eq!(world.target.handler().flocks.counts(), (0, 0));
    }

    #[test]
    fn nonsense_is_refused() {
        let world = World::new();
        let a = world.client(1);
        let file = a.file(Fid::ROOT, "f");
        let lock = posix(file, 1, FLOCK_WRITE, 5, 6);
        let nonsense = [
            Flock { kind: 9, ..lock.clone() },
            Flock { mode: 9, ..lock.clone() },
            Flock { end: 4, ..lock.clone() },
            Flock { kind: FLOCK_WHOLE, ..lock.clone() },
        ];
        for request in nonsense {
            assert_eq!(a.call(request).err(), Some(Code::Invalid));
        }
        let Flock { fid, owner, pid, kind, mode, start, end, .. } = lock;
        let restated = RestateFlocks { locks: vec![FlockHeld { fid, owner, pid, kind, mode, start, end }] };
        assert_eq!(a.call(restated).err(), Some(Code::Invalid), "the target has not restarted");
        assert!(a.call(Flock { fid: a.new_fid(), ..lock }).is_err(), "no such file");
        assert_eq!(world.target.handler().flocks.counts(), (0, 0));
    }
}
