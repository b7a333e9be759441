//! A target that two servers may serve, and a former owner that has to be fenced.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::{ClientId, FsName, Nid, TargetId};
use rpc::{Hub, Key, Keys};
use rt::sim::{Options, Sim};
use rt::{Addr, BoxFuture, Rt};
use store::{Label, Store};

use super::etcd::model::Model;
use super::{
    EtcdOwners, Fence, FenceOrder, Me, MgsOwners, OwnerStore, Ownerships, State, Supervised, supervise,
};
use crate::{Config, Running, start};

const OST: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 1 };
/// Three seconds of silence, and some time to look.
const TAKE_OVER: Duration = Duration::from_secs(4);

fn fsname() -> FsName {
    "w".parse().expect("a file system's name")
}

fn keys() -> Keys {
    Keys { server: Some(Key([1; 32])), client: Some(Key([2; 32])) }
}

fn nid(port: u16) -> Nid {
    format!("node:{port}@tcp").parse().expect("a NID")
}

/// Fails for as long as it is told to.
#[derive(Default)]
struct Fencing {
    fails: Mutex<bool>,
    asked: Mutex<Vec<(Duration, FenceOrder)>>,
}

struct Fenced(Rt, Arc<Fencing>);

impl Fence for Fenced {
    fn fence(&self, order: FenceOrder) -> BoxFuture<'_, Result<(), String>> {
        self.1.asked.lock().push((Duration::from_nanos(self.0.now().0), order));
        let fails = *self.1.fails.lock();
        Box::pin(async move { if fails { Err("the switch does not answer".into()) } else { Ok(()) } })
    }
}

/// A process that may serve the target.
struct Server {
    hub: Hub,
    ownerships: Arc<Ownerships>,
    supervised: Arc<Supervised>,
}

impl Server {
    async fn serves(&self, rt: &Rt, within: Duration) -> bool {
        rt.timeout(within, self.supervised.until(|state| state == State::Serving)).await.is_some()
    }

    async fn stop(self) {
        self.supervised.stop().await;
        self.ownerships.end();
        self.hub.close().await;
    }
}

/// Two servers on one node, which so reach the same directory.
struct Pair {
    rt: Rt,
    _mgs: Option<Running>,
    etcd: Option<Model>,
    fencing: Arc<Fencing>,
}

impl Pair {
    async fn server(&self, name: &str, port: u16) -> Server {
        let hub = Hub::new(self.rt.clone(), fsname(), keys());
        let store: Arc<dyn OwnerStore> = match &self.etcd {
            None => Arc::new(MgsOwners::new(&hub, vec![nid(1)])),
            Some(etcd) => Arc::new(EtcdOwners::new(&self.rt, &fsname(), Arc::new(etcd.clone()), None)),
        };
        let me = Me { server: name.into(), instance: u64::from(port), nids: vec![nid(port)] };
        let fence = Arc::new(Fenced(self.rt.clone(), self.fencing.clone()));
        let ownerships = Ownerships::start(&self.rt, me, store, Some(fence));
        let config = Config { path: "ost".into(), nids: vec![nid(port)], server: name.into() };
        let label = Store::read_label(&self.rt, "ost").await.expect("it was formatted");
        let supervised = supervise(&hub, config, &label, Some(ownerships.clone())).await;
        Server { hub, ownerships, supervised: supervised.expect("it stands by at least") }
    }

    fn fencing_fails(&self, fails: bool) {
        *self.fencing.fails.lock() = fails;
    }

    fn asked(&self) -> usize {
        self.fencing.asked.lock().len()
    }
}

/// Runs `scenario` with each store of owners.
fn check(scenario: impl AsyncFn(&Pair)) {
    for with_etcd in [false, true] {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt("node");
        sim.run(async {
            let mgs = Label {
                fsname: fsname(),
                target: TargetId::MGS,
                uuid: ClientId(1),
                mgs: vec![],
                service: vec![],
            };
            Store::format(&rt, "mgs", &mgs).await.expect("an empty directory");
            let ost = Label {
                target: OST,
                uuid: ClientId(2),
                mgs: vec![nid(1)],
                service: vec![nid(2), nid(3)],
                ..mgs
            };
            Store::format(&rt, "ost", &ost).await.expect("an empty directory");
            let hub = Hub::new(rt.clone(), fsname(), keys());
            hub.listen(&Addr(nid(1).socket_address())).await.expect("it listens");
            let config = Config { path: "mgs".into(), nids: vec![nid(1)], server: "mgs".into() };
            let mgs = start(&hub, config).await.expect("the MGS starts");
            let etcd = with_etcd.then(|| Model::new(&rt, 3));
            scenario(&Pair { rt: rt.clone(), _mgs: Some(mgs), etcd, fencing: Arc::default() }).await;
        });
    }
}

#[test]
fn nobody_serves_a_target_whose_former_owner_was_not_fenced() {
    check(async |pair| {
        let rt = &pair.rt;
        let a = pair.server("a", 2).await;
        assert!(a.serves(rt, TAKE_OVER).await);
        let b = pair.server("b", 3).await;
        assert!(!b.serves(rt, TAKE_OVER).await);
        pair.fencing_fails(true);
        // It renews nothing any more, and nobody knows what else it does.
        a.ownerships.end();
        assert!(!b.serves(rt, Duration::from_secs(40)).await);
        {
            let asked = pair.fencing.asked.lock();
            let (_, order) = asked.first().expect("it was tried");
            assert_eq!((order.target, order.server.as_str(), &order.nids), (OST, "a", &vec![nid(2)]));
            assert_eq!(order.directory, "ost");
            assert!(asked.len() >= 4 && asked.len() <= 8, "{} attempts in 36 s", asked.len());
            let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
            assert!(pauses.windows(2).skip(1).all(|pair| pair[1] > pair[0]), "pauses grow: {pauses:?}");
        }
        pair.fencing_fails(false);
        assert!(b.serves(rt, Duration::from_secs(70)).await);
    });
}

#[test]
fn who_stops_in_order_is_not_fenced() {
    check(async |pair| {
        let rt = &pair.rt;
        let a = pair.server("a", 2).await;
        assert!(a.serves(rt, TAKE_OVER).await);
        let b = pair.server("b", 3).await;
        // One that never saw the owner does not know how long the target has been free, and waits for others to start.
        assert!(!b.serves(rt, TAKE_OVER).await);
        pair.fencing_fails(true);
        a.stop().await;
        assert!(b.serves(rt, TAKE_OVER).await);
        assert_eq!(pair.asked(), 0);
    });
}

#[test]
fn a_former_owner_that_comes_back_fences_nobody() {
    check(async |pair| {
        let rt = &pair.rt;
        let a = pair.server("a", 2).await;
        assert!(a.serves(rt, TAKE_OVER).await);
        let b = pair.server("b", 3).await;
        pair.fencing_fails(true);
        a.ownerships.end();
        assert!(!b.serves(rt, TAKE_OVER).await);
        let tried = pair.asked();
        assert!(tried > 0);
        // What b could not fence may serve the target itself: it finds out that it has lost it, and wants it again.
        a.stop().await;
        let a = pair.server("a", 2).await;
        assert!(a.serves(rt, Duration::from_secs(40)).await);
        assert!(pair.fencing.asked.lock().iter().all(|(_, order)| order.server == "a"));
    });
}

#[test]
fn two_stores_of_owners_are_not_asked_for_one_target() {
    check(async |pair| {
        let rt = &pair.rt;
        let a = pair.server("a", 2).await;
        assert!(a.serves(rt, TAKE_OVER).await);
        let etcd = Model::new(rt, 3);
        (0..3).for_each(|member| etcd.set_cluster(member, 0xc9));
        let other = Pair { rt: rt.clone(), _mgs: None, etcd: Some(etcd), fencing: Arc::default() };
        let b = other.server("b", 3).await;
        assert!(!b.serves(rt, Duration::from_secs(60)).await, "it would be free for b");
        assert_eq!(a.supervised.state(), State::Serving);
    });
}
