//! Targets that move between two service nodes.

use std::time::Duration;

use proto::TargetId;
use rt::sim::{Handle, Options, Sim};
use weft_sim::cluster::{Cluster, Shape};

const TICK: Duration = Duration::from_micros(100);
const WAIT_MAX: Duration = Duration::from_secs(30);

async fn until(handle: &Handle, cluster: &Cluster, what: impl Fn(&Cluster) -> bool) {
    let until = handle.now() + WAIT_MAX;
    while !what(cluster) {
        assert!(handle.now() < until, "{:?}\n{}", cluster.owners(), cluster.service().join("\n"));
        handle.root().sleep(TICK).await;
    }
}

fn serves(cluster: &Cluster, server: &str) -> bool {
    cluster.owners().contains(&(TargetId::mdt(0), server.to_owned()))
}

fn is(cluster: &Cluster, server: &str, state: &str) -> bool {
    cluster.service().iter().any(|line| line.starts_with(&format!("{server}: ")) && line.contains(state))
}

/// A server that lost a target while it was starting it waited for ever for the MGS to answer to it, and never took the target
/// again.
#[test]
fn who_loses_a_target_while_it_starts_stands_by_again() {
    let sim = Sim::new(Options::seed(1));
    let handle = sim.handle();
    let cluster = Cluster::new(handle.clone(), Shape { osts: 2, osts_per_oss: 2 }).with_service_nodes();
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        until(&handle, &cluster, |cluster| serves(cluster, "mds")).await;
        let first = ["mds".to_owned()];
        cluster.cut_power(&first);
        cluster.restart(&first);
        until(&handle, &cluster, |cluster| is(cluster, "mds", "Starting")).await;
        handle.partition("mds", "mgs");
        until(&handle, &cluster, |cluster| is(cluster, "mds-peer", "Serving")).await;
        assert!(is(&cluster, "mds", "Starting"), "it waits for the MGS");
        handle.heal_all();
        until(&handle, &cluster, |cluster| is(cluster, "mds", "StandingBy")).await;
        cluster.cut_power(&["mds-peer".to_owned()]);
        until(&handle, &cluster, |cluster| serves(cluster, "mds")).await;
    });
}
