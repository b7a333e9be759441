//! Leases: what a target does about clients that live, that are dead, and that it cannot reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Fid, FsName, Nid, TargetId, Transno};
use rpc::{Callbacks, Hub, Import, Key, Keys, Restate, Role};
use rt::sim::{Options, Sim};
use rt::sync::oneshot;
use rt::{Addr, BoxFuture, Rt};
use store::{Label, Store};
use weft_server::{Config, Running, start};

const MDT: TargetId = TargetId { kind: proto::TargetKind::Mdt, index: 0 };
const RENEW: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(170);

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn keys(server: bool) -> Keys {
    Keys { server: server.then_some(Key([1; 32])), client: Some(Key([2; 32])) }
}

fn nid(node: &str) -> Nid {
    Nid::tcp(node)
}

/// A server with one target on a node of its own.
struct Server {
    node: &'static str,
    hub: Hub,
    _running: Running,
}

impl Server {
    async fn format(sim: &Sim, node: &'static str, target: TargetId) {
        let label = Label {
            fsname: fsname(),
            target,
            uuid: ClientId(7 + target.index as u128),
            mgs: vec![nid("mgs")],
            service: vec![],
        };
        Store::format(&sim.rt(node), "/target", &label).await.expect("an empty directory can be formatted");
    }

    async fn start(sim: &Sim, node: &'static str) -> Server {
        let rt = sim.rt(node);
        let hub = Hub::new(rt, fsname(), keys(true));
        hub.listen(&Addr(nid(node).socket_address())).await.expect("it listens");
        let config = Config { path: "/target".into(), nids: vec![nid(node)], server: node.into() };
        let running = start(&hub, config).await.expect("the target starts");
        Server { node, hub, _running: running }
    }

    /// The power is cut, and comes back at once.
    async fn restart(self, sim: &Sim) -> Server {
        let node = self.node;
        sim.handle().crash(node);
        self.hub.abandon();
        drop(self);
        sim.handle().restart(node);
        Server::start(sim, node).await
    }
}

/// A client that keeps the attributes of a file, and a lease.
struct Client {
    rt: Rt,
    mgs: Arc<Import>,
    mdt: Arc<Import>,
    lost: AtomicU64,
    /// Orders that it got and did not confirm.
    orders: parking_lot::Mutex<Vec<msg::DropOrder>>,
    confirms: parking_lot::Mutex<bool>,
}

impl Callbacks for Client {
    fn called(self: Arc<Self>, _: TargetId, _: Request) -> BoxFuture<'static, Result<Reply, Code>> {
        Box::pin(async { Ok(Reply::RevokeBits(msg::Done {})) })
    }

    fn changes_lost(&self, _: TargetId) {}

    fn session_lost(&self, _: TargetId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn restarted(self: Arc<Self>, _: TargetId, _: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    fn disconnected(&self, _: TargetId) {}

    fn reconnected(&self, _: TargetId) {}
}

impl Client {
    fn new(sim: &Sim, node: &str, id: u8) -> Arc<Client> {
        let rt = sim.rt(node);
        let hub = Hub::new(rt.clone(), fsname(), keys(false));
        let client = hub.identify(&[id; 32]);
        let import = |target, node| hub.import(target, client, Role::Client, vec![nid(node)]);
        let client = Arc::new(Client {
            rt,
            mgs: import(TargetId::MGS, "mgs"),
            mdt: import(MDT, "mds"),
            lost: AtomicU64::new(0),
            orders: parking_lot::Mutex::default(),
            confirms: parking_lot::Mutex::new(true),
        });
        client.mdt.set_callbacks(client.clone());
        client.rt.spawn(client.clone().renew());
        client
    }

    async fn renew(self: Arc<Self>) {
        let (mut lease, mut dropped) = (0, Vec::new());
        loop {
            let renewal = msg::RenewLease { lease, release: false, dropped };
            let renewed = self.mgs.call(renewal).await.expect("the MGS renews").reply;
            lease = renewed.lease;
            let confirms = *self.confirms.lock();
            dropped = renewed.orders.iter().filter(|_| confirms).map(|order| order.number).collect();
            *self.orders.lock() = renewed.orders;
            if !renewed.awaited.is_empty() {
                let looking = self.clone();
                self.rt.spawn(async move { looking.mdt.look().await.expect("it is not closed") });
            }
            self.rt.sleep(RENEW).await;
        }
    }

    async fn look(&self) {
        self.mdt.call(msg::GetAttr { fid: Fid::ROOT }).await.expect("the root is there");
    }

    async fn touch(&self) {
        let now = Some(msg::TimeChange { time: proto::Timestamp::default(), now: true });
        let request = msg::SetAttr {
            fid: Fid::ROOT,
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: None,
            mtime: now,
            handle: None,
            kill_privileges: false,
            cred: proto::Cred::root(),
            time: proto::Timestamp { secs: 5, nanos: 0 },
            project: None,
            inherits: None,
        };
        self.mdt.call(request).await.expect("root may");
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn orders(&self) -> usize {
        self.orders.lock().len()
    }
}

struct World {
    sim: Sim,
    mgs: Server,
    mds: Server,
    a: Arc<Client>,
    b: Arc<Client>,
}

/// Two clients that both hold the root's attributes, for a while already.
fn world() -> World {
    let sim = Sim::new(Options::default());
    let (mgs, mds) = sim.run(async {
        Server::format(&sim, "mgs", TargetId::MGS).await;
        Server::format(&sim, "mds", MDT).await;
        (Server::start(&sim, "mgs").await, Server::start(&sim, "mds").await)
    });
    let (a, b) = (Client::new(&sim, "a", 101), Client::new(&sim, "b", 102));
    sim.run(async {
        a.look().await;
        b.look().await;
        a.mdt.call(msg::Sync { transno: Transno(0) }).await.expect("the disk works");
    });
    sim.run_for(Duration::from_secs(20));
    World { sim, mgs, mds, a, b }
}

/// How long `work` takes.
fn timed(sim: &Sim, work: impl Future<Output = ()>) -> Duration {
    let before = sim.now();
    sim.run(work);
    sim.now() - before
}

#[test]
fn who_died_long_ago_does_not_delay_a_restart() {
    let World { sim, mds, a, .. } = world();
    sim.handle().crash("b");
    sim.run_for(LEASE);
    let _mds = sim.run(mds.restart(&sim));
    let took = timed(&sim, a.look());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn who_died_just_before_a_restart_is_waited_for_as_long_as_its_lease() {
    let World { sim, mds, a, .. } = world();
    sim.handle().crash("b");
    let _mds = sim.run(mds.restart(&sim));
    let took = timed(&sim, a.look());
    assert!((LEASE - RENEW..LEASE + Duration::from_secs(2)).contains(&took), "{took:?}");
}

/// Its machine closes its connections; nothing is known of its lease before that is over.
#[test]
fn who_was_killed_holds_others_up_as_long_as_its_lease() {
    let World { sim, a, .. } = world();
    sim.handle().crash("b");
    let took = timed(&sim, a.touch());
    assert!((LEASE - RENEW..LEASE + Duration::from_secs(7)).contains(&took), "{took:?}");
}

#[test]
fn who_lives_is_waited_for_after_a_restart() {
    let World { sim, mds, a, b, .. } = world();
    sim.partition("b", "mds");
    let _mds = sim.run(mds.restart(&sim));
    let (looking, (done, mut looked)) = (a.clone(), oneshot::channel());
    sim.rt("a").spawn(async move {
        looking.look().await;
        let _ = done.send(());
    });
    sim.run_for(Duration::from_secs(100));
    assert!(looked.try_recv().is_err(), "what the other one may replay comes first");
    sim.heal_all();
    let took = timed(&sim, async { looked.await.expect("it goes on") });
    assert!(took < Duration::from_secs(15), "an attempt to connect may be under way: {took:?}");
    sim.run(b.look());
    assert_eq!((b.lost(), b.orders()), (0, 0));
}

/// An MGS that restarted with the target does not know who lives before a lease is over.
#[test]
fn an_mgs_that_restarted_too_takes_nobody_for_dead() {
    let World { sim, mgs, mds, a, b } = world();
    sim.partition("b", "mds");
    sim.partition("b", "mgs");
    let (_mgs, _mds) = sim.run(async { (mgs.restart(&sim).await, mds.restart(&sim).await) });
    let looking = a.clone();
    sim.rt("a").spawn(async move { looking.look().await });
    sim.run_for(Duration::from_secs(10));
    sim.heal_all();
    sim.run(b.look());
    assert_eq!(b.lost(), 0);
}

#[test]
fn without_the_mgs_there_is_patience_for_each() {
    let World { sim, mgs, mds, a, .. } = world();
    sim.handle().crash("b");
    let mds = sim.run(mds.restart(&sim));
    drop(mds);
    sim.handle().crash("mgs");
    mgs.hub.abandon();
    let took = timed(&sim, a.look());
    assert!((Duration::from_secs(28)..Duration::from_secs(33)).contains(&took), "{took:?}");
}

#[test]
fn who_lives_and_is_out_of_reach_is_fenced_after_the_whole_deadline() {
    let World { sim, a, b, .. } = world();
    sim.partition("b", "mds");
    *b.confirms.lock() = false;
    let (changing, (done, mut changed)) = (a.clone(), oneshot::channel());
    sim.rt("a").spawn(async move {
        changing.touch().await;
        let _ = done.send(());
    });
    sim.run_for(DEADLINE);
    assert_eq!(b.orders(), 0, "not before");
    sim.run_for(Duration::from_secs(60));
    assert_eq!(b.orders(), 1, "it is told through the MGS");
    assert!(changed.try_recv().is_err(), "nobody goes on before it has dropped what it holds");
    *b.confirms.lock() = true;
    let took = timed(&sim, async { changed.await.expect("it is done") });
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(b.lost(), 0, "it cannot know that the target let it go");
    sim.heal_all();
    sim.run(b.look());
    assert_eq!(b.lost(), 1);
}

#[test]
fn who_comes_back_in_time_is_not_fenced() {
    let World { sim, a, b, .. } = world();
    sim.partition("b", "mds");
    let (changing, (done, changed)) = (a.clone(), oneshot::channel());
    sim.rt("a").spawn(async move {
        changing.touch().await;
        let _ = done.send(());
    });
    sim.run_for(DEADLINE - Duration::from_secs(10));
    sim.heal_all();
    sim.run(changed).expect("it is done");
    sim.run_for(Duration::from_secs(30));
    assert_eq!((b.lost(), b.orders()), (0, 0));
}
