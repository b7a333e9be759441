//! Runs in which what happens is written down, and not drawn.

use std::time::Duration;

use client::{AttrChange, Client, Handle, OpenFlags};
use proto::{Fid, TargetId};
use rpc::Habits;
use rt::sim::{Handle as World, Options, Sim};

use crate::cluster::{Cluster, Shape};
use crate::scenario::on;
use crate::workload::{READ_WRITE, root};

/// Longer than it takes to give a client up that is out of reach.
const GIVEN_UP: Duration = Duration::from_secs(200);

fn run(seed: u64, habits: Habits, script: impl AsyncFnOnce(&Cluster, &World)) {
    let sim = Sim::new(Options::seed(seed));
    let handle = sim.handle();
    let cluster = Cluster::new(handle.clone(), Shape { osts: 2, osts_per_oss: 1 }).with_habits(habits);
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        script(&cluster, &handle).await;
    });
}

async fn sleep(world: &World, duration: Duration) {
    world.rt("clock").sleep(duration).await;
}

async fn make(client: &Client, name: &str) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

async fn read(client: &Client, handle: Handle) -> Vec<u8> {
    client.files().read(handle, 0, 100).await.expect("what is healthy can be read").concat()
}

async fn mode(client: &Client, fid: Fid) -> u32 {
    client.names().getattr(fid).await.expect("it is there").mode & 0o777
}

/// A reader that keeps bytes, attributes and a name is cut off from `servers`, and all of it is changed when it has been
/// given up. It must not show the old ones while it is cut off, and not after that either. Panics if it does.
pub fn cut_off_reader(habits: Habits, servers: &'static [&'static str]) {
    run(1, habits, async |cluster, world| {
        let (_, writer) = cluster.mount("w").await;
        let (_, reader) = cluster.mount("r").await;
        let (fid, handle) = make(&writer, "f").await;
        writer.files().write(handle, 0, b"old").await.expect("there is room");
        writer.files().flush(handle).await.expect("it is written");
        let own = reader.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        assert_eq!((read(&reader, own).await, mode(&reader, fid).await), (b"old".to_vec(), 0o644));
        reader.names().lookup(&root(), Fid::ROOT, b"f").await.expect("it is there");
        servers.iter().for_each(|server| world.partition("r", server));
        let changing = writer.clone();
        let changed = on(world, "w", async move {
            changing.files().write(handle, 0, b"new").await.expect("there is room");
            let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
            changing.files().setattr(&root(), fid, change, None).await.expect("root may");
            changing.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
        });
        sleep(world, GIVEN_UP * 2).await;
        changed.await.expect("nobody waits for who is given up");
        let (one, two, three) = (reader.clone(), reader.clone(), reader.clone());
        let bytes = on(world, "r", async move { read(&one, own).await });
        let attributes = on(world, "r", async move { mode(&two, fid).await });
        let name = on(world, "r", async move {
            three.names().lookup(&root(), Fid::ROOT, b"f").await.map(|told| told.fid)
        });
        sleep(world, Duration::from_secs(1)).await;
        servers.iter().for_each(|server| world.heal("r", server));
        assert_eq!(bytes.await.expect("it goes on"), b"new");
        assert_eq!(attributes.await.expect("it goes on"), 0o600);
        assert!(name.await.expect("it goes on").is_err(), "the name is gone");
    });
}

/// A file is made, and the answer does not arrive; then the MDS loses power, and the client asks again. Panics if it is told that the
/// file is there already.
pub fn lost_answer(seed: u64, habits: Habits) {
    run(seed, habits, async |cluster, world| {
        let (_, client) = cluster.mount("c").await;
        make(&client, "e").await;
        world.partition_one_way("mds", "c");
        let making = client.clone();
        let made = on(world, "c", async move {
            let flags = OpenFlags { exclusive: true, ..READ_WRITE };
            making.files().create(&root(), Fid::ROOT, b"f", 0o100_644, flags).await.map(|(told, _)| told.fid)
        });
        sleep(world, Duration::from_secs(1)).await;
        let mds = ["mds".to_owned()];
        cluster.cut_power(&mds);
        world.heal_all();
        cluster.restart(&mds);
        made.await.expect("it lives").expect("nobody else has made it");
    });
}

/// A file is removed, and the OST cannot be told; then the MDS loses power. Panics if the object is there for ever.
pub fn late_destroy(seed: u64, habits: Habits) {
    run(seed, habits, async |cluster, world| {
        let (rt, client) = cluster.mount("c").await;
        let (_, handle) = make(&client, "f").await;
        client.files().write(handle, 0, b"some").await.expect("there is room");
        client.files().flush(handle).await.expect("it is written");
        client.files().release(handle).await;
        client.sync_all().await.expect("what is healthy can be synced");
        let count = async || {
            let mut objects = 0;
            for ost in [0, 1].map(TargetId::ost) {
                let space = client.admin().target_space(ost, GIVEN_UP).await.expect("it tells its space");
                let space = space.expect("it is served");
                objects += space.files_total - space.files_free;
            }
            objects
        };
        assert_eq!(count().await, 1);
        ["oss0", "oss1"].iter().for_each(|oss| world.partition("mds", oss));
        client.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
        client.sync_all().await.expect("what is healthy can be synced");
        rt.sleep(Duration::from_secs(2)).await;
        let mds = ["mds".to_owned()];
        cluster.cut_power(&mds);
        world.heal_all();
        cluster.restart(&mds);
        rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(count().await, 0, "objects of files that are gone");
    });
}
