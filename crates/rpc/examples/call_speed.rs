//! What a call costs beyond the target's own work: `call_speed`.
//!
//! Prints nanoseconds for each call in one process, from one thread and from two, and over a loopback connection.

extern crate weft_rpc as rpc;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages::{
    Connected, Create, Created, Done, FEATURES_ALL, OPEN_EXCLUSIVE, OPEN_WRITE, Sequence, Settled,
};
use proto::wire::{Reply, Request};
use proto::{Attr, ClientId, Cred, Fid, Name, TargetId, Timestamp, Transno};
use rpc::{Answer, Call, Hub, Import, Key, Keys, Role, Service};
use rt::os::Node;
use rt::{Addr, BoxFuture, Rt};

const TARGET: TargetId = TargetId { kind: proto::TargetKind::Mdt, index: 0 };

/// Answers at once.
struct Nothing;

impl Service for Nothing {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        let reply = match call.request {
            Request::Connect(_) => Reply::Connect(Connected {
                session: 1,
                features: FEATURES_ALL,
                boot: 1,
                slots: 256,
                last_committed: Transno(0),
                resumed: false,
            }),
            Request::Create(create) => Reply::Create(created(create.fid)),
            Request::GetSequence(_) => Reply::GetSequence(Sequence { seq: 1 }),
            Request::Sync(_) => Reply::Sync(Done {}),
            Request::Disconnect(_) => Reply::Disconnect(Done {}),
            _ => Reply::Close(Settled::default()),
        };
        let changed = Transno(call.xid.0);
        Box::pin(async move {
            // A commit now and then, as targets make them.
            let last_committed = Transno(changed.0 & !0xfff);
            Answer {
                result: Ok(reply),
                bulk: Vec::new(),
                transno: changed,
                last_committed,
                room: proto::wire::header::Room::default(),
            }
        })
    }
}

fn created(fid: Fid) -> Created {
    let now = Timestamp::default();
    let attr = Attr {
        fid,
        mode: 0o100_644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        size_known: true,
        version: 1,
        mtime_set: now,
        project: 0,
        inherits: false,
    };
    Created {
        attr,
        layout: None,
        handle: 1,
        existed: false,
        xattrs: false,
        lock: Default::default(),
        range: None,
        spread: None,
    }
}

fn create() -> Create {
    Create {
        parent: Fid::ROOT,
        name: Name::new(Bytes::from_static(b"hello")).expect("a plain name"),
        fid: Fid { seq: 1, oid: 1, ver: 0 },
        mode: 0o100_644,
        rdev: 0,
        target: Bytes::new(),
        open: OPEN_WRITE | OPEN_EXCLUSIVE,
        hint: None,
        cred: Cred { uid: 1000, gid: 1000, groups: None },
        time: Timestamp::default(),
        umask: 0,
        foretold: None,
    }
}

async fn creates(rt: &Rt, import: &Import, count: u32) -> Duration {
    let start = rt.now();
    for _ in 0..count {
        std::hint::black_box(import.call(create()).await).expect("the target answers");
    }
    (rt.now() - start) / count
}

fn main() {
    let node = Node::start(2).expect("a runtime starts");
    let keys = Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) };
    node.block_on(async {
        let rt = Rt::os(node.clone());
        let fsname: proto::FsName = "weft".parse().expect("a file system name");
        let hub = Hub::new(rt.clone(), fsname.clone(), keys.clone());
        hub.serve(TARGET, Arc::new(Nothing));
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        creates(&rt, &import, 100_000).await;
        println!("in one process, one thread: {:?}", creates(&rt, &import, 1_000_000).await);
        let start = rt.now();
        for _ in 0..1_000_000 {
            std::hint::black_box(
                Box::pin(async move { std::hint::black_box(create()) }) as BoxFuture<'_, Create>
            )
            .await;
        }
        println!("of it, making the request and a box: {:?}", (rt.now() - start) / 1_000_000);
        let (done, mut finished) = rt::sync::channel(2);
        for _ in 0..2 {
            let (rt, import, done) = (rt.clone(), import.clone(), done.clone());
            hub.rt().spawn(async move {
                let each = creates(&rt, &import, 1_000_000).await;
                done.send(each).await.expect("main waits");
            });
        }
        for _ in 0..2 {
            println!("in one process, two threads: {:?}", finished.recv().await.expect("both end"));
        }
        let addr = hub.listen(&Addr("127.0.0.1:0".into())).await.expect("a port is free");
        let nid = format!("{addr}@tcp").parse().expect("an address makes a NID");
        let client = Hub::new(rt.clone(), fsname, keys);
        let import = client.import(TARGET, client.new_client(), Role::Client, vec![nid]);
        println!("over loopback, one at a time: {:?}", creates(&rt, &import, 20_000).await);
    });
    node.stop(Duration::from_secs(1));
}
