//! An OST is out of reach for longer than a failover takes: new files keep away from it until it is back.

use std::time::Duration;

use client::{Client, Error};
use proto::layout::LayoutHint;
use proto::{Code, Fid, OstIndex};
use rt::sim::{Options, Sim};
use weft_sim::cluster::{Cluster, Shape};
use weft_sim::workload::{READ_WRITE, root};

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

/// A client has mounted before there was an OST, and the answer of the MGS to its question for news is lost. It does not wait until it
/// misses that.
#[test]
fn an_ost_that_a_client_has_not_heard_of_is_asked_for() {
    let sim = Sim::new(Options::seed(3));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: OSTS, osts_per_oss: 1 });
    sim.run(async {
        cluster.format().await;
        cluster.start_server("mgs");
        cluster.start_server("mds");
        let (rt, client) = cluster.mount("c0").await;
        let (_, other) = cluster.mount("c1").await;
        // From now on it has something, and follows the configuration.
        let made = client.names().make(&root(), Fid::ROOT, b"d", 0o040_755, 0, bytes::Bytes::new()).await;
        made.expect("a new name can be made");
        rt.sleep(Duration::from_secs(1)).await;
        world.partition_one_way("mgs", "c0");
        (0..OSTS).for_each(|number| cluster.start_server(&format!("oss{number}")));
        cluster.osts_are_known(&other).await;
        world.heal("mgs", "c0");
        let began = rt.now();
        let made = client.files().create(&root(), Fid::ROOT, b"f", 0o100_644, READ_WRITE).await;
        let (_, handle) = made.expect("a new name can be made");
        client.files().write(handle, 0, b"x").await.expect("there is room");
        client.files().fsync(handle).await.expect("all disks work");
        let took = rt.now() - began;
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
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

/// A file on OSTs that are named: what becomes of it, and how long that takes.
async fn make_on(client: &Client, clock: &rt::Rt, name: &str, osts: &[u32]) -> (Result<(), Code>, Duration) {
    let hint = LayoutHint { osts: osts.iter().copied().map(OstIndex).collect(), ..LayoutHint::default() };
    let began = clock.now();
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let made = match made {
        Ok(_) => Ok(()),
        Err(Error::Refused(code)) => Err(code),
        Err(error) => panic!("the MDT answers, it is not: {error}"),
    };
    (made, clock.now() - began)
}

/// Who names OSTs gets those and no others (FEATURES L7): one that is not reached is waited for as long as a restart takes.
#[test]
fn a_list_with_an_ost_that_is_not_reached_is_refused() {
    let sim = Sim::new(Options::seed(1));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts: OSTS, osts_per_oss: 1 });
    sim.run(async {
        let clock = world.rt("clock");
        cluster.format().await;
        cluster.start_servers();
        let (_, client) = cluster.mount("c0").await;
        cluster.osts_are_known(&client).await;
        make(&client, "a").await;
        let on = |name: &'static str, osts: &'static [u32]| make_on(&client, &clock, name, osts);
        assert_eq!(on("b", &[2, 0]).await.0, Ok(()));

        let server = [format!("oss{LOST}")];
        cluster.kill(&server[0]);
        clock.sleep(Duration::from_secs(1)).await;
        let (made, took) = on("c", &[2, 0]).await;
        assert_eq!(made, Err(Code::Inactive));
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(7), "{took:?}");
        assert_eq!(on("c", &[0, 3]).await.0, Ok(()), "the others go on");
        clock.sleep(Duration::from_secs(6)).await;
        // As soon as it is known that it is away, nobody waits.
        make(&client, "d").await;
        clock.sleep(Duration::from_secs(6)).await;
        let (made, took) = on("e", &[2]).await;
        assert!(made == Err(Code::Inactive) && took < Duration::from_secs(1), "{made:?} {took:?}");

        cluster.restart(&server);
        clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(on("e", &[2]).await.0, Ok(()), "it is back");

        // One that is back soon is waited for.
        cluster.kill(&server[0]);
        clock.sleep(Duration::from_secs(1)).await;
        let mut making = std::pin::pin!(on("f", &[2]));
        assert!(clock.timeout(Duration::from_secs(1), making.as_mut()).await.is_none());
        cluster.restart(&server);
        let (made, took) = making.await;
        assert_eq!(made, Ok(()), "{took:?}");
    });
}
