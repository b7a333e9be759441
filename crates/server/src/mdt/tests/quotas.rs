//! Quotas of inodes: what owners have is exact over crashes, and nobody comes above a hard limit.

use std::time::Duration;

use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::wire::messages::{QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER, QuotaUse, SetQuota};
use proto::{ClientId, Code, Cred, Fid, FileKind};
use rpc::Role;
use service::Watch;

use crate::mdt::testing::{Client, World, ask, name, user};

const BOB: u32 = 1000;

fn read(world: &World, kind: u8, id: u32) -> QuotaUse {
    match ask(world, Role::Client, msg::ReadQuota { kind, id, pool: String::new() }) {
        Ok(Reply::ReadQuota(state)) => state.inodes,
        other => panic!("another answer: {other:?}"),
    }
}

fn used(world: &World, kind: u8, id: u32) -> u64 {
    read(world, kind, id).used
}

fn nothing() -> SetQuota {
    SetQuota {
        kind: QUOTA_USER,
        id: 0,
        inodes_soft: None,
        inodes_hard: None,
        inodes_grace_s: None,
        bytes_soft: None,
        bytes_hard: None,
        bytes_grace_s: None,
        forget: false,
        pool: String::new(),
    }
}

fn set(world: &World, kind: u8, id: u32, soft: u64, hard: u64) -> Result<(), Code> {
    let (inodes_soft, inodes_hard) = (Some(soft), Some(hard));
    ask(world, Role::Client, SetQuota { kind, id, inodes_soft, inodes_hard, ..nothing() }).map(drop)
}

fn grace(world: &World, seconds: u64) {
    let grace = SetQuota { inodes_grace_s: Some(seconds), ..nothing() };
    ask(world, Role::Client, grace).expect("it is kept");
}

fn make(client: &Client, text: &str, cred: Cred) -> Result<Fid, Code> {
    client.make(Fid::ROOT, text, FileKind::Fifo.mode_bits() | 0o644, &cred).map(|attr| attr.fid)
}

fn chown(client: &Client, fid: Fid, uid: Option<u32>, gid: Option<u32>, cred: Cred) -> Result<(), Code> {
    client.call(msg::SetAttr { uid, gid, ..client.set_attr(fid, &cred) }).map(drop)
}

#[test]
fn what_an_owner_has_is_exact() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    assert_eq!(used(&world, QUOTA_USER, 0), 1, "the root");
    let file = make(&client, "f", user(BOB)).expect("the root is open to all");
    client.mkdir(Fid::ROOT, "d");
    assert_eq!((used(&world, QUOTA_USER, BOB), used(&world, QUOTA_USER, 0)), (1, 2));
    chown(&client, file, Some(7), Some(8), Cred::root()).expect("root may");
    let all = |world: &World| {
        [(QUOTA_USER, BOB), (QUOTA_USER, 7), (QUOTA_GROUP, 8)].map(|(kind, id)| used(world, kind, id))
    };
    assert_eq!(all(&world), [0, 1, 1]);
    world.sync();
    let world = world.crash();
    let client = world.client(2);
    assert_eq!(all(&world), [0, 1, 1]);
    client.unlink(Fid::ROOT, "f").expect("it is there");
    assert_eq!(all(&world), [0, 0, 0]);
    world.restart();
}

#[test]
fn a_target_of_before_is_counted_when_it_is_opened() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    for text in ["a", "b", "c"] {
        make(&client, text, user(BOB)).expect("the root is open to all");
    }
    let world = world.restart_uncounted();
    assert_eq!((used(&world, QUOTA_USER, BOB), used(&world, QUOTA_USER, 0)), (3, 1));
    world.restart();
}

#[test]
fn nobody_comes_above_a_hard_limit() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    set(&world, QUOTA_USER, BOB, 0, 2).expect("it is kept");
    assert_eq!(set(&world, QUOTA_USER, BOB, 3, 2), Err(Code::Invalid));
    make(&client, "a", user(BOB)).expect("one of two");
    make(&client, "b", user(BOB)).expect("two of two");
    assert_eq!(make(&client, "c", user(BOB)), Err(Code::Quota));
    make(&client, "of another", user(BOB + 1)).expect("there is no limit");
    // The superuser may give what it likes.
    let given = make(&client, "given", Cred::root()).expect("root has no limit");
    chown(&client, given, Some(BOB), None, Cred::root()).expect("root may");
    assert_eq!(used(&world, QUOTA_USER, BOB), 3);
    let world = world.restart();
    let client = world.client(2);
    assert_eq!(make(&client, "c", user(BOB)), Err(Code::Quota), "limits stay");
    for text in ["a", "b"] {
        client.unlink(Fid::ROOT, text).expect("it is there");
    }
    make(&client, "c", user(BOB)).expect("there is room again");
    set(&world, QUOTA_USER, BOB, 0, 0).expect("it is taken away");
    make(&client, "d", user(BOB)).expect("there is no limit any more");
    assert_eq!(read(&world, QUOTA_USER, BOB).hard, 0);
}

#[test]
fn a_group_has_limits_too() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    let file = make(&client, "mine", user(BOB)).expect("there is no limit");
    set(&world, QUOTA_GROUP, 50, 0, 1).expect("it is kept");
    let member = Cred { groups: Some(vec![50, 51]), ..user(BOB) };
    chown(&client, file, None, Some(50), member.clone()).expect("one of one");
    let second = make(&client, "second", user(BOB)).expect("there is no limit");
    assert_eq!(chown(&client, second, None, Some(50), member.clone()), Err(Code::Quota));
    chown(&client, second, None, Some(51), member).expect("there is no limit");
}

#[test]
fn a_soft_limit_may_be_passed_for_a_while() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    grace(&world, 100);
    set(&world, QUOTA_USER, BOB, 1, 10).expect("it is kept");
    make(&client, "a", user(BOB)).expect("one");
    assert_eq!(read(&world, QUOTA_USER, BOB).deadline_s, 0);
    make(&client, "b", user(BOB)).expect("above the soft limit");
    let inodes = read(&world, QUOTA_USER, BOB);
    // The OSTs of this world do not answer, and are waited for.
    assert!((95..=100).contains(&inodes.left_s), "{inodes:?}");
    world.sim.run_for(Duration::from_secs(50));
    world.sync();
    let world = world.restart();
    let client = world.client(2);
    assert_eq!(read(&world, QUOTA_USER, BOB).deadline_s, inodes.deadline_s, "it is kept with the change");
    make(&client, "c", user(BOB)).expect("there is time left");
    world.sim.run_for(Duration::from_secs(51));
    assert_eq!(read(&world, QUOTA_USER, BOB).left_s, 0);
    assert_eq!(make(&client, "d", user(BOB)), Err(Code::Quota));
    for text in ["b", "c"] {
        client.unlink(Fid::ROOT, text).expect("it is there");
    }
    assert_eq!(read(&world, QUOTA_USER, BOB).deadline_s, 0);
    make(&client, "d", user(BOB)).expect("the time begins anew");
    assert!(read(&world, QUOTA_USER, BOB).left_s > 90);
}

/// What was answered is so, whatever there was room for then: another client took something away first, and does not come back.
#[test]
fn a_replay_has_no_limits() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    Watch::set_parameter(&*world.target, "*.commit_on_sharing", "0").expect("it is one");
    a.chmod(Fid::ROOT, 0o777);
    set(&world, QUOTA_USER, BOB, 0, 1).expect("it is kept");
    make(&a, "x", user(BOB)).expect("one of one");
    world.sync();
    let boot = world.store.boot();
    b.unlink(Fid::ROOT, "x").expect("it is there");
    let mode = FileKind::Fifo.mode_bits() | 0o644;
    let create = msg::Create { cred: user(BOB), ..a.create_request(Fid::ROOT, "y", mode) };
    a.skip_to(100);
    let answer = a.send(100, create.clone());
    assert!(answer.result.is_ok(), "there was room");
    let world = world.crash();
    let a = world.connect(ClientId(1), boot, 2).expect("a known client");
    let replayed = a.replay(100, answer.transno, create);
    assert!(replayed.result.is_ok());
    assert_eq!(used(&world, QUOTA_USER, BOB), 2);
}

fn set_project(client: &Client, fid: Fid, project: u32, inherits: bool, cred: &Cred) -> Result<(), Code> {
    let (project, inherits) = (Some(project), Some(inherits));
    client.call(msg::SetAttr { project, inherits, ..client.set_attr(fid, cred) }).map(drop)
}

fn rename(client: &Client, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<(), Code> {
    let request = msg::Rename {
        parent: from.0,
        name: name(from.1),
        new_parent: to.0,
        new_name: name(to.1),
        flags,
        cred: Cred::root(),
        time: client.time(),
    };
    client.call(request).map(drop)
}

#[test]
fn what_is_made_in_a_directory_counts_for_its_project() {
    let world = World::new();
    let client = world.client(1);
    let (dir, other) = (client.mkdir(Fid::ROOT, "d"), client.mkdir(Fid::ROOT, "o"));
    client.chmod(dir, 0o777);
    assert_eq!(set_project(&client, dir, 50, true, &user(BOB)), Err(Code::NotPermitted));
    let file = make(&client, "f", Cred::root()).expect("root may");
    assert_eq!(set_project(&client, file, 50, true, &Cred::root()), Err(Code::Invalid), "it is no directory");
    set_project(&client, dir, 50, true, &Cred::root()).expect("root may");
    let of = |fid| client.attr(fid).map(|attr| (attr.project, attr.inherits)).expect("it is there");
    assert_eq!((of(dir), of(other)), ((50, true), (0, false)));
    let below = client.mkdir(dir, "below");
    let inner = client.file(below, "f");
    assert_eq!((of(below), of(inner)), ((50, true), (50, false)));
    assert_eq!((used(&world, QUOTA_PROJECT, 50), used(&world, QUOTA_PROJECT, 0)), (3, 0));
    // Two users, one limit.
    set(&world, QUOTA_PROJECT, 50, 0, 5).expect("it is kept");
    let in_dir = |text: &str, uid| {
        client.make(dir, text, FileKind::Fifo.mode_bits() | 0o644, &user(uid)).map(|attr| attr.fid)
    };
    in_dir("one", BOB).expect("one is left");
    in_dir("two", 7).expect("and another one");
    assert_eq!(in_dir("three", 8), Err(Code::Quota));
    // Nothing of another project comes in, by whatever way; out it may go.
    assert_eq!(rename(&client, (Fid::ROOT, "f"), (dir, "f"), 0), Err(Code::CrossDevice));
    assert_eq!(rename(&client, (dir, "one"), (Fid::ROOT, "f"), msg::RENAME_EXCHANGE), Err(Code::CrossDevice));
    let (name, cred, time) = (name("l"), Cred::root(), client.time());
    let link = msg::Link { fid: file, parent: dir, name, cred, time };
    assert_eq!(client.call(link).map(drop), Err(Code::CrossDevice));
    rename(&client, (dir, "one"), (below, "one"), 0).expect("it is of that project");
    rename(&client, (dir, "two"), (other, "two"), 0).expect("nothing is passed on there");
    assert_eq!(used(&world, QUOTA_PROJECT, 50), 5);
    set_project(&client, file, 50, false, &Cred::root()).expect("root has no limits");
    rename(&client, (Fid::ROOT, "f"), (dir, "f"), 0).expect("it is of that project now");
    assert_eq!(used(&world, QUOTA_PROJECT, 50), 6);
    world.sync();
    let world = world.crash();
    let client = world.client(2);
    assert_eq!(used(&world, QUOTA_PROJECT, 50), 6);
    client.unlink(dir, "f").expect("it is there");
    set_project(&client, below, 0, false, &Cred::root()).expect("root may");
    assert_eq!(used(&world, QUOTA_PROJECT, 50), 4);
    world.restart();
}

#[test]
fn who_has_no_limits_of_its_own_has_those_of_all() {
    const ANN: u32 = 1001;
    let all = msg::QUOTA_DEFAULT_ID;
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    for name in ["b1", "b2", "b3"] {
        make(&client, name, user(BOB)).expect("nobody has limits");
    }
    set(&world, QUOTA_USER, all, 0, 3).expect("it is kept");
    assert_eq!(make(&client, "b4", user(BOB)), Err(Code::Quota));
    let of_bob = read(&world, QUOTA_USER, BOB);
    assert_eq!((of_bob.used, of_bob.hard, of_bob.is_default), (3, 3, true));
    let of_root = read(&world, QUOTA_USER, 0);
    assert_eq!((of_root.hard, of_root.is_default), (0, false));
    // Whoever was given none has none, and whoever was given others has these.
    set(&world, QUOTA_USER, ANN, 0, 0).expect("it is kept");
    for n in 0..5 {
        make(&client, &format!("a{n}"), user(ANN)).expect("she was given none");
    }
    set(&world, QUOTA_USER, BOB, 0, 4).expect("it is kept");
    make(&client, "b4", user(BOB)).expect("he was given more");
    assert_eq!(make(&client, "b5", user(BOB)), Err(Code::Quota));
    assert!(!read(&world, QUOTA_USER, BOB).is_default);
    world.sync();
    let world = world.crash();
    let client = world.client(2);
    assert_eq!(make(&client, "b5", user(BOB)), Err(Code::Quota));
    make(&client, "a5", user(ANN)).expect("she has none");
    for id in [BOB, ANN] {
        ask(&world, Role::Client, SetQuota { id, forget: true, ..nothing() }).expect("it is kept");
        assert!(read(&world, QUOTA_USER, id).is_default);
        assert_eq!(make(&client, "more", user(id)), Err(Code::Quota), "those of all");
    }
    // Time of grace counts for each alone.
    set(&world, QUOTA_USER, all, 7, 0).expect("it is kept");
    grace(&world, 3600);
    for name in ["b5", "b6", "b7", "b8"] {
        make(&client, name, user(BOB)).expect("the soft limit may be passed");
    }
    let above = read(&world, QUOTA_USER, BOB);
    assert!(above.deadline_s > 0 && above.is_default, "{above:?}");
    assert_eq!(read(&world, QUOTA_USER, ANN).deadline_s, 0);
    world.sync();
    let world = world.crash();
    assert_eq!(read(&world, QUOTA_USER, BOB).deadline_s, above.deadline_s);
    world.sim.run_for(Duration::from_secs(3601));
    let client = world.client(3);
    assert_eq!(make(&client, "b9", user(BOB)), Err(Code::Quota), "its time is over");
    ask(&world, Role::Client, SetQuota { id: all, forget: true, ..nothing() }).expect("it is kept");
    make(&client, "b9", user(BOB)).expect("nobody has limits");
}
