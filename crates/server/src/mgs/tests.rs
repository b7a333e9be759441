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
        replaces: false,
    }
}

fn config(known: u64, wait_ms: u32) -> msg::GetConfig {
    msg::GetConfig { fsname: "weft".into(), known, wait_ms, pages: false, settings_only: false }
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

/// As a start of the target says how far it is.
fn claim(index: u32, uuid: u128, replaces: bool) -> msg::Claim {
    msg::Claim {
        fsname: "weft".into(),
        target: TargetId::ost(index),
        uuid: ClientId(uuid),
        nids: vec!["10.0.0.9@tcp".parse().expect("a NID")],
        instance: uuid as u64,
        boot: 1,
        committed: proto::Transno(1),
        shared: false,
        replaces,
    }
}

async fn asked<O: msg::Operation>(hub: &Hub, operation: O) -> Result<O::Reply, Code> {
    match hub.ask(TargetId::MGS, Role::Server, &[Nid::lo()], operation, Duration::from_secs(5)).await {
        Ok(reply) => Ok(reply),
        Err(AskError::Refused(code)) => Err(code),
        Err(error) => panic!("an answer expected, not {error}"),
    }
}

#[test]
fn a_lost_target_is_replaced_and_does_not_come_back() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        let replacing = |index, uuid, nid| msg::Register { replaces: true, ..register(index, uuid, nid) };
        server.call(replacing(1, 11, "10.0.0.1@tcp")).await.expect("the index is free");
        assert_eq!(asked(&hub, claim(1, 12, false)).await.err(), Some(Code::IndexUsed));
        // Nobody answers at 10.0.0.1; for a while that may be a restart.
        let began = rt.now();
        let claimed = loop {
            match asked(&hub, claim(1, 12, true)).await {
                Err(Code::TryAgain) => rt.sleep(Duration::from_secs(1)).await,
                claimed => break claimed.expect("the other one is lost"),
            }
        };
        assert!(rt.now() - began >= Duration::from_secs(20));
        assert_eq!(claimed.replaced, 1);
        let first = server.call(replacing(1, 12, "10.0.0.2@tcp")).await.expect("it replaces 11").reply;
        // It has been told what is lost by now.
        let again = server.call(register(1, 12, "10.0.0.2@tcp")).await.expect("it is the same").reply;
        assert_eq!(again.version, first.version);
        assert_eq!(refused(server.call(register(1, 11, "10.0.0.1@tcp")).await), Code::IndexUsed);
        let seen = server.call(config(0, 0)).await.expect("everybody may ask").reply;
        assert_eq!((seen.targets[0].uuid, seen.targets[0].replaces), (ClientId(12), true));

        // This process answers for the next one, so nobody may take its place.
        let here = msg::Register { nids: vec![Nid::lo()], ..register(7, 21, "10.0.0.3@tcp") };
        server.call(here).await.expect("the index is free");
        let label = Label {
            fsname: fsname(),
            target: TargetId::ost(7),
            uuid: ClientId(21),
            mgs: vec![Nid::lo()],
            service: vec![],
        };
        Store::format(&rt, "ost7", &label).await.expect("an empty directory can be formatted");
        let ost = Config { path: "ost7".into(), nids: vec![Nid::lo()], server: "oss".into() };
        let ost = start(&hub, ost).await.expect("it starts");
        assert_eq!(asked(&hub, claim(7, 22, true)).await.err(), Some(Code::IndexUsed), "it is served");
        ost.stop().await;
        running.stop().await;
        hub.close().await;
    });
}

#[test]
fn what_is_taken_out_is_told_and_can_be_taken_back() {
    check(async |rt, hub, running| {
        let server = import(&hub, 100, Role::Server);
        for index in [1, 2] {
            let uuid = 10 + u128::from(index);
            server.call(register(index, uuid, "10.0.0.1@tcp")).await.expect("the index is free");
        }
        let pool = |change, osts| msg::ChangePool { fsname: "weft".into(), name: "a".into(), change, osts };
        asked(&hub, pool(msg::POOL_NEW, vec![])).await.expect("it is new");
        asked(&hub, pool(msg::POOL_ADD, vec![OstIndex(1), OstIndex(2)])).await.expect("both are there");
        let remove = |index, only_look, undo| msg::RemoveTarget {
            fsname: "weft".into(),
            target: TargetId::ost(index),
            only_look,
            undo,
        };
        assert_eq!(asked(&hub, remove(9, false, false)).await.err(), Some(Code::NotFound));
        let mut copy = ConfigCopy::new("weft");
        let targets = async |copy: &mut ConfigCopy| {
            while copy.take(server.call(copy.question(0)).await.expect("everybody may ask").reply) {
                if copy.is_whole() {
                    break;
                }
            }
            let pool = copy.pools().get("a").map(|osts| osts.iter().map(|ost| ost.0).collect::<Vec<_>>());
            (copy.targets().map(|entry| entry.target.index).collect::<Vec<_>>(), pool.unwrap_or_default())
        };
        let would = asked(&hub, remove(1, true, false)).await.expect("it is there");
        assert_eq!((would.pools, targets(&mut copy).await), (vec!["a".to_owned()], (vec![1, 2], vec![1, 2])));
        asked(&hub, remove(1, false, false)).await.expect("it is there");
        assert_eq!(targets(&mut copy).await, (vec![2], vec![2]));
        let unchanged = asked(&hub, remove(1, false, false)).await.expect("it is out already");
        assert_eq!((unchanged.version, unchanged.pools.len()), (copy.version(), 0));
        let refusal = |result: Result<_, RpcError>| refused(result);
        assert_eq!(refusal(server.call(register(1, 11, "10.0.0.1@tcp")).await), Code::Removed);
        assert_eq!(asked(&hub, claim(1, 11, false)).await.err(), Some(Code::Removed));
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let server = import(&hub, 101, Role::Server);
        assert_eq!(refused(server.call(register(1, 11, "10.0.0.1@tcp")).await), Code::Removed);
        asked(&hub, remove(1, false, true)).await.expect("nobody has its index");
        server.call(register(1, 11, "10.0.0.1@tcp")).await.expect("it is back");
        asked(&hub, remove(2, false, false)).await.expect("it is there");
        assert!(asked(&hub, claim(2, 13, true)).await.is_ok(), "its index is free at once");
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

async fn keep(hub: &Hub, role: Role, name: &str, value: Option<&str>) -> Result<u64, AskError> {
    let change =
        msg::ChangeSetting { fsname: "weft".into(), name: name.into(), value: value.map(str::to_owned) };
    let wait = Duration::from_secs(1);
    hub.ask(TargetId::MGS, role, &[Nid::lo()], change, wait).await.map(|changed| changed.version)
}

#[test]
fn settings_survive_a_restart_and_come_in_their_order() {
    check(async |rt, hub, running| {
        let refused = |answer| match answer {
            Err(AskError::Refused(code)) => code,
            other => panic!("refusal expected, not {other:?}"),
        };
        let server = Role::Server;
        assert_eq!(refused(keep(&hub, Role::Client, "debug", Some("1")).await), Code::Forbidden);
        assert_eq!(refused(keep(&hub, server, "a b", Some("1")).await), Code::Invalid);
        assert_eq!(refused(keep(&hub, server, "debug", None).await), Code::NotFound);
        let first = keep(&hub, server, "osc.*.max_dirty_mb", Some("8")).await.expect("it is one");
        let second = keep(&hub, server, "b", Some("1")).await.expect("it is one");
        let third = keep(&hub, server, "osc.*.max_dirty_mb", Some("9")).await.expect("it is one");
        assert_eq!((second, third), (first + 1, first + 2));
        let client = import(&hub, 200, Role::Client);
        let mut copy = ConfigCopy::new("weft");
        learn(&client, &mut copy).await;
        assert_eq!(copy.settings().text(), "b=1\nosc.*.max_dirty_mb=9");
        running.stop().await;
        hub.close().await;

        let (hub, running) = open(&rt).await;
        let client = import(&hub, 201, Role::Client);
        let mut fresh = ConfigCopy::new("weft");
        learn(&client, &mut fresh).await;
        assert_eq!(fresh, copy, "it starts again");
        keep(&hub, server, "b", None).await.expect("it is there");
        keep(&hub, server, "osc.*.max_dirty_mb", None).await.expect("it is there");
        running.stop().await;
        hub.close().await;

        // Who did not ask meanwhile learns that there is none, though nothing is left of them.
        let (hub, running) = open(&rt).await;
        let client = import(&hub, 202, Role::Client);
        learn(&client, &mut copy).await;
        assert_eq!(copy.settings().text(), "");
        running.stop().await;
        hub.close().await;
    });
}

/// Who wants the settings only is not told of targets, and does not wake up for them.
#[test]
fn settings_alone_are_waited_for() {
    check(async |rt, hub, running| {
        let only =
            |known, wait_ms| msg::GetConfig { pages: true, settings_only: true, ..config(known, wait_ms) };
        let server = import(&hub, 100, Role::Server);
        let start = rt.now();
        let none = server.call(only(0, 500)).await.expect("time is up").reply;
        assert_eq!((none.version, none.settings, (rt.now() - start).as_millis()), (0, None, 500));
        let (sender, receiver) = oneshot::channel();
        let (waiting, clock) = (server.clone(), rt.clone());
        rt.spawn(async move {
            let config = waiting.call(only(0, 30_000)).await.expect("it changes").reply;
            let _ = sender.send((config, clock.now()));
        });
        rt.sleep(Duration::from_secs(1)).await;
        server.call(register(2, 12, "10.0.0.2@tcp")).await.expect("it is free");
        rt.sleep(Duration::from_secs(1)).await;
        let set = rt.now();
        let version = keep(&hub, Role::Server, "debug", Some("info")).await.expect("it is one");
        let (told, when) = receiver.await.expect("the task answers");
        assert!(when - set < Duration::from_millis(10), "it is told at once");
        let setting = msg::Setting { name: "debug".into(), value: "info".into(), version };
        assert_eq!((told.version, told.targets.len(), told.settings), (version, 0, Some(vec![setting])));
        running.stop().await;
        hub.close().await;
    });
}

/// A target has what is kept for it when it runs and when it starts, but for orders and statistics.
#[test]
fn targets_take_what_is_kept() {
    check(async |rt, hub, running| {
        let label = Label {
            fsname: fsname(),
            target: TargetId::ost(3),
            uuid: ClientId(9),
            mgs: vec![Nid::lo()],
            service: vec![],
        };
        Store::format(&rt, "ost", &label).await.expect("an empty directory can be formatted");
        let open_ost =
            || start(&hub, Config { path: "ost".into(), nids: vec![Nid::lo()], server: "oss".into() });
        let value = async |name: &str| {
            let name = format!("obdfilter.weft-OST0003.{name}");
            let read = msg::ReadParameters { patterns: vec![name], skip: 0, names_only: false };
            let page = hub
                .ask(TargetId::ost(3), Role::Server, &[Nid::lo()], read, Duration::from_secs(1))
                .await
                .expect("it answers");
            page.parameters.into_iter().map(|one| one.value).collect::<Vec<_>>().join(",")
        };
        let ost = open_ost().await.expect("it starts");
        assert_eq!(value("sync_journal").await, "0");
        keep(&hub, Role::Server, "obdfilter.*.sync_journal", Some("1")).await.expect("it is one");
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(value("sync_journal").await, "1");
        // What an operator sets for the moment holds until the next start, whatever else is kept.
        ost.set_parameter("*.sync_journal", "0").expect("it is one");
        keep(&hub, Role::Server, "obdfilter.*.sync_lock_cancel", Some("never")).await.expect("it is one");
        keep(&hub, Role::Server, "obdfilter.*.evict_client", Some("nid:1.2.3.4@tcp"))
            .await
            .expect("it is a name");
        keep(&hub, Role::Server, "obdfilter.*.degraded", Some("7")).await.expect("it is a name");
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (value("sync_journal").await, value("sync_lock_cancel").await),
            ("0".into(), "never".into())
        );
        ost.stop().await;
        let ost = open_ost().await.expect("it starts again");
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (value("sync_journal").await, value("sync_lock_cancel").await),
            ("1".into(), "never".into())
        );
        assert_eq!(value("degraded").await, "0", "a wrong value is not taken");
        ost.stop().await;
        running.stop().await;
        hub.close().await;
    });
}
