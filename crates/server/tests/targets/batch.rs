//! Batches of real changes: 64 creates in one frame, each exactly once (`docs/recovery.md`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::wire::messages as msg;
use proto::{ClientId, Cred, Fid, FsName, Name, Nid, TargetId, Timestamp, Transno};
use rpc::{Answered, Hub, Import, Key, Keys, Role, RpcError};
use rt::sim::{Options, Sim};
use rt::{Addr, Rt};
use store::{Label, Store};
use weft_server::{Config, Running, start};

const TARGETS: [(TargetId, &str); 3] = [(TargetId::MGS, "mgs"), (OST, "ost"), (MDT, "mdt")];
const MDT: TargetId = TargetId { kind: proto::TargetKind::Mdt, index: 0 };
const OST: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 0 };
const ADDR: &str = "server:988";
const COUNT: u32 = 64;

fn fsname() -> FsName {
    "weft".parse().expect("a plain name")
}

fn hub(rt: &Rt) -> Hub {
    let key = |byte| Some(Key([byte; 32]));
    Hub::new(rt.clone(), fsname(), Keys { server: key(1), client: key(2) })
}

async fn format(rt: &Rt) {
    for (number, (target, path)) in (1..).zip(TARGETS) {
        let label =
            Label { fsname: fsname(), target, uuid: ClientId(number), mgs: vec![Nid::lo()], service: vec![] };
        Store::format(rt, path, &label).await.expect("an empty disk can be formatted");
    }
}

/// Every role in one process.
async fn serve(rt: &Rt) -> (Hub, Vec<Running>) {
    let hub = hub(rt);
    hub.listen(&Addr(ADDR.into())).await.expect("the port is free");
    let mut running = Vec::new();
    for (_, path) in TARGETS {
        let config = Config { path: path.into(), nids: vec![Nid::lo()], server: "here".into() };
        running.push(start(&hub, config).await.expect("the target starts"));
    }
    (hub, running)
}

fn import(hub: &Hub) -> Arc<Import> {
    let nid = format!("{ADDR}@tcp").parse().expect("a plain NID");
    hub.import(MDT, hub.new_client(), Role::Client, vec![nid])
}

fn create(seq: u64, oid: u32) -> msg::Create {
    msg::Create {
        parent: Fid::ROOT,
        name: Name::new(format!("file{oid}").into_bytes()).expect("a plain name"),
        fid: Fid { seq, oid, ver: 0 },
        mode: 0o100_644,
        rdev: 0,
        target: Bytes::new(),
        open: msg::OPEN_EXCLUSIVE | msg::OPEN_WRITE,
        hint: None,
        cred: Cred::root(),
        time: Timestamp { secs: 1_700_000_000, nanos: 0 },
        umask: 0,
        foretold: None,
    }
}

fn creates(seq: u64) -> Vec<msg::Create> {
    (1..=COUNT).map(|oid| create(seq, oid)).collect()
}

type Outcomes = Vec<(Fid, Result<Answered<msg::Created>, RpcError>)>;

/// Sends creates as a task of the client.
fn batch(rt: &Rt, import: &Arc<Import>, creates: Vec<msg::Create>) -> Arc<Mutex<Option<Outcomes>>> {
    let back = Arc::new(Mutex::new(None));
    let (import, here) = (import.clone(), back.clone());
    rt.spawn(async move {
        let fids: Vec<Fid> = creates.iter().map(|create| create.fid).collect();
        let outcomes = import.batch(creates).await;
        *here.lock() = Some(fids.into_iter().zip(outcomes).collect());
    });
    back
}

/// What the creates were answered: every file was made, by one change each. These changes.
async fn made(sim: &Sim, back: &Arc<Mutex<Option<Outcomes>>>, what: &str) -> Vec<Transno> {
    let outcomes = loop {
        if let Some(outcomes) = back.lock().take() {
            break outcomes;
        }
        sim.root().sleep(Duration::from_micros(10)).await;
    };
    let made = |(fid, outcome): (Fid, Result<Answered<msg::Created>, RpcError>)| {
        // A second time would be refused: the name is taken.
        let created = outcome.unwrap_or_else(|error| panic!("{what}: {fid}: {error}"));
        assert_eq!((created.reply.attr.fid, created.reply.existed), (fid, false), "{what}");
        created.transno
    };
    outcomes.into_iter().map(made).collect()
}

async fn assert_there(import: &Import, what: &str) {
    for oid in 1..=COUNT {
        let name = Some(create(0, oid).name);
        let lookup = msg::Lookup { parent: Fid::ROOT, name, cred: Cred::root() };
        let found = import.call(lookup).await.unwrap_or_else(|error| panic!("{what}: file {oid}: {error}"));
        assert_eq!(found.reply.attr.fid.oid, oid, "{what}");
    }
    let page = msg::ReadDir { fid: Fid::ROOT, cookie: 0, bytes_max: 1 << 16, plus: false, behind: None };
    let page = import.call(page).await.expect("the root is a directory").reply;
    let files = page.entries.iter().filter(|entry| entry.name.as_bytes().starts_with(b"file"));
    assert_eq!(files.count(), COUNT as usize, "{what}");
}

#[test]
fn a_batch_of_creates_is_two_frames_and_one_commit() {
    let cost = |together: bool| {
        let sim = Sim::new(Options::default());
        sim.run(async {
            format(&sim.rt("server")).await;
            let _server = serve(&sim.rt("server")).await;
            let rt = sim.rt("client");
            let client = hub(&rt);
            let import = import(&client);
            let seq = import.call(msg::GetSequence {}).await.expect("granted").reply.seq;
            import.call(msg::Sync { transno: Transno(0) }).await.expect("the disk works");
            let frames = || sim.node_stats("client").frames_sent + sim.node_stats("server").frames_sent;
            let bytes = || sim.node_stats("client").bytes_sent + sim.node_stats("server").bytes_sent;
            let (before, bytes_before) = (frames(), bytes());
            let (writes, start) = (sim.node_stats("server").writes, sim.now());
            let newest = match together {
                true => {
                    let back = batch(&rt, &import, creates(seq));
                    *made(&sim, &back, "a batch").await.last().expect("there are some")
                }
                false => {
                    let mut newest = Transno(0);
                    for one in creates(seq) {
                        newest = import.call(one).await.expect("there is space").transno;
                    }
                    newest
                }
            };
            let (frames, bytes) = (frames() - before, bytes() - bytes_before);
            let took = sim.now() - start;
            import.committed(newest).await.expect("the disk works");
            let writes = sim.node_stats("server").writes - writes;
            println!("together {together}: {frames} frames, {bytes} bytes, {writes} writes, {took:?}");
            (frames, bytes, writes)
        })
    };
    let ((frames, bytes, writes), single) = (cost(true), cost(false));
    assert_eq!((frames, single.0), (2, 2 * u64::from(COUNT)));
    assert!(bytes < single.1, "{bytes} and {} bytes", single.1);
    assert!(writes <= single.2, "{writes} and {} writes", single.2);
}

/// FEATURES R29: the answer to the batch is lost, and with it the frame that 64 callers wait for.
#[test]
fn a_lost_answer_to_a_batch_of_creates_makes_nothing_twice() {
    let sim = Sim::new(Options::default());
    sim.run(async {
        format(&sim.rt("server")).await;
        let _server = serve(&sim.rt("server")).await;
        let rt = sim.rt("client");
        let client = hub(&rt);
        let import = import(&client);
        let granted = import.call(msg::GetSequence {}).await.expect("granted");
        sim.partition_one_way("server", "client");
        let back = batch(&rt, &import, creates(granted.reply.seq));
        sim.root().sleep(Duration::from_secs(1)).await;
        assert!(back.lock().is_none(), "the answer was lost");
        sim.heal("server", "client");
        let changes: BTreeSet<u64> =
            made(&sim, &back, "a lost answer").await.into_iter().map(|t| t.0).collect();
        let first = granted.transno.0 + 1;
        assert_eq!(changes, (first..first + u64::from(COUNT)).collect(), "no change but these");
        assert_there(&import, "a lost answer").await;
    });
}

/// What the crash left of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    Some,
    All,
}

/// The server loses power at one moment after another, from before the batches arrive until all of them is durable: what was
/// lost is done again, what was durable is not, and every caller has the answer of the one time.
#[test]
fn a_crash_in_the_middle_of_batches_of_creates_makes_each_once() {
    let mut seen = BTreeSet::new();
    // How long the commit has had when the second batch is sent, and how long that has had when the power goes.
    let later = (0..8).map(|n| Duration::from_micros(n * n * 25)).chain([Duration::from_secs(1)]);
    let moments = later.map(|moment| (Duration::from_micros(40), moment));
    for moment in moments.chain([(Duration::ZERO, Duration::ZERO)]) {
        for answered in [false, true] {
            let sim = Sim::new(Options::default());
            seen.insert((answered, sim.run(crash_at(&sim, moment, answered))));
        }
    }
    // The moments have to hit what they are for.
    for left in [Left::Nothing, Left::Some, Left::All] {
        assert!(
            seen.contains(&(false, left)) && seen.contains(&(true, left)),
            "{left:?} is not among {seen:?}"
        );
    }
}

async fn crash_at(sim: &Sim, (pause, moment): (Duration, Duration), answered: bool) -> Left {
    let what = format!("{pause:?} and {moment:?}, answered {answered}");
    format(&sim.rt("server")).await;
    let server = serve(&sim.rt("server")).await;
    let rt = sim.rt("client");
    let client = hub(&rt);
    let import = import(&client);
    let granted = import.call(msg::GetSequence {}).await.expect("granted");
    import.committed(granted.transno).await.expect("the disk works");
    if !answered {
        sim.partition_one_way("server", "client");
    }
    let mut rest = creates(granted.reply.seq);
    let first = rest.drain(..20).collect();
    let first = batch(&rt, &import, first);
    sim.root().sleep(Duration::from_micros(40)).await;
    let (sync, again) = (import.clone(), rt.clone());
    rt.spawn(async move {
        let _ = again.timeout(Duration::from_secs(1), sync.call(msg::Sync { transno: Transno(0) })).await;
    });
    sim.root().sleep(pause).await;
    let rest = batch(&rt, &import, rest);
    sim.root().sleep(moment).await;
    sim.crash("server");
    server.0.abandon();
    drop(server);
    sim.restart("server");
    let last = {
        let store = Store::open(&sim.rt("server"), "mdt").await.expect("what is durable can be read");
        store.last_committed()
    };
    sim.crash("server");
    sim.restart("server");
    let _server = serve(&sim.rt("server")).await;
    sim.heal("server", "client");
    let first = made(sim, &first, &what).await;
    let rest = made(sim, &rest, &what).await;
    let transnos: BTreeSet<Transno> = first.into_iter().chain(rest).collect();
    assert_eq!(transnos.len(), COUNT as usize, "{what}: each has a change of its own");
    import.committed(*transnos.last().expect("there are some")).await.expect("nothing is lost");
    assert_there(&import, &what).await;
    assert_eq!(import.state().evictions, 0, "{what}");
    match last.0.saturating_sub(granted.transno.0) {
        0 => Left::Nothing,
        some if some < u64::from(COUNT) => Left::Some,
        _ => Left::All,
    }
}
