//! One byte after the other.

use super::*;

#[test]
fn the_second_read_opens_a_window_that_grows_with_each_read() {
    let mut world = World::new(1 << 40);
    assert!(world.read(0, MIB).is_empty());
    let mut ahead = Vec::new();
    for at in 1..12 {
        let read = at * MIB..(at + 1) * MIB;
        let mut fetched = world.read(read.start, MIB);
        assert!(fetched.len() == 1 && fetched[0].end.is_multiple_of(MIB), "{fetched:?}");
        ahead.push((fetched.remove(0).end - read.end) / MIB);
    }
    assert_eq!(ahead, (1..12).collect::<Vec<u64>>());
    for at in 12..1000 {
        world.read(at * MIB, MIB);
    }
    assert_eq!(world.file.ahead_bytes(), 16 * MIB, "sixteen requests");
    world.file.set_width(100);
    for at in 1000..2000 {
        world.read(at * MIB, MIB);
    }
    assert_eq!(world.file.ahead_bytes(), 256 * MIB, "max_read_ahead_per_file_mb");
    assert_eq!((world.count(Counter::Misses), world.count(Counter::NotConsecutive)), (512, 1));
}

#[test]
fn ranges_are_whole_requests_but_the_first_and_the_last() {
    let size = 40 * MIB + 77;
    let mut world = World::new(size);
    let mut fetched: Vec<Range<u64>> = Vec::new();
    let mut at = 5000;
    while at < size {
        fetched.extend(world.read_by(1, at, RECORD).fetch);
        at += RECORD;
    }
    assert_eq!(one(&fetched), 5000 + 2 * RECORD..size, "all of it, in order");
    for range in &fetched[1..] {
        assert!(range.start % MIB == 0 && (range.end % MIB == 0 || range.end == size), "{range:?}");
    }
    assert!(fetched[0].end.is_multiple_of(MIB));
    assert_eq!(world.count(Counter::ToEof), 1);
    assert_eq!(world.mount.budget.held_bytes(), 0);
    assert_eq!(world.mount.budget.used_bytes(), size - 5000 - 2 * RECORD);
}

#[test]
fn a_program_that_stops_soon_has_little_fetched_in_vain() {
    let mut world = World::new(1 << 40);
    for at in 0..256 {
        world.read(at * 4096, 4096);
    }
    assert!(world.file.ahead_bytes() <= 4 * MIB, "{}", world.file.ahead_bytes());
}

#[test]
fn no_request_is_small_wherever_the_reader_begins() {
    for start in (0..2 * MIB).step_by(4096) {
        let mut world = World::new(1 << 40);
        world.read(start, 4096);
        let fetched = world.read(start + 4096, 4096);
        let len = fetched[0].end - fetched[0].start;
        assert!((MIB / 2..=MIB * 3 / 2).contains(&len), "{fetched:?}");
    }
}

#[test]
fn a_small_file_is_fetched_whole_with_the_second_read() {
    let mut world = World::new(4 * MIB);
    assert!(world.read(2 * MIB, 4096).is_empty());
    let rest = [0..MIB, MIB + 4096..2 * MIB, 2 * MIB + 4096..4 * MIB];
    assert_eq!(world.read(MIB, 4096), rest);
    for at in (0..4 * MIB).step_by(4096).filter(|at| ![MIB, 2 * MIB].contains(at)) {
        world.read(at, 4096);
    }
    assert_eq!((world.count(Counter::Hits), world.count(Counter::Misses)), (1022, 2));
    let mut larger = World::new(4 * MIB + 1);
    larger.read(2 * MIB, 4096);
    assert!(larger.read(MIB, 4096).is_empty());
}

#[test]
fn a_reader_that_leaves_a_little_out_reads_in_sequence() {
    let mut world = World::new(1 << 40);
    for at in 0..1000 {
        world.read(at * 12_000, 8000);
    }
    world.mount.stats.clear();
    for at in 1000..2000 {
        world.read(at * 12_000, 8000);
    }
    assert_eq!(world.hits_percent(), 100);
}

#[test]
fn requests_that_overtake_each_other_are_one_reader() {
    let mut world = World::new(1 << 40);
    for at in [1, 0, 2, 4, 3, 5, 7, 6] {
        world.read(at * 128 * KIB, 128 * KIB);
    }
    world.mount.stats.clear();
    for at in (8..800).step_by(2) {
        world.read((at + 1) * 128 * KIB, 128 * KIB);
        world.read(at * 128 * KIB, 128 * KIB);
    }
    assert_eq!(world.hits_percent(), 100);
    assert_eq!(world.count(Counter::Discarded), 0);
}

#[test]
fn hits_and_misses_are_the_pages_that_were_read() {
    let size = 7_000_123;
    let mut world = World::new(size);
    let mut at = 0;
    while at < size {
        world.read(at, 1000 + at % 9000);
        at += 1000 + at % 9000;
    }
    assert_eq!(world.count(Counter::Hits) + world.count(Counter::Misses), size.div_ceil(PAGE_BYTES));
    world.mount.stats.clear();
    for at in 0..10 {
        world.read(at * 500_000 + 1, 4096);
    }
    assert_eq!(world.count(Counter::Hits) + world.count(Counter::Misses), 20);
}

#[test]
fn who_reads_backwards_or_again_has_nothing_fetched() {
    for len in [512, 4096, 47_008, 128 * KIB, MIB] {
        let mut world = World::new(1 << 40);
        for at in (0..1000).rev() {
            assert!(world.read(at * len, len).is_empty(), "backwards by {len}");
        }
        let mut world = World::new(1 << 40);
        for _ in 0..1000 {
            assert!(world.read(5 * len, len).is_empty(), "again {len}");
        }
        assert_eq!(world.count(Counter::NotConsecutive), 1);
    }
}

#[test]
fn what_is_not_there_is_not_read_ahead() {
    let mut world = World::new(0);
    world.read(0, 4096);
    assert_eq!(world.count(Counter::ZeroLength), 1);
    world.size = 100;
    assert!(world.read(100, 4096).is_empty() && world.read(u64::MAX - 4096, 4096).is_empty());
    assert_eq!(world.count(Counter::Hits) + world.count(Counter::Misses), 0);
}

#[test]
fn off_means_off() {
    let mut world = World::with(Settings { file_bytes_max: 0, ..settings() }, 1 << 30);
    for at in 0..10 {
        assert!(world.read(at * 8192, 8192).is_empty());
    }
    let read = world.mount.stats.get(Counter::ForcereadPages);
    assert_eq!((read.samples, read.sum, read.min, read.max), (10, 20, 2, 2));
    assert_eq!(world.count(Counter::Hits) + world.count(Counter::Misses), 0);
}
