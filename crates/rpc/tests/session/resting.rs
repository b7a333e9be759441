//! Sessions that nobody needs end, and begin again.

use std::time::Duration;

use proto::wire::messages::{Enqueue, GetSequence, Statfs};
use proto::{Fid, ObjectId};
use rpc::LinkState;
use rt::sim::{Options as World, Sim};

use crate::callback::{Client, disk};
use crate::target::{Options, Server, client_hub, import};

#[test]
fn a_session_ends_and_begins_with_the_next_call() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let _client = Client::new(&import, hub.rt(), Duration::from_secs(1));
        for round in 1..4 {
            let answered = import.call(GetSequence {}).await.expect("the target answers");
            assert_eq!(answered.reply.seq, round);
            import.committed(answered.transno).await.expect("nothing is lost");
            assert!(import.rest(|| true).await);
            assert_eq!(import.state().link, LinkState::Idle);
            assert_eq!(server.target.session_of(1), None);
            sim.root().sleep(Duration::from_secs(1)).await;
            assert_eq!(sim.node_stats("client").connects, round, "the connection ends too");
            // What was durable in a session that is over is so.
            import.committed(answered.transno).await.expect("nothing is lost");
        }
        assert_eq!((import.era(), import.state().evictions), (0, 0));
    });
}

#[test]
fn a_session_that_is_needed_goes_on() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let options = Options { lazy: true, ..Options::default() };
        let server = Server::start(sim.rt("server"), &disk(), options).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        assert!(!import.rest(|| true).await, "there is none");
        let answered = import.call(GetSequence {}).await.expect("the target answers");
        assert!(!import.rest(|| true).await, "a change is not durable");
        import.committed(answered.transno).await.expect("nothing is lost");
        let object = ObjectId { layout: Fid::ROOT, stripe: 0 };
        let (waiter, asks) =
            (import.clone(), Enqueue { object, write: true, start: 0, end: 9, restate: false });
        hub.rt().spawn(async move { drop(waiter.call(asks).await) });
        sim.root().sleep(Duration::from_secs(1)).await;
        assert!(!import.rest(|| true).await, "a request is under way");
        server.target.release();
        sim.root().sleep(Duration::from_secs(1)).await;
        assert!(!import.rest(|| false).await, "something was granted");
        assert!(import.call_within(Duration::from_secs(1), Statfs {}).await.is_some());
        assert_eq!((sim.node_stats("client").connects, server.target.seen.lock().connects), (1, 1));
    });
}

/// The server is gone when the session is to end, and the question whether it may goes on while the connection breaks.
#[test]
fn a_goodbye_that_nobody_hears_does_no_harm() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        import.call(Statfs {}).await.expect("the target answers");
        sim.partition("client", "server");
        assert!(import.rest(|| true).await);
        sim.heal_all();
        for _ in 0..20 {
            import.call(Statfs {}).await.expect("the target answers");
            sim.root().sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(server.target.seen.lock().connects, 2, "the goodbye does not come after it");
    });
}
