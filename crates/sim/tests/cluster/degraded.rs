//! One OST is slower than the others: it is named, and when an operator marks it, new files keep away from it.

use std::time::Duration;

use client::Client;
use proto::layout::LayoutHint;
use proto::{Fid, TargetId};
use rt::sim::{Handle, Options, Sim};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::workload::{READ_WRITE, root};

const OSTS: u32 = 4;
const SLOW: u32 = 2;
const BYTES_PER_SECOND: u64 = 100_000_000;
const MIB: usize = 1 << 20;
const FILE_BYTES: usize = 128 * MIB;

/// Writes a file over all OSTs that it gets, and syncs it: those that it got, and how long it took.
async fn write_striped(world: &Handle, client: &Client, name: &str) -> (Vec<u32>, Duration) {
    let hint = LayoutHint { stripe_count: -1, stripe_size: MIB as u32, ..LayoutHint::default() };
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    let handle = client.files().open(&root(), fid, READ_WRITE).await.expect("it is there");
    let began = world.now();
    let block = vec![7; MIB];
    for offset in (0..FILE_BYTES).step_by(MIB) {
        client.files().write(handle, offset as u64, &block).await.expect("there is room");
    }
    client.files().fsync(handle).await.expect("all disks work");
    let took = world.now() - began;
    let layout = client.names().layout(fid).await.expect("it is there").expect("a file has one");
    client.files().flush(handle).await.expect("all is written");
    client.files().release(handle).await;
    (layout.osts().map(|ost| ost.0).collect(), took)
}

#[test]
fn a_slow_ost_is_named_and_avoided() {
    let mut options = Options::seed(1);
    options.disk.bytes_per_second = Some(BYTES_PER_SECOND);
    let sim = Sim::new(options);
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: OSTS, osts_per_oss: 1 });
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        let (_, client) = cluster.mount("c0").await;
        cluster.osts_are_known(&client).await;
        let (osts, _) = write_striped(&world, &client, "even").await;
        assert_eq!((osts.len(), client.admin().slow_osts()), (4, vec![]), "all are alike");
        let throttled = world.now();
        world.set_disk_speed(&format!("oss{SLOW}"), BYTES_PER_SECOND / 4);
        let (_, slow_took) = write_striped(&world, &client, "uneven").await;
        let slow = client.admin().slow_osts();
        assert_eq!(slow.iter().map(|slow| slow.ost.0).collect::<Vec<_>>(), [SLOW], "{slow:?}");
        let named_after = world.now() - throttled;
        assert!(named_after < Duration::from_secs(60), "{named_after:?}");

        cluster.set_parameter_of(|target| target == TargetId::ost(SLOW), "degraded", "1");
        // The MDT has to hear of it.
        world.rt("clock").sleep(Duration::from_secs(1)).await;
        let (osts, took) = write_striped(&world, &client, "without").await;
        assert!(osts.len() == 3 && !osts.contains(&SLOW), "{osts:?}");
        assert!(took * 2 <= slow_took, "{took:?} without, {slow_took:?} with the slow one");
        println!(
            "named after {named_after:?}; a striped write takes {slow_took:?} with it, {took:?} without"
        );

        // As in Lustre the mark ends when the OST is started again.
        let server = [format!("oss{SLOW}")];
        cluster.kill(&server[0]);
        cluster.restart(&server);
        world.rt("clock").sleep(Duration::from_secs(30)).await;
        let (osts, _) = write_striped(&world, &client, "again").await;
        assert_eq!(osts.len(), 4);
    });
}
