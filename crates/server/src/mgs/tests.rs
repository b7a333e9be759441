//! The MGS as targets and clients see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::Wire;
use proto::wire::messages as msg;
use proto::{ClientId, Code, ConfigCopy, FsName, Nid, OstIndex, TargetId};
use rpc::{AskError, Hub, Import, Keys, Role, RpcError};
use rt::Rt;
use rt::sim::{Options, Sim};
use rt::sync::oneshot;
use store::{Label, Store};

use crate::{Config, Running, start};

const NODE: &str = "server";
const PATH: &str = "mgs";

fn fsname() -> FsName {
    "weft".parse().expect("a file system's name")
}

async fn open(rt: &Rt) -> (Hub, Running) {
    let hub = Hub::new(rt.clone(), fsname(), Keys::default());
    let config = Config { path: PATH.into(), nids: vec![], server: "mgs".into() };
    let running = start(&hub, config).await.expect("the MGS starts");
    (hub, running)
}

/// Runs `test` with an MGS.
fn check(test: impl AsyncFnOnce(Rt, Hub, Running)) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let label = Label {
            fsname: fsname(),
            target: TargetId::MGS,
            uuid: ClientId(1),
            mgs: vec![],
            service: vec![],
        };
        Store::format(&rt, PATH, &label).await.expect("an empty directory can be formatted");
        let (hub, running) = open(&rt).await;
        test(rt, hub, running).await;
    });
}

fn import(hub: &Hub, client: u128, role: Role) -> Arc<Import> {
    hub.import(TargetId::MGS, ClientId(client), role, vec![Nid::lo()])
}

fn register(index: u32, uuid: u128, nid: &str) -> msg::Register {
    msg::Register {
        fsname: "weft".into(),
        target: TargetId::ost(index),
        uuid: ClientId(uuid),
        nids: vec![nid.parse().expect("a NID")],
        server: "oss".into(),
        epoch: 0,
        stands_in: false,
    }
}

fn config(known: u64, wait_ms: u32) -> msg::GetConfig {
    msg::GetConfig { fsname: "weft".into(), known, wait_ms, pages: false }
}

fn refused<T: std::fmt::Debug>(result: Result<T, RpcError>) -> Code {
    match result {
        Err(RpcError::Refused(code)) => code,
        other => panic!("refusal expected, not {other:?}"),
    }
}

#[test]
fn targets_register_once_per_index() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        let client = import(&hub, 200, Role::Client);
        assert_eq!(refused(client.call(register(1, 11, "10.0.0.1@tcp")).await), Code::Forbidden);
        let other = msg::Register { fsname: "other".into(), ..register(1, 11, "10.0.0.1@tcp") };
        assert_eq!(refused(server.call(other).await), Code::WrongFilesystem);
        let first = server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("the index is free").reply;
        let again = server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("it is the same").reply;
        assert_eq!(again.version, first.version, "nothing is new");
        assert_eq!(refused(server.call(register(1, 12, "10.0.0.2@tcp")).await), Code::IndexUsed);
        let moved = server.call(register(1, 11, "10.0.0.3@tcp")).await.expect("it moved").reply;
        assert!(moved.version > first.version);
        server.call(register(0x1f, 13, "10.0.0.4@tcp")).await.expect("indexes may be sparse");
        let mgs = msg::Register { target: TargetId::MGS, ..register(0, 14, "10.0.0.4@tcp") };
        assert_eq!(refused(server.call(mgs).await), Code::Invalid);

        let wrong = msg::GetConfig { fsname: "other".into(), ..config(0, 0) };
        assert_eq!(refused(client.call(wrong).await), Code::WrongFilesystem);
        let seen = client.call(config(0, 1000)).await.expect("everybody may ask").reply;
        let nids = |c: &msg::Config| c.targets.iter().map(|t| t.nids[0].to_string()).collect::<Vec<_>>();
        assert_eq!(nids(&seen), ["10.0.0.3@tcp", "10.0.0.4@tcp"]);
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let client = import(&hub, 201, Role::Client);
        assert_eq!(client.call(config(0, 0)).await.expect("it starts again").reply, seen);
        running.stop().await;
        hub.close().await;
    });
}

#[test]
fn a_mark_is_told_and_ends_with_the_next_registration() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("the index is free");
        let mark =
            |uuid, degraded| msg::MarkTarget { target: TargetId::ost(1), uuid: ClientId(uuid), degraded };
        let client = import(&hub, 200, Role::Client);
        assert_eq!(refused(client.call(mark(11, true)).await), Code::Forbidden);
        assert_eq!(refused(server.call(mark(12, true)).await), Code::NotFound, "another target");
        let before = client.call(config(0, 0)).await.expect("everybody may ask").reply;
        server.call(mark(11, true)).await.expect("it is known");
        let marked = client.call(config(before.version, 0)).await.expect("everybody may ask").reply;
        assert_eq!((marked.version, &marked.degraded[..]), (before.version + 1, &[TargetId::ost(1)][..]));
        assert_eq!(marked.targets, before.targets);
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let server = import(&hub, 101, Role::Server);
        assert_eq!(server.call(config(0, 0)).await.expect("it starts again").reply, marked);
        server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("it is the same");
        let later = server.call(config(0, 0)).await.expect("everybody may ask").reply;
        assert_eq!((later.version, later.degraded.len()), (marked.version + 1, 0));
        running.stop().await;
        hub.close().await;
    });
}

async fn change(hub: &Hub, role: Role, (change, name): (u8, &str), osts: &[u32]) -> Result<u64, AskError> {
    let osts = osts.iter().copied().map(OstIndex).collect();
    let change = msg::ChangePool { fsname: "weft".into(), name: name.into(), change, osts };
    let wait = Duration::from_secs(1);
    hub.ask(TargetId::MGS, role, &[Nid::lo()], change, wait).await.map(|changed| changed.version)
}

/// Reads on to the end.
async fn learn(client: &Import, copy: &mut ConfigCopy) {
    loop {
        let page = client.call(copy.question(0)).await.expect("everybody may ask").reply;
        assert!(copy.take(page));
        if copy.is_whole() {
            return;
        }
    }
}

fn told(copy: &ConfigCopy) -> Vec<(String, Vec<u32>)> {
    let members = |osts: &BTreeSet<OstIndex>| osts.iter().map(|ost| ost.0).collect();
    copy.pools().iter().map(|(name, osts)| (name.to_owned(), members(osts))).collect()
}

#[test]
fn pools_survive_a_restart_and_all_hear_of_them() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        for index in [0, 1, 0x1f] {
            let register = register(index, 10 + u128::from(index), "10.0.0.1@tcp");
            server.call(register).await.expect("the index is free");
        }
        let client = import(&hub, 200, Role::Client);
        let mut copy = ConfigCopy::new("weft");
        learn(&client, &mut copy).await;
        let server = Role::Server;
        let refused = |answer| match answer {
            Err(AskError::Refused(code)) => code,
            other => panic!("refusal expected, not {other:?}"),
        };
        let flash = (msg::POOL_NEW, "flash");
        assert_eq!(refused(change(&hub, Role::Client, flash, &[]).await), Code::Forbidden);
        assert_eq!(refused(change(&hub, server, (msg::POOL_ADD, "flash"), &[0]).await), Code::NotFound);
        let made = change(&hub, server, flash, &[]).await.expect("it is new");
        assert_eq!(refused(change(&hub, server, flash, &[]).await), Code::Exists);
        assert_eq!(refused(change(&hub, server, (msg::POOL_ADD, "flash"), &[0, 2]).await), Code::Invalid);
        let filled =
            change(&hub, server, (msg::POOL_ADD, "flash"), &[0x1f, 0]).await.expect("both are there");
        let again = change(&hub, server, (msg::POOL_ADD, "flash"), &[0]).await.expect("it is a member");
        assert_eq!((filled, again), (made + 1, filled));
        change(&hub, server, (msg::POOL_NEW, "disk"), &[]).await.expect("it is new");
        learn(&client, &mut copy).await;
        let both = [("disk".to_owned(), vec![]), ("flash".to_owned(), vec![0, 0x1f])];
        assert_eq!(told(&copy), both);
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let client = import(&hub, 201, Role::Client);
        let mut fresh = ConfigCopy::new("weft");
        learn(&client, &mut fresh).await;
        assert_eq!(fresh, copy, "it starts again");
        let read = msg::ReadPools {
            fsname: "weft".into(),
            name: "flash".into(),
            osts: vec![OstIndex(9), OstIndex(1)],
        };
        let pools = hub.ask(TargetId::MGS, server, &[Nid::lo()], read, Duration::from_secs(1)).await;
        let pools = pools.expect("it has the servers' key");
        assert_eq!((pools.names, pools.unknown), (vec!["disk".into(), "flash".into()], vec![OstIndex(9)]));
        assert_eq!(pools.osts, [OstIndex(0), OstIndex(0x1f)]);
        assert_eq!(refused(change(&hub, server, (msg::POOL_DESTROY, "flash"), &[]).await), Code::NotEmpty);
        change(&hub, server, (msg::POOL_DESTROY, "disk"), &[]).await.expect("it is empty");
        running.stop().await;
        hub.close().await;

        // Who did not ask meanwhile learns that a pool has ended, though nothing is left of it.
        let (hub, running) = open(&rt).await;
        let client = import(&hub, 202, Role::Client);
        learn(&client, &mut copy).await;
        assert_eq!(told(&copy), both[1..]);
        change(&hub, server, (msg::POOL_NEW, "disk"), &[]).await.expect("the name is free again");
        learn(&client, &mut copy).await;
        assert_eq!(told(&copy), both);
        running.stop().await;
        hub.close().await;
    });
}

#[test]
fn a_change_wakes_those_who_wait() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        let version = server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("it is free").reply.version;
        let start = rt.now();
        let timed_out = server.call(config(version, 500)).await.expect("time is up").reply;
        assert_eq!(timed_out.version, version);
        assert_eq!((rt.now() - start).as_millis(), 500);
        let mut waiting = Vec::new();
        for client in 200..210 {
            let (sender, receiver) = oneshot::channel();
            let (client, clock) = (import(&hub, client, Role::Client), rt.clone());
            rt.spawn(async move {
                let config = client.call(config(version, 30_000)).await.expect("it changes").reply;
                let _ = sender.send((config, clock.now()));
            });
            waiting.push(receiver);
        }
        rt.sleep(Duration::from_secs(1)).await;
        server.call(register(2, 12, "10.0.0.2@tcp")).await.expect("it is free");
        let changed = rt.now();
        for receiver in waiting {
            let (config, when) = receiver.await.expect("the task answers");
            assert_eq!((config.version, config.targets.len()), (version + 1, 2));
            assert!(when - changed < Duration::from_millis(10), "it is told at once");
        }
        // One that waits does not hold up a stop.
        let client = import(&hub, 300, Role::Client);
        rt.spawn(async move {
            let _ = client.call(config(version + 1, 60_000)).await;
        });
        rt.sleep(Duration::from_millis(10)).await;
        let stopped = rt.now();
        running.stop().await;
        assert!(rt.now() - stopped < Duration::from_secs(1));
        hub.close().await;
    });
}

/// An MGS of before changes had numbers of their own left a table without them; and only what is new is told.
#[test]
fn a_table_without_versions_gets_them() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        for index in 0..3 {
            server.call(register(index, 10 + u128::from(index), "10.0.0.1@tcp")).await.expect("it is free");
        }
        let told = server.call(config(0, 0)).await.expect("everybody may ask").reply;
        running.stop().await;
        hub.close().await;

        let store = Store::open(&rt, PATH).await.expect("it is there");
        let changes = told.targets.iter().map(|entry| {
            let mut value = Vec::new();
            entry.put(&mut value);
            store::Change {
                key: super::table::key(service::keys::MGS, entry.target),
                value: Some(value.into()),
            }
        });
        let batch = store::Batch { changes: changes.collect(), ..store::Batch::default() };
        store.commit(batch).expect("the disk works");
        store.close().await.expect("the disk works");

        let (hub, running) = open(&rt).await;
        let client = import(&hub, 200, Role::Client);
        let page = |known| msg::GetConfig { pages: true, ..config(known, 0) };
        let all = client.call(page(told.version)).await.expect("it starts again").reply;
        assert_eq!(
            (all.version, all.newest, &all.targets),
            (told.version + 3, told.version + 3, &told.targets)
        );
        import(&hub, 101, Role::Server).call(register(1, 11, "10.0.0.9@tcp")).await.expect("it moved");
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let client = import(&hub, 201, Role::Client);
        let new = client.call(page(all.version)).await.expect("it starts again").reply;
        assert_eq!((new.version, new.targets.len()), (all.version + 1, 1));
        assert_eq!(client.call(config(0, 0)).await.expect("it is there").reply.targets.len(), 3);
        running.stop().await;
        hub.close().await;
    });
}

#[test]
fn nobody_sees_what_a_crash_can_undo() {
    for seed in 0..30 {
        let sim = Sim::new(Options::seed(seed));
        let rt = sim.rt(NODE);
        let mut rng = sim.rng("delays");
        let label = Label {
            fsname: fsname(),
            target: TargetId::MGS,
            uuid: ClientId(1),
            mgs: vec![],
            service: vec![],
        };
        sim.run(Store::format(&rt, PATH, &label)).expect("an empty directory can be formatted");
        let (hub, _running) = sim.run(open(&rt));
        let seen = sim.run(async {
            let server = import(&hub, 100, Role::Server);
            server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("it is free");
            rt.spawn(async move {
                let _ = server.call(register(2, 12, "10.0.0.2@tcp")).await;
            });
            rt.sleep(Duration::from_micros(rng.below(1000))).await;
            let client = import(&hub, 200, Role::Client);
            client.call(config(0, 0)).await.expect("it answers").reply
        });
        sim.crash(NODE);
        let rt = Rt::sim(sim.restart(NODE));
        let now = sim.run(async {
            let (hub, _running) = open(&rt).await;
            import(&hub, 201, Role::Client).call(config(0, 0)).await.expect("it answers").reply
        });
        assert!(now.version >= seen.version, "seed {seed}: {seen:?}, then {now:?}");
        assert!(now.version > seen.version || now == seen, "seed {seed}: {seen:?}, then {now:?}");
    }
}
