//! OSTs with little room: those that are full are passed over, and those with more room get more files, also over crashes.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Error, OpenFlags};
use proto::layout::LayoutHint;
use proto::wire::messages::{Parameter, SetParameters};
use proto::{Code, Fid, OstIndex, TargetId};
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const MDS: &str = "mds";
const GIB: u64 = 1 << 30;
const SMALL: u32 = 2;
const FILES: usize = 256;
const EXCLUSIVE: OpenFlags = OpenFlags { exclusive: true, ..READ_WRITE };

/// Four OSTs on disks of their own, and two mounts.
fn check(seed: u64, test: impl AsyncFnOnce(&Cluster, Arc<Client>, Arc<Client>)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 1 }, async |cluster| {
        for n in 0..4 {
            capacity(cluster, n, 8 * GIB);
        }
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        test(cluster, a, b).await;
    });
}

fn capacity(cluster: &Cluster, ost: u32, bytes: u64) {
    cluster.handle().set_capacity(&format!("oss{ost}"), bytes);
}

/// Until the MDT has asked all OSTs once more: the next file has it ask, and those behind that go by the answers.
async fn until_asked(cluster: &Cluster, client: &Client, name: &str) {
    let clock = cluster.handle().rt("clock");
    clock.sleep(Duration::from_secs(6)).await;
    make(client, name, 1).await;
    clock.sleep(Duration::from_secs(1)).await;
}

async fn make(client: &Client, name: &str, stripe_count: i32) -> (Fid, Vec<u32>) {
    let hint = LayoutHint { stripe_count, ..LayoutHint::default() };
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    (fid, lies(client, fid).await)
}

async fn lies(client: &Client, fid: Fid) -> Vec<u32> {
    let layout = client.names().layout(fid).await.expect("it is there").expect("a file has one");
    layout.osts().map(|ost| ost.0).collect()
}

/// How many of so many files lie on each OST, and where each of them does.
async fn make_many(client: &Client, prefix: &str) -> ([usize; 4], Vec<(Fid, Vec<u32>)>) {
    let mut made = Vec::new();
    for n in 0..FILES {
        made.push(make(client, &format!("{prefix}{n}"), 1).await);
    }
    let count = |ost| made.iter().filter(|(_, osts)| osts[..] == [ost]).count();
    ([0, 1, 2, 3].map(count), made)
}

async fn set(cluster: &Cluster, last: &str, value: &str) -> Result<(), Code> {
    let parameter = Parameter { name: format!("lod.*.{last}"), value: value.to_owned() };
    let order = SetParameters { parameters: vec![parameter] };
    match cluster.ask(TargetId::mdt(0), MDS, order).await {
        Ok(_) => Ok(()),
        Err(rpc::AskError::Refused(code)) => Err(code),
        Err(error) => panic!("the MDT answers, it is not: {error}"),
    }
}

#[test]
fn files_go_where_the_room_is() {
    for seed in 1..4 {
        check(seed, async |cluster, a, b| {
            let (even, _) = make_many(&a, "even").await;
            assert!(even.iter().all(|count| (60..=68).contains(count)), "all have as much: {even:?}");
            capacity(cluster, SMALL, 2 * GIB);
            until_asked(cluster, &a, "ask").await;
            let (uneven, made) = make_many(&a, "uneven").await;
            // Two GiB of 26, and less of that than a disk has.
            let [others @ .., small] = [0, 1, 3, 2].map(|ost: usize| uneven[ost]);
            assert!((4..=22).contains(&small) && others.iter().all(|n| *n > 70), "{uneven:?}");

            // What is not durable yet is made again as it was, and what is made afterwards as before.
            cluster.kill(MDS);
            cluster.restart(&[MDS.to_owned()]);
            for (fid, osts) in made {
                assert_eq!(lies(&b, fid).await, osts);
            }
            let (after, _) = make_many(&a, "after").await;
            assert!(after[SMALL as usize] <= 22, "{after:?}");

            assert_eq!(set(cluster, "qos_threshold_rr", "101").await, Err(Code::Invalid));
            assert_eq!(set(cluster, "qos_threshold_rr", "100%").await, Ok(()));
            cluster.handle().rt("clock").sleep(Duration::from_secs(1)).await;
            let (in_turn, _) = make_many(&a, "turn").await;
            assert!(in_turn.iter().all(|count| (60..=68).contains(count)), "{in_turn:?}");
        });
    }
}

/// What a client makes in a directory of its own, of which the MDT hears later.
async fn make_ahead(client: &Client, dir: &str) -> Vec<u32> {
    let dir =
        client.names().make(&root(), Fid::ROOT, dir.as_bytes(), 0o040_755, 0, bytes::Bytes::new()).await;
    let dir = dir.expect("a new name can be made").fid;
    let mut osts = Vec::new();
    for n in 0..FILES {
        let name = format!("f{n}").into_bytes();
        let made = client.files().create(&root(), dir, &name, 0o644, EXCLUSIVE).await;
        let (told, handle) = made.expect("a new name can be made");
        let attr: proto::Attr = told.into();
        osts.extend(lies(client, attr.fid).await);
        client.files().release(handle).await;
    }
    osts
}

#[test]
fn a_full_ost_is_passed_over() {
    check(5, async |cluster, a, b| {
        a.admin().set_metadata_writeback(true);
        capacity(cluster, SMALL, 64 << 20);
        fill(&b, "large", SMALL).await;
        until_asked(cluster, &b, "ask").await;
        let (counts, _) = make_many(&b, "full").await;
        assert!(counts[SMALL as usize] == 0 && counts.iter().sum::<usize>() == FILES, "{counts:?}");
        let (_, mut all) = make(&b, "all", -1).await;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 3]);
        let asked = || a.admin().counters().get("rpc.Create").copied().unwrap_or(0);
        let before = asked();
        let ahead = make_ahead(&a, "ahead").await;
        assert!(!ahead.contains(&SMALL), "{ahead:?}");
        assert!(asked() < before + FILES as u64 / 2, "the MDT was told of most, and not asked");
        let hint = LayoutHint { osts: vec![OstIndex(SMALL)], ..LayoutHint::default() };
        let named = b.names().create_with_layout(&root(), Fid::ROOT, b"named", 0o100_644, hint).await;
        assert_eq!(lies(&b, named.expect("who names it gets it").fid).await, [SMALL]);

        // There is room again: a full OST that is asked looks, and says it when it is asked again.
        capacity(cluster, SMALL, 8 * GIB);
        until_asked(cluster, &b, "once").await;
        until_asked(cluster, &b, "again").await;
        let (counts, _) = make_many(&b, "room").await;
        assert!(counts.iter().all(|count| (55..=72).contains(count)), "{counts:?}");

        // None has any: that is said by the write.
        for ost in 0..4 {
            capacity(cluster, ost, 64 << 20);
            fill(&b, &format!("large{ost}"), ost).await;
        }
        until_asked(cluster, &b, "none").await;
        let (fid, osts) = make(&b, "nowhere", 1).await;
        assert_eq!(osts.len(), 1);
        assert_eq!(write(&b, fid, 1 << 20).await, Err(Code::NoSpace));
    });
}

/// Writes a file of one stripe on that OST until there is no room.
async fn fill(client: &Client, name: &str, ost: u32) {
    let hint = LayoutHint { osts: vec![OstIndex(ost)], ..LayoutHint::default() };
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let fid = made.expect("who names it gets it").fid;
    assert_eq!(write(client, fid, GIB).await, Err(Code::NoSpace));
}

/// Writes so many bytes, and syncs them.
async fn write(client: &Client, fid: Fid, bytes: u64) -> Result<(), Code> {
    let code = |error| match error {
        Error::Refused(code) => code,
        error => panic!("the OST answers, it is not: {error}"),
    };
    let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("it is there");
    for offset in (0..bytes).step_by(1 << 20) {
        client.files().write(handle, offset, &[7; 1 << 20]).await.map_err(code)?;
        client.files().fsync(handle).await.map_err(code)?;
    }
    Ok(())
}
