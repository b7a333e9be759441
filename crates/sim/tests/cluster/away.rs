//! An OST is out of reach for longer than a failover takes: new files keep away from it until it is back.

use std::time::Duration;

use client::Client;
use proto::Fid;
use proto::layout::LayoutHint;
use rt::sim::{Options, Sim};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::workload::root;

const OSTS: u32 = 4;
const LOST: u32 = 2;
/// Files that are made in a round: as many begin on each OST.
const FILES: usize = 16;

/// Makes files with one stripe each: on which OSTs they lie.
async fn make(client: &Client, round: &str) -> Vec<u32> {
    let mut osts = Vec::new();
    for number in 0..FILES {
        let name = format!("{round}{number}");
        let hint = LayoutHint { stripe_count: 1, ..LayoutHint::default() };
        let made =
            client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
        let layout = client.names().layout(made.expect("a new name can be made").fid).await;
        osts.extend(layout.expect("it is there").expect("a file has one").osts().map(|ost| ost.0));
    }
    osts.sort_unstable();
    osts.dedup();
    osts
}

#[test]
fn new_files_keep_away_from_an_ost_that_is_not_reached() {
    let sim = Sim::new(Options::seed(1));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: OSTS, osts_per_oss: 1 });
    sim.run(async {
        let clock = world.rt("clock");
        cluster.format().await;
        cluster.start_servers();
        let (_, client) = cluster.mount("c0").await;
        cluster.osts_are_known(&client).await;
        assert_eq!(make(&client, "a").await, [0, 1, 2, 3]);

        let server = [format!("oss{LOST}")];
        cluster.kill(&server[0]);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(make(&client, "b").await, [0, 1, 2, 3], "it may be back in a moment");
        clock.sleep(Duration::from_secs(6)).await;
        assert_eq!(make(&client, "c").await, [0, 1, 3], "it is left out");

        cluster.restart(&server);
        clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(make(&client, "d").await, [0, 1, 2, 3], "it is back");

        // One that is back soon is never left out.
        cluster.kill(&server[0]);
        clock.sleep(Duration::from_secs(1)).await;
        make(&client, "e").await;
        cluster.restart(&server);
        clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(make(&client, "f").await, [0, 1, 2, 3]);
    });
}
