//! Questions outside any session, and clients that are told that their session was ended.

use std::time::Duration;

use proto::wire::messages::{GetState, Statfs};
use proto::{Code, TargetId};
use rpc::{AskError, Hub, Role};
use rt::sim::{Options as World, Sim};

use crate::callback::{Client, disk};
use crate::target::{Options, Server, TARGET, Target, all_keys, client_hub, fsname, identify, import, nid};

const PATIENCE: Duration = Duration::from_secs(3);

#[test]
fn a_question_reaches_the_target_without_a_session() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        // The target of these tests knows no such questions, and refuses in its own words.
        let answer = hub.ask(TARGET, Role::Client, &[nid()], GetState {}, PATIENCE).await;
        assert_eq!(answer, Err(AskError::Refused(Code::NoSession)));
        let seen = { server.target.seen.lock().calls };
        assert_eq!(seen, 1, "it is asked");
        let answer = server.hub.ask(TARGET, Role::Server, &[], GetState {}, PATIENCE).await;
        assert_eq!(answer, Err(AskError::Refused(Code::NoSession)), "in its own process too");
        let answer = hub.ask(TargetId::ost(9), Role::Client, &[nid()], GetState {}, PATIENCE).await;
        assert_eq!(answer, Err(AskError::Refused(Code::NotHere)));
    });
}

#[test]
fn nobody_answers_and_the_asker_goes_on() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let hub = client_hub(sim.rt("client"));
        for nids in [&[nid()][..], &[]] {
            let answer = hub.ask(TARGET, Role::Client, nids, GetState {}, PATIENCE).await;
            assert!(matches!(answer, Err(AskError::Unanswered(_))), "{answer:?}");
        }
        let without_key = hub.ask(TARGET, Role::Server, &[nid()], GetState {}, PATIENCE).await;
        assert!(without_key.is_err(), "{without_key:?}");
    });
}

#[test]
fn who_is_evicted_connects_again_without_being_asked() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let _client = Client::new(&import, hub.rt(), Duration::ZERO);
        import.call(Statfs {}).await.expect("the target answers");
        let session = server.target.session_of(1).expect("the client has a session");
        server.hub.session_evicted(TARGET, session);
        sim.root().sleep(Duration::from_secs(2)).await;
        let connects = { server.target.seen.lock().connects };
        assert_eq!(connects, 2, "it did nothing, and is there again");
    });
}

#[test]
fn who_is_evicted_in_the_same_process_connects_again_too() {
    let sim = Sim::new(World::seed(1));
    let rt = sim.rt("host");
    let hub = Hub::new(rt.clone(), fsname(), all_keys());
    let target = Target::start(&rt, &disk(), Options::default());
    hub.serve(TARGET, target.clone());
    sim.run(async {
        let import = hub.import(TARGET, identify(&hub, 1), Role::Client, Vec::new());
        let _client = Client::new(&import, hub.rt(), Duration::ZERO);
        import.call(Statfs {}).await.expect("the target answers");
        let session = target.session_of(1).expect("the client has a session");
        hub.session_evicted(TARGET, session);
        sim.root().sleep(Duration::from_secs(2)).await;
        let connects = { target.seen.lock().connects };
        assert_eq!(connects, 2);
    });
}
