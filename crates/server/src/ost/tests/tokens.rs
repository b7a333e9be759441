//! Ranges between real sessions, over a simulated network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::{Code, FileOwner, ObjectId, Transno};
use rt::sim::{Options, Sim, Span};
use rt::sync::oneshot;
use service::Watch;

use super::fake::{Fake, SERVER, Server};
use super::{at, id, refused};
use crate::Counts;
use crate::TokenCounts;

const RECORD: u64 = 47_008;

/// Runs `test` with an OST and this many clients of one object, each on a machine of its own.
fn check<const N: usize>(test: impl AsyncFnOnce(&Sim, Server, [Arc<Fake>; N])) {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        let server = Server::make(&sim).await;
        let clients = clients(&sim);
        test(&sim, server, clients).await;
    });
}

fn clients<const N: usize>(sim: &Sim) -> [Arc<Fake>; N] {
    std::array::from_fn(|n| Fake::new(sim, &format!("client{n}"), 100 + n as u8, object()))
}

fn object() -> ObjectId {
    id(1)
}

fn counts(server: &Server) -> TokenCounts {
    server.target.handler().token_counts()
}

fn record(n: u64) -> Bytes {
    Bytes::from(vec![n as u8 + 1; RECORD as usize])
}

/// A task that says when it is done.
fn spawn<T: Send + 'static>(
    sim: &Sim,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    sim.handle().root().spawn(async move {
        let _ = sender.send(work.await);
    });
    receiver
}

#[test]
fn interleaved_writers_call_each_other_back_once() {
    check::<2>(async |_sim, server, clients| {
        for n in 0..60 {
            clients[n as usize % 2].write(n * RECORD, record(n), at(1)).await;
        }
        let counts = counts(&server);
        assert_eq!((counts.revocations, counts.waits), (1, 1), "{counts:?}");
        assert_eq!(clients[1].read(0, RECORD as u32).await, record(0));
        for n in 0..60 {
            let found = clients[(n as usize + 1) % 2].read(n * RECORD, RECORD as u32).await;
            assert_eq!(found, record(n), "record {n}");
        }
    });
}

#[test]
fn who_writes_the_same_has_the_last_word() {
    check::<2>(async |_sim, server, [a, b]| {
        a.write(0, record(1), at(1)).await;
        b.write(0, record(2), at(2)).await;
        assert_eq!(a.figures().writes, 1, "what was changed was sent before it was given up");
        assert_eq!(a.read(0, RECORD as u32).await, record(2));
        assert!(b.holds(false, 0, RECORD) && !b.holds(true, 0, RECORD), "b may go on reading");
        assert_eq!(b.figures().revocations, 1);
        assert_eq!(counts(&server).passed, 2);
    });
}

/// What was refused because of a seal was taken back together with what the client held before, which it went on using when the seal was broken.
#[test]
fn who_is_refused_by_a_seal_keeps_what_it_had() {
    check::<2>(async |_sim, server, [a, b]| {
        a.write(0, record(1), at(1)).await;
        let seal = |generation, sealed| msg::SealLayout {
            layout: object().layout,
            stripes: vec![object().stripe],
            generation,
            sealed,
        };
        a.import.call(seal(0, true)).await.expect("it holds all");
        let asked = msg::Enqueue { object: object(), write: true, start: 0, end: u64::MAX, restate: false };
        assert_eq!(refused(a.import.call(asked).await), Code::Sealed);
        a.import.call(seal(1, false)).await.expect("the generation is greater");
        assert_eq!((a.figures().writes, counts(&server).held), (0, 1));
        assert_eq!(b.read(0, RECORD as u32).await, record(1), "a is called back");
    });
}

#[test]
fn a_look_at_the_size_takes_nothing_away() {
    check::<3>(async |sim, server, [a, b, c]| {
        a.write(5 * RECORD, record(1), at(9)).await;
        let attr = || msg::GetObjectAttr { object: object() };
        let found = b.import.call(attr()).await.expect("it is told").reply;
        assert_eq!((found.size, found.mtime, found.ctime), (6 * RECORD, at(9), at(9)));
        let found = a.import.call(attr()).await.expect("it is told").reply;
        assert_eq!(found.size, 0, "who asks knows what it has itself");
        a.set_slowness(Duration::from_millis(10));
        let looks: Vec<_> = (0..200)
            .map(|n| {
                let import = if n % 2 == 0 { b.import.clone() } else { c.import.clone() };
                spawn(sim, async move { import.call(attr()).await.expect("it is told").reply.size })
            })
            .collect();
        for look in looks {
            assert_eq!(look.await.expect("the task ends"), 6 * RECORD);
        }
        let seen = a.figures();
        assert!(seen.glimpses <= 10, "{seen:?} for 201 looks");
        assert_eq!((seen.revocations, seen.writes), (0, 0));
        assert!(a.holds(true, 0, u64::MAX));
        assert_eq!(server.target.handler().token_counts().glimpses, seen.glimpses);
    });
}

#[test]
fn a_client_that_cannot_be_reached_does_not_hold_others_up() {
    check::<2>(async |sim, server, [a, b]| {
        a.write(0, record(1), at(1)).await;
        sim.handle().isolate("client0");
        let before = sim.now();
        b.write(0, record(2), at(2)).await;
        let waited = sim.now() - before;
        // Nobody closed its connection: it only went silent.
        let patience = service::DEADLINE;
        assert!(waited >= patience, "{waited:?}");
        assert!(waited < patience + service::PATIENCE * 2, "{waited:?}");
        sim.handle().heal_all();
        assert_eq!(a.read(0, RECORD as u32).await, record(2), "what it had not sent is lost");
        assert_eq!((a.figures().lost, counts(&server).held), (1, 2));
    });
}

#[test]
fn a_client_that_takes_its_time_is_waited_for() {
    check::<2>(async |sim, server, [a, b]| {
        a.write(0, record(1), at(1)).await;
        a.set_slowness(Duration::from_secs(300));
        let before = sim.now();
        assert_eq!(b.read(0, RECORD as u32).await, record(1));
        assert!(sim.now() - before >= Duration::from_secs(300));
        assert_eq!((a.figures().lost, counts(&server).revocations), (0, 1));
    });
}

#[test]
fn who_leaves_lets_others_go_on() {
    check::<3>(async |sim, server, [a, b, c]| {
        a.write(0, record(1), at(1)).await;
        a.set_slowness(Duration::from_secs(1));
        let waiting = b.clone();
        let gone = spawn(sim, async move { waiting.enqueue(true, 0, 10).await });
        let waiting = c.clone();
        let second = spawn(sim, async move { waiting.enqueue(true, 0, 10).await });
        while counts(&server).waits < 2 {
            b.import.call(msg::Statfs {}).await.expect("the target answers");
        }
        b.leave().await;
        assert!(gone.await.expect("the task ends").is_err());
        assert_eq!(second.await.expect("the task ends"), Ok(true));
        assert!(c.holds(true, 0, 10));
        a.leave().await;
        assert_eq!(counts(&server).held, 1);
    });
}

#[test]
fn a_destroyed_object_is_held_by_nobody() {
    check::<1>(async |_sim, server, [a]| {
        a.write(0, record(1), at(1)).await;
        let cancel = msg::ObjectRange { object: object(), start: 0, end: 10, number: u64::MAX };
        a.import.call(msg::CancelRanges { ranges: vec![cancel] }).await.expect("it is taken");
        assert_eq!(counts(&server).held, 1, "the rest");
        server.target.handler().data.locks().forget(&[object()]);
        assert_eq!((counts(&server).held, a.figures().revocations), (0, 0));
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    check::<1>(async |_sim, server, [a]| {
        let enqueue = |start, end, restate| {
            a.import.call(msg::Enqueue { object: object(), write: true, start, end, restate })
        };
        assert_eq!(refused(enqueue(5, 5, false).await), Code::Invalid);
        assert_eq!(refused(enqueue(5, 4, false).await), Code::Invalid);
        assert_eq!(refused(enqueue(0, 9, true).await), Code::Invalid, "nothing was lost");
        assert_eq!(counts(&server).held, 0);
        let read = msg::Read { object: object(), offset: 0, len: 0, locked: true };
        a.import.call(read).await.expect("nothing needs no lock");
    });
}

/// Four clients write one page in turn. Gives the requests and callbacks between clients and OST, once it goes evenly.
fn ping_pong(contended_answers: bool) -> u64 {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        let server = Server::make(&sim).await;
        server.target.handler().data.locks().tokens().set_contended_answers(contended_answers);
        let clients: [Arc<Fake>; 4] = clients(&sim);
        let messages = || {
            let figures = clients.iter().map(|client| client.figures());
            figures.map(|seen| seen.enqueues + seen.revocations + seen.writes).sum::<u64>()
        };
        let mut before = 0;
        for round in 0..440_u64 {
            if round == 40 {
                before = messages();
            }
            let page = Bytes::from(vec![round as u8; 4096]);
            clients[round as usize % 4].write(0, page, at(1)).await;
        }
        let sum = messages() - before;
        let found = clients[1].read(0, 4096).await;
        assert_eq!(found, vec![(439 % 256) as u8; 4096]);
        assert!(contended_answers == (counts(&server).contended > 0));
        sum
    })
}

#[test]
fn contention_costs_a_third_of_the_messages() {
    let (with, without) = (ping_pong(true), ping_pong(false));
    assert!(with * 3 <= without, "{with} messages, and {without} without");
}

#[test]
fn what_was_held_is_held_after_a_restart() {
    check::<3>(async |sim, server, [a, b, c]| {
        a.write(0, record(1), at(1)).await;
        b.write(RECORD, record(2), at(1)).await;
        c.import.call(msg::Statfs {}).await.expect("the target answers");
        let before = counts(&server).held;
        sim.handle().crash(SERVER);
        drop(server);
        sim.restart(SERVER);
        let server = Server::open(sim.rt(SERVER)).await;
        assert_eq!(c.read(0, RECORD as u32).await, record(1), "it was called back");
        assert_eq!((a.figures().restated, b.figures().restated, a.figures().lost), (1, 1, 0));
        assert!(a.holds(false, 0, RECORD) && b.holds(true, RECORD, 2 * RECORD));
        assert!(counts(&server).held > before);
        server.close().await;
    });
}

/// One client has seen what another one wrote; then that one and the OST lose power. Gives what is there afterwards.
fn seen_before_its_author_was_lost(sync_lock_cancel: &str) -> Vec<u8> {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        let server = Server::make(&sim).await;
        set_sync_lock_cancel(&server, sync_lock_cancel);
        let [a, b]: [Arc<Fake>; 2] = clients(&sim);
        a.write(0, record(1), at(1)).await;
        assert_eq!(b.read(0, RECORD as u32).await, record(1));
        assert_eq!(counts(&server).shared, u64::from(sync_lock_cancel != "never"));
        sim.handle().crash(SERVER);
        sim.handle().crash("client0");
        drop((server, a));
        sim.restart(SERVER);
        let server = Server::open(sim.rt(SERVER)).await;
        let found = b.read(0, RECORD as u32).await;
        server.close().await;
        found
    })
}

fn set_sync_lock_cancel(server: &Server, value: &str) {
    let set = |value| Watch::set_parameter(&*server.target, "*.sync_lock_cancel", value);
    assert_eq!((set(value), set("sometimes")), (Ok(()), Err(Code::Invalid)));
}

#[test]
fn what_was_shared_outlives_its_author() {
    for kept in ["blocking", "always"] {
        assert_eq!(seen_before_its_author_was_lost(kept), record(1), "{kept}");
    }
    assert!(seen_before_its_author_was_lost("never") != record(1), "without the commit it is lost");
}

/// A client gives up what it has written, and nobody has asked for it; then it and the OST lose power. Gives what is there.
fn given_up_unasked(sync_lock_cancel: &str) -> Vec<u8> {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        let server = Server::make(&sim).await;
        set_sync_lock_cancel(&server, sync_lock_cancel);
        let [a, b]: [Arc<Fake>; 2] = clients(&sim);
        let write = msg::Write {
            object: object(),
            offset: 0,
            time: at(1),
            locked: true,
            sync: false,
            owner: FileOwner::default(),
        };
        a.import.call_bulk(write, vec![record(1)]).await.expect("it is written");
        let range = msg::ObjectRange { object: object(), start: 0, end: u64::MAX, number: u64::MAX };
        a.import.call(msg::CancelRanges { ranges: vec![range] }).await.expect("it is taken");
        sim.handle().crash(SERVER);
        sim.handle().crash("client0");
        drop((server, a));
        sim.restart(SERVER);
        let server = Server::open(sim.rt(SERVER)).await;
        let found = b.read(0, RECORD as u32).await;
        server.close().await;
        found
    })
}

#[test]
fn what_is_given_up_is_durable_always() {
    assert_eq!(given_up_unasked("always"), record(1));
    assert!(given_up_unasked("blocking") != record(1), "nobody wanted it");
}

/// Its ranges were free at once, while what follows a write's commit was still under way, and only behind that was it noted that others
/// have to wait.
#[test]
fn what_a_session_wrote_last_is_waited_for_when_it_has_ended() {
    let mut options = Options::seed(1);
    options.disk.read = Span::millis(100, 100);
    let sim = Sim::new(options);
    sim.run(async {
        let server = Server::make(&sim).await;
        let [a, b]: [Arc<Fake>; 2] = clients(&sim);
        assert_eq!(a.enqueue(true, 0, u64::MAX).await, Ok(true));
        let write = |n: u64| {
            let (a, time, owner) = (a.clone(), at(1), FileOwner::default());
            let write =
                msg::Write { object: object(), offset: n * 10, time, locked: false, sync: false, owner };
            async move { a.import.call_bulk(write, vec![Bytes::from_static(&[7; 10])]).await }
        };
        let mut last = Transno(0);
        for n in 0..65 {
            last = write(n).await.expect("it is written").transno;
        }
        a.import.committed(last).await.expect("it becomes durable");
        b.import.call(msg::Statfs {}).await.expect("the session begins");
        // Behind this one the extents are merged, and for that they are read.
        let merging = spawn(&sim, write(65));
        a.rt().sleep(Duration::from_millis(10)).await;
        a.leave().await;
        assert!(merging.await.expect("the task ends").is_err(), "the session ended before");
        assert_eq!(b.enqueue(false, 0, u64::MAX).await, Ok(true));
        assert_eq!(counts(&server).shared, 1, "it is durable before somebody sees it");
        server.close().await;
    });
}

#[test]
fn who_works_beside_others_waits_for_no_commit() {
    check::<2>(async |_sim, server, clients| {
        for n in 0..60 {
            clients[n as usize % 2].write(n * RECORD, record(n), at(1)).await;
        }
        assert_eq!(counts(&server).shared, 0);
    });
}

/// The target forgets that it called the client back; what the client is sending because of it must come before what
/// the other one is granted.
#[test]
fn what_is_being_given_up_is_held_over_a_restart_too() {
    check::<2>(async |sim, server, [a, b]| {
        a.write(0, record(1), at(1)).await;
        a.write(RECORD, record(2), at(1)).await;
        b.import.call(msg::Statfs {}).await.expect("the target answers");
        sim.handle().set_latency("client0", SERVER, Span::millis(300, 300));
        let reader = b.clone();
        let both = spawn(sim, async move { reader.read(0, 2 * RECORD as u32).await });
        while a.figures().writes == 0 {
            b.import.call(msg::Statfs {}).await.expect("the target answers");
        }
        sim.handle().crash(SERVER);
        drop(server);
        sim.restart(SERVER);
        let server = Server::open(sim.rt(SERVER)).await;
        let found = both.await.expect("the task ends");
        assert_eq!(found, [record(1), record(2)].concat());
        assert!(a.figures().restated > 0 && a.figures().lost == 0);
        server.close().await;
    });
}
