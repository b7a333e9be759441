//! Sessions that are full of requests which wait for the other client: what answers a callback has room, so nobody is put off.

use std::sync::Arc;

use client::Client;
use proto::Fid;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scenario::on;
use weft_sim::workload::{READ, READ_WRITE, root};

/// More than a session has slots for what may wait.
const COUNT: usize = 300;

async fn mounts(cluster: &Cluster) -> [Arc<Client>; 2] {
    let [(_, one), (_, two)] = [cluster.mount("one").await, cluster.mount("two").await];
    [one, two]
}

fn check(test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(1, Shape { osts: 2, osts_per_oss: 1 }, test);
}

fn count(client: &Client, what: &str) -> u64 {
    client.admin().counters().get(what).copied().unwrap_or(0)
}

async fn create(client: &Client, dir: Fid, name: &str) -> Fid {
    let made = client.files().create(&root(), dir, name.as_bytes(), 0o100_644, READ_WRITE).await;
    let (fid, handle) = made.map(|(told, handle)| (told.fid, handle)).expect("a new name can be made");
    client.files().release(handle).await;
    fid
}

/// A client whose unlinks waited for the other one's closes had no room for its own closes, which the other one's unlinks waited for, until the
/// MDT put them off.
#[test]
fn each_removes_what_the_other_one_keeps_open() {
    check(async |cluster| {
        let [one, two] = mounts(cluster).await;
        for (maker, reader, of) in [(&one, &two, "one"), (&two, &one, "two")] {
            for n in 0..COUNT {
                let fid = create(maker, Fid::ROOT, &format!("{of}{n}")).await;
                let opened = reader.files().open(&root(), fid, READ).await.expect("root may read");
                reader.files().release(opened).await;
            }
        }
        let before = count(&one, "rpc.Unlink") + count(&two, "rpc.Unlink");
        let work: Vec<_> = (0..COUNT)
            .flat_map(|n| [(&one, "one", n), (&two, "two", n)])
            .map(|(client, of, n)| {
                let (client, name) = (client.clone(), format!("{of}{n}"));
                on(cluster.handle(), of, async move {
                    client.names().unlink(&root(), Fid::ROOT, name.as_bytes()).await.expect("it is there");
                })
            })
            .collect();
        for one in work {
            one.await.expect("it ends");
        }
        let asked = count(&one, "rpc.Unlink") + count(&two, "rpc.Unlink") - before;
        assert_eq!(asked, 2 * COUNT as u64, "nobody was put off");
    });
}
