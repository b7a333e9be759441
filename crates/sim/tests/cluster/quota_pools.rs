//! Quotas of the space of pools: a limit holds where it is said, whatever restarts, and with whatever the pool has.

use std::pin::Pin;
use std::time::Duration;

use client::{AttrChange, Caller, Client, Error, Handle, OpenFlags};
use proto::layout::{HintPart, LayoutHint};
use proto::wire::messages::{
    ChangePool, POOL_ADD, POOL_DESTROY, POOL_NEW, POOL_REMOVE, QUOTA_IN_POOL, QUOTA_USER, QuotaUse,
    ReadQuota, SetQuota,
};
use proto::{Code, Fid, OstIndex, TargetId};
use rt::Rt;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const BOB: u32 = 1000;
const MIB: usize = 1 << 20;
const MDS: &str = "mds";
const WAIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// How often something is looked for that has to come.
const LOOKS: usize = 600;

/// A cluster with the pools `flash`, of the OSTs 0 and 1, and `disk`, of 2 and 3.
fn check(seed: u64, test: impl AsyncFnOnce(&Cluster, &Rt, &Client)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        let (rt, client) = mount(cluster, "a").await;
        for (name, osts) in [("flash", [0, 1]), ("disk", [2, 3])] {
            change(cluster, name, POOL_NEW, &[]).await;
            change(cluster, name, POOL_ADD, &osts).await;
        }
        until(&rt, "the client knows the pools", async || {
            client
                .admin()
                .with_config(|config| config.pools().get("disk").is_some_and(|osts| osts.len() == 2))
        })
        .await;
        test(cluster, &rt, &client).await;
    });
}

async fn until(rt: &Rt, what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..LOOKS {
        if is_so().await {
            return;
        }
        rt.sleep(PAUSE).await;
    }
    panic!("it did not come so far: {what}");
}

/// A client for which everybody may make files in the root.
async fn mount(cluster: &Cluster, node: &str) -> (Rt, std::sync::Arc<Client>) {
    let (rt, client) = cluster.mount(node).await;
    cluster.osts_are_known(&client).await;
    let open = AttrChange { mode: Some(0o777), ..AttrChange::default() };
    client.files().setattr(&root(), Fid::ROOT, open, None).await.expect("root may");
    (rt, client)
}

async fn change(cluster: &Cluster, name: &str, change: u8, osts: &[u32]) {
    let osts = osts.iter().copied().map(OstIndex).collect();
    let order = ChangePool { fsname: "sim".into(), name: name.into(), change, osts };
    cluster.ask(TargetId::MGS, "mgs", order).await.expect("it can be done");
}

fn bob() -> Caller {
    Caller { uid: BOB, gid: BOB, ..root() }
}

fn of_pool(pool: &str) -> LayoutHint {
    LayoutHint { pool: pool.into(), ..LayoutHint::default() }
}

async fn create(client: &Client, name: &str, hint: LayoutHint) -> (Fid, Handle) {
    create_as(client, name, hint, READ_WRITE).await
}

async fn create_as(client: &Client, name: &str, hint: LayoutHint, flags: OpenFlags) -> (Fid, Handle) {
    let made = client.names().create_with_layout(&bob(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    (fid, client.files().open(&bob(), fid, flags).await.expect("it is there"))
}

/// Asks until all targets answer.
async fn state(rt: &Rt, client: &Client, pool: &str) -> QuotaUse {
    let kind = if pool.is_empty() { QUOTA_USER } else { QUOTA_USER | QUOTA_IN_POOL };
    for _ in 0..LOOKS {
        let read = ReadQuota { kind, id: BOB, pool: pool.to_owned() };
        // A server that is not there yet refuses the connection.
        if let Ok(state) = client.admin().order(TargetId::mdt(0), read, WAIT).await
            && state.targets.iter().all(|of| of.bytes.is_some())
        {
            return state.bytes.expect("space is counted");
        }
        rt.sleep(PAUSE).await;
    }
    panic!("the MDT does not say what he has in '{pool}'");
}

async fn used(rt: &Rt, client: &Client, pool: &str) -> u64 {
    state(rt, client, pool).await.used
}

async fn limit(client: &Client, pool: &str, hard: u64) {
    let set = SetQuota {
        kind: if pool.is_empty() { QUOTA_USER } else { QUOTA_USER | QUOTA_IN_POOL },
        id: BOB,
        inodes_soft: None,
        inodes_hard: None,
        inodes_grace_s: None,
        bytes_soft: None,
        bytes_hard: Some(hard),
        bytes_grace_s: None,
        forget: false,
        pool: pool.to_owned(),
    };
    client.admin().order(TargetId::mdt(0), set, WAIT).await.expect("it is kept");
}

/// Writes a MiB at a time from the MiB `from` on until that is refused, `most` at most; says how many.
async fn fill_from(client: &Client, handle: Handle, from: u64, most: u64) -> u64 {
    for n in 0..most {
        match client.files().write(handle, (from + n) << 20, &vec![n as u8; MIB]).await {
            Ok(wrote) => assert_eq!(wrote as usize, MIB),
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::Quota));
                return n;
            }
        }
    }
    most
}

async fn fill(client: &Client, handle: Handle, most: u64) -> u64 {
    fill_from(client, handle, 0, most).await
}

/// The space of files, as stat(2) tells it.
async fn scan(client: &Client, files: &[Fid]) -> u64 {
    let mut bytes = 0;
    for fid in files {
        bytes += client.names().getattr(*fid).await.expect("it is there").attr.blocks * 512;
    }
    bytes
}

#[test]
fn a_limit_of_a_pool_and_one_of_all_hold_both() {
    for seed in 1..4 {
        check(seed, async |cluster, rt, a| {
            let (_, b) = mount(cluster, "b").await;
            limit(a, "flash", 10 << 20).await;
            limit(a, "", 16 << 20).await;
            let (one, two) =
                (create(a, "one", of_pool("flash")).await, create(&b, "two", of_pool("flash")).await);
            let wrote = rt::wait::join_all([fill(a, one.1, 20), fill(&b, two.1, 20)]).await;
            assert_eq!(wrote.iter().sum::<u64>(), 10, "{wrote:?}");
            let three = create(a, "three", of_pool("disk")).await;
            assert_eq!(fill(a, three.1, 20).await, 6, "there is room elsewhere, as much as of all");
            for (client, handle) in [(a, one.1), (&*b, two.1), (a, three.1)] {
                client.files().fsync(handle).await.expect("it was permitted");
            }
            assert_eq!(used(rt, a, "flash").await, 10 << 20);
            assert_eq!((used(rt, a, "disk").await, used(rt, a, "").await), (6 << 20, 16 << 20));
            assert_eq!(scan(a, &[one.0, two.0]).await, 10 << 20);
            // All of it is so after a crash.
            cluster.crash_servers();
            assert_eq!(state(rt, a, "flash").await.hard, 10 << 20);
            assert_eq!((used(rt, a, "flash").await, used(rt, a, "disk").await), (10 << 20, 6 << 20));
            limit(a, "", 0).await;
            let four = create(&b, "four", of_pool("flash")).await;
            assert_eq!(fill(&b, four.1, 1).await, 0);
            assert_eq!(fill_from(a, three.1, 6, 3).await, 3);
            // What is freed may be written again.
            a.files().release(one.1).await;
            a.names().unlink(&root(), Fid::ROOT, b"one").await.expect("root may");
            until(rt, "it is freed", async || used(rt, a, "flash").await == wrote[1] << 20).await;
            assert_eq!(fill(&b, four.1, 20).await, wrote[0]);
        });
    }
}

/// Who holds nothing hears of nothing: it has to ask what a pool has before it writes there.
#[test]
fn a_client_that_did_not_listen_keeps_to_a_limit() {
    for seed in 20..24 {
        with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
            let (rt, a) = mount(cluster, "a").await;
            let (_, b) = mount(cluster, "b").await;
            for name in ["flash", "disk"] {
                change(cluster, name, POOL_NEW, &[]).await;
            }
            // Both have heard of pools that have nothing, and listen no more.
            a.admin().learn(WAIT).await;
            b.admin().learn(WAIT).await;
            rt.sleep(Duration::from_secs(120)).await;
            change(cluster, "flash", POOL_ADD, &[0, 1]).await;
            let one = create(&a, "one", of_pool("flash")).await;
            limit(&a, "flash", 3 << 20).await;
            let two = b.files().open(&bob(), one.0, READ_WRITE).await.expect("it is there");
            assert_eq!(fill(&b, two, 9).await, 3);
            b.files().fsync(two).await.expect("it was permitted");
            assert_eq!(used(&rt, &a, "flash").await, 3 << 20);
        });
    }
}

#[test]
fn what_is_added_to_a_pool_counts_there() {
    check(4, async |cluster, rt, a| {
        limit(a, "flash", 6 << 20).await;
        let hint = LayoutHint { osts: vec![OstIndex(2)], ..LayoutHint::default() };
        let on_two = create(a, "two", hint).await;
        assert_eq!(fill(a, on_two.1, 4).await, 4);
        a.files().fsync(on_two.1).await.expect("there is room");
        let one = create(a, "one", of_pool("flash")).await;
        assert_eq!(fill(a, one.1, 1).await, 1);
        a.files().fsync(one.1).await.expect("it was permitted");
        assert_eq!(used(rt, a, "flash").await, 1 << 20);
        change(cluster, "flash", POOL_ADD, &[2]).await;
        until(rt, "the MDT knows it", async || used(rt, a, "flash").await == 5 << 20).await;
        assert_eq!(fill_from(a, one.1, 1, 9).await, 1);
        assert_eq!(fill_from(a, on_two.1, 4, 9).await, 0, "it lies in the pool now");
        a.files().fsync(one.1).await.expect("it was permitted");
        change(cluster, "flash", POOL_REMOVE, &[2]).await;
        until(rt, "the MDT knows it", async || used(rt, a, "flash").await == 2 << 20).await;
        assert_eq!(fill_from(a, on_two.1, 4, 9).await, 9);
        assert_eq!(fill_from(a, one.1, 2, 9).await, 4);
    });
}

#[test]
fn a_pool_that_is_destroyed_has_no_limits() {
    check(5, async |cluster, rt, a| {
        limit(a, "flash", 1 << 20).await;
        let one = create(a, "one", of_pool("flash")).await;
        assert_eq!(fill(a, one.1, 9).await, 1);
        change(cluster, "flash", POOL_REMOVE, &[0, 1]).await;
        change(cluster, "flash", POOL_DESTROY, &[]).await;
        until(rt, "the MDT knows it", async || {
            let read = ReadQuota { kind: QUOTA_USER | QUOTA_IN_POOL, id: BOB, pool: "flash".to_owned() };
            a.admin().order(TargetId::mdt(0), read, WAIT).await.is_err()
        })
        .await;
        assert_eq!(fill_from(a, one.1, 1, 5).await, 5);
        // This is durable behind what the MDT has forgotten.
        limit(a, "disk", 1 << 20).await;
        cluster.kill(MDS);
        cluster.restart(&[MDS.to_owned()]);
        change(cluster, "flash", POOL_NEW, &[]).await;
        change(cluster, "flash", POOL_ADD, &[0, 1]).await;
        until(rt, "the MDT knows it", async || {
            let read = ReadQuota { kind: QUOTA_USER | QUOTA_IN_POOL, id: BOB, pool: "flash".to_owned() };
            a.admin().order(TargetId::mdt(0), read, WAIT).await.is_ok()
        })
        .await;
        assert_eq!((state(rt, a, "flash").await.hard, state(rt, a, "disk").await.hard), (0, 1 << 20));
        assert_eq!(fill_from(a, one.1, 6, 5).await, 5);
    });
}

#[test]
fn an_mdt_that_restarts_is_told_what_is_held_of_a_pool() {
    check(6, async |cluster, rt, a| {
        let (_, b) = mount(cluster, "b").await;
        limit(a, "flash", 10 << 20).await;
        let (one, two) =
            (create(a, "one", of_pool("flash")).await, create(&b, "two", of_pool("flash")).await);
        // Too little to be sent at once.
        for n in 0..6 {
            a.files().write(one.1, n << 20, &[7; 800 << 10]).await.expect("there is room");
        }
        assert_eq!(used(rt, a, "flash").await, 0, "nothing is sent");
        cluster.kill(MDS);
        cluster.restart(&[MDS.to_owned()]);
        assert!(fill(&b, two.1, 20).await <= 5);
        a.files().fsync(one.1).await.expect("it was permitted");
        b.files().fsync(two.1).await.expect("it was permitted");
        assert!(used(rt, a, "flash").await <= 10 << 20);
    });
}

/// An MDT whose new files keep away from an OST has another order of OSTs after a restart, and takes it when recovery is over. Recovery waits for those
/// who say what they hold of a pool, and they must not wait for the order.
#[test]
fn recovery_does_not_wait_for_the_pools() {
    check(7, async |cluster, rt, a| {
        limit(a, "flash", 10 << 20).await;
        let one = create(a, "one", of_pool("flash")).await;
        cluster.kill("oss1");
        rt.sleep(Duration::from_secs(1)).await;
        create(a, "two", LayoutHint { stripe_count: 4, ..LayoutHint::default() }).await;
        rt.sleep(Duration::from_secs(8)).await;
        a.files().write(one.1, 0, &[7; 800 << 10]).await.expect("there is room");
        cluster.kill(MDS);
        cluster.restart(&[MDS.to_owned()]);
        let began = rt.now();
        create(a, "three", of_pool("flash")).await;
        assert!(rt.now() - began < Duration::from_secs(15), "{:?}", rt.now() - began);
        cluster.restart(&["oss1".to_owned()]);
        assert!(fill_from(a, one.1, 1, 20).await <= 9);
        a.files().fsync(one.1).await.expect("it was permitted");
        assert!(used(rt, a, "flash").await <= 10 << 20);
    });
}

/// The first MiB lies in flash, the rest on disk: what is full is asked of where the write goes.
#[test]
fn each_part_of_a_file_counts_where_it_lies() {
    check(7, async |_, rt, a| {
        let parts = || LayoutHint {
            parts: vec![HintPart::new(1 << 20, of_pool("flash")), HintPart::new(u64::MAX, of_pool("disk"))],
            ..LayoutHint::default()
        };
        limit(a, "flash", 2 << 20).await;
        let one = create(a, "one", parts()).await;
        assert_eq!(fill(a, one.1, 4).await, 4);
        let full = create(a, "full", of_pool("flash")).await;
        assert_eq!(fill(a, full.1, 9).await, 1);
        let appends = OpenFlags { append: true, ..READ_WRITE };
        let two = create_as(a, "two", parts(), appends).await;
        assert_eq!(fill(a, two.1, 1).await, 0);
        assert_eq!(fill_from(a, one.1, 4, 3).await, 3);
        let end = a.files().open(&bob(), one.0, appends).await.expect("it is there");
        assert_eq!(fill(a, end, 3).await, 3, "the end lies on disk");
        // A part in each: refused whole, or written whole.
        let across = a.files().write(two.1, 0, &vec![1; 2 * MIB]).await;
        assert_eq!(across, Err(Error::Refused(Code::Quota)));
        limit(a, "flash", 3 << 20).await;
        assert_eq!(a.files().write(two.1, 0, &vec![1; 2 * MIB]).await, Ok(2 * MIB as u32));
        for handle in [one.1, two.1, full.1, end] {
            a.files().fsync(handle).await.expect("it was permitted");
        }
        assert_eq!((used(rt, a, "flash").await, used(rt, a, "disk").await), (3 << 20, 10 << 20));
    });
}

/// Whatever is killed while clients write: no limit is passed, and the pools have what the files have.
#[test]
fn a_limit_of_a_pool_holds_over_crashes() {
    for seed in 8..14 {
        check(seed, async |cluster, rt, a| {
            let (_, b) = mount(cluster, "b").await;
            limit(a, "flash", 12 << 20).await;
            let wide = LayoutHint { stripe_count: 2, stripe_size: 1 << 16, ..of_pool("flash") };
            let all = LayoutHint { stripe_count: 4, stripe_size: 1 << 16, ..LayoutHint::default() };
            let (one, two) = (create(a, "one", wide).await, create(&b, "two", all).await);
            let kills = async {
                for server in ["oss0", MDS, "oss1", MDS, "oss0"] {
                    rt.sleep(Duration::from_millis(40 * seed)).await;
                    cluster.kill(server);
                    rt.sleep(PAUSE).await;
                    cluster.restart(&[server.to_owned()]);
                }
                0
            };
            let fills: [Pin<Box<dyn Future<Output = u64>>>; 3] =
                [Box::pin(fill(a, one.1, 40)), Box::pin(fill(&b, two.1, 40)), Box::pin(kills)];
            let wrote = rt::wait::join_all(fills).await;
            // A half of what is striped over all lies in flash.
            a.files().fsync(one.1).await.expect("it was permitted");
            b.files().fsync(two.1).await.expect("it was permitted");
            let (flash, disk) = (used(rt, a, "flash").await, used(rt, a, "disk").await);
            assert_eq!((flash, disk), (((2 * wrote[0] + wrote[1]) << 20) / 2, (wrote[1] << 20) / 2));
            assert!((11 << 20..=12 << 20).contains(&flash), "{wrote:?}");
            assert_eq!(scan(a, &[one.0, two.0]).await, flash + disk);
            let three = create(a, "three", of_pool("disk")).await;
            assert_eq!(fill(a, three.1, 9).await, 9);
        });
    }
}
