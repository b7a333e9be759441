//! Targets that move between two service nodes.

use std::time::Duration;

use proto::{Fid, TargetId};
use rt::sim::{Handle, Options, Sim, Step};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::workload::{READ_WRITE, root};

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

/// A take-over that lost power in the middle of copying the log left the beginning of it, which then stood for all: what the
/// former owner had committed was lost.
#[test]
fn a_take_over_that_loses_power_loses_nothing() {
    for seed in 0..400 {
        let (step, count) = ([Step::DiskWrite, Step::Sync][seed as usize % 2], seed / 2 % 10 + 1);
        let sim = Sim::new(Options::seed(seed));
        let handle = sim.handle();
        let cluster = Cluster::new(handle.clone(), Shape { osts: 1, osts_per_oss: 1 }).with_service_nodes();
        let (first, peer) = (["mds".to_owned()], ["mds-peer".to_owned()]);
        sim.run(async {
            cluster.format().await;
            cluster.start_servers();
            until(&handle, &cluster, |cluster| serves(cluster, "mds")).await;
            let (rt, client) = cluster.mount("c").await;
            for n in 0..20 {
                let name = format!("f{n}");
                let made =
                    client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
                client.files().release(made.expect("a new name can be made").1).await;
                client.sync_all().await.expect("what is healthy can be synced");
            }
            handle.crash_at("mds-peer", step, count);
            cluster.cut_power(&first);
            rt.sleep(Duration::from_secs(8)).await;
            cluster.cut_power(&peer);
            cluster.restart(&peer);
            until(&handle, &cluster, |cluster| serves(cluster, "mds-peer")).await;
            let (_, other) = cluster.mount("other").await;
            for n in 0..20 {
                let found = other.names().lookup(&root(), Fid::ROOT, format!("f{n}").as_bytes()).await;
                assert!(found.is_ok(), "{seed}: f{n} was durable: {found:?}");
            }
        });
    }
}
