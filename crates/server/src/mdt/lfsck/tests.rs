//! Checks of an MDT on a simulated disk.

use std::time::Duration;

use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{Code, Cred, Fid, FileKind};
use rpc::Role;
use store::{Batch, Change};

use crate::mdt::testing::{World, ask, name};
use crate::mdt::{keys, lfsck::namespace};

/// What a check of the name space finds.
pub fn found(world: &World) -> Vec<String> {
    let mut check = namespace::Check::default();
    // Few keys at a time: pages end anywhere.
    while check.step(&*world.store, 3).expect("the store can be read") {}
    check.found
}

fn commit(world: &World, changes: Vec<Change>) {
    world.store.commit(Batch { changes, ..Batch::default() }).expect("the store takes it");
}

fn set(world: &World, parameter: &str, value: &str) -> Result<(), Code> {
    let name = format!("mdd.weft-MDT0000.{parameter}");
    let parameter = msg::Parameter { name, value: value.into() };
    ask(world, Role::Server, msg::SetParameters { parameters: vec![parameter] }).map(|_| ())
}

fn read(world: &World, parameter: &str) -> String {
    let patterns = vec![format!("mdd.*.{parameter}")];
    let read: Request = msg::ReadParameters { patterns, skip: 0, names_only: false }.into();
    match ask(world, Role::Client, read) {
        Ok(Reply::ReadParameters(page)) => {
            page.parameters.into_iter().map(|one| one.value).collect::<Vec<_>>().join("\n")
        }
        other => panic!("any key may ask: {other:?}"),
    }
}

/// `d/e`, `d/f` and `g`, which are one file, `h` that is open without a name.
fn tree(world: &World) -> [Fid; 4] {
    let client = world.client(1);
    let d = client.mkdir(Fid::ROOT, "d");
    let e = client.mkdir(d, "e");
    let f = client.file(d, "f");
    let link =
        msg::Link { fid: f, parent: Fid::ROOT, name: name("g"), time: client.time(), cred: Cred::root() };
    client.call(link).expect("a second name");
    let h = client.file(Fid::ROOT, "h");
    client.open(h, msg::OPEN_READ, &Cred::root()).expect("it opens");
    client.unlink(Fid::ROOT, "h").expect("it goes");
    assert_eq!(found(world), Vec::<String>::new());
    [d, e, f, h]
}

/// Changes that damage the tree, and what is found then.
fn damages([d, e, f, h]: [Fid; 4]) -> Vec<(Vec<Change>, Vec<String>)> {
    let gone = |key| vec![Change { key, value: None }];
    let (dir, file) = (FileKind::Dir, FileKind::File);
    let put = |parent: Fid, text: &str, fid: Fid, kind| {
        vec![Change { key: keys::entry(parent, &name(text)), value: Some(keys::entry_value(fid, kind)) }]
    };
    let lost = Fid { seq: Fid::SEQ_NORMAL_START + 999, oid: 1, ver: 0 };
    let link = |fid, parent, text: &str| {
        vec![Change { key: keys::link(fid, parent, &name(text)), value: Some(bytes::Bytes::new()) }]
    };
    vec![
        (
            gone(keys::entry(d, &name("f"))),
            vec![format!("The file {f} says that it is \"f\" of {d}, where it is not.")],
        ),
        (
            gone(keys::link(f, d, &name("f"))),
            vec![
                format!("The entry \"f\" of {d} leads to {f}, which knows nothing of it."),
                format!("The file {f} has 1 names, and says that it has 2."),
            ],
        ),
        (
            gone(keys::inode(e)),
            vec![
                format!("The entry \"e\" of {d} leads to {e}, which is missing."),
                format!("The file {e} has names, and no inode."),
            ],
        ),
        (
            gone(keys::inode(d)),
            vec![
                format!("The entry \"d\" of {} leads to {d}, which is missing.", Fid::ROOT),
                format!("The directory {d} has entries, and no inode."),
                format!("The file {d} has names, and no inode."),
            ],
        ),
        (gone(keys::orphan(h)), vec![format!("The inode {h} has no name, and is not marked as open.")]),
        (
            put(d, "f", f, dir),
            vec![
                format!("The entry \"f\" of {d} says another kind of file than {f} is."),
                format!("The directory {d} has 2 directories, and says that it has 3 links."),
            ],
        ),
        (
            put(d, "x", lost, file),
            vec![
                format!("The entry \"x\" of {d} leads to {lost}, which is missing."),
                format!("The entry \"x\" of {d} leads to {lost}, which knows nothing of it."),
            ],
        ),
        (
            link(e, Fid::ROOT, "y"),
            vec![
                format!("The file {e} says that it is \"y\" of {}, where it is not.", Fid::ROOT),
                format!("The directory {e} has 2 names."),
            ],
        ),
        (
            vec![Change { key: keys::inode(f), value: Some("x".into()) }],
            vec![
                format!("The inode with key {:x} is damaged.", keys::inode(f)),
                format!("The entry \"f\" of {d} leads to {f}, which is missing."),
                format!("The entry \"g\" of {} leads to {f}, which is missing.", Fid::ROOT),
                format!("The file {f} has names, and no inode."),
            ],
        ),
    ]
}

#[test]
fn what_does_not_fit_is_named() {
    let world = World::new();
    let fids = tree(&world);
    for (changes, expected) in damages(fids) {
        let before: Vec<Change> = changes
            .iter()
            .map(|change| {
                let value = world.store.get(&change.key).expect("the store can be read");
                Change { key: change.key.clone(), value: value.map(|value| value.bytes) }
            })
            .collect();
        commit(&world, changes);
        let (mut found, mut expected) = (found(&world), expected);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        commit(&world, before);
    }
    assert_eq!(found(&world), Vec::<String>::new());
}

#[test]
fn an_attribute_of_nothing_is_named() {
    let world = World::new();
    let lost = Fid { seq: Fid::SEQ_NORMAL_START + 999, oid: 1, ver: 0 };
    commit(&world, vec![Change { key: keys::xattr(lost, b"user.x"), value: Some("x".into()) }]);
    assert_eq!(found(&world), [format!("There is an extended attribute of {lost}, which is missing.")]);
}

#[test]
fn a_directory_that_counts_wrongly_is_named_although_it_is_empty() {
    let world = World::new();
    let [_, e, ..] = tree(&world);
    world.set_nlink(e, 5);
    assert_eq!(found(&world), [format!("The directory {e} is empty, and says that it has 5 links.")]);
    world.set_nlink(e, 2);
}

#[test]
fn an_operator_starts_a_check_and_reads_what_it_found() {
    let world = World::new();
    let [d, _, f, _] = tree(&world);
    assert!(read(&world, "lfsck_namespace").contains("status: init"));
    for wrong in ["", "go", "start", "start everything"] {
        assert_eq!(set(&world, "lfsck", wrong), Err(Code::Invalid), "{wrong}");
    }
    let before = world.store.get(&keys::entry(d, &name("f")));
    commit(&world, vec![Change { key: keys::entry(d, &name("f")), value: None }]);
    set(&world, "lfsck", "start namespace").expect("it starts");
    world.sim.run_for(Duration::from_secs(1));
    let text = read(&world, "lfsck_namespace");
    assert!(text.contains("status: completed") && text.contains("\nfound: 1\n"), "{text}");
    let sentence = format!("namespace: The file {f} says that it is \"f\" of {d}, where it is not.");
    assert_eq!(read(&world, "lfsck_findings"), sentence);
    let value = before.expect("the store can be read").map(|value| value.bytes);
    commit(&world, vec![Change { key: keys::entry(d, &name("f")), value }]);
    set(&world, "lfsck", "start namespace").expect("it starts");
    world.sim.run_for(Duration::from_secs(1));
    let text = read(&world, "lfsck_namespace");
    assert!(text.contains("success_count: 2") && text.contains("\nfound: 0\n"), "{text}");
    assert_eq!(read(&world, "lfsck_findings"), "");
}

/// OSTs that are away are waited for, but not by whoever ends the check.
#[test]
fn a_check_that_waits_can_be_stopped() {
    let world = World::new();
    tree(&world);
    set(&world, "lfsck", "start layout scrub").expect("it starts");
    assert_eq!(set(&world, "lfsck", "start layout"), Err(Code::Busy), "one at a time");
    world.sim.run_for(Duration::from_secs(30));
    let text = read(&world, "lfsck_layout");
    assert!(text.contains("status: scanning-phase1") && text.contains("waits for OST"), "{text}");
    set(&world, "lfsck", "stop").expect("it stops");
    world.sim.run_for(Duration::from_secs(10));
    assert!(read(&world, "lfsck_layout").contains("status: stopped"));
    set(&world, "lfsck", "start namespace").expect("it starts");
    world.sim.run_for(Duration::from_secs(1));
    assert!(read(&world, "lfsck_namespace").contains("status: completed"));
}
