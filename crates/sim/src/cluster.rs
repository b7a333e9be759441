//! A file system on simulated nodes: one for the MGS, one for the MDT, one for each OSS, one for each client. With service nodes, two
//! for the MDT and two for each OSS's OSTs, which share a disk, as `weft serve` does on machines with shared storage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Limits};
use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::wire::messages::{HandOver, Operation, RemoveTarget};
use proto::{ClientId, Fid, FsName, Nid, TargetId, TargetKind};
use rpc::{AskError, Habits, Hub, Import, Key, Keys, Role};
use rt::sim::{Handle, Options, Sim};
use rt::{Addr, Rt};
use server::Running;
use server::owner::{Me, MgsOwners, Ownerships, State, Supervised, supervise};
use store::{Label, Store};

use crate::credulous::{Credulous, Flaws};
use crate::invariants::Granted;
use crate::workload::root;

/// How many of what.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// OSTs in all.
    pub osts: u32,
    /// OSTs of each OSS.
    pub osts_per_oss: u32,
}

/// The file system; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    handle: Handle,
    shape: Shape,
    habits: Habits,
    service_nodes: bool,
    flaws: Flaws,
    processes: Arc<Processes>,
}

/// The processes of servers and clients.
#[derive(Default)]
struct Processes {
    /// By server node, those that run.
    servers: Mutex<BTreeMap<String, Server>>,
    /// How many targets took each index, one after the other, besides the first.
    replaced: Mutex<BTreeMap<TargetId, u32>>,
    clients: Mutex<Vec<Hub>>,
}

/// The process of a server node, with the targets that it serves already.
struct Server {
    hub: Hub,
    targets: Vec<Running>,
    /// Targets that another server may serve, too.
    shared: Vec<Arc<Supervised>>,
    ownerships: Option<Arc<Ownerships>>,
}

impl Server {
    /// Those that are served now.
    fn served<R>(&self, mut look: impl FnMut(&Running) -> R) -> Vec<R> {
        let mut seen: Vec<R> = self.targets.iter().map(&mut look).collect();
        seen.extend(self.shared.iter().filter_map(|target| target.running()).map(|running| look(&running)));
        seen
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.targets.clear();
        self.shared.clear();
        if let Some(ownerships) = self.ownerships.take() {
            ownerships.end();
        }
        self.hub.abandon();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.clients.get_mut().iter().for_each(Hub::abandon);
    }
}

/// What the second of two service nodes is called besides.
const PEER: &str = "-peer";
/// How long an operator waits for an answer.
const ORDER_WAIT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(50);

fn keys() -> Keys {
    Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) }
}

fn fsname() -> FsName {
    "sim".parse().expect("a plain name")
}

fn nid(node: &str) -> Nid {
    Nid::tcp(node)
}

/// Runs `test` with a new cluster that is served, in the world of `seed`.
pub fn with_cluster(seed: u64, shape: Shape, test: impl AsyncFnOnce(&Cluster)) {
    let sim = Sim::new(Options::seed(seed));
    let cluster = Cluster::new(sim.handle(), shape);
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        test(&cluster).await;
    });
}

impl Cluster {
    /// Describes a file system in the world of `handle`; nothing is made yet.
    pub fn new(handle: Handle, shape: Shape) -> Cluster {
        Cluster {
            handle,
            shape,
            habits: Habits::TODAY,
            service_nodes: false,
            flaws: Flaws::NONE,
            processes: Arc::default(),
        }
    }

    /// The same, where servers and clients have other habits.
    pub fn with_habits(self, habits: Habits) -> Cluster {
        Cluster { habits, ..self }
    }

    /// The same, where all targets but the MGS have two service nodes.
    pub fn with_service_nodes(self) -> Cluster {
        Cluster { service_nodes: true, ..self }
    }

    /// The same, where a store of owners that is not to be trusted says who owns what.
    pub fn with_flaws(self, flaws: Flaws) -> Cluster {
        Cluster { flaws, ..self }
    }

    /// The world.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Names of the server nodes.
    pub fn servers(&self) -> Vec<String> {
        let osses = self.shape.osts.div_ceil(self.shape.osts_per_oss);
        let primary = std::iter::once("mds".to_owned()).chain((0..osses).map(|n| format!("oss{n}")));
        let mut names = vec!["mgs".to_owned()];
        for name in primary {
            names.push(name.clone());
            names.extend(self.service_nodes.then(|| name + PEER));
        }
        names
    }

    /// The server that shares its disk with `server`, and is named first in the labels of half of its targets.
    pub fn peer(&self, server: &str) -> Option<String> {
        let has_peer = self.service_nodes && server != "mgs";
        has_peer.then(|| server.strip_suffix(PEER).map_or_else(|| format!("{server}{PEER}"), str::to_owned))
    }

    /// The servers with disks of their own: on them all disks can be read.
    pub fn disks(&self) -> Vec<String> {
        self.servers().into_iter().filter(|server| !server.ends_with(PEER)).collect()
    }

    /// The targets of a server node, with their directories.
    pub fn targets(&self, server: &str) -> Vec<(TargetId, String)> {
        let server = server.strip_suffix(PEER).unwrap_or(server);
        match server.strip_prefix("oss").and_then(|n| n.parse::<u32>().ok()) {
            Some(oss) => (oss * self.shape.osts_per_oss
                ..((oss + 1) * self.shape.osts_per_oss).min(self.shape.osts))
                .map(|index| (TargetId::ost(index), self.directory(TargetId::ost(index))))
                .collect(),
            None if server == "mgs" => vec![(TargetId::MGS, "/mgs".to_owned())],
            None => vec![(TargetId::mdt(0), "/mdt0".to_owned())],
        }
    }

    fn directory(&self, ost: TargetId) -> String {
        match self.processes.replaced.lock().get(&ost) {
            Some(count) => format!("/ost{}.{count}", ost.index),
            None => format!("/ost{}", ost.index),
        }
    }

    /// Makes a new target in place of an OST, whose disk is lost, on its server, and starts that; it was killed, with the one that shares
    /// its disk.
    pub async fn replace(&self, ost: TargetId, server: &str) {
        let count = {
            let mut replaced = self.processes.replaced.lock();
            let count = replaced.entry(ost).or_default();
            *count += 1;
            *count
        };
        self.handle.restart(server);
        let rt = self.handle.rt(server);
        let uuid = ClientId(u128::from(count) << 64 | u128::from(ost.index) | 1 << 101);
        let service: Vec<Nid> = self.peer(server).map_or(Vec::new(), |peer| vec![nid(server), nid(&peer)]);
        let label = Label { fsname: fsname(), target: ost, uuid, mgs: vec![nid("mgs")], service };
        let path = self.directory(ost);
        Store::format(&rt, &path, &label).await.expect("the directory is new");
        server::replace_lost(&rt, &path).await.expect("a new target opens");
        self.start_server(server);
        if let Some(peer) = self.peer(server) {
            self.handle.restart(&peer);
            self.start_server(&peer);
        }
    }

    /// Serves a new target on `node` that wants to take the place of an OST; it is made if it is not there yet.
    ///
    /// # Errors
    /// The MGS does not let it.
    pub async fn serve_spare(&self, ost: TargetId, node: &str) -> Result<Running, server::StartError> {
        let (rt, path) = (self.handle.rt(node), "/spare".to_owned());
        if Store::read_label(&rt, &path).await.is_err() {
            let uuid = ClientId(u128::from(ost.index) | 1 << 102);
            let label = Label { fsname: fsname(), target: ost, uuid, mgs: vec![nid("mgs")], service: vec![] };
            Store::format(&rt, &path, &label).await.expect("the directory is new");
            server::replace_lost(&rt, &path).await.expect("a new target opens");
        }
        let hub = Hub::new(rt.clone(), fsname(), keys());
        hub.set_habits(self.server_habits());
        let config = server::Config { path, nids: vec![nid(node)], server: node.to_owned() };
        server::start(&hub, config).await
    }

    /// Has the MGS take an OST out of the file system.
    pub async fn remove(&self, ost: TargetId) {
        self.order_removal(ost, false).await;
    }

    /// Has the MGS take that back.
    pub async fn undo_removal(&self, ost: TargetId) {
        self.order_removal(ost, true).await;
    }

    async fn order_removal(&self, ost: TargetId, undo: bool) {
        let hub = Hub::new(self.handle.rt("operator"), fsname(), keys());
        let order = RemoveTarget { fsname: fsname().to_string(), target: ost, only_look: false, undo };
        let removed = hub.ask(TargetId::MGS, Role::Server, &[nid("mgs")], order, ORDER_WAIT).await;
        removed.expect("it is there");
        hub.abandon();
    }

    /// Asks a target that `server` serves, outside any session, as an operator with the servers' key.
    ///
    /// # Errors
    /// It refuses, or does not answer.
    pub async fn ask<O: Operation>(
        &self,
        target: TargetId,
        server: &str,
        request: O,
    ) -> Result<O::Reply, AskError> {
        let hub = Hub::new(self.handle.rt("operator"), fsname(), keys());
        let answer = hub.ask(target, Role::Server, &[nid(server)], request, ORDER_WAIT).await;
        hub.abandon();
        answer
    }

    /// Does to a target what `does` does, in a session of a server that is not one of these.
    pub async fn as_server<R>(
        &self,
        target: TargetId,
        server: &str,
        does: impl AsyncFnOnce(&Import) -> R,
    ) -> R {
        let hub = Hub::new(self.handle.rt("stranger"), fsname(), keys());
        let import = hub.import(target, ClientId(1 << 90), Role::Server, vec![nid(server)]);
        let done = does(&import).await;
        hub.abandon();
        done
    }

    /// Servers do not do to each other what they do to clients.
    fn server_habits(&self) -> Habits {
        Habits { slow_retries: None, ..self.habits }
    }

    /// Makes every target.
    pub async fn format(&self) {
        for server in self.disks() {
            let rt = self.handle.rt(&server);
            let mut service = Vec::new();
            if let Some(peer) = self.peer(&server) {
                drop(self.handle.node(&peer));
                self.handle.share_disk(&peer, &server);
                service = vec![nid(&server), nid(&peer)];
            }
            for (target, path) in self.targets(&server) {
                let mgs = if target == TargetId::MGS { Vec::new() } else { vec![nid("mgs")] };
                let uuid =
                    ClientId((u128::from(target.kind.to_u8()) << 64) | u128::from(target.index) | (1 << 100));
                let label = Label { fsname: fsname(), target, uuid, mgs, service: service.clone() };
                Store::format(&rt, &path, &label).await.expect("an empty simulated disk can be formatted");
                // Each of the two goes first with half of the targets.
                service.reverse();
            }
        }
    }

    /// Starts every server node's process.
    pub fn start_servers(&self) {
        for server in self.servers() {
            self.start_server(&server);
        }
    }

    /// Starts the process of one server node: what `weft serve` does.
    pub fn start_server(&self, server: &str) {
        let rt = self.handle.rt(server);
        let targets = self.targets(server);
        let hub = Hub::new(rt.clone(), fsname(), keys());
        hub.set_habits(self.server_habits());
        let ownerships = self.peer(server).map(|_| {
            let store = Arc::new(Credulous::new(MgsOwners::new(&hub, vec![nid("mgs")]), self.flaws));
            let me =
                Me { server: server.to_owned(), instance: rt.random_u64().max(1), nids: vec![nid(server)] };
            Ownerships::start(&rt, me, store, None)
        });
        let shared = ownerships.clone();
        let process = Server { hub: hub.clone(), targets: Vec::new(), shared: Vec::new(), ownerships };
        self.processes.servers.lock().insert(server.to_owned(), process);
        let (server, processes) = (server.to_owned(), Arc::downgrade(&self.processes));
        rt.clone().spawn(async move {
            let addr = Addr(nid(&server).socket_address());
            while hub.listen(&addr).await.is_err() {
                rt.sleep(RETRY).await;
            }
            for (_, path) in targets {
                let config = server::Config { path, nids: vec![nid(&server)], server: server.clone() };
                if let Some(ownerships) = &shared {
                    let target = stand_by(&hub, config, ownerships).await;
                    let Some(processes) = processes.upgrade() else { return };
                    if let Some(process) = processes.servers.lock().get_mut(&server) {
                        process.shared.push(target);
                    }
                    continue;
                }
                let target = loop {
                    match server::start(&hub, config.clone()).await {
                        Ok(target) => break target,
                        Err(_) => rt.sleep(RETRY).await,
                    }
                };
                let Some(processes) = processes.upgrade() else { return };
                if let Some(process) = processes.servers.lock().get_mut(&server) {
                    process.targets.push(target);
                }
            }
        });
    }

    /// Cuts the power of every server, and starts them all again.
    pub fn crash_servers(&self) {
        let servers = self.servers();
        self.cut_power(&servers);
        self.restart(&servers);
    }

    /// Cuts the power of some servers.
    pub fn cut_power(&self, servers: &[String]) {
        for server in servers {
            self.handle.crash(server);
            self.forget(server);
        }
    }

    /// Kills the process of a server: its machine keeps what it has written.
    pub fn kill(&self, server: &str) {
        self.handle.kill(server);
        self.forget(server);
    }

    fn forget(&self, server: &str) {
        let gone = self.processes.servers.lock().remove(server);
        drop(gone);
    }

    /// Starts servers again whose power was cut.
    pub fn restart(&self, servers: &[String]) {
        for server in servers {
            self.handle.restart(server);
            self.start_server(server);
        }
    }

    /// Orders `target` to be left to `server`, as `weft failover` does; an order that reaches nobody is forgotten.
    pub async fn hand_over(&self, target: TargetId, server: &str) {
        let hub = Hub::new(self.handle.rt("operator"), fsname(), keys());
        let nids = [Some(server.to_owned()), self.peer(server)].into_iter().flatten().map(|node| nid(&node));
        for nid in nids {
            let order = HandOver { to: server.to_owned() };
            let answer = hub.ask(target, Role::Server, &[nid], order, ORDER_WAIT).await;
            tracing::debug!(%target, server, ?answer, "ordered");
        }
        hub.abandon();
    }

    /// How many targets are served.
    pub fn served(&self) -> usize {
        self.processes.servers.lock().values().map(|server| server.served(|_| ()).len()).sum()
    }

    /// Stops every server in order, the MGS last: what was acknowledged is durable afterwards.
    pub async fn stop_servers(&self) {
        for name in self.servers().iter().rev() {
            let Some(mut server) = self.processes.servers.lock().remove(name) else { continue };
            for target in server.targets.drain(..) {
                target.stop().await;
            }
            for target in server.shared.drain(..) {
                target.stop().await;
            }
        }
    }

    /// What each target that is served has granted.
    pub fn granted(&self) -> BTreeMap<TargetId, Granted> {
        let granted = |target: &Running| {
            let mut sessions = target.sessions().unwrap_or_default();
            sessions.sort_unstable();
            (target.target(), Granted { sessions, held: target.held() })
        };
        self.look_at_owned(|_, target| granted(target)).into_iter().collect()
    }

    /// Which server may answer for each target.
    pub fn owners(&self) -> Vec<(TargetId, String)> {
        self.look_at_owned(|server, target| (target.target(), server.to_owned()))
    }

    /// Looks at the targets of servers that live, where they may answer.
    fn look_at_owned<R>(&self, look: impl Fn(&str, &Running) -> R) -> Vec<R> {
        let servers = self.processes.servers.lock();
        let living = servers.iter().filter(|(name, _)| self.handle.node(name).is_alive());
        let seen = living
            .flat_map(|(name, server)| server.served(|target| target.is_owner().then(|| look(name, target))));
        seen.flatten().collect()
    }

    /// Sets a parameter of every OST that is served.
    pub fn set_parameter(&self, name: &str, value: &str) {
        self.set_parameter_of(|_| true, name, value);
    }

    /// Sets a parameter of those OSTs that are served and `chosen`.
    pub fn set_parameter_of(&self, chosen: impl Fn(TargetId) -> bool, name: &str, value: &str) {
        for server in self.processes.servers.lock().values() {
            server.served(|target| {
                if target.target().kind == TargetKind::Ost && chosen(target.target()) {
                    target
                        .set_parameter(&format!("obdfilter.*.{name}"), value)
                        .expect("an OST has this parameter");
                }
            });
        }
    }

    /// What each target that is served waits for.
    pub fn waits(&self) -> Vec<(TargetId, Vec<String>)> {
        let servers = self.processes.servers.lock();
        servers
            .values()
            .flat_map(|server| server.served(|target| (target.target(), target.waits())))
            .collect()
    }

    /// What targets with service nodes are doing, a line for each server.
    pub fn service(&self) -> Vec<String> {
        let servers = self.processes.servers.lock();
        let line = |(name, server): (&String, &Server)| {
            let states: Vec<(TargetId, State)> =
                server.shared.iter().map(|target| (target.target(), target.state())).collect();
            format!("{name}: {states:?}")
        };
        servers.iter().map(line).collect()
    }

    /// Mounts the file system on a node.
    pub async fn mount(&self, node: &str) -> (Rt, Arc<Client>) {
        let limits = Limits {
            dirty_bytes_max: 8 << 20,
            rpc_bytes_max: 1 << 20,
            rpcs_in_flight_max: 8,
            cached_bytes_max: 64 << 20,
            ..Limits::default()
        };
        self.mount_within(node, limits).await
    }

    /// The same for the client `number`; every second one makes files ahead of the MDT.
    pub async fn mount_numbered(&self, node: &str, number: usize) -> (Rt, Arc<Client>) {
        let (rt, client) = self.mount(node).await;
        client.admin().set_metadata_writeback(number % 2 == 1);
        (rt, client)
    }

    /// Waits until the MDT has heard of every OST, as `client` sees it: targets start one after the other, and files made before that
    /// have fewer stripes than they ask for.
    pub async fn osts_are_known(&self, client: &Client) {
        let wanted = LayoutHint { stripe_count: -1, stripe_size: 1 << 16, ..LayoutHint::default() };
        for n in 0..1000 {
            let name = format!("probe{n}").into_bytes();
            let made =
                client.names().create_with_layout(&root(), Fid::ROOT, &name, 0o100_644, wanted.clone()).await;
            let fid = made.expect("a new name can be made").fid;
            let layout = client.names().layout(fid).await.expect("it is there").expect("of a file");
            client.names().unlink(&root(), Fid::ROOT, &name).await.expect("the owner may");
            if layout.object_count() == self.shape.osts as usize {
                return;
            }
            self.handle.rt("clock").sleep(Duration::from_millis(10)).await;
        }
        panic!("the MDT never hears of all OSTs");
    }

    /// The same with other limits.
    pub async fn mount_within(&self, node: &str, limits: Limits) -> (Rt, Arc<Client>) {
        let rt = self.handle.rt(node);
        let keys = Keys { server: None, client: keys().client };
        let hub = Hub::new(rt.clone(), fsname(), keys);
        hub.set_habits(self.habits);
        self.processes.clients.lock().push(hub.clone());
        let client =
            Client::mount(&hub, vec![nid("mgs")], limits).await.expect("a mount waits for its servers");
        (rt, client)
    }
}

/// Serves a target whenever it is the server's turn.
async fn stand_by(hub: &Hub, config: server::Config, ownerships: &Arc<Ownerships>) -> Arc<Supervised> {
    loop {
        if let Ok(label) = Store::read_label(hub.rt(), &config.path).await
            && let Ok(target) = supervise(hub, config.clone(), &label, Some(ownerships.clone())).await
        {
            return target;
        }
        hub.rt().sleep(RETRY).await;
    }
}
