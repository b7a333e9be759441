//! Space: what is freed comes back, and a full disk loses nothing.

use std::time::Duration;

use rt::sim::Span;
use rt::sync::oneshot;

use super::*;
use crate::target::Batch;

const MIB: u64 = 1 << 20;

#[test]
fn overwriting_takes_no_more_space_than_a_commit_behind() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    // So small that data files are small too.
    sim.set_capacity(NODE, 64 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let mut data = pattern(1 << 20, 1);
        for round in 0..100 {
            data[77] = round;
            target.write(id(1), 0, &data).await?;
            if round % 5 == 0 {
                target.sync().await?;
            }
        }
        assert!(target.read(id(1), 0, 1 << 20).await? == data);
        assert!(target.data_files().await?.len() <= 3, "{:?}", target.data_files().await?);
        target.close().await
    })
    .expect("there is space enough");
}

/// The log has data files open whose small writes it carries. That keeps none of their space once nothing refers to them.
#[test]
fn space_of_what_is_gone_comes_back_before_the_engine_gets_it() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 96 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let data = pattern(1 << 20, 1);
        let mut least = u64::MAX;
        for round in 0..20 {
            for n in 0..24 {
                target.write(stripe(round * 100 + n, 0), 0, &data).await?;
                target.write(stripe(round * 100 + n, 1), 0, &data[..100]).await?;
            }
            target.sync().await?;
            let gone: Vec<ObjectId> =
                (0..24).flat_map(|n| [0, 1].map(|part| stripe(round * 100 + n, part))).collect();
            target.destroy(&gone).await?;
            target.sync().await?;
            rt.sleep(Duration::from_secs(5)).await;
            least = least.min(target.objects.space().await?.bytes_available);
        }
        assert!(least > 48 * MIB, "{least}");
        target.close().await
    })
    .expect("there is space enough");
}

#[test]
fn what_somebody_reads_is_not_used_again() {
    let mut options = Options::seed(1);
    options.disk.read = Span::millis(60_000, 60_000);
    let sim = Sim::new(options);
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 64 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let data = pattern(1 << 20, 1);
        target.write(id(1), 0, &data).await?;
        let (sender, receiver) = oneshot::channel();
        let reader = target.clone();
        rt.spawn(async move {
            let _ = sender.send(reader.read(id(1), 0, 1 << 20).await);
        });
        rt.sleep(Duration::from_secs(1)).await;
        // More than the data file holds.
        for round in 2..20 {
            target.write(id(1), 0, &pattern(1 << 20, round)).await?;
            target.sync().await?;
        }
        let read = receiver.await.expect("the task answers")?;
        assert!(read == data, "the read began before the writes");
        target.close().await
    })
    .expect("there is space enough");
}

#[test]
fn files_of_former_boots_go_after_their_last_object() {
    check(async |rt, target| {
        for oid in 1..4 {
            target.write(id(oid), 0, &pattern(1 << 20, 1)).await?;
        }
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        let old = target.data_files().await?.remove(0);
        target.destroy(&[id(1), id(2)]).await?;
        target.sync().await?;
        rt.sleep(Duration::from_secs(5)).await;
        assert!(target.data_files().await?.contains(&old));
        assert!(target.read(id(3), 0, 1 << 20).await? == pattern(1 << 20, 1));
        target.destroy(&[id(3)]).await?;
        target.sync().await?;
        rt.sleep(Duration::from_secs(5)).await;
        let dir = target.store.dir().subdir(crate::object::files::DIR).await?;
        assert_eq!(dir.open(&old).await?.space().await?, 0, "nobody had to ask for it");
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        rt.sleep(Duration::from_secs(5)).await;
        assert!(!target.data_files().await?.contains(&old), "it was seen that nothing is in it");
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn no_file_is_removed_because_a_sum_says_so() {
    check(async |rt, target| {
        let data = pattern(1 << 20, 1);
        target.write(id(1), 0, &data).await?;
        let used = crate::object::summary::load(&target.store)?.used;
        let mut sums = crate::Sums::default();
        used.iter().for_each(|(file, used)| sums.add(&crate::object::keys::used_key(*file), -(*used as i64)));
        target.store.commit(Batch { sums, ..Batch::default() })?;
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        rt.sleep(Duration::from_secs(5)).await;
        assert!(target.read(id(1), 0, 1 << 20).await? == data);
        assert_eq!(target.findings().await?.len(), 1);
        target.close().await
    });
}

/// Data files of the present boot kept all the space that they ever had, as long as anything in each of them was used.
#[test]
fn space_in_files_that_are_written_is_given_back() {
    let sim = Sim::new(Options::seed(3));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 800 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let data = pattern(1 << 20, 5);
        for oid in 1..=500 {
            target.write(id(oid), 0, &data).await?;
        }
        target.sync().await?;
        let used = async || {
            let space = target.store.dir().space().await.expect("it is told");
            space.total - space.free
        };
        let full = used().await;
        assert!(full > 500 * MIB, "{full}");
        // One of 25 stays, so that something stays in each file.
        let gone: Vec<_> = (1..=500).filter(|oid| oid % 25 != 0).map(id).collect();
        target.destroy(&gone).await?;
        target.sync().await?;
        rt.sleep(Duration::from_secs(30)).await;
        let left = used().await;
        // What is kept is two files as large as the last one, of at most an eighth of what was available each.
        assert!(left < 200 * MIB, "{} MiB", left / MIB);
        for oid in (25..=500).step_by(25) {
            assert!(target.read(id(oid), 0, 1 << 20).await? == data, "{oid}");
        }
        for oid in 501..=900 {
            target.write(id(oid), 0, &data).await?;
        }
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        for oid in (25..=500).step_by(25).chain(501..=900) {
            assert!(target.read(id(oid), 0, 1 << 20).await? == data, "{oid}");
        }
        target.close().await
    })
    .expect("there is space enough");
}

#[test]
fn a_full_disk_refuses_and_frees() {
    let sim = Sim::new(Options::seed(2));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 200 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let data = pattern(1 << 20, 5);
        let mut count = 0;
        let full = loop {
            match target.write(id(count + 1), 0, &data).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::NoSpace), "{full}");
        assert!(count > 100, "{count}");
        let space = target.objects.space().await?;
        assert!(space.bytes_available < MIB, "a write of that much was refused: {space:?}");
        assert_eq!(space.files_total - space.files_free, u64::from(count));
        // A refused write changed nothing, and every one that was acknowledged is there.
        assert_eq!(target.objects.attr(id(count + 1))?.size, 0);
        for oid in 1..=count {
            assert!(target.read(id(oid), 0, 1 << 20).await? == data, "{oid}");
        }
        assert_eq!(target.findings().await?, Vec::<String>::new());
        // Of what is freed, a write may need at once what is not durable yet.
        target.destroy(&[id(1), id(2)]).await?;
        target.write(id(count + 1), 0, &data).await?;
        target.punch(id(3), 0, u64::MAX).await?;
        target.write(id(count + 2), 0, &data).await?;
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(target.read(id(count + 2), 0, 1 << 20).await? == data);
        // Files of the former boot are not written: their holes become free space of the disk.
        target.destroy(&[4, 5, 6, 7, 8, 9, 10, 11, 12, 13].map(id)).await?;
        target.write(id(count + 3), 0, &data).await?;
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("no operation fails but for want of space");
}

/// A failed write of data was told to the client, which told the application, while the target went on.
#[test]
fn a_failed_write_stops_the_target_and_loses_nothing() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make(&rt).await?;
        let data = pattern(1 << 20, 1);
        target.write(id(1), 0, &data).await?;
        target.sync().await?;
        sim.fail_writes(NODE, true);
        let failed = target.write(id(1), 0, &pattern(1 << 20, 2)).await;
        assert!(matches!(failed, Err(StoreError::Io(_))), "{failed:?}");
        assert!(target.store.has_failed(), "what is durable is not known any more");
        target.store.failed().await;
        assert!(matches!(target.write(id(2), 0, b"more").await, Err(StoreError::Poisoned)));
        sim.fail_writes(NODE, false);
        target.store.abandon().await;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(target.read(id(1), 0, 1 << 20).await? == data);
        target.close().await
    })
    .expect("the disk works again");
}

/// Space that was allocated ahead of need when the machine failed, and what was freed and not given back yet, comes back after the
/// next start, though nobody waits for that.
#[test]
fn what_a_crash_left_allocated_comes_back() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 256 * MIB);
    let data = pattern(MIB as usize, 1);
    sim.run(async {
        let target = Target::make(&rt).await?;
        for oid in 1..=6 {
            target.write(id(oid), 0, &data).await?;
        }
        target.destroy(&[id(2), id(4)]).await?;
        target.sync().await
    })
    .expect("there is space enough");
    sim.handle().crash(NODE);
    let rt = Rt::sim(sim.restart(NODE));
    sim.run(async {
        let target = Target::open(&rt, Limits::default()).await?;
        rt.sleep(Duration::from_secs(5)).await;
        let dir = target.store.dir().subdir(crate::object::files::DIR).await?;
        let mut taken = 0;
        for name in dir.list().await?.iter().filter(|name| name.starts_with("0000000000000001-")) {
            taken += dir.open(name).await?.space().await?;
        }
        assert_eq!(taken, 4 * MIB, "what four objects need");
        for oid in [1, 3, 5, 6] {
            assert!(target.read(id(oid), 0, MIB as u32).await? == data, "{oid}");
        }
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("no operation fails");
}

/// Writes an object of 1 MiB, and reserves space for many others of that size until there is no more; how many there are.
async fn fill(target: &Target) -> Result<u32, StoreError> {
    target.write(id(1), 0, &pattern(MIB as usize, 1)).await?;
    for oid in 2.. {
        target.punch(id(oid), MIB, u64::MAX).await?;
        match target.allocate(id(oid), 0, MIB).await {
            Ok(_) => {}
            Err(StoreError::NoSpace) => return Ok(oid - 1),
            Err(error) => return Err(error),
        }
    }
    unreachable!("there is space for fewer than there are numbers");
}

/// After a crash of a target of `mib` MiB that was full, a write of a new object and one over what was there are repeated, `after` the target was
/// opened.
fn repeated_when_full(mib: u64, after: Duration) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, mib * MIB);
    let data = pattern(MIB as usize, 2);
    let again = sim
        .run(async {
            let target = Target::make(&rt).await?;
            let count = fill(&target).await?;
            target.sync().await?;
            let last = target.destroy(&[id(count)]).await?;
            target.store.committed(last).await?;
            let new = target.write(id(count + 2), 0, &data).await?;
            let over = target.write(id(1), 0, &data).await?;
            Ok::<_, StoreError>([(id(count + 2), new), (id(1), over)])
        })
        .expect("an overwrite has its space");
    sim.handle().crash(NODE);
    let rt = Rt::sim(sim.restart(NODE));
    sim.run(async {
        let target = Target::open(&rt, Limits::default()).await?;
        rt.sleep(after).await;
        for (id, transno) in again {
            let data = vec![Bytes::from(data.clone())];
            target.objects.write(id, 0, data, at(1), Some(transno), nothing()).await?;
        }
        for (id, _) in again {
            assert!(target.read(id, 0, MIB as u32).await? == data);
        }
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .unwrap_or_else(|error| panic!("{mib} MiB, after {after:?}: {error}"));
}

/// What was written, or reserved, before the target was opened on a full disk could not be written again until former files were
/// looked through, and a change that was answered and lost in the crash could not be repeated.
#[test]
fn what_a_crash_lost_can_be_repeated_on_a_full_disk() {
    for mib in [128, 200] {
        for after in 0..50 {
            repeated_when_full(mib, Duration::from_micros(after * 20));
        }
    }
}

/// What former boots left is given back when nobody reads it any more: who needed it looked a few times, at once, and gave up.
#[test]
fn an_overwrite_on_a_full_disk_waits_for_readers() {
    let mut options = Options::seed(1);
    options.disk.read = Span::millis(300, 300);
    let sim = Sim::new(options);
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 128 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        fill(&target).await?;
        target.sync().await
    })
    .expect("it is full");
    sim.handle().crash(NODE);
    let rt = Rt::sim(sim.restart(NODE));
    sim.run(async {
        let target = Target::open(&rt, Limits::default()).await?;
        let (sender, receiver) = oneshot::channel();
        let reader = target.clone();
        rt.spawn(async move {
            let _ = sender.send(reader.read(id(1), 0, MIB as u32).await);
        });
        rt.sleep(Duration::from_micros(1)).await;
        for oid in 1..=8 {
            target.write(id(oid), 0, &pattern(MIB as usize, 2)).await?;
        }
        assert!(receiver.await.expect("the task answers")? == pattern(MIB as usize, 1));
        target.close().await
    })
    .expect("an overwrite has its space");
}

/// Overwrites waited a few times, for a commit or for a moment, and were refused when a reader took longer.
#[test]
fn overwrites_on_a_full_disk_wait_for_a_slow_reader_while_others_commit() {
    let mut options = Options::seed(1);
    options.disk.read = Span::millis(9_000, 9_000);
    let sim = Sim::new(options);
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 128 * MIB);
    sim.run(async {
        let target = Target::make(&rt).await?;
        fill(&target).await?;
        target.sync().await?;
        let (sender, receiver) = oneshot::channel();
        let reader = target.clone();
        rt.spawn(async move {
            let _ = sender.send(reader.read(id(1), 0, MIB as u32).await);
        });
        let busy = target.clone();
        let pause = rt.clone();
        rt.spawn(async move {
            while busy.store.commit(Batch::default()).is_ok() && busy.sync().await.is_ok() {
                pause.sleep(Duration::from_millis(5)).await;
            }
        });
        rt.sleep(Duration::from_micros(1)).await;
        let began = rt.now();
        for oid in 1..=8 {
            target.write(id(oid), 0, &pattern(MIB as usize, 2)).await?;
        }
        let took = rt.now() - began;
        assert!((Duration::from_secs(8)..Duration::from_secs(10)).contains(&took), "{took:?}");
        assert!(receiver.await.expect("the task answers")? == pattern(MIB as usize, 1));
        target.close().await
    })
    .expect("an overwrite has its space");
}

/// Each small write between many small extents read them all and waited for a commit, and there was no space to write them as one.
#[test]
fn small_extents_are_left_alone_on_a_full_disk() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.set_capacity(NODE, 128 * MIB);
    sim.run(async {
        let never = Limits { neighbours_max: usize::MAX, ..Limits::default() };
        let target = Target::make_with(&rt, never).await?;
        let crowd = id(10_000);
        target.write(crowd, 0, &pattern(64 << 10, 1)).await?;
        for n in 0..100 {
            target.punch(crowd, n * 600 + 1, n * 600 + 2).await?;
        }
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        let count = fill(&target).await?;
        for oid in 20_000.. {
            match target.write(id(oid), 0, b"x").await {
                Ok(_) => {}
                Err(StoreError::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
        target.write(crowd, 63_000, b"x").await?;
        let (before, extents) = (sim.handle().node_stats(NODE).reads, target.extent_count(crowd)?);
        for n in 0..20 {
            target.write(crowd, n * 600 + 300, b"x").await?;
        }
        assert_eq!(sim.handle().node_stats(NODE).reads, before, "nothing is read that cannot be merged");
        assert!(target.extent_count(crowd)? > extents);
        // When there is space they are merged.
        target.destroy(&[id(count), id(count - 1)]).await?;
        target.sync().await?;
        rt.sleep(Duration::from_secs(10)).await;
        target.write(crowd, 30_000, b"x").await?;
        assert!(target.extent_count(crowd)? < extents, "{}", target.extent_count(crowd)?);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await
    })
    .expect("an overwrite has its space");
}

#[test]
fn what_is_there_can_be_written_again_after_a_stop_on_a_full_disk() {
    for mib in [100, 260] {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt(NODE);
        sim.set_capacity(NODE, mib * MIB);
        sim.run(async {
            let target = Target::make(&rt).await?;
            let count = fill(&target).await?;
            target.punch(id(2), 4096, 8192).await?;
            // Others take some of what is left to log, engine and reserve.
            let other = target.store.dir().create("other").await?;
            other.allocate(0, mib * MIB / 64).await?;
            target.close().await?;
            let target = Target::open(&rt, Limits::default()).await?;
            let data = pattern(MIB as usize, 2);
            target.write(id(1), 0, &data).await?;
            rt.sleep(Duration::from_secs(5)).await;
            let dir = target.store.dir().subdir(crate::object::files::DIR).await?;
            for (file, used) in crate::object::summary::load(&target.store)?.used {
                let taken = dir.open(&file.to_string()).await?.space().await?;
                let is_former = file.boot < target.store.boot();
                assert!(!is_former || taken == used * 4096, "nothing stays taken because it is little");
            }
            // The second has a hole.
            for oid in 3..=count {
                target.write(id(oid), 0, &data).await?;
            }
            assert!(target.read(id(1), 0, MIB as u32).await? == data);
            assert_eq!(target.findings().await?, Vec::<String>::new());
            target.close().await
        })
        .unwrap_or_else(|error| panic!("{mib} MiB: {error}"));
    }
}
