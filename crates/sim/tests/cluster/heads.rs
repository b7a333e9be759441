//! Small files on the MDT that several clients write and read at the same time: the bytes that come with an open are those of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, OpenFlags};
use proto::Fid;
use proto::layout::{HintPart, LayoutHint};
use rt::Rt;
use rt::sim::{Options, Rng, Sim};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::scenario::on;
use weft_sim::workload::{READ, READ_WRITE, root};

const VERSIONS: u64 = 30;
const WORDS: usize = 500;
const CLIENTS: usize = 3;

/// The file, and how far its writers are.
struct Shared {
    fid: Fid,
    begun: AtomicU64,
    done: AtomicU64,
    over: AtomicBool,
}

fn bytes_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(WORDS)
}

/// The version that all of the file has.
fn version_of(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len(), WORDS * 8, "a file has all of its bytes");
    let (words, _) = bytes.as_chunks::<8>();
    let first = u64::from_le_bytes(words[0]);
    assert!(words.iter().all(|word| u64::from_le_bytes(*word) == first), "parts of two versions");
    first
}

/// Opens the file, reads it, and sees what was written before, and nothing that is to come.
async fn look(client: &Client, shared: &Shared, flags: OpenFlags) {
    let least = shared.done.load(Ordering::Relaxed);
    let handle = client.files().open(&root(), shared.fid, flags).await.expect("root may open");
    let read = client.files().read(handle, 0, 8192).await.expect("what is healthy can be read").concat();
    let (found, most) = (version_of(&read), shared.begun.load(Ordering::Relaxed));
    assert!((least..=most).contains(&found), "version {found} is seen, between {least} and {most}");
    client.files().release(handle).await;
}

async fn read_all(rt: Rt, client: Arc<Client>, shared: Arc<Shared>, mut rng: Rng) {
    while !shared.over.load(Ordering::Relaxed) {
        let flags = if rng.one_in(40) { READ_WRITE } else { READ };
        // The kernel's look-ups: what is known of the file decides what an open asks for.
        drop(client.names().getattr(shared.fid).await.expect("it is there"));
        look(&client, &shared, flags).await;
        rt.sleep(Duration::from_micros(rng.below(60_000))).await;
    }
}

/// Each version is written by one of the clients, when that of before is.
async fn write_all(rt: Rt, clients: Vec<Arc<Client>>, shared: Arc<Shared>, mut rng: Rng) {
    for version in 1..=VERSIONS {
        let client = rng.pick(&clients).clone();
        let handle = client.files().open(&root(), shared.fid, READ_WRITE).await.expect("root may open");
        if rng.one_in(2) {
            look(&client, &shared, READ).await;
        }
        shared.begun.store(version, Ordering::Relaxed);
        client.files().write(handle, 0, &bytes_of(version)).await.expect("there is room");
        shared.done.store(version, Ordering::Relaxed);
        rt.sleep(Duration::from_micros(rng.below(3000))).await;
        client.files().release(handle).await;
        // The size is known some time after the last writer's close, and then opens bring the bytes.
        rt.sleep(Duration::from_micros(rng.below(1_500_000))).await;
    }
    shared.over.store(true, Ordering::Relaxed);
}

async fn run(cluster: &Cluster) {
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        clients.push(cluster.mount(&format!("c{n}")).await);
    }
    let parts = vec![HintPart::mdt(64 << 10), HintPart::new(u64::MAX, LayoutHint::default())];
    let hint = LayoutHint { parts, ..LayoutHint::default() };
    let first = &clients[0].1;
    let made = first.names().create_with_layout(&root(), Fid::ROOT, b"f", 0o100_644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    let handle = first.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
    first.files().write(handle, 0, &bytes_of(0)).await.expect("there is room");
    first.files().release(handle).await;
    let (begun, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { fid, begun, done, over });
    let rng = |name: &str| cluster.handle().rng(name);
    let mut tasks = Vec::new();
    for (n, (rt, client)) in clients.iter().enumerate() {
        for reader in 0..2 {
            let rng = rng(&format!("reader {n} {reader}"));
            let reading = read_all(rt.clone(), client.clone(), shared.clone(), rng);
            tasks.push(on(cluster.handle(), &format!("c{n}"), reading));
        }
    }
    let (rt, writers) = (&clients[0].0, clients.iter().map(|(_, client)| client.clone()).collect());
    write_all(rt.clone(), writers, shared.clone(), rng("writer")).await;
    for task in tasks {
        task.await.expect("the task ends");
    }
    let brought = |client: &Client| client.admin().counters().get("lock.brought").copied().unwrap_or(0);
    assert!(clients.iter().any(|(_, client)| brought(client) > 0), "opens bring what they can");
}

#[test]
fn an_open_brings_what_was_written_before() {
    for seed in 0..4 {
        let sim = Sim::new(Options::seed(seed));
        let cluster = Cluster::new(sim.handle(), Shape { osts: 1, osts_per_oss: 1 });
        sim.run(async {
            cluster.format().await;
            cluster.start_servers();
            run(&cluster).await;
        });
    }
}

/// An open brings all of a file, and a client that was about to use a part of that gives the rest up together with its bytes.
#[test]
fn what_is_given_up_unused_is_not_read_any_more() {
    let sim = Sim::new(Options::seed(9));
    let cluster = Cluster::new(sim.handle(), Shape { osts: 1, osts_per_oss: 1 });
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        let (rt, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        let (_, c) = cluster.mount("c").await;
        let parts = vec![HintPart::mdt(64 << 10), HintPart::new(u64::MAX, LayoutHint::default())];
        let hint = LayoutHint { parts, ..LayoutHint::default() };
        let made = c.names().create_with_layout(&root(), Fid::ROOT, b"f", 0o100_644, hint).await;
        let fid = made.expect("a new name can be made").fid;
        let writer = c.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        c.files().write(writer, 0, &[1; 8192]).await.expect("there is room");
        c.files().release(writer).await;
        c.unmount().await.expect("it is healthy");
        rt.sleep(Duration::from_secs(3)).await;
        drop(a.names().getattr(fid).await.expect("it is there"));
        let reader = a.files().open(&root(), fid, READ).await.expect("root may open");
        assert_eq!(a.files().read(reader, 0, 100).await.expect("it can be read").concat(), [1; 100]);
        assert!(
            a.admin().counters().get("lock.brought").is_some_and(|brought| *brought > 0),
            "the open brings it"
        );
        let writer = b.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        b.files().write(writer, 50, &[2; 10]).await.expect("there is room");
        b.files().write(writer, 200, &[2; 8]).await.expect("there is room");
        b.files().fsync(writer).await.expect("it is healthy");
        assert_eq!(a.files().read(reader, 200, 8).await.expect("it can be read").concat(), [2; 8]);
    });
}
