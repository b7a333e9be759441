use super::*;

#[test]
fn the_disk_is_as_fast_as_it_says() {
    let setup = Setup { clients: 1, file_bytes: 64 << 20, in_flight: 1 };
    let raw = run(setup, Way::Raw);
    let rate = raw.rate() * MIB / BYTES_PER_SECOND as f64;
    assert!((0.97..=1.0).contains(&rate), "{rate}");
    assert_eq!((raw.pieces, raw.small, raw.seeks), (64, 0, 1));
}

/// The paper's figures: one write after the other, 24.9 % of the bare disk with each write's metadata, 93.1 % without.
#[test]
fn who_does_not_wait_for_the_metadata_writes_three_times_as_fast() {
    let one = compare(Setup { clients: 1, file_bytes: 256 << 20, in_flight: 1 });
    let (sync, asynchronous) = (one.percent(&one.sync), one.percent(&one.asynchronous));
    assert!((20.0..30.0).contains(&sync), "{one}");
    assert!(asynchronous >= 3.0 * sync && asynchronous >= 88.0, "{one}");
    assert!(one.sync.small_per_mib() >= 1.0 && one.asynchronous.small_per_mib() <= 0.05, "{one}");
}

/// Several clients with several writes under way, as clients have: also the bytes of the streams are in one row on the disk.
#[test]
fn several_streams_are_written_as_one() {
    let many = compare(Setup { clients: 4, file_bytes: 64 << 20, in_flight: 8 });
    assert!(many.percent(&many.asynchronous) >= 90.0, "{many}");
    assert!(many.asynchronous.small_per_mib() <= 0.3, "{many}");
}
