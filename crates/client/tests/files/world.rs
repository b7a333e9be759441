//! One simulated machine with a real MDT, and OSTs and an MGS that the test controls.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use client::{Caller, Client, Handle, Limits, OpenFlags};
use proto::layout::LayoutHint;
use proto::{Attr, ClientId, Fid, FsName, Nid, TargetId};
use rpc::{Hub, Key, Keys};
use rt::sim::{Options, Sim};
use store::{Label, Store};

use crate::fake::{Mgs, Ost};

pub const MIB: u64 = 1 << 20;

pub struct World {
    pub sim: Sim,
    pub hub: Hub,
    pub osts: Vec<Arc<Ost>>,
    _mdt: server::Running,
}

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

impl World {
    pub fn new(seed: u64, osts: u32) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let rt = sim.rt("all");
        let keys = Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) };
        let hub = Hub::new(rt.clone(), fsname(), keys);
        hub.serve(TargetId::MGS, Arc::new(Mgs { osts }));
        let osts: Vec<Arc<Ost>> = (0..osts).map(|_| Ost::new(rt.clone())).collect();
        for (index, ost) in (0..).zip(&osts) {
            hub.serve(TargetId::ost(index), ost.clone());
        }
        let label =
            Label { fsname: fsname(), target: TargetId::mdt(0), uuid: ClientId(7), mgs: vec![Nid::lo()] };
        let config = server::Config { path: "mdt".into(), nids: vec![Nid::lo()], server: "here".into() };
        let mdt = sim.run(async {
            Store::format(&rt, "mdt", &label).await.expect("an empty disk can be formatted");
            server::start(&hub, config).await.expect("a fresh target starts")
        });
        World { sim, hub, osts, _mdt: mdt }
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.sim.run(future)
    }

    pub fn mount(&self) -> Arc<Client> {
        self.mount_with(Limits { dirty_bytes_max: 16 * MIB, ..Limits::default() })
    }

    pub fn mount_with(&self, limits: Limits) -> Arc<Client> {
        self.run(Client::mount(&self.hub, vec![Nid::lo()], limits)).expect("everything is there")
    }
}

pub fn root() -> Caller {
    user(0)
}

pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new(Vec::new) }
}

pub fn read_write() -> OpenFlags {
    OpenFlags { read: true, write: true, ..OpenFlags::default() }
}

/// A new file of everybody, open.
pub async fn create(client: &Client, name: &[u8]) -> (Attr, Handle) {
    client.create(&root(), Fid::ROOT, name, 0o666, read_write()).await.expect("a new file")
}

/// A new file of stripes of 64 KiB, which is not open.
pub async fn striped(client: &Client, count: i32) -> Fid {
    let hint = LayoutHint { stripe_count: count, stripe_size: 65_536, ..LayoutHint::default() };
    client.create_with_layout(&root(), Fid::ROOT, b"f", 0o644, hint).await.expect("a new file").fid
}

pub fn join(slices: &[Bytes]) -> Vec<u8> {
    slices.concat()
}
