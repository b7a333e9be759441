//! What the MDT tells of a file's size is what its objects say, whoever is lost meanwhile.

use std::time::Duration;

use client::{AttrChange, Client};
use proto::Fid;
use rt::sim::Span;
use weft_sim::cluster::{Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const BYTES: usize = 3000;

async fn written(client: &Client, name: &str) -> Fid {
    let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    client.files().write(handle, 0, &[7; BYTES]).await.expect("there is room");
    client.files().fsync(handle).await.expect("the disks work");
    client.files().release(handle).await;
    told.fid
}

/// The size that is told, and the bytes that can be read.
async fn sizes(client: &Client, fid: Fid) -> (u64, usize) {
    let told = client.names().getattr(fid).await.expect("it is there").size;
    let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("root may");
    let read = client.files().read(handle, 0, 2 * BYTES as u32).await.expect("what is healthy can be read");
    client.files().release(handle).await;
    (told, read.concat().len())
}

/// The OST remembered that it had cut the object, and the MDT did not remember that anybody was about to.
#[test]
fn who_cuts_a_file_and_is_lost_with_the_mdt_leaves_the_size_that_it_has() {
    for (seed, size) in [(1, 0), (2, 1000), (3, 5000)] {
        with_cluster(seed, Shape { osts: 2, osts_per_oss: 1 }, async |cluster| {
            let world = cluster.handle();
            let (_, lost) = cluster.mount("lost").await;
            cluster.osts_are_known(&lost).await;
            let fid = written(&lost, "f").await;
            // The MDT has its size.
            world.rt("clock").sleep(Duration::from_secs(10)).await;
            // What an OST answers is durable.
            cluster.set_parameter("sync_journal", "1");
            let cut = AttrChange { size: Some(size), ..AttrChange::default() };
            lost.files().setattr(&root(), fid, cut, None).await.expect("root may");
            world.crash("lost");
            cluster.cut_power(&["mds".to_owned()]);
            cluster.restart(&["mds".to_owned()]);
            let (_, other) = cluster.mount("other").await;
            // The lost one may hold what was granted until its lease is over.
            world.rt("clock").sleep(Duration::from_secs(60)).await;
            let (told, read) = sizes(&other, fid).await;
            assert_eq!((told, read), (size, size as usize), "{size}");
            drop(lost);
        });
    }
}

/// A close tells the size when the data is durable. An MDT that has lost what it knew of the open file by then, and does not believe it,
/// asks for the size again: it would not know it for ever.
#[test]
fn the_mdt_knows_the_size_of_what_was_closed_before_it_was_killed() {
    let moments = [0, 10, 30, 50, 100, 300].into_iter().flat_map(|ms| [(ms, ms, true), (ms + 1, ms, false)]);
    for (seed, delay_ms, fsyncs) in moments {
        with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
            let clock = cluster.handle().rt("clock");
            let (_, client) = cluster.mount("c0").await;
            let (_, other) = cluster.mount("c1").await;
            cluster.osts_are_known(&client).await;
            let mut fids = Vec::new();
            for number in 0..5 {
                let name = format!("f{number}");
                let caller = root();
                let made = client.files().create(&caller, Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE);
                let (told, handle) = made.await.expect("a new name can be made");
                client.files().write(handle, 0, &[7; 200_000]).await.expect("there is room");
                if fsyncs {
                    client.files().fsync(handle).await.expect("the disks work");
                }
                client.files().release(handle).await;
                fids.push(told.fid);
            }
            clock.sleep(Duration::from_millis(delay_ms)).await;
            cluster.cut_power(&["mds".to_owned()]);
            cluster.restart(&["mds".to_owned()]);
            clock.sleep(Duration::from_secs(10)).await;
            for fid in fids {
                let attr = other.names().getattr(fid).await.expect("it is there");
                assert_eq!((attr.size, attr.size_known), (200_000, true), "{delay_ms} ms, fsync: {fsyncs}");
            }
        });
    }
}

/// The MDT has answered a close, and loses it with its power: the client repeats it, and nobody believes what is told of a handle of before.
#[test]
fn a_size_that_was_told_and_lost_is_told_again() {
    with_cluster(1, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        let (world, clock) = (cluster.handle(), cluster.handle().rt("clock"));
        let (_, client) = cluster.mount("c0").await;
        let (_, other) = cluster.mount("c1").await;
        cluster.osts_are_known(&client).await;
        let made = client.files().create(&root(), Fid::ROOT, b"f", 0o100_644, READ_WRITE).await;
        // What is told is kept for as long as it is looked at.
        let (fid, handle) = made.map(|(told, handle)| (told.fid, handle)).expect("a new name can be made");
        client.files().write(handle, 0, &[7; 200_000]).await.expect("there is room");
        client.files().fsync(handle).await.expect("the disks work");
        let (seconds, mut before) = (Duration::from_secs, None);
        world.change_disks(|disk| {
            before =
                Some(std::mem::replace(&mut disk.sync, Span { min_ns: 3_000_000_000, max_ns: 3_000_000_000 }))
        });
        client.files().release(handle).await;
        clock.sleep(seconds(1)).await;
        cluster.cut_power(&["mds".to_owned()]);
        world.change_disks(|disk| disk.sync = before.take().expect("it was taken"));
        cluster.restart(&["mds".to_owned()]);
        clock.sleep(seconds(10)).await;
        let attr = other.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.size_known), (200_000, true));
    });
}

/// The MDT restarts while one cuts a file, and another one closes it meanwhile. The first one cuts the objects only then, and is lost before it
/// has told.
#[test]
fn a_cut_is_remembered_over_a_restart_of_the_mdt() {
    with_cluster(1, Shape { osts: 1, osts_per_oss: 1 }, async |cluster| {
        let (world, clock) = (cluster.handle(), cluster.handle().rt("clock"));
        let (_, lost) = cluster.mount("lost").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&lost).await;
        let fid = written(&lost, "f").await;
        let seconds = Duration::from_secs;
        clock.sleep(seconds(10)).await;
        // It holds no lock that the OST would have to take back from it.
        assert_eq!(sizes(&other, fid).await, (BYTES as u64, BYTES));
        clock.sleep(seconds(60)).await;
        cluster.set_parameter("sync_journal", "1");
        // It has the permission to cut, and does not reach the object.
        world.partition("lost", "oss0");
        let cutting = lost.clone();
        world.rt("lost").spawn(async move {
            let cut = AttrChange { size: Some(1000), ..AttrChange::default() };
            drop(cutting.files().setattr(&root(), fid, cut, None).await);
        });
        clock.sleep(seconds(3)).await;
        cluster.cut_power(&["mds".to_owned()]);
        cluster.restart(&["mds".to_owned()]);
        clock.sleep(seconds(10)).await;
        let handle = other.files().open(&root(), fid, READ_WRITE).await.expect("root may");
        other.files().release(handle).await;
        clock.sleep(seconds(5)).await;
        world.partition("lost", "mds");
        world.heal("lost", "oss0");
        clock.sleep(seconds(20)).await;
        world.crash("lost");
        drop(lost);
        clock.sleep(seconds(60)).await;
        assert_eq!(sizes(&other, fid).await, (1000, 1000));
    });
}
