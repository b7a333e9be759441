//! A target that restarts gives transnos to changes of its own, and what clients replay gets others: nothing that was answered is lost
//! as long as its client lives (`docs/recovery.md#renumbered`).

use std::sync::Arc;
use std::time::Duration;

use client::{AttrChange, Client, Error, Handle};
use proto::{Code, Fid};
use rt::Rt;
use rt::sim::{Options, Sim, Step};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::scenario::on;
use weft_sim::workload::{READ, READ_WRITE, root};

const FILES: usize = 8;
/// Bytes of a second that a slow disk writes: each write takes a moment.
const SLOW: u64 = 20 << 20;

/// The syncs of the OST after which its power fails: while it takes extents away.
const CUT_SYNCS: std::ops::Range<u64> = 4..8;
/// The same in a recovery.
const REPLAY_SYNCS: std::ops::Range<u64> = 13..18;

/// Blocks of a file: how many, how far apart, how long, and how long after another.
#[derive(Clone, Copy)]
struct Blocks {
    count: u64,
    apart: u64,
    len: usize,
    pause: Duration,
}

impl Blocks {
    fn of(self, n: u64) -> (u64, Vec<u8>) {
        (n * self.apart, vec![n as u8; self.len])
    }
}

fn run(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    let sim = Sim::new(Options::seed(seed));
    let cluster = Cluster::new(sim.handle(), Shape { osts: 1, osts_per_oss: 1 });
    sim.run(async {
        cluster.format().await;
        test(&cluster).await;
    });
}

async fn make(client: &Client, name: &str) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

/// New files whose first bytes are durable.
async fn make_all(client: &Client) -> Vec<(Fid, Handle)> {
    let mut made = Vec::new();
    for file in 0..FILES {
        let (fid, handle) = make(client, &format!("f{file}")).await;
        client.files().write(handle, 0, b"first").await.expect("there is room");
        client.files().fsync(handle).await.expect("it is healthy");
        made.push((fid, handle));
    }
    made
}

async fn write(rt: Rt, client: Arc<Client>, handle: Handle, blocks: Blocks) {
    for n in 1..blocks.count {
        let (offset, bytes) = blocks.of(n);
        client.files().write(handle, offset, &bytes).await.expect("it lives");
        client.files().flush(handle).await.expect("it lives");
        rt.sleep(blocks.pause).await;
    }
}

/// Another client reads every block, after the one that wrote them was told that all is durable.
async fn check(cluster: &Cluster, client: &Client, files: &[(Fid, Handle)], blocks: Blocks) {
    client.sync_all().await.expect("it is healthy");
    let (_, fresh) = cluster.mount("fresh").await;
    let mut lost = Vec::new();
    for (fid, _) in files {
        let handle = fresh.files().open(&root(), *fid, READ).await.expect("root may");
        for n in 1..blocks.count {
            let (offset, wanted) = blocks.of(n);
            let bytes = fresh.files().read(handle, offset, blocks.len as u32).await.expect("it can be read");
            if bytes.concat() != wanted {
                lost.push((*fid, n));
            }
        }
    }
    assert!(lost.is_empty(), "what was answered is lost, although its client lives: {lost:?}");
}

/// An OST that lost power while it took very many extents away goes on with that, but not before its clients have replayed.
#[test]
fn what_an_ost_takes_away_at_its_start_is_in_nobodys_way() {
    let blocks = Blocks { count: 60, apart: 1 << 16, len: 32 << 10, pause: Duration::from_micros(100) };
    for syncs in CUT_SYNCS {
        run(syncs, async |cluster| {
            let world = cluster.handle();
            // The log of a small disk takes what is cut in several groups.
            world.set_capacity("oss0", 480 << 20);
            cluster.start_servers();
            let (rt, user) = cluster.mount("user").await;
            let (other_rt, other) = cluster.mount("other").await;
            cluster.osts_are_known(&other).await;
            let (large, handle) = make(&user, "large").await;
            for n in 0..60_000 {
                user.files().write(handle, n << 13, b"x").await.expect("there is room");
            }
            user.files().fsync(handle).await.expect("it is healthy");
            let files = make_all(&other).await;
            let writing = |(_, handle): &(Fid, Handle)| {
                on(world, "other", write(other_rt.clone(), other.clone(), *handle, blocks))
            };
            let writers: Vec<_> = files.iter().map(writing).collect();
            world.set_disk_speed("oss0", SLOW);
            rt.sleep(Duration::from_millis(3)).await;
            world.crash_at("oss0", Step::Sync, syncs);
            let cutting = on(world, "user", async move {
                let change = AttrChange { size: Some(0), ..AttrChange::default() };
                user.files().setattr(&root(), large, change, None).await.map(drop)
            });
            rt.sleep(Duration::from_millis(2500)).await;
            let servers = ["oss0".to_owned()];
            cluster.cut_power(&servers);
            cluster.restart(&servers);
            cutting.await.expect("it lives").expect("root may");
            for writer in writers {
                writer.await.expect("it lives");
            }
            check(cluster, &other, &files, blocks).await;
        });
    }
}

/// An OST merges small extents while clients replay, which takes transnos: what is replayed behind it gets other ones than before, and
/// then the power fails again.
#[test]
fn what_is_replayed_under_another_number_is_kept_until_that_is_durable() {
    let blocks = Blocks { count: 160, apart: 6000, len: 3000, pause: Duration::from_millis(1) };
    for syncs in REPLAY_SYNCS {
        run(syncs, async |cluster| {
            let world = cluster.handle();
            cluster.start_servers();
            let (rt, user) = cluster.mount("user").await;
            cluster.osts_are_known(&user).await;
            let files = make_all(&user).await;
            let writing = |(_, handle): &(Fid, Handle)| {
                on(world, "user", write(rt.clone(), user.clone(), *handle, blocks))
            };
            let writers: Vec<_> = files.iter().map(writing).collect();
            rt.sleep(Duration::from_millis(75)).await;
            let servers = ["oss0".to_owned()];
            cluster.cut_power(&servers);
            world.set_disk_speed("oss0", SLOW);
            cluster.restart(&servers);
            world.crash_at("oss0", Step::Sync, syncs);
            rt.sleep(Duration::from_millis(2500)).await;
            cluster.cut_power(&servers);
            cluster.restart(&servers);
            for writer in writers {
                writer.await.expect("it lives");
            }
            check(cluster, &user, &files, blocks).await;
        });
    }
}

/// Closes of readers were the newest changes of an MDT, and change nothing when they are replayed. They take their numbers all the
/// same, or what comes behind them would pass for durable before it is.
#[test]
fn what_comes_behind_replays_that_changed_nothing_is_kept() {
    run(31, async |cluster| {
        cluster.start_servers();
        let (rt, client) = cluster.mount("user").await;
        cluster.osts_are_known(&client).await;
        let files = make_all(&client).await;
        for (_, handle) in &files {
            client.files().release(*handle).await;
        }
        client.sync_all().await.expect("it is healthy");
        rt.sleep(Duration::from_secs(3)).await;
        for (fid, _) in &files {
            let handle = client.files().open(&root(), *fid, READ).await.expect("root may");
            client.files().read(handle, 0, 100).await.expect("it can be read");
            client.files().release(handle).await;
        }
        let servers = ["mds".to_owned()];
        cluster.cut_power(&servers);
        cluster.restart(&servers);
        let (fid, handle) = make(&client, "new").await;
        client.files().fsync(handle).await.expect("it is healthy");
        cluster.cut_power(&servers);
        cluster.restart(&servers);
        let found =
            rt.timeout(Duration::from_secs(300), client.names().lookup(&root(), Fid::ROOT, b"new")).await;
        assert_eq!(found.expect("the MDT serves it").expect("it is there").fid, fid);
    });
}

/// A client is given up while it is cut off, and with it what the MDT lost: it hears of the loss once. The numbers of what was lost are not given
/// again, so that what it does afterwards does not pass for lost, too.
#[test]
fn numbers_of_what_is_lost_are_not_given_again() {
    run(7, async |cluster| {
        let world = cluster.handle();
        cluster.start_servers();
        let (rt, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        let mkdir = async |client: &Client, name: &str| {
            let (name, none) = (name.as_bytes(), bytes::Bytes::new());
            client.names().make(&root(), Fid::ROOT, name, 0o040_755, 0, none).await.map(drop)
        };
        mkdir(&other, "others").await.expect("a new name");
        other.sync_all().await.expect("it is healthy");
        for n in 0..40 {
            mkdir(&user, &format!("lost{n}")).await.expect("a new name");
        }
        let servers = ["mds".to_owned()];
        cluster.cut_power(&servers);
        ["mgs", "mds", "oss0"].iter().for_each(|server| world.partition("user", server));
        cluster.restart(&servers);
        mkdir(&other, "later").await.expect("the one that is cut off is given up");
        ["mgs", "mds", "oss0"].iter().for_each(|server| world.heal("user", server));
        let names = user.names();
        let lost = rt.timeout(Duration::from_secs(300), names.lookup(&root(), Fid::ROOT, b"lost39")).await;
        assert!(lost.expect("the MDT serves it").is_err(), "nothing was lost");
        mkdir(&user, "new").await.expect("a new name");
        assert_eq!(user.sync_all().await, Err(Error::Refused(Code::Evicted)), "it is told of the loss");
        mkdir(&user, "newest").await.expect("a new name");
        assert_eq!(user.sync_all().await, Ok(()), "what is lost was told");
        cluster.cut_power(&servers);
        cluster.restart(&servers);
        for name in ["new", "newest"] {
            other
                .names()
                .lookup(&root(), Fid::ROOT, name.as_bytes())
                .await
                .expect("it was said to be durable");
        }
    });
}
