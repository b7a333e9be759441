//! Clients that are dead, and whom nobody waits for: what they held is free after a while. One that is only away keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use client::Client;
use proto::{Fid, TargetId};
use rt::sim::Handle as World;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scenario::on;
use weft_sim::workload::{READ_WRITE, root};

const OSTS: u32 = 2;
/// Four hours without a connection, and two looks after that.
const ENDED: Duration = Duration::from_secs(4 * 3600 + 3 * 180);

fn check(test: impl AsyncFnOnce(&Cluster, &World)) {
    with_cluster(1, Shape { osts: OSTS, osts_per_oss: 1 }, async |cluster| {
        test(cluster, cluster.handle()).await;
    });
}

async fn sleep(world: &World, duration: Duration) {
    world.rt("clock").sleep(duration).await;
}

async fn objects(client: &Client) -> u64 {
    let mut objects = 0;
    for ost in (0..OSTS).map(TargetId::ost) {
        let space = client.admin().target_space(ost, Duration::from_secs(10)).await;
        let space = space.expect("it tells its space").expect("it is served");
        objects += space.files_total - space.files_free;
    }
    objects
}

fn sessions(cluster: &Cluster) -> BTreeMap<TargetId, usize> {
    cluster.granted().into_iter().map(|(target, granted)| (target, granted.sessions.len())).collect()
}

/// Makes a file, removes it, and keeps it open, with data that its OST has.
async fn keep_removed(client: &Client) -> client::Handle {
    let (files, names) = (client.files(), client.names());
    let made = files.create(&root(), Fid::ROOT, b"removed", 0o100_644, READ_WRITE).await;
    let (_, handle) = made.expect("a new name can be made");
    files.write(handle, 0, &[1; 200_000]).await.expect("there is room");
    names.unlink(&root(), Fid::ROOT, b"removed").await.expect("it is there");
    files.fsync(handle).await.expect("it is healthy");
    handle
}

#[test]
fn a_removed_file_that_a_dead_client_had_open_takes_no_space() {
    check(async |cluster, world| {
        let (_, observer) = cluster.mount("observer").await;
        let (_, dead) = cluster.mount("dead").await;
        keep_removed(&dead).await;
        assert_ne!(objects(&observer).await, 0);
        let before = sessions(cluster);
        world.kill("dead");
        sleep(world, Duration::from_secs(20 * 60)).await;
        let after = sessions(cluster);
        assert!(after[&TargetId::MGS] < before[&TargetId::MGS], "{before:?} {after:?}");
        assert_eq!(after[&TargetId::mdt(0)], before[&TargetId::mdt(0)], "it might come back");
        sleep(world, ENDED).await;
        assert_eq!(objects(&observer).await, 0);
        let after = sessions(cluster);
        assert!(after[&TargetId::mdt(0)] < before[&TargetId::mdt(0)], "{before:?} {after:?}");
        drop(dead);
    });
}

/// It closes its connections itself, for it hears nothing; and has two hours until somebody mends the network.
#[test]
fn who_reaches_everybody_and_hears_nobody_keeps_what_it_has() {
    check(async |cluster, world| {
        keeps(cluster, world, &cluster.servers(), sleep(world, Duration::from_secs(2 * 3600))).await;
    });
}

/// An MGS that was started again meanwhile knows nothing of it.
#[test]
fn who_is_unknown_to_the_mgs_keeps_what_it_has() {
    check(async |cluster, world| {
        let restarts = async {
            sleep(world, Duration::from_secs(20 * 60)).await;
            cluster.kill("mgs");
            cluster.restart(&["mgs".to_owned()]);
            sleep(world, Duration::from_secs(60 * 60)).await;
        };
        keeps(cluster, world, &cluster.servers(), restarts).await;
    });
}

/// The MGS knows that it lives.
#[test]
fn who_hears_the_mgs_alone_keeps_what_it_has() {
    check(async |cluster, world| {
        let mut servers = cluster.servers();
        servers.retain(|server| server != "mgs");
        keeps(cluster, world, &servers, sleep(world, Duration::from_secs(6 * 3600))).await;
    });
}

async fn keeps(cluster: &Cluster, world: &World, unheard: &[String], meanwhile: impl Future<Output = ()>) {
    let (_, observer) = cluster.mount("observer").await;
    let (_, away) = cluster.mount("away").await;
    let handle = keep_removed(&away).await;
    let session = || away.admin().held().sessions.get(&TargetId::mdt(0)).copied();
    let before = session();
    unheard.iter().for_each(|server| world.partition_one_way(server, "away"));
    // It asks something, gets no answer, and closes its connections.
    let asking = away.clone();
    let asked = on(world, "away", async move {
        asking.files().create(&root(), Fid::ROOT, b"asked", 0o100_644, READ_WRITE).await.is_ok()
    });
    meanwhile.await;
    world.heal_all();
    sleep(world, Duration::from_secs(60)).await;
    assert!(asked.await.expect("it ends"), "it is answered in the end");
    away.files().write(handle, 0, b"more").await.expect("it is as before");
    away.files().fsync(handle).await.expect("it is as before");
    assert_eq!(session(), before, "nobody has given it up");
    assert_ne!(objects(&observer).await, 0);
    away.files().release(handle).await;
}
