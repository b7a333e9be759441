//! Files and directories, and what crashes leave of them.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::sim::{Options, Sim};
use crate::{Dir, File, Rt};

const SECTOR: usize = 512;

fn world(seed: u64) -> Sim {
    Sim::new(Options::seed(seed))
}

/// The directory `d` of node `a`.
async fn dir(sim: &Sim) -> Dir {
    sim.rt("a").disk().create_dir("d").await.expect("the disk works")
}

/// The same after the power failed.
async fn dir_after_crash(sim: &Sim) -> Dir {
    sim.crash("a");
    Rt::sim(sim.restart("a")).disk().open_dir("d").await.expect("it was made durably")
}

/// A new file whose name is durable.
async fn file(dir: &Dir, name: &str) -> File {
    let file = dir.create(name).await.expect("the name is free");
    dir.sync().await.expect("the disk works");
    file
}

async fn write(file: &File, offset: u64, byte: u8, len: usize) {
    file.write_at(offset, vec![Bytes::from(vec![byte; len])]).await.expect("the disk works");
}

async fn read(file: &File) -> Bytes {
    file.read_at(0, 1 << 20).await.expect("the disk works")
}

#[test]
fn contents_are_what_was_written() {
    let sim = world(1);
    let mut rng = sim.rng("contents");
    sim.run(async {
        let file = file(&dir(&sim).await, "f").await;
        let mut model = vec![0u8; 300_000];
        let mut len = 0;
        for round in 0..300 {
            let offset = rng.below(200_000) as usize & if round % 3 == 0 { !4095 } else { !0 };
            let count = rng.between(1, 100_000) as usize;
            match rng.below(4) {
                0 => {
                    file.punch(offset as u64, count as u64).await.expect("the disk works");
                    model[offset..offset + count].fill(0);
                }
                1 => {
                    file.allocate(offset as u64, count as u64).await.expect("the disk works");
                    len = len.max(offset + count);
                }
                _ => {
                    let mut bytes = vec![0; count];
                    rng.fill(&mut bytes);
                    model[offset..offset + count].copy_from_slice(&bytes);
                    let bytes = Bytes::from(bytes);
                    let middle = rng.below(count as u64) as usize;
                    let slices = vec![bytes.slice(..middle), Bytes::new(), bytes.slice(middle..)];
                    file.write_at(offset as u64, slices).await.expect("the disk works");
                    len = len.max(offset + count);
                }
            }
            // A hole may be punched behind the end; what is there appears when the file grows.
            model[len..].fill(0);
            assert_eq!(file.len().await.expect("the disk works"), len as u64);
            let start = rng.below(300_000) as usize;
            let part = file.read_at(start as u64, 50_000).await.expect("the disk works");
            assert_eq!(part, model[start.min(len)..(start + 50_000).min(len)], "round {round}");
        }
        assert_eq!(read(&file).await, model[..len]);
    });
}

#[test]
fn what_was_synced_survives_and_what_was_not_may_be_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let sim = world(seed);
        sim.run(async {
            let file = file(&dir(&sim).await, "f").await;
            write(&file, 0, b'1', 4 * SECTOR).await;
            file.sync().await.expect("the disk works");
            write(&file, 0, b'2', 4 * SECTOR).await;
            write(&file, 4 * SECTOR as u64, b'3', SECTOR).await;
            let file = dir_after_crash(&sim).await.open("f").await.expect("its name was synced");
            let bytes = read(&file).await;
            let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is one or the other");
                assert!(if index < 4 { b"12".contains(&sector[0]) } else { b"\x003".contains(&sector[0]) });
            }
            seen.insert(sectors);
        });
    }
    assert!(seen.contains(b"1111".as_slice()), "all is lost for some seed");
    assert!(seen.contains(b"22223".as_slice()), "nothing is lost for some seed");
    assert!(seen.iter().any(|sectors| sectors[..4].contains(&b'1') && sectors[..4].contains(&b'2')));
}

#[test]
fn a_sync_covers_what_was_written_before_it_and_no_more() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let sim = world(seed);
        sim.run(async {
            let file = file(&dir(&sim).await, "f").await;
            write(&file, 0, b'1', SECTOR).await;
            let (rt, syncing) = (sim.rt("a"), file.clone());
            rt.spawn(async move { syncing.sync().await.expect("the disk works") });
            // Long enough for the sync to begin, too short for it to end.
            rt.sleep(Duration::from_micros(1)).await;
            write(&file, 0, b'2', 2 * SECTOR).await;
            rt.sleep(Duration::from_millis(10)).await;
            let file = dir_after_crash(&sim).await.open("f").await.expect("its name was synced");
            let bytes = read(&file).await;
            assert!(bytes.len() >= SECTOR && b"12".contains(&bytes[0]), "the first write is durable");
            seen.insert(bytes[0]);
        });
    }
    assert_eq!(seen, BTreeSet::from([b'1', b'2']));
}

#[test]
fn a_write_under_way_is_done_in_part() {
    let mut torn = 0;
    for seed in 0..20 {
        let sim = world(seed);
        sim.run(async {
            let file = file(&dir(&sim).await, "f").await;
            file.allocate(0, 64 << 10).await.expect("there is space");
            file.sync().await.expect("the disk works");
            let (rt, writing) = (sim.rt("a"), file.clone());
            rt.spawn(async move { write(&writing, 0, b'x', 64 << 10).await });
            rt.sleep(Duration::from_micros(1)).await;
            let file = dir_after_crash(&sim).await.open("f").await.expect("its name was synced");
            let bytes = read(&file).await;
            assert_eq!(bytes.len(), 64 << 10);
            let written = bytes.chunks(SECTOR).filter(|sector| sector[0] == b'x').count();
            torn += u32::from(written > 0 && written < 128);
        });
    }
    assert!(torn > 0);
}

#[test]
fn names_survive_when_the_directory_was_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..150 {
        let sim = world(seed);
        sim.run(async {
            let before = dir(&sim).await;
            for name in ["kept", "removed", "old"] {
                file(&before, name).await;
            }
            before.create("new").await.expect("the name is free");
            before.remove("removed").await.expect("it is there");
            before.rename("old", "renamed").await.expect("it is there");
            assert_eq!(before.list().await.expect("the disk works"), ["kept", "new", "renamed"]);
            let after = dir_after_crash(&sim).await;
            let names = after.list().await.expect("the disk works");
            assert!(names.contains(&"kept".to_owned()));
            let (old, renamed) = (names.contains(&"old".to_owned()), names.contains(&"renamed".to_owned()));
            assert!(old ^ renamed, "a rename is atomic: {names:?}");
            seen.insert(names);

            // The same again, synced.
            let fresh = after.create("synced").await.expect("the name is free");
            after.rename("synced", "kept").await.expect("it is there");
            write(&fresh, 0, b'k', 1).await;
            fresh.sync().await.expect("the disk works");
            after.sync().await.expect("the disk works");
            let again = dir_after_crash(&sim).await;
            assert_eq!(read(&again.open("kept").await.expect("it was synced")).await, "k");
            assert!(again.open("synced").await.is_err());
        });
    }
    // Each of the three changes survives or not on its own.
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn a_kill_loses_nothing() {
    let sim = world(1);
    sim.run(async {
        let before = dir(&sim).await;
        write(&before.create("f").await.expect("the name is free"), 0, b'x', 100).await;
        sim.kill("a");
        let after = Rt::sim(sim.restart("a")).disk().open_dir("d").await.expect("it is there");
        assert_eq!(read(&after.open("f").await.expect("it is there")).await.len(), 100);
    });
}

#[test]
fn after_a_failed_sync_nothing_is_known() {
    let mut lost = 0;
    for seed in 0..30 {
        let sim = world(seed);
        sim.run(async {
            let file = file(&dir(&sim).await, "f").await;
            file.allocate(0, 4096).await.expect("there is space");
            file.sync().await.expect("the disk works");
            write(&file, 0, b'x', 4096).await;
            sim.fail_syncs("a", true);
            file.sync().await.expect_err("syncs fail");
            sim.fail_syncs("a", false);
            file.sync().await.expect("syncs work again, but what they forgot they forgot");
            let file = dir_after_crash(&sim).await.open("f").await.expect("its name was synced");
            lost += u32::from(read(&file).await.contains(&0));
        });
    }
    assert!(lost > 0);
}

#[test]
fn space_runs_out_except_where_it_was_reserved() {
    let sim = world(1);
    sim.run(async {
        let dir = dir(&sim).await;
        sim.set_capacity("a", 1 << 20);
        let reserved = file(&dir, "reserved").await;
        reserved.allocate(0, 512 << 10).await.expect("there is space");
        let greedy = file(&dir, "greedy").await;
        write(&greedy, 0, b'x', 512 << 10).await;
        assert_eq!(dir.space().await.expect("the disk works").free, 0);
        let full = greedy.write_at(512 << 10, vec![Bytes::from_static(b"x")]).await;
        assert_eq!(full.expect_err("the disk is full").kind(), io::ErrorKind::StorageFull);
        write(&reserved, 0, b'x', 512 << 10).await;
        reserved.punch(0, 8 << 10).await.expect("the disk works");
        assert_eq!(dir.space().await.expect("the disk works").free, 8 << 10);
        // A file without a name goes with its last handle.
        dir.remove("greedy").await.expect("it is there");
        dir.sync().await.expect("the disk works");
        assert_eq!(dir.space().await.expect("the disk works").free, 8 << 10);
        drop(greedy);
        assert_eq!(dir.space().await.expect("the disk works").free, (512 + 8) << 10);
    });
}

#[test]
fn large_files_cost_nothing_until_they_are_written() {
    let sim = world(1);
    sim.run(async {
        let file = file(&dir(&sim).await, "f").await;
        file.allocate(0, 100 << 30).await.expect("there is space");
        file.sync().await.expect("the disk works");
        write(&file, 99 << 30, b'x', 4096).await;
        let bytes = file.read_at((99 << 30) - 1, 2).await.expect("the disk works");
        assert_eq!(bytes[..], [0, b'x']);
        file.punch(0, 99 << 30).await.expect("the disk works");
    });
}

#[test]
fn failing_writes_change_nothing() {
    let sim = world(1);
    sim.run(async {
        let file = file(&dir(&sim).await, "f").await;
        sim.fail_writes("a", true);
        for len in [1, 64 << 10] {
            file.write_at(0, vec![Bytes::from(vec![1; len])]).await.expect_err("writes fail");
        }
        assert_eq!(file.len().await.expect("the disk works"), 0);
        sim.fail_writes("a", false);
        write(&file, 0, 1, 1).await;
    });
}

#[test]
fn the_lock_ends_with_the_incarnation_and_so_do_the_handles() {
    let sim = world(1);
    sim.run(async {
        let before = dir(&sim).await;
        let file = file(&before, "f").await;
        before.lock().await.expect("it is free");
        let after = dir_after_crash(&sim).await;
        after.lock().await.expect("its owner is dead");
        assert!(before.list().await.is_err() && before.lock().await.is_err());
        assert!(read_fails(&file).await);
    });
}

async fn read_fails(file: &File) -> bool {
    file.read_at(0, 1).await.is_err() && file.sync().await.is_err() && file.len().await.is_err()
}
