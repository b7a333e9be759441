//! Directories that one client has to itself (`docs/locks.md#alone`).

use proto::layout::{Component, LayoutHint};
use proto::wire::messages::{
    self as msg, CancelBits, Foretold, LOCK_ALONE, OPEN_ALONE, OPEN_EXCLUSIVE, OPEN_WRITE, QUOTA_USER,
    RestateAlone,
};
use proto::{ClientId, Code, Cred, Fid, Layout, OstIndex, Transno};
use rpc::Role;
use service::Shown;

use crate::mdt::testing::{Client, World, ask, gave_back};

/// Makes a directory that the client wants to itself.
fn alone(client: &Client, text: &str) -> msg::Created {
    let create = client.create_request(Fid::ROOT, text, 0o040_755);
    client.call(msg::Create { open: OPEN_EXCLUSIVE | OPEN_ALONE, ..create }).expect("a new name")
}

fn is_alone(made: &msg::Created) -> bool {
    made.lock.bits & LOCK_ALONE != 0
}

/// Whether another client's operation calls the directory back.
fn calls_back(operation: impl FnOnce(&World, &Client, Fid)) -> bool {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = alone(&a, "d").attr.fid;
    a.file(dir, "f");
    world.called.take();
    world.called.answer(gave_back());
    operation(&world, &b, dir);
    let called = world.called.take();
    called
        .iter()
        .any(|(session, asked)| *session == a.session() && asked.fid == dir && asked.bits & LOCK_ALONE != 0)
}

#[test]
fn whoever_else_comes_calls_it_back() {
    assert!(calls_back(|_, b, dir| drop(b.lookup(dir, "f"))), "a name in it");
    assert!(calls_back(|_, b, dir| drop(b.lookup(dir, "none"))), "a name that is not in it");
    assert!(calls_back(|_, b, _| drop(b.lookup(Fid::ROOT, "d"))), "its own attributes");
    assert!(calls_back(|_, b, dir| drop(b.attr(dir))));
    assert!(calls_back(|_, b, dir| drop(b.names(dir))), "a listing");
    assert!(calls_back(|_, b, dir| _ = b.file(dir, "g")), "a new name");
    assert!(calls_back(|_, b, dir| drop(b.unlink(dir, "f"))));
    assert!(calls_back(|_, b, _| drop(b.rmdir(Fid::ROOT, "d"))), "whether it is empty");
    assert!(calls_back(|_, b, dir| drop(b.rename((dir, "f"), (Fid::ROOT, "g"), 0, &Cred::root()))));
    assert!(calls_back(|_, b, dir| b.chmod(dir, 0o700)));
    let other = |_: &World, b: &Client, _: Fid| _ = b.file(Fid::ROOT, "elsewhere");
    assert!(!calls_back(other), "it is not concerned");
    assert!(!calls_back(|_, b, _| drop(b.names(Fid::ROOT))), "a listing of what is above");
}

#[test]
fn it_counts_as_held() {
    let world = World::new();
    let a = world.client(1);
    let held = || {
        let shown = world.target.handler();
        assert_eq!(shown.held_count(), shown.held().len());
        shown.held_count()
    };
    let before = held();
    assert!(is_alone(&alone(&a, "d")));
    assert_eq!(held(), before + 2, "its bits, and that it is the client's alone");
}

#[test]
fn it_is_called_back_once_and_never_again() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = alone(&a, "d").attr.fid;
    world.called.answer(gave_back());
    a.file(dir, "f");
    assert!(world.called.take().is_empty(), "its own client calls nothing back");
    b.lookup(dir, "f").expect("it was made");
    b.lookup(dir, "f").expect("it was made");
    let alone = world.called.take().iter().filter(|(_, asked)| asked.bits & LOCK_ALONE != 0).count();
    assert_eq!(alone, 1);
    let again = alone_again(&a, dir);
    assert!(!again, "a directory that others know is nobody's");
}

/// Whether an existing directory can be had alone.
fn alone_again(client: &Client, dir: Fid) -> bool {
    let create = client.create_request(Fid::ROOT, "d", 0o040_755);
    let refused = client.call(msg::Create { open: OPEN_EXCLUSIVE | OPEN_ALONE, fid: dir, ..create });
    refused.is_ok_and(|made| is_alone(&made))
}

#[test]
fn who_gives_it_up_is_not_called() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = alone(&a, "d").attr.fid;
    let lock = msg::BitLock { fid: dir, bits: LOCK_ALONE, number: u64::MAX };
    b.call(CancelBits { locks: vec![lock.clone()] }).expect("it is not b's");
    a.call(CancelBits { locks: vec![lock] }).expect("it is a's");
    world.called.take();
    b.lookup(dir, "none").expect_err("nothing is there");
    assert!(world.called.take().iter().all(|(_, asked)| asked.bits & LOCK_ALONE == 0));
}

#[test]
fn a_client_that_is_gone_has_nothing_alone() {
    let world = World::new();
    let b = world.client(2);
    let dir = {
        let a = world.client(1);
        let dir = alone(&a, "d").attr.fid;
        a.call(msg::Disconnect {}).expect("it may leave");
        dir
    };
    world.called.take();
    assert_eq!(b.lookup(dir, "f"), Err(Code::NotFound));
    assert!(world.called.take().is_empty());
}

#[test]
fn after_a_restart_it_is_stated_again_before_others_are_served() {
    let world = World::new();
    let dir = alone(&world.client(1), "d").attr.fid;
    let _ = world.client(2);
    world.sync();
    let boot = world.store.boot();
    let world = world.crash();
    let [a, b] = [1, 2].map(|n| world.connect(ClientId(n), boot, 2).expect("a known client"));
    let stated = a.replay(500, Transno(0), RestateAlone { dirs: vec![dir] });
    assert!(stated.result.is_ok(), "the target waits for its clients: {stated:?}");
    let other = b.replay(500, Transno(0), RestateAlone { dirs: vec![dir] });
    assert_eq!(other.result.err(), Some(Code::Invalid), "somebody else said so");
    let pending = [&a, &b].map(|client| client.start(600, msg::GetAttr { fid: Fid::ROOT }));
    for pending in pending {
        assert!(world.sim.run(pending).result.is_ok(), "both have nothing to replay");
    }
    [&a, &b].iter().for_each(|client| client.skip_to(1000));
    world.called.take();
    world.called.answer(gave_back());
    assert_eq!(b.lookup(dir, "f"), Err(Code::NotFound));
    let called = world.called.take();
    assert!(called.iter().any(|(of, asked)| *of == a.session() && asked.bits == LOCK_ALONE));
    let late = a.call(RestateAlone { dirs: vec![dir] });
    assert_eq!(late.err(), Some(Code::Invalid), "others may have looked");
}

#[test]
fn limits_of_inodes_end_it() {
    let world = World::new();
    let a = world.client(1);
    let dir = alone(&a, "d").attr.fid;
    world.called.answer(gave_back());
    let set = msg::SetQuota {
        kind: QUOTA_USER,
        id: 1000,
        inodes_soft: None,
        inodes_hard: Some(9),
        inodes_grace_s: None,
        bytes_soft: None,
        bytes_hard: None,
        bytes_grace_s: None,
        forget: false,
        pool: String::new(),
    };
    ask(&world, Role::Server, set).expect("servers may");
    assert!(world.called.take().iter().any(|(_, asked)| (asked.fid, asked.bits) == (dir, LOCK_ALONE)));
    assert!(!is_alone(&alone(&a, "e")));
}

#[test]
fn a_foretold_file_is_what_was_told() {
    let world = World::new();
    world.set_osts(&[(0, "oss1"), (1, "oss2")]);
    let a = world.client(1);
    let made = alone(&a, "d");
    let (dir, spread) = (made.attr.fid, made.spread.expect("how files lie"));
    let request = |text: &str| {
        let create = a.create_request(dir, text, 0o100_644);
        let layout = spread.layout_of(create.fid);
        let foretold = Some(Box::new(Foretold { handle: Foretold::handle_of(create.fid), layout }));
        msg::Create { open: OPEN_EXCLUSIVE | OPEN_WRITE, foretold, ..create }
    };
    let first = request("first");
    let told = first.foretold.clone().expect("it is foretold");
    let made = a.call(first).expect("a new name");
    assert_eq!((made.handle, made.layout, made.spread), (told.handle, told.layout, None));
    // What the MDT chooses itself is the same.
    let plain = a.create_request(dir, "plain", 0o100_644);
    let expected = spread.layout_of(plain.fid);
    assert_eq!(a.call(plain).expect("a new name").layout, expected);
    world.set_osts(&[(0, "oss1"), (1, "oss2"), (2, "oss3")]);
    let second = request("second");
    let told = second.foretold.clone().and_then(|told| told.layout);
    let made = a.call(second).expect("the OSTs are there still");
    assert_eq!(made.layout, told);
    assert_eq!(made.spread.map(|spread| spread.osts.len()), Some(3), "it is told of the change");
}

#[test]
fn what_nobody_can_foretell_is_refused() {
    let world = World::new();
    world.set_osts(&[(0, "oss1"), (1, "oss2")]);
    let a = world.client(1);
    let dir = alone(&a, "d").attr.fid;
    let request = |change: &dyn Fn(Fid, &mut Foretold)| {
        let create = a.create_request(dir, "f", 0o100_644);
        let layout = Some(Layout::from(Component::striped(create.fid, 1 << 20, [OstIndex(0)])));
        let mut foretold = Foretold { handle: Foretold::handle_of(create.fid), layout };
        change(create.fid, &mut foretold);
        a.call(msg::Create {
            open: OPEN_EXCLUSIVE | OPEN_WRITE,
            foretold: Some(Box::new(foretold)),
            ..create
        })
    };
    let layout = |id, size, osts: &[u32]| {
        Some(Layout::from(Component::striped(id, size, osts.iter().copied().map(OstIndex))))
    };
    let refused = |change: &dyn Fn(Fid, &mut Foretold)| request(change).err() == Some(Code::Invalid);
    assert!(refused(&|_, told| told.handle = 7), "another one's handle");
    assert!(refused(&|id, told| told.layout = layout(id, 1 << 20, &[9])), "an OST that there is not");
    assert!(refused(&|id, told| told.layout = layout(id, 1000, &[0])));
    assert!(refused(&|id, told| told.layout = layout(id, 1 << 20, &[0, 0])), "twice the same");
    assert!(refused(&|id, told| told.layout = layout(id, 1 << 20, &[])));
    assert!(refused(&|_, told| told.layout = layout(Fid::ROOT, 1 << 20, &[0])), "another one's objects");
    assert!(refused(&|id, told| {
        let component = Component { pool: "p".into(), ..Component::striped(id, 1 << 20, [OstIndex(0)]) };
        told.layout = Some(Layout::from(component));
    }));
    assert!(request(&|_, _| {}).is_ok());
}

#[test]
fn where_a_directory_asks_for_more_nothing_is_foretold() {
    let world = World::new();
    world.set_osts(&[(0, "oss1"), (1, "oss2")]);
    let a = world.client(1);
    let hint = LayoutHint { start_index: 1, ..LayoutHint::default() };
    let set = msg::SetLayout { fid: Fid::ROOT, hint: Some(hint), cred: Cred::root(), time: a.time() };
    a.call(set).expect("root may");
    let made = alone(&a, "d");
    let spread = made.spread.expect("how files lie");
    assert_eq!(spread.layout_of(a.new_fid()), None);
}
