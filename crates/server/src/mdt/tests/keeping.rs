//! What clients may keep of answers.

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::wire::messages::{
    Granted, LOCK_LAYOUT, LOCK_LOOKUP, LOCK_OPEN, LOCK_PERM, LOCK_UPDATE, LOCK_XATTR, OPEN_READ, OPEN_WRITE,
};
use proto::{Code, Cred, Fid};

use crate::mdt::testing::{Client, World, name};

const ATTRS: u32 = LOCK_UPDATE | LOCK_LAYOUT | LOCK_PERM | LOCK_XATTR;
const NAMED: u32 = ATTRS | LOCK_LOOKUP;

fn lookup(client: &Client, parent: Fid, text: Option<&str>) -> msg::Entry {
    let lookup = msg::Lookup { parent, name: text.map(name), cred: Cred::root() };
    client.call(lookup).expect("it exists")
}

#[test]
fn answers_carry_what_they_tell() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = a.mkdir(Fid::ROOT, "d");
    let made = a.call(a.create_request(dir, "f", 0o100_644)).expect("root may");
    let file = made.attr.fid;
    assert_eq!(made.lock.bits, NAMED);
    assert_eq!(lookup(&b, dir, Some("f")).lock.bits, NAMED);
    assert_eq!(lookup(&b, dir, None).lock.bits, ATTRS, "what \"..\" means is not kept");
    assert_eq!(b.call(msg::GetAttr { fid: file }).map(|entry| entry.lock.bits), Ok(ATTRS));
    let opened = b.open(file, OPEN_READ, &Cred::root()).expect("root may");
    assert_eq!(opened.lock.bits, ATTRS | LOCK_OPEN);
    let opened = b.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
    assert_eq!((opened.lock.bits, opened.attr.size_known), (ATTRS, false));
    let page = |plus| {
        b.call(msg::ReadDir { fid: dir, cookie: 0, bytes_max: 9999, plus, behind: None })
            .expect("a directory")
    };
    assert_eq!((page(false).lock.bits, page(true).lock.bits), (LOCK_UPDATE, LOCK_UPDATE));
    let entry = page(true).entries.remove(0).entry.expect("it was asked for");
    assert_eq!((entry.lock.bits, entry.attr.fid), (NAMED, file));
    let chmod = msg::SetAttr { mode: Some(0o600), ..a.set_attr(file, &Cred::root()) };
    assert_eq!(a.call(chmod).map(|entry| entry.lock.bits), Ok(ATTRS));
    let (time, cred) = (a.time(), Cred::root());
    let link = msg::Link { fid: file, parent: dir, name: name("g"), cred, time };
    assert_eq!(a.call(link).map(|entry| entry.lock.bits), Ok(NAMED));
}

#[test]
fn extended_attributes_are_kept_when_they_were_told() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let fid = a.file(Fid::ROOT, "f");
    let get = |text: &'static str| {
        b.call(msg::GetXattr { fid, name: Bytes::from(text), cred: Cred::root() }).map(|got| got.lock.bits)
    };
    assert_eq!(b.call(msg::ListXattr { fid }).map(|got| got.lock.bits), Ok(LOCK_XATTR));
    let (value, cred, time) = (Bytes::from("v"), Cred::root(), a.time());
    let set = msg::SetXattr { fid, name: Bytes::from("user.a"), value, flags: 0, cred, time };
    a.call(set).expect("root may");
    let entry = b.call(msg::GetAttr { fid }).expect("it exists");
    assert_eq!((entry.xattrs, entry.lock.bits), (true, ATTRS & !LOCK_XATTR), "which ones was not told");
    assert_eq!((get("user.a"), get("user.b")), (Ok(LOCK_XATTR), Err(Code::NoXattr)));
    assert_eq!(b.call(msg::ListXattr { fid }).map(|got| got.lock.bits), Ok(LOCK_XATTR));
}

/// A client cannot give back what it was not told of: the MDT counted it for good, and a drain said that it was in use.
#[test]
fn what_an_answer_does_not_tell_is_not_granted() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let fid = a.file(Fid::ROOT, "f");
    let (value, cred, time) = (Bytes::from("v"), Cred::root(), a.time());
    a.call(msg::SetXattr { fid, name: Bytes::from("user.a"), value, flags: 0, cred, time })
        .expect("root may");
    let held = || world.target.handler().grants.bits.held_by(b.session(), fid);
    let get = |text: &'static str| {
        b.call(msg::GetXattr { fid, name: Bytes::from(text), cred: Cred::root() }).map(|got| got.lock.bits)
    };
    assert_eq!((get("user.b"), held()), (Err(Code::NoXattr), 0), "an error carries no lock");
    let entry = b.call(msg::GetAttr { fid }).expect("it exists");
    assert_eq!((entry.lock.bits, held()), (ATTRS & !LOCK_XATTR, ATTRS & !LOCK_XATTR));
    assert_eq!((get("user.a"), held()), (Ok(LOCK_XATTR), ATTRS));
    assert_eq!((get("user.b"), held()), (Err(Code::NoXattr), ATTRS), "it had the lock before");
    b.call(msg::GetAttr { fid }).expect("it exists");
    assert_eq!(held(), ATTRS);
    let time = b.time();
    let chmod = msg::SetAttr { mode: Some(0o600), time, ..b.set_attr(fid, &Cred::root()) };
    assert_eq!(b.call(chmod).map(|entry| entry.lock.bits), Ok(ATTRS & !LOCK_XATTR));
    assert_eq!(held(), ATTRS);
}

/// The entry behind the last one of a page was granted, and not shown.
#[test]
fn what_is_behind_the_end_of_a_page_is_not_granted() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let dir = a.mkdir(Fid::ROOT, "d");
    let files: Vec<Fid> = (0..8).map(|n| a.file(dir, &format!("f{n}"))).collect();
    let page = b
        .call(msg::ReadDir { fid: dir, cookie: 0, bytes_max: 600, plus: true, behind: None })
        .expect("a directory");
    assert!((1..8).contains(&page.entries.len()) && !page.end);
    let bits = &world.target.handler().grants.bits;
    let held = files.iter().filter(|fid| bits.held_by(b.session(), **fid) != 0).count();
    assert_eq!(held, page.entries.len());
}

#[test]
fn nothing_is_kept_of_files_without_a_name() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let file = a.file(Fid::ROOT, "f");
    b.open(file, OPEN_READ, &Cred::root()).expect("root may");
    a.unlink(Fid::ROOT, "f").expect("root may");
    let bits = &world.target.handler().grants.bits;
    for client in [&a, &b] {
        let entry = client.call(msg::GetAttr { fid: file }).expect("it is open");
        assert_eq!((entry.attr.nlink, entry.lock), (0, Granted::default()));
        assert_eq!(bits.held_by(client.session(), file), 0);
    }
    let gone = Fid { oid: 9999, ..file };
    assert_eq!(a.attr(gone), Err(Code::Stale));
    assert_eq!(bits.held_by(a.session(), gone), 0);
}

#[test]
fn an_answer_that_comes_again_carries_no_lock() {
    let world = World::new();
    let a = world.client(1);
    let file = a.file(Fid::ROOT, "f");
    for (xid, operation) in [(100, OPEN_READ), (101, OPEN_WRITE)] {
        let open = msg::Open { fid: file, open: operation, cred: Cred::root() };
        let lock = |answer: rpc::Answer| match answer.result {
            Ok(proto::wire::Reply::Open(opened)) => opened.lock,
            other => panic!("root may open it: {other:?}"),
        };
        assert_ne!(lock(a.send(xid, open.clone())), Granted::default());
        assert_eq!(lock(a.send(xid, open)), Granted::default());
    }
}

#[test]
fn clients_without_callbacks_get_nothing() {
    let world = World::without_locks();
    let a = world.client(1);
    let file = a.file(Fid::ROOT, "f");
    assert_eq!(lookup(&a, Fid::ROOT, Some("f")).lock, Granted::default());
    assert_eq!(world.target.handler().grants.bits.counts().locks, 0);
    assert!(a.open(file, OPEN_READ, &Cred::root()).is_ok_and(|opened| opened.lock == Granted::default()));
}

#[test]
fn what_is_given_up_is_not_asked_back() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let file = a.file(Fid::ROOT, "f");
    let first = b.call(msg::GetAttr { fid: file }).expect("it exists").lock;
    let second = b.call(msg::GetAttr { fid: file }).expect("it exists").lock;
    assert!(second.number > first.number);
    let cancel = |number| {
        let lock = msg::BitLock { fid: file, bits: ATTRS, number };
        b.call(msg::CancelBits { locks: vec![lock] }).expect("it always works");
    };
    let bits = &world.target.handler().grants.bits;
    // The second answer may still be on its way.
    cancel(first.number);
    assert_eq!((bits.held_by(b.session(), file), bits.counts().cancels), (ATTRS, 0));
    cancel(second.number);
    assert_eq!((bits.held_by(b.session(), file), bits.counts().cancels), (0, 1));
    a.chmod(file, 0o600);
    assert_eq!(world.called.take(), []);
}

#[test]
fn locks_end_with_the_target() {
    let world = World::new();
    let a = world.client(1);
    let file = a.file(Fid::ROOT, "f");
    world.sync();
    let world = world.restart();
    assert_eq!(world.target.handler().grants.bits.counts().locks, 0);
    let b = world.client(2);
    b.chmod(file, 0o600);
    assert_eq!(world.called.take(), []);
}
