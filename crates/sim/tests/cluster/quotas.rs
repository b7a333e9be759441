//! Quotas of space: what owners have is exact over chown and crashes, and clients together pass no limit.

use std::time::Duration;

use client::{Allocation, AttrChange, Caller, Client, Error, Handle};
use proto::wire::messages::{QUOTA_PROJECT, QUOTA_USER, QuotaState, ReadQuota, SetQuota};
use proto::{Code, Fid, TargetId};
use rt::Rt;
use rt::wait::join_all;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const BOB: u32 = 1000;
const ANN: u32 = 1001;
const MIB: usize = 1 << 20;
const MDS: &str = "mds";
const OSS: &str = "oss1";
const WAIT: Duration = Duration::from_secs(20);

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        test(cluster).await;
    });
}

/// A client for which everybody may make files in the root.
async fn mount(cluster: &Cluster, node: &str) -> (Rt, std::sync::Arc<Client>) {
    let (rt, client) = cluster.mount(node).await;
    cluster.osts_are_known(&client).await;
    let open = AttrChange { mode: Some(0o777), ..AttrChange::default() };
    client.files().setattr(&root(), Fid::ROOT, open, None).await.expect("root may");
    (rt, client)
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, ..root() }
}

async fn create(client: &Client, uid: u32, name: &[u8]) -> (Fid, Handle) {
    let made = client.files().create(&user(uid), Fid::ROOT, name, 0o644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

/// Asks until all targets answer.
async fn state(rt: &Rt, client: &Client, (kind, id): (u8, u32)) -> QuotaState {
    loop {
        let read = ReadQuota { kind, id, pool: String::new() };
        // A server that is not there yet refuses the connection.
        if let Ok(state) = client.admin().order(TargetId::mdt(0), read, WAIT).await
            && state.targets.iter().all(|of| of.bytes.is_some())
        {
            return state;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
}

async fn used(rt: &Rt, client: &Client, id: u32) -> u64 {
    state(rt, client, (QUOTA_USER, id)).await.bytes.expect("space is counted").used
}

/// Waits until an owner has `bytes`.
async fn until_used(rt: &Rt, client: &Client, id: u32, bytes: u64) {
    for _ in 0..100 {
        if used(rt, client, id).await == bytes {
            return;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
    panic!("{id} has {}, not {bytes}", used(rt, client, id).await);
}

async fn limit(client: &Client, id: u32, soft: u64, hard: u64, grace_s: Option<u64>) {
    limit_of(client, (QUOTA_USER, id), soft, hard, grace_s).await;
}

async fn limit_of(client: &Client, (kind, id): (u8, u32), soft: u64, hard: u64, grace_s: Option<u64>) {
    let set = SetQuota {
        kind,
        id,
        inodes_soft: None,
        inodes_hard: None,
        inodes_grace_s: None,
        bytes_soft: Some(soft),
        bytes_hard: Some(hard),
        bytes_grace_s: grace_s,
        forget: false,
        pool: String::new(),
    };
    client.admin().order(TargetId::mdt(0), set, WAIT).await.expect("it is kept");
}

/// Writes a MiB at a time until that is refused, `most` at most; says how many.
async fn fill(client: &Client, handle: Handle, most: u64) -> u64 {
    for n in 0..most {
        match client.files().write(handle, n << 20, &vec![n as u8; MIB]).await {
            Ok(wrote) => assert_eq!(wrote as usize, MIB),
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::Quota));
                return n;
            }
        }
    }
    most
}

async fn unlink(client: &Client, name: &[u8]) {
    client.names().unlink(&root(), Fid::ROOT, name).await.expect("root may");
}

#[test]
fn what_an_owner_has_is_exact_over_chown_and_crashes() {
    check(1, async |cluster| {
        let (rt, client) = mount(cluster, "a").await;
        let (fid, handle) = create(&client, BOB, b"f").await;
        assert_eq!(fill(&client, handle, 3).await, 3);
        client.files().fsync(handle).await.expect("there is room");
        assert_eq!(used(&rt, &client, BOB).await, 3 << 20);
        cluster.crash_servers();
        assert_eq!(used(&rt, &client, BOB).await, 3 << 20);
        let give = AttrChange { uid: Some(ANN), ..AttrChange::default() };
        client.files().setattr(&root(), fid, give, None).await.expect("root may");
        until_used(&rt, &client, ANN, 3 << 20).await;
        assert_eq!(used(&rt, &client, BOB).await, 0);
        // Who has it open knows an older owner, or none.
        assert_eq!(fill(&client, handle, 4).await, 4);
        client.files().fsync(handle).await.expect("there is room");
        until_used(&rt, &client, ANN, 4 << 20).await;
        assert_eq!(used(&rt, &client, BOB).await, 0);
        client.files().release(handle).await;
        unlink(&client, b"f").await;
        until_used(&rt, &client, ANN, 0).await;
    });
}

#[test]
fn an_object_that_is_made_after_the_file_was_given_away_knows_it() {
    check(2, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        let (_, b) = mount(cluster, "b").await;
        let (fid, handle) = create(&a, BOB, b"f").await;
        a.files().write(handle, 0, &[7; 5000]).await.expect("there is room");
        let give = AttrChange { uid: Some(ANN), gid: Some(ANN), ..AttrChange::default() };
        b.files().setattr(&root(), fid, give, None).await.expect("root may");
        cluster.crash_servers();
        a.files().fsync(handle).await.expect("there is room");
        a.files().release(handle).await;
        until_used(&rt, &a, ANN, 8192).await;
        assert_eq!(used(&rt, &a, BOB).await, 0);
        unlink(&a, b"f").await;
        until_used(&rt, &a, ANN, 0).await;
    });
}

#[test]
fn clients_together_pass_no_limit() {
    for seed in 3..6 {
        check(seed, async |cluster| {
            let (rt, a) = mount(cluster, "a").await;
            let (_, b) = mount(cluster, "b").await;
            limit(&a, BOB, 0, 10 << 20, None).await;
            let (one, two) = (create(&a, BOB, b"one").await.1, create(&b, BOB, b"two").await.1);
            let wrote = rt::wait::join_all([fill(&a, one, 20), fill(&b, two, 20)]).await;
            assert_eq!(wrote.iter().sum::<u64>(), 10, "{wrote:?}");
            // What was accepted is kept.
            a.files().fsync(one).await.expect("it was permitted");
            b.files().fsync(two).await.expect("it was permitted");
            assert_eq!(used(&rt, &a, BOB).await, 10 << 20);
            let quota = state(&rt, &a, (QUOTA_USER, BOB)).await.bytes.expect("space is counted");
            assert_eq!((quota.hard, quota.soft), (10 << 20, 0));
            // Root has no limits, and others have their own.
            let (_, big) = create(&a, 0, b"root").await;
            assert_eq!(fill(&a, big, 12).await, 12);
            // What is freed may be written again.
            a.files().release(one).await;
            unlink(&b, b"one").await;
            until_used(&rt, &a, BOB, wrote[1] << 20).await;
            assert_eq!(fill(&b, two, 10).await, 10);
            // After a restart of the MDT the limit is the same one.
            cluster.kill(MDS);
            cluster.restart(&[MDS.to_owned()]);
            let (_, three) = create(&a, BOB, b"three").await;
            assert_eq!(fill(&a, three, 1).await, 0);
            b.files().fsync(two).await.expect("it was permitted");
            until_used(&rt, &a, BOB, 10 << 20).await;
        });
    }
}

/// Who is not permitted something gives nothing back that others on the same client hold.
#[test]
fn many_at_once_on_one_client_pass_no_limit() {
    check(20, async |cluster| {
        let (rt, client) = mount(cluster, "a").await;
        limit(&client, BOB, 0, 30 * MIB as u64, None).await;
        let mut handles = Vec::new();
        for n in 0..16 {
            handles.push(create(&client, BOB, format!("f{n}").as_bytes()).await.1);
        }
        let reserve = |handle| {
            let what = Allocation::Reserve { keep_size: false };
            client.files().allocate(handle, 0, 25 * MIB as u64, what)
        };
        let more = create(&client, BOB, b"more").await.1;
        let reserved = join_all(handles.into_iter().map(reserve)).await;
        assert_eq!(reserved.iter().filter(|reserved| reserved.is_ok()).count(), 1);
        assert_eq!(client.files().write_at_once(more, 0, &vec![1; 6 * MIB]), Ok(None));
        until_used(&rt, &client, BOB, 25 * MIB as u64).await;
    });
}

#[test]
fn a_limit_holds_when_it_is_set() {
    check(7, async |cluster| {
        let (_, a) = mount(cluster, "a").await;
        let (_, b) = mount(cluster, "b").await;
        let (_, handle) = create(&a, BOB, b"f").await;
        assert_eq!(fill(&a, handle, 3).await, 3);
        limit(&b, BOB, 0, 4 << 20, None).await;
        assert_eq!(a.files().write(handle, 3 << 20, &vec![1; MIB]).await, Ok(MIB as u32));
        let refused = a.files().write(handle, 4 << 20, &[1]).await;
        assert_eq!(refused, Err(Error::Refused(Code::Quota)));
        limit(&b, BOB, 0, 0, None).await;
        assert_eq!(a.files().write(handle, 4 << 20, &[1]).await, Ok(1));
    });
}

#[test]
fn a_soft_limit_counts_when_its_time_is_over() {
    check(8, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        limit(&a, BOB, 2 << 20, 8 << 20, Some(60)).await;
        let (_, handle) = create(&a, BOB, b"f").await;
        assert_eq!(fill(&a, handle, 4).await, 4);
        a.files().fsync(handle).await.expect("there is room");
        let quota = state(&rt, &a, (QUOTA_USER, BOB)).await.bytes.expect("space is counted");
        assert!(quota.deadline_s > 0 && quota.left_s <= 60, "{quota:?}");
        rt.sleep(Duration::from_secs(61)).await;
        let refused = a.files().write(handle, 4 << 20, &vec![1; 4 * MIB]).await;
        assert_eq!(refused, Err(Error::Refused(Code::Quota)));
    });
}

#[test]
fn who_has_no_limits_writes_while_the_mdt_is_away() {
    check(9, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        let (_, handle) = create(&a, BOB, b"f").await;
        assert_eq!(fill(&a, handle, 2).await, 2);
        a.files().fsync(handle).await.expect("there is room");
        cluster.kill(MDS);
        rt.sleep(Duration::from_secs(5)).await;
        let began = rt.now();
        assert_eq!(fill(&a, handle, 4).await, 4);
        assert!(rt.now() - began < Duration::from_secs(3));
        cluster.restart(&[MDS.to_owned()]);
        a.files().fsync(handle).await.expect("there is room");
        assert_eq!(used(&rt, &a, BOB).await, 4 << 20);
    });
}

#[test]
fn users_of_a_project_share_its_limit() {
    check(10, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        let (_, b) = mount(cluster, "b").await;
        let dir = make_dir(&a).await;
        let open = AttrChange {
            mode: Some(0o777),
            project: Some(50),
            inherits: Some(true),
            ..AttrChange::default()
        };
        a.files().setattr(&root(), dir, open, None).await.expect("root may");
        let of = (QUOTA_PROJECT, 50);
        limit_of(&a, of, 0, 6 << 20, None).await;
        let create_inside = async |client: &Client, uid, name: &[u8]| {
            let made = client.files().create(&user(uid), dir, name, 0o644, READ_WRITE).await;
            made.expect("a new name can be made").1
        };
        let (one, two) = (create_inside(&a, BOB, b"one").await, create_inside(&b, ANN, b"two").await);
        let wrote = rt::wait::join_all([fill(&a, one, 20), fill(&b, two, 20)]).await;
        assert_eq!(wrote.iter().sum::<u64>(), 6, "{wrote:?}");
        a.files().fsync(one).await.expect("it was permitted");
        b.files().fsync(two).await.expect("it was permitted");
        let bytes = async || state(&rt, &a, of).await.bytes.expect("space is counted").used;
        assert_eq!(bytes().await, 6 << 20);
        // Elsewhere they have no limits. What leaves the project does not count for it any more.
        let (_, free) = create(&a, BOB, b"free").await;
        assert_eq!(fill(&a, free, 3).await, 3);
        let fid = a.names().lookup(&root(), dir, b"one").await.expect("it is there").fid;
        let none = AttrChange { project: Some(0), ..AttrChange::default() };
        a.files().setattr(&root(), fid, none, None).await.expect("root may");
        for _ in 0..100 {
            if bytes().await == wrote[1] << 20 {
                return;
            }
            rt.sleep(Duration::from_millis(100)).await;
        }
        panic!("the project has {}", bytes().await);
    });
}

async fn make_dir(client: &Client) -> Fid {
    let made = client.names().make(&root(), Fid::ROOT, b"d", 0o040_777, 0, bytes::Bytes::new()).await;
    made.expect("a new name can be made").fid
}

#[test]
fn a_byte_here_and_there_counts_as_the_blocks_it_takes() {
    check(11, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        let (_, b) = mount(cluster, "b").await;
        limit(&a, BOB, 0, 1 << 20, None).await;
        let (one, two) = (create(&a, BOB, b"one").await.1, create(&b, BOB, b"two").await.1);
        let scatter = async |client: &Client, handle| {
            for n in 0..1000u64 {
                // Some go on where the one before ended, most lie in blocks of their own.
                let offset = if n % 5 == 0 { n } else { n * 12_288 };
                match client.files().write(handle, offset, b"x").await {
                    Ok(wrote) => assert_eq!(wrote, 1),
                    Err(error) => {
                        assert_eq!(error, Error::Refused(Code::Quota));
                        return;
                    }
                }
            }
            panic!("the limit is passed");
        };
        rt::wait::join_all([scatter(&a, one), scatter(&b, two)]).await;
        a.files().fsync(one).await.expect("it was permitted");
        b.files().fsync(two).await.expect("it was permitted");
        let used = used(&rt, &a, BOB).await;
        assert!((900 << 10..=1 << 20).contains(&used), "{used} bytes");
    });
}

#[test]
fn an_mdt_that_restarts_is_told_what_is_held() {
    check(12, async |cluster| {
        let (rt, a) = mount(cluster, "a").await;
        let (_, b) = mount(cluster, "b").await;
        limit(&a, BOB, 0, 10 << 20, None).await;
        let (one, two) = (create(&a, BOB, b"one").await.1, create(&b, BOB, b"two").await.1);
        // Too little to be sent at once.
        for n in 0..6 {
            a.files().write(one, n << 20, &[7; 800 << 10]).await.expect("there is room");
        }
        assert_eq!(used(&rt, &a, BOB).await, 0, "nothing is sent");
        cluster.kill(MDS);
        cluster.restart(&[MDS.to_owned()]);
        assert!(fill(&b, two, 20).await <= 5);
        a.files().fsync(one).await.expect("it was permitted");
        b.files().fsync(two).await.expect("it was permitted");
        assert!(used(&rt, &a, BOB).await <= 10 << 20);
    });
}

/// What an OST has that is away counts, also for an MDT that restarted meanwhile.
#[test]
fn an_ost_that_is_away_counts_after_a_restart() {
    check(21, async |cluster| {
        let (rt, client) = mount(cluster, "a").await;
        limit(&client, BOB, 0, 10 << 20, None).await;
        for n in 0..4 {
            let (_, handle) = create(&client, BOB, format!("f{n}").as_bytes()).await;
            assert_eq!(fill(&client, handle, 2).await, 2);
            client.files().fsync(handle).await.expect("it was permitted");
        }
        until_used(&rt, &client, BOB, 8 << 20).await;
        let (_, more) = create(&client, BOB, b"more").await;
        // The MDT hears of all of it once more.
        client.files().write(more, 0, &[7; MIB]).await.expect("there is room");
        client.files().fsync(more).await.expect("it was permitted");
        rt.sleep(Duration::from_secs(6)).await;
        let (_, last) = create(&client, BOB, b"last").await;
        client.files().write(last, 0, b"x").await.expect("there is room");
        rt.sleep(Duration::from_secs(2)).await;
        cluster.kill(OSS);
        cluster.kill(MDS);
        cluster.restart(&[MDS.to_owned()]);
        let wrote = fill(&client, last, 20).await;
        assert!(wrote <= 1, "{wrote} MiB of one that was left");
        cluster.restart(&[OSS.to_owned()]);
        client.files().fsync(last).await.expect("it was permitted");
        assert!(used(&rt, &client, BOB).await <= 10 << 20);
    });
}

/// Files in a directory that a client has to itself are told ahead of the MDT: what is written to them is counted for their owner all
/// the same, and for the new one when they are given away.
#[test]
fn what_is_made_ahead_is_counted() {
    check(12, async |cluster| {
        let (rt, client) = mount(cluster, "a").await;
        let none = bytes::Bytes::new();
        let made = client.names().make(&user(BOB), Fid::ROOT, b"own", 0o040_755, 0, none.clone()).await;
        let dir = made.expect("everybody may").fid;
        let made = client.files().create(&user(BOB), dir, b"f", 0o644, READ_WRITE).await;
        let (_, handle) = made.expect("a new name can be made");
        client.files().write(handle, 0, &[7; 5000]).await.expect("there is room");
        client.files().fsync(handle).await.expect("there is room");
        until_used(&rt, &client, BOB, 8192).await;
        let made = client.names().make(&root(), Fid::ROOT, b"roots", 0o040_755, 0, none).await;
        let dir = made.expect("root may").fid;
        let made = client.files().create(&root(), dir, b"g", 0o644, READ_WRITE).await;
        let (told, handle) = made.expect("a new name can be made");
        client.files().write(handle, 0, &[7; 5000]).await.expect("there is room");
        let give = AttrChange { uid: Some(ANN), gid: Some(ANN), ..AttrChange::default() };
        client.files().setattr(&root(), told.fid, give, None).await.expect("root may");
        client.files().write(handle, 8192, &[7; 5000]).await.expect("there is room");
        client.files().fsync(handle).await.expect("there is room");
        until_used(&rt, &client, ANN, 16384).await;
        assert!(
            client.admin().counters().get("ahead.made").is_some_and(|made| *made > 0),
            "they are told ahead"
        );
    });
}
