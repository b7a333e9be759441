//! Copies of a target: an older one is not served, nor a second one, unless somebody says so; and no FID is given twice.

use std::collections::BTreeSet;

use proto::wire::messages as msg;
use proto::{ClientId, Code, FsName, Nid, TargetId, TargetKind};
use rpc::{Hub, Key, Keys, Role};
use rt::sim::{Options, Sim};
use rt::{Addr, Dir, Rt};
use store::{Label, Store, StoreError};
use weft_server::{Config, Running, StartError, accept_older, start};

const MDT: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };
const PATH: &str = "/target";

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn nid(node: &str) -> Nid {
    Nid::tcp(node)
}

async fn format(rt: &Rt, target: TargetId, uuid: u128) {
    let label =
        Label { fsname: fsname(), target, uuid: ClientId(uuid), mgs: vec![nid("mgs")], service: vec![] };
    Store::format(rt, PATH, &label).await.expect("an empty directory can be formatted");
}

/// A node that serves one target.
struct Server {
    hub: Hub,
    node: &'static str,
}

impl Server {
    async fn new(sim: &Sim, node: &'static str) -> Server {
        let keys = Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) };
        let hub = Hub::new(sim.rt(node), fsname(), keys);
        hub.listen(&Addr(nid(node).socket_address())).await.expect("it listens");
        Server { hub, node }
    }

    async fn start(&self) -> Result<Running, Code> {
        let config = Config { path: PATH.into(), nids: vec![nid(self.node)], server: self.node.into() };
        match start(&self.hub, config).await {
            Ok(running) => Ok(running),
            Err(StartError::NotAccepted { code, .. }) => Err(code),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A client's end, and what all clients were granted.
struct Clients<'a> {
    sim: &'a Sim,
    count: u128,
    granted: BTreeSet<u64>,
}

impl Clients<'_> {
    /// A new client takes a sequence from the MDT at `node`: it is one that nobody had.
    async fn take(&mut self, node: &str) {
        self.count += 1;
        let name = format!("client{}", self.count);
        let keys = Keys { server: None, client: Some(Key([2; 32])) };
        let hub = Hub::new(self.sim.rt(&name), fsname(), keys);
        let mdt = hub.import(MDT, hub.new_client(), Role::Client, vec![nid(node)]);
        let granted = mdt.call(msg::GetSequence {}).await.expect("there are enough").reply.seq;
        assert!(self.granted.insert(granted), "{granted:x} was granted before");
        hub.close().await;
    }
}

async fn copy_file(from: &Dir, to: &Dir, name: &str) {
    let file = from.open(name).await.expect("it is there");
    let bytes = file.read_at(0, file.len().await.expect("it has a length") as usize).await.expect("it reads");
    let copy = to.create(name).await.expect("it is new");
    copy.write_at(0, vec![bytes]).await.expect("there is space");
    copy.sync().await.expect("the disk works");
}

/// Copies the target of one node to another one.
async fn copy(sim: &Sim, from: &str, to: &str) {
    let from = sim.rt(from).disk().open_dir(PATH).await.expect("it is there");
    let to = sim.rt(to).disk().create_dir(PATH).await.expect("an empty disk");
    for name in ["label", "boot"] {
        copy_file(&from, &to, name).await;
    }
    let (from_log, to_log) =
        (from.subdir("log").await.expect("it is there"), to.subdir("log").await.expect("it can be made"));
    for name in from_log.list().await.expect("it lists") {
        copy_file(&from_log, &to_log, &name).await;
    }
    to_log.sync().await.expect("the disk works");
    to.sync().await.expect("the disk works");
}

fn check(test: impl AsyncFnOnce(&Sim, &mut Clients<'_>)) {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        format(&sim.rt("mgs"), TargetId::MGS, 1).await;
        format(&sim.rt("mds"), MDT, 2).await;
        let node = Server::new(&sim, "mgs").await;
        let mgs = node.start().await.expect("it is the first");
        test(&sim, &mut Clients { sim: &sim, count: 0, granted: BTreeSet::new() }).await;
        mgs.stop().await;
    });
}

/// A backup of an MDT gave the FIDs once more that it had given since: new files showed other files' bytes.
#[test]
fn an_older_copy_is_refused_until_it_is_accepted() {
    check(async |sim, clients| {
        let node = Server::new(sim, "mds").await;
        let mds = node.start().await.expect("it is the first");
        clients.take("mds").await;
        mds.stop().await;
        copy(sim, "mds", "old").await;
        let other = Server::new(sim, "old").await;
        let mds = node.start().await.expect("it goes on");
        clients.take("mds").await;
        clients.take("mds").await;
        mds.stop().await;
        for _ in 0..3 {
            assert_eq!(other.start().await.err(), Some(Code::Older));
        }
        let accepted = accept_older(&sim.rt("old"), PATH).await.expect("it can be opened");
        assert_eq!(accepted.label.target, MDT);
        let old = other.start().await.expect("it was accepted");
        clients.take("old").await;
        clients.take("old").await;
        old.stop().await;
        assert_eq!(node.start().await.err(), Some(Code::Older), "now the other one is the copy");
        let old = other.start().await.expect("it stays accepted");
        clients.take("old").await;
        old.stop().await;
    });
}

/// The copy was made while the target was served, and so knows of that start.
#[test]
fn a_copy_of_a_target_that_was_served_gives_no_sequence_twice() {
    check(async |sim, clients| {
        let node = Server::new(sim, "mds").await;
        let mds = node.start().await.expect("it is the first");
        copy(sim, "mds", "old").await;
        let other = Server::new(sim, "old").await;
        clients.take("mds").await;
        sim.handle().crash("mds");
        node.hub.abandon();
        drop(mds);
        assert_eq!(other.start().await.err(), Some(Code::Older));
    });
}

#[test]
fn a_second_copy_does_not_take_over_while_the_first_lives() {
    check(async |sim, clients| {
        let node = Server::new(sim, "mds").await;
        let mds = node.start().await.expect("it is the first");
        clients.take("mds").await;
        copy(sim, "mds", "second").await;
        let other = Server::new(sim, "second").await;
        for code in [Code::Busy, Code::Older, Code::Older] {
            assert_eq!(other.start().await.err(), Some(code));
            clients.take("mds").await;
        }
        mds.stop().await;
        let mds = node.start().await.expect("the first goes on");
        clients.take("mds").await;
        mds.stop().await;
    });
}

/// Whoever was told that something is durable remembers it: a server's memory counts for everybody.
#[test]
fn a_target_that_lost_what_it_told_is_not_served() {
    check(async |sim, clients| {
        let node = Server::new(sim, "mds").await;
        let mds = node.start().await.expect("it is the first");
        clients.take("mds").await;
        let keys = Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) };
        let hub = Hub::new(sim.rt("peer"), fsname(), keys);
        for (role, node) in [(Role::Client, 1), (Role::Server, 2), (Role::Client, 3)] {
            let epoch = node;
            let connect = msg::Connect {
                client: hub.new_client(),
                features: msg::FEATURES_ALL,
                fsname: "weft".into(),
                boot: 0,
                session_epoch: epoch,
                proof: Default::default(),
                committed: if node == 3 { proto::Transno(0) } else { proto::Transno(1 << 30) },
            };
            let asked = hub.ask(MDT, role, &[nid("mds")], connect, std::time::Duration::from_secs(1)).await;
            assert!(matches!(asked, Err(rpc::AskError::Refused(Code::Older))), "{role:?}: {asked:?}");
            if node == 1 {
                // What a client says is true for itself alone.
                clients.take("mds").await;
            }
        }
        hub.close().await;
        mds.stop().await;
    });
}

#[test]
fn an_mgs_and_a_target_with_service_nodes_cannot_be_accepted() {
    let sim = Sim::new(Options::seed(1));
    sim.run(async {
        format(&sim.rt("mgs"), TargetId::MGS, 1).await;
        let refused = accept_older(&sim.rt("mgs"), PATH).await;
        assert!(matches!(refused, Err(StoreError::NotATarget(_))));
        let label = Label {
            fsname: fsname(),
            target: MDT,
            uuid: ClientId(2),
            mgs: vec![nid("mgs")],
            service: vec![nid("a"), nid("b")],
        };
        Store::format(&sim.rt("mds"), PATH, &label).await.expect("an empty directory can be formatted");
        let refused = accept_older(&sim.rt("mds"), PATH).await;
        assert!(matches!(refused, Err(StoreError::NotATarget(_))));
    });
}
