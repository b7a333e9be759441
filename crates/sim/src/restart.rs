//! One seed in which servers lose power while every client lives on.
//!
//! Each client works in a directory of its own, over a network with faults. Once or twice the power of all servers,
//! or of one, is cut at a random moment. Nobody may notice more than a pause: the clients replay what was answered and
//! not durable, so every later result is as if nothing had happened, and so is what a fresh client finds at the end.

use std::sync::Arc;
use std::time::Duration;

use rpc::Habits;
use rt::sim::{Options, Rng, Sim};
use rt::sync::oneshot;

use crate::cluster::{Cluster, Shape};
use crate::progress::Progress;
use crate::recovered;
use crate::rounds::Rounds;
use crate::scenario::{Records, Report, Scale, empty_records, node, on, report, until_compared};
use crate::workload::Player;

/// How long a server is without power at most.
const OUTAGE_MAX: Duration = Duration::from_secs(3);

/// Runs one seed; panics with what went wrong.
pub fn run(seed: u64, scale: Scale) -> Report {
    run_with(seed, scale, Habits::TODAY)
}

/// The same, where servers and clients have other habits than they should.
pub fn run_with(seed: u64, scale: Scale, habits: Habits) -> Report {
    let sim = Sim::new(Options::swarm(seed));
    let handle = sim.handle();
    let cluster =
        Cluster::new(handle.clone(), Shape { osts: scale.osts, osts_per_oss: 2 }).with_habits(habits);
    let records = empty_records(scale.clients);
    sim.run(async {
        cluster.format().await;
        cluster.start_servers();
        let finished = start_players(&cluster, &records, scale, None);
        cut_power(&cluster, &records, scale).await;
        for client in finished {
            client.await.expect("no client died");
        }
        check_everything(&cluster, &records).await;
    });
    report(&handle, &records)
}

/// Does operations in rounds, and tells of each.
#[derive(Clone)]
pub(crate) struct Pace {
    pub progress: Progress,
    pub rounds: Rounds,
}

impl Pace {
    async fn play(&self, player: &mut Player, client: usize, steps: usize) {
        for step in 0..steps {
            self.rounds.until_due(step).await;
            let _doing = self.progress.begin(&node(client), format!("operation {step}"));
            player.play(1).await;
        }
    }
}

/// Has every client do its part in its own directory, and unmount.
pub(crate) fn start_players(
    cluster: &Cluster,
    records: &Records,
    scale: Scale,
    pace: Option<&Pace>,
) -> Vec<oneshot::Receiver<()>> {
    let mut finished = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let (cluster, record) = (cluster.clone(), record.clone());
        let handle = cluster.handle().clone();
        let (rng, pace) = (handle.rng(&node(number)), pace.cloned());
        finished.push(on(&handle, &node(number), async move {
            let (_, client) = cluster.mount_numbered(&node(number), number).await;
            if let Some(pace) = &pace {
                pace.progress.mounted(&node(number), &client);
            }
            let mut player = Player::start(&directory(number), Arc::clone(&client), rng, record).await;
            match pace {
                None => player.play(scale.steps).await,
                Some(ref pace) => pace.play(&mut player, number, scale.steps).await,
            }
            player.finish().await;
            if let Some(pace) = &pace {
                pace.progress.unmounted(&node(number));
            }
            client.unmount().await.expect("a healthy client unmounts");
        }));
    }
    finished
}

/// The name of a client's directory.
pub(crate) fn directory(client: usize) -> String {
    format!("d{client}")
}

/// Crashes servers once or twice, anywhere between the first mount and the last operations.
async fn cut_power(cluster: &Cluster, records: &Records, scale: Scale) {
    let mut rng = cluster.handle().rng("power");
    let steps = (scale.steps * records.len()) as u64;
    let mut moments: Vec<u64> = (0..rng.between(1, 2)).map(|_| rng.below(steps)).collect();
    moments.sort_unstable();
    for moment in moments {
        until_compared(cluster.handle(), records, moment as usize).await;
        crash_some(cluster, &mut rng).await;
    }
}

/// Cuts the power of all servers or of one, and switches it on again after a while.
pub(crate) async fn crash_some(cluster: &Cluster, rng: &mut Rng) {
    let victims = victims(cluster, rng);
    cluster.cut_power(&victims);
    let outage = Duration::from_nanos(rng.below(OUTAGE_MAX.as_nanos() as u64));
    cluster.handle().rt("clock").sleep(outage).await;
    cluster.restart(&victims);
}

fn victims(cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
    let servers = cluster.servers();
    if rng.one_in(2) { servers } else { vec![rng.pick(&servers).clone()] }
}

/// Not a single acknowledged change is missing.
pub(crate) async fn check_everything(cluster: &Cluster, records: &Records) {
    let (_, client) = cluster.mount("checker").await;
    for (number, record) in records.iter().enumerate() {
        let mut now = record.lock().take_view();
        now.only_the_last();
        recovered::check(&client, &directory(number), &now).await;
    }
    client.unmount().await.expect("a healthy client unmounts");
}
