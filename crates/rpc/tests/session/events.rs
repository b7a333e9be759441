//! What a client hears of the fate of its sessions, and when.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::{GetSequence, Statfs};
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, TargetId};
use rpc::{Callbacks, Hub, Import, Restate, Role, RpcError};
use rt::sim::{Options as World, Sim};
use rt::{BoxFuture, Rt};

use crate::callback::disk;
use crate::target::{Durable, Options, Server, TARGET, Target, all_keys, client_hub, fsname, import};
use crate::waiting::enqueue;

/// Writes down what it hears.
#[derive(Default)]
struct Listener {
    heard: Mutex<Vec<String>>,
    import: Mutex<Weak<Import>>,
    restates: u64,
}

impl Listener {
    fn new(import: &Arc<Import>, restates: u64) -> Arc<Listener> {
        let import_weak = Mutex::new(Arc::downgrade(import));
        let listener = Arc::new(Listener { heard: Mutex::default(), import: import_weak, restates });
        import.set_callbacks(listener.clone());
        listener
    }

    fn hear(&self, what: &str) {
        self.heard.lock().push(what.to_owned());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock())
    }
}

impl Callbacks for Listener {
    fn called(self: Arc<Self>, _: TargetId, _: Request) -> BoxFuture<'static, Result<Reply, Code>> {
        Box::pin(async { Err(Code::NotSupported) })
    }

    fn changes_lost(&self, _: TargetId) {}

    fn session_lost(&self, _: TargetId) {
        // It may look at the import.
        assert!(self.import.lock().upgrade().expect("the import lives").session() != 0);
        self.hear("lost");
    }

    fn restarted(self: Arc<Self>, _: TargetId, restate: Restate) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.hear("restarted");
            for start in 0..self.restates {
                restate.call(enqueue(start, true)).await.expect("it is taken");
            }
            self.hear("restated");
        })
    }

    fn disconnected(&self, _: TargetId) {
        self.hear("disconnected");
    }

    fn reconnected(&self, _: TargetId) {
        self.hear("reconnected");
    }
}

/// Tasks that call all the time, and write down when a session is another one than before.
fn callers(rt: &Rt, import: &Arc<Import>, listener: &Arc<Listener>) {
    for caller in 0..8 {
        let (rt, import, listener) = (rt.clone(), import.clone(), listener.clone());
        let task = rt.clone();
        task.spawn(async move {
            let mut session = 0;
            loop {
                let answered = if caller % 2 == 0 {
                    import.call(Statfs {}).await.map(|answered| answered.session)
                } else {
                    import.call(GetSequence {}).await.map(|answered| answered.session)
                };
                match answered {
                    Ok(now) if now != session => {
                        listener.hear("another session");
                        session = now;
                    }
                    Ok(_) => {}
                    Err(RpcError::Refused(Code::Evicted)) => listener.hear("evicted"),
                    Err(error) => panic!("{error}"),
                }
                rt.sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

/// Nobody hears of the new session before the client has heard that the old one is lost.
fn check_lost(heard: &[String]) {
    let lost = heard.iter().position(|what| what == "lost").expect("it is told");
    assert!(heard[..lost].iter().all(|what| what == "disconnected"), "{heard:?}");
    assert!(heard[lost..].iter().any(|what| what == "another session"), "{heard:?}");
    assert_eq!(heard.iter().filter(|what| *what == "lost").count(), 1, "{heard:?}");
}

/// The disk of a target that restarted, and knows nobody.
fn other_disk() -> Arc<Mutex<Durable>> {
    Arc::new(Mutex::new(Durable { boot: 7, ..Durable::default() }))
}

/// Guards the order in which a lost session is told and callers go on, those with changes that nobody knows of too.
#[test]
fn a_lost_session_is_told_before_anybody_goes_on() {
    let mut evicted = 0;
    for seed in 0..10 {
        let sim = Sim::new(World::seed(seed));
        sim.run(async {
            let slow = Options { work: Duration::from_millis(2), ..Options::default() };
            let server = Server::start(sim.rt("server"), &disk(), slow).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            let listener = Listener::new(&import, 0);
            callers(hub.rt(), &import, &listener);
            sim.root().sleep(Duration::from_millis(20 + seed)).await;
            let first = listener.take();
            assert!(first.iter().all(|what| what == "another session"), "{first:?}");
            server.target.evict_all();
            sim.root().sleep(Duration::from_millis(100)).await;
            let heard = listener.take();
            check_lost(&heard);
            evicted += heard.iter().filter(|what| *what == "evicted").count();
        });
    }
    assert!(evicted > 0, "callers whose changes nobody knows of are among those who wait");
}

#[test]
fn a_lost_session_is_told_first_within_a_process_too() {
    for restart in [false, true] {
        let sim = Sim::new(World::seed(1));
        let rt = sim.rt("host");
        let hub = Hub::new(rt.clone(), fsname(), all_keys());
        let target = Target::start(&rt, &disk(), Options::default());
        hub.serve(TARGET, target.clone());
        let import = hub.import(TARGET, ClientId(1), Role::Client, Vec::new());
        let listener = Listener::new(&import, 0);
        callers(&rt, &import, &listener);
        sim.run(async {
            sim.root().sleep(Duration::from_millis(100)).await;
            listener.take();
            if restart {
                hub.withdraw(TARGET);
                hub.serve(TARGET, Target::start(&rt, &other_disk(), Options::default()));
            } else {
                target.evict_all();
            }
            sim.root().sleep(Duration::from_millis(100)).await;
            check_lost(&listener.take());
        });
    }
}

#[test]
fn a_target_that_restarted_and_knows_nobody_lost_the_session() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let listener = Listener::new(&import, 0);
        callers(hub.rt(), &import, &listener);
        sim.root().sleep(Duration::from_millis(100)).await;
        listener.take();
        sim.crash("server");
        drop(server);
        let rt = Rt::sim(sim.restart("server"));
        let _server = Server::start(rt, &other_disk(), Options::default()).await;
        sim.root().sleep(Duration::from_secs(3)).await;
        check_lost(&listener.take());
    });
}

#[test]
fn a_broken_connection_is_told_and_told_again_when_it_is_there() {
    let sim = Sim::new(World::seed(1));
    sim.run(async {
        let _server = Server::start(sim.rt("server"), &disk(), Options::default()).await;
        let hub = client_hub(sim.rt("client"));
        let import = import(&hub, 1);
        let listener = Listener::new(&import, 0);
        for _ in 0..3 {
            import.call(Statfs {}).await.expect("the target answers");
            sim.disconnect("client", "server");
            sim.root().sleep(Duration::from_secs(1)).await;
            assert!(listener.take() == ["disconnected", "reconnected"]);
        }
    });
}

/// Guards that what is stated again passes a target that waits for replays, before the sign that there are no more; and
/// that it begins anew if the connection breaks meanwhile.
#[test]
fn what_a_client_holds_is_stated_again_before_the_end_of_the_replays() {
    for broken in [false, true] {
        let sim = Sim::new(World::seed(1));
        sim.run(async {
            let options = Options { lazy: true, restate: Duration::from_millis(1), ..Options::default() };
            let disk = disk();
            let server = Server::start(sim.rt("server"), &disk, options.clone()).await;
            let hub = client_hub(sim.rt("client"));
            let import = import(&hub, 1);
            let listener = Listener::new(&import, 5);
            for _ in 0..3 {
                import.call(GetSequence {}).await.expect("the target answers");
            }
            let before = import.session();
            sim.crash("server");
            drop(server);
            let server = Server::start(Rt::sim(sim.restart("server")), &disk, options).await;
            let (task, caller) = (hub.rt().clone(), import.clone());
            let listening = listener.clone();
            task.spawn(async move {
                let answered = caller.call(GetSequence {}).await.expect("the target answers");
                assert_eq!(answered.session, caller.session());
                listening.hear("answered");
            });
            if broken {
                while server.target.seen.lock().restated.len() < 2 {
                    sim.root().sleep(Duration::from_micros(10)).await;
                }
                sim.disconnect("client", "server");
            }
            sim.root().sleep(Duration::from_secs(5)).await;
            let heard = listener.take();
            match broken {
                false => assert!(heard == ["disconnected", "restarted", "restated", "answered"], "{heard:?}"),
                true => {
                    let twice = ["restarted", "disconnected", "restarted", "restated", "answered"];
                    assert!(heard[1..] == twice, "{heard:?}");
                }
            }
            let seen = server.target.seen.lock().clone();
            assert_eq!(seen.replays, 3);
            assert!(seen.restated.ends_with(&[0, 1, 2, 3, 4]), "{:?}", seen.restated);
            assert_ne!(import.session(), before);
            assert_eq!(import.state().evictions, 0);
        });
    }
}
