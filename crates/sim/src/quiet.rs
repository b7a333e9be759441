//! Who says how much in a file system of many targets, when nobody does anything.

use std::collections::BTreeSet;
use std::time::Duration;

use client::Limits;
use proto::{DataTarget, Fid};
use rt::sim::{Options, Sim};

use crate::cluster::{Cluster, Shape};
use crate::scenario::on;
use crate::workload::{READ_WRITE, root};

/// OSTs of one server.
const OSTS_PER_OSS: u32 = 100;
/// How long is listened. After ten minutes a client that does nothing would give back what it has.
pub const MINUTES: u64 = 5;
/// Everything that was begun is over by then.
const SETTLED: Duration = Duration::from_secs(120);
/// Files that are made at the same time.
const FILES_AT_ONCE: u32 = 64;

/// Messages within [`MINUTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// OSTs of which a client holds something.
    pub held: usize,
    /// From and to a client that holds nothing.
    pub idle: u64,
    /// Renewals of the lease of a client that holds a file and a lock on every OST.
    pub renewals: u64,
    /// All messages from it to anybody, renewals among them.
    pub holder: u64,
    /// Messages from servers to anybody, answers to the two among them.
    pub servers: u64,
    /// Wake-ups of the holder.
    pub polls: u64,
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_minute = |count: u64| count as f64 / MINUTES as f64;
        write!(
            f,
            "messages per minute: {:.1} from a client that holds nothing; {:.1} from one that holds an open file and a lock on \
             each of {} OSTs, of them {:.1} for the lease; {:.1} from all servers; {:.0} wake-ups of that client",
            per_minute(self.idle),
            per_minute(self.holder),
            self.held,
            per_minute(self.renewals),
            per_minute(self.servers),
            per_minute(self.polls),
        )
    }
}

/// Listens to a file system with `osts` OSTs.
pub fn run(osts: u32) -> Silence {
    let sim = Sim::new(Options::seed(1));
    let world = sim.handle();
    let cluster = Cluster::new(world.clone(), Shape { osts, osts_per_oss: OSTS_PER_OSS });
    sim.run(async {
        let clock = world.rt("clock");
        cluster.format().await;
        cluster.start_servers();
        while cluster.served() < osts as usize + 2 {
            clock.sleep(Duration::from_millis(100)).await;
        }
        let limits = Limits {
            dirty_bytes_max: 1 << 20,
            rpc_bytes_max: 64 << 10,
            rpcs_in_flight_max: 8,
            cached_bytes_max: 64 << 20,
            ..Limits::default()
        };
        let (_, idle) = cluster.mount_within("idle", limits.clone()).await;
        let (_, holder) = cluster.mount_within("holder", limits).await;
        for first in (0..osts).step_by(FILES_AT_ONCE as usize) {
            let files: Vec<_> = (first..(first + FILES_AT_ONCE).min(osts))
                .map(|number| {
                    let holder = holder.clone();
                    on(&world, "holder", async move {
                        let name = format!("f{number}");
                        let made = holder
                            .files()
                            .create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE)
                            .await;
                        let handle = made.map(|(_, handle)| handle).expect("a new name can be made");
                        holder.files().write(handle, 0, b"held").await.expect("there is room");
                        holder.files().flush(handle).await.expect("no write failed");
                    })
                })
                .collect();
            for file in files {
                file.await.expect("it lives");
            }
        }
        let syncing = holder.clone();
        let synced = on(&world, "holder", async move { syncing.sync_all().await });
        synced.await.expect("it lives").expect("nothing is lost");
        clock.sleep(SETTLED).await;
        let held: BTreeSet<DataTarget> =
            holder.admin().held().ranges.iter().map(|range| range.target).collect();
        let count = || {
            let said = |node: &str| world.node_stats(node).frames_sent;
            let servers = cluster.servers().iter().map(|server| said(server)).sum::<u64>();
            let heard = world.node_stats("idle").frames_delivered;
            [
                said("idle") + heard,
                holder.admin().lease().renewals,
                said("holder"),
                servers,
                world.node_stats("holder").polls,
            ]
        };
        let before = count();
        clock.sleep(Duration::from_secs(60 * MINUTES)).await;
        let after = count();
        let [idle_count, renewals, said, servers, polls] = std::array::from_fn(|n| after[n] - before[n]);
        drop(idle);
        Silence { held: held.len(), idle: idle_count, renewals, holder: said, servers, polls }
    })
}
