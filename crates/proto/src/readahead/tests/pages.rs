//! The detector of before LU-12518, beside that of today.

use super::*;

/// Hits of 100 pages of a reader of one record in sixteen, after eight records.
fn strided(unit: Unit, bytes: u64) -> u64 {
    let mut world = World::with(Settings { unit, ..settings() }, 1 << 40);
    for at in 0..2000 {
        if at == 8 {
            world.mount.stats.clear();
        }
        world.read(at * 16 * bytes, bytes);
    }
    world.hits_percent()
}

#[test]
fn records_that_do_not_fill_pages_are_found_in_bytes_only() {
    let (pages, bytes) = (strided(Unit::Pages, RECORD), strided(Unit::Bytes, RECORD));
    assert!(pages <= 9 && bytes >= 88, "{pages} % and {bytes} %");
}

#[test]
fn records_of_whole_pages_are_found_both_ways() {
    for unit in [Unit::Pages, Unit::Bytes] {
        assert!(strided(unit, 12 * PAGE_BYTES) >= 99, "{unit:?}");
    }
}

#[test]
fn a_sequence_is_found_both_ways() {
    for unit in [Unit::Pages, Unit::Bytes] {
        for len in [4096, RECORD, MIB] {
            let mut world = World::with(Settings { unit, ..settings() }, 300 * MIB);
            for at in 0..300 * MIB / len {
                world.read(at * len, len);
            }
            assert!(world.hits_percent() >= 98, "{unit:?} {len}: {}", world.hits_percent());
        }
    }
}

#[test]
fn an_odd_read_resets_the_window_of_pages() {
    let misses = |unit| {
        let mut world = World::with(Settings { unit, ..settings() }, 1 << 40);
        for at in 0..1000 {
            world.read(at * MIB, MIB);
            world.read((1 << 39) + ((at * at) << 20), 1);
        }
        world.count(Counter::Misses)
    };
    assert!(misses(Unit::Pages) > 10 * misses(Unit::Bytes));
}

#[test]
fn the_unit_may_change_while_files_are_open() {
    let mut world = World::new(1 << 40);
    for unit in [Unit::Bytes, Unit::Pages, Unit::Bytes] {
        world.mount.settings.unit = unit;
        for at in 0..10 {
            world.read(at * MIB, MIB);
        }
    }
    world.file.closed(&mut world.mount, 1);
    assert_eq!(world.mount.budget.held_bytes(), 0);
}
