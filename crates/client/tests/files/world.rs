//! One simulated machine with a real MDT, and OSTs and an MGS that the test controls.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use client::{Caller, Client, Handle, Limits, OpenFlags};
use proto::layout::LayoutHint;
use proto::wire::messages::Register;
use proto::{Attr, ClientId, Fid, FileKind, FsName, Nid, TargetId};
use rpc::{Hub, Key, Keys, Role};
use rt::Addr;
use rt::sim::{Options, Sim};
use store::{Label, Store};

use crate::fake::{Mgs, Ost};

pub const MIB: u64 = 1 << 20;

pub struct World {
    pub sim: Sim,
    pub hub: Hub,
    /// Those that the test controls.
    pub osts: Vec<Arc<Ost>>,
    mgs: Vec<Nid>,
    _running: Vec<server::Running>,
}

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn keys() -> Keys {
    Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) }
}

/// Formats and starts real targets in one process.
async fn start(hub: &Hub, nid: &Nid, targets: Vec<TargetId>) -> Vec<server::Running> {
    let mut running = Vec::new();
    for target in targets {
        let mgs = if target == TargetId::MGS { vec![] } else { vec![nid.clone()] };
        let uuid = ClientId(u128::from(target.index) << 8 | u128::from(target.kind.to_u8()));
        let label = Label { fsname: fsname(), target, uuid, mgs, service: vec![] };
        let path = target.to_string();
        Store::format(hub.rt(), &path, &label).await.expect("an empty disk can be formatted");
        let config = server::Config { path, nids: vec![nid.clone()], server: "here".into() };
        running.push(server::start(hub, config).await.expect("a fresh target starts"));
    }
    running
}

/// Starts targets that were formatted before.
async fn start_again(hub: &Hub, nid: &Nid, targets: Vec<TargetId>) -> Vec<server::Running> {
    let mut running = Vec::new();
    for target in targets {
        let config =
            server::Config { path: target.to_string(), nids: vec![nid.clone()], server: "here".into() };
        running.push(server::start(hub, config).await.expect("a target starts again"));
    }
    running
}

impl World {
    /// A real MDT, and an MGS and OSTs that the test controls.
    pub fn new(seed: u64, osts: u32) -> World {
        World::with_mgs(seed, Mgs { osts, failures: AtomicU32::new(0) })
    }

    /// The same with this MGS.
    pub fn with_mgs(seed: u64, mgs: Mgs) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let rt = sim.rt("all");
        let hub = Hub::new(rt.clone(), fsname(), keys());
        let osts = mgs.osts;
        hub.serve(TargetId::MGS, Arc::new(mgs));
        let osts: Vec<Arc<Ost>> = (0..osts).map(|_| Ost::new(rt.clone())).collect();
        for (index, ost) in (0..).zip(&osts) {
            hub.serve(TargetId::ost(index), ost.clone());
        }
        let running = sim.run(start(&hub, &Nid::lo(), vec![TargetId::mdt(0)]));
        World { sim, hub, osts, mgs: vec![Nid::lo()], _running: running }
    }

    /// Real targets only, in the client's process.
    pub fn real(seed: u64, osts: u32) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let hub = Hub::new(sim.rt("all"), fsname(), keys());
        let running = sim.run(start(&hub, &Nid::lo(), targets(osts)));
        World { sim, hub, osts: vec![], mgs: vec![Nid::lo()], _running: running }
    }

    /// Real targets only, on another machine than the client.
    pub fn remote(seed: u64, osts: u32) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let nid = Nid::tcp("servers");
        let servers = Hub::new(sim.rt("servers"), fsname(), keys());
        let running = sim.run(async {
            servers.listen(&Addr(nid.socket_address())).await.expect("the port is free");
            start(&servers, &nid, targets(osts)).await
        });
        let hub = Hub::new(sim.rt("client"), fsname(), Keys { server: None, client: keys().client });
        World { sim, hub, osts: vec![], mgs: vec![nid], _running: running }
    }

    /// A real MGS where so many OSTs of the test have registered, and a real MDT, in the client's process.
    pub fn registered(seed: u64, osts: u32) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let rt = sim.rt("all");
        let hub = Hub::new(rt.clone(), fsname(), keys());
        let osts: Vec<Arc<Ost>> = (0..osts).map(|_| Ost::new(rt.clone())).collect();
        let running = sim.run(async {
            let mut running = start(&hub, &Nid::lo(), vec![TargetId::MGS]).await;
            let mgs = hub.import(TargetId::MGS, ClientId(9), Role::Server, vec![Nid::lo()]);
            for (index, ost) in (0..).zip(&osts) {
                hub.serve(TargetId::ost(index), ost.clone());
                mgs.call(registration(index, vec![Nid::lo()])).await.expect("there is room");
            }
            running.extend(start(&hub, &Nid::lo(), vec![TargetId::mdt(0)]).await);
            running
        });
        World { sim, hub, osts, mgs: vec![Nid::lo()], _running: running }
    }

    /// The same on another machine than the client, which has to keep what is not durable.
    pub fn remote_registered(seed: u64, osts: u32) -> World {
        let sim = Sim::new(Options { seed, ..Options::default() });
        let (rt, nid) = (sim.rt("servers"), Nid::tcp("servers"));
        let servers = Hub::new(rt.clone(), fsname(), keys());
        let osts: Vec<Arc<Ost>> = (0..osts).map(|_| Ost::new(rt.clone())).collect();
        let running = sim.run(async {
            servers.listen(&Addr(nid.socket_address())).await.expect("the port is free");
            let mut running = start(&servers, &nid, vec![TargetId::MGS]).await;
            let mgs = servers.import(TargetId::MGS, ClientId(9), Role::Server, vec![nid.clone()]);
            for (index, ost) in (0..).zip(&osts) {
                servers.serve(TargetId::ost(index), ost.clone());
                mgs.call(registration(index, vec![nid.clone()])).await.expect("there is room");
            }
            running.extend(start(&servers, &nid, vec![TargetId::mdt(0)]).await);
            running
        });
        let hub = Hub::new(sim.rt("client"), fsname(), Keys { server: None, client: keys().client });
        World { sim, hub, osts, mgs: vec![nid], _running: running }
    }

    /// Clients are told of one more address of an OST of [`World::registered`].
    pub async fn move_ost(&self, ost: u32) {
        let mgs = self.hub.import(TargetId::MGS, ClientId(9), Role::Server, self.mgs.clone());
        let there = vec![Nid::lo(), Nid::tcp("elsewhere")];
        mgs.call(registration(ost, there)).await.expect("it is known");
    }

    /// The power of the servers of [`World::remote`] fails and comes back.
    pub fn restart_servers(&mut self, osts: u32) {
        self.sim.crash("servers");
        self._running.clear();
        self.sim.restart("servers");
        let servers = Hub::new(self.sim.rt("servers"), fsname(), keys());
        let nid = self.mgs[0].clone();
        self._running = self.sim.run(async {
            servers.listen(&Addr(nid.socket_address())).await.expect("the port is free");
            start_again(&servers, &nid, targets(osts)).await
        });
    }

    /// The power of every machine of [`World::real`] or [`World::remote`] fails and comes back; who was a client is gone.
    pub fn lose_power(&mut self, osts: u32) {
        if self.mgs != [Nid::lo()] {
            self.sim.crash("client");
            self.restart_servers(osts);
            self.sim.restart("client");
            let keys = Keys { server: None, client: keys().client };
            self.hub = Hub::new(self.sim.rt("client"), fsname(), keys);
            return;
        }
        self.sim.crash("all");
        self._running.clear();
        self.sim.restart("all");
        self.hub = Hub::new(self.sim.rt("all"), fsname(), keys());
        let hub = self.hub.clone();
        self._running = self.sim.run(start_again(&hub, &Nid::lo(), targets(osts)));
    }

    /// One more machine with clients, with [`World::remote`].
    pub fn machine(&self, name: &str) -> Hub {
        Hub::new(self.sim.rt(name), fsname(), Keys { server: None, client: keys().client })
    }

    /// Where the MGS is.
    pub fn mgs(&self) -> Vec<Nid> {
        self.mgs.clone()
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.sim.run(future)
    }

    pub fn mount(&self) -> Arc<Client> {
        self.mount_with(Limits { dirty_bytes_max: 16 * MIB, ..Limits::default() })
    }

    pub fn mount_with(&self, limits: Limits) -> Arc<Client> {
        self.run(self.mounted(limits))
    }

    pub async fn mounted(&self, limits: Limits) -> Arc<Client> {
        Client::mount(&self.hub, self.mgs.clone(), limits).await.expect("everything is there")
    }
}

fn registration(ost: u32, nids: Vec<Nid>) -> Register {
    Register {
        fsname: fsname().to_string(),
        target: TargetId::ost(ost),
        uuid: ClientId(u128::from(ost)),
        nids,
        server: format!("oss{}", ost / 8),
        epoch: 0,
        stands_in: false,
        replaces: false,
    }
}

fn targets(osts: u32) -> Vec<TargetId> {
    [TargetId::MGS, TargetId::mdt(0)].into_iter().chain((0..osts).map(TargetId::ost)).collect()
}

pub fn root() -> Caller {
    user(0)
}

pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new(Vec::new), umask: 0, gives_way: false }
}

pub fn read_write() -> OpenFlags {
    OpenFlags { read: true, write: true, ..OpenFlags::default() }
}

pub fn read_only() -> OpenFlags {
    OpenFlags { read: true, ..OpenFlags::default() }
}

/// A new file that is not open, a directory or whatever else.
pub async fn make(client: &Client, dir: Fid, name: &[u8], kind: FileKind, target: &'static [u8]) -> Fid {
    let mode = kind.mode_bits() | 0o755;
    let target = Bytes::from_static(target);
    client.names().make(&root(), dir, name, mode, 0, target).await.expect("a new name").fid
}

/// A new file of everybody, open.
pub async fn create(client: &Client, name: &[u8]) -> (Attr, Handle) {
    let (told, handle) =
        client.files().create(&root(), Fid::ROOT, name, 0o666, read_write()).await.expect("a new file");
    (told.attr, handle)
}

/// A new file on one OST, open.
pub async fn create_on(client: &Client, name: &[u8], ost: i32) -> Handle {
    let hint = LayoutHint { stripe_count: 1, start_index: ost, ..LayoutHint::default() };
    let made =
        client.names().create_with_layout(&root(), Fid::ROOT, name, 0o644, hint).await.expect("a new file");
    client.files().open(&root(), made.fid, read_write()).await.expect("it is there")
}

/// A new file of stripes of 64 KiB, which is not open.
pub async fn striped(client: &Client, count: i32) -> Fid {
    let hint = LayoutHint { stripe_count: count, stripe_size: 65_536, ..LayoutHint::default() };
    client.names().create_with_layout(&root(), Fid::ROOT, b"f", 0o644, hint).await.expect("a new file").fid
}

pub fn join(slices: &[Bytes]) -> Vec<u8> {
    slices.concat()
}
