//! Sessions with OSTs that are not used.

use std::time::Duration;

use proto::{Fid, TargetId};

use crate::world::{World, create, join, root};

/// Nobody but the MDT is asked for anything: the OST's locks are given back, and its session ends until it is used again.
#[test]
fn a_session_that_is_not_used_ends() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        client.write(handle, 0, b"before").await.expect("there is room");
        client.fsync(handle).await.expect("it is durable");
        let session = || client.held().sessions[&TargetId::ost(0)];
        let begun = session();
        for tick in 0..66 {
            if tick < 60 {
                assert_eq!(session(), begun, "it holds a lock");
            }
            rt.sleep(Duration::from_secs(10)).await;
            let name = format!("nobody{tick}");
            assert!(client.lookup(&root(), Fid::ROOT, name.as_bytes()).await.is_err());
        }
        assert_eq!(session(), 0);
        assert_eq!(join(&client.read(handle, 0, 10).await.expect("it is there")), b"before");
        client.write(handle, 0, b"after!").await.expect("there is room");
        client.fsync(handle).await.expect("it is durable");
        assert!(session() != 0 && session() != begun);
        assert_eq!(join(&client.read(handle, 0, 10).await.expect("it is there")), b"after!");
    });
}

/// A client that has closed everything has no session with an OST after a while, and sends nothing more.
#[test]
fn who_holds_nothing_has_no_sessions() {
    let world = World::remote(1, 4);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        client.write(handle, 0, b"data").await.expect("there is room");
        client.release(handle).await;
        rt.sleep(Duration::from_secs(700)).await;
        let held = client.held();
        let osts = held.sessions.iter().filter(|(id, _)| id.kind == proto::TargetKind::Ost);
        assert!(osts.clone().count() > 0 && osts.clone().all(|(_, session)| *session == 0));
        let sent = world.sim.node_stats("client").frames_sent;
        rt.sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.sim.node_stats("client").frames_sent, sent);
    });
}
