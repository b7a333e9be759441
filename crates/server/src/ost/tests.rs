//! An OST as its peers see it: an MGS and an OST in one simulated process.

mod advised;
mod fake;
mod random;
mod sealed;
mod statistics;
mod steps;
mod tokens;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::{ClientId, Code, Fid, FileOwner, FsName, Nid, ObjectId, TargetId, Timestamp};
use rpc::{Hub, Import, Keys, Role, RpcError};
use rt::Rt;
use rt::sim::{Options, Sim};
use std::sync::Arc;
use store::{Label, Store};

use crate::{Config, Running, start};

const NODE: &str = "server";
const MGS: &str = "mgs";
const OST: &str = "ost";

struct World {
    hub: Hub,
    running: Vec<Running>,
}

impl World {
    async fn make(rt: &Rt) -> World {
        for (path, target) in [(MGS, TargetId::MGS), (OST, TargetId::ost(3))] {
            let uuid = ClientId(u128::from(target.index) + 1);
            let mgs = if path == MGS { vec![] } else { vec![Nid::lo()] };
            let label = Label { fsname: fsname(), target, uuid, mgs, service: vec![] };
            Store::format(rt, path, &label).await.expect("an empty directory can be formatted");
        }
        World::open(rt).await
    }

    async fn open(rt: &Rt) -> World {
        let hub = Hub::new(rt.clone(), fsname(), Keys::default());
        let mut running = Vec::new();
        for path in [MGS, OST] {
            let config = Config { path: path.into(), nids: vec![Nid::lo()], server: "oss".into() };
            running.push(start(&hub, config).await.expect("the target starts"));
        }
        World { hub, running }
    }

    fn import(&self, client: u128, role: Role) -> Arc<Import> {
        self.hub.import(TargetId::ost(3), ClientId(client), role, vec![Nid::lo()])
    }

    /// Stops the OST, then the MGS.
    async fn stop(mut self) {
        while let Some(running) = self.running.pop() {
            running.stop().await;
        }
        self.hub.close().await;
    }
}

/// Runs `test` with both targets.
fn check(test: impl AsyncFnOnce(Rt, World)) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let world = World::make(&rt).await;
        test(rt, world).await;
    });
}

fn write(oid: u32, offset: u64, time: i64) -> msg::Write {
    msg::Write {
        object: id(oid),
        offset,
        time: at(time),
        locked: false,
        sync: false,
        owner: FileOwner::default(),
    }
}

fn read(oid: u32, offset: u64, len: u32) -> msg::Read {
    msg::Read { object: id(oid), offset, len, locked: false }
}

fn refused<T: std::fmt::Debug>(result: Result<T, RpcError>) -> Code {
    match result {
        Err(RpcError::Refused(code)) => code,
        other => panic!("refusal expected, not {other:?}"),
    }
}

fn fsname() -> FsName {
    "weft".parse().expect("a file system's name")
}

fn id(oid: u32) -> ObjectId {
    ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }, stripe: 0 }
}

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

#[test]
fn data_is_written_read_and_cut() {
    check(async |rt, world| {
        let client = world.import(100, Role::Client);
        let slices = vec![Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
        let written = client.call_bulk(write(1, 5, 7), slices).await.expect("it is written");
        assert_eq!((written.reply.size, written.reply.mtime), (16, at(7)));
        assert!(written.transno.0 > 0);
        let found = client.call(read(1, 0, 100)).await.expect("it is read");
        assert_eq!((found.bulk.concat().as_slice(), found.reply.size), (&b"\0\0\0\0\0hello world"[..], 16));
        let cut = msg::Punch { object: id(1), start: 8, end: u64::MAX, time: at(6) };
        let cut = client.call(cut).await.expect("it is cut");
        assert_eq!((cut.reply.size, cut.reply.ctime), (8, at(7)), "the newest time wins");
        let attr = client.call(msg::GetObjectAttr { object: id(1) }).await.expect("it is there");
        assert_eq!(attr.reply, cut.reply);
        let attr =
            client.call(msg::GetObjectAttr { object: id(2) }).await.expect("what is not there is empty");
        assert_eq!((attr.reply.size, attr.reply.mtime), (0, at(0)));
        let space = client.call(msg::Statfs {}).await.expect("there is space").reply;
        assert!(space.bytes_available <= space.bytes_free && space.bytes_free <= space.bytes_total);
        client.committed(cut.transno).await.expect("it becomes durable");
        world.stop().await;
        let world = World::open(&rt).await;
        let client = world.import(101, Role::Client);
        assert_eq!(client.call(read(1, 5, 9)).await.expect("it is read").bulk.concat(), b"hel");
        world.stop().await;
    });
}

#[test]
fn several_parts_are_written_as_one_change() {
    check(async |_rt, world| {
        let client = world.import(100, Role::Client);
        client.call_bulk(write(1, 0, 7), vec![Bytes::from(vec![b'.'; 12])]).await.expect("it is written");
        let part = |offset, len| msg::WritePart { offset, len };
        let parts = |parts: &[msg::WritePart]| msg::WriteParts {
            object: id(1),
            parts: parts.to_vec(),
            time: at(9),
            sync: false,
            owner: FileOwner::default(),
        };
        let bulk = || vec![Bytes::from_static(b"on"), Bytes::from_static(b"etwothree")];
        let three = [part(1, 3), part(6, 3), part(9000, 5)];
        let written = client.call_bulk(parts(&three), bulk()).await.expect("it is written");
        assert_eq!((written.reply.size, written.reply.mtime), (9005, at(9)));
        let found = client.call(read(1, 0, 10_000)).await.expect("it is read").bulk.concat();
        assert_eq!((&found[..14], &found[8998..]), (&b".one..two...\0\0"[..], &b"\0\0three"[..]));
        for (wrong, code) in [
            (vec![part(1, 3), part(3, 8)], Code::Invalid),
            (vec![part(1, 3), part(6, 7)], Code::Invalid),
            (vec![part(1, 3), part(6, 9)], Code::Invalid),
            (vec![part(1, 11), part(20, 0)], Code::Invalid),
            (vec![part(u64::MAX - 5, 11)], Code::TooLarge),
            (vec![part(i64::MAX as u64, 11)], Code::TooLarge),
            (vec![part(0, 1); 2000], Code::TooBig),
        ] {
            assert_eq!(refused(client.call_bulk(parts(&wrong), bulk()).await), code, "{wrong:?}");
        }
        world.stop().await;
    });
}

#[test]
fn data_is_found_reserved_and_copied() {
    check(async |rt, world| {
        let client = world.import(100, Role::Client);
        let x = vec![Bytes::from(vec![7; 10_000])];
        client.call_bulk(write(1, 1 << 20, 7), x).await.expect("it is written");
        let seek = async |offset, hole| {
            let sought = client.call(msg::SeekObject { object: id(1), offset, hole }).await;
            sought.expect("it is there").reply.offset
        };
        assert_eq!((seek(0, false).await, seek(0, true).await), (Some(1 << 20), Some(0)));
        let allocate = msg::AllocateObject {
            object: id(1),
            start: 0,
            end: 1 << 20,
            time: at(8),
            owner: FileOwner::default(),
        };
        let attr = client.call(allocate.clone()).await.expect("there is space").reply;
        assert_eq!((attr.size, attr.blocks, attr.ctime), ((1 << 20) + 10_000, 2048 + 24, at(8)));
        assert_eq!(seek(5, false).await, Some(1 << 20), "reserved space is no data");
        let copy = msg::CopyObject {
            source: id(1),
            source_offset: (1 << 20) + 9_998,
            target: id(2),
            target_offset: 5,
            len: 4,
            time: at(9),
            owner: FileOwner::default(),
        };
        let copied = client.call(copy.clone()).await.expect("it is copied");
        assert_eq!((copied.reply.size, copied.reply.mtime), (9, at(9)));
        let answered = rt.now();
        client.committed(copied.transno).await.expect("it is");
        assert_eq!(rt.now(), answered, "a copy is durable when it is answered");
        let found = client.call(read(2, 0, 100)).await.expect("it is read").bulk.concat();
        assert_eq!(found, [0, 0, 0, 0, 0, 7, 7, 0, 0]);
        let backwards = msg::AllocateObject { start: 2, end: 1, ..allocate };
        assert_eq!(refused(client.call(backwards).await), Code::Invalid);
        let long = msg::CopyObject { len: u32::MAX, ..copy };
        assert_eq!(refused(client.call(long).await), Code::TooBig);
        let far = msg::CopyObject { source_offset: u64::MAX, ..copy };
        assert_eq!(refused(client.call(far).await), Code::TooLarge);
        world.stop().await;
        let world = World::open(&rt).await;
        let client = world.import(101, Role::Client);
        assert_eq!(client.call(read(2, 5, 9)).await.expect("it is read").bulk.concat(), [7, 7, 0, 0]);
        world.stop().await;
    });
}

#[test]
fn only_servers_destroy() {
    check(async |_rt, world| {
        let client = world.import(100, Role::Client);
        let server = world.import(200, Role::Server);
        for oid in 1..4 {
            client.call_bulk(write(oid, 0, 1), vec![Bytes::from_static(b"x")]).await.expect("it is written");
        }
        let destroy = || msg::Destroy { objects: vec![id(1), id(3)], dead: vec![] };
        assert_eq!(refused(client.call(destroy()).await), Code::Forbidden);
        server.call(destroy()).await.expect("a server may");
        client.call(read(2, 0, 1)).await.expect("nobody has destroyed it");
        assert_eq!(refused(client.call(read(1, 0, 1)).await), Code::Gone);
        let again = client.call_bulk(write(1, 0, 1), vec![Bytes::from_static(b"x")]).await;
        assert_eq!(refused(again), Code::Gone);
        world.stop().await;
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    check(async |_rt, world| {
        let client = world.import(100, Role::Client);
        let x = || vec![Bytes::from_static(b"x")];
        let nameless = msg::Write { object: ObjectId { layout: Fid::ZERO, stripe: 0 }, ..write(1, 0, 1) };
        assert_eq!(refused(client.call_bulk(nameless, x()).await), Code::Invalid);
        let far = ObjectId { stripe: 2000, ..id(1) };
        assert_eq!(refused(client.call(msg::GetObjectAttr { object: far }).await), Code::Invalid);
        let end = write(1, i64::MAX as u64, 1);
        assert_eq!(refused(client.call_bulk(end, x()).await), Code::TooLarge);
        assert_eq!(refused(client.call(read(1, 0, u32::MAX)).await), Code::TooBig);
        let backwards = msg::Punch { object: id(1), start: 9, end: 8, time: at(1) };
        assert_eq!(refused(client.call(backwards).await), Code::Invalid);
        assert_eq!(refused(client.call(msg::GetSequence {}).await), Code::NotSupported);
        world.stop().await;
    });
}
