//! The same seed gives the same run.

use std::time::Duration;

use bytes::Bytes;

use super::{addr, frame, number};
use crate::Rt;
use crate::sim::{Handle, NetOptions, Options, Sim, Stats};

const NODES: u64 = 20;

/// Answers whoever connects, and keeps a log of what was asked.
async fn serve(rt: Rt) {
    let dir = rt.disk().create_dir("log").await.expect("the disk works");
    let log = match dir.open("log").await {
        Ok(log) => log,
        Err(_) => dir.create("log").await.expect("the name is free"),
    };
    dir.sync().await.expect("the disk works");
    let mut listener = rt.net().listen(&addr(":1")).await.expect("the port is free");
    while let Ok(mut conn) = listener.accept().await {
        let (rt2, log) = (rt.clone(), log.clone());
        rt.spawn(async move {
            while let Ok(asked) = conn.receiver.recv().await {
                let offset = number(&asked) % 100 * 700;
                let bytes = Bytes::from(rt2.random_u64().to_le_bytes().repeat(90));
                if log.write_at(offset, vec![bytes]).await.is_err() || log.sync().await.is_err() {
                    return;
                }
                let _ = conn.sender.send(asked).await;
            }
        });
    }
}

/// Asks another node again and again.
async fn ask(rt: Rt, me: u64) {
    loop {
        let peer = (me + 1 + rt.random_u64() % (NODES - 1)) % NODES;
        let Ok(mut conn) = rt.net().connect(&addr(&format!("node{peer}:1"))).await else { continue };
        for _ in 0..rt.random_u64() % 20 {
            if conn.sender.send(frame(rt.random_u64())).await.is_err() {
                break;
            }
            rt.timeout(Duration::from_millis(10), conn.receiver.recv()).await;
        }
        rt.sleep(Duration::from_micros(100)).await;
    }
}

fn start(rt: Rt, number: u64) {
    rt.spawn(serve(rt.clone()));
    rt.spawn(ask(rt.clone(), number));
}

async fn disturb(sim: Handle) {
    let mut rng = sim.rng("faults");
    let rt = sim.root();
    for _ in 0..30 {
        rt.sleep(Duration::from_millis(rng.between(1, 20))).await;
        let (number, other) = (rng.below(NODES), rng.below(NODES));
        let (name, other) = (format!("node{number}"), format!("node{other}"));
        match rng.below(5) {
            0 => sim.crash(&name),
            1 => sim.kill(&name),
            2 => sim.partition(&name, &other),
            3 => sim.heal_all(),
            _ => sim.pause(&name),
        }
        rt.sleep(Duration::from_millis(rng.between(1, 5))).await;
        if !sim.node(&name).is_alive() {
            start(Rt::sim(sim.restart(&name)), number);
        }
        sim.resume(&name);
    }
}

fn run(options: Options) -> (u64, Stats, Vec<String>) {
    let sim = Sim::new(options);
    for number in 0..NODES {
        start(sim.rt(&format!("node{number}")), number);
    }
    sim.run(disturb(sim.handle()));
    (sim.trace_hash(), sim.stats(), sim.trace())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..6 {
        let (hash, stats, _) = run(Options::swarm(seed));
        let (hash_again, stats_again, _) = run(Options::swarm(seed));
        assert_eq!((hash, stats), (hash_again, stats_again), "seed {seed}");
        assert_ne!(hash, run(Options::swarm(seed + 100)).0);
        assert!(stats.crashes > 3 && stats.frames_delivered > 50 && stats.syncs > 20, "{stats:?}");
    }
}

#[test]
fn lines_are_collected_on_demand_and_change_nothing() {
    let options = Options { net: NetOptions::default(), ..Options::swarm(4) };
    let (hash, _, none) = run(options.clone());
    let (hash_with_lines, _, lines) = run(Options { trace: true, ..options });
    assert_eq!(hash, hash_with_lines);
    assert!(none.is_empty());
    assert!(lines.iter().any(|line| line.contains("node3 Crash") || line.contains("Kill")));
}

#[test]
fn swarms_vary() {
    let options: Vec<Options> = (0..20).map(Options::swarm).collect();
    assert!(options.iter().any(|options| options.net.drop.0 == 0));
    assert!(options.iter().any(|options| options.net.drop.0 > 0));
    assert!(options.iter().any(|options| options.order == crate::sim::Order::Random));
}
