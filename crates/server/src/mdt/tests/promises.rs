//! Several changes in one request (`docs/locks.md#alone`).

use std::time::Duration;

use proto::wire::messages::{
    self as msg, Create, Foretold, KeepPromises, Kept, LOCK_ALONE, OPEN_ALONE, OPEN_EXCLUSIVE, OPEN_WRITE,
    Promise, QUOTA_USER, Remove, SetAttr, Unlink,
};
use proto::{Code, Cred, Fid, Transno};
use rpc::{Role, Service};

use crate::mdt::keys;
use crate::mdt::testing::{Client, NODE, World, gave_back, name, outside, user};

fn made(create: Create) -> Promise {
    Promise { create: Some(create), ..Promise::default() }
}

fn set(set: SetAttr) -> Promise {
    Promise { set_attr: Some(set), ..Promise::default() }
}

fn removed(client: &Client, parent: Fid, text: &str, fid: Fid, directory: bool) -> Promise {
    let unlink = Unlink { parent, name: name(text), directory, cred: Cred::root(), time: client.time() };
    Promise { remove: Some(Remove { unlink, fid }), ..Promise::default() }
}

fn keep(client: &Client, promises: Vec<Promise>) -> Result<Vec<Kept>, Code> {
    client.call(KeepPromises { promises }).map(|reply| reply.kept)
}

fn codes(kept: &[Kept]) -> Vec<Option<Code>> {
    kept.iter().map(|kept| Code::from_u32(kept.status)).collect()
}

/// A new directory and a file in it, with its mode changed.
fn tree(client: &Client, text: &str) -> (Fid, Fid, Vec<Promise>) {
    let dir = client.create_request(Fid::ROOT, text, 0o040_755);
    let file = client.create_request(dir.fid, "f", 0o100_644);
    let (dir_fid, file_fid) = (dir.fid, file.fid);
    let mode = SetAttr { mode: Some(0o600), ..client.set_attr(file_fid, &Cred::root()) };
    (dir_fid, file_fid, vec![made(dir), made(file), set(mode)])
}

#[test]
fn each_builds_on_those_before_it_and_all_are_one_change() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let (dir, file, promises) = tree(&a, "d");
    let kept = keep(&a, promises).expect("they are right");
    assert_eq!(codes(&kept), [None, None, None]);
    let versions: Vec<u64> =
        kept.iter().map(|kept| kept.attr.as_ref().expect("it is told").version).collect();
    assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "{versions:?}");
    world.called.answer(gave_back());
    let (found, above) = (b.lookup(dir, "f").expect("it was made"), b.lookup(Fid::ROOT, "d"));
    assert_eq!((found.fid, found.mode & 0o777, found.version), (file, 0o600, versions[0]));
    assert_eq!(above.map(|dir| (dir.fid, dir.nlink)), Ok((dir, 2)));
    assert_eq!(a.attr(Fid::ROOT).map(|root| root.nlink), Ok(3));
    world.check_inodes();
}

/// To their targets both owners would be of the same age, and the first would come first.
#[test]
fn objects_are_told_of_the_last_owner_alone() {
    let world = World::new();
    let client = world.client(1);
    let file = client.create_request(Fid::ROOT, "f", 0o100_644);
    let fid = file.fid;
    let gives = |uid| set(SetAttr { uid: Some(uid), ..client.set_attr(fid, &Cred::root()) });
    let kept = keep(&client, vec![made(Create { open: OPEN_WRITE, ..file }), gives(5), gives(6)]);
    assert_eq!(codes(&kept.expect("they are right")), [None; 3]);
    let targets = client.call(msg::Open { fid, open: 0, cred: Cred::root() }).expect("it was made").layout;
    let count = targets.map_or(0, |layout| layout.object_count());
    assert!(count > 0);
    assert_eq!(world.keys(keys::OWNERS), count, "one for each object");
}

#[test]
fn one_that_is_refused_changes_nothing_and_the_others_are_made() {
    let world = World::new();
    let client = world.client(1);
    client.file(Fid::ROOT, "there");
    let (dir, file, mut promises) = tree(&client, "d");
    let lacks = client.create_request(client.new_fid(), "g", 0o100_644);
    let not_owner = SetAttr { mode: Some(0o777), ..client.set_attr(file, &user(7)) };
    promises.push(made(client.create_request(Fid::ROOT, "there", 0o100_644)));
    promises.push(made(lacks));
    promises.push(set(not_owner));
    promises.push(removed(&client, Fid::ROOT, "there", client.new_fid(), false));
    let last = client.create_request(dir, "last", 0o100_644);
    promises.push(made(last.clone()));
    let kept = keep(&client, promises).expect("some are right");
    let refused = [Code::Exists, Code::Stale, Code::NotPermitted, Code::Stale].map(Some);
    assert_eq!(codes(&kept)[..3], [None; 3]);
    assert_eq!((codes(&kept)[3..7].to_vec(), codes(&kept)[7]), (refused.to_vec(), None));
    assert_eq!(client.names(dir), ["f", "last"]);
    assert_eq!(client.attr(file).map(|attr| attr.mode & 0o777), Ok(0o600));
    world.check_inodes();
}

#[test]
fn what_cannot_be_planned_is_refused_whole() {
    let world = World::new();
    let client = world.client(1);
    let dir = client.mkdir(Fid::ROOT, "d");
    let new = || client.create_request(Fid::ROOT, "n", 0o100_644);
    let cut = SetAttr { size: Some(0), ..client.set_attr(dir, &Cred::root()) };
    let goes = |fid| removed(&client, Fid::ROOT, "n", fid, false);
    let both = Promise { remove: goes(dir).remove, ..made(new()) };
    let same = new();
    let whole = [
        vec![Promise::default()],
        vec![both],
        vec![set(cut)],
        vec![made(new()), removed(&client, Fid::ROOT, "d", dir, true)],
        vec![made(same.clone()), goes(same.fid)],
        vec![made(new()); proto::limits::PROMISES_MAX + 1],
    ];
    for promises in whole {
        assert_eq!(keep(&client, promises.clone()), Err(Code::Invalid), "{promises:?}");
    }
    assert_eq!(client.names(Fid::ROOT), ["d"]);
}

#[test]
fn names_go_and_come_again() {
    let world = World::new();
    let client = world.client(1);
    let (dir, file, promises) = tree(&client, "d");
    keep(&client, promises).expect("they are right");
    let again = client.create_request(dir, "f", 0o100_644);
    let fid = again.fid;
    let kept = keep(&client, vec![removed(&client, dir, "f", file, false), made(again)]);
    assert_eq!(kept.map(|kept| codes(&kept)), Ok(vec![None, None]));
    assert_eq!(client.lookup(dir, "f").map(|attr| attr.fid), Ok(fid));
    assert_eq!(client.attr(file), Err(Code::Stale));
    let full = keep(&client, vec![removed(&client, Fid::ROOT, "d", dir, true)]);
    assert_eq!(full.map(|kept| codes(&kept)), Ok(vec![Some(Code::NotEmpty)]));
    let kept = keep(&client, vec![removed(&client, dir, "f", fid, false)]);
    assert_eq!(kept.map(|kept| codes(&kept)), Ok(vec![None]));
    let kept = keep(&client, vec![removed(&client, Fid::ROOT, "d", dir, true)]);
    assert_eq!(kept.map(|kept| codes(&kept)), Ok(vec![None]));
    assert_eq!((world.keys(keys::INODE), world.keys(keys::ENTRY)), (1, 0));
    world.check_inodes();
}

#[test]
fn sent_again_and_replayed_they_are_made_once() {
    let world = World::new();
    let (dir, file, promises, xid, transno) = {
        let client = world.client(1);
        let (dir, file, promises) = tree(&client, "d");
        let xid = client.xid() + 1;
        client.skip_to(xid);
        let first = client.send(xid, KeepPromises { promises: promises.clone() });
        let again = client.send(xid, KeepPromises { promises: promises.clone() });
        assert_eq!((first.transno, first.result.is_ok()), (again.transno, again.result.is_ok()));
        assert_eq!(client.names(dir), ["f"]);
        (dir, file, promises, xid, first.transno)
    };
    // Not durable: the client brings it again.
    let id = proto::ClientId(1);
    let world = world.crash();
    let client = world.connect(id, 1, 1).expect("it was there before");
    let replayed = client.replay(xid, transno, KeepPromises { promises });
    assert_eq!((replayed.transno, replayed.result.is_ok()), (transno, true));
    assert_eq!(client.lookup(dir, "f").map(|attr| (attr.fid, attr.version)), Ok((file, transno.0)));
    assert_ne!(transno, Transno(0));
}

#[test]
fn a_file_is_open_under_the_handle_that_was_foretold() {
    let world = World::new();
    let client = world.client(1);
    let new = client.create_request(Fid::ROOT, "f", 0o100_644);
    let foretold = Foretold { handle: Foretold::handle_of(new.fid), layout: None };
    let (fid, handle) = (new.fid, foretold.handle);
    let open = OPEN_EXCLUSIVE | OPEN_WRITE;
    let kept = keep(&client, vec![made(Create { open, foretold: Some(Box::new(foretold)), ..new })]);
    assert_eq!(kept.map(|kept| codes(&kept)), Ok(vec![None]));
    let kept = keep(&client, vec![removed(&client, Fid::ROOT, "f", fid, false)]);
    assert_eq!(kept.map(|kept| codes(&kept)), Ok(vec![None]));
    assert_eq!(client.attr(fid).map(|attr| attr.nlink), Ok(0), "it is open");
    client.close(fid, handle, false, None);
    assert_eq!(client.attr(fid), Err(Code::Stale));
}

/// What a client has told cannot be taken back: a limit that comes at that moment is passed.
#[test]
fn who_is_alone_is_not_limited() {
    let world = World::new();
    let client = world.client(1);
    let alone = OPEN_EXCLUSIVE | OPEN_ALONE;
    let dir = Create { open: alone, cred: user(5), ..client.create_request(Fid::ROOT, "d", 0o040_755) };
    client.chmod(Fid::ROOT, 0o777);
    let dir = client.call(dir).expect("a new name").attr.fid;
    world.called.hold();
    let limit = msg::SetQuota {
        kind: QUOTA_USER,
        id: 5,
        inodes_soft: None,
        inodes_hard: Some(1),
        inodes_grace_s: None,
        bytes_soft: None,
        bytes_hard: None,
        bytes_grace_s: None,
        forget: false,
        pool: String::new(),
    };
    // It is called back, and has not answered yet.
    let setting = world.target.clone().call(outside(Role::Server, limit.into()));
    let rt = world.sim.rt(NODE);
    rt.spawn(async move { drop(setting.await) });
    let called = (0..100).find(|_| {
        let rt = rt.clone();
        world.sim.run(async move { rt.sleep(Duration::from_millis(100)).await });
        !world.called.take().is_empty()
    });
    assert!(called.is_some(), "the limit is there");
    let below =
        |text: &str, parent| Create { cred: user(5), ..client.create_request(parent, text, 0o100_644) };
    let sub = Create { open: alone, mode: 0o040_755, ..below("sub", dir) };
    let told = vec![made(sub.clone()), made(below("f", dir)), made(below("g", sub.fid))];
    let kept = keep(&client, told).expect("they are right");
    assert_eq!(codes(&kept), [None, None, None]);
    assert!(kept[0].lock.bits & LOCK_ALONE != 0);
}

/// What takes more than a commit may is refused, and nothing is made.
#[test]
fn a_request_is_bounded() {
    let world = World::new();
    let client = world.client(1);
    let dir = client.mkdir(Fid::ROOT, "d");
    let mut promises = Vec::new();
    for n in 0..128 {
        let fid = client.file(dir, &format!("f{n}"));
        for x in 0..255 {
            let name = format!("user.{x:0>249}").into_bytes().into();
            let value = bytes::Bytes::from_static(b"v");
            let set = msg::SetXattr { fid, name, value, flags: 0, cred: Cred::root(), time: client.time() };
            client.call(set).expect("there is room");
        }
        promises.push(removed(&client, dir, &format!("f{n}"), fid, false));
    }
    let some = promises.split_off(100);
    assert_eq!(keep(&client, [promises.clone(), some.clone()].concat()), Err(Code::TooLarge));
    assert_eq!(client.names(dir).len(), 128);
    assert_eq!(keep(&client, some).map(|kept| codes(&kept)), Ok(vec![None; 28]));
    assert_eq!(client.names(dir).len(), 100);
}
