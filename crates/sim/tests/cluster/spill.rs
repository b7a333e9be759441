//! A pool that is nearly full spills: what asks for it gets OSTs of another one, also over crashes.

use std::time::Duration;

use client::Client;
use proto::layout::LayoutHint;
use proto::wire::messages::{ChangePool, POOL_ADD, POOL_NEW, Parameter, SetParameters};
use proto::{Fid, OstIndex, TargetId};
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

const MDS: &str = "mds";
const MIB: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(100);

async fn change(cluster: &Cluster, name: &str, change: u8, osts: &[u32]) {
    let osts = osts.iter().copied().map(OstIndex).collect();
    let order = ChangePool { fsname: "sim".into(), name: name.into(), change, osts };
    cluster.ask(TargetId::MGS, "mgs", order).await.expect("it can be done");
}

/// Makes a file that asks for the pool `flash`; says which pool it got, and on which OSTs it lies.
async fn create(client: &Client, name: &str) -> (Fid, String, Vec<u32>) {
    let hint = LayoutHint { pool: "flash".into(), ..LayoutHint::default() };
    let made = client.names().create_with_layout(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, hint).await;
    let fid = made.expect("a new name can be made").fid;
    let (pool, osts) = lies(client, fid).await;
    (fid, pool, osts)
}

async fn lies(client: &Client, fid: Fid) -> (String, Vec<u32>) {
    let layout = client.names().layout(fid).await.expect("it is there").expect("a file has one");
    (layout.components[0].pool.clone(), layout.osts().map(|ost| ost.0).collect())
}

/// Makes files until one gets that pool.
async fn until(cluster: &Cluster, client: &Client, prefix: &str, wanted: &str) {
    for n in 0..300 {
        if create(client, &format!("{prefix}{n}")).await.1 == wanted {
            return;
        }
        cluster.handle().rt("clock").sleep(PAUSE).await;
    }
    panic!("no file gets OSTs of {wanted}");
}

async fn set(cluster: &Cluster, last: &str, value: &str) {
    let name = format!("lod.*.pool.flash.{last}");
    let order = SetParameters { parameters: vec![Parameter { name, value: value.to_owned() }] };
    cluster.ask(TargetId::mdt(0), MDS, order).await.expect("it takes that");
}

#[test]
fn a_pool_that_is_used_up_to_its_threshold_spills() {
    for seed in 1..4 {
        with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
            let (_, a) = cluster.mount("a").await;
            let (_, b) = cluster.mount("b").await;
            cluster.osts_are_known(&a).await;
            cluster.osts_are_known(&b).await;
            for (name, osts) in [("flash", [0, 1]), ("disk", [2, 3])] {
                change(cluster, name, POOL_NEW, &[]).await;
                change(cluster, name, POOL_ADD, &osts).await;
            }
            until(cluster, &a, "known", "flash").await;
            cluster.handle().set_capacity("oss0", 512 << 20);
            let (fid, _, _) = create(&a, "data").await;
            let handle = a.files().open(&root(), fid, READ_WRITE).await.expect("it is there");
            for n in 0..16 {
                a.files().write(handle, n << 20, &vec![7; MIB]).await.expect("there is room");
            }
            a.files().fsync(handle).await.expect("there is room");
            set(cluster, "spill_target", "disk").await;
            set(cluster, "spill_threshold_pct", "100").await;
            until(cluster, &a, "below", "flash").await;
            set(cluster, "spill_threshold_pct", "2").await;
            until(cluster, &a, "above", "disk").await;
            // What is not durable yet is made again as it was.
            let mut made = Vec::new();
            for n in 0..8 {
                made.push(create(&a, &format!("f{n}")).await);
            }
            assert!(
                made.iter().all(|(_, pool, osts)| pool == "disk" && osts.iter().all(|ost| *ost >= 2)),
                "{made:?}"
            );
            cluster.kill(MDS);
            cluster.restart(&[MDS.to_owned()]);
            for (fid, pool, osts) in made {
                assert_eq!(lies(&b, fid).await, (pool, osts));
            }
            // Nobody keeps what was set.
            until(cluster, &a, "after", "flash").await;
            set(cluster, "spill_target", "disk").await;
            set(cluster, "spill_threshold_pct", "2").await;
            until(cluster, &b, "again", "disk").await;
            set(cluster, "spill_threshold_pct", "0").await;
            until(cluster, &b, "back", "flash").await;
        });
    }
}
