//! Commit on share: whose answer waits for whose change, and what it is good for.

use proto::wire::messages as msg;
use proto::{ClientId, Code, Cred, Fid};
use service::Watch;

use crate::mdt::testing::{Client, World, name, user};

/// What `second` does after `first` did something that is not durable yet.
struct Case {
    what: &'static str,
    first: fn(&Client<'_>, &Tree),
    second: fn(&Client<'_>, &Tree),
    waits: bool,
}

/// What there is, durable, before.
struct Tree {
    dir: Fid,
    empty: Fid,
    file: Fid,
}

const CASES: &[Case] = &[
    Case { what: "a name that is new", first: create, second: look_up, waits: true },
    Case { what: "a name that went", first: unlink, second: |c, t| assert_missing(c, t, "f"), waits: true },
    Case { what: "a mode", first: |c, t| c.chmod(t.file, 0o600), second: stat, waits: true },
    Case {
        what: "the mode of a directory, for who makes a file in it",
        first: |c, t| c.chmod(t.dir, 0o711),
        second: create,
        waits: true,
    },
    Case { what: "a name beside the one that is made", first: create, second: create_other, waits: false },
    Case {
        what: "the times of a directory",
        first: create,
        second: |c, t| drop(c.attr(t.dir)),
        waits: false,
    },
    Case { what: "names in a list", first: create, second: |c, t| drop(c.names(t.dir)), waits: true },
    Case {
        what: "that a directory is not empty",
        first: |c, t| assert_ne!(c.file(t.empty, "x"), t.file),
        second: |c, _| assert_eq!(c.rmdir(Fid::ROOT, "e"), Err(Code::NotEmpty)),
        waits: true,
    },
    Case {
        what: "a name that is taken",
        first: create,
        second: |c, t| assert_eq!(c.make(t.dir, "new", 0o100_644, &Cred::root()).err(), Some(Code::Exists)),
        waits: true,
    },
    Case { what: "a file that is open for writing", first: open, second: stat, waits: true },
    Case {
        what: "an attribute",
        first: set_xattr,
        second: |c, t| {
            let name = (&b"user.a"[..]).into();
            c.call(msg::GetXattr { fid: t.file, name, cred: Cred::root() }).expect("it was set");
        },
        waits: true,
    },
    Case {
        what: "a right that is refused",
        first: |c, t| c.chmod(t.file, 0o600),
        second: |c, t| {
            let refused = c.open(t.file, msg::OPEN_READ, &user(5)).map(drop);
            assert_eq!(refused, Err(Code::AccessDenied));
        },
        waits: true,
    },
];

fn create(client: &Client<'_>, tree: &Tree) {
    client.file(tree.dir, "new");
}

fn create_other(client: &Client<'_>, tree: &Tree) {
    client.file(tree.dir, "other");
}

fn look_up(client: &Client<'_>, tree: &Tree) {
    client.lookup(tree.dir, "new").expect("it was made");
}

fn unlink(client: &Client<'_>, tree: &Tree) {
    client.unlink(tree.dir, "f").expect("it exists");
}

fn assert_missing(client: &Client<'_>, tree: &Tree, text: &str) {
    assert_eq!(client.lookup(tree.dir, text).err(), Some(Code::NotFound));
}

fn stat(client: &Client<'_>, tree: &Tree) {
    client.attr(tree.file).expect("it exists");
}

fn open(client: &Client<'_>, tree: &Tree) {
    client.open(tree.file, msg::OPEN_WRITE, &Cred::root()).expect("root may");
}

fn set_xattr(client: &Client<'_>, tree: &Tree) {
    let (name, value) = ((&b"user.a"[..]).into(), (&b"1"[..]).into());
    let (cred, time) = (Cred::root(), client.time());
    let request = msg::SetXattr { fid: tree.file, name, value, flags: 0, cred, time };
    client.call(request).expect("root may");
}

fn plant(client: &Client<'_>) -> Tree {
    let dir = client.mkdir(Fid::ROOT, "d");
    Tree { dir, empty: client.mkdir(Fid::ROOT, "e"), file: client.file(dir, "f") }
}

#[test]
fn who_sees_what_others_changed_waits_until_it_is_durable() {
    for case in CASES {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let tree = plant(&a);
        world.sync();
        let waits = || world.target.handler().sharing.waits();
        let before = waits();
        (case.first)(&a, &tree);
        let changed = world.store.last_transno();
        assert_eq!(waits(), before, "{}: nobody else has changed anything", case.what);
        (case.second)(&b, &tree);
        assert_eq!(waits() > before, case.waits, "{}", case.what);
        assert_eq!(world.store.last_committed() >= changed, case.waits, "{}", case.what);
    }
}

#[test]
fn who_works_alone_never_waits() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = plant(&a);
    let other = b.mkdir(Fid::ROOT, "e2");
    for _ in 0..20 {
        for case in CASES.iter().filter(|case| !case.what.contains("empty")) {
            let fresh = Tree { file: a.file(tree.dir, "g"), ..tree };
            if a.lookup(tree.dir, "f").is_err() {
                a.file(tree.dir, "f");
            }
            (case.first)(&a, &fresh);
            (case.second)(&a, &fresh);
            a.names(tree.dir).iter().filter(|n| *n != "f").for_each(|n| drop(a.unlink(tree.dir, n)));
            b.file(other, "x");
            b.unlink(other, "x").expect("it was made");
        }
    }
    assert_eq!(world.target.handler().sharing.waits(), 0);
}

/// A's answer is lost, and B builds on what A made. Then the MDT loses what is not durable, B repeats what it did, and A
/// comes too late.
#[test]
fn what_was_built_on_a_change_survives_without_its_author() {
    let renamed = |commits_on_share: bool| {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let value = if commits_on_share { "1" } else { "0" };
        Watch::set_parameter(&*world.target, "*.commit_on_sharing", value).expect("it is one");
        world.sync();
        let boot = world.store.boot();
        a.file(Fid::ROOT, "f");
        let request = msg::Rename {
            parent: Fid::ROOT,
            name: name("f"),
            new_parent: Fid::ROOT,
            new_name: name("g"),
            flags: 0,
            cred: Cred::root(),
            time: b.time(),
        };
        b.skip_to(100);
        let answer = b.send(100, request.clone());
        assert!(answer.result.is_ok());
        let world = world.crash();
        let b = world.connect(ClientId(2), boot, 2).expect("a known client");
        let replayed = b.replay(100, answer.transno, request);
        let c = world.client(3);
        (replayed.result.map(drop), c.lookup(Fid::ROOT, "g").map(drop))
    };
    assert_eq!(renamed(true), (Ok(()), Ok(())));
    assert_eq!(renamed(false), (Err(Code::NotFound), Err(Code::NotFound)));
}

#[test]
fn more_keys_than_are_remembered_make_everybody_wait() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = a.mkdir(Fid::ROOT, "d");
    world.sync();
    let sharing = &world.target.handler().sharing;
    let waits = sharing.waits();
    sharing.forget_all();
    b.attr(dir).expect("it exists");
    assert_eq!(sharing.waits(), waits, "everything is durable");
    a.file(dir, "f");
    sharing.forget_all();
    b.attr(Fid::ROOT).expect("it exists");
    assert_eq!(sharing.waits(), waits + 1, "it is not known any more who changed what");
}
