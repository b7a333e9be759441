//! Sessions with OSTs that are not used.

use std::time::Duration;

use proto::{Fid, TargetId};

use crate::parameters::{set, value};
use crate::world::{World, create, create_on, join, root};

/// Nobody but the MDT is asked for anything: the OST's locks are given back, and its session ends until it is used again.
#[test]
fn a_session_that_is_not_used_ends() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"before").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        let session = || client.admin().held().sessions[&TargetId::ost(0)];
        let begun = session();
        for tick in 0..66 {
            if tick < 60 {
                assert_eq!(session(), begun, "it holds a lock");
            }
            rt.sleep(Duration::from_secs(10)).await;
            let name = format!("nobody{tick}");
            assert!(client.names().lookup(&root(), Fid::ROOT, name.as_bytes()).await.is_err());
        }
        assert_eq!(session(), 0);
        assert_eq!(join(&client.files().read(handle, 0, 10).await.expect("it is there")), b"before");
        client.files().write(handle, 0, b"after!").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        assert!(session() != 0 && session() != begun);
        assert_eq!(join(&client.files().read(handle, 0, 10).await.expect("it is there")), b"after!");
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
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().release(handle).await;
        rt.sleep(Duration::from_secs(700)).await;
        let held = client.admin().held();
        let osts = held.sessions.iter().filter(|(id, _)| id.kind == proto::TargetKind::Ost);
        assert!(osts.clone().count() > 0 && osts.clone().all(|(_, session)| *session == 0));
        let sent = world.sim.node_stats("client").frames_sent;
        rt.sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.sim.node_stats("client").frames_sent, sent);
    });
}

/// When sessions end in which nothing is held can be set, also while nothing else is held.
#[test]
fn how_long_a_session_stays_can_be_set() {
    let world = World::remote(1, 3);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let open = || {
            [0, 1, 2]
                .map(|ost| client.admin().held().sessions.get(&TargetId::ost(ost)).is_some_and(|of| *of != 0))
        };
        for (ost, seconds) in [("OST0000", "3"), ("OST0002", "0")] {
            assert_eq!(value(&client, &format!("osc.*{ost}*.idle_timeout")), "20");
            set(&client, &format!("osc.*{ost}*.idle_timeout"), seconds).await.expect("it is one");
            assert_eq!(value(&client, &format!("osc.*{ost}*.idle_timeout")), seconds);
        }
        assert!(set(&client, "osc.*.idle_timeout", "-1").await.is_err());
        client.admin().statfs().await.expect("all answer");
        for ost in 0..3 {
            let handle = create_on(&client, format!("f{ost}").as_bytes(), ost).await;
            client.files().write(handle, 0, b"data").await.expect("there is room");
            client.files().release(handle).await;
        }
        client.sync_all().await.expect("it is durable");
        for ost in 0..3 {
            client.admin().locks.clear(TargetId::ost(ost)).await.expect("there is a session");
        }
        client.admin().locks.clear(TargetId::mdt(0)).await.expect("there is a session");
        rt.sleep(Duration::from_secs(12)).await;
        assert_eq!(open(), [false, true, true]);
        rt.sleep(Duration::from_secs(20)).await;
        assert_eq!(open(), [false, false, true]);
        rt.sleep(Duration::from_secs(4000)).await;
        assert_eq!((open(), client.admin().lease().number), ([false, false, true], 0));
        set(&client, "osc.*.idle_timeout", "2").await.expect("it is one");
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(open(), [false; 3]);
    });
}

/// A client that has had to do with ten thousand OSTs, and holds something of one, looks at that one now and then.
#[test]
fn looks_do_not_grow_with_the_number_of_osts() {
    const OSTS: u32 = 10_000;
    let world = World::new(1, OSTS);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        client.admin().statfs().await.expect("all answer");
        assert_eq!(client.admin().held().sessions.len(), OSTS as usize + 1);
        let handle = create_on(&client, b"f", 77).await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        rt.sleep(Duration::from_secs(60)).await;
        let looks = || client.admin().counters()["idle.looks"];
        let (before, renewals) = (looks(), client.admin().lease().renewals);
        rt.sleep(Duration::from_secs(500)).await;
        assert!(client.admin().lease().renewals >= renewals + 50, "it looks with each renewal");
        assert!(looks() - before <= 10, "{} looks in 100 renewals", looks() - before);
        assert_eq!(client.admin().held().ranges.len(), 1);
    });
}

/// A thousand objects of one OST, and as many files.
async fn thousand(client: &client::Client) {
    for n in 0..1000 {
        let handle = create_on(client, format!("f{n}").as_bytes(), 0).await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().release(handle).await;
    }
    client.sync_all().await.expect("it is durable");
    for n in 0..1000 {
        client.names().lookup(&root(), Fid::ROOT, format!("f{n}").as_bytes()).await.expect("it is there");
    }
}

#[test]
fn locks_are_counted_and_bounded() {
    let world = World::real(1, 2);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (ost, mdt) = (TargetId::ost(0), TargetId::mdt(0));
        let of = |target: TargetId| {
            let uses = client.admin().locks.uses();
            *uses.iter().find(|of| of.target == target).expect("there is a session")
        };
        thousand(&client).await;
        assert_eq!((of(ost).count, of(ost).unused, of(ost).max), (1000, 1000, 0));
        assert!(of(mdt).count >= 1000 && of(mdt).unused >= 1000);
        client.admin().locks.set_max(ost, 100).await.expect("there is a session");
        client.admin().locks.set_max(mdt, 200).await.expect("there is a session");
        assert_eq!((of(ost).count, of(mdt).count), (100, 200));
        assert_eq!(client.admin().held().ranges.len(), 100);
        thousand_more(&client).await;
        // What was in use when more came goes with the next renewal of the lease.
        rt.sleep(Duration::from_secs(6)).await;
        assert!(of(ost).count <= 100 && of(mdt).count <= 200, "{:?} {:?}", of(ost), of(mdt));
        client.admin().locks.set_max(ost, 0).await.expect("there is a session");
        client.admin().locks.clear(ost).await.expect("there is a session");
        assert_eq!((of(ost).count, of(ost).max), (0, 0));
        client.admin().locks.clear(mdt).await.expect("there is a session");
        assert!(of(mdt).unused == 0 && of(mdt).max == 200, "{:?}", of(mdt));
        assert!(client.admin().locks.set_max(TargetId::ost(7), 1).await.is_err());
    });
}

async fn thousand_more(client: &client::Client) {
    for n in 0..1000 {
        let handle = create_on(client, format!("g{n}").as_bytes(), 0).await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().release(handle).await;
    }
    client.sync_all().await.expect("it is durable");
}

#[test]
fn locks_go_when_they_are_as_old_as_was_said() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        rt.sleep(Duration::from_secs(100)).await;
        let count =
            || client.admin().locks.uses().iter().find(|of| of.target == TargetId::ost(0)).map(|of| of.count);
        assert_eq!(count(), Some(1), "ten minutes are not over");
        client
            .admin()
            .locks
            .set_age_max(TargetId::ost(0), Duration::from_secs(30))
            .expect("there is a session");
        rt.sleep(Duration::from_secs(6)).await;
        assert_eq!(count(), Some(0));
    });
}
