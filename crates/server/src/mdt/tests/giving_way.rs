//! Changes that would wait for each other, and kernels that keep names over a restart (`docs/locks.md#kernel-names`).

use std::time::Duration;

use proto::wire::messages::{self as msg, LOCK_LOOKUP, OPEN_WRITE, RestateNames};
use proto::{ClientId, Code, Cred, Fid, Transno};

use crate::mdt::keys::OPEN;
use crate::mdt::testing::{Client, World, gave_back, name};

/// Later than a change gives way.
const LATER: Duration = Duration::from_millis(100);

fn move_request(client: &Client, from: &str, to: &str) -> msg::Rename {
    msg::Rename {
        parent: Fid::ROOT,
        name: name(from),
        new_parent: Fid::ROOT,
        new_name: name(to),
        flags: 0,
        cred: Cred::root(),
        time: client.time(),
    }
}

/// Files of which every client keeps the names.
fn files(world: &World, clients: &[&Client]) -> [Fid; 2] {
    let files = ["a", "b"].map(|text| clients[0].file(Fid::ROOT, text));
    for client in clients {
        for text in ["a", "b"] {
            client.lookup(Fid::ROOT, text).expect("it was made");
        }
    }
    world.called.take();
    files
}

#[test]
fn a_change_gives_way_whose_client_does_not_answer() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    files(&world, &[&a, &b]);
    world.called.hold();
    let moves = [a.start(1000, move_request(&a, "a", "c")), b.start(1000, move_request(&b, "b", "d"))];
    world.sim.run_for(LATER);
    for pending in moves {
        assert_eq!(world.sim.run(pending).result.err(), Some(Code::GiveWay));
    }
    world.called.answer(gave_back());
    assert!(a.lookup(Fid::ROOT, "c").is_err() && b.lookup(Fid::ROOT, "d").is_err(), "nothing was done");
    assert!(a.send(1001, move_request(&a, "a", "c")).result.is_ok());
    assert!(b.send(1001, move_request(&b, "b", "d")).result.is_ok());
}

#[test]
fn a_change_whose_client_owes_nothing_waits() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    files(&world, &[&a, &b]);
    world.called.hold();
    let pending = a.start(1000, move_request(&a, "a", "c"));
    world.sim.run_for(20 * LATER);
    world.called.answer(gave_back());
    assert!(world.sim.run(pending).result.is_ok(), "it has waited all the time");
}

/// The kernel has no directory locked for them, and does not ask again.
#[test]
fn changes_of_attributes_wait() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let files = files(&world, &[&a, &b]);
    world.called.hold();
    let chmod =
        |client: &Client, fid| msg::SetAttr { mode: Some(0o600), ..client.set_attr(fid, &Cred::root()) };
    let pending = [a.start(1000, chmod(&a, files[0])), b.start(1000, chmod(&b, files[1]))];
    world.sim.run_for(20 * LATER);
    world.called.answer(gave_back());
    for pending in pending {
        assert!(world.sim.run(pending).result.is_ok());
    }
}

#[test]
fn names_that_a_kernel_keeps_over_a_restart_are_called_back() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let [file, other] = files(&world, &[&a, &b]);
    world.sync();
    let boot = world.store.boot();
    let world = world.crash();
    let [a, b] = [1, 2].map(|n| world.connect(ClientId(n), boot, 2).expect("a known client"));
    let stated = a.replay(500, Transno(0), RestateNames { restart: 7, kept: true });
    assert!(stated.result.is_ok(), "the target waits for its clients: {stated:?}");
    let pending = [&a, &b].map(|client| client.start(600, msg::GetAttr { fid: Fid::ROOT }));
    for pending in pending {
        assert!(world.sim.run(pending).result.is_ok(), "both have nothing to replay");
    }
    [&a, &b].iter().for_each(|client| client.skip_to(1000));
    let called = |of: u64| {
        let all = world.called.take();
        let names =
            all.into_iter().filter(|(session, asked)| *session == of && asked.bits & LOCK_LOOKUP != 0);
        names.map(|(_, asked)| asked.fid).collect::<Vec<_>>()
    };
    b.call(move_request(&b, "a", "c")).expect("root may");
    assert_eq!(called(a.session()), [file]);
    a.call(move_request(&a, "b", "d")).expect("root may");
    b.call(RestateNames { restart: 1, kept: true }).expect_err("it is too late for that");
    a.call(RestateNames { restart: 6, kept: false }).expect("of another restart");
    b.call(move_request(&b, "d", "e")).expect("root may");
    assert!(called(a.session()).contains(&other));
    a.call(RestateNames { restart: 7, kept: false }).expect("it may at any time");
    b.call(move_request(&b, "e", "f")).expect("root may");
    assert_eq!(called(a.session()), []);
}

/// What waits for others when its session ends is not done any more: whoever asked was told that it failed, and others go on.
#[test]
fn what_waits_for_a_session_that_is_over_is_not_done() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let files = files(&world, &[&a, &b]);
    let remove = |text| msg::Unlink {
        parent: Fid::ROOT,
        name: name(text),
        directory: false,
        cred: Cred::root(),
        time: a.time(),
    };
    world.called.hold();
    let unlinking = a.start(1000, remove("a"));
    let opening = a.start(1001, msg::Open { fid: files[1], open: OPEN_WRITE, cred: Cred::root() });
    world.sim.run_for(Duration::from_millis(10));
    let again = world.connect(ClientId(1), 0, 2).expect("it comes back and knows nothing");
    world.called.answer(gave_back());
    assert_eq!(world.sim.run(unlinking).result.err(), Some(Code::Evicted));
    drop(world.sim.run(opening));
    assert!(again.lookup(Fid::ROOT, "a").is_ok(), "it is told that nothing was done");
    assert_eq!(world.keys(OPEN), 0, "nothing is open for it");
}
