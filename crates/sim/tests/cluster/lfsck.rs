//! Checks of a file system that is in use (`docs/operations.md#lfsck`): what is damaged, missing or nobody's is named, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use client::{AttrChange, Client};
use proto::layout::{HintPart, LayoutHint};
use proto::wire::messages::{Destroy, Parameter, ReadParameters, SetParameters, ShownParameter, Write};
use proto::{Fid, FileOwner, Layout, ObjectId, TargetId, Timestamp};
use rt::Rt;
use rt::sim::Span;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const OSTS: u32 = 3;
const MIB: usize = 1 << 20;

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: OSTS, osts_per_oss: 1 }, test);
}

async fn set(cluster: &Cluster, value: &str) {
    let name = "mdd.sim-MDT0000.lfsck".to_owned();
    let order = SetParameters { parameters: vec![Parameter { name, value: value.to_owned() }] };
    cluster.ask(TargetId::mdt(0), "mds", order).await.expect("the MDT takes it");
}

async fn get(cluster: &Cluster, name: &str) -> String {
    let patterns = vec![format!("mdd.*.{name}")];
    let read = ReadParameters { patterns, skip: 0, names_only: false };
    let page = cluster.ask(TargetId::mdt(0), "mds", read).await.expect("the MDT tells");
    let values = page.parameters.into_iter().map(|ShownParameter { value, .. }| value);
    values.collect::<Vec<String>>().join("\n")
}

/// Checks, and gives what was found.
async fn lfsck(cluster: &Cluster, rt: &Rt, what: &str) -> Vec<String> {
    set(cluster, &format!("start {what} rate=0")).await;
    for _ in 0..1000 {
        rt.sleep(Duration::from_millis(100)).await;
        let states = [get(cluster, "lfsck_namespace").await, get(cluster, "lfsck_layout").await];
        if !states.iter().any(|state| state.contains("status: scanning")) {
            assert!(!states.iter().any(|state| state.contains("status: failed")), "{states:?}");
            return get(cluster, "lfsck_findings").await.lines().map(str::to_owned).collect();
        }
    }
    panic!("the check does not end: {}", get(cluster, "lfsck_layout").await);
}

fn hint(stripe_count: i32, stripe_size: u32) -> LayoutHint {
    LayoutHint { stripe_count, stripe_size, ..LayoutHint::default() }
}

/// A file with these bytes, durable and closed.
async fn file(client: &Client, name: &str, hint: LayoutHint, bytes: &[u8]) -> Fid {
    let made = client
        .names()
        .create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint)
        .await
        .expect("the OSTs are there");
    let handle = client.files().open(&root(), made.fid, READ_WRITE).await.expect("root may");
    client.files().write(handle, 0, bytes).await.expect("there is room");
    client.files().fsync(handle).await.expect("the disks work");
    client.files().release(handle).await;
    made.fid
}

async fn layout(client: &Client, fid: Fid) -> Layout {
    client.names().layout(fid).await.expect("it is there").expect("of a file")
}

/// Files of all kinds: one stripe, three stripes, with the first bytes on the MDT, one that was moved, and one that exchanged its
/// data with another.
async fn tree(cluster: &Cluster, client: &Client) -> [Fid; 4] {
    cluster.osts_are_known(client).await;
    let plain = file(client, "plain", hint(1, 65_536), &vec![1; MIB]).await;
    let wide = file(client, "wide", hint(3, 65_536), &vec![2; MIB]).await;
    let end = HintPart::new(u64::MAX, hint(1, 65_536));
    let on_mdt = LayoutHint { parts: vec![HintPart::mdt(65_536), end], ..LayoutHint::default() };
    let small = file(client, "small", on_mdt, &vec![3; 1000]).await;
    let moved = file(client, "moved", hint(1, 65_536), &vec![4; MIB]).await;
    client.migrate(&root(), moved, hint(2, 131_072)).await.expect("the owner may");
    client.sync_all().await.expect("the disks work");
    [plain, wide, small, moved]
}

/// Changes one byte of the last block on `server` that has only bytes `byte`.
async fn flip(cluster: &Cluster, server: &str, directory: &str, byte: u8) {
    let dir = cluster.handle().rt(server).disk().open_dir(directory).await.expect("it is there");
    let data = dir.subdir("data").await.expect("it is there");
    for name in data.list().await.expect("the disk works") {
        let Ok(file) = data.open(&name).await else { continue };
        let len = file.len().await.expect("the disk works") as usize;
        let whole = file.read_at(0, len).await.expect("the disk works");
        let Some(block) = whole.chunks(4096).rposition(|block| block[..900].iter().all(|of| *of == byte))
        else {
            continue;
        };
        file.write_at(block as u64 * 4096 + 5, vec![Bytes::from(vec![byte ^ 1])]).await.expect("it works");
        return;
    }
    panic!("no block of {byte}");
}

#[test]
fn a_file_system_in_order_has_nothing_to_find() {
    check(1, async |cluster| {
        let (rt, client) = cluster.mount("user").await;
        tree(cluster, &client).await;
        client.names().unlink(&root(), Fid::ROOT, b"wide").await.expect("it is there");
        // What is to be destroyed is still there.
        let found = lfsck(cluster, &rt, "namespace layout scrub").await;
        assert_eq!(found, Vec::<String>::new());
        rt.sleep(Duration::from_secs(30)).await;
        assert_eq!(lfsck(cluster, &rt, "namespace layout scrub").await, Vec::<String>::new());
        let text = get(cluster, "lfsck_layout").await;
        assert!(text.contains("success_count: 2") && text.contains("bytes_read: 2098152"), "{text}");
    });
}

#[test]
fn damage_is_named_by_path_and_offset() {
    check(2, async |cluster| {
        let (rt, client) = cluster.mount("user").await;
        let [plain, wide, _, moved] = tree(cluster, &client).await;
        assert_eq!(lfsck(cluster, &rt, "layout scrub").await, Vec::<String>::new());
        let server_of = async |fid: Fid| {
            let first = layout(&client, fid).await.osts().next().expect("it has objects");
            (format!("oss{}", first.0), format!("/ost{}", first.0))
        };
        for (fid, byte) in [(plain, 1), (wide, 2), (moved, 4)] {
            let (server, directory) = server_of(fid).await;
            flip(cluster, &server, &directory, byte).await;
        }
        flip(cluster, "mds", "/mdt0", 3).await;
        assert_eq!(lfsck(cluster, &rt, "namespace layout").await, Vec::<String>::new(), "nothing is read");
        let mut found = lfsck(cluster, &rt, "scrub").await;
        found.sort();
        let begins: Vec<&str> = found.iter().filter_map(|line| line.split(" bytes ").next()).collect();
        assert_eq!(begins, ["damaged: /moved", "damaged: /plain", "damaged: /small", "damaged: /wide"]);
        let ranges: Vec<&str> = found.iter().filter_map(|line| line.split(" (").next()).collect();
        for (line, end) in
            ranges.iter().zip(["913408 to 917503", "1044480 to 1048575", "0 to 999", "1044480 to 1048575"])
        {
            assert!(line.ends_with(end), "{line}: {end}");
        }
    });
}

#[test]
fn what_is_missing_and_what_is_nobodys_is_named_and_deleted_only_when_asked() {
    check(3, async |cluster| {
        let (rt, client) = cluster.mount("user").await;
        let [plain, wide, ..] = tree(cluster, &client).await;
        // The MDT has their sizes.
        rt.sleep(Duration::from_secs(10)).await;
        // The object with the last byte of each goes behind the MDT's back, and one comes that no file has.
        let stranger =
            ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START + 77, oid: 5, ver: 0 }, stripe: 2 };
        let last_of = async |fid: Fid| {
            let layout = layout(&client, fid).await;
            let place = layout
                .touched(MIB as u64 - 1, 1)
                .next()
                .and_then(|component| component.place(component.locate(MIB as u64 - 1).0));
            let place = place.expect("it has objects");
            (place.object, place.target.ost().expect("on an OST").0)
        };
        let mut expected = Vec::new();
        for (fid, path) in [(plain, "/plain"), (wide, "/wide")] {
            let (object, ost) = last_of(fid).await;
            let destroy = Destroy { objects: vec![object], dead: Vec::new() };
            cluster
                .as_server(TargetId::ost(ost), &format!("oss{ost}"), async |import| {
                    import.call(destroy).await.expect("it is there");
                })
                .await;
            expected.push(format!(
                "missing: {path}: object {}:{} on OST{ost:04x} is missing",
                object.layout, object.stripe
            ));
        }
        let write = Write {
            object: stranger,
            offset: 0,
            time: Timestamp { secs: 1, nanos: 0 },
            locked: true,
            sync: true,
            owner: FileOwner { uid: 1, gid: 1, version: 1, project: 0 },
        };
        cluster
            .as_server(TargetId::ost(1), "oss1", async |import| {
                import.call_bulk(write, vec![Bytes::from_static(b"nobody")]).await.expect("there is room");
            })
            .await;
        let orphan = format!("orphan: object {}:2 on OST0001, 6 bytes, belongs to no file", stranger.layout);
        expected.push(orphan.clone());
        let is_as_expected = |found: &[String], expected: &[String]| {
            found.len() == expected.len()
                && expected.iter().all(|begin| found.iter().any(|line| line.starts_with(begin)))
        };
        for _ in 0..2 {
            let found = lfsck(cluster, &rt, "namespace layout").await;
            assert!(is_as_expected(&found, &expected), "{found:?}");
        }
        let found = lfsck(cluster, &rt, "layout delete_orphans").await;
        assert!(found.contains(&format!("{orphan}: deleted")), "{found:?}");
        expected.pop();
        let found = lfsck(cluster, &rt, "layout").await;
        assert!(is_as_expected(&found, &expected), "{found:?}");
    });
}

/// Checks again and again; the MDT may be away.
async fn check_all_the_time(cluster: Cluster, rt: Rt) {
    for _ in 0..40 {
        let name = "mdd.sim-MDT0000.lfsck".to_owned();
        let value = "start namespace layout scrub rate=0".to_owned();
        let order = SetParameters { parameters: vec![Parameter { name, value }] };
        let _ = cluster.ask(TargetId::mdt(0), "mds", order).await;
        rt.sleep(Duration::from_millis(150)).await;
        let patterns = vec!["mdd.*.lfsck_findings".into()];
        let read = ReadParameters { patterns, skip: 0, names_only: false };
        if let Ok(page) = cluster.ask(TargetId::mdt(0), "mds", read).await {
            let found: Vec<String> = page.parameters.into_iter().map(|one| one.value).collect();
            assert!(found.iter().all(String::is_empty), "{found:?}");
        }
    }
}

/// While files are made, written, moved and removed, and servers are killed, nothing is taken for wrong.
#[test]
fn what_changes_meanwhile_is_not_taken_for_wrong() {
    for seed in 10..16 {
        check(seed, async |cluster| {
            let (rt, client) = cluster.mount("user").await;
            tree(cluster, &client).await;
            let mut old = Vec::new();
            for n in 0..50 {
                old.push(file(&client, &format!("old{n}"), hint(1 + n % 3, 65_536), &vec![8; 200_000]).await);
            }
            // The MDT has their sizes.
            rt.sleep(Duration::from_secs(10)).await;
            // What the MDT knows and what an OST says are of different moments.
            for oss in ["oss0", "oss1", "oss2"] {
                cluster.handle().set_latency("mds", oss, Span { min_ns: 20_000_000, max_ns: 60_000_000 });
            }
            rt.spawn(check_all_the_time(cluster.clone(), rt.clone()));
            for round in 0..150 {
                let name = format!("f{round}");
                let fid = file(&client, &name, hint(1 + round % 3, 65_536), &vec![9; 200_000]).await;
                if round % 4 == 0 {
                    client.migrate(&root(), fid, hint(2, 65_536)).await.expect("the owner may");
                }
                if let Some(fid) = old.pop().filter(|_| round > 5) {
                    let cut = AttrChange { size: Some(u64::from(round as u32 % 2)), ..AttrChange::default() };
                    client.files().setattr(&root(), fid, cut, None).await.expect("root may");
                }
                if round % 3 == 0 {
                    client.names().unlink(&root(), Fid::ROOT, name.as_bytes()).await.expect("it is there");
                }
                if round % 2 == 0 {
                    rt.sleep(Duration::from_millis(u64::from(round as u32 % 7) * 10)).await;
                }
                if round % 50 == 40 {
                    let server = ["oss0", "mds", "oss2"][round as usize % 3].to_owned();
                    cluster.cut_power(std::slice::from_ref(&server));
                    cluster.restart(&[server]);
                }
            }
            rt.sleep(Duration::from_secs(60)).await;
            let found = lfsck(cluster, &rt, "namespace layout scrub").await;
            assert_eq!(found, Vec::<String>::new(), "seed {seed}");
        });
    }
}
