//! Sessions and exactly-once, seen from outside: an MDT is the target.

use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{ClientId, Code, Cred, Fid, Transno};
use rpc::Role;

use crate::mdt::testing::{Client, NODE, World, ask};

fn mkdir(client: &Client, parent: Fid, text: &str) -> msg::Create {
    client.create_request(parent, text, 0o040_755)
}

/// The reply, whoever gave it.
fn reply(answer: rpc::Answer) -> (Result<Reply, Code>, Transno) {
    (answer.result, answer.transno)
}

#[test]
fn a_request_that_comes_again_is_answered_again() {
    let world = World::without_locks();
    let client = world.client(1);
    let (request, xid) = (mkdir(&client, Fid::ROOT, "d"), client.xid() + 1);
    let first = reply(client.send(xid, request.clone()));
    assert!(first.0.is_ok() && first.1 > Transno(0));
    assert_eq!(reply(client.send(xid, request.clone())), first);
    let refused = reply(client.send(xid + 1, mkdir(&client, Fid::ROOT, "d")));
    assert_eq!(refused, (Err(Code::Exists), Transno(0)));
    assert_eq!(reply(client.send(xid, request)), (Err(Code::Invalid), Transno(0)), "a newer one was there");
    assert_eq!(client.attr(Fid::ROOT).map(|attr| attr.nlink), Ok(3));
}

#[test]
fn a_reply_survives_a_crash_with_its_change() {
    let world = World::without_locks();
    let client = world.client(1);
    let (request, xid) = (mkdir(&client, Fid::ROOT, "d"), client.xid() + 1);
    let first = reply(client.send(xid, request.clone()));
    world.sync();
    let (boot, sequence) = (world.store.boot(), client.sequence.get());
    let world = world.crash();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    let connected = client.connected.clone().expect("it is connected");
    assert!(connected.resumed && connected.boot != boot && connected.last_committed >= first.1);
    assert_eq!(reply(client.send(xid, request)), first);
    client.sequence.set(sequence);
    client.skip_to(xid);
    for _ in 0..5 {
        client.new_fid();
    }
    client.mkdir(Fid::ROOT, "e");
    assert_eq!(client.attr(Fid::ROOT).map(|attr| attr.nlink), Ok(4), "the old sequence goes on");
}

#[test]
fn what_a_crash_lost_is_replayed_as_it_was() {
    let world = World::without_locks();
    let client = world.client(1);
    world.sync();
    let first = client.xid() + 1;
    let dir = mkdir(&client, Fid::ROOT, "d");
    let parent = dir.fid;
    let file = msg::Create { open: msg::OPEN_WRITE, ..client.create_request(parent, "f", 0o100_644) };
    let before = [reply(client.send(first, dir.clone())), reply(client.send(first + 1, file.clone()))];
    let boot = world.store.boot();
    let world = world.crash();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    let after =
        [reply(client.replay(first, before[0].1, dir)), reply(client.replay(first + 1, before[1].1, file))];
    assert_eq!(after, before, "replies, layouts, versions and transnos are the same");
    client.skip_to(first + 1);
    assert_eq!(client.lookup(parent, "f").map(|attr| attr.size_known), Ok(false));
}

#[test]
fn replays_of_two_clients_rest_on_each_other() {
    let world = World::without_locks();
    let (a, b) = (world.client(1), world.client(2));
    world.sync();
    let dir = mkdir(&a, Fid::ROOT, "d");
    let sub = mkdir(&b, dir.fid, "sub");
    let made = [reply(a.send(a.xid() + 1, dir.clone())).1, reply(b.send(b.xid() + 1, sub.clone())).1];
    let (boot, xids) = (world.store.boot(), (a.xid() + 1, b.xid() + 1));
    let world = world.crash();
    let (a, b) = (world.connect(ClientId(1), boot, 2), world.connect(ClientId(2), boot, 2));
    let (a, b) = (a.expect("a known client"), b.expect("a known client"));
    // The later change comes first and waits for the other client.
    let later = b.start_replay(xids.1, made[1], sub);
    world.sim.run_for(std::time::Duration::from_secs(1));
    let earlier = a.start_replay(xids.0, made[0], dir);
    world.sim.run_for(std::time::Duration::from_secs(1));
    let done = a.start(xids.0 + 1, msg::Sync { transno: Transno(0) });
    let answers = world.sim.run(async { (earlier.await, later.await) });
    assert_eq!((reply(answers.0).1, reply(answers.1).1), (made[0], made[1]));
    b.skip_to(xids.1);
    assert!(b.call(msg::Sync { transno: Transno(0) }).is_ok());
    assert!(world.sim.run(done).result.is_ok());
    assert_eq!(b.lookup(Fid::ROOT, "d").map(|attr| attr.nlink), Ok(3));
}

/// A client that states again what it holds is answered while others are waited for, and that is no sign that it has no
/// more replays.
#[test]
fn what_is_stated_again_passes_and_does_not_end_the_replays() {
    let world = World::without_locks();
    let (a, _b) = (world.client(1), world.client(2));
    world.sync();
    let dir = mkdir(&a, Fid::ROOT, "d");
    let (boot, xid) = (world.store.boot(), a.xid() + 1);
    let made = reply(a.send(xid, dir.clone()));
    let world = world.crash();
    let (a, b) = (world.connect(ClientId(1), boot, 2), world.connect(ClientId(2), boot, 2));
    let (a, b) = (a.expect("a known client"), b.expect("a known client"));
    let stated = a.replay(xid + 1, Transno(0), msg::GetAttr { fid: Fid::ROOT });
    assert!(stated.result.is_ok(), "{stated:?}");
    let mut waiting = b.start(b.xid() + 1, msg::Sync { transno: Transno(0) });
    let early = world.sim.run(world.sim.rt(NODE).timeout(std::time::Duration::from_secs(1), &mut waiting));
    assert!(early.is_none(), "the first client may still have replays");
    assert_eq!(reply(a.replay(xid, made.1, dir)), made);
    a.skip_to(xid + 1);
    assert!(a.call(msg::Sync { transno: Transno(0) }).is_ok());
    assert!(world.sim.run(waiting).result.is_ok());
}

/// The record of a client that left in the middle of the replays took the transno of a change that was still to be
/// replayed, and told its client that the change was durable.
#[test]
fn who_leaves_during_replays_draws_no_transno() {
    let world = World::without_locks();
    let (a, b) = (world.client(1), world.client(2));
    world.sync();
    let dir = mkdir(&a, Fid::ROOT, "d");
    let (boot, xid, left) = (world.store.boot(), a.xid() + 1, b.xid() + 1);
    let made = reply(a.send(xid, dir.clone()));
    let world = world.crash();
    let (a, b) = (world.connect(ClientId(1), boot, 2), world.connect(ClientId(2), boot, 2));
    let (a, b) = (a.expect("a known client"), b.expect("a known client"));
    assert!(b.send(left, msg::Disconnect {}).result.is_ok());
    world.sync();
    assert!(world.store.last_committed() < made.1, "nothing was made durable under this number");
    assert_eq!(reply(a.replay(xid, made.1, dir)), made);
    a.skip_to(xid);
    assert!(a.call(msg::Sync { transno: Transno(0) }).is_ok());
    world.sim.run_for(std::time::Duration::from_secs(1));
    assert_eq!(world.keys(service::keys::CLIENT), 1, "only the first client is waited for the next time");
}

/// A client that was told of its session sends changes: a crash must not leave nobody knowing what became of them.
#[test]
fn who_was_told_of_a_session_is_known_after_a_crash() {
    let world = World::without_locks();
    world.connect(ClientId(1), 0, 1).expect("a new client is let in");
    let boot = world.store.boot();
    let world = world.crash();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    assert!(client.connected.expect("it is connected").resumed);
}

#[test]
fn who_comes_too_late_is_not_known_any_more() {
    let world = World::without_locks();
    let client = world.client(1);
    client.mkdir(Fid::ROOT, "d");
    world.sync();
    let boot = world.store.boot();
    let world = world.crash();
    let other = world.client(2);
    assert!(world.sim.now() >= service::RETURN_PATIENCE, "the first client was waited for");
    other.lookup(Fid::ROOT, "d").expect("it is durable");
    let late = world.connect(ClientId(1), boot, 2).expect("as a new client it may come");
    assert!(!late.connected.expect("it is connected").resumed);
}

#[test]
fn connections_follow_one_another() {
    let world = World::without_locks();
    let client = world.client(1);
    let boot = world.store.boot();
    let newer = world.connect(ClientId(1), boot, 2).expect("the client reconnects");
    assert!(newer.connected.as_ref().expect("it is connected").resumed);
    assert_eq!(newer.session(), client.session());
    assert_eq!(client.attr(Fid::ROOT), Err(Code::NoSession), "of the older connection");
    assert!(newer.attr(Fid::ROOT).is_ok());
    assert_eq!(world.connect(ClientId(1), boot, 2).map(drop), Err(Code::NoSession));
    let fresh = world.connect(ClientId(1), 0, 3).expect("the client begins anew");
    assert!(!fresh.connected.as_ref().expect("it is connected").resumed);
    assert_ne!(fresh.session(), client.session());
    newer.skip_to(100);
    assert_eq!(newer.attr(Fid::ROOT), Err(Code::NoSession));
    let refused = newer.make(Fid::ROOT, "x", 0o040_755, &Cred::root());
    assert_eq!(refused, Err(Code::NoSession));
}

#[test]
fn what_does_not_belong_here_is_refused() {
    let world = World::without_locks();
    let client = world.client(1);
    let connect = |fsname: &str, features| msg::Connect {
        client: ClientId(9),
        features,
        fsname: fsname.to_owned(),
        boot: 0,
        session_epoch: 1,
        committed: Transno(0),
        proof: Default::default(),
    };
    let asked = |connect| ask(&world, Role::Client, connect).map(drop);
    assert_eq!(asked(connect("other", msg::FEATURES_ALL)), Err(Code::WrongFilesystem));
    assert_eq!(asked(connect("weft", 0)), Err(Code::Version));
    let in_session = client.call(connect("weft", msg::FEATURES_ALL)).map(drop);
    assert_eq!(in_session, Err(Code::Malformed), "who asks in a session proves nothing");
    assert_eq!(client.call(msg::Destroy { objects: vec![], dead: vec![] }).map(drop), Err(Code::Forbidden));
    let lease = msg::RenewLease { lease: 0, release: true, dropped: vec![] };
    assert_eq!(client.call(lease).map(drop), Err(Code::NotSupported));
}

#[test]
fn an_orderly_restart_keeps_everything() {
    let world = World::without_locks();
    let client = world.client(1);
    let dir = client.mkdir(Fid::ROOT, "d");
    let boot = world.store.boot();
    let world = world.restart();
    let client = world.connect(ClientId(1), boot, 2).expect("a known client");
    client.skip_to(50);
    assert_eq!(client.lookup(Fid::ROOT, "d").map(|attr| attr.fid), Ok(dir));
}
