//! Files whose first bytes lie on the MDT.

use std::time::Duration;

use client::{AttrChange, Client, Handle, OpenFlags};
use proto::layout::{HintPart, LayoutHint, Pattern};
use proto::{Fid, TargetId};
use rt::sim::Span;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ, READ_WRITE, root};

const HEAD: u64 = 64 << 10;
const MDS: &str = "mds";

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        test(cluster).await;
    });
}

/// The first 64 KiB on the MDT, the rest on two OSTs.
fn headed() -> LayoutHint {
    let rest = LayoutHint { stripe_count: 2, stripe_size: 65_536, ..LayoutHint::default() };
    let parts = vec![HintPart::mdt(HEAD), HintPart::new(u64::MAX, rest)];
    LayoutHint { parts, ..LayoutHint::default() }
}

async fn set_default(client: &Client) {
    client.names().set_layout(&root(), Fid::ROOT, Some(headed())).await.expect("root may");
}

async fn create(client: &Client, name: &[u8]) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name, 0o644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

async fn open(client: &Client, fid: Fid, flags: OpenFlags) -> Handle {
    client.files().open(&root(), fid, flags).await.expect("root may open")
}

async fn write(client: &Client, handle: Handle, offset: u64, data: &[u8]) {
    let wrote = client.files().write(handle, offset, data).await.expect("there is room");
    assert_eq!(wrote as usize, data.len());
}

async fn read(client: &Client, handle: Handle, offset: u64, len: u32) -> Vec<u8> {
    client.files().read(handle, offset, len).await.expect("what is healthy can be read").concat()
}

async fn content(client: &Client, name: &[u8]) -> Option<Vec<u8>> {
    let fid = client.names().lookup(&root(), Fid::ROOT, name).await.ok()?.fid;
    let handle = open(client, fid, READ).await;
    let found = read(client, handle, 0, 1 << 20).await;
    client.files().release(handle).await;
    Some(found)
}

async fn size(client: &Client, fid: Fid) -> u64 {
    client.names().getattr(fid).await.expect("it is there").size
}

/// The OSTs with which a client has had a session.
fn osts(client: &Client) -> usize {
    client.admin().memory.ost_uses().len()
}

/// Asks that an OST answers, or an MDT.
fn asked(client: &Client, operation: &str) -> u64 {
    client.admin().counters().get(operation).copied().unwrap_or(0)
}

#[test]
fn a_small_file_needs_no_ost() {
    check(1, async |cluster| {
        let (rt, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        set_default(&a).await;
        let data = vec![7; 3901];
        let (fid, one) = create(&a, b"f").await;
        write(&a, one, 0, &data).await;
        a.files().release(one).await;
        a.sync_all().await.expect("everything works");
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!((size(&a, fid).await, size(&b, fid).await), (3901, 3901));
        let asked_for_data = |client: &Client| {
            ["GetObjectAttr", "Enqueue", "Read"].map(|operation| asked(client, &format!("rpc.{operation}")))
        };
        assert_eq!(asked_for_data(&a), [0; 3], "the create granted what the write needed");
        // It takes the range from the writer; for others nobody has to be called back.
        assert_eq!(content(&b, b"f").await, Some(data.clone()));
        let (_, c) = cluster.mount("c").await;
        assert_eq!(content(&c, b"f").await, Some(data.clone()));
        assert_eq!(asked_for_data(&c), [0; 3], "the open brought what was read");
        assert_eq!(content(&a, b"f").await, Some(data));
        assert_eq!(asked(&a, "rpc.Write"), 1);
        let change = AttrChange { size: Some(10), ..AttrChange::default() };
        b.files().setattr(&root(), fid, change, None).await.expect("root may");
        assert_eq!(size(&a, fid).await, 10);
        assert_eq!(content(&a, b"f").await, Some(vec![7; 10]));
        a.names().unlink(&root(), Fid::ROOT, b"f").await.expect("root may");
        assert_eq!((osts(&a), osts(&b)), (0, 0), "nobody asked an OST");
    });
}

#[test]
fn a_file_grows_into_objects_of_osts() {
    check(2, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        set_default(&a).await;
        let (fid, one) = create(&a, b"f").await;
        let two = open(&b, fid, READ_WRITE).await;
        write(&a, one, 0, b"head").await;
        assert_eq!(read(&b, two, 0, 10).await, b"head");
        write(&b, two, HEAD - 3, b"across").await;
        assert_eq!(read(&a, one, HEAD - 4, 10).await, b"\0across");
        let log = open(&a, fid, OpenFlags { append: true, ..READ_WRITE }).await;
        write(&a, log, 0, b"end").await;
        assert_eq!(read(&b, two, HEAD, 10).await, b"ossend");
        assert_eq!((size(&a, fid).await, size(&b, fid).await), (HEAD + 6, HEAD + 6));
        for handle in [one, log] {
            a.files().release(handle).await;
        }
        b.files().release(two).await;
        let layout = a.names().layout(fid).await.expect("it is there").expect("of a file");
        let patterns: Vec<Pattern> = layout.components.iter().map(|component| component.pattern).collect();
        assert_eq!(patterns, [Pattern::Mdt, Pattern::Raid0]);
        // Away from the MDT, and back.
        let before = content(&b, b"f").await;
        for hint in [LayoutHint { stripe_count: 3, ..LayoutHint::default() }, headed()] {
            a.migrate(&root(), fid, hint).await.expect("the owner may");
            assert_eq!((size(&b, fid).await, content(&b, b"f").await), (HEAD + 6, before.clone()));
        }
    });
}

/// Power cuts of the MDS lose nothing that an application was told is durable, and nothing at all while the client lives.
#[test]
fn nothing_is_lost_with_the_mds() {
    for seed in 0..30 {
        check(seed, async |cluster| {
            let (rt, a) = cluster.mount("a").await;
            let (_, b) = cluster.mount("b").await;
            cluster.osts_are_known(&a).await;
            set_default(&a).await;
            let servers = [MDS.to_owned()];
            let (fid, one) = create(&a, b"f").await;
            write(&a, one, 0, b"first").await;
            a.files().fsync(one).await.expect("everything works");
            write(&a, one, 5, b"second").await;
            let (_, closed) = create(&a, b"g").await;
            write(&a, closed, 0, b"closed").await;
            a.files().release(closed).await;
            rt.sleep(Duration::from_micros(seed * seed * 200)).await;
            cluster.cut_power(&servers);
            cluster.restart(&servers);
            write(&a, one, 11, b"third").await;
            assert_eq!(content(&b, b"f").await.as_deref(), Some(&b"firstsecondthird"[..]));
            assert_eq!(content(&b, b"g").await.as_deref(), Some(&b"closed"[..]));
            assert_eq!(size(&b, fid).await, 16);
        });
    }
}

/// A file that replaces another one by its name is there as a whole, whatever is lost: names and data are in one log.
#[test]
fn a_file_that_replaces_another_one_is_whole() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..40 {
        check(seed, async |cluster| {
            let (rt, a) = cluster.mount("a").await;
            let (_, b) = cluster.mount("b").await;
            set_default(&a).await;
            let (_, one) = create(&a, b"f").await;
            write(&a, one, 0, b"old").await;
            a.files().fsync(one).await.expect("everything works");
            a.files().release(one).await;
            let (_, two) = create(&a, b"f.new").await;
            write(&a, two, 0, b"newer").await;
            a.files().release(two).await;
            a.names().rename(&root(), Fid::ROOT, b"f.new", Fid::ROOT, b"f", 0).await.expect("root may");
            rt.sleep(Duration::from_micros(seed * seed * 50)).await;
            cluster.handle().crash("a");
            cluster.cut_power(&[MDS.to_owned()]);
            cluster.restart(&[MDS.to_owned()]);
            match content(&b, b"f").await.as_deref() {
                Some(b"old") => old += 1,
                Some(b"newer") => new += 1,
                other => panic!("neither the old file nor the new one: {other:?}"),
            }
        });
    }
    assert!(old > 0 && new > 0, "both happen: {old} old, {new} new");
}

/// What is gone takes no space on the MDT, also if the MDS fails on the way.
#[test]
fn what_is_gone_takes_no_space() {
    for seed in 0..5 {
        check(seed, async |cluster| {
            let (rt, a) = cluster.mount("a").await;
            cluster.osts_are_known(&a).await;
            set_default(&a).await;
            let mdt = TargetId::mdt(0);
            let used = async || {
                let space = a.admin().target_space(mdt, Duration::from_secs(10)).await.expect("it tells");
                let space = space.expect("it is served");
                space.bytes_total - space.bytes_free
            };
            let write_all = async || {
                for n in 0..16_u8 {
                    let name = [b'a' + n];
                    let (_, handle) = create(&a, &name).await;
                    write(&a, handle, 0, &vec![n; HEAD as usize]).await;
                    a.files().release(handle).await;
                }
                a.sync_all().await.expect("everything works");
            };
            write_all().await;
            let full = used().await;
            for n in 0..16_u8 {
                a.names().unlink(&root(), Fid::ROOT, &[b'a' + n]).await.expect("root may");
            }
            cluster.cut_power(&[MDS.to_owned()]);
            cluster.restart(&[MDS.to_owned()]);
            rt.sleep(Duration::from_secs(60)).await;
            let empty = used().await;
            assert!(full >= empty + 8 * HEAD, "{full} bytes with the files, {empty} without");
        });
    }
}

#[test]
fn a_restarted_mdt_hears_of_many_ranges_at_the_same_time() {
    check(7, async |cluster| {
        let (rt, a) = cluster.mount("a").await;
        cluster.osts_are_known(&a).await;
        set_default(&a).await;
        cluster.handle().set_latency("a", MDS, Span::millis(5, 5));
        for n in 0..500 {
            let (_, handle) = create(&a, format!("f{n}").as_bytes()).await;
            write(&a, handle, 0, &[7; 100]).await;
            a.files().release(handle).await;
        }
        a.sync_all().await.expect("everything works");
        cluster.restart(&[MDS.to_owned()]);
        let begin = rt.now();
        create(&a, b"next").await;
        let took = rt.now() - begin;
        // One after the other they would take 500 times 10 ms.
        assert!(took < Duration::from_millis(2500), "it took {took:?}");
        assert_eq!(content(&a, b"f499").await, Some(vec![7; 100]));
    });
}
