//! Somebody with the clients' key who knows another client's name, and wants its session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages::{Connect, GetSequence};
use proto::{Code, Transno};
use rpc::{Role, RpcError};
use rt::sim::{Options as World, Sim};

use crate::target::{Durable, Options, Server, TARGET, client_hub, fsname, identify, import, nid};

fn disk() -> Arc<Mutex<Durable>> {
    Arc::new(Mutex::new(Durable::default()))
}

#[test]
fn a_name_alone_takes_nobodys_session() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("victim"));
        let victim = import(&hub, 1);
        victim.call(GetSequence {}).await.expect("the target answers");
        let session = server.target.session_of(1);
        // Later than the victim, so that its epochs are larger.
        sim.root().sleep(Duration::from_secs(10)).await;
        let thief = client_hub(sim.rt("thief"));
        identify(&thief, 2);
        let stolen = thief.import(TARGET, identify(&hub, 1), Role::Client, vec![nid()]);
        let refused = stolen.call(GetSequence {}).await.err();
        assert_eq!(refused, Some(RpcError::Refused(Code::Forbidden)));
        assert_eq!(server.target.session_of(1), session, "the session is the victim's");
        let answered = victim.call(GetSequence {}).await.expect("the victim goes on");
        assert_eq!((answered.reply.seq, victim.state().evictions), (2, 0));
        assert_eq!(sim.node_stats("victim").connects, 1);
    });
}

/// In a session nobody asks for the proof that a Connect comes with.
#[test]
fn a_session_does_not_ask_for_another_one() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("victim"));
        let victim = import(&hub, 1);
        victim.call(GetSequence {}).await.expect("the target answers");
        let session = server.target.session_of(1);
        let thief = client_hub(sim.rt("thief"));
        let own = import(&thief, 2);
        own.call(GetSequence {}).await.expect("the target answers");
        let stolen = Connect {
            client: identify(&hub, 1),
            features: 0,
            fsname: fsname().to_string(),
            boot: 0,
            session_epoch: u64::MAX,
            committed: Transno(0),
            proof: Bytes::new(),
        };
        let asked = thief.rt().timeout(Duration::from_secs(5), own.call(stolen)).await;
        assert!(!matches!(asked, Some(Ok(_))), "{asked:?}");
        assert_eq!(server.target.session_of(1), session, "the session is the victim's");
        let answered = victim.call(GetSequence {}).await.expect("the victim goes on");
        assert_eq!((answered.reply.seq, victim.state().evictions), (3, 0));
        assert_eq!(sim.node_stats("victim").connects, 1);
    });
}

#[test]
fn a_client_whose_session_was_taken_learns_it_and_gets_a_new_one() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let lazy = Options { lazy: true, ..Options::default() };
        let server = Server::start(sim.rt("server"), &disk(), lazy).await;
        let hub = client_hub(sim.rt("victim"));
        let victim = import(&hub, 1);
        victim.call(GetSequence {}).await.expect("the target answers");
        let session = server.target.session_of(1);
        // A copy of the whole client, its secret too, of which a virtual machine that was cloned is an example.
        sim.root().sleep(Duration::from_secs(10_000)).await;
        let copy = client_hub(sim.rt("copy"));
        import(&copy, 1).call(GetSequence {}).await.expect("the copy has the secret");
        assert_ne!(server.target.session_of(1), session, "the session was taken");
        copy.abandon();
        let start = sim.root().now();
        let mut told = Vec::new();
        while victim.call(GetSequence {}).await.map_err(|error| told.push(error)).is_err() {
            assert!(told.len() < 3, "{told:?}");
        }
        let took = sim.root().now() - start;
        assert!(took < Duration::from_secs(100), "epochs are outgrown soon, not one by one: {took:?}");
        assert_eq!(victim.state().evictions, 1, "what was not durable is reported as lost");
        hub.close().await;
    });
}
