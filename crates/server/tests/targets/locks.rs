//! Inode bits over real sessions: clients on other nodes are called back, answer late, are cut off and come back; and
//! threads of one process race.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages as msg;
use proto::wire::messages::{Granted, LOCK_PERM};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Cred, Fid, FsName, Name, Nid, TargetId, TargetKind, Timestamp};
use rpc::{Callbacks, Hub, Import, Key, Keys, Restate, Role};
use rt::os::Node;
use rt::sim::{Options, Sim};
use rt::sync::Notify;
use rt::{Addr, BoxFuture, Rt};
use store::{Label, Store};
use weft_server::{Config, Running, start};

const MDT: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };
const TARGETS: [(TargetId, &str); 2] = [(TargetId::MGS, "mgs"), (MDT, "mdt")];
const TIME: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn keys(server: bool) -> Keys {
    Keys { server: server.then_some(Key([1; 32])), client: Some(Key([2; 32])) }
}

/// An MGS and an MDT in directories whose names begin with `path`.
async fn serve(rt: &Rt, path: &str) -> (Hub, Vec<Running>) {
    let hub = Hub::new(rt.clone(), fsname(), keys(true));
    let mut running = Vec::new();
    for (number, (target, dir)) in (1..).zip(TARGETS) {
        let path = format!("{path}{dir}");
        let label =
            Label { fsname: fsname(), target, uuid: ClientId(number), mgs: vec![Nid::lo()], service: vec![] };
        Store::format(rt, &path, &label).await.expect("an empty directory can be formatted");
        let config = Config { path, nids: vec![Nid::lo()], server: "here".into() };
        running.push(start(&hub, config).await.expect("the target starts"));
    }
    (hub, running)
}

/// A client that keeps the owner of one file.
struct Client {
    rt: Rt,
    import: Arc<Import>,
    /// How long it takes to answer a callback.
    work: Mutex<Duration>,
    state: Mutex<State>,
    /// Told when there is nothing kept any more.
    freed: Notify,
    called: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    kept: Option<u32>,
    revoked: BTreeMap<Fid, u64>,
}

impl Client {
    fn new(rt: &Rt, import: Arc<Import>) -> Arc<Client> {
        let client = Arc::new(Client {
            rt: rt.clone(),
            import: import.clone(),
            work: Mutex::default(),
            state: Mutex::default(),
            freed: Notify::new(),
            called: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        import.set_callbacks(client.clone());
        client
    }

    /// Makes the file that the tests are about.
    async fn make(&self) -> Fid {
        let seq = self.import.call(msg::GetSequence {}).await.expect("granted").reply.seq;
        let create = msg::Create {
            parent: Fid::ROOT,
            name: Name::new(&b"f"[..]).expect("a plain name"),
            fid: Fid { seq, oid: 1, ver: 0 },
            mode: 0o120_777,
            rdev: 0,
            target: Bytes::from("x"),
            open: 0,
            hint: None,
            cred: Cred::root(),
            time: TIME,
            umask: 0,
            foretold: None,
        };
        self.import.call(create).await.expect("root may").reply.attr.fid
    }

    /// Looks at the file and keeps its owner if it may.
    async fn look(&self, fid: Fid) -> Granted {
        let entry = self.import.call(msg::GetAttr { fid }).await.expect("it exists").reply;
        let mut state = self.state.lock();
        let revoked = state.revoked.get(&fid).is_some_and(|until| entry.lock.number <= *until);
        if entry.lock.bits & LOCK_PERM != 0 && !revoked {
            state.kept = Some(entry.attr.uid);
        }
        entry.lock
    }

    async fn chown(&self, fid: Fid, uid: u32) {
        let request = msg::SetAttr {
            fid,
            mode: None,
            uid: Some(uid),
            gid: None,
            size: None,
            atime: None,
            mtime: None,
            handle: None,
            kill_privileges: false,
            cred: Cred::root(),
            time: TIME,
            project: None,
            inherits: None,
        };
        self.import.call(request).await.expect("root may");
    }

    fn kept(&self) -> Option<u32> {
        self.state.lock().kept
    }

    fn calls(&self) -> u64 {
        self.called.load(Ordering::Relaxed)
    }
}

impl Callbacks for Client {
    fn called(
        self: Arc<Self>,
        target: TargetId,
        request: Request,
    ) -> BoxFuture<'static, Result<Reply, Code>> {
        assert_eq!(target, MDT);
        Box::pin(async move {
            let Request::RevokeBits(revoke) = request else { return Err(Code::NotSupported) };
            self.called.fetch_add(1, Ordering::Relaxed);
            let work = *self.work.lock();
            if work > Duration::ZERO {
                self.rt.sleep(work).await;
            }
            let mut state = self.state.lock();
            if revoke.bits & LOCK_PERM != 0 {
                state.kept = None;
                let until = state.revoked.entry(revoke.fid).or_default();
                *until = revoke.number.max(*until);
                self.freed.notify_one();
            }
            Ok(Reply::RevokeBits(msg::Done {}))
        })
    }

    fn changes_lost(&self, _: TargetId) {}

    fn session_lost(&self, _: TargetId) {
        self.state.lock().kept = None;
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn restarted(self: Arc<Self>, _: TargetId, _: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    fn disconnected(&self, _: TargetId) {}

    fn reconnected(&self, _: TargetId) {}
}

struct World {
    sim: Sim,
    hub: Hub,
    running: Vec<Running>,
    clients: [Arc<Client>; 2],
    fid: Fid,
}

/// A server, and clients on two other nodes; the first has made a file.
fn world() -> World {
    let sim = Sim::new(Options::default());
    let rt = sim.rt("server");
    let (hub, running) = sim.run(serve(&rt, ""));
    let addr = sim.run(hub.listen(&Addr("server:1".into()))).expect("it listens");
    let nid: Nid = format!("{addr}@tcp").parse().expect("an address makes a NID");
    let client = |node: &str| {
        let rt = sim.rt(node);
        let hub = Hub::new(rt.clone(), fsname(), keys(false));
        let import = hub.import(MDT, hub.new_client(), Role::Client, vec![nid.clone()]);
        Client::new(&rt, import)
    };
    let clients = [client("a"), client("b")];
    let fid = sim.run(clients[0].make());
    World { sim, hub, running, clients, fid }
}

impl World {
    fn end(self) {
        let World { sim, hub, running, .. } = self;
        sim.run(async {
            for target in running.into_iter().rev() {
                target.stop().await;
            }
            hub.close().await;
        });
    }
}

#[test]
fn a_client_elsewhere_is_called_back_once() {
    let world = world();
    let World { sim, running, clients: [a, b], fid, .. } = &world;
    sim.run(b.look(*fid));
    assert_eq!(b.kept(), Some(0));
    sim.run(a.chown(*fid, 5));
    assert_eq!((b.kept(), b.calls(), a.calls()), (None, 1, 0));
    sim.run(a.chown(*fid, 6));
    assert_eq!(b.calls(), 1, "it has nothing any more");
    sim.run(b.look(*fid));
    assert_eq!(b.kept(), Some(6));
    let counts = running[1].lock_counts();
    assert_eq!((counts.locks, counts.callbacks, counts.cancels), (2, 1, 0));
    world.end();
}

#[test]
fn slow_is_not_dead() {
    let world = world();
    let World { sim, clients: [a, b], fid, .. } = &world;
    sim.run(b.look(*fid));
    *b.work.lock() = Duration::from_secs(700);
    let start = sim.now();
    let (rt, working) = (sim.rt("b"), b.clone());
    rt.clone().spawn(async move {
        for _ in 0..2 {
            rt.sleep(Duration::from_secs(300)).await;
            working.import.call(msg::GetAttr { fid: Fid::ROOT }).await.expect("it has a session");
        }
    });
    sim.run(a.chown(*fid, 5));
    assert!(sim.now() - start >= Duration::from_secs(700), "the change waits for the answer");
    assert_eq!((b.kept(), b.calls(), b.lost.load(Ordering::Relaxed)), (None, 1, 0));
    world.end();
}

/// It is connected, and says that it works on the callback, and never gets anything done.
#[test]
fn who_refuses_all_progress_is_not_waited_for() {
    let world = world();
    let World { sim, clients: [a, b], fid, .. } = &world;
    sim.run(b.look(*fid));
    *b.work.lock() = Duration::from_secs(3600);
    let start = sim.now();
    sim.run(a.chown(*fid, 5));
    let took = sim.now() - start;
    assert!((Duration::from_secs(510)..Duration::from_secs(530)).contains(&took), "{took:?}");
    sim.run(b.import.call(msg::GetAttr { fid: Fid::ROOT })).expect("it begins a new session");
    assert_eq!((b.kept(), b.lost.load(Ordering::Relaxed)), (None, 1));
    world.end();
}

#[test]
fn a_client_that_is_cut_off_is_evicted_and_told() {
    let world = world();
    let World { sim, clients: [a, b], fid, .. } = &world;
    sim.run(b.look(*fid));
    sim.partition("b", "server");
    let start = sim.now();
    sim.run(a.chown(*fid, 5));
    let took = sim.now() - start;
    assert!((Duration::from_secs(170)..Duration::from_secs(210)).contains(&took), "{took:?}");
    sim.heal_all();
    sim.run(b.look(*fid));
    assert_eq!((b.lost.load(Ordering::Relaxed), b.kept()), (1, Some(5)));
    sim.run(a.chown(*fid, 6));
    assert_eq!(b.calls(), 1, "and the new session counts like any other");
    world.end();
}

#[test]
fn a_client_that_is_cut_off_for_two_minutes_keeps_its_session() {
    let world = world();
    let World { sim, clients: [a, b], fid, .. } = &world;
    sim.run(b.look(*fid));
    sim.partition("b", "server");
    let (a, fid, rt) = (a.clone(), *fid, sim.rt("a"));
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    rt.spawn(async move {
        a.chown(fid, 5).await;
        told.store(true, Ordering::Relaxed);
    });
    sim.run_for(Duration::from_secs(120));
    assert!(!done.load(Ordering::Relaxed));
    sim.heal_all();
    sim.run_for(Duration::from_secs(60));
    assert!(done.load(Ordering::Relaxed));
    assert_eq!((b.kept(), b.calls(), b.lost.load(Ordering::Relaxed)), (None, 1, 0));
    world.end();
}

/// Readers keep the owner of a file wherever they may while a writer counts it up, on threads of their own: after each
/// step nobody has an older one.
#[test]
fn threads_that_race_keep_nothing_old() {
    const READERS: u128 = 3;
    const STEPS: u32 = 1000;
    let node = Node::start(4).expect("a runtime starts");
    let temp = tempfile::tempdir().expect("a temporary directory");
    let rt = Rt::os(node.clone());
    node.block_on(async {
        let (hub, running) = serve(&rt, &format!("{}/", temp.path().display())).await;
        let client = |id| Client::new(&rt, hub.import(MDT, ClientId(id), Role::Client, vec![]));
        let writer = client(100);
        let fid = writer.make().await;
        let readers: Vec<_> = (0..READERS).map(|id| client(200 + id)).collect();
        let over = Arc::new(AtomicBool::new(false));
        let kept = Arc::new(Notify::new());
        let (done, mut finished) = rt::sync::channel(8);
        for reader in &readers {
            let (reader, over, done, kept) = (reader.clone(), over.clone(), done.clone(), kept.clone());
            rt.spawn(async move {
                let mut looks = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    reader.look(fid).await;
                    looks += 1;
                    if reader.kept().is_some() {
                        kept.notify_one();
                        reader.freed.notified().await;
                    }
                }
                done.send(looks).await.expect("the test waits");
            });
        }
        for uid in 1..=STEPS {
            kept.notified().await;
            writer.chown(fid, uid).await;
            for reader in &readers {
                assert!(reader.kept().is_none_or(|kept| kept == uid), "{uid}: {:?}", reader.kept());
            }
        }
        over.store(true, Ordering::Relaxed);
        readers.iter().for_each(|reader| reader.freed.notify_one());
        for _ in 0..READERS {
            assert!(finished.recv().await.is_some_and(|looks| looks > 0));
        }
        assert!(running[1].lock_counts().callbacks > u64::from(STEPS) / 4);
        for target in running.into_iter().rev() {
            target.stop().await;
        }
        hub.close().await;
    });
    node.stop(Duration::from_secs(1));
}
