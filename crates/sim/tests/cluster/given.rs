//! Parameters that a target was given when it was made: the MGS keeps them from its first start on, and what is deleted later stays so.

use std::time::Duration;

use proto::TargetId;
use proto::wire::messages::{ChangeSetting, ReadParameters};
use rt::sim::{Options, Sim};
use weft_sim::cluster::{Cluster, Shape};

const SERVER: &str = "oss1";

/// What the target says of parameters: names and values.
async fn read(cluster: &Cluster, target: TargetId, server: &str, pattern: &str) -> Vec<String> {
    let read = ReadParameters { patterns: vec![pattern.to_owned()], skip: 0, names_only: false };
    let told = cluster.ask(target, server, read).await.expect("it answers");
    told.parameters.into_iter().map(|one| one.value).collect()
}

async fn kept(cluster: &Cluster) -> Vec<String> {
    read(cluster, TargetId::MGS, "mgs", "mgs.MGS.live.params").await
}

#[test]
fn the_mgs_keeps_what_a_target_was_given() {
    let sim = Sim::new(Options::seed(1));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: 2, osts_per_oss: 1 });
    sim.run(async {
        let (clock, ost) = (world.rt("clock"), TargetId::ost(1));
        cluster.format().await;
        let given = [("obdfilter.sim-OST0001.sync_journal", "1"), ("mdt.*.commit_on_sharing", "0")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        server::give_parameters(&world.rt(SERVER), "/ost1", &given).await.expect("a new target opens");
        // The MGS is not there yet.
        cluster.start_servers();
        world.crash("mgs");
        clock.sleep(Duration::from_secs(8)).await;
        cluster.restart(&["mgs".to_owned()]);
        clock.sleep(Duration::from_secs(20)).await;
        let both = "obdfilter.sim-OST0001.sync_journal=1\nmdt.*.commit_on_sharing=0";
        assert_eq!(kept(&cluster).await, [both]);
        assert_eq!(read(&cluster, ost, SERVER, "obdfilter.*.sync_journal").await, ["1"]);
        assert_eq!(read(&cluster, TargetId::mdt(0), "mds", "mdt.*.commit_on_sharing").await, ["0"]);

        // Whoever deletes one does not get it back from the target.
        let (fsname, name) = ("sim".to_owned(), "mdt.*.commit_on_sharing".to_owned());
        let delete = ChangeSetting { fsname, name, value: None };
        cluster.ask(TargetId::MGS, "mgs", delete).await.expect("it is kept");
        cluster.kill(SERVER);
        cluster.restart(&[SERVER.to_owned()]);
        clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(kept(&cluster).await, ["obdfilter.sim-OST0001.sync_journal=1"]);
        assert_eq!(read(&cluster, ost, SERVER, "obdfilter.*.sync_journal").await, ["1"]);
    });
}
