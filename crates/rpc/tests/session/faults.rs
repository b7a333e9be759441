//! Exactly once, whatever the network does and however often the target restarts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::{GetSequence, Statfs};
use rpc::{LinkState, limits};
use rt::sim::{Options as World, Sim};

use crate::target::{Durable, Options, Server, client_hub, import};

const CLIENTS: u128 = 3;
const CALLERS: u64 = 4;
const CALLS: u64 = 15;
static BULK: [u8; 2 * limits::RESENT_UNASKED_MAX] = [7; 2 * limits::RESENT_UNASKED_MAX];

/// Several clients draw numbers while connections break, frames are lost, repeated and reordered, and the target
/// crashes. Every number comes once, none is missing, and what was called durable is.
fn run(seed: u64) -> (u64, u64) {
    let sim = Sim::new(World { run_limit: Duration::from_secs(4 * 3600), ..World::swarm(seed) });
    let disk = Arc::new(Mutex::new(Durable::default()));
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let finished = Arc::new(Mutex::new(0));
    let mut rng = sim.rng("crashes");
    let options = Options { work: Duration::from_millis(2), ..Options::default() };
    sim.run(async {
        let mut server = Some(Server::start(sim.rt("server"), &disk, options.clone()).await);
        for client in 1..=CLIENTS {
            let hub = client_hub(sim.rt(&format!("client{client}")));
            let import = import(&hub, client);
            for caller in 0..CALLERS {
                let (import, drawn, finished, disk) =
                    (import.clone(), drawn.clone(), finished.clone(), disk.clone());
                hub.rt().spawn(async move {
                    for call in 0..CALLS {
                        // With bulk the target is asked first whether it has what seems to be lost.
                        let bulk = (call % 3 == 0).then(|| Bytes::from_static(&BULK)).into_iter().collect();
                        let answered =
                            import.call_bulk(GetSequence {}, bulk).await.expect("nobody is evicted");
                        drawn.lock().push(answered.reply.seq);
                        if (call + caller) % 5 == 0 {
                            import.committed(answered.transno).await.expect("nothing is lost");
                            assert!(disk.lock().transno >= answered.transno.0, "it was called durable");
                        }
                        import.call(Statfs {}).await.expect("the target answers");
                    }
                    *finished.lock() += 1;
                });
            }
        }
        for _ in 0..rng.between(1, 4) {
            sim.root().sleep(Duration::from_millis(rng.between(1, 5_000))).await;
            if rng.one_in(2) {
                sim.crash("server");
            } else {
                sim.kill("server");
            }
            drop(server.take());
            sim.root().sleep(Duration::from_millis(rng.between(1, 5_000))).await;
            server = Some(Server::start(rt::Rt::sim(sim.restart("server")), &disk, options.clone()).await);
        }
        sim.calm();
        let workers = CLIENTS as u64 * CALLERS;
        while *finished.lock() < workers {
            sim.root().sleep(Duration::from_millis(100)).await;
        }
        let drawn: Vec<u64> = drawn.lock().clone();
        let distinct: BTreeSet<u64> = drawn.iter().copied().collect();
        let all: BTreeSet<u64> = (1..=workers * CALLS).collect();
        assert_eq!(distinct, all, "seed {seed}");
        assert_eq!(drawn.len(), all.len(), "seed {seed}: a number was drawn twice");
        (sim.trace_hash(), sim.now().as_millis() as u64)
    })
}

#[test]
fn every_change_happens_exactly_once() {
    for seed in 0..60 {
        run(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7), run(7));
}

/// That a target is gone does not arrive, and the client has nothing to ask meanwhile. When it opens its session again, because it hears that
/// the target has another owner, it must not ask over the old connection for ever.
#[test]
fn a_connection_without_another_end_is_given_up() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(Statfs {}).await.expect("the target answers");
        sim.partition_one_way("server", "client");
        sim.crash("server");
        drop(server);
        let _server = Server::start(rt::Rt::sim(sim.restart("server")), &disk, Options::default()).await;
        import.bar(Some(proto::Code::Inactive));
        sim.root().sleep(Duration::from_millis(100)).await;
        import.bar(None);
        let asking = hub.rt().timeout(3 * limits::CONNECT_TIME_MAX, import.call(Statfs {})).await;
        let connects = sim.node_stats("client").connects;
        assert!(asking.is_none() && connects > 1, "it asks over the connection that there was");
        sim.heal("server", "client");
        let answered = hub.rt().timeout(limits::CONNECT_TIME_MAX, import.call(Statfs {})).await;
        assert!(answered.is_some_and(|answered| answered.is_ok()));
    });
}

/// A target that restarts takes a client back before the client knows of it. A client that leaves just then says so: the target would wait
/// for what it sends.
#[test]
fn who_leaves_while_a_session_is_being_opened_says_so() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let disk = Arc::new(Mutex::new(Durable::default()));
        let server = Server::start(sim.rt("server"), &disk, Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(Statfs {}).await.expect("the target answers");
        sim.crash("server");
        drop(server);
        let server = Server::start(rt::Rt::sim(sim.restart("server")), &disk, Options::default()).await;
        while server.target.session_of(1).is_none() {
            hub.rt().sleep(Duration::from_micros(1)).await;
        }
        assert_eq!(import.state().link, LinkState::Connecting);
        import.disconnect().await;
        assert_eq!(server.target.session_of(1), None);
    });
}
