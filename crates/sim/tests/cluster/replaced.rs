//! OSTs that are lost and replaced, and OSTs that are taken out: what they had is an error, never zeros, and everything else goes on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{AttrChange, Client, Error, Handle, OpenFlags};
use proto::find::Expr;
use proto::layout::LayoutHint;
use proto::parameters::{ClientPlaces, ClientTree, Tree};
use proto::wire::messages::{FIND_ENTRY, Find, QUOTA_USER, ReadQuota};
use proto::{Code, Fid, OstIndex, TargetId};
use rt::Rt;
use rt::sim::{Options, Sim};
use server::StartError;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const LOST: OstIndex = OstIndex(1);
const SERVER: &str = "oss1";
const STRIPE: usize = 1 << 16;
const OSTS: usize = 3;

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: OSTS as u32, osts_per_oss: 1 }, test);
}

/// What a byte of a file is; never 0.
fn byte(at: usize) -> u8 {
    (at / STRIPE) as u8 + 1
}

/// Makes a file with a stripe on each of `osts`, in this order, and opens it.
async fn create(client: &Client, name: &str, osts: &[u32]) -> Result<(Fid, Handle), Error> {
    let osts = osts.iter().copied().map(OstIndex).collect();
    let hint = LayoutHint { osts, stripe_size: STRIPE as u32, ..LayoutHint::default() };
    let made =
        client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await?;
    Ok((made.fid, client.files().open(&root(), made.fid, READ_WRITE).await?))
}

/// The same, with a durable stripe on each.
async fn written(client: &Client, name: &str, osts: &[u32]) -> Fid {
    let (fid, handle) = create(client, name, osts).await.expect("the OSTs are there");
    let bytes: Vec<u8> = (0..osts.len() * STRIPE).map(byte).collect();
    client.files().write(handle, 0, &bytes).await.expect("there is room");
    client.files().fsync(handle).await.expect("the disks work");
    client.files().release(handle).await;
    fid
}

/// What each stripe of a file gives: whether it is what was written.
async fn stripes(client: &Client, fid: Fid, count: usize) -> Vec<Result<bool, Error>> {
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = client.files().open(&root(), fid, read).await.expect("it is there");
    let mut found = Vec::new();
    for n in 0..count {
        let at = n * STRIPE;
        let bytes = client.files().read(handle, at as u64, STRIPE as u32).await;
        found.push(bytes.map(|bytes| {
            let bytes: Vec<u8> = bytes.iter().flat_map(|part| part.to_vec()).collect();
            bytes == vec![byte(at); STRIPE]
        }));
    }
    client.files().release(handle).await;
    found
}

async fn lose(cluster: &Cluster, rt: &Rt) {
    cluster.kill(SERVER);
    cluster.replace(TargetId::ost(LOST.0), SERVER).await;
    // The lost one must not have answered for 20 s.
    rt.sleep(Duration::from_secs(40)).await;
}

async fn mount(cluster: &Cluster, node: &str) -> (Rt, Arc<Client>) {
    let (rt, client) = cluster.mount(node).await;
    cluster.osts_are_known(&client).await;
    (rt, client)
}

/// As `lctl set_param` does.
pub(crate) async fn set(client: &Client, pattern: &str, value: &str) {
    let admin = client.admin();
    let places = ClientPlaces::new(&admin.fsname(), admin.id(), "10.0.0.1@tcp");
    let mut tree = ClientTree::new(places, Tree::to_set(pattern).expect("the pattern is short"));
    admin.parameters(&mut tree);
    for parameter in tree.into_tree().found().expect("it is there") {
        parameter.set(value).expect("a value of it").await.expect("it takes it");
    }
}

/// The names of all files, as `lfs find` finds them.
async fn search(client: &Client) -> Vec<Vec<u8>> {
    let find = Find {
        start: Fid::ROOT,
        path: Bytes::from_static(b"/"),
        query: Expr::All(Vec::new()).encode(),
        depth_min: 1,
        depth_max: 1,
        wants: FIND_ENTRY,
        bytes_max: 1 << 16,
        snapshot: 0,
        behind: None,
        cred: Default::default(),
    };
    let page = client.names().search(&root(), &find).await.expect("the MDT answers");
    let mut names: Vec<Vec<u8>> = page.found.iter().map(|found| found.path.to_vec()).collect();
    names.sort();
    names
}

/// What files of root occupy, in bytes.
async fn space_of_root(client: &Client) -> u64 {
    let read = ReadQuota { kind: QUOTA_USER, id: 0, pool: String::new() };
    let state = client.admin().order(TargetId::mdt(0), read, Duration::from_secs(20)).await;
    state.expect("the MDT answers").bytes.expect("space is counted").used
}

const GONE: Result<bool, Error> = Err(Error::Refused(Code::Lost));

#[test]
fn what_a_lost_ost_had_is_an_error_and_never_zeros() {
    check(1, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let wide = written(&client, "wide", &[0, 1, 2]).await;
        let elsewhere = written(&client, "elsewhere", &[2, 0]).await;
        let (_, unsynced) = create(&client, "unsynced", &[1]).await.expect("the OST is there");
        client.files().write(unsynced, 0, &[7; STRIPE]).await.expect("there is room");
        // The MDT hears of the ends of the others.
        rt.sleep(Duration::from_secs(2)).await;
        // Nobody but its OST knows how large this one is.
        let (open, writer) = create(&client, "open", &[1, 2]).await.expect("the OSTs are there");
        client.files().write(writer, 0, &[7; 2 * STRIPE]).await.expect("there is room");
        client.files().fsync(writer).await.expect("the disks work");
        lose(cluster, &rt).await;

        let (_, other) = cluster.mount("c1").await;
        for client in [&client, &other] {
            assert_eq!(stripes(client, wide, 3).await, [Ok(true), GONE, Ok(true)]);
            assert_eq!(stripes(client, elsewhere, 2).await, [Ok(true), Ok(true)]);
        }
        // It can be found, given away and removed; what it has is not known.
        let found = other.names().lookup(&root(), Fid::ROOT, b"open").await.expect("its name is there");
        assert_eq!(found.attr.fid, open);
        // Until then it is on its way to the kernel.
        drop(found);
        assert_eq!(other.names().getattr(open).await.err(), Some(Error::Refused(Code::Lost)));
        let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        other.files().setattr(&root(), open, mode, None).await.expect("root may");
        assert_eq!(search(&other).await, [b"elsewhere", &b"open"[..], b"unsynced", b"wide"]);
        client.files().release(writer).await;
        // What was not durable is lost, too, and is said to be.
        assert!(client.files().fsync(unsynced).await.is_err(), "it was on the lost OST");
        client.files().release(unsynced).await;

        // New files get objects there, from clients that are older and from new ones, also after more restarts.
        for round in 0..3 {
            for (n, client) in [&client, &other].into_iter().enumerate() {
                let fid = written(client, &format!("new{n}.{round}"), &[0, 1, 2]).await;
                assert_eq!(stripes(client, fid, 3).await, [Ok(true), Ok(true), Ok(true)]);
            }
            assert_eq!(stripes(&other, wide, 3).await, [Ok(true), GONE, Ok(true)]);
            cluster.crash_servers();
        }
        // What has lost a part is not changed any more: what is left of it does not say how large it was.
        let gone = Error::Refused(Code::Lost);
        let written = client.files().open(&root(), wide, READ_WRITE).await;
        assert_eq!(written.err(), Some(gone));
        let cut = AttrChange { size: Some(10), ..AttrChange::default() };
        assert_eq!(client.files().setattr(&root(), wide, cut, None).await.err(), Some(gone));
        for client in [&client, &other] {
            assert_eq!(stripes(client, wide, 3).await, [Ok(true), GONE, Ok(true)]);
            let told = client.names().getattr(wide).await.expect("the MDT knows its size");
            assert_eq!(told.attr.size, 3 * STRIPE as u64);
        }
        for name in ["wide", "unsynced", "elsewhere", "open"] {
            client.names().unlink(&root(), Fid::ROOT, name.as_bytes()).await.expect("the owner may");
        }
    });
}

#[test]
fn it_can_be_lost_twice() {
    check(2, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let first = written(&client, "first", &[1]).await;
        lose(cluster, &rt).await;
        let second = written(&client, "second", &[1]).await;
        assert_eq!(stripes(&client, second, 1).await, [Ok(true)]);
        lose(cluster, &rt).await;
        let third = written(&client, "third", &[1]).await;
        for (fid, found) in [(first, GONE), (second, GONE), (third, Ok(true))] {
            assert_eq!(stripes(&client, fid, 1).await, [found]);
        }
    });
}

/// The MDT hears of it only when it is started again, and the OST waits until then.
#[test]
fn it_answers_nobody_before_it_knows_what_is_lost() {
    check(3, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let fid = written(&client, "file", &[0, 1]).await;
        let (_, other) = cluster.mount("c1").await;
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = other.files().open(&root(), fid, read).await.expect("it is there");
        cluster.kill("mds");
        lose(cluster, &rt).await;
        let lost = async || other.files().read(handle, STRIPE as u64, STRIPE as u32).await.map(|_| ());
        let answer = rt.timeout(Duration::from_secs(60), lost()).await;
        assert_eq!(answer, None, "nobody has told it yet");
        cluster.restart(&["mds".to_owned()]);
        assert_eq!(lost().await, Err(Error::Refused(Code::Lost)));
        assert_eq!(stripes(&client, fid, 2).await, [Ok(true), GONE]);
    });
}

/// Its host would start it again and again: it must not take the place in the moment in which the good one restarts.
#[test]
fn one_that_was_refused_stays_refused() {
    check(7, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let fid = written(&client, "file", &[0, 1]).await;
        let ost = TargetId::ost(LOST.0);
        let refused = async || match cluster.serve_spare(ost, "spare").await {
            Err(StartError::NotAccepted { code, .. }) => Some(code),
            _ => None,
        };
        assert_eq!(refused().await, Some(Code::IndexUsed), "the good one lives");
        cluster.kill(SERVER);
        rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(refused().await, Some(Code::IndexUsed), "for good");
        cluster.restart(&[SERVER.to_owned()]);
        assert_eq!(stripes(&client, fid, 2).await, [Ok(true), Ok(true)]);
    });
}

/// The MDT does not reach it at first, and an operator takes it out meanwhile and takes that back.
#[test]
fn one_that_comes_back_before_it_was_told_is_told() {
    check(8, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let old = written(&client, "old", &[0, 1]).await;
        cluster.handle().partition("mds", SERVER);
        lose(cluster, &rt).await;
        let answer = rt.timeout(Duration::from_secs(5), stripes(&client, old, 2)).await;
        assert_eq!(answer, None, "it was not told yet");
        cluster.remove(TargetId::ost(LOST.0)).await;
        rt.sleep(Duration::from_secs(10)).await;
        cluster.handle().heal_all();
        cluster.undo_removal(TargetId::ost(LOST.0)).await;
        let new = rt.timeout(Duration::from_secs(120), written(&client, "new", &[0, 1])).await;
        assert_eq!(stripes(&client, new.expect("it answers"), 2).await, [Ok(true), Ok(true)]);
        assert_eq!(stripes(&client, old, 2).await, [Ok(true), GONE]);

        // What it has since then is still its own when it comes back once more.
        for undo in [false, true] {
            match undo {
                false => cluster.remove(TargetId::ost(LOST.0)).await,
                true => cluster.undo_removal(TargetId::ost(LOST.0)).await,
            }
            rt.sleep(Duration::from_secs(2)).await;
        }
        let new = client.names().lookup(&root(), Fid::ROOT, b"new").await.expect("it is there").attr.fid;
        let handle = client.files().open(&root(), new, READ_WRITE).await.expect("it is whole");
        client.files().release(handle).await;
        assert_eq!(stripes(&client, new, 2).await, [Ok(true), Ok(true)]);
    });
}

/// One of a pair of servers: the other one takes it over afterwards.
#[test]
fn it_may_have_two_servers() {
    let sim = Sim::new(Options::seed(6));
    let cluster =
        Cluster::new(sim.handle(), Shape { osts: OSTS as u32, osts_per_oss: 1 }).with_service_nodes();
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        let (rt, client) = mount(&cluster, "c0").await;
        let old = written(&client, "old", &[0, 1]).await;
        cluster.kill(&cluster.peer(SERVER).expect("there are pairs"));
        lose(&cluster, &rt).await;
        let new = written(&client, "new", &[0, 1]).await;
        let both = async || (stripes(&client, old, 2).await, stripes(&client, new, 2).await);
        let expected = (vec![Ok(true), GONE], vec![Ok(true), Ok(true)]);
        assert_eq!(both().await, expected);
        cluster.kill(SERVER);
        rt.sleep(Duration::from_secs(20)).await;
        let (_, other) = cluster.mount("c1").await;
        assert_eq!((stripes(&other, old, 2).await, stripes(&other, new, 2).await), expected, "by its peer");
    });
}

#[test]
fn what_was_taken_out_is_asked_no_more_and_can_come_back() {
    check(4, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let fid = written(&client, "file", &[0, 1]).await;
        let spread = |name: &'static str| {
            let client = client.clone();
            async move {
                let hint = LayoutHint { stripe_count: -1, ..LayoutHint::default() };
                let name = name.as_bytes();
                let made = client.names().create_with_layout(&root(), Fid::ROOT, name, 0o100_644, hint).await;
                let fid = made.expect("a new name").fid;
                client.names().layout(fid).await.expect("it is there").expect("of a file").object_count()
            }
        };
        // It keeps what it has written, and would read it without that OST.
        client.admin().locks.clear(TargetId::ost(LOST.0)).await.expect("it is known");
        cluster.remove(TargetId::ost(LOST.0)).await;
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(spread("without").await, OSTS - 1);
        let removed = Err(Error::Refused(Code::Removed));
        let began = cluster.handle().now();
        assert_eq!(stripes(&client, fid, 2).await, [Ok(true), removed]);
        let (_, other) = cluster.mount("c1").await;
        assert_eq!(stripes(&other, fid, 2).await, [Ok(true), removed]);
        let took = cluster.handle().now() - began;
        assert!(took < Duration::from_secs(2), "nobody waits for it: {took:?}");
        let listed = |client: &Client| client.admin().with_config(|config| config.targets().count());
        assert_eq!((listed(&client), listed(&other)), (OSTS, OSTS), "the MDT and two OSTs");

        cluster.undo_removal(TargetId::ost(LOST.0)).await;
        rt.sleep(Duration::from_secs(2)).await;
        for client in [&client, &other] {
            assert_eq!(stripes(client, fid, 2).await, [Ok(true), Ok(true)]);
        }
        assert_eq!(spread("with").await, OSTS);

        // What is removed while it is out is destroyed when it is back.
        assert!(space_of_root(&client).await > 0, "it is counted");
        cluster.remove(TargetId::ost(LOST.0)).await;
        rt.sleep(Duration::from_secs(2)).await;
        client.names().unlink(&root(), Fid::ROOT, b"file").await.expect("the owner may");
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(space_of_root(&client).await, 0, "that OST is not asked");
        cluster.undo_removal(TargetId::ost(LOST.0)).await;
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(space_of_root(&client).await, 0);
    });
}

#[test]
fn an_inactive_ost_keeps_nobody_waiting() {
    check(5, async |cluster| {
        let (rt, client) = mount(cluster, "c0").await;
        let fid = written(&client, "file", &[0, 1]).await;
        cluster.kill(SERVER);
        // Past what the client has in its cache.
        let (other_rt, other) = cluster.mount("c1").await;
        let waiting = rt.timeout(Duration::from_secs(60), stripes(&other, fid, 2)).await;
        assert_eq!(waiting, None, "who asks waits for the OST to come back");
        set(&other, "osc.*-OST0001-*.active", "0").await;
        let inactive = Err(Error::Refused(Code::Inactive));
        let began = other_rt.now();
        assert_eq!(stripes(&other, fid, 2).await, [Ok(true), inactive]);
        assert!(other_rt.now() - began < Duration::from_secs(2), "nobody waits");
        cluster.restart(&[SERVER.to_owned()]);
        set(&other, "osc.*-OST0001-*.active", "1").await;
        assert_eq!(stripes(&other, fid, 2).await, [Ok(true), Ok(true)]);
    });
}
