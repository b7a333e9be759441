//! One record in so many.

use super::*;

const EACH: u64 = 16 * RECORD;

#[test]
fn two_equal_steps_make_a_stride() {
    let mut world = World::new(1 << 40);
    assert!(world.read(3 * RECORD, RECORD).is_empty());
    assert!(world.read(3 * RECORD + EACH, RECORD).is_empty());
    let record = |at: u64| 3 * RECORD + at * EACH..3 * RECORD + at * EACH + RECORD;
    assert_eq!(world.read(record(2).start, RECORD), [record(3), record(4)]);
    assert_eq!(world.read(record(3).start, RECORD), [record(5), record(6), record(7)]);
    assert_eq!(world.read(record(4).start, RECORD), (8..13).map(record).collect::<Vec<_>>());
    for at in 5..100 {
        let fetched = world.read_by(1, record(at).start, RECORD).fetch;
        for range in joined(&fetched) {
            let index = (range.start - 3 * RECORD) / EACH;
            assert_eq!(range, record(index));
        }
    }
}

#[test]
fn strided_reads_of_47008_bytes_hit_and_nothing_is_fetched_in_vain() {
    // Each of the sixteen readers, with a file of its own and through a handle of its own.
    for shared in [false, true] {
        let records = 1500;
        let mut world = World::new(records * EACH);
        let mut used = 0;
        for at in 0..records {
            if at == 8 {
                world.mount.stats.clear();
            }
            for reader in 0..if shared { 16 } else { 1 } {
                world.read_by(reader, at * EACH + reader * RECORD, RECORD);
                used += RECORD;
            }
        }
        assert!(world.hits_percent() >= 95, "{} %", world.hits_percent());
        let budget = world.mount.budget;
        let by_itself = used - budget.used_bytes();
        let fetched = by_itself + budget.granted_bytes();
        assert!(fetched * 10 <= used * 11, "{fetched} for {used}");
        assert_eq!(budget.dropped_bytes(), 0);
    }
}

#[test]
fn a_record_may_be_read_in_parts() {
    let (bytes, length) = (4 * MIB, 64 * MIB);
    let mut world = World::new(1 << 40);
    for record in 0..40 {
        if record == 8 {
            world.mount.stats.clear();
        }
        for part in 0..4 {
            world.read(record * length + part * MIB, MIB);
        }
    }
    assert_eq!(world.hits_percent(), 100);
    assert!(world.count(Counter::Discarded) == 0 && world.file.ahead_bytes().is_multiple_of(bytes));
    assert!(world.file.ahead_bytes() <= 256 * MIB);
}

#[test]
fn a_record_that_is_left_out_or_read_again_does_no_harm() {
    let mut world = World::new(1 << 40);
    for at in 0..20 {
        world.read(at * EACH, RECORD);
    }
    world.mount.stats.clear();
    for at in (20..200).filter(|at| at % 10 != 3) {
        world.read(at * EACH, RECORD);
        if at % 10 == 7 {
            world.read((at - 2) * EACH, RECORD);
            world.read(at * EACH + 500, 1000);
        }
    }
    let again = 18 * (12 + 2);
    assert!(world.count(Counter::Misses) <= again + 18, "{}", world.count(Counter::Misses));
    assert!(world.count(Counter::Discarded) >= 17 * 12, "what was left out is given up");
}

#[test]
fn a_reader_that_goes_on_behind_a_record_is_another_one() {
    let mut world = World::new(1 << 40);
    for at in 0..10 {
        world.read(at * EACH, RECORD);
    }
    let behind = 9 * EACH + RECORD;
    assert!(world.read(behind, RECORD).is_empty());
    assert!(!world.read(behind + RECORD, RECORD).is_empty(), "it reads in sequence");
    world.mount.stats.clear();
    world.read(10 * EACH, RECORD);
    assert_eq!(world.count(Counter::Misses), 0, "and the stride goes on");
}

#[test]
fn a_stride_backwards_is_none() {
    let mut world = World::new(1 << 40);
    for at in (0..200).rev() {
        assert!(world.read(at * EACH, RECORD).is_empty());
    }
}

#[test]
fn the_window_grows_in_whole_records_and_ends_with_the_file() {
    let size = 100 * EACH + 1000;
    let mut world = World::new(size);
    for at in 0..101 {
        let fetched = world.read(at * EACH, RECORD);
        for range in fetched {
            assert!(range.start % EACH == 0 && (range.end == range.start + RECORD || range.end == size));
        }
    }
    assert_eq!(world.mount.budget.held_bytes(), 0);
    assert_eq!(world.mount.budget.granted_bytes(), 97 * RECORD + 1000);
}

#[test]
fn records_of_other_sizes_too() {
    for (bytes, apart) in [(100, 40_000), (4096, 65_536), (4096 * 9 + 1, 1 << 30), (43 * KIB, 43 * KIB * 2)] {
        let mut world = World::new(1 << 45);
        for at in 0..400 {
            if at == 3 {
                world.mount.stats.clear();
            }
            world.read(at * apart, bytes);
        }
        assert_eq!(world.hits_percent(), 100, "{bytes} of {apart}");
        assert_eq!(world.mount.budget.dropped_bytes(), 0);
        assert_eq!(world.mount.budget.granted_bytes() % bytes, 0);
    }
}

/// FEATURES C4: for the kernel's pages, records that several programs read in turns are one sequence.
#[test]
fn programs_that_have_pages_filled_in_turns_are_one_reader() {
    let mut world = World::new(64 * MIB);
    let mut fetched = 0;
    for turn in 0..400 {
        // The kernel has the first page from the record before.
        let start = (turn * RECORD).next_multiple_of(PAGE_BYTES);
        let decision = world.fill_by(turn % 4, start, (turn + 1) * RECORD - start);
        assert_eq!(decision.give_up, [], "turn {turn}");
        for range in &decision.fetch {
            fetched += 1;
            assert!(range.end - range.start >= MIB / 2, "turn {turn}: {range:?}");
        }
    }
    assert!(fetched > 10 && world.hits_percent() >= 98, "{fetched}, {} %", world.hits_percent());
    for handle in 0..4 {
        let given_up = world.file.closed(&mut world.mount, handle);
        assert_eq!(given_up.is_empty(), handle < 3, "the last one takes what is ahead with it");
    }
    assert!(world.file.is_idle() && world.mount.budget.held_bytes() == 0);
}

/// Records of 47,008 bytes, rounded to pages, are not at one distance: nothing is fetched that nobody reads.
#[test]
fn pages_of_records_far_apart_are_not_read_ahead() {
    let mut world = World::new(256 * MIB);
    for turn in 0..200 {
        assert_eq!(world.fill_by(1, turn * 16 * RECORD, RECORD), Decision::default(), "turn {turn}");
    }
}
