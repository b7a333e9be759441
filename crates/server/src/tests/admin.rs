//! What a target answers outside any session: an MDT is the target.

use std::time::Duration;

use proto::wire::messages as msg;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Fid};
use rpc::{Role, Service};

use crate::mdt::testing::{NODE, Pending, World, ask, outside};

fn start(world: &World, request: impl Into<Request>) -> Pending {
    let (sender, answer) = rt::sync::oneshot::channel();
    let call = world.target.clone().call(outside(Role::Server, request.into()));
    world.sim.rt(NODE).spawn(async move {
        let _ = sender.send(call.await);
    });
    Box::pin(async move { answer.await.expect("the target answers") })
}

fn report(world: &World) -> msg::RecoveryReport {
    match ask(world, Role::Client, msg::GetState {}) {
        Ok(Reply::GetState(state)) => state.recovery,
        other => panic!("any key may ask: {other:?}"),
    }
}

/// Names and texts of the traces.
fn traces(world: &World) -> Vec<String> {
    world.sim.run_for(Duration::from_secs(1));
    world.sim.run(async {
        let dir = world.store.dir().subdir(service::EVICTIONS).await.expect("the disk works");
        let mut texts = Vec::new();
        for name in dir.list().await.expect("the disk works") {
            let file = dir.open(&name).await.expect("it is there");
            let bytes = file.read_at(0, 10_000).await.expect("the disk works");
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        texts
    })
}

fn read(world: &World, role: Role, pattern: &str) -> Vec<msg::ShownParameter> {
    let read = msg::ReadParameters { patterns: vec![pattern.into()], skip: 0, names_only: false };
    match ask(world, role, read) {
        Ok(Reply::ReadParameters(page)) => page.parameters,
        other => panic!("any key may ask: {other:?}"),
    }
}

fn set(world: &World, role: Role, name: &str, value: &str) -> Result<(), Code> {
    let name = format!("mdt.weft-MDT0000.{name}");
    let parameter = msg::Parameter { name, value: value.into() };
    ask(world, role, msg::SetParameters { parameters: vec![parameter] }).map(|_| ())
}

#[test]
fn orders_need_the_servers_key() {
    let world = World::new();
    let client = world.client(1);
    let evict = |role| set(&world, role, "evict_client", &ClientId(1).to_string());
    assert_eq!(evict(Role::Client), Err(Code::Forbidden));
    assert_eq!(ask(&world, Role::Client, msg::AbortRecovery {}), Err(Code::Forbidden));
    assert_eq!(set(&world, Role::Client, "commit_on_sharing", "0"), Err(Code::Forbidden));
    assert_eq!(read(&world, Role::Client, "mdt.*.exports.*"), [], "names of clients are for servers");
    assert!(client.attr(Fid::ROOT).is_ok());
    assert!(traces(&world).is_empty());
}

/// Parameters of an MDT, in their order.
const OF_MDT: &[&str] = &[
    "evict_client",
    "export_stats",
    "num_exports",
    "recovery_status",
    "commit_on_sharing",
    "cpu_load",
    "hsm_control",
    "hsm.actions",
    "hsm.active_requests",
    "hsm.agents",
    "hsm.waiting",
    "hsm.running",
    "hsm.default_archive_id",
    "hsm.max_requests",
    "brw_stats",
    "md_stats",
    "opcode_hist",
    "job_stats",
    "job_cleanup_interval",
    "recovery_reconnect_histogram",
    "recovery_reconnect_top",
    "ldlm_timeout",
    "recovery_time_hard",
    "recovery_time_soft",
];

/// Parameters of an MDT that are below `lod`, as long as there is no pool.
const OF_LAYOUTS: [&str; 8] = [
    "dom_stripesize",
    "numobd",
    "activeobd",
    "target_obd",
    "qos_threshold_rr",
    "qos_prio_free",
    "qos_maxage",
    "qos_ost_weights",
];

/// Whoever looks at what there is, and whoever asks by name, sees the same; and what says that it can be set can be.
#[test]
fn what_can_be_read_is_listed() {
    let world = World::new();
    let _client = world.client(1);
    let all = read(&world, Role::Client, "*");
    let names: Vec<&str> = all.iter().filter_map(|one| one.name.strip_prefix("mdt.weft-MDT0000.")).collect();
    assert_eq!(names, OF_MDT);
    let locks = "ldlm.namespaces.mdt-weft-MDT0000_UUID";
    let of_locks: Vec<&str> = all.iter().filter_map(|one| one.name.strip_prefix(locks)).collect();
    assert_eq!(of_locks, [".lock_count", ".lock_limit_mb", ".lock_reclaim_threshold_mb", ".lru_size"]);
    let of_directories: Vec<&str> =
        all.iter().filter_map(|one| one.name.strip_prefix("mdd.weft-MDT0000.")).collect();
    assert_eq!(
        of_directories,
        [
            "changelog_users",
            "changelog_mask",
            "changelog_max_idle_indexes",
            "lfsck_namespace",
            "lfsck_layout",
            "lfsck_findings",
            "lfsck",
        ]
    );
    let of_disk: Vec<&str> =
        all.iter().filter_map(|one| one.name.strip_prefix("osd-weft.weft-MDT0000.")).collect();
    assert_eq!(
        of_disk,
        [
            "quota_slave.acct_user",
            "quota_slave.acct_group",
            "quota_slave.acct_project",
            "fstype",
            "kbytestotal",
            "kbytesfree",
            "kbytesavail",
            "filestotal",
            "filesfree",
            "io_scheduler",
            "nonrotational",
            "tune_disk"
        ]
    );
    let of_layouts: Vec<&str> =
        all.iter().filter_map(|one| one.name.strip_prefix("lod.weft-MDT0000-mdtlov.")).collect();
    assert_eq!(of_layouts, OF_LAYOUTS);
    let of_others = of_locks.len() + of_directories.len() + of_layouts.len() + of_disk.len();
    assert_eq!(all.len(), names.len() + of_others);
    for one in &all {
        let by_name = read(&world, Role::Client, &one.name);
        assert_eq!(by_name.iter().map(|found| &found.name).collect::<Vec<_>>(), [&one.name]);
        let (readable, settable) =
            (one.access & msg::PARAMETER_READABLE != 0, one.access & msg::PARAMETER_SETTABLE != 0);
        assert_eq!(settable, !one.takes.is_empty(), "{one:?}");
        assert!(readable || settable, "{one:?}");
        let order = msg::Parameter { name: one.name.clone(), value: one.value.clone() };
        let set = ask(&world, Role::Server, msg::SetParameters { parameters: vec![order] });
        match (readable, settable) {
            (true, true) => assert_eq!(set, Ok(Reply::SetParameters(msg::Done {})), "{one:?}"),
            (true, false) => assert_eq!(set, Err(Code::Forbidden), "{one:?}"),
            (false, _) => assert!(matches!(set, Err(Code::NotFound | Code::Invalid)), "{one:?}"),
        }
    }
    assert_eq!(set(&world, Role::Server, "commit_on_sharing", "2"), Err(Code::Invalid));
    assert_eq!(set(&world, Role::Server, "no_such_thing", "2"), Err(Code::NotFound));
}

#[test]
fn who_is_evicted_has_no_session_and_leaves_a_trace() {
    let world = World::new();
    let (client, other) = (world.client(1), world.client(2));
    client.mkdir(Fid::ROOT, "d");
    client.lookup(Fid::ROOT, "d").expect("it is there");
    let exports = read(&world, Role::Server, "mdt.*.exports.*.uuid");
    let shown: Vec<(&str, &str)> =
        exports.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect();
    let both = format!("{}\n{}", ClientId(1), ClientId(2));
    assert_eq!(shown, [("mdt.weft-MDT0000.exports.test@tcp.uuid", both.as_str())]);
    let evict = |whom: &str| set(&world, Role::Server, "evict_client", whom);
    assert_eq!((evict(""), evict("nobody")), (Err(Code::NotFound), Err(Code::NotFound)));
    assert_eq!(evict(&ClientId(9).to_string()), Err(Code::NotFound));
    assert_eq!(evict(&ClientId(1).to_string()), Ok(()));
    assert_eq!(client.attr(Fid::ROOT), Err(Code::NoSession));
    assert!(other.attr(Fid::ROOT).is_ok());
    let traces = traces(&world);
    let trace = traces.first().expect("one was written");
    for line in
        ["why: an operator at operator:1 ordered it", "nid: test@tcp", "  inode bits ", "s before: Lookup"]
    {
        assert!(trace.contains(line), "{line}: {trace}");
    }
    assert_eq!(evict("nid:test@tcp"), Ok(()));
    assert_eq!(other.attr(Fid::ROOT), Err(Code::NoSession));
}

/// What each client asked for: of all its sessions together, only what there was, and nothing while it is switched off.
#[test]
fn what_a_client_asked_for_is_summed_up() {
    let world = World::new();
    let (client, other) = (world.client(1), world.client(2));
    let rows = || -> Vec<String> {
        let all = read(&world, Role::Server, "mdt.*.exports.test@tcp.stats");
        let [one] = &all[..] else { panic!("one address: {all:?}") };
        let rows = one.value.lines().filter(|line| line.contains(" samples "));
        rows.filter_map(|line| Some(line.split_once(" samples ")?.0.replace(' ', ""))).collect()
    };
    assert_eq!(rows(), [""; 0]);
    let dir = client.mkdir(Fid::ROOT, "d");
    other.mkdir(dir, "e");
    assert!(other.lookup(dir, "no such name").is_err());
    other.unlink(dir, "no such name").expect_err("what is refused does not count");
    assert_eq!(rows(), ["mkdir2"]);
    let clear = |name: &str, value: &str| set(&world, Role::Server, name, value);
    assert_eq!(clear("exports.test@tcp.stats", "0"), Ok(()));
    assert_eq!(rows(), [""; 0]);
    client.attr(dir).expect("it is there");
    assert_eq!(rows(), ["getattr1"]);
    assert_eq!(set(&world, Role::Client, "export_stats", "0"), Err(Code::Forbidden));
    assert_eq!(clear("export_stats", "0"), Ok(()));
    client.attr(dir).expect("it is there");
    let off = read(&world, Role::Server, "mdt.*.exports.*.stats");
    assert_eq!(off.iter().map(|one| one.value.as_str()).collect::<Vec<_>>(), ["disabled"]);
    assert_eq!(clear("export_stats", "1"), Ok(()));
    assert_eq!(rows(), [""; 0], "it begins anew");
}

#[test]
fn an_operator_ends_the_wait_for_who_does_not_come() {
    let world = World::without_locks();
    let (a, _b) = (world.client(1), world.client(2));
    world.sync();
    let (boot, xid) = (world.store.boot(), a.xid() + 1);
    let dir = a.create_request(Fid::ROOT, "d", 0o040_755);
    let made = a.send(xid, dir.clone());
    let world = world.crash();
    assert_eq!(report(&world).state, msg::RECOVERY_WAITING);
    let a = world.connect(ClientId(1), boot, 2).expect("a known client");
    let replay = a.start_replay(xid, made.transno, dir);
    world.sim.run_for(Duration::from_secs(1));
    let waits = report(&world);
    assert_eq!((waits.state, waits.connected, waits.expected), (msg::RECOVERY_RUNNING, 1, 2));
    let before = world.sim.now();
    let abort = start(&world, msg::AbortRecovery {});
    assert_eq!(world.sim.run(replay).transno, made.transno, "who is back replays");
    a.skip_to(xid);
    a.lookup(Fid::ROOT, "d").expect("it was replayed");
    assert!(world.sim.run(abort).result.is_ok());
    assert!(world.sim.now() - before < Duration::from_secs(1), "at once");
    let over = report(&world);
    assert_eq!((over.state, over.completed, over.evicted), (msg::RECOVERY_COMPLETE, 1, 1));
    assert_eq!((over.replayed, over.queued), (1, 0));
    let traces = traces(&world);
    assert!(traces.len() == 1 && traces[0].contains("why: it did not come back"), "{traces:?}");
    assert!(ask(&world, Role::Server, msg::AbortRecovery {}).is_ok(), "there is nothing to do");
}
