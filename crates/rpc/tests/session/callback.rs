//! Servers call clients back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{Done, GetSequence, RevokeBits, Statfs};
use proto::wire::{Reply, Request};
use proto::{Code, Fid, TargetId};
use rpc::{CallbackError, Callbacks, Hub, Import, Restate, Role};
use rt::sim::{Options as World, Sim};
use rt::{BoxFuture, Rt};

use crate::target::{
    Durable, Options, Server, TARGET, Target, all_keys, client_hub, fsname, identify, import,
};

const PATIENCE: Duration = Duration::from_secs(600);

/// A client that answers callbacks after a while and counts them by their number.
pub struct Client {
    rt: Rt,
    work: Duration,
    pub counts: Mutex<BTreeMap<u64, Count>>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    pub begun: u32,
    pub done: u32,
    running: u32,
    pub running_max: u32,
}

impl Client {
    pub fn new(import: &Import, rt: &Rt, work: Duration) -> Arc<Client> {
        let client = Arc::new(Client { rt: rt.clone(), work, counts: Mutex::default() });
        import.set_callbacks(client.clone());
        client
    }

    pub fn count(&self, number: u64) -> Count {
        self.counts.lock().get(&number).copied().unwrap_or_default()
    }
}

impl Callbacks for Client {
    fn called(
        self: Arc<Self>,
        target: TargetId,
        request: Request,
    ) -> BoxFuture<'static, Result<Reply, Code>> {
        assert_eq!(target, TARGET);
        Box::pin(async move {
            let Request::RevokeBits(RevokeBits { number, .. }) = request else {
                return Err(Code::NotSupported);
            };
            {
                let mut counts = self.counts.lock();
                let count = counts.entry(number).or_default();
                count.begun += 1;
                count.running += 1;
                count.running_max = count.running_max.max(count.running);
            }
            self.rt.sleep(self.work).await;
            let mut counts = self.counts.lock();
            let count = counts.entry(number).or_default();
            count.running -= 1;
            count.done += 1;
            Ok(Reply::RevokeBits(Done {}))
        })
    }

    fn session_lost(&self, _: TargetId) {}

    fn changes_lost(&self, _: TargetId) {}

    fn restarted(self: Arc<Self>, _: TargetId, _: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    fn disconnected(&self, _: TargetId) {}

    fn reconnected(&self, _: TargetId) {}
}

pub fn revoke(number: u64) -> Request {
    Request::RevokeBits(RevokeBits { fid: Fid::ROOT, bits: 1, number })
}

const DONE: Result<Result<Reply, Code>, CallbackError> = Ok(Ok(Reply::RevokeBits(Done {})));

pub fn disk() -> Arc<Mutex<Durable>> {
    Arc::new(Mutex::new(Durable::default()))
}

async fn server(sim: &Sim) -> Server {
    Server::start(sim.rt("server"), &disk(), Options::default()).await
}

fn session(server: &Server, client: u128) -> u64 {
    server.target.session_of(client).expect("the client has a session")
}

#[test]
fn a_client_elsewhere_answers() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let (one, two) = (import(&hub, 1), import(&hub, 2));
        let client = Client::new(&one, hub.rt(), Duration::from_millis(1));
        for import in [&one, &two] {
            import.call(Statfs {}).await.expect("the target answers");
        }
        let answer = server.hub.call_back(TARGET, session(&server, 1), revoke(7), PATIENCE).await;
        assert_eq!(answer, DONE);
        assert_eq!((client.count(7).begun, client.counts.lock().len()), (1, 1));
        let other = Request::Statfs(Statfs {});
        let answer = server.hub.call_back(TARGET, session(&server, 1), other, PATIENCE).await;
        assert_eq!(answer, Ok(Err(Code::NotSupported)), "a refusal is an answer");
        let answer = server.hub.call_back(TARGET, session(&server, 2), revoke(7), PATIENCE).await;
        assert_eq!(answer, Ok(Err(Code::NotSupported)), "a client that keeps nothing says so");
        assert_eq!(server.hub.call_back(TARGET, 1, revoke(7), PATIENCE).await, Err(CallbackError::Ended));
    });
}

fn process(sim: &Sim) -> (Hub, Arc<Target>) {
    let rt = sim.rt("host");
    let hub = Hub::new(rt.clone(), fsname(), all_keys());
    let target = Target::start(&rt, &disk(), Options::default());
    hub.serve(TARGET, target.clone());
    (hub, target)
}

#[test]
fn a_client_of_the_same_process_answers_in_a_task_of_its_own() {
    let sim = Sim::new(World::seed(1));
    let (hub, target) = process(&sim);
    sim.run(async {
        let import = hub.import(TARGET, identify(&hub, 1), Role::Client, Vec::new());
        let client = Client::new(&import, hub.rt(), Duration::from_millis(1));
        import.call(Statfs {}).await.expect("the target answers");
        let session = target.session_of(1).expect("the client has a session");
        let mut call = Box::pin(hub.call_back(TARGET, session, revoke(7), PATIENCE));
        std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(client.count(7).begun, 0, "nothing of it runs inside the caller");
        assert_eq!(call.await, DONE);
        assert_eq!(client.count(7).done, 1);
        import.disconnect().await;
        let answer = hub.call_back(TARGET, session, revoke(8), PATIENCE).await;
        assert_eq!(answer, Err(CallbackError::Ended));
    });
}

/// Guards that a callback comes again over the next connection: without it the caller would wait for ever.
#[test]
fn a_callback_survives_broken_connections() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let client = Client::new(&import, hub.rt(), Duration::from_secs(3));
        import.call(Statfs {}).await.expect("the target answers");
        let handle = sim.handle();
        sim.root().spawn(async move {
            for _ in 0..4 {
                handle.root().sleep(Duration::from_millis(700)).await;
                handle.disconnect("client", "server");
            }
        });
        let start = sim.now();
        let answer = server.hub.call_back(TARGET, session(&server, 1), revoke(7), PATIENCE).await;
        assert_eq!(answer, DONE);
        let taken = sim.now() - start;
        assert!(taken < Duration::from_secs(4), "{taken:?}: the reconnect sends again, not the timer");
        assert_eq!(client.count(7).running_max, 1, "what is being worked on is not begun again");
        assert!(server.target.seen.lock().connects > 3);
    });
}

/// Guards "under way": a client that takes its time would be taken for dead without it, and its connection be given up.
#[test]
fn a_slow_client_is_not_a_dead_one() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let client = Client::new(&import, hub.rt(), Duration::from_secs(300));
        import.call(Statfs {}).await.expect("the target answers");
        let patience = Duration::from_secs(1);
        let answer = server.hub.call_back(TARGET, session(&server, 1), revoke(7), patience).await;
        assert_eq!(answer, DONE);
        assert_eq!(client.count(7).begun, 1);
        assert_eq!(sim.node_stats("client").connects, 1);
    });
}

/// Guards the two ways in which a client vanishes: with its connection, and silently.
#[test]
fn a_client_that_vanishes_is_told_after_patience() {
    for silent in [false, true] {
        let sim = Sim::new(World::seed(1));
        sim.run(async {
            let server = server(&sim).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            let _client = Client::new(&import, hub.rt(), Duration::ZERO);
            import.call(Statfs {}).await.expect("the target answers");
            let session = session(&server, 1);
            // What the server has seen of its being away before the call counts, but for the time to come back.
            match silent {
                true => sim.partition("client", "server"),
                false => sim.crash("client"),
            }
            sim.root().sleep(Duration::from_secs(100)).await;
            let (start, patience) = (sim.now(), Duration::from_secs(30));
            let answer = server.hub.call_back(TARGET, session, revoke(7), patience).await;
            assert_eq!(answer, Err(CallbackError::Unreachable));
            let taken = sim.now() - start;
            let (least, most) = match silent {
                // It is missed when it does not answer.
                true => (patience, patience + rpc::limits::SILENCE_MAX),
                false => (rpc::limits::RETURN_TIME, rpc::limits::RETURN_TIME),
            };
            assert!(taken >= least && taken <= most + Duration::from_secs(1), "{taken:?}");
        });
    }
}

/// A link that was down for a minute made a server evict the client behind it, and the client lost what it had written.
#[test]
fn a_client_that_comes_back_in_time_answers() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let _client = Client::new(&import, hub.rt(), Duration::ZERO);
        import.call(Statfs {}).await.expect("the target answers");
        let session = session(&server, 1);
        sim.partition("client", "server");
        let handle = sim.handle();
        sim.root().spawn(async move {
            handle.root().sleep(Duration::from_secs(120)).await;
            handle.heal("client", "server");
        });
        // The client notices when it wants something.
        hub.rt().spawn(async move {
            import.call(Statfs {}).await.expect("the target answers");
        });
        let answer = server.hub.call_back(TARGET, session, revoke(7), Duration::from_secs(170)).await;
        assert_eq!(answer, DONE);
    });
}

/// A client process whose connection lives may have given the session up without saying so.
#[test]
fn a_client_that_knows_nothing_of_the_session_is_away() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let (one, two) = (import(&hub, 1), import(&hub, 2));
        let _client = Client::new(&one, hub.rt(), Duration::ZERO);
        for import in [&one, &two] {
            import.call(Statfs {}).await.expect("the target answers");
        }
        let session = session(&server, 1);
        sim.partition("client", "server");
        one.disconnect().await;
        sim.heal("client", "server");
        let (start, patience) = (sim.now(), Duration::from_secs(30));
        let answer = server.hub.call_back(TARGET, session, revoke(7), patience).await;
        assert_eq!(answer, Err(CallbackError::Unreachable));
        assert!(sim.now() - start <= patience + Duration::from_secs(1));
        assert_eq!(sim.node_stats("client").connects, 1);
    });
}

#[test]
fn the_end_of_a_session_ends_its_callbacks() {
    for way in 0..3 {
        let sim = Sim::new(World::seed(way));
        sim.run(async {
            let server = server(&sim).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            let _client = Client::new(&import, hub.rt(), Duration::from_secs(1000));
            import.call(Statfs {}).await.expect("the target answers");
            let session = session(&server, 1);
            let (server_hub, task) = (server.hub.clone(), sim.handle());
            sim.root().spawn(async move {
                task.root().sleep(Duration::from_secs(1)).await;
                match way {
                    0 => server_hub.session_ended(TARGET, session),
                    1 => server_hub.withdraw(TARGET),
                    _ => import.disconnect().await,
                }
            });
            let start = sim.now();
            let answer = server.hub.call_back(TARGET, session, revoke(7), PATIENCE).await;
            assert_eq!(answer, Err(CallbackError::Ended));
            assert!(sim.now() - start < Duration::from_secs(2));
        });
    }
}

#[test]
fn callbacks_of_one_session_are_bounded() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = server(&sim).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let client = Client::new(&import, hub.rt(), Duration::from_secs(1));
        import.call(Statfs {}).await.expect("the target answers");
        let session = session(&server, 1);
        let done = Arc::new(Mutex::new(0));
        let (start, all) = (sim.now(), rpc::limits::CALLBACKS_MAX as u64 + 10);
        for _ in 0..all {
            let (hub, done) = (server.hub.clone(), done.clone());
            server.hub.rt().spawn(async move {
                assert_eq!(hub.call_back(TARGET, session, revoke(7), PATIENCE).await, DONE);
                *done.lock() += 1;
            });
        }
        while *done.lock() < all {
            sim.root().sleep(Duration::from_millis(10)).await;
        }
        let (count, taken) = (client.count(7), sim.now() - start);
        assert!(taken < Duration::from_secs(3), "{taken:?}: the rest is sent as soon as there is room");
        assert_eq!((u64::from(count.done), count.running_max as usize), (all, rpc::limits::CALLBACKS_MAX));
    });
}

/// Callbacks over a network that loses, repeats and reorders frames and breaks connections, while the client calls
/// too: each is answered, and was carried out before.
fn swarm(seed: u64) -> u64 {
    const CLIENTS: u128 = 3;
    const CALLS: u64 = 20;
    let sim = Sim::new(World { run_limit: Duration::from_secs(4 * 3600), ..World::swarm(seed) });
    let mut rng = sim.rng("breaks");
    let finished = Arc::new(Mutex::new(0));
    sim.run(async {
        let server = server(&sim).await;
        let mut clients = Vec::new();
        for id in 1..=CLIENTS {
            let hub = client_hub(sim.rt(&format!("client{id}")));
            let import = import(&hub, id);
            let work = Duration::from_millis(rng.between(0, 8_000));
            let client = Client::new(&import, hub.rt(), work);
            import.call(GetSequence {}).await.expect("the target answers");
            let session = session(&server, id);
            for number in 0..CALLS {
                let (server, client, finished) = (server.hub.clone(), client.clone(), finished.clone());
                let pause = Duration::from_millis(rng.between(0, 20_000));
                server.rt().clone().spawn(async move {
                    server.rt().sleep(pause).await;
                    let answer = server.call_back(TARGET, session, revoke(number), PATIENCE).await;
                    assert_eq!(answer, DONE, "client {id}, callback {number}");
                    assert!(client.count(number).done >= 1, "it is answered after it was done");
                    *finished.lock() += 1;
                });
            }
            let clock = hub.rt().clone();
            hub.rt().spawn(async move {
                while import.call(Statfs {}).await.is_ok() {
                    clock.sleep(Duration::from_millis(200)).await;
                    import.call(GetSequence {}).await.expect("nobody is evicted");
                }
            });
            clients.push((hub, client));
        }
        for _ in 0..10 {
            sim.root().sleep(Duration::from_millis(rng.between(1, 3_000))).await;
            let client = format!("client{}", rng.between(1, CLIENTS as u64));
            sim.disconnect(&client, "server");
        }
        sim.calm();
        while *finished.lock() < CLIENTS as u64 * CALLS {
            sim.root().sleep(Duration::from_millis(100)).await;
        }
        for (_, client) in &clients {
            let counts = client.counts.lock();
            assert!(counts.values().all(|count| count.running_max == 1), "seed {seed}: {counts:?}");
        }
        sim.trace_hash()
    })
}

#[test]
fn no_callback_is_lost() {
    for seed in 0..40 {
        swarm(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_callbacks() {
    assert_eq!(swarm(3), swarm(3));
}
