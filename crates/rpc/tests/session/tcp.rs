//! Client and target on two machines, without faults but those that a test makes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::{GetAttr, GetSequence, Read, Statfs};
use proto::{Code, Fid, ObjectId, Transno};
use rpc::{Hub, Key, Keys, LinkState, Role, RpcError};
use rt::sim::{Options as World, Sim};
use rt::{Addr, Frame};

use crate::target::{Durable, Options, Server, TARGET, client_hub, import, nid};

fn disk() -> Arc<Mutex<Durable>> {
    Arc::new(Mutex::new(Durable::default()))
}

#[test]
fn calls_come_back_with_replies_refusals_and_bulk() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!((answered.reply.seq, answered.transno), (1, Transno(1)));
        assert_eq!(import.state().link, LinkState::Connected(Addr("server:988".into())));
        let refused = import.call(GetAttr { fid: Fid::ROOT }).await.err();
        assert_eq!(refused, Some(RpcError::Refused(Code::NotFound)));
        let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
        let read =
            import.call(Read { object, offset: 0, len: 3, locked: false }).await.expect("the target answers");
        assert_eq!(read.bulk.concat(), [7, 7, 7]);
        assert_eq!(import.state().retained_count, 1);
        import.committed(Transno(1)).await.expect("the target commits");
        assert_eq!(import.state().retained_count, 0);
        assert_eq!(server.target.seen.lock().syncs, 1);
        hub.close().await;
        assert_eq!(import.call(Statfs {}).await.err(), Some(RpcError::Closed));
    });
}

#[test]
fn all_imports_of_a_process_share_one_connection() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let _server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        for client in 1..=20 {
            import(&hub, client).call(GetSequence {}).await.expect("the target answers");
        }
        assert_eq!(sim.node_stats("client").connects, 1);
    });
}

#[test]
fn one_sync_serves_all_who_wait() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server =
            Server::start(sim.rt("server"), &disk(), Options { lazy: true, ..Options::default() }).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let done = Arc::new(Mutex::new(0));
        for _ in 0..50 {
            let (import, done) = (import.clone(), done.clone());
            hub.rt().spawn(async move {
                let transno = import.call(GetSequence {}).await.expect("the target answers").transno;
                import.committed(transno).await.expect("the target commits");
                *done.lock() += 1;
            });
        }
        while *done.lock() < 50 {
            sim.root().sleep(Duration::from_millis(1)).await;
        }
        let syncs = server.target.seen.lock().syncs;
        assert!(syncs <= 10, "{syncs} syncs for 50 callers");
    });
}

#[test]
fn half_of_the_bound_asks_for_a_commit() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server =
            Server::start(sim.rt("server"), &disk(), Options { lazy: true, ..Options::default() }).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        for _ in 0..rpc::limits::RETAINED_COUNT_MAX {
            import.call(GetSequence {}).await.expect("the target answers");
        }
        assert!(import.state().retained_count < rpc::limits::RETAINED_COUNT_MAX);
        assert!(server.target.seen.lock().syncs > 0);
    });
}

#[test]
fn a_refused_sync_is_told_and_tried_again_by_who_waits_for_room() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let options = Options { lazy: true, syncs_refused: 3, ..Options::default() };
        let _server = Server::start(sim.rt("server"), &disk(), options).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let transno = import.call(GetSequence {}).await.expect("the target answers").transno;
        assert_eq!(import.committed(transno).await, Err(RpcError::Refused(Code::Io)));
        for _ in 0..rpc::limits::RETAINED_COUNT_MAX + 10 {
            import.call(GetSequence {}).await.expect("the target answers");
        }
    });
}

/// A connection that broke in the middle of the replays took the rest of them with it: the next connect found the boot
/// known and replayed nothing. Guards what a session remembers about its replays: it fails if only the connect that
/// finds another boot replays, and also if a replay that was taken comes again.
#[test]
fn replays_go_on_over_the_next_connection() {
    for broken_after in 1..=4 {
        let sim = Sim::new(World::seed(broken_after));
        sim.run(async {
            let (disk, options) = (disk(), Options { lazy: true, ..Options::default() });
            let server = Server::start(sim.rt("server"), &disk, options.clone()).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            // One after the other: all use the same slot.
            for _ in 0..5 {
                import.call(GetSequence {}).await.expect("the target answers");
            }
            sim.crash("server");
            drop(server);
            let server = Server::start(rt::Rt::sim(sim.restart("server")), &disk, options).await;
            while server.target.seen.lock().replays < broken_after {
                sim.root().sleep(Duration::from_micros(1)).await;
            }
            sim.disconnect("client", "server");
            let next = import.call(GetSequence {}).await.expect("the target answers");
            assert_eq!((next.reply.seq, next.transno), (6, Transno(6)), "broken after {broken_after}");
            assert_eq!(server.target.seen.lock().replays, 5, "each change once");
            assert_eq!(import.state().evictions, 0);
            import.committed(Transno(6)).await.expect("nothing is lost");
            assert_eq!(disk.lock().counter, 6);
        });
    }
}

/// What a client learns that uses `keys` and `name`.
fn greeting(keys: Keys, role: Role, name: &str) -> (Option<RpcError>, Option<String>) {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let _server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = Hub::new(sim.rt("client"), name.parse().expect("a file system name"), keys);
        let import = hub.import(TARGET, hub.new_client(), role, vec![nid()]);
        let error = import.call(Statfs {}).await.err();
        (error, import.state().problem)
    })
}

#[test]
fn a_client_that_is_not_wanted_gets_one_clear_sentence() {
    let own = Keys { server: None, client: Some(crate::target::CLIENT_KEY) };
    let wrong = Keys { server: None, client: Some(Key([9; 32])) };
    assert_eq!(greeting(own.clone(), Role::Client, "weft"), (None, None));
    let refused = |code, text: &str| (Some(RpcError::Refused(code)), Some(format!("server:988: {text}")));
    let wrong_key = "the server of file system weft does not accept this key";
    assert_eq!(greeting(wrong, Role::Client, "weft"), refused(Code::Forbidden, wrong_key));
    assert_eq!(greeting(own.clone(), Role::Server, "weft"), refused(Code::Forbidden, wrong_key));
    let wrong_name = "the server at this address does not belong to file system other";
    assert_eq!(greeting(own, Role::Client, "other"), refused(Code::WrongFilesystem, wrong_name));
}

#[test]
fn nonsense_ends_its_connection_and_nothing_else() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let _server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(GetSequence {}).await.expect("the target answers");
        for head in [&b""[..], b"GET / HTTP/1.1", &[0xff; 900]] {
            let net = sim.rt("stranger").net();
            let mut conn = net.connect(&Addr("server:988".into())).await.expect("somebody listens");
            let frame = Frame { head: Bytes::from(head.to_vec()), bulk: Vec::new() };
            conn.sender.send(frame).await.expect("it is open");
            assert!(conn.receiver.recv().await.is_err(), "the server hangs up");
        }
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(answered.reply.seq, 2);
        assert_eq!(sim.node_stats("client").connects, 1);
    });
}

#[test]
fn a_restart_of_the_target_is_a_pause() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = disk();
        let lazy = Options { lazy: true, ..Options::default() };
        let _first = Server::start(sim.rt("server"), &disk, lazy).await;
        let hub = client_hub(sim.rt("client"));
        let (one, two) = (import(&hub, 1), import(&hub, 2));
        for _ in 0..10 {
            one.call(GetSequence {}).await.expect("the target answers");
            two.call(GetSequence {}).await.expect("the target answers");
        }
        sim.crash("server");
        assert_eq!(disk.lock().counter, 0, "nothing was durable");
        sim.root().sleep(Duration::from_secs(3)).await;
        let server = Server::start(rt::Rt::sim(sim.restart("server")), &disk, Options::default()).await;
        let answered = one.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(answered.reply.seq, 21, "the changes were replayed before");
        assert_eq!(server.target.seen.lock().replays, 20);
        one.committed(answered.transno).await.expect("the target commits");
        assert_eq!((one.state().evictions, two.state().evictions), (0, 0));
    });
}

#[test]
fn an_eviction_is_told_to_those_whom_it_hits() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let lazy = Options { lazy: true, ..Options::default() };
        let server = Server::start(sim.rt("server"), &disk(), lazy).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let kept = import.call(GetSequence {}).await.expect("the target answers").transno;
        import.committed(kept).await.expect("the target commits");
        let lost = import.call(GetSequence {}).await.expect("the target answers").transno;
        server.target.evict_all();
        // Reading tells nothing and goes on in a new session.
        import.call(Statfs {}).await.expect("the target answers");
        assert_eq!(import.committed(kept).await, Ok(()));
        assert_eq!(import.committed(lost).await, Err(RpcError::Refused(Code::Evicted)));
        assert_eq!(import.state().evictions, 1);
        let next = import.call(GetSequence {}).await.expect("the target answers");
        assert_eq!(next.reply.seq, 2);
    });
}

#[test]
fn a_caller_may_wait_for_ever_or_not() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        assert!(import.call_within(Duration::from_secs(100), Statfs {}).await.is_none());
        assert_eq!(import.state().link, LinkState::Connecting);
        assert!(import.state().problem.is_some());
        let _server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        assert!(import.call_within(Duration::from_secs(2), Statfs {}).await.is_some());
    });
}

#[test]
fn a_silent_connection_is_given_up() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(GetSequence {}).await.expect("the target answers");
        sim.partition("client", "server");
        assert!(import.call_within(Duration::from_secs(60), GetSequence {}).await.is_none());
        assert_eq!(import.state().link, LinkState::Connecting);
        sim.heal("client", "server");
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        // The change that was given up is sent again too: nobody could know that it had not happened.
        assert_eq!(server.target.counter(), 3);
        assert!(answered.reply.seq >= 2);
    });
}

#[test]
fn a_broken_connection_repeats_nothing() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let slow = Options { work: Duration::from_millis(10), ..Options::default() };
        let server = Server::start(sim.rt("server"), &disk(), slow).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let handle = sim.handle();
        sim.root().spawn(async move {
            for _ in 0..20 {
                handle.root().sleep(Duration::from_millis(13)).await;
                handle.disconnect("client", "server");
            }
        });
        for expected in 1..=30 {
            let answered = import.call(GetSequence {}).await.expect("the target answers");
            assert_eq!(answered.reply.seq, expected);
        }
        assert_eq!(server.target.counter(), 30);
        assert!(server.target.seen.lock().connects > 5);
    });
}
