//! Clients that lose their way to servers, for moments or for good.
//!
//! Somebody who is cut off must show nothing that others have changed meanwhile, whomever he can still reach; and nobody
//! else may notice more than a pause. Every second round cuts clients off for so long that they are given up: they were only
//! looking, so they must not see an error either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt::sim::Rng;

use crate::cluster::Cluster;

/// Longer than anybody waits for a client that is out of reach.
const LONG: std::ops::Range<u64> = 160..260;
const SHORT: std::ops::Range<u64> = 1..40;
/// Most rounds.
const ROUNDS_MAX: u64 = 5;
/// One client in so many dies for good.
const DEATHS: u64 = 8;

/// Whom a victim does not reach.
fn lost(cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
    let servers = cluster.servers();
    match rng.below(4) {
        0 => servers,
        1 => vec!["mgs".to_owned()],
        2 => servers.into_iter().filter(|server| server != "mgs").collect(),
        _ => vec![rng.pick(&servers).clone()],
    }
}

/// Cuts `victims` off, one after another and several at the same time, until `over`.
pub async fn harass(cluster: &Cluster, mut victims: Vec<String>, over: &Arc<AtomicBool>) {
    let handle = cluster.handle();
    let (clock, mut rng) = (handle.rt("clock"), handle.rng("cut off"));
    for _ in 0..ROUNDS_MAX {
        if over.load(Ordering::Relaxed) || victims.is_empty() {
            return;
        }
        clock.sleep(Duration::from_millis(rng.below(5_000))).await;
        let mut cuts = Vec::new();
        for _ in 0..rng.between(1, 3) {
            let victim = rng.pick(&victims).clone();
            cuts.extend(lost(cluster, &mut rng).into_iter().map(|server| (victim.clone(), server)));
        }
        cuts.iter().for_each(|(victim, server)| handle.partition(victim, server));
        if rng.one_in(DEATHS) {
            let victim = victims.swap_remove(rng.below(victims.len() as u64) as usize);
            handle.crash(&victim);
        }
        let seconds = if rng.one_in(2) { LONG } else { SHORT };
        clock.sleep(Duration::from_secs(rng.between(seconds.start, seconds.end))).await;
        cuts.iter().for_each(|(victim, server)| handle.heal(victim, server));
    }
}
