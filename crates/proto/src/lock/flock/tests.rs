//! Cases as the manual tells them, and random operations against maps of bytes.

use rt::sim::Rng;

use super::*;

fn fid(oid: u32) -> Fid {
    Fid { seq: 0x2_0000_0400, oid, ver: 0 }
}

fn owner(number: u64) -> Owner {
    Owner { session: 1 + number / 2, number }
}

fn id(number: u64) -> WaitId {
    WaitId { session: 1 + number / 100, number }
}

/// The range `[start, end)`.
fn range(start: u64, end: u64) -> Range {
    Range { start, end: end - 1 }
}

fn posix(by: u64, mode: Mode, start: u64, end: u64) -> Lock {
    let pid = 1000 + by as u32;
    Lock { fid: fid(1), owner: owner(by), kind: Kind::Posix, range: range(start, end), mode, pid }
}

fn flock(by: u64, mode: Mode) -> Lock {
    Lock { kind: Kind::Flock, range: Range::ALL, ..posix(by, mode, 0, 1) }
}

fn is_granted(state: State) -> bool {
    matches!(state, State::Granted(_))
}

fn refusal(state: State) -> Option<Refusal> {
    match state {
        State::Refused(refusal, _) => Some(refusal),
        _ => None,
    }
}

/// The locks of an owner as text: `R0-9 W10-19`.
fn shown(flocks: &Flocks, by: u64) -> String {
    let spans = flocks.files.get(&fid(1)).and_then(|file| file.posix.get(&owner(by)));
    let show = |span: &Span| {
        let mode = if span.mode == Mode::Read { "R" } else { "W" };
        format!("{mode}{}-{}", span.range.start, span.range.end)
    };
    spans.map(|spans| spans.iter().map(show).collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

use Mode::{Read, Write};

#[test]
fn ranges_split_and_merge() {
    let mut flocks = Flocks::new(0);
    let mut set = |lock: Lock| {
        assert!(is_granted(flocks.set(&lock)));
        shown(&flocks, 0)
    };
    assert_eq!(set(posix(0, Write, 0, 100)), "W0-99");
    assert_eq!(set(posix(0, Read, 40, 60)), "W0-39 R40-59 W60-99");
    assert_eq!(set(posix(0, Read, 60, 70)), "W0-39 R40-69 W70-99");
    assert_eq!(set(posix(0, Read, 30, 40)), "W0-29 R30-69 W70-99");
    assert_eq!(set(posix(0, Write, 20, 80)), "W0-99");
    assert_eq!(set(posix(0, Write, 100, 101)), "W0-100");
    assert!(is_granted(flocks.unlock(fid(1), owner(0), Kind::Posix, range(10, 20))));
    assert_eq!(shown(&flocks, 0), "W0-9 W20-100");
    let tail = Range { start: 90, end: u64::MAX };
    assert!(is_granted(flocks.set(&Lock { range: tail, ..posix(0, Write, 0, 1) })));
    assert_eq!(shown(&flocks, 0), format!("W0-9 W20-{}", u64::MAX));
    assert!(is_granted(flocks.unlock(fid(1), owner(0), Kind::Posix, Range::ALL)));
    assert_eq!((flocks.counts(), flocks.files.len(), flocks.sessions.len()), ((0, 0), 0, 0));
}

#[test]
fn a_lock_that_is_changed_to_read_lets_waiting_readers_in_at_once() {
    let mut flocks = Flocks::new(0);
    flocks.set(&posix(0, Write, 0, 100));
    assert_eq!(flocks.set_or_wait(&posix(2, Read, 10, 20), id(1)), State::Waiting);
    assert_eq!(flocks.set_or_wait(&posix(4, Read, 60, 70), id(2)), State::Waiting);
    assert_eq!(flocks.set_or_wait(&posix(6, Write, 10, 20), id(3)), State::Waiting);
    assert!(is_granted(flocks.set(&posix(0, Read, 0, 50))));
    assert_eq!(
        flocks.take_settled(),
        [id(1)],
        "who waits for the part that stays goes on waiting, and writers too"
    );
    assert_eq!(shown(&flocks, 0), "R0-49 W50-99");
    assert!(is_granted(flocks.set(&posix(0, Read, 0, 100))));
    assert_eq!(flocks.take_settled(), [id(2)]);
    flocks.unlock(fid(1), owner(0), Kind::Posix, Range::ALL);
    flocks.unlock(fid(1), owner(2), Kind::Posix, Range::ALL);
    assert_eq!(flocks.take_settled(), [id(3)]);
}

#[test]
fn a_posix_lock_stays_while_its_change_waits_and_a_flock_does_not() {
    let mut flocks = Flocks::new(0);
    for by in [0, 2] {
        assert!(is_granted(flocks.set(&posix(by, Read, 0, 10))));
        assert!(is_granted(flocks.set(&flock(by, Read))));
    }
    assert_eq!(flocks.set_or_wait(&posix(0, Write, 0, 10), id(1)), State::Waiting);
    assert_eq!(refusal(flocks.set(&posix(4, Write, 0, 10))), Some(Refusal::Conflict));
    let both = flocks.set_or_wait(&posix(2, Write, 0, 10), id(100));
    assert_eq!(refusal(both), Some(Refusal::Deadlock), "each would wait for what the other one keeps");
    assert_eq!(flocks.set_or_wait(&flock(0, Write), id(2)), State::Waiting);
    assert_eq!(flocks.set_or_wait(&flock(4, Write), id(3)), State::Waiting);
    assert_eq!(refusal(flocks.set(&flock(6, Write))), Some(Refusal::Conflict));
    assert!(
        is_granted(flocks.set(&flock(2, Write))),
        "the other reader gave its own up before it began to wait"
    );
    assert!(flocks.take_settled().is_empty());
    flocks.unlock(fid(1), owner(2), Kind::Flock, Range::ALL);
    assert_eq!(flocks.take_settled(), [id(2)]);
}

#[test]
fn a_refused_change_of_a_flock_loses_it() {
    let mut flocks = Flocks::new(0);
    for by in [0, 2] {
        assert!(is_granted(flocks.set(&flock(by, Read))));
    }
    assert_eq!(flocks.set_or_wait(&flock(4, Write), id(1)), State::Waiting);
    assert_eq!(refusal(flocks.set(&flock(0, Write))), Some(Refusal::Conflict));
    flocks.unlock(fid(1), owner(2), Kind::Flock, Range::ALL);
    assert_eq!(flocks.take_settled(), [id(1)]);
}

#[test]
fn the_first_obstacle_is_told() {
    let mut flocks = Flocks::new(0);
    flocks.set(&posix(0, Read, 50, 60));
    flocks.set(&posix(2, Write, 10, 20));
    flocks.set(&posix(4, Read, 5, 8));
    let found = flocks.test(&posix(6, Write, 6, 100)).expect("three are in the way");
    assert_eq!(
        (found.owner, found.span.range, found.span.mode, found.span.pid),
        (owner(4), range(5, 8), Read, 1004)
    );
    let found = flocks.test(&posix(6, Read, 0, 100)).expect("the writer is in the way");
    assert_eq!(found.owner, owner(2));
    assert_eq!(flocks.test(&posix(2, Read, 0, 50)), None);
    assert_eq!(flocks.test(&flock(6, Write)), None);
}

#[test]
fn a_circle_over_files_and_clients_is_refused() {
    let mut flocks = Flocks::new(0);
    let at = |file, lock: Lock| Lock { fid: fid(file), ..lock };
    for n in 0..3 {
        assert!(is_granted(flocks.set(&at(n, posix(u64::from(n) * 2, Write, 0, 1)))));
    }
    assert_eq!(flocks.set_or_wait(&at(1, posix(0, Read, 0, 9)), id(1)), State::Waiting);
    assert_eq!(flocks.set_or_wait(&at(2, posix(2, Read, 0, 9)), id(2)), State::Waiting);
    let closing = flocks.set_or_wait(&at(0, posix(4, Read, 0, 9)), id(3));
    assert_eq!(refusal(closing), Some(Refusal::Deadlock));
    assert_eq!(
        refusal(flocks.set(&at(0, posix(4, Read, 0, 9)))),
        Some(Refusal::Conflict),
        "who does not wait may ask"
    );
    flocks.unlock(fid(2), owner(4), Kind::Posix, Range::ALL);
    assert_eq!(flocks.take_settled(), [id(2)]);
}

#[test]
fn a_grant_to_an_owner_that_waits_elsewhere_may_close_a_circle() {
    let mut flocks = Flocks::new(0);
    let other = |lock: Lock| Lock { fid: fid(2), ..lock };
    flocks.set(&posix(0, Write, 0, 10));
    flocks.set(&other(posix(4, Write, 0, 10)));
    assert_eq!(flocks.set_or_wait(&other(posix(0, Write, 0, 20)), id(1)), State::Waiting);
    // One thread of owner 2 waits for owner 0, and another one takes what owner 0 waits for.
    assert_eq!(flocks.set_or_wait(&posix(2, Write, 0, 10), id(2)), State::Waiting);
    assert!(is_granted(flocks.set(&other(posix(2, Write, 10, 20)))));
    assert_eq!(flocks.take_settled(), [id(1)]);
    assert_eq!(flocks.state(id(1)).and_then(refusal), Some(Refusal::Deadlock));
}

#[test]
fn a_cancelled_grant_gives_back_what_was_there_before() {
    let mut flocks = Flocks::new(0);
    flocks.set(&posix(0, Read, 0, 10));
    flocks.set(&posix(2, Read, 0, 10));
    assert_eq!(flocks.set_or_wait(&posix(0, Write, 5, 20), id(1)), State::Waiting);
    assert_eq!(flocks.cancel(id(1)), State::Refused(Refusal::Cancelled, 2));
    assert_eq!(flocks.counts(), (2, 0));
    assert_eq!(flocks.set_or_wait(&posix(0, Write, 5, 20), id(2)), State::Waiting);
    flocks.unlock(fid(1), owner(2), Kind::Posix, Range::ALL);
    assert_eq!(shown(&flocks, 0), "R0-4 W5-19");
    assert_eq!(flocks.set_or_wait(&posix(2, Read, 0, 20), id(3)), State::Waiting);
    assert_eq!(refusal(flocks.cancel(id(2))), Some(Refusal::Cancelled));
    assert_eq!((shown(&flocks, 0).as_str(), shown(&flocks, 2).as_str()), ("R0-9", "R0-19"));
    assert_eq!(flocks.state(id(2)), None);
    assert!(is_granted(flocks.set_or_wait(&posix(0, Write, 30, 40), id(4))));
    assert_eq!(
        refusal(flocks.cancel(id(4))),
        Some(Refusal::Cancelled),
        "granted at once, and not wanted any more"
    );
    assert_eq!(shown(&flocks, 0), "R0-9");
    flocks.known(id(3));
    assert_eq!((flocks.waits.len(), flocks.state(id(3))), (0, None));
}

#[test]
fn the_end_of_a_session_frees_all() {
    let mut flocks = Flocks::new(0);
    flocks.set(&posix(0, Write, 0, 10));
    flocks.set(&posix(1, Write, 10, 20));
    flocks.set(&flock(1, Write));
    assert_eq!(flocks.set_or_wait(&posix(2, Read, 0, 20), id(100)), State::Waiting);
    assert_eq!(flocks.set_or_wait(&flock(2, Read), id(101)), State::Waiting);
    flocks.set(&posix(3, Write, 30, 40));
    assert_eq!(flocks.set_or_wait(&posix(0, Read, 30, 31), id(5)), State::Waiting);
    flocks.end_session(1);
    let settled = flocks.take_settled();
    assert!([id(5), id(100), id(101)].iter().all(|id| settled.contains(id)), "{settled:?}");
    assert_eq!(flocks.state(id(5)), None);
    flocks.end_session(2);
    assert_eq!((flocks.counts(), flocks.files.len(), flocks.sessions.len()), ((0, 0), 0, 0));
    assert!(flocks.waits.is_empty() && flocks.blocked.is_empty());
}

#[test]
fn locks_and_requests_have_limits() {
    let mut flocks = Flocks::new(0);
    for n in 0..LOCKS_PER_FILE_MAX as u64 {
        assert!(is_granted(flocks.set(&posix(n % 8, Write, n * 4, n * 4 + 2))));
    }
    let next = posix(0, Write, 1 << 40, (1 << 40) + 1);
    assert_eq!(refusal(flocks.set(&next)), Some(Refusal::NoLocks));
    assert_eq!(refusal(flocks.unlock(fid(1), owner(0), Kind::Posix, range(0, 1))), None, "nothing is split");
    let whole = Lock { range: range(32, 34), ..next };
    assert!(is_granted(flocks.set(&whole)), "it is locked already");
    assert!(is_granted(flocks.unlock(fid(1), owner(0), Kind::Posix, Range::ALL)));
    for n in 0..WAITS_PER_SESSION_MAX as u64 {
        let id = WaitId { session: 9, number: n };
        assert_eq!(flocks.set_or_wait(&posix(0, Read, 4, 5), id), State::Waiting);
    }
    let id = WaitId { session: 9, number: u64::MAX };
    assert_eq!(refusal(flocks.set_or_wait(&posix(0, Read, 4, 5), id)), Some(Refusal::NoLocks));
}

const BYTES: u64 = 24;
const OWNERS: u64 = 4;
const FILES: u32 = 2;

/// What each owner has on each byte of each file, and who waits: the oracle, as naive as can be.
#[derive(Default)]
struct Oracle {
    posix: BTreeMap<(u32, u64, u64), Mode>,
    flock: BTreeMap<(u32, u64), Mode>,
    queue: Vec<(WaitId, u32, Lock)>,
    known: BTreeMap<WaitId, Option<Refusal>>,
}

impl Oracle {
    fn blockers(&self, file: u32, lock: &Lock) -> BTreeSet<u64> {
        let by = lock.owner.number;
        (0..OWNERS)
            .filter(|other| *other != by)
            .filter(|other| {
                let conflicts = |mode: Option<&Mode>| mode.is_some_and(|m| *m == Write || lock.mode == Write);
                match lock.kind {
                    Kind::Flock => conflicts(self.flock.get(&(file, *other))),
                    Kind::Posix => (lock.range.start..=lock.range.end)
                        .any(|byte| conflicts(self.posix.get(&(file, *other, byte)))),
                }
            })
            .collect()
    }

    fn put(&mut self, file: u32, lock: &Lock, mode: Option<Mode>) {
        let by = lock.owner.number;
        match (lock.kind, mode) {
            (Kind::Flock, Some(mode)) => drop(self.flock.insert((file, by), mode)),
            (Kind::Flock, None) => drop(self.flock.remove(&(file, by))),
            (Kind::Posix, mode) => {
                for byte in lock.range.start..=lock.range.end {
                    match mode {
                        Some(mode) => self.posix.insert((file, by, byte), mode),
                        None => self.posix.remove(&(file, by, byte)),
                    };
                }
            }
        }
    }

    /// Whether `from` waits for `to`, along the arrows.
    fn waits_for(&self, from: u64, to: u64) -> bool {
        let mut seen = BTreeSet::from([from]);
        loop {
            let next: BTreeSet<u64> = self
                .queue
                .iter()
                .filter(|(_, _, lock)| lock.kind == Kind::Posix && seen.contains(&lock.owner.number))
                .flat_map(|(_, file, lock)| self.blockers(*file, lock))
                .collect();
            if next.contains(&to) {
                return true;
            }
            let before = seen.len();
            seen.extend(next);
            if seen.len() == before {
                return false;
            }
        }
    }

    /// Refuses whom a grant to `by` has put into a circle.
    fn break_circles(&mut self, file: u32, granted: &Lock) {
        let by = granted.owner.number;
        for (id, at, lock) in self.queue.clone() {
            let new = at == file && lock.kind == Kind::Posix && granted.kind == Kind::Posix;
            let faces = lock.range.overlaps(granted.range) && (lock.mode == Write || granted.mode == Write);
            if new && lock.owner.number != by && faces && self.waits_for(by, lock.owner.number) {
                self.queue.retain(|(other, _, _)| *other != id);
                self.known.insert(id, Some(Refusal::Deadlock));
            }
        }
    }

    fn wake(&mut self) {
        loop {
            let mut granted = false;
            for (id, file, lock) in self.queue.clone() {
                if self.queue.iter().any(|(other, _, _)| *other == id)
                    && self.blockers(file, &lock).is_empty()
                {
                    self.queue.retain(|(other, _, _)| *other != id);
                    self.put(file, &lock, Some(lock.mode));
                    self.known.insert(id, None);
                    self.break_circles(file, &lock);
                    granted = true;
                }
            }
            if !granted {
                return;
            }
        }
    }

    fn set(&mut self, file: u32, lock: &Lock, wait: Option<WaitId>) -> Result<bool, Refusal> {
        if lock.kind == Kind::Flock && self.flock.get(&(file, lock.owner.number)) != Some(&lock.mode) {
            self.put(file, lock, None);
        }
        let blockers = self.blockers(file, lock);
        let outcome = if blockers.is_empty() {
            self.put(file, lock, Some(lock.mode));
            self.break_circles(file, lock);
            Ok(true)
        } else {
            let circle = || blockers.iter().any(|other| self.waits_for(*other, lock.owner.number));
            match wait {
                None => Err(Refusal::Conflict),
                Some(_) if lock.kind == Kind::Posix && circle() => Err(Refusal::Deadlock),
                Some(_) => Ok(false),
            }
        };
        self.wake();
        if let (Ok(false), Some(id)) = (outcome, wait) {
            self.queue.push((id, file, *lock));
        }
        outcome
    }
}

fn check_same(flocks: &Flocks, oracle: &Oracle) {
    for file in 0..FILES {
        for by in 0..OWNERS {
            let known = flocks.files.get(&fid(file));
            let spans = known.and_then(|file| file.posix.get(&owner(by)));
            let mut bytes = [None; BYTES as usize];
            for span in spans.into_iter().flat_map(Spans::iter) {
                (span.range.start..=span.range.end).for_each(|byte| bytes[byte as usize] = Some(span.mode));
            }
            for (byte, mode) in bytes.iter().enumerate() {
                assert_eq!(*mode, oracle.posix.get(&(file, by, byte as u64)).copied(), "byte {byte} of {by}");
            }
            let merged = spans.map(|spans| spans.iter().copied().collect::<Vec<_>>()).unwrap_or_default();
            let apart =
                |pair: &[Span]| pair[0].range.end + 1 < pair[1].range.start || pair[0].mode != pair[1].mode;
            assert!(merged.windows(2).all(apart), "neighbours are merged: {merged:?}");
            let flock = known.and_then(|file| file.flock.get(&owner(by))).and_then(|s| s.iter().next());
            assert_eq!(flock.map(|span| span.mode), oracle.flock.get(&(file, by)).copied());
        }
    }
    let count: usize = flocks
        .files
        .values()
        .map(|f| f.posix.values().chain(f.flock.values()).map(|spans| spans.iter().count()).sum::<usize>())
        .sum();
    assert_eq!(flocks.counts(), (count, oracle.queue.len()));
    let of_sessions: usize = flocks.sessions.values().map(|session| session.locks).sum();
    assert_eq!(of_sessions, count);
    for by in 0..OWNERS {
        assert!(!oracle.waits_for(by, by), "nobody waits for itself");
    }
}

/// How often requests were refused, waited, and would have closed a circle.
#[derive(Default)]
struct Counts {
    refused: u32,
    waited: u32,
    circles: u32,
}

impl Counts {
    fn count(&mut self, got: Result<bool, Refusal>) {
        match got {
            Ok(granted) => self.waited += u32::from(!granted),
            Err(Refusal::Conflict) => self.refused += 1,
            Err(_) => self.circles += 1,
        }
    }
}

/// Whoever is in the way of the first that waits lets go, or that one gives up.
fn help_the_first(flocks: &mut Flocks, oracle: &mut Oracle, give_up: bool) {
    let Some((id, file, lock)) = oracle.queue.first().copied() else { return };
    if give_up {
        assert_eq!(refusal(flocks.cancel(id)), Some(Refusal::Cancelled));
        oracle.queue.remove(0);
        return;
    }
    for other in oracle.blockers(file, &lock) {
        let other = Lock { owner: owner(other), ..lock };
        flocks.unlock(lock.fid, other.owner, other.kind, lock.range);
        oracle.put(file, &other, None);
        oracle.wake();
    }
}

#[test]
fn random_operations_do_what_maps_of_bytes_do() {
    (1..=20).for_each(random_operations);
}

fn random_operations(seed: u64) {
    let mut random = Rng::new(seed);
    let (mut flocks, mut oracle) = (Flocks::new(0), Oracle::default());
    let mut counts = Counts::default();
    for step in 0..30_000u64 {
        let (file, by) = (random.below(u64::from(FILES)) as u32, random.below(OWNERS));
        let start = random.below(BYTES);
        let end = start + 1 + random.below(BYTES - start);
        let mode = if random.below(2) == 0 { Read } else { Write };
        let base = if random.below(5) == 0 { flock(by, mode) } else { posix(by, mode, start, end) };
        let lock = Lock { fid: fid(file), ..base };
        let wait = (oracle.queue.len() < 6 && random.below(2) == 0)
            .then_some(WaitId { session: owner(by).session, number: step });
        match random.below(10) {
            0..=5 => {
                let state = match wait {
                    Some(id) => flocks.set_or_wait(&lock, id),
                    None => flocks.set(&lock),
                };
                let expected = oracle.set(file, &lock, wait);
                let got = match state {
                    State::Granted(_) => Ok(true),
                    State::Waiting => Ok(false),
                    State::Refused(refusal, _) => Err(refusal),
                };
                assert_eq!(got, expected, "seed {seed}, step {step}: {lock:?}");
                counts.count(got);
                if got == Ok(true) {
                    wait.into_iter().for_each(|id| flocks.known(id));
                }
            }
            6..=7 => {
                flocks.unlock(lock.fid, lock.owner, lock.kind, lock.range);
                oracle.put(file, &lock, None);
                oracle.wake();
            }
            8 => {
                let blockers = oracle.blockers(file, &lock);
                let found = flocks.test(&lock);
                assert_eq!(found.is_some(), !blockers.is_empty());
                assert!(found.is_none_or(|found| blockers.contains(&found.owner.number)));
            }
            _ => help_the_first(&mut flocks, &mut oracle, random.below(2) == 0),
        }
        let settled: BTreeSet<WaitId> = flocks.take_settled().into_iter().collect();
        assert_eq!(settled, oracle.known.keys().copied().collect(), "seed {seed}, step {step}");
        for (id, refused) in std::mem::take(&mut oracle.known) {
            assert_eq!(flocks.state(id).and_then(refusal), refused, "seed {seed}, step {step}");
            counts.circles += u32::from(refused == Some(Refusal::Deadlock));
            flocks.known(id);
        }
        if step % 4 == 0 {
            check_same(&flocks, &oracle);
        }
    }
    assert!(counts.refused > 500 && counts.waited > 500 && counts.circles > 50);
    (1..=OWNERS).for_each(|session| flocks.end_session(session));
    assert_eq!((flocks.counts(), flocks.files.len(), flocks.sessions.len()), ((0, 0), 0, 0));
    assert!(flocks.waits.is_empty() && flocks.blocked.is_empty());
}

#[test]
fn a_client_knows_its_locks_in_whatever_order_it_hears_of_them() {
    let mut random = Rng::new(11);
    for _ in 0..2000 {
        let place = Place { fid: fid(1), kind: Kind::Posix, owner: 5 };
        let mut kept = Kept::default();
        let mut changes: Vec<(Range, Option<(Mode, u32)>)> = Vec::new();
        let mut bytes = [None; BYTES as usize];
        let mut requests = Vec::new();
        for n in 0..8 {
            let start = random.below(BYTES);
            let end = start + 1 + random.below(BYTES - start);
            let lock = [None, Some((Read, 7)), Some((Write, 8))][random.below(3) as usize];
            (start..end).for_each(|byte| bytes[byte as usize] = lock);
            changes.push((range(start, end), lock));
            requests.push(kept.begin(place, changes[n].0, lock.map(|(mode, _)| mode)));
        }
        let mut order: Vec<usize> = (0..changes.len()).collect();
        (1..order.len()).for_each(|n| order.swap(n, random.below(n as u64 + 1) as usize));
        for n in order {
            let (range, lock) = changes[n];
            kept.change(place, range, lock, n as u64 + 1);
            kept.end(place, requests[n]);
        }
        let mut heard = [None; BYTES as usize];
        for lock in kept.locks() {
            (lock.range.start..=lock.range.end)
                .for_each(|byte| heard[byte as usize] = Some((lock.mode, lock.pid)));
        }
        assert_eq!(heard, bytes);
        assert_eq!(kept.has(place), bytes.iter().any(Option::is_some));
    }
}

/// The locks of an owner who has `held`, when the MDT restarts while it asks for `asked`.
fn stated(kind: Kind, held: &[(Range, Mode)], asked: &[(Range, Option<Mode>)]) -> Vec<(Range, Mode)> {
    let place = Place { fid: fid(1), kind, owner: 5 };
    let mut kept = Kept::default();
    for (n, (range, mode)) in (1..).zip(held) {
        let number = kept.begin(place, *range, Some(*mode));
        kept.change(place, *range, Some((*mode, 7)), n);
        kept.end(place, number);
    }
    let requests: Vec<u64> = asked.iter().map(|(range, mode)| kept.begin(place, *range, *mode)).collect();
    kept.give_up_doubtful();
    let left = kept.locks();
    kept.give_up_doubtful();
    assert_eq!(kept.locks(), left, "what is certain stays so");
    requests.iter().for_each(|number| kept.end(place, *number));
    assert_eq!(kept.locks(), left, "a request that was refused brings nothing back");
    assert_eq!(kept.has(place), !left.is_empty());
    assert!(left.iter().all(|lock| lock.place == place && lock.pid == 7));
    left.iter().map(|lock| (lock.range, lock.mode)).collect()
}

#[test]
fn a_client_does_not_state_what_it_is_giving_up() {
    let state = |held: &[(Range, Mode)], asked: &[(Range, Option<Mode>)]| stated(Kind::Posix, held, asked);
    let held = [(range(0, 10), Write), (range(20, 30), Read)];
    assert_eq!(state(&held, &[]), held);
    assert_eq!(state(&held, &[(Range::ALL, None)]), []);
    assert_eq!(
        state(&held, &[(range(3, 25), None)]),
        [(range(0, 3), Write), (range(25, 30), Read)],
        "an unlock takes its range"
    );
    assert_eq!(
        state(&held, &[(range(5, 25), Some(Read))]),
        [(range(0, 5), Write), (range(5, 10), Read), (range(20, 25), Read), (range(25, 30), Read)],
        "who asks for less has less"
    );
    assert_eq!(state(&held, &[(Range::ALL, Some(Write))]), held, "who asks for more has what it had");
    let both = [(range(5, 8), Some(Read)), (range(7, 10), None), (range(0, 10), Some(Write))];
    let left = [(range(0, 5), Write), (range(5, 7), Read), (range(20, 30), Read)];
    assert_eq!(state(&held, &both), left);
}

#[test]
fn a_client_does_not_state_a_flock_that_is_being_changed() {
    let state = |held, asked: &[Option<Mode>]| {
        let asked: Vec<_> = asked.iter().map(|mode| (Range::ALL, *mode)).collect();
        stated(Kind::Flock, &[(Range::ALL, held)], &asked).first().map(|(_, mode)| *mode)
    };
    assert_eq!(state(Read, &[Some(Read)]), Some(Read));
    assert_eq!(state(Write, &[Some(Write)]), Some(Write));
    assert_eq!(state(Write, &[None]), None);
    assert_eq!(state(Read, &[Some(Write)]), None, "it goes before the other one is decided");
    // It is granted for certain: nobody else has anything.
    assert_eq!(state(Write, &[Some(Read)]), Some(Read));
    assert_eq!(state(Write, &[Some(Write), Some(Read)]), None, "they come in any order");
    assert_eq!(state(Write, &[Some(Read), Some(Write)]), None);
}
