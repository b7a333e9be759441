//! Several readers of one handle, and readers without a pattern.

use super::*;

#[test]
fn reads_here_and_there_have_nothing_fetched() {
    let mut random = Rng::new(1);
    let mut world = World::new(1 << 36);
    for _ in 0..20_000 {
        let at = random.below(1 << 24) * 4096;
        assert!(world.read(at, 4096).is_empty());
    }
    assert_eq!(world.count(Counter::ZeroWindow), 20_000);
}

#[test]
fn few_reads_here_and_there_in_a_file_of_16_mib_look_like_a_pattern() {
    let mut random = Rng::new(4);
    let mut world = World::new(16 * MIB);
    for _ in 0..20_000 {
        world.read(random.below(4096) * 4096, 4096);
    }
    let fetched = world.mount.stats.get(Counter::Async).samples;
    assert!(fetched <= 40, "{fetched} of 20,000");
}

#[test]
fn an_odd_read_does_not_reset_a_good_stream() {
    let mut random = Rng::new(2);
    let mut world = World::new(1 << 36);
    for at in 0..20 {
        world.read(at * RECORD, RECORD);
    }
    world.mount.stats.clear();
    let mut odd = 0;
    for at in 20..2000 {
        world.read(at * RECORD, RECORD);
        if random.below(10) < 3 {
            odd += 1;
            world.read((1 << 35) + random.below(1 << 34), 1);
        }
    }
    assert_eq!(world.count(Counter::Misses), odd);
    assert_eq!(world.count(Counter::Discarded), 0);
}

/// Where a thread reads for the n-th time: offset and length.
type Thread<'a> = &'a dyn Fn(u64) -> (u64, u64);

/// Threads take turns by chance; each says where it reads next. Pages that were discarded, pages that were fetched, and hits of 100
/// pages.
fn interleaved(threads: &[Thread<'_>], one_handle: bool) -> (u64, u64, u64) {
    let mut random = Rng::new(3);
    let mut world = World::new(1 << 40);
    let mut done = vec![0; threads.len()];
    for turn in 0..3000 * threads.len() {
        if turn == 20 * threads.len() {
            world.mount.stats.clear();
        }
        let thread = random.below(threads.len() as u64) as usize;
        let (offset, len) = threads[thread](done[thread]);
        done[thread] += 1;
        world.read_by(if one_handle { 1 } else { thread as u64 }, offset, len);
    }
    let fetched = world.mount.stats.get(Counter::ReadaheadPages).sum;
    (world.count(Counter::Discarded), fetched, world.hits_percent())
}

#[test]
fn interleaved_readers_do_not_reset_each_other() {
    let stride = |at: u64| (at * 16 * RECORD, RECORD);
    let other = |at: u64| (7 * RECORD + at * 16 * RECORD, RECORD);
    let far = |at: u64| ((1 << 38) + at * 23 * RECORD, RECORD);
    let sequential = |at: u64| ((1 << 39) + at * RECORD, RECORD);
    let pages = |at: u64| ((1 << 37) + at * 4096, 4096);
    let all: [(&[Thread<'_>], &str); 5] = [
        (&[&stride, &other], "two strides of one file"),
        (&[&stride, &far], "two strides that differ"),
        (&[&stride, &sequential], "a stride and a sequence"),
        (&[&sequential, &pages], "two sequences"),
        (&[&stride, &far, &sequential, &pages], "four readers"),
    ];
    for (threads, name) in all {
        for one_handle in [true, false] {
            let (discarded, fetched, hits) = interleaved(threads, one_handle);
            assert!(discarded * 100 <= fetched * 5, "{name}: {discarded} of {fetched} discarded");
            assert!(hits >= 95, "{name}: {hits} % hits");
        }
    }
}

#[test]
fn the_oldest_stream_is_given_up() {
    let mut world = World::new(1 << 40);
    world.read(0, MIB);
    world.read(MIB, MIB);
    let ahead = world.file.ahead_bytes();
    let mut given_up = Vec::new();
    for at in 1..=16u64 {
        given_up.extend(world.read_by(1, (at * at) << 30, 4096).give_up);
    }
    assert_eq!(one(&given_up), 2 * MIB..2 * MIB + ahead);
    let budget = world.mount.budget;
    assert_eq!((budget.held_bytes(), budget.dropped_bytes()), (0, ahead));
    assert_eq!(world.count(Counter::Discarded), ahead / 4096);
}

#[test]
fn a_stream_that_rests_does_not_keep_the_next_one_from_its_window() {
    let mut world = World::new(1 << 40);
    world.file.set_width(100);
    for at in 0..500 {
        world.read(at * MIB, MIB);
    }
    assert_eq!(world.file.ahead_bytes(), 256 * MIB);
    for at in 0..500 {
        world.read((1 << 39) + at * MIB, MIB);
    }
    assert_eq!(world.file.ahead_bytes(), 256 * MIB);
    assert!(world.count(Counter::HitMax) <= 66, "{}", world.count(Counter::HitMax));
    assert_eq!(world.count(Counter::Discarded), 256 * 256);
}
