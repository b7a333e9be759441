//! Which bits each operation has called back, and how it waits for them.

use std::time::Duration;

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::wire::messages as msg;
use proto::wire::messages::{
    LOCK_ALL, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR, OPEN_READ, OPEN_WRITE,
    RENAME_EXCHANGE,
};
use proto::{ClientId, Code, Cred, Fid};
use rpc::CallbackError;

use crate::mdt::testing::{Client, World, gave_back, name};

/// A tree of which everything is kept by the second client.
struct Tree {
    dir: Fid,
    other: Fid,
    file: Fid,
    twin: Fid,
    sub: Fid,
}

impl Tree {
    /// `/dir/{file,twin,sub}` and `/other/last`; `twin` is `/other/twin` too.
    fn make(a: &Client) -> Tree {
        let (dir, other) = (a.mkdir(Fid::ROOT, "dir"), a.mkdir(Fid::ROOT, "other"));
        let (file, twin, sub) = (a.file(dir, "file"), a.file(dir, "twin"), a.mkdir(dir, "sub"));
        link(a, twin, other, "twin");
        Tree { dir, other, file, twin, sub }
    }

    /// `client` looks at everything and opens the files for reading.
    fn keep(&self, client: &Client) {
        client.attr(Fid::ROOT).expect("the root exists");
        let names = [
            (Fid::ROOT, "dir"),
            (Fid::ROOT, "other"),
            (self.dir, "file"),
            (self.dir, "twin"),
            (self.dir, "sub"),
        ];
        for (parent, text) in names {
            client.lookup(parent, text).expect("it was made");
        }
        for fid in [self.file, self.twin] {
            client.open(fid, OPEN_READ, &Cred::root()).expect("root may");
        }
    }
}

fn link(client: &Client, fid: Fid, parent: Fid, text: &str) {
    let (name, time) = (name(text), client.time());
    client.call(msg::Link { fid, parent, name, cred: Cred::root(), time }).expect("root may");
}

fn set_xattr(client: &Client, fid: Fid, name: &'static str) {
    let (name, value, cred) = (Bytes::from(name), Bytes::from("b"), Cred::root());
    client.call(msg::SetXattr { fid, name, value, flags: 0, cred, time: client.time() }).expect("root may");
}

/// Operation, and whose bits it has called back.
type Row = (&'static str, fn(&Client, &Tree), fn(&Tree) -> Vec<(Fid, u32)>);

const ROWS: &[Row] = &[
    ("create", |a, t| assert!(a.file(t.dir, "new").is_sane()), |t| vec![(t.dir, LOCK_UPDATE)]),
    ("mkdir", |a, t| assert!(a.mkdir(t.dir, "new").is_sane()), |t| vec![(t.dir, LOCK_UPDATE)]),
    (
        "symlink",
        |a, t| {
            let request = a.create_request(t.dir, "new", 0o120_777);
            a.call(msg::Create { target: Bytes::from("x"), ..request }).expect("root may");
        },
        |t| vec![(t.dir, LOCK_UPDATE)],
    ),
    ("create over", |a, t| open_over(a, t, OPEN_READ), |_| vec![]),
    ("create over to write", |a, t| open_over(a, t, OPEN_WRITE), |t| vec![(t.file, LOCK_UPDATE)]),
    ("link", |a, t| link(a, t.file, t.other, "new"), |t| vec![(t.file, LOCK_UPDATE), (t.other, LOCK_UPDATE)]),
    ("unlink", |a, t| drop(a.unlink(t.dir, "file")), |t| vec![(t.dir, LOCK_UPDATE), (t.file, LOCK_ALL)]),
    (
        "unlink one of two names",
        |a, t| drop(a.unlink(t.dir, "twin")),
        |t| vec![(t.dir, LOCK_UPDATE), (t.twin, LOCK_LOOKUP | LOCK_UPDATE)],
    ),
    ("rmdir", |a, t| drop(a.rmdir(t.dir, "sub")), |t| vec![(t.dir, LOCK_UPDATE), (t.sub, SEEN)]),
    (
        "rename",
        |a, t| rename(a, (t.dir, "file"), (t.dir, "new"), 0),
        |t| vec![(t.dir, LOCK_UPDATE), (t.file, LOCK_LOOKUP | LOCK_UPDATE)],
    ),
    (
        "rename over",
        |a, t| rename(a, (t.dir, "twin"), (t.dir, "file"), 0),
        |t| vec![(t.dir, LOCK_UPDATE), (t.twin, LOCK_LOOKUP | LOCK_UPDATE), (t.file, LOCK_ALL)],
    ),
    (
        "move a directory",
        |a, t| rename(a, (t.dir, "sub"), (t.other, "sub"), 0),
        |t| vec![(t.dir, LOCK_UPDATE), (t.other, LOCK_UPDATE), (t.sub, LOCK_LOOKUP | LOCK_UPDATE)],
    ),
    (
        "exchange",
        |a, t| rename(a, (t.dir, "sub"), (t.other, "twin"), RENAME_EXCHANGE),
        |t| {
            let both = LOCK_LOOKUP | LOCK_UPDATE;
            vec![(t.dir, LOCK_UPDATE), (t.other, LOCK_UPDATE), (t.sub, both), (t.twin, both)]
        },
    ),
    ("rename onto itself", |a, t| rename(a, (t.dir, "twin"), (t.other, "twin"), 0), |_| vec![]),
    ("chmod", |a, t| a.chmod(t.file, 0o600), |t| vec![(t.file, LOCK_PERM)]),
    ("chmod to the same", |a, t| a.chmod(t.file, 0o644), |t| vec![(t.file, LOCK_PERM)]),
    ("chown", |a, t| a.chown(t.dir, 5, 6), |t| vec![(t.dir, LOCK_PERM)]),
    ("set times", |a, t| set_times(a, t.file, true), |t| vec![(t.file, LOCK_UPDATE)]),
    ("set the time of access", |a, t| set_times(a, t.file, false), |t| vec![(t.file, LOCK_UPDATE)]),
    (
        "truncate",
        |a, t| {
            let request = msg::SetAttr { size: Some(5), ..a.set_attr(t.file, &Cred::root()) };
            a.call(request).expect("root may");
        },
        |t| vec![(t.file, LOCK_UPDATE)],
    ),
    ("set an attribute", |a, t| set_xattr(a, t.file, "user.a"), |t| vec![(t.file, LOCK_XATTR | LOCK_UPDATE)]),
    (
        "set a capability",
        |a, t| set_xattr(a, t.file, "security.capability"),
        |t| vec![(t.file, LOCK_XATTR | LOCK_UPDATE | LOCK_PERM)],
    ),
    ("open to read", |a, t| drop(a.open(t.file, OPEN_READ, &Cred::root())), |_| vec![]),
    (
        "open to write",
        |a, t| drop(a.open(t.file, OPEN_WRITE, &Cred::root())),
        |t| vec![(t.file, LOCK_UPDATE)],
    ),
    (
        "set a layout",
        |a, t| {
            let hint = Some(LayoutHint { stripe_count: 2, ..LayoutHint::default() });
            let request = msg::SetLayout { fid: t.file, hint, cred: Cred::root(), time: a.time() };
            a.call(request).expect("it has no objects");
        },
        |t| vec![(t.file, LOCK_LAYOUT | LOCK_UPDATE)],
    ),
    (
        "refused",
        |a, t| assert_eq!(a.rmdir(Fid::ROOT, "dir").map(drop), Err(Code::NotEmpty), "{}", t.dir),
        |_| vec![],
    ),
];

/// What looking at a file lets a client keep.
const SEEN: u32 = LOCK_LOOKUP | LOCK_UPDATE | LOCK_LAYOUT | LOCK_PERM | LOCK_XATTR;

fn open_over(client: &Client, tree: &Tree, open: u32) {
    let request = msg::Create { open, ..client.create_request(tree.dir, "file", 0o100_644) };
    assert!(client.call(request).expect("root may").existed);
}

fn rename(client: &Client, from: (Fid, &str), to: (Fid, &str), flags: u32) {
    client.rename(from, to, flags, &Cred::root()).expect("root may");
}

fn set_times(client: &Client, fid: Fid, mtime: bool) {
    let time = Some(msg::TimeChange { time: client.time(), now: false });
    let unset = client.set_attr(fid, &Cred::root());
    let request = match mtime {
        true => msg::SetAttr { mtime: time, ..unset },
        false => msg::SetAttr { atime: time, ..unset },
    };
    client.call(request).expect("root may");
}

/// What was called back of `session`, sorted; from nobody else was anything asked.
fn called(world: &World, session: u64) -> Vec<(Fid, u32)> {
    let calls = world.called.take();
    assert!(calls.iter().all(|(called, _)| *called == session), "{calls:?}");
    let mut bits: Vec<_> = calls.into_iter().map(|(_, revoke)| (revoke.fid, revoke.bits)).collect();
    bits.sort();
    bits
}

#[test]
fn every_operation_calls_back_what_it_changes_and_nothing_else() {
    for (what, operation, expected) in ROWS {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let tree = Tree::make(&a);
        tree.keep(&b);
        assert_eq!(called(&world, b.session()), [], "looking calls nobody back");
        operation(&a, &tree);
        let mut expected = expected(&tree);
        expected.sort();
        assert_eq!(called(&world, b.session()), expected, "{what}");
        // What one has done again calls back nobody any more.
        let count = world.target.handler().grants.bits.counts().callbacks;
        assert_eq!(count, expected.len() as u64, "{what}");
    }
}

#[test]
fn ones_own_locks_are_not_called_back() {
    for (what, operation, _) in ROWS {
        let world = World::new();
        let a = world.client(1);
        let tree = Tree::make(&a);
        tree.keep(&a);
        operation(&a, &tree);
        assert_eq!(world.called.take(), [], "{what}");
    }
}

/// The first one knows the size without asking, as long as it writes alone. When two write, neither does.
#[test]
fn a_client_that_writes_alone_is_told_of_the_second_one() {
    let world = World::new();
    let (a, b, c) = (world.client(1), world.client(2), world.client(3));
    let tree = Tree::make(&a);
    let open = |client: &Client| drop(client.open(tree.file, OPEN_WRITE, &Cred::root()));
    open(&b);
    assert_eq!(called(&world, a.session()), [(tree.file, LOCK_UPDATE)], "it knew the size");
    b.attr(tree.file).expect("it is there");
    open(&b);
    assert_eq!(called(&world, b.session()), [], "its own");
    open(&a);
    assert_eq!(called(&world, b.session()), [(tree.file, LOCK_UPDATE)]);
    b.attr(tree.file).expect("it is there");
    open(&c);
    assert_eq!(called(&world, b.session()), []);
}

#[test]
fn closing_calls_back_when_the_size_comes() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = Tree::make(&a);
    let opened = a.open(tree.file, OPEN_WRITE, &Cred::root()).expect("root may");
    tree.keep(&b);
    a.close(tree.file, opened.handle, true, Some(9));
    assert_eq!(called(&world, b.session()), [(tree.file, LOCK_UPDATE)]);
    assert_eq!(b.attr(tree.file).map(|attr| (attr.size, attr.size_known)), Ok((9, true)));
    // The first reader after a change tells when it read; of the next ones nobody hears.
    let first = Some(a.time());
    for called_back in [&[(tree.file, LOCK_UPDATE)][..], &[]] {
        let opened = a.open(tree.file, OPEN_READ, &Cred::root()).expect("root may");
        tree.keep(&b);
        called(&world, b.session());
        let atime = if called_back.is_empty() { Some(a.time()) } else { first };
        let close = msg::Close { fid: tree.file, handle: opened.handle, atime, size: None, wrote: false };
        a.call(close).expect("it is open");
        assert_eq!(called(&world, b.session()), called_back);
        assert_eq!(b.attr(tree.file).map(|attr| Some(attr.atime)), Ok(first));
    }
}

#[test]
fn a_told_size_calls_back() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = Tree::make(&a);
    let truncate = msg::SetAttr { size: Some(5), ..a.set_attr(tree.file, &Cred::root()) };
    a.call(truncate).expect("root may");
    tree.keep(&b);
    let update = msg::SizeUpdate { size: 5, blocks: 0, mtime: a.time(), ctime: a.time() };
    let tell = msg::SetSize { fid: tree.file, update, cut: false, question: 0 };
    a.call(tell.clone()).expect("nobody writes");
    assert_eq!(called(&world, b.session()), [(tree.file, LOCK_UPDATE)]);
    a.call(tell).expect("it is known already");
    assert_eq!(called(&world, b.session()), []);
}

#[test]
fn a_change_waits_and_meanwhile_nobody_keeps_what_it_changes() {
    let world = World::new();
    let (a, b, c) = (world.client(1), world.client(2), world.client(3));
    let tree = Tree::make(&a);
    tree.keep(&b);
    world.called.hold();
    let chmod = msg::SetAttr { mode: Some(0o600), ..a.set_attr(tree.file, &Cred::root()) };
    let pending = a.start(a.xid() + 1, chmod);
    world.sim.run_for(Duration::from_secs(60));
    assert_eq!(called(&world, b.session()), [(tree.file, LOCK_PERM)]);
    let before = c.call(msg::GetAttr { fid: tree.file }).expect("it exists");
    assert_eq!(before.attr.mode & 0o777, 0o644, "nothing has changed");
    assert_eq!(before.lock.bits, SEEN & !LOCK_LOOKUP & !LOCK_PERM);
    // Another one who waits for the same calls nobody twice; but what the first keeps of the file is in its way too.
    let chown = msg::SetAttr { uid: Some(5), ..c.set_attr(tree.file, &Cred::root()) };
    let second = c.start(c.xid() + 1, chown);
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(called(&world, a.session()), [(tree.file, LOCK_PERM)]);
    world.called.answer(gave_back());
    assert!(world.sim.run(pending).result.is_ok() && world.sim.run(second).result.is_ok());
    let after = b.call(msg::GetAttr { fid: tree.file }).expect("it exists");
    assert_eq!((after.attr.mode & 0o777, after.attr.uid), (0o600, 5));
    assert_eq!(after.lock.bits, SEEN & !LOCK_LOOKUP);
}

#[test]
fn a_session_that_ends_keeps_nobody_waiting() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = Tree::make(&a);
    tree.keep(&b);
    world.called.hold();
    let unlink = msg::Unlink {
        parent: tree.dir,
        name: name("file"),
        directory: false,
        cred: Cred::root(),
        time: a.time(),
    };
    let pending = a.start(a.xid() + 1, unlink);
    world.sim.run_for(Duration::from_secs(1));
    b.call(msg::Disconnect {}).expect("it is connected");
    assert_eq!(world.called.ended(), [b.session()]);
    world.called.answer(Err(CallbackError::Ended));
    assert!(world.sim.run(pending).result.is_ok());
    let bits = &world.target.handler().grants.bits;
    assert_eq!((bits.held_by(b.session(), tree.file), bits.held_by(b.session(), tree.dir)), (0, 0));
    a.skip_to(a.xid() + 1);
    assert_eq!(a.attr(tree.file), Err(Code::Stale), "what the session had open is closed");
}

#[test]
fn who_cannot_be_reached_is_evicted_and_told_when_it_comes_back() {
    for answer in [Err(CallbackError::Unreachable), Ok(Err(Code::Io))] {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let tree = Tree::make(&a);
        tree.keep(&b);
        let boot = b.connected.as_ref().expect("it is connected").boot;
        world.called.hold();
        let chmod = msg::SetAttr { mode: Some(0o600), ..a.set_attr(tree.file, &Cred::root()) };
        let pending = a.start(a.xid() + 1, chmod);
        world.sim.run_for(Duration::from_secs(1));
        world.called.answer(answer);
        assert!(world.sim.run(pending).result.is_ok());
        assert_eq!(world.called.ended(), [b.session()]);
        assert_eq!(b.attr(tree.file), Err(Code::NoSession));
        let back = world.connect(ClientId(2), boot, 2).expect("it may begin anew");
        assert!(!back.connected.as_ref().expect("it is connected").resumed);
        a.skip_to(a.xid() + 1);
        a.unlink(tree.dir, "file").expect("root may");
        assert_eq!(a.attr(tree.file), Err(Code::Stale), "the evicted client's opens are closed");
    }
}

#[test]
fn a_client_that_knows_no_callbacks_holds_nothing() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = Tree::make(&a);
    tree.keep(&b);
    world.called.hold();
    let chmod = msg::SetAttr { mode: Some(0o600), ..a.set_attr(tree.file, &Cred::root()) };
    let pending = a.start(a.xid() + 1, chmod);
    world.sim.run_for(Duration::from_secs(1));
    world.called.answer(Ok(Err(Code::NotSupported)));
    assert!(world.sim.run(pending).result.is_ok());
    assert!(b.attr(tree.file).is_ok(), "it is not evicted");
}

#[test]
fn stopping_lets_nobody_change_what_others_keep() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let tree = Tree::make(&a);
    tree.keep(&b);
    world.called.hold();
    let chmod = msg::SetAttr { mode: Some(0o600), ..a.set_attr(tree.file, &Cred::root()) };
    let pending = a.start(a.xid() + 1, chmod);
    world.sim.run_for(Duration::from_secs(1));
    world.sim.run(world.target.close());
    assert_eq!(world.sim.run(pending).result, Err(Code::TryAgain));
}
