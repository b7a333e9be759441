//! A file system on simulated nodes: one for the MGS, one for the MDT, one for each OSS, one for each client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Limits};
use parking_lot::Mutex;
use proto::{ClientId, FsName, Nid, TargetId, TargetKind};
use rpc::{Habits, Hub, Key, Keys};
use rt::sim::Handle;
use rt::{Addr, Rt};
use server::Running;
use store::{Label, Store};

use crate::invariants::Granted;

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
    processes: Arc<Processes>,
}

/// The processes of servers and clients.
#[derive(Default)]
struct Processes {
    /// By server node, those that run.
    servers: Mutex<BTreeMap<String, Server>>,
    clients: Mutex<Vec<Hub>>,
}

/// The process of a server node, with the targets that it serves already.
struct Server {
    hub: Hub,
    targets: Vec<Running>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.targets.clear();
        self.hub.abandon();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.clients.get_mut().iter().for_each(Hub::abandon);
    }
}

const RETRY: Duration = Duration::from_millis(50);

fn keys() -> Keys {
    Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) }
}

fn fsname() -> FsName {
    "sim".parse().expect("a plain name")
}

fn nid(node: &str) -> Nid {
    Nid { address: node.to_owned(), net: "tcp".to_owned() }
}

impl Cluster {
    /// Describes a file system in the world of `handle`; nothing is made yet.
    pub fn new(handle: Handle, shape: Shape) -> Cluster {
        Cluster { handle, shape, habits: Habits::TODAY, processes: Arc::default() }
    }

    /// The same, where servers and clients have other habits.
    pub fn with_habits(self, habits: Habits) -> Cluster {
        Cluster { habits, ..self }
    }

    /// The world.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Names of the server nodes.
    pub fn servers(&self) -> Vec<String> {
        let osses = self.shape.osts.div_ceil(self.shape.osts_per_oss);
        let mut names = vec!["mgs".to_owned(), "mds".to_owned()];
        names.extend((0..osses).map(|n| format!("oss{n}")));
        names
    }

    /// The targets of a server node, with their directories.
    pub fn targets(&self, server: &str) -> Vec<(TargetId, String)> {
        match server.strip_prefix("oss").and_then(|n| n.parse::<u32>().ok()) {
            Some(oss) => (oss * self.shape.osts_per_oss
                ..((oss + 1) * self.shape.osts_per_oss).min(self.shape.osts))
                .map(|index| (TargetId::ost(index), format!("/ost{index}")))
                .collect(),
            None if server == "mgs" => vec![(TargetId::MGS, "/mgs".to_owned())],
            None => vec![(TargetId::mdt(0), "/mdt0".to_owned())],
        }
    }

    /// Servers do not do to each other what they do to clients.
    fn server_habits(&self) -> Habits {
        Habits { slow_retries: None, ..self.habits }
    }

    /// Makes every target.
    pub async fn format(&self) {
        for server in self.servers() {
            let rt = self.handle.rt(&server);
            for (target, path) in self.targets(&server) {
                let mgs = if target == TargetId::MGS { Vec::new() } else { vec![nid("mgs")] };
                let uuid =
                    ClientId((u128::from(target.kind.to_u8()) << 64) | u128::from(target.index) | (1 << 100));
                let label = Label { fsname: fsname(), target, uuid, mgs, service: vec![] };
                Store::format(&rt, &path, &label).await.expect("an empty simulated disk can be formatted");
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
        let process = Server { hub: hub.clone(), targets: Vec::new() };
        self.processes.servers.lock().insert(server.to_owned(), process);
        let (server, processes) = (server.to_owned(), Arc::downgrade(&self.processes));
        rt.clone().spawn(async move {
            let addr = Addr(nid(&server).socket_address());
            while hub.listen(&addr).await.is_err() {
                rt.sleep(RETRY).await;
            }
            for (_, path) in targets {
                let config = server::Config { path, nids: vec![nid(&server)], server: server.clone() };
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
            let gone = self.processes.servers.lock().remove(server);
            drop(gone);
        }
    }

    /// Starts servers again whose power was cut.
    pub fn restart(&self, servers: &[String]) {
        for server in servers {
            self.handle.restart(server);
            self.start_server(server);
        }
    }

    /// How many targets are served.
    pub fn served(&self) -> usize {
        self.processes.servers.lock().values().map(|server| server.targets.len()).sum()
    }

    /// Stops every server in order, the MGS last: what was acknowledged is durable afterwards.
    pub async fn stop_servers(&self) {
        for name in self.servers().iter().rev() {
            let Some(mut server) = self.processes.servers.lock().remove(name) else { continue };
            for target in server.targets.drain(..) {
                target.stop().await;
            }
        }
    }

    /// What each target that is served has granted.
    pub fn granted(&self) -> BTreeMap<TargetId, Granted> {
        let servers = self.processes.servers.lock();
        let granted = |target: &Running| {
            let mut sessions = target.sessions().unwrap_or_default();
            sessions.sort_unstable();
            (target.target(), Granted { sessions, held: target.held() })
        };
        servers.values().flat_map(|server| &server.targets).map(granted).collect()
    }

    /// Sets a parameter of every OST that is served.
    pub fn set_parameter(&self, name: &str, value: &str) {
        let servers = self.processes.servers.lock();
        let targets = servers.values().flat_map(|server| &server.targets);
        for target in targets.filter(|target| target.target().kind == TargetKind::Ost) {
            target.set_parameter(name, value).expect("an OST has this parameter");
        }
    }

    /// What each target that is served waits for.
    pub fn waits(&self) -> Vec<(TargetId, Vec<String>)> {
        let servers = self.processes.servers.lock();
        let targets = servers.values().flat_map(|server| &server.targets);
        targets.map(|target| (target.target(), target.waits())).collect()
    }

    /// Mounts the file system on a node.
    pub async fn mount(&self, node: &str) -> (Rt, Arc<Client>) {
        let limits = Limits {
            dirty_bytes_max: 8 << 20,
            rpc_bytes_max: 1 << 20,
            rpcs_in_flight_max: 8,
            clean_bytes_max: 1 << 20,
        };
        self.mount_within(node, limits).await
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
