//! The changelog: its records are the changes, in their order, over restarts and crashes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proto::changelog::{Kind, LAST_NAME, Record};
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Code, Cred, Fid};
use rpc::Role;
use rt::sim::Rng;

use crate::mdt::keys;
use crate::mdt::testing::{Client, World, ask, name, user};

fn order(world: &World, order: u8, user: u32, number: u64) -> Result<msg::ChangelogState, Code> {
    match ask(world, Role::Server, msg::OrderChangelog { order, user, number })? {
        Reply::OrderChangelog(state) => Ok(state),
        other => panic!("another answer: {other:?}"),
    }
}

fn register(world: &World, number: u64) -> u32 {
    let state = order(world, msg::CHANGELOG_REGISTER, 0, number).expect("there is room");
    state.users.iter().find(|reader| reader.number == number).expect("it is registered").user
}

fn page(world: &World, behind: u64, bytes_max: u32) -> Vec<Record> {
    match ask(world, Role::Client, msg::ReadChangelog { behind, bytes_max }) {
        Ok(Reply::ReadChangelog(page)) => page.records,
        other => panic!("another answer: {other:?}"),
    }
}

/// All durable records behind one.
fn read(world: &World, behind: u64) -> Vec<Record> {
    let (mut all, mut last) = (Vec::new(), behind);
    loop {
        let page = page(world, last, 300);
        let Some(newest) = page.last() else { return all };
        last = newest.index;
        all.extend(page);
    }
}

#[test]
fn changes_are_recorded_for_readers_and_only_for_them() {
    let world = World::new();
    let client = world.client(1);
    client.chmod(Fid::ROOT, 0o777);
    client.file(Fid::ROOT, "before");
    assert_eq!(read(&world, 0), []);
    let reader = register(&world, 11);
    assert_eq!(register(&world, 11), reader, "the same order again");
    let dir = client.mkdir(Fid::ROOT, "d");
    let file = client.file(dir, "f");
    client.chmod(dir, 0o777);
    client.chmod(file, 0o600);
    client.rename((dir, "f"), (Fid::ROOT, "g"), 0, &user(7)).expect("the directories are open to all");
    let value = Bytes::from_static(b"1");
    let (name, cred, time) = (Bytes::from_static(b"user.a"), Cred::root(), client.time());
    let set = msg::SetXattr { fid: file, name: name.clone(), value, flags: 0, cred, time };
    client.call(set).expect("root may");
    let opened = client.open(file, msg::OPEN_WRITE, &Cred::root()).expect("root may");
    client.close(file, opened.handle, true, Some(9));
    client.unlink(Fid::ROOT, "g").expect("it is there");
    client.rmdir(Fid::ROOT, "d").expect("it is empty");
    world.sync();
    let records = read(&world, 0);
    let kinds: Vec<_> = records.iter().filter_map(Record::kind).collect();
    let expected = [
        Kind::MakeDir,
        Kind::Create,
        Kind::SetAttr,
        Kind::SetAttr,
        Kind::Rename,
        Kind::Xattr,
        Kind::Close,
        Kind::Unlink,
        Kind::RemoveDir,
    ];
    assert_eq!(kinds, expected);
    assert!(records.iter().zip(1..).all(|(record, index)| record.index == index), "there are no gaps");
    assert!(records.iter().all(|record| !record.nid.is_empty() && record.time.secs > 0));
    let moved = &records[4];
    assert_eq!((moved.target, moved.parent, &moved.name[..]), (Fid::ZERO, Fid::ROOT, &b"g"[..]));
    assert_eq!((moved.source, moved.source_parent, &moved.source_name[..]), (file, dir, &b"f"[..]));
    assert_eq!((moved.uid, moved.gid), (7, 7));
    assert_eq!((records[5].target, &records[5].xattr), (file, &name));
    assert_eq!((records[7].target, records[7].flags), (file, LAST_NAME));
    order(&world, msg::CHANGELOG_DEREGISTER, reader, 0).expect("it is registered");
    client.file(Fid::ROOT, "after");
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!((read(&world, 0), world.keys(keys::CHANGELOG)), (vec![], 0), "nobody needs them");
}

#[test]
fn records_stay_until_all_readers_have_cleared_them() {
    let world = World::new();
    let client = world.client(1);
    let (slow, fast) = (register(&world, 1), register(&world, 2));
    for n in 0..3000 {
        client.file(Fid::ROOT, &n.to_string());
    }
    let state = order(&world, msg::CHANGELOG_CLEAR, fast, 0).expect("it is registered");
    assert_eq!((state.last, state.oldest), (3000, 1));
    assert_eq!(order(&world, msg::CHANGELOG_CLEAR, fast, 3001), Err(Code::Invalid));
    assert_eq!(order(&world, msg::CHANGELOG_CLEAR, 9, 1), Err(Code::NotFound));
    let refused = msg::OrderChangelog { order: msg::CHANGELOG_DEREGISTER, user: slow, number: 0 };
    assert_eq!(ask(&world, Role::Client, refused).err(), Some(Code::Forbidden));
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.keys(keys::CHANGELOG), 3000);
    order(&world, msg::CHANGELOG_CLEAR, slow, 2500).expect("it is registered");
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.keys(keys::CHANGELOG), 500);
    assert_eq!(read(&world, 0).first().map(|record| record.index), Some(2501));
    let world = world.restart();
    world.sim.run_for(Duration::from_secs(300));
    let state = order(&world, msg::CHANGELOG_LIST, 0, 0).expect("anybody may ask");
    let users: Vec<_> = state.users.iter().map(|reader| (reader.user, reader.index)).collect();
    assert_eq!((state.last, state.oldest, users), (3000, 2501, vec![(slow, 2500), (fast, 3000)]));
    order(&world, msg::CHANGELOG_DEREGISTER, slow, 0).expect("it is registered");
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(world.keys(keys::CHANGELOG), 0);
    let client = world.client(2);
    client.file(Fid::ROOT, "new");
    world.sync();
    assert_eq!(read(&world, 0).first().map(|record| record.index), Some(3001), "numbers go on");
}

#[test]
fn a_reader_that_never_comes_is_dropped() {
    let world = World::new();
    let client = world.client(1);
    let reader = register(&world, 1);
    let set = |value: &str| {
        let parameter = msg::Parameter {
            name: "mdd.weft-MDT0000.changelog_max_idle_indexes".into(),
            value: value.into(),
        };
        ask(&world, Role::Server, msg::SetParameters { parameters: vec![parameter] }).map(drop)
    };
    assert_eq!(set("0"), Err(Code::Invalid));
    set("10").expect("a number");
    for n in 0..20 {
        client.file(Fid::ROOT, &n.to_string());
    }
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(order(&world, msg::CHANGELOG_CLEAR, reader, 0), Err(Code::NotFound));
    assert_eq!(world.keys(keys::CHANGELOG), 0);
}

/// Names and what they mean.
type Tree = BTreeMap<(Fid, Vec<u8>), Fid>;

fn apply(tree: &mut Tree, record: &Record) {
    let key = (record.parent, record.name.to_vec());
    match record.kind().expect("a kind that is known") {
        Kind::Create | Kind::MakeDir | Kind::Link => {
            assert_eq!(tree.insert(key, record.target), None);
        }
        Kind::Unlink | Kind::RemoveDir => assert_eq!(tree.remove(&key), Some(record.target)),
        Kind::Rename => {
            // Of an exchange the second record finds its old name taken by the first.
            let old = (record.source_parent, record.source_name.to_vec());
            if tree.get(&old) == Some(&record.source) {
                tree.remove(&old);
            }
            tree.insert(key, record.source);
        }
        _ => {}
    }
}

fn scanned(world: &World) -> Tree {
    let prefix = [keys::ENTRY];
    let found = world.store.scan(&prefix, &[keys::ENTRY + 1], usize::MAX).expect("the store can be read");
    let entry = |(key, value): &(Bytes, store::Value)| {
        let (_, name) = keys::entry_parts(key).expect("an entry");
        let parent = keys::fid_of(key).expect("an entry");
        ((parent, name.as_bytes().to_vec()), keys::entry_of(&value.bytes).expect("an entry").0)
    };
    found.iter().map(entry).collect()
}

fn change(client: &Client, chance: &mut Rng, dirs: &mut Vec<Fid>) {
    let dir = |chance: &mut Rng, dirs: &[Fid]| dirs[chance.below(dirs.len() as u64) as usize];
    let text = |chance: &mut Rng| chance.below(6).to_string();
    let (parent, first) = (dir(chance, dirs), text(chance));
    // Whatever is refused changes nothing, and is not recorded.
    match chance.below(8) {
        0 | 1 => drop(client.make(parent, &first, 0o100_644, &Cred::root())),
        2 => {
            if let Ok(made) = client.make(parent, &first, 0o040_755, &Cred::root()) {
                dirs.push(made.fid);
            }
        }
        3 => drop(client.unlink(parent, &first)),
        4 => drop(client.rmdir(parent, &first)),
        5 | 6 => {
            let to = (dir(chance, dirs), text(chance));
            let flags = if chance.below(4) == 0 { msg::RENAME_EXCHANGE } else { 0 };
            let _ = client.rename((parent, &first), (to.0, &to.1), flags, &Cred::root());
        }
        _ => {
            if let Ok(found) = client.lookup(parent, &first) {
                let (parent, name) = (dir(chance, dirs), name(&text(chance)));
                let link =
                    msg::Link { fid: found.fid, parent, name, cred: Cred::root(), time: client.time() };
                let _ = client.call(link);
            }
        }
    }
}

#[test]
fn what_is_replayed_equals_a_scan_after_crashes() {
    for seed in 0..8 {
        let mut world = World::new();
        let mut chance = Rng::new(seed);
        register(&world, 1);
        let (mut tree, mut behind, mut dirs) = (Tree::new(), 0, vec![Fid::ROOT]);
        for round in 0..4 {
            let client = world.client(10 + round);
            client.chmod(Fid::ROOT, 0o777);
            for step in 0..120 {
                change(&client, &mut chance, &mut dirs);
                if step % 40 == 20 {
                    world.sync();
                }
                if step % 50 == 30 {
                    for record in read(&world, behind) {
                        assert_eq!(record.index, behind + 1, "seed {seed}: without gaps");
                        behind = record.index;
                        apply(&mut tree, &record);
                    }
                }
            }
            world = world.crash();
            world.sim.run_for(Duration::from_secs(300));
            dirs.retain(|dir| world.store.get(&keys::inode(*dir)).expect("it can be read").is_some());
            world.sync();
            for record in read(&world, behind) {
                assert_eq!(record.index, behind + 1, "seed {seed}: without gaps");
                behind = record.index;
                apply(&mut tree, &record);
            }
            assert_eq!(tree, scanned(&world), "seed {seed}, round {round}");
        }
        assert!(behind > 100, "seed {seed}: most of it was durable");
    }
}
