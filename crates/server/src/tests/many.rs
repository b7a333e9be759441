//! As many clients of one target as a large site has: each costs the same, whatever their number.

// What it costs is read from the process, and how many they are from its environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::sync::Arc;

use proto::wire::Request;
use proto::wire::messages as msg;
use proto::{ClientId, Fid, JobId, TargetId, Transno, Xid};
use rpc::{Answer, Call, Peer, Role, Service};
use rt::sync::oneshot;
use service::Watch;

use crate::mdt::testing::{NODE, World};

/// How many there are when nobody says otherwise.
const EXPORTS: u64 = 20_000;
/// Says otherwise: `WEFT_EXPORTS=200000`.
const VARIABLE: &str = "WEFT_EXPORTS";
/// Requests that are under way at the same time.
const TOGETHER: u64 = 1000;
/// So many clients at least may keep the same file; those beyond are answered without a lock.
const HELD: u64 = 150_000;
/// One client in so many is thrown out in the end; the others leave.
const EVICTED: u64 = 8;

/// What a step of all clients cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    polls: u64,
    written: u64,
    cpu_ns: u64,
    memory: i64,
}

/// Time of the processor that this thread has used, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Memory of this process, in bytes.
fn memory() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}

/// Has `step` done and says what that cost.
fn cost<T>(world: World, step: impl FnOnce(World) -> (World, T)) -> (World, T, Cost) {
    let before = (world.sim.handle().stats(), cpu_ns(), memory());
    let (world, done) = step(world);
    let after = world.sim.handle().stats();
    let cost = Cost {
        polls: after.polls - before.0.polls,
        written: after.bytes_written - before.0.bytes_written,
        cpu_ns: cpu_ns() - before.1,
        memory: memory() - before.2,
    };
    (world, done, cost)
}

/// A client, and its session with the target.
#[derive(Clone, Copy)]
struct Export {
    client: u64,
    session: u64,
    epoch: u64,
}

fn call(of: Export, request: Request) -> Call {
    let address = format!("10.{}.{}.{}:1021", of.client >> 16 & 255, of.client >> 8 & 255, of.client & 255);
    Call {
        peer: Peer { role: Role::Client, from: rpc::Origin::Remote(address.into()) },
        target: TargetId::mdt(0),
        session: of.session,
        session_epoch: of.epoch,
        xid: Xid(of.epoch),
        slot: None,
        resent: false,
        unchecked: false,
        replay: None,
        request,
        bulk: vec![],
        job: JobId::NONE,
    }
}

/// Sends each of `calls`, [`TOGETHER`] at a time; gives the answers in their order.
fn send(world: &World, calls: impl Iterator<Item = Call>) -> Vec<Answer> {
    let (mut calls, mut answers, rt) = (calls.peekable(), Vec::new(), world.sim.rt(NODE));
    while calls.peek().is_some() {
        let mut together = Vec::new();
        for call in calls.by_ref().take(TOGETHER as usize) {
            let (sender, answer) = oneshot::channel();
            let answering = world.target.clone().call(call);
            rt.spawn(async move {
                let _ = sender.send(answering.await);
            });
            together.push(answer);
        }
        world.sim.run(async {
            for answer in together {
                answers.push(answer.await.expect("the target answers"));
            }
        });
    }
    answers
}

/// Opens a session for each of `clients`, or goes on with the one that it had at the `boot`-th start.
fn connect(world: &World, clients: u64, boot: u64, epoch: u64) -> Vec<Export> {
    let clients: Vec<_> = (1..=clients).map(|client| Export { client, session: 0, epoch }).collect();
    let connects = clients.iter().map(|of| {
        let client = ClientId(u128::from(of.client));
        let connect = msg::Connect {
            client,
            features: msg::FEATURES_ALL,
            fsname: "weft".into(),
            boot,
            session_epoch: epoch,
            committed: Transno(0),
            proof: Default::default(),
        };
        call(Export { epoch: 0, ..*of }, connect.into())
    });
    let answers = send(world, connects);
    let session = |answer: Answer| match answer.result {
        Ok(proto::wire::Reply::Connect(connected)) => connected.session,
        other => panic!("there is room: {other:?}"),
    };
    clients.into_iter().zip(answers).map(|(of, answer)| Export { session: session(answer), ..of }).collect()
}

fn ask(world: &World, exports: &[Export], request: impl Into<Request>) {
    let request = request.into();
    for answer in send(world, exports.iter().map(|of| call(*of, request.clone()))) {
        assert!(answer.result.is_ok(), "{answer:?}");
    }
}

/// The way of so many clients: what each step cost.
fn run(clients: u64) -> Vec<(&'static str, Cost)> {
    let mut costs = Vec::new();
    let (world, _, cost_of) = cost(World::new(), |world| {
        let exports = connect(&world, clients, 0, 1);
        (world, exports)
    });
    costs.push(("connect", cost_of));
    assert_eq!(world.target.sessions().map(|sessions| sessions.len() as u64), Some(clients));
    world.sync();
    let boot = world.store.boot();
    let (world, (), cost_of) = cost(world, |world| (world.crash(), ()));
    costs.push(("start again", cost_of));
    let (world, exports, cost_of) = cost(world, |world| {
        let exports = connect(&world, clients, boot, 2);
        (world, exports)
    });
    costs.push(("come back", cost_of));
    let (world, (), cost_of) = cost(world, |world| {
        // Nobody is answered before all have shown that they have nothing to replay.
        let rt = world.sim.rt(NODE);
        let answers: Vec<_> = exports
            .iter()
            .map(|of| {
                let (sender, answer) = oneshot::channel();
                let answering = world.target.clone().call(call(*of, msg::GetAttr { fid: Fid::ROOT }.into()));
                rt.spawn(async move {
                    let _ = sender.send(answering.await);
                });
                answer
            })
            .collect();
        world.sim.run(async {
            for answer in answers {
                let answer = answer.await.expect("the target answers");
                assert!(answer.result.is_ok(), "{answer:?}");
            }
        });
        (world, ())
    });
    costs.push(("one request", cost_of));
    let held = Watch::held(&*world.target).len() as u64;
    assert!(held <= clients && held >= clients.min(HELD), "each keeps what it was told: {held}");
    let (evicted, leaving): (Vec<Export>, Vec<Export>) =
        exports.into_iter().partition(|of| of.client % EVICTED == 0);
    let (world, (), cost_of) = cost(world, |world| {
        for of in &evicted {
            let client = ClientId(u128::from(of.client));
            let evicted = Watch::set_parameter(&*world.target, "*.evict_client", &client.to_string());
            assert_eq!(evicted, Ok(()));
        }
        (world, ())
    });
    costs.push(("evicted", cost_of));
    let (world, (), cost_of) = cost(world, |world| {
        ask(&world, &leaving, msg::Disconnect {});
        (world, ())
    });
    costs.push(("leave", cost_of));
    assert_eq!(world.target.sessions(), Some(vec![]));
    world.sync();
    assert_eq!(world.keys(service::keys::CLIENT), 0, "nobody is waited for the next time");
    drop(Arc::clone(&world.target));
    costs
}

/// Lustre's limit was lifted in 2023, and so was ours of 131,072. `WEFT_EXPORTS=200000` with a release build is the whole.
#[test]
fn an_export_of_many_costs_what_one_of_few_does() {
    let given = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let many: u64 = given.unwrap_or(EXPORTS);
    let few = many / 4;
    let costs = [run(few), run(many)];
    for (exports, costs) in [few, many].into_iter().zip(&costs) {
        for (step, cost) in costs {
            let per = |all: u64| all as f64 / exports as f64;
            println!(
                "{exports} exports, {step}: {:.1} polls, {:.0} bytes written, {:.1} us and {:.0} bytes of memory each",
                per(cost.polls),
                per(cost.written),
                per(cost.cpu_ns) / 1000.0,
                cost.memory as f64 / exports as f64
            );
        }
    }
    let [few, many] = costs;
    for ((step, few), (_, many)) in few.iter().zip(&many) {
        assert!(many.polls <= few.polls * 5, "{step}: {few:?}, {many:?}");
        assert!(many.written <= few.written * 5 + (8 << 20), "{step}: {few:?}, {many:?}");
        // What grows with the square takes sixteen times as long; caches of the processor may cost their part.
        assert!(many.cpu_ns <= few.cpu_ns * 9 + 500_000_000, "{step}: {few:?}, {many:?}");
    }
}
