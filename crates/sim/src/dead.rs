//! One seed in which some clients die for good, and servers are started again afterwards: nobody waits for the dead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rpc::Habits;
use rt::sim::{Options, Sim};

use crate::cluster::{Cluster, Shape};
use crate::scenario::{Report, Scale, node, on, report};
use crate::workload::{Player, Record};

/// A lease is over by then.
const LEASE: Duration = Duration::from_secs(16);
/// Longest pause of the living after servers are back.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Runs one seed: one client in twenty dies, at least one; after the end of their leases all servers but the
/// MGS lose power. Panics if
/// the others are not all served again within 3 s.
pub fn run(seed: u64, scale: Scale) -> Report {
    run_with(seed, scale, Habits::TODAY)
}

/// The same, where servers and clients have other habits than they should.
pub fn run_with(seed: u64, scale: Scale, habits: Habits) -> Report {
    let sim = Sim::new(Options::seed(seed));
    let handle = sim.handle();
    let cluster =
        Cluster::new(handle.clone(), Shape { osts: scale.osts, osts_per_oss: 2 }).with_habits(habits);
    let dead = (scale.clients / 20).max(1);
    let compared = sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        let mut players = Vec::new();
        for number in 0..scale.clients as usize {
            let (cluster, rng) = (cluster.clone(), handle.rng(&node(number)));
            players.push(on(&handle, &node(number), async move {
                let (_, client) = cluster.mount(&node(number)).await;
                let record =
                    Arc::new(Mutex::new(Record { tag_base: (number as u32) << 16, ..Record::default() }));
                let mut player = Player::start(&format!("d{number}"), client, rng, record.clone()).await;
                player.play(scale.steps).await;
                (player, record)
            }));
        }
        let mut living = Vec::new();
        for player in players {
            living.push(player.await.expect("nobody has died yet"));
        }
        let gone: Vec<_> = living.drain(..dead as usize).collect();
        (0..dead as usize).for_each(|number| handle.crash(&node(number)));
        drop(gone);
        handle.rt("clock").sleep(LEASE).await;
        let mut servers = cluster.servers();
        // Whoever knows who lives has to have been there for as long as a lease.
        servers.retain(|server| server != "mgs");
        cluster.cut_power(&servers);
        cluster.restart(&servers);
        let before = handle.now();
        let mut compared = 0;
        for (number, (mut player, record)) in (dead as usize..).zip(living) {
            let played = on(&handle, &node(number), async move {
                player.play(1).await;
                player
            });
            drop(played.await.expect("it lives"));
            compared += record.lock().compared;
        }
        let took = handle.now() - before;
        assert!(
            took < PAUSE_MAX,
            "{dead} of {} clients are dead, and the others waited for {took:?}",
            scale.clients
        );
        compared
    });
    report(&handle, &vec![Arc::new(Mutex::new(Record { compared, ..Record::default() }))])
}
