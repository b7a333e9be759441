//! Several requests in one frame: each is done exactly once and answered by itself, whatever becomes of the frame.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::{BATCH_MAX, SLOTS_MAX};
use proto::wire::messages::{FEATURE_BATCH, GetSequence, Sequence, Write};
use proto::{Fid, ObjectId, Timestamp};
use rpc::{Answered, Import, RpcError};
use rt::sim::{Options as World, Sim};

use crate::callback::disk;
use crate::target::{Durable, Options, Server, client_hub, import};

const ALL: u64 = BATCH_MAX as u64;

fn wide() -> Options {
    Options { lazy: true, slots: Some(SLOTS_MAX), ..Options::default() }
}

type Outcomes = Vec<Result<Answered<Sequence>, RpcError>>;

/// Sends so many changes as a batch, as a task.
fn batch(sim: &Sim, import: &Arc<Import>, count: u64) -> Arc<Mutex<Option<Outcomes>>> {
    let back = Arc::new(Mutex::new(None));
    let (import, here) = (import.clone(), back.clone());
    sim.rt("client").spawn(async move {
        let outcomes = import.batch(vec![GetSequence {}; count as usize]).await;
        *here.lock() = Some(outcomes);
    });
    back
}

async fn outcomes(sim: &Sim, back: &Arc<Mutex<Option<Outcomes>>>) -> Outcomes {
    loop {
        if let Some(outcomes) = back.lock().take() {
            return outcomes;
        }
        sim.root().sleep(Duration::from_micros(10)).await;
    }
}

/// Every caller has an answer of its own, and there is one for each change.
fn assert_once(outcomes: Outcomes, count: u64, what: &str) {
    let drawn: Vec<u64> =
        outcomes.into_iter().map(|outcome| outcome.expect("the target answers").reply.seq).collect();
    assert_eq!(drawn.len() as u64, count, "{what}: each caller has an answer");
    let distinct: BTreeSet<u64> = drawn.into_iter().collect();
    assert_eq!(distinct, (1..=count).collect::<BTreeSet<_>>(), "{what}: each change was made once");
}

#[test]
fn a_batch_is_one_frame_each_way() {
    let cost = |lacks: u64| {
        let sim = Sim::new(World::seed(1));
        sim.run(async {
            let server = Server::start(sim.rt("server"), &disk(), Options { lacks, ..wide() }).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            import.call(GetSequence {}).await.expect("the target answers");
            let (before, start) = ((sim.node_stats("client"), sim.node_stats("server")), sim.now());
            let outcomes = import.batch(vec![GetSequence {}; BATCH_MAX]).await;
            let took = sim.now() - start;
            assert!(outcomes.iter().all(Result::is_ok));
            assert_eq!(server.target.counter(), 1 + ALL);
            let (client, server) = (sim.node_stats("client"), sim.node_stats("server"));
            let frames =
                (client.frames_sent - before.0.frames_sent, server.frames_sent - before.1.frames_sent);
            let bytes = (client.bytes_sent - before.0.bytes_sent, server.bytes_sent - before.1.bytes_sent);
            println!("lacking {lacks}: frames {frames:?}, bytes {bytes:?}, {took:?}");
            (frames, bytes, took)
        })
    };
    let (frames, bytes, took) = cost(0);
    // A target that does not know batches gets the requests one by one.
    let single = cost(FEATURE_BATCH);
    assert_eq!((frames, single.0), ((1, 1), (ALL, ALL)));
    assert!(bytes.0 * 3 < single.1.0 && bytes.1 * 3 < single.1.1, "{bytes:?} and {:?}", single.1);
    assert!(took <= single.2, "{took:?} and {:?}", single.2);
}

#[test]
fn more_than_there_are_slots_wait_and_do_not_fail() {
    for slots in [1, 8, SLOTS_MAX] {
        let sim = Sim::new(World::seed(1));
        sim.run(async {
            let options = Options { slots: Some(slots), ..wide() };
            let _server = Server::start(sim.rt("server"), &disk(), options).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            let before = sim.node_stats("client").frames_sent;
            let outcomes = import.batch(vec![GetSequence {}; 1000]).await;
            let frames = sim.node_stats("client").frames_sent - before;
            assert_once(outcomes, 1000, &format!("{slots} slots"));
            let least = 1000 / u64::from(slots).min(ALL);
            assert!(frames <= least * 3 / 2 + 10, "{frames} frames with {slots} slots");
        });
    }
}

#[test]
fn what_a_batch_cannot_carry_travels_beside_it() {
    [true, false].into_iter().for_each(beside);
}

fn beside(checksums: bool) {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), wide()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.set_checksums(checksums);
        import.call(GetSequence {}).await.expect("the target answers");
        let before = sim.node_stats("client").frames_sent;
        let write = || {
            let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
            let (time, owner) = (Timestamp::default(), proto::FileOwner::default());
            let write = Write { object, offset: 0, time, locked: false, sync: false, owner };
            import.call_bulk(write, vec![Bytes::from_static(b"data")])
        };
        let both = hub.together(
            (0..10).map(|_| async { (import.call(GetSequence {}).await, write().await) }).collect(),
        );
        for (drawn, written) in both.await {
            assert!(drawn.is_ok());
            assert_eq!(written.err(), Some(RpcError::Refused(proto::Code::NotSupported)));
        }
        let frames = sim.node_stats("client").frames_sent - before;
        assert_eq!((frames, server.target.counter()), (11, 21), "a batch, and each write alone");
        assert_eq!(sim.node_stats("client").connects, 1, "nobody has sent nonsense");
    });
}

/// FEATURES R29: the answer to 64 changes is lost with its frame. Each was done; its caller gets the answer of that one time.
#[test]
fn a_lost_answer_to_a_batch_does_nothing_twice() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), wide()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.look().await.expect("nothing was open");
        import.call(proto::wire::messages::Statfs {}).await.expect("the target answers");
        sim.partition_one_way("server", "client");
        let back = batch(&sim, &import, ALL);
        while server.target.counter() < ALL {
            sim.root().sleep(Duration::from_micros(10)).await;
        }
        sim.root().sleep(Duration::from_secs(1)).await;
        assert!(back.lock().is_none(), "the answer was lost");
        sim.heal("server", "client");
        assert_once(outcomes(&sim, &back).await, ALL, "a lost answer");
        assert_eq!(server.target.counter(), ALL);
        assert_eq!(sim.node_stats("client").connects, 1, "the connection is the same");
    });
}

/// What becomes of a batch whose target has done some of its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its connection breaks before an answer comes.
    Disconnected,
    /// The target restarts, and has made these changes durable.
    Restarted,
    /// The target restarts and has lost them, and nobody had an answer.
    Undone,
    /// The target restarts and has lost them, and their callers have their answers.
    Replayed,
}

async fn broken(sim: &Sim, fate: Fate, done: u64) {
    let what = format!("{fate:?} after {done}");
    let disk: Arc<Mutex<Durable>> = disk();
    let options = Options { changes_max: Some(done), ..wide() };
    let mut server = Server::start(sim.rt("server"), &disk, options).await;
    let hub = client_hub(sim.rt("client"));
    let import = import(&hub, 1);
    import.call(proto::wire::messages::Statfs {}).await.expect("the target answers");
    if fate != Fate::Replayed {
        sim.partition_one_way("server", "client");
    }
    let back = batch(sim, &import, ALL);
    let calls = |server: &Server| server.target.seen.lock().calls;
    while server.target.counter() < done || calls(&server) < 2 + ALL {
        sim.root().sleep(Duration::from_micros(10)).await;
    }
    sim.root().sleep(Duration::from_millis(5)).await;
    assert_eq!(server.target.counter(), done, "{what}");
    let answered = import.state().retained_count as u64;
    assert_eq!(answered, if fate == Fate::Replayed { done } else { 0 }, "{what}");
    match fate {
        Fate::Disconnected => {
            sim.disconnect("client", "server");
            server.target.release();
        }
        Fate::Restarted | Fate::Undone | Fate::Replayed => {
            if fate == Fate::Restarted {
                server.target.commit();
            }
            sim.crash("server");
            drop(server);
            server = Server::start(rt::Rt::sim(sim.restart("server")), &disk, wide()).await;
        }
    }
    sim.heal("server", "client");
    assert_once(outcomes(sim, &back).await, ALL, &what);
    import.committed(proto::Transno(ALL)).await.expect("nothing is lost");
    assert_eq!(server.target.counter(), ALL, "{what}");
    let replays = server.target.seen.lock().replays;
    assert_eq!(replays, if fate == Fate::Replayed { done } else { 0 }, "{what}");
    assert_eq!(import.state().evictions, 0, "{what}");
    assert_eq!(disk.lock().counter, ALL, "{what}");
}

#[test]
fn a_batch_that_breaks_in_its_middle_is_done_once() {
    for fate in [Fate::Disconnected, Fate::Restarted, Fate::Undone, Fate::Replayed] {
        for done in [0, 1, 17, 63, 64] {
            let sim = Sim::new(World::seed(done));
            sim.run(broken(&sim, fate, done));
        }
    }
}
