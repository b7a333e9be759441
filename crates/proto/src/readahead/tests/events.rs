//! What arrives, is lost, and is closed.

use super::*;

/// A reader that has read 8 MiB in sequence.
fn reader() -> World {
    let mut world = World::new(1 << 40);
    for at in 0..8 {
        world.read(at * MIB, MIB);
    }
    world.mount.stats.clear();
    world
}

#[test]
fn what_is_on_its_way_is_a_hit_for_which_the_reader_waits() {
    let mut world = World::new(1 << 40);
    world.read(0, MIB);
    world.read(MIB, MIB);
    world.mount.stats.clear();
    let decision = world.file.read(&mut world.mount, 1, 2 * MIB..3 * MIB, 1 << 40);
    assert_eq!(
        (world.count(Counter::Hits), world.count(Counter::FailedFastRead)),
        (256, 0),
        "it had arrived"
    );
    let [first, ..] = &decision.fetch[..] else { panic!("{decision:?}") };
    world.file.read(&mut world.mount, 1, first.clone(), 1 << 40);
    assert_eq!(world.count(Counter::FailedFastRead), 1);
    assert!(world.file.arrived(first.clone()).is_empty(), "who waited has it");
    let [_, second, ..] = &decision.fetch[..] else { panic!("{decision:?}") };
    let middle = second.start + 10..second.end - 10;
    world.file.read(&mut world.mount, 2, middle.clone(), 1 << 40);
    assert_eq!(world.file.arrived(second.clone()), [second.start..middle.start, middle.end..second.end]);
}

#[test]
fn bytes_that_a_lock_takes_are_fetched_again_and_the_window_begins_anew() {
    let mut world = reader();
    let ahead = world.file.ahead_bytes();
    assert_eq!(ahead, 7 * MIB);
    world.file.lost(&mut world.mount, 9 * MIB..11 * MIB, Why::Taken);
    assert_eq!(world.file.ahead_bytes(), 5 * MIB);
    assert_eq!(world.count(Counter::Discarded), 512);
    assert!(world.file.arrived(9 * MIB..10 * MIB).is_empty(), "and what comes then is not kept");
    assert!(world.read(8 * MIB, MIB).is_empty());
    let fetched = world.read(9 * MIB, MIB);
    assert_eq!(one(&fetched), 10 * MIB..11 * MIB);
    assert_eq!(world.count(Counter::MissInsideWindow), 256);
    for at in 10..40 {
        world.read(at * MIB, MIB);
    }
    assert_eq!(world.count(Counter::Misses), 256);
}

#[test]
fn a_cache_without_room_makes_windows_smaller() {
    let mut world = reader();
    world.file.lost(&mut world.mount, 14 * MIB..15 * MIB, Why::Dropped);
    assert!(world.read(8 * MIB, MIB).is_empty(), "half of it is left");
    assert_eq!((world.count(Counter::Discarded), world.count(Counter::MissInsideWindow)), (256, 0));
    let mut far = World::new(1 << 40);
    for at in 0..30 {
        far.read(at * 16 * RECORD, RECORD);
    }
    let ahead = far.file.ahead_bytes();
    far.file.lost(&mut far.mount, 29 * 16 * RECORD..u64::MAX, Why::Dropped);
    assert_eq!((far.file.ahead_bytes(), far.mount.budget.dropped_bytes()), (0, ahead));
    far.read(30 * 16 * RECORD, RECORD);
    assert!(far.file.ahead_bytes() < ahead);
    far.mount.stats.clear();
    for at in 31..60 {
        far.read(at * 16 * RECORD, RECORD);
    }
    assert_eq!(far.hits_percent(), 100);
}

#[test]
fn failures_are_counted_by_their_reasons() {
    let mut world = reader();
    world.file.lost(&mut world.mount, 9 * MIB..10 * MIB, Why::NoLock);
    world.file.lost(&mut world.mount, 10 * MIB..11 * MIB, Why::NoMemory);
    world.file.lost(&mut world.mount, 11 * MIB..12 * MIB, Why::Failed);
    world.file.lost(&mut world.mount, 11 * MIB..12 * MIB, Why::Failed);
    let counts = [Counter::NoLock, Counter::NoMemory, Counter::FailedToReachEnd, Counter::Discarded];
    assert_eq!(counts.map(|counter| world.count(counter)), [1, 1, 1, 0]);
    assert_eq!(world.mount.budget.dropped_bytes(), 3 * MIB);
}

#[test]
fn a_closed_handle_leaves_nothing_behind() {
    let mut world = reader();
    for at in 0..8 {
        world.read_by(2, (1 << 39) + at * MIB, MIB);
    }
    let given_up = world.file.closed(&mut world.mount, 1);
    assert_eq!(one(&given_up), 8 * MIB..15 * MIB);
    assert_eq!(world.count(Counter::Discarded), 7 * 256);
    assert!(!world.file.is_idle());
    world.file.closed(&mut world.mount, 2);
    assert!(world.file.is_idle() && world.mount.budget.held_bytes() == 0);
    assert!(world.file.closed(&mut world.mount, 3).is_empty());
}

#[test]
fn one_handle_reads_what_another_one_had_fetched() {
    let mut world = reader();
    world.read_by(2, 8 * MIB, MIB);
    assert_eq!((world.count(Counter::Hits), world.count(Counter::Misses)), (256, 0));
}

#[test]
fn the_budget_of_the_mount_is_shared_and_refuses() {
    let small = Settings { mount_bytes_max: 10 * MIB, file_bytes_max: 8 * MIB, ..settings() };
    let mut mount = Mount::new(small);
    let mut files: Vec<File> = (0..3).map(|_| File::default()).collect();
    let mut fetched = Vec::new();
    for file in &mut files {
        let mut bytes = 0;
        for at in 0..12 {
            for range in file.read(&mut mount, 1, at * MIB..(at + 1) * MIB, 1 << 40).fetch {
                bytes += range.end - range.start;
            }
            assert!(mount.budget.held_bytes() <= 10 * MIB && file.ahead_bytes() <= 8 * MIB);
        }
        fetched.push(bytes / MIB);
    }
    assert_eq!(fetched, [18, 12, 0], "who came first keeps what was not read");
    assert!(mount.stats.get(Counter::HitMax).samples >= 10);
    assert_eq!(mount.stats.get(Counter::Discarded).samples, 0);
    files[0].closed(&mut mount, 1);
    let decision = files[2].read(&mut mount, 1, 12 * MIB..13 * MIB, 1 << 40);
    assert_eq!(one(&decision.fetch), 13 * MIB..21 * MIB);
}
