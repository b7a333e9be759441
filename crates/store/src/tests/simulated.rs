//! The store in simulated machines: power failures, failed syncs, full disks.

use std::collections::BTreeMap;

use rt::sim::{Chance, Handle, Options, Sim};

use super::*;

const PATH: &str = "/target";
const NODE: &str = "server";

/// What a run has told its client.
#[derive(Default)]
struct Told {
    /// Changes in the order of their transnos.
    made: BTreeMap<u64, (String, Option<String>)>,
    durable: u64,
}

/// Commits random changes until the store fails or `count` are made.
async fn work(store: &Arc<Store>, random: &mut Rng, told: &mut Told, count: u64) -> Result<(), StoreError> {
    for _ in 0..count {
        store.room(Need::Growth).await?;
        let key = format!("e{:016}{}", random.below(3), random.below(40));
        let value = (random.below(4) > 0).then(|| "x".repeat(random.below(2000) as usize));
        let change = match &value {
            Some(value) => put(&key, value),
            None => delete(&key),
        };
        let drawn = store.commit(batch([change]))?;
        told.made.insert(drawn.0, (key, value));
        if random.below(20) == 0 {
            store.committed(drawn).await?;
        }
        told.durable = store.last_committed().0;
    }
    Ok(())
}

/// The store must hold a prefix of what was made that has all that was durable; the rest is void from here on.
fn compare(store: &Arc<Store>, told: &mut Told) {
    let last = store.last_transno().0;
    assert!(last >= told.durable, "{last} >= {}", told.durable);
    assert_eq!(store.last_committed().0, last, "what an opener finds it announces as durable");
    told.durable = last;
    told.made.retain(|transno, _| *transno <= last);
    let mut want = BTreeMap::new();
    for (transno, (key, value)) in &told.made {
        want.insert(key.clone(), value.clone().map(|value| (value, *transno)));
    }
    for (key, value) in want {
        assert_eq!(value_of(store, &key), value, "{key}");
    }
}

async fn crashes(handle: &Handle, seed: u64) -> Result<(), StoreError> {
    let mut random = Rng::new(seed + 1);
    let mut told = Told::default();
    Store::format(&handle.rt(NODE), PATH, &label()).await?;
    for round in 0..12 {
        let rt = handle.rt(NODE);
        let store = Store::open_with(&rt, PATH, small()).await?;
        assert_eq!(store.boot(), round + 1);
        compare(&store, &mut told);
        let count = random.below(120);
        let _ = work(&store, &mut random, &mut told, count).await;
        // The end comes at any moment of a group commit.
        let asker = store.clone();
        rt.spawn(async move { drop(asker.committed(asker.last_transno()).await) });
        handle.root().sleep(Duration::from_nanos(1 << random.below(26))).await;
        told.durable = store.last_committed().0;
        drop(store);
        if random.below(3) == 0 {
            handle.kill(NODE);
        } else {
            handle.crash(NODE);
        }
        handle.restart(NODE);
    }
    let report = crate::check::check(&handle.rt(NODE), PATH).await?;
    assert!(report.is_clean(), "{report:?}");
    Ok(())
}

#[test]
fn power_failures_lose_nothing_durable() {
    for seed in 0..30 {
        let sim = Sim::new(Options::swarm(seed));
        let handle = sim.handle();
        sim.run(crashes(&handle, seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Writes and syncs fail now and then: the store stops, and opens again with all it had announced.
#[test]
fn failing_disks_lose_nothing_durable() {
    let mut failed = 0;
    for seed in 0..30 {
        let sim = Sim::new(Options::seed(seed));
        let handle = sim.handle();
        let done: Result<(), StoreError> = sim.run(async {
            let mut random = Rng::new(seed + 1);
            let mut told = Told::default();
            Store::format(&handle.rt(NODE), PATH, &label()).await?;
            for _ in 0..6 {
                let rt = handle.rt(NODE);
                handle.change_disks(|disk| {
                    (disk.write_fails, disk.sync_fails) = (Chance::NEVER, Chance::NEVER)
                });
                let store = Store::open_with(&rt, PATH, small()).await?;
                compare(&store, &mut told);
                let chance = Chance::percent(3);
                handle.change_disks(|disk| (disk.write_fails, disk.sync_fails) = (chance, chance));
                if work(&store, &mut random, &mut told, 150).await.is_err() {
                    failed += 1;
                    assert!(matches!(store.get(b"k"), Err(StoreError::Poisoned)));
                    assert!(matches!(store.close().await, Err(StoreError::Poisoned)));
                }
                handle.crash(NODE);
                handle.restart(NODE);
            }
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(failed > 10, "the test has to meet failures");
}

#[test]
fn an_idle_store_does_nothing() {
    let sim = Sim::new(Options::seed(1));
    let handle = sim.handle();
    sim.run(async {
        let rt = handle.rt(NODE);
        Store::format(&rt, PATH, &label()).await?;
        let store = Store::open(&rt, PATH).await?;
        let began = handle.now();
        let last = store.commit(batch([put("a", "1")]))?;
        let waiter = store.shared.wait_for(last.0)?.expect("it is not yet durable");
        assert!(waiter.await.is_ok());
        let took = handle.now() - began;
        assert!(took >= Duration::from_millis(200) && took < Duration::from_millis(210), "{took:?}");
        let work = || {
            let stats = handle.node_stats(NODE);
            (stats.events, stats.polls, stats.writes, stats.syncs)
        };
        let before = work();
        handle.root().sleep(Duration::from_secs(3600)).await;
        assert_eq!(work(), before);
        store.close().await
    })
    .expect("no operation fails");
}

/// A full disk refuses before it is too late, and goes on when there is space again.
#[test]
fn a_full_disk_refuses_in_time() {
    let sim = Sim::new(Options::seed(1));
    let handle = sim.handle();
    sim.run(async {
        let rt = handle.rt(NODE);
        Store::format(&rt, PATH, &label()).await?;
        let store = Store::open_with(&rt, PATH, small()).await?;
        handle.set_capacity(NODE, 1 << 20);
        let mut made = 0;
        loop {
            match store.room(Need::Growth).await {
                Ok(()) => {}
                Err(StoreError::NoSpace) => break,
                Err(error) => return Err(error),
            }
            let last = store.commit(batch([put(&format!("{made}"), &"x".repeat(1000))]))?;
            store.committed(last).await?;
            made += 1;
            assert!(made < 10_000, "the disk is not that large");
        }
        let last = store.commit(batch([delete("0")]))?;
        store.committed(last).await?;
        handle.set_capacity(NODE, 1 << 30);
        // The first call after space came back still refuses, and has the store look again.
        while let Err(error) = store.room(Need::Growth).await {
            assert!(matches!(error, StoreError::NoSpace), "{error}");
            rt.sleep(Duration::from_millis(1)).await;
        }
        store.close().await
    })
    .expect("no operation fails");
}

/// A killed process leaves records that were written and not synced. Who reads them announces them, so they have to
/// survive the machine from then on.
#[test]
fn what_was_read_from_the_log_stays() {
    use crate::log::scan::scan;
    use crate::log::segment::SegmentId;
    const RECORDS: u64 = 5;
    for seed in 0..10 {
        let sim = Sim::new(Options::seed(seed));
        let handle = sim.handle();
        let done: Result<(), StoreError> = sim.run(async {
            let store = {
                let rt = handle.rt(NODE);
                Store::format(&rt, PATH, &label()).await?;
                Store::open(&rt, PATH).await?
            };
            for _ in 0..RECORDS {
                let last = store.commit(batch([put("a", "1")]))?;
                store.committed(last).await?;
            }
            let name = SegmentId { boot: 1, number: 0 }.name();
            let dir = handle.rt(NODE).disk().open_dir(&format!("{PATH}/log")).await?;
            let file = dir.open(&name).await?;
            let bytes = file.read_at(0, file.len().await? as usize).await?;
            dir.remove(&name).await?;
            dir.create(&name).await?.write_at(0, vec![bytes]).await?;
            dir.sync().await?;
            assert_eq!(scan(&dir, 0, 0, |_| Ok(())).await?.last, RECORDS);
            handle.crash(NODE);
            handle.restart(NODE);
            let dir = handle.rt(NODE).disk().open_dir(&format!("{PATH}/log")).await?;
            assert_eq!(scan(&dir, 0, 0, |_| Ok(())).await?.last, RECORDS);
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
