//! What operations need and is not known without the engine: they fetch it before they take guards, and change nothing if that fails.
//! That the engine is not asked under a guard is checked by the store, in every test.

use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::wire::messages::{OPEN_READ, OPEN_WRITE, RENAME_EXCHANGE};
use proto::{Code, Cred, Fid};
use rt::sim::{Chance, Span};

use crate::mdt::keys;
use crate::mdt::testing::{Client, World, name};

/// Everything that can be forgotten is.
fn forget(world: &World) {
    world.sync();
    for _ in 0..2 {
        world.store.forget_known();
        world.sim.run_for(Duration::from_millis(20));
    }
    world.store.forget_known();
}

/// What the operations below are about.
struct Tree {
    a: Fid,
    b: Fid,
    deep: Fid,
    file: Fid,
    /// Has no name, extended attributes, and this handle, to write.
    nameless: (Fid, u64),
}

fn xattr(client: &Client<'_>, fid: Fid, text: &str) -> Result<msg::Done, Code> {
    let (name, value) = (Bytes::copy_from_slice(text.as_bytes()), Bytes::from_static(b"value"));
    client.call(msg::SetXattr { fid, name, value, flags: 0, cred: Cred::root(), time: client.time() })
}

fn tree(client: &Client<'_>) -> Tree {
    let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
    let mut deep = b;
    for depth in 0..5 {
        deep = client.mkdir(deep, &format!("d{depth}"));
    }
    let file = client.file(a, "file");
    client.file(a, "second");
    let sub = client.mkdir(a, "sub");
    client.mkdir(sub, "inner");
    client.mkdir(a, "empty");
    client.mkdir(a, "moving");
    let fid = client.file(a, "nameless");
    xattr(client, file, "user.first").expect("root may");
    xattr(client, fid, "user.first").expect("root may");
    let handle = client.open(fid, OPEN_WRITE, &Cred::root()).expect("root may").handle;
    client.unlink(a, "nameless").expect("it is there");
    Tree { a, b, deep, file, nameless: (fid, handle) }
}

type Operation<'a> = Box<dyn Fn() -> Result<(), Code> + 'a>;

/// Every operation that takes guards, and what becomes of it.
fn all(client: &Client<'_>, tree: &Tree, before: impl Fn()) -> Vec<(&'static str, Result<(), Code>)> {
    let root = Cred::root();
    let (fid, handle) = tree.nameless;
    let rename = |from: (Fid, &str), to: (Fid, &str), flags| client.rename(from, to, flags, &root).map(drop);
    let steps: Vec<(&'static str, Operation<'_>)> = vec![
        ("create", Box::new(|| client.make(tree.a, "made", 0o100_644, &root).map(drop))),
        ("create over", Box::new(|| client.make(tree.a, "file", 0o100_644, &root).map(drop))),
        ("open", Box::new(|| client.open(tree.file, OPEN_READ, &root).map(drop))),
        (
            "set a mode",
            Box::new(|| {
                let request = msg::SetAttr { uid: Some(5), ..client.set_attr(tree.file, &root) };
                client.call(request).map(drop)
            }),
        ),
        ("set an attribute", Box::new(|| xattr(client, tree.file, "user.second").map(drop))),
        ("rmdir of what is not empty", Box::new(|| client.rmdir(tree.a, "sub").map(drop))),
        ("rmdir", Box::new(|| client.rmdir(tree.a, "empty").map(drop))),
        ("move below", Box::new(|| rename((Fid::ROOT, "b"), (tree.deep, "b"), 0))),
        ("move", Box::new(|| rename((tree.a, "moving"), (tree.deep, "moved"), 0))),
        ("exchange", Box::new(|| rename((tree.a, "sub"), (tree.b, "d0"), RENAME_EXCHANGE))),
        ("replace", Box::new(|| rename((tree.a, "second"), (tree.a, "file"), 0))),
        (
            "link",
            Box::new(|| {
                let (fid, parent, name, time) = (tree.file, tree.b, name("linked"), client.time());
                client.call(msg::Link { fid, parent, name, cred: root.clone(), time }).map(drop)
            }),
        ),
        (
            "close",
            Box::new(|| {
                client.call(msg::Close { fid, handle, atime: None, size: None, wrote: true }).map(drop)
            }),
        ),
    ];
    let run = |(what, step): (&'static str, Operation<'_>)| {
        before();
        (what, step())
    };
    steps.into_iter().map(run).collect()
}

fn expected() -> Vec<(&'static str, Result<(), Code>)> {
    vec![
        ("create", Ok(())),
        ("create over", Err(Code::Exists)),
        ("open", Ok(())),
        ("set a mode", Ok(())),
        ("set an attribute", Ok(())),
        ("rmdir of what is not empty", Err(Code::NotEmpty)),
        ("rmdir", Ok(())),
        ("move below", Err(Code::Invalid)),
        ("move", Ok(())),
        ("exchange", Ok(())),
        ("replace", Ok(())),
        // The name that it had means another file now, and it had no other one.
        ("link", Err(Code::NotFound)),
        ("close", Ok(())),
    ]
}

#[test]
fn what_is_not_in_memory_is_fetched_before_guards_are_taken() {
    let world = World::new();
    world.sim.change_disks(|disk| disk.look_up = Span::millis(1, 2));
    let client = world.client(1);
    let tree = tree(&client);
    let began = world.sim.now();
    assert_eq!(all(&client, &tree, || forget(&world)), expected());
    assert!(world.sim.now() - began > Duration::from_millis(13), "the engine was asked");
    forget(&world);
    let mut names = client.names(tree.a);
    names.sort();
    assert_eq!(names, ["file", "made", "sub"]);
    assert_eq!(world.keys(keys::ORPHAN), 1, "the first file is open to read, and the nameless one is gone");
    assert_eq!(world.keys(keys::XATTR), 2, "only the attributes of the first file are left");
}

/// Nothing that one operation lacks is forgotten for the sake of the next thing that it lacks, or that another one does.
#[test]
fn operations_come_to_an_end_however_short_memory_is() {
    let world = World::new();
    world.sim.change_disks(|disk| {
        disk.look_up = Span::millis(1, 2);
        disk.forgets = Chance::ALWAYS;
    });
    let client = world.client(1);
    let tree = tree(&client);
    assert_eq!(all(&client, &tree, || forget(&world)), expected());
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_else() {
    let world = World::new();
    let client = world.client(1);
    let tree = tree(&client);
    let fails = |fails| {
        world
            .sim
            .change_disks(|disk| disk.look_up_fails = if fails { Chance::ALWAYS } else { Chance::NEVER });
    };
    let keys = |world: &World| (0..=u8::MAX - 1).map(|prefix| world.keys(prefix)).collect::<Vec<_>>();
    forget(&world);
    let (before, last) = (keys(&world), world.store.last_transno());
    let refused = all(&client, &tree, || {
        fails(false);
        forget(&world);
        fails(true);
    });
    for (what, outcome) in refused {
        assert_eq!(outcome, Err(Code::Io), "{what}");
    }
    assert_eq!(client.lookup(tree.a, "file").map(drop), Err(Code::Io));
    fails(false);
    assert!(!world.store.has_failed(), "the target goes on");
    assert_eq!((world.store.last_transno(), keys(&world)), (last, before), "nothing was changed");
    assert_eq!(all(&client, &tree, || forget(&world)), expected(), "and everything can be done");
}
