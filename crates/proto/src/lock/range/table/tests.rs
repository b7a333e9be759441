//! Ranges seen from outside: by scenarios, and by clients that behave at random (`model`).

mod model;

use super::*;
use crate::ids::Fid;
use crate::wire::messages::RangeRevoked;

const A: Holder = Holder(1);
const B: Holder = Holder(2);
const C: Holder = Holder(3);
const SECOND: u64 = 1_000_000_000;
/// Length of a record of IO500's ior-hard.
const RECORD: u64 = 47_008;

pub(super) fn object(oid: u32) -> ObjectId {
    ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }, stripe: 0 }
}

fn range(start: u64, end: u64) -> Range {
    Range { start, end }
}

/// A table with one object, and what happened to it.
struct World {
    table: Table,
    now: u64,
    next: u64,
    calls: Vec<Call>,
    reclaims: Vec<Reclaim>,
    answers: BTreeMap<u64, Answer>,
}

impl World {
    fn new() -> World {
        World::with(Settings::default())
    }

    fn with(settings: Settings) -> World {
        let table = Table::new(Arc::new(Numbers::new(1)), settings);
        World { table, now: 0, next: 0, calls: Vec::new(), reclaims: Vec::new(), answers: BTreeMap::new() }
    }

    fn ask(&mut self, holder: Holder, purpose: Purpose, write: bool, range: Range) -> u64 {
        self.next += 1;
        let ask = Ask { id: self.next, holder, purpose, mode: Mode::of(write), range };
        let answer = self.table.ask(self.now, object(1), ask);
        if answer != Answer::Wait {
            self.answers.insert(self.next, answer);
        }
        self.collect();
        self.next
    }

    fn collect(&mut self) {
        for output in self.table.take_outputs() {
            match output {
                Output::Granted { id, token, .. } => self.answers.insert(id, Answer::Granted(token)),
                Output::Contended { id, .. } => self.answers.insert(id, Answer::Contended),
                Output::Go { id, .. } => self.answers.insert(id, Answer::Go),
                Output::Call(call) => {
                    self.calls.push(call);
                    None
                }
                Output::Reclaim(reclaim) => {
                    self.reclaims.push(reclaim);
                    None
                }
            };
        }
    }

    fn write(&mut self, holder: Holder, start: u64, end: u64) -> u64 {
        self.ask(holder, Purpose::Hold, true, range(start, end))
    }

    fn read(&mut self, holder: Holder, start: u64, end: u64) -> u64 {
        self.ask(holder, Purpose::Hold, false, range(start, end))
    }

    /// Range of the granted token, and whether it may be changed.
    fn granted(&self, id: u64) -> Option<(u64, u64, bool)> {
        match self.answers.get(&id) {
            Some(Answer::Granted(token)) => Some((token.start, token.end, token.write)),
            _ => None,
        }
    }

    fn waits(&self, id: u64) -> bool {
        !self.answers.contains_key(&id)
    }

    /// The oldest callback is answered: this range was given up.
    fn answer(&mut self, start: u64, end: u64, kept_read: bool) {
        let call = self.calls.remove(0);
        self.table.answered(self.now, &call, RangeRevoked { start, end, kept_read, number: 0 });
        self.collect();
    }

    /// The oldest callback, as (who, from, to, whether reading may go on).
    fn called(&self) -> Option<(Holder, u64, u64, bool)> {
        self.calls.first().map(|call| (call.holder, call.range.start, call.range.end, call.keep_read))
    }

    fn end_use(&mut self, id: u64) {
        self.table.end_use(self.now, object(1), id);
        self.collect();
    }
}

#[test]
fn alone_a_client_is_given_everything() {
    let mut world = World::new();
    let id = world.write(A, 10, 20);
    assert_eq!(world.granted(id), Some((0, u64::MAX, true)));
    let id = world.read(A, 10, 20);
    assert_eq!(world.granted(id), Some((0, u64::MAX, true)), "what may be changed may be read");
    assert_eq!((world.table.ranges(), world.table.objects()), (1, 1));
    let all = ObjectRange { object: object(1), start: 0, end: u64::MAX, number: u64::MAX };
    world.table.cancelled(0, A, &all);
    assert_eq!((world.table.ranges(), world.table.objects(), world.table.sessions.len()), (0, 0, 0));
}

#[test]
fn readers_share_and_a_writer_calls_them_all_back() {
    let mut world = World::new();
    for holder in [A, B, C] {
        let id = world.read(holder, 0, 10);
        assert_eq!(world.granted(id), Some((0, u64::MAX, false)));
    }
    let id = world.write(A, 5, 8);
    assert!(world.waits(id));
    assert_eq!(world.called(), Some((B, 5, 8, false)));
    world.answer(5, 8, false);
    assert!(world.waits(id));
    assert_eq!(world.called(), Some((C, 5, 8, false)));
    world.answer(0, u64::MAX, false);
    assert_eq!(world.granted(id), Some((5, 8, true)), "others are there: no more than was asked for");
    assert!(world.table.holds(object(1), A, Mode::Read, Range::ALL), "what it could read it still can");
    assert!(!world.table.holds(object(1), B, Mode::Read, range(5, 6)));
}

#[test]
fn a_reader_lets_the_writer_go_on_reading() {
    let mut world = World::new();
    world.write(A, 0, 100);
    let id = world.read(B, 10, 20);
    assert_eq!(world.called(), Some((A, 10, 20, true)));
    world.answer(10, 50, true);
    assert_eq!(world.granted(id), Some((10, 20, false)));
    assert!(world.table.holds(object(1), A, Mode::Read, range(10, 50)));
    assert!(!world.table.holds(object(1), A, Mode::Write, range(10, 11)));
    assert!(world.table.holds(object(1), A, Mode::Write, range(50, u64::MAX)));
    let id = world.write(A, 12, 14);
    assert_eq!(world.called(), Some((B, 12, 14, false)), "its own right to read is not in its way");
    world.answer(10, 20, false);
    assert_eq!(world.granted(id), Some((12, 14, true)));
}

/// Two clients write every other record of a file, as ior-hard does, one each `nanos`. Gives the callbacks and the grants.
fn interleaved_records(nanos: u64) -> (u64, u64) {
    let mut world = World::new();
    let (mut calls, mut asked) = (0, 0);
    for record in 0..2000_u64 {
        world.now += nanos;
        let (start, end) = (record * RECORD, (record + 1) * RECORD);
        let holder = if record % 2 == 0 { A } else { B };
        if !world.table.holds(object(1), holder, Mode::Write, range(start, end)) {
            let id = world.write(holder, start, end);
            asked += 1;
            while let Some((of, ..)) = world.called() {
                assert_eq!(of, A, "only the first one was given more than it needs");
                calls += 1;
                world.answer(start, u64::MAX, false);
            }
            assert!(world.granted(id).is_some());
        }
    }
    (calls, asked)
}

#[test]
fn interleaved_records_cost_one_callback() {
    assert_eq!(interleaved_records(SECOND / 2000), (1, 2000));
    assert_eq!(interleaved_records(SECOND / 10), (1, 2000), "however long it takes");
}

#[test]
fn after_a_while_alone_grants_grow_again() {
    let mut world = World::new();
    world.write(A, 0, 100);
    let id = world.write(B, 100, 200);
    world.answer(100, u64::MAX, false);
    assert_eq!(world.granted(id), Some((100, 200, true)));
    let id = world.write(B, 200, 300);
    assert_eq!(world.granted(id), Some((100, 300, true)), "joined with what it has beside it");
    world.now += CONTENDED_NANOS;
    let id = world.write(B, 300, 400);
    assert_eq!(world.granted(id), Some((100, u64::MAX, true)));
}

#[test]
fn callbacks_to_one_grown_range_wait_for_what_the_first_brings() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let ids = [world.write(B, 10, 20), world.write(C, 30, 40)];
    assert_eq!(world.calls.len(), 1);
    world.answer(10, u64::MAX, false);
    assert!(ids.iter().all(|id| world.granted(*id).is_some()) && world.calls.is_empty());
    // What is left of it is used.
    world.write(B, 5, 6);
    world.write(C, 0, 1);
    assert_eq!(world.calls.len(), 2);
}

#[test]
fn a_byte_is_called_back_once_at_a_time() {
    let mut world = World::new();
    world.write(A, 0, 10);
    world.write(B, 20, 30);
    world.answer(10, u64::MAX, false);
    let ids = [world.read(B, 0, 6), world.read(C, 4, 10)];
    assert_eq!(world.calls.len(), 1);
    world.answer(0, 6, true);
    assert!(world.granted(ids[0]).is_some());
    assert_eq!(world.called(), Some((A, 6, 10, true)), "what is left of it");
    world.answer(6, 10, true);
    assert!(world.granted(ids[1]).is_some());
}

#[test]
fn who_waits_is_served_in_order() {
    let mut world = World::new();
    world.read(A, 0, 100);
    let writer = world.write(B, 0, 10);
    let reader = world.read(C, 5, 20);
    let far = world.read(C, 50, 60);
    assert!(world.waits(reader), "readers do not overtake a writer");
    assert_eq!(world.granted(far), Some((50, 60, false)), "who is not in its way goes");
    world.answer(0, 10, false);
    assert_eq!(world.granted(writer), Some((0, 10, true)));
    assert_eq!(world.called(), Some((B, 5, 10, true)));
    world.answer(5, 10, true);
    assert!(world.granted(reader).is_some());
}

#[test]
fn numbers_tell_the_old_from_the_new() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let waiting = world.write(B, 0, 10);
    let call = world.calls[0];
    world.answer(0, u64::MAX, false);
    assert!(world.granted(waiting).is_some());
    let again = world.write(A, 20, 30);
    assert!(world.granted(again).is_some());
    // The same answer comes again, and a cancel of long ago.
    world.table.answered(0, &call, RangeRevoked { start: 0, end: u64::MAX, kept_read: false, number: 0 });
    let old = ObjectRange { object: object(1), start: 0, end: u64::MAX, number: call.number };
    world.table.cancelled(0, A, &old);
    assert!(world.table.holds(object(1), A, Mode::Write, range(20, 30)));
    assert!(Numbers::new(2).draw() > call.number && Numbers::new(1).draw() <= call.number);
}

#[test]
fn what_is_granted_during_a_callback_is_called_back_too() {
    let mut world = World::new();
    world.write(A, 0, 10);
    world.write(B, 5, 6);
    let first = world.calls[0];
    // The client did not know of the grant yet, and asks again.
    let again = world.write(A, 0, 5);
    assert!(world.granted(again).is_some_and(|(_, end, _)| end == 5), "not over the range that B waits for");
    assert_eq!(world.calls, [first]);
}

/// Or the holder could keep what it is asked for by asking for it again and again.
#[test]
fn who_is_called_back_gets_no_new_number_for_it() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let b = world.read(B, 0, 5);
    let again = world.read(A, 0, 10);
    assert!(world.waits(again));
    world.answer(0, 5, false);
    assert!(world.granted(b).is_some() && world.granted(again).is_some());
}

#[test]
fn nothing_is_kept_that_a_writer_needs() {
    let mut world = World::new();
    world.read(A, 0, 10);
    let b = world.write(B, 0, 5);
    world.answer(0, 5, true);
    assert!(world.granted(b).is_some(), "whatever the client says");
}

#[test]
fn a_session_that_ends_lets_others_go_on() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let (b, c) = (world.write(B, 0, 10), world.write(C, 0, 10));
    world.table.drop_session(0, A);
    world.collect();
    assert!(world.granted(b).is_some() && world.waits(c));
    world.table.abandon(0, C, c);
    world.table.drop_session(0, B);
    world.collect();
    assert!(world.waits(c));
    world.now += CONTENDED_NANOS;
    world.table.fade(world.now);
    assert_eq!((world.table.objects(), world.table.sessions.len(), world.table.ranges()), (0, 0, 0));
}

#[test]
fn a_destroyed_object_is_held_by_nobody() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let b = world.write(B, 0, 10);
    world.table.drop_object(0, object(1));
    world.collect();
    assert!(world.granted(b).is_some());
    assert!(!world.table.holds(object(1), A, Mode::Read, range(0, 1)));
    assert!(!world.table.sessions.contains_key(&A));
}

/// Clients take one page from each other. Gives the messages, one for each request and callback.
fn ping_pong(settings: Settings, clients: u64, rounds: u64) -> u64 {
    let mut world = World::with(settings);
    let mut messages = 0;
    for round in 0..rounds {
        world.now += SECOND / 1000;
        let holder = Holder(round % clients + 1);
        if world.table.holds(object(1), holder, Mode::Write, range(0, 4096)) {
            continue;
        }
        let id = world.write(holder, 0, 4096);
        messages += 1;
        while let Some((_, start, end, _)) = world.called() {
            // The callback, and the write of what was changed.
            messages += 2;
            world.answer(start, end, false);
        }
        if world.answers.get(&id) == Some(&Answer::Contended) {
            // A client that was told so remembers it, and asks no more for a while.
            for _ in 0..10 {
                let id = world.ask(holder, Purpose::Use, true, range(0, 4096));
                while let Some((_, start, end, _)) = world.called() {
                    messages += 2;
                    world.answer(start, end, false);
                }
                assert_eq!(world.answers.get(&id), Some(&Answer::Go));
                world.end_use(id);
            }
            messages += 1;
        }
    }
    messages
}

#[test]
fn a_page_that_all_want_is_held_by_nobody() {
    let with = ping_pong(Settings::default(), 4, 1000);
    let without = ping_pong(Settings { contended_answers: false, ..Settings::default() }, 4, 1000);
    assert!(with < 2 * 1000 + 100, "{with} messages");
    assert!(without > 3 * 1000 - 10, "{without} messages");
}

#[test]
fn a_hot_range_cools_down_when_one_client_is_left() {
    let mut world = World::new();
    ping(&mut world);
    let id = world.write(B, 0, 10);
    assert_eq!(world.answers.get(&id), Some(&Answer::Contended));
    let id = world.write(B, 10_000_000, 10_000_010);
    assert!(world.granted(id).is_some(), "elsewhere it is not hot");
    let id = world.write(C, 0, 2 * SMALL_BYTES);
    assert!(world.waits(id), "who needs much holds it");
    while world.called().is_some() {
        world.answer(0, 2 * SMALL_BYTES, false);
    }
    assert!(world.granted(id).is_some());
    for _ in 0..30 {
        world.now += HOT_NANOS / 20;
        let id = world.ask(B, Purpose::Use, true, range(0, 10));
        while world.called().is_some() {
            world.answer(0, u64::MAX, false);
        }
        world.end_use(id);
    }
    let id = world.write(B, 0, 10);
    assert!(world.granted(id).is_some(), "{:?}", world.answers.get(&id));
}

/// Two clients take a range from each other until it is hot.
fn ping(world: &mut World) {
    for round in 0.. {
        let id = world.write(if round % 2 == 0 { A } else { B }, 0, 10);
        while world.called().is_some() {
            world.answer(0, u64::MAX, false);
        }
        if world.answers.get(&id) == Some(&Answer::Contended) {
            assert_eq!(round, HOT_CONFLICTS as u64, "the first one had no conflict");
            return;
        }
    }
}

#[test]
fn an_access_calls_back_and_is_waited_for() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let access = world.ask(B, Purpose::Use, false, range(0, 5));
    assert_eq!(world.called(), Some((A, 0, 5, true)));
    world.answer(0, 5, false);
    assert_eq!(world.answers.get(&access), Some(&Answer::Go));
    let reader = world.read(C, 0, 1);
    assert!(world.granted(reader).is_some(), "two may read");
    let writer = world.write(A, 0, 5);
    assert!(world.waits(writer));
    world.answer(0, 5, false);
    assert!(world.waits(writer), "the access is still under way");
    world.end_use(access);
    assert!(world.granted(writer).is_some());
}

#[test]
fn an_access_never_waits_for_who_waits_for_it() {
    let mut world = World::new();
    world.write(A, 0, 10);
    let b = world.write(B, 0, 10);
    let flush = world.ask(A, Purpose::Use, true, range(0, 10));
    assert_eq!(world.answers.get(&flush), Some(&Answer::Go), "B waits for A");
    let other = world.ask(C, Purpose::Use, true, range(0, 10));
    assert!(world.waits(other), "it came after B");
    world.answer(0, 10, false);
    assert!(world.waits(b), "the flush is under way");
    world.end_use(flush);
    assert!(world.granted(b).is_some());
    world.answer(0, 10, false);
    assert_eq!(world.answers.get(&other), Some(&Answer::Go));
}

#[test]
fn what_was_held_before_a_restart_is_held_again() {
    let mut table = Table::new(Arc::new(Numbers::new(2)), Settings::default());
    let ask =
        |holder, write, range| Ask { id: 0, holder, purpose: Purpose::Hold, mode: Mode::of(write), range };
    let token = table.restate(object(1), ask(A, true, range(5, 10))).expect("nobody else says so");
    assert_eq!((token.start, token.end, token.write), (5, 10, true));
    assert!(table.restate(object(1), ask(B, false, range(9, 20))).is_none());
    assert!(table.restate(object(1), ask(B, false, range(10, 20))).is_some());
    assert!(table.restate(object(1), ask(C, false, range(15, 20))).is_some());
    assert_eq!(table.ranges(), 3);
    for holder in [A, B, C] {
        table.drop_session(0, holder);
    }
    assert_eq!((table.ranges(), table.objects()), (0, 0));
}

#[test]
fn there_is_an_end_to_what_can_be_held_and_awaited() {
    let mut world = World::new();
    world.read(A, 0, 1);
    world.write(B, 0, 1);
    world.answer(0, u64::MAX, false);
    // Exact grants that do not touch each other.
    for n in 1..RANGES_PER_OBJECT_MAX as u64 {
        let id = world.write(A, 10 * n, 10 * n + 5);
        assert!(world.granted(id).is_some());
    }
    let id = world.write(A, 5, 6);
    assert_eq!(world.answers.get(&id), Some(&Answer::Contended));
    let id = world.write(A, 1 << 30, (1 << 30) + SMALL_BYTES);
    assert!(world.granted(id).is_some(), "what cannot do without has some room left");
    for _ in 0..USES_WAITING_PER_SESSION_MAX {
        let id = world.ask(C, Purpose::Use, true, range(0, 1));
        assert!(world.waits(id));
    }
    let id = world.ask(C, Purpose::Use, true, range(0, 1));
    assert_eq!(world.answers.get(&id), Some(&Answer::Full));
}

fn bounded(session: usize, total: usize) -> Settings {
    let bound = |reclaim| Bound { reclaim, max: 2 * reclaim };
    Settings { bounds: Bounds { session: bound(session), total: bound(total) }, ..Settings::default() }
}

/// `holder` takes a little of an object.
fn take(world: &mut World, holder: Holder, oid: u32) -> Answer {
    world.next += 1;
    let ask = Ask { id: world.next, holder, purpose: Purpose::Hold, mode: Mode::Write, range: range(0, 10) };
    let answer = world.table.ask(world.now, object(oid), ask);
    world.collect();
    answer
}

#[test]
fn objects_that_were_used_longest_ago_are_called_back() {
    let mut world = World::with(bounded(100, 5));
    for oid in 1..=5 {
        take(&mut world, if oid % 2 == 1 { A } else { B }, oid);
    }
    assert!(world.reclaims.is_empty());
    // It was used since.
    take(&mut world, A, 1);
    for oid in 6..=10 {
        assert!(matches!(take(&mut world, C, oid), Answer::Granted(_)), "there is room");
    }
    let called: Vec<_> = world.reclaims.iter().map(|r| (r.call.holder, r.call.object)).collect();
    let first = [(B, object(2)), (A, object(3)), (B, object(4)), (A, object(5)), (A, object(1))];
    assert_eq!(called, first);
    assert!(world.reclaims.iter().all(|r| r.call.range == Range::ALL && !r.call.keep_read));
    assert_eq!(take(&mut world, C, 11), Answer::Contended, "there is no room");
    for reclaim in std::mem::take(&mut world.reclaims) {
        let given = RangeRevoked { start: 0, end: u64::MAX, kept_read: false, number: 0 };
        world.table.reclaimed(world.now, &reclaim, Some(given));
        world.collect();
    }
    assert_eq!((world.table.ranges(), world.reclaims.len()), (5, 0));
    assert!(matches!(take(&mut world, C, 11), Answer::Granted(_)));
    for holder in [A, B, C] {
        world.table.drop_session(0, holder);
    }
    assert!(world.table.sessions.is_empty() && world.table.ages.weight() == 0);
}

#[test]
fn callbacks_for_want_of_room_are_few_at_a_time() {
    let mut world = World::with(bounded(2, 1000));
    for oid in 1..=4 {
        take(&mut world, C, oid);
    }
    assert_eq!(take(&mut world, C, 5), Answer::Contended, "it has twice as much as it should");
    assert_eq!(world.reclaims.len(), 2, "so many are too many");
    world.table.drop_session(0, C);
    for reclaim in std::mem::take(&mut world.reclaims) {
        world.table.reclaimed(world.now, &reclaim, None);
    }
    world.table.set(bounded(100, 1000));
    for oid in 5..=100 {
        take(&mut world, A, oid);
        take(&mut world, B, oid + 100);
    }
    assert!(world.reclaims.is_empty());
    world.table.set(bounded(2, 1000));
    world.collect();
    assert_eq!(world.reclaims.len(), 2 * RECLAIMS_PER_SESSION_MAX);
    // Who does not give something back is asked for something else.
    let first = world.reclaims.remove(0);
    world.table.reclaimed(world.now, &first, None);
    world.collect();
    let again = world.reclaims.iter().filter(|r| r.call.object == first.call.object);
    assert_eq!((again.count(), world.reclaims.len()), (0, 2 * RECLAIMS_PER_SESSION_MAX));
    // A session that ends is asked no more, and what it was asked does not count for others.
    world.table.drop_session(0, A);
    for reclaim in std::mem::take(&mut world.reclaims) {
        let given = RangeRevoked { start: 0, end: u64::MAX, kept_read: false, number: 0 };
        world.table.reclaimed(world.now, &reclaim, Some(given));
        world.collect();
    }
    assert_eq!(world.reclaims.len(), RECLAIMS_PER_SESSION_MAX);
    assert!(world.reclaims.iter().all(|reclaim| reclaim.call.holder == B));
}

#[test]
fn forgotten_contention_is_bounded() {
    let mut world = World::new();
    for oid in 0..2 * FADING_MAX as u32 {
        for holder in [A, B] {
            world.next += 1;
            let ask =
                Ask { id: world.next, holder, purpose: Purpose::Hold, mode: Mode::Write, range: range(0, 1) };
            world.table.ask(0, object(oid), ask);
            world.table.take_outputs();
        }
        world.table.drop_object(0, object(oid));
        world.table.drop_object(0, object(oid));
    }
    assert!(world.table.objects() <= FADING_MAX + 1, "{}", world.table.objects());
    world.table.fade(10 * SECOND);
    assert_eq!((world.table.objects(), world.table.ranges()), (0, 0));
}

#[test]
fn what_one_client_holds_is_small() {
    // An object that one client uses has no memory but its place in the table.
    let mut world = World::new();
    world.write(A, 0, 10);
    assert!(world.table.objects.values().all(|object| !object.has_heap()));
    assert!(size_of::<Object>() <= 256, "{} bytes", size_of::<Object>());
}
