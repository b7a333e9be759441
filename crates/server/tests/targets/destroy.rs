//! The whole way of a file's end: the MDT's destroy list, its session with an OST, the object.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::layout::Place;
use proto::wire::messages as msg;
use proto::{ClientId, Code, Cred, Fid, FsName, Name, Nid, ObjectId, TargetId, Timestamp, Transno};
use rpc::{Hub, Import, Key, Keys, Role, RpcError};
use rt::Rt;
use rt::sim::{Options, Sim};
use store::{Label, Store};
use weft_server::{Config, Running, start};

const TARGETS: [(TargetId, &str); 3] = [(TargetId::MGS, "mgs"), (OST, "ost"), (MDT, "mdt")];
const MDT: TargetId = TargetId { kind: proto::TargetKind::Mdt, index: 0 };
const OST: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 5 };
const TIME: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

async fn format(rt: &Rt) {
    for (number, (target, path)) in (1..).zip(TARGETS) {
        let label =
            Label { fsname: fsname(), target, uuid: ClientId(number), mgs: vec![Nid::lo()], service: vec![] };
        Store::format(rt, path, &label).await.expect("an empty disk can be formatted");
    }
}

/// Every role in one process.
async fn serve(rt: &Rt, which: &[(TargetId, &str)]) -> (Hub, Vec<Running>) {
    let key = |byte| Some(Key([byte; 32]));
    let hub = Hub::new(rt.clone(), fsname(), Keys { server: key(1), client: key(2) });
    let mut running = Vec::new();
    for (_, path) in which {
        let config = Config { path: (*path).into(), nids: vec![Nid::lo()], server: "here".into() };
        running.push(start(&hub, config).await.expect("the target starts"));
    }
    (hub, running)
}

fn import(hub: &Hub, target: TargetId) -> Arc<Import> {
    hub.import(target, ClientId(99), Role::Client, vec![Nid::lo()])
}

fn name() -> Name {
    Name::new(&b"f"[..]).expect("a plain name")
}

/// Makes a file, writes an object of it, and takes its name away.
async fn make_and_unlink(hub: &Hub) -> ObjectId {
    let mdt = import(hub, MDT);
    let seq = mdt.call(msg::GetSequence {}).await.expect("granted").reply.seq;
    make_and_unlink_one(hub, &mdt, Fid { seq, oid: 1, ver: 0 }, msg::OPEN_WRITE).await
}

/// The same with a file `fid`, which is written if it is opened (`OPEN_WRITE`).
async fn make_and_unlink_one(hub: &Hub, mdt: &Import, fid: Fid, open: u32) -> ObjectId {
    let ost = import(hub, OST);
    let create = msg::Create {
        parent: Fid::ROOT,
        name: name(),
        fid,
        mode: 0o100_644,
        rdev: 0,
        target: Bytes::new(),
        open,
        hint: None,
        cred: Cred::root(),
        time: TIME,
        umask: 0,
        foretold: None,
    };
    let created = mdt.call(create).await.expect("there is an OST").reply;
    let layout = created.layout.clone().expect("of a file");
    let places: Vec<Place> = layout.places().collect();
    assert_eq!(places.iter().map(|place| place.target.into()).collect::<Vec<TargetId>>(), [OST]);
    let object = places[0].object;
    if open != 0 {
        write_and_close(mdt, &ost, &created, object).await;
    }
    let unlink =
        msg::Unlink { parent: Fid::ROOT, name: name(), directory: false, cred: Cred::root(), time: TIME };
    mdt.call(unlink).await.expect("it exists");
    object
}

async fn write_and_close(mdt: &Import, ost: &Import, created: &msg::Created, object: ObjectId) {
    let data = vec![Bytes::from_static(b"data")];
    ost.call_bulk(
        msg::Write {
            object,
            offset: 0,
            time: TIME,
            locked: false,
            sync: false,
            owner: proto::FileOwner::default(),
        },
        data,
    )
    .await
    .expect("there is space");
    ost.call(msg::Sync { transno: Transno(0) }).await.expect("the disk works");
    let close =
        msg::Close { fid: created.attr.fid, handle: created.handle, atime: None, size: None, wrote: true };
    mdt.call(close).await.expect("it is open");
}

async fn object_attr(hub: &Hub, object: ObjectId) -> Result<u64, RpcError> {
    import(hub, OST).call(msg::GetObjectAttr { object }).await.map(|answered| answered.reply.size)
}

#[test]
fn objects_of_a_file_without_a_name_are_destroyed() {
    let sim = Sim::new(Options::default());
    let rt = sim.rt("node");
    sim.run(async {
        format(&rt).await;
        let (hub, running) = serve(&rt, &TARGETS).await;
        let object = make_and_unlink(&hub).await;
        assert_eq!(object_attr(&hub, object).await, Ok(4), "the unlink itself waits for nothing");
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(object_attr(&hub, object).await, Err(RpcError::Refused(Code::Gone)));
        for target in running.into_iter().rev() {
            target.stop().await;
        }
    });
}

#[test]
fn a_destroy_survives_the_crash_before_it_is_sent() {
    let sim = Sim::new(Options::default());
    let rt = sim.rt("node");
    let object = sim.run(async {
        format(&rt).await;
        let (hub, _running) = serve(&rt, &TARGETS).await;
        let object = make_and_unlink(&hub).await;
        import(&hub, MDT).call(msg::Sync { transno: Transno(0) }).await.expect("the disk works");
        assert_eq!(object_attr(&hub, object).await, Ok(4));
        object
    });
    sim.crash("node");
    sim.restart("node");
    let rt = sim.rt("node");
    sim.run(async {
        // The MDT comes up while the OST is still away: the list has to wait for it.
        let (hub, _running) = serve(&rt, &[TARGETS[0], TARGETS[2]]).await;
        rt.sleep(Duration::from_secs(10)).await;
        let config = Config { path: "ost".into(), nids: vec![Nid::lo()], server: "here".into() };
        let _ost = start(&hub, config).await.expect("the target starts");
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(object_attr(&hub, object).await, Err(RpcError::Refused(Code::Gone)));
    });
}

/// Of the files that come and go, every third has an object on this OST: with a tombstone for each, tombstones grew with the files
/// that ever were.
#[test]
fn tombstones_of_files_between_which_others_lay_elsewhere_are_one() {
    let sim = Sim::new(Options::default());
    let rt = sim.rt("node");
    sim.run(async {
        format(&rt).await;
        let (hub, running) = serve(&rt, &TARGETS).await;
        let mdt = import(&hub, MDT);
        let seq = mdt.call(msg::GetSequence {}).await.expect("granted").reply.seq;
        let mut object = None;
        for oid in 1..=90 {
            let open = if oid % 3 == 0 { msg::OPEN_WRITE } else { 0 };
            object = Some(make_and_unlink_one(&hub, &mdt, Fid { seq, oid, ver: 0 }, open).await);
            if oid % 30 == 0 {
                rt.sleep(Duration::from_secs(3)).await;
            }
        }
        let object = object.expect("there were some");
        assert_eq!(object_attr(&hub, object).await, Err(RpcError::Refused(Code::Gone)));
        for target in running.into_iter().rev() {
            target.stop().await;
        }
        let store = Store::open(&rt, "ost").await.expect("it was closed");
        let tombstones = store.scan(b"T", b"U", 1000).expect("it can be read");
        assert_eq!(tombstones.len(), 1, "30 objects were destroyed");
        store.close().await.expect("the disk works");
    });
}
