//! Sessions that are full of requests which wait for the other client: what answers a callback has room.

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use proto::Fid;
use rt::sim::Handle as World;
use rt::sync::oneshot;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::workload::{READ, READ_WRITE, root};

/// More than a session has slots for what may wait.
const COUNT: usize = 300;
/// Long enough for all of it, and shorter than anything that ends a session.
const TIME: Duration = Duration::from_secs(10);

fn check(test: impl AsyncFnOnce(&Cluster, &World)) {
    with_cluster(1, Shape { osts: 2, osts_per_oss: 1 }, async |cluster| {
        test(cluster, cluster.handle()).await;
    });
}

/// Runs `work` on a node; its result comes when it comes.
fn on<T: Send + 'static>(
    world: &World,
    node: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    world.rt(node).spawn(async move {
        let _ = done.send(work.await);
    });
    result
}

/// Waits until all are done.
async fn all_in_time<T>(world: &World, work: Vec<oneshot::Receiver<T>>) {
    let rt = world.rt("clock");
    let all = async {
        for one in work {
            one.await.expect("it ends");
        }
    };
    rt.timeout(TIME, all).await.expect("nobody waits for the other one for ever");
}

fn names(of: &str) -> Vec<String> {
    (0..COUNT).map(|n| format!("{of}{n}")).collect()
}

/// A client whose unlinks waited for the other one's closes had no room for its own closes, which the other one's unlinks waited for.
#[test]
fn each_removes_what_the_other_one_keeps_open() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, two) = cluster.mount("two").await;
        for (maker, reader, of) in [(&one, &two, "a"), (&two, &one, "b")] {
            for name in names(of) {
                let made =
                    maker.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
                let (told, handle) = made.expect("a new name can be made");
                maker.files().release(handle).await;
                let opened = reader.files().open(&root(), told.fid, READ).await.expect("root may read");
                reader.files().release(opened).await;
            }
        }
        let unlink = |client: &Arc<Client>, name: String| {
            let client = client.clone();
            async move { client.names().unlink(&root(), Fid::ROOT, name.as_bytes()).await.expect("it is there") }
        };
        let (of_one, of_two) = (names("a").into_iter(), names("b").into_iter());
        let work: Vec<_> = of_one
            .zip(of_two)
            .flat_map(|(a, b)| [on(world, "one", unlink(&one, a)), on(world, "two", unlink(&two, b))])
            .collect();
        all_in_time(world, work).await;
    });
}

/// The same of creates that wait until the other one has told of what it made before.
#[test]
fn each_makes_files_where_the_other_one_does() {
    check(async |cluster, world| {
        let (_, one) = cluster.mount("one").await;
        let (_, two) = cluster.mount("two").await;
        for client in [&one, &two] {
            cluster.osts_are_known(client).await;
            client.admin().set_metadata_writeback(true);
        }
        let mut dirs = Vec::new();
        for (client, of) in [(&one, "a"), (&two, "b")] {
            for name in names(of) {
                let made = client
                    .names()
                    .make(&root(), Fid::ROOT, name.as_bytes(), 0o040_777, 0, bytes::Bytes::new())
                    .await;
                dirs.push(made.expect("a new name can be made").fid);
            }
        }
        let create = |client: &Arc<Client>, own: Fid, other: Fid| {
            let client = client.clone();
            async move {
                for (dir, name) in [(own, &b"own"[..]), (other, &b"other"[..])] {
                    let made = client.files().create(&root(), dir, name, 0o100_644, READ_WRITE).await;
                    let (_, handle) = made.expect("a new name can be made");
                    client.files().release(handle).await;
                }
            }
        };
        let (of_one, of_two) = dirs.split_at(COUNT);
        let pairs = of_one.iter().zip(of_two);
        let work: Vec<_> = pairs
            .flat_map(|(a, b)| {
                [on(world, "one", create(&one, *a, *b)), on(world, "two", create(&two, *b, *a))]
            })
            .collect();
        all_in_time(world, work).await;
    });
}
