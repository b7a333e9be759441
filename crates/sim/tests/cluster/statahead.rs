//! Names that come one after the other are asked for ahead, and what others do to them is seen all the same.

use std::time::Duration;

use client::Client;
use proto::parameters::{ClientPlaces, ClientTree, Tree};
use proto::wire::messages::ReadParameters;
use proto::{ClientId, Fid};
use rt::Rt;
use rt::sim::Span;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const MDS: &str = "mds";
const FILES: u64 = 500;

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster, &Client, &Client)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        for n in 0..FILES {
            create(&a, n).await;
        }
        a.sync_all().await.expect("everything works");
        cluster.handle().set_latency("b", MDS, Span::millis(5, 5));
        test(cluster, &a, &b).await;
    });
}

fn named(n: u64) -> Vec<u8> {
    format!("file.mdtest.0.{n}").into_bytes()
}

async fn create(client: &Client, n: u64) {
    let made = client.files().create(&root(), Fid::ROOT, &named(n), 0o644, READ_WRITE).await;
    let (_, handle) = made.expect("a new name can be made");
    client.files().release(handle).await;
}

async fn look(client: &Client, n: u64) -> Option<Fid> {
    client.names().lookup(&root(), Fid::ROOT, &named(n)).await.ok().map(|told| told.fid)
}

fn places() -> ClientPlaces {
    ClientPlaces::new("weft", ClientId(1), "mgs")
}

async fn set(client: &Client, name: &str, value: &str) -> Result<(), client::Error> {
    let mut tree = ClientTree::new(places(), Tree::to_set(&format!("llite.*.{name}")).expect("it is short"));
    client.admin().parameters(&mut tree);
    let found = tree.into_tree().found().expect("there is one");
    let parameter = found.into_iter().next().expect("there is one");
    parameter.set(value).expect("it can be set").await
}

/// The numbers of `statahead_stats`.
fn stats(client: &Client) -> Vec<u64> {
    let read =
        ReadParameters { patterns: vec!["llite.*.statahead_stats".into()], skip: 0, names_only: false };
    let mut tree = ClientTree::new(places(), Tree::new(&read).expect("it is short"));
    client.admin().parameters(&mut tree);
    let text = tree.into_tree().page().parameters.remove(0).value;
    text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

async fn look_at_all(client: &Client, rt: &Rt) -> Duration {
    let begin = rt.now();
    for n in 0..FILES {
        assert!(look(client, n).await.is_some(), "{n}");
    }
    rt.now() - begin
}

#[test]
fn names_in_order_are_there_when_they_are_looked_at() {
    check(1, async |cluster, _, b| {
        let rt = cluster.handle().rt("b");
        set(b, "enable_statahead_fname", "0").await.expect("a switch");
        assert!(look_at_all(b, &rt).await > Duration::from_secs(4), "500 times 10 ms");
        assert_eq!(stats(b), [0; 7]);
        // The same from the beginning, by a client that knows nothing.
        let (rt, c) = cluster.mount("c").await;
        cluster.handle().set_latency("c", MDS, Span::millis(5, 5));
        let took = look_at_all(&c, &rt).await;
        assert!(took < Duration::from_millis(400), "it took {took:?}");
        let told = stats(&c);
        assert_eq!((told[0], told[1], told[4]), (1, 1, 1), "one sequence, which ended: {told:?}");
        assert!(told[5] >= FILES - 5 && told[6] == 0, "{told:?}");
        let asked = c.admin().counters().get("rpc.Lookup").copied().unwrap_or(0);
        assert!((FILES..FILES + 130).contains(&asked), "{asked}");
        set(&c, "statahead_stats", "clear").await.expect("an order");
        assert_eq!(stats(&c), [0; 7]);
        for (name, bad) in
            [("statahead_max", "2049"), ("statahead_fname_predict_hit", "1"), ("enable_statahead_fname", "2")]
        {
            assert!(set(&c, name, bad).await.is_err(), "{name}");
        }
    });
}

/// What others change while it is known, or on its way, is not believed.
#[test]
fn what_others_change_is_seen() {
    check(2, async |_, a, b| {
        for n in 0..FILES {
            if n % 7 == 3 {
                let _ = a.names().unlink(&root(), Fid::ROOT, &named(n + 20)).await;
                let (old, new) = (named(n + 40), format!("moved{n}"));
                let _ = a.names().rename(&root(), Fid::ROOT, &old, Fid::ROOT, new.as_bytes(), 0).await;
            }
            let (told, truth) = (look(b, n).await, look(a, n).await);
            assert_eq!(told, truth, "{n}");
        }
        assert!(stats(b)[5] > 0);
        // What is made again is another file.
        for n in 0..50 {
            let _ = a.names().unlink(&root(), Fid::ROOT, &named(n)).await;
            create(a, n).await;
            assert_eq!(look(b, n).await, look(a, n).await, "{n}");
        }
    });
}

/// A restart of the MDT in the middle: who waits for a name gets it.
#[test]
fn a_restart_of_the_mdt_is_waited_for() {
    check(3, async |cluster, _, b| {
        for n in 0..FILES {
            if n == 50 || n == 300 {
                cluster.restart(&[MDS.to_owned()]);
            }
            assert!(look(b, n).await.is_some(), "{n}");
        }
    });
}
