//! Reading ahead: what readers find when they come, and what becomes of it when nobody comes.

use std::sync::Arc;
use std::time::Duration;

use client::{AttrChange, Client, Handle, Limits, OpenFlags};
use proto::Fid;

use crate::parameters::{set, value};
use crate::world::{MIB, World, create_on, join, root, striped};

fn flags(write: bool) -> OpenFlags {
    OpenFlags { read: true, write, ..OpenFlags::default() }
}

fn byte(at: u64) -> u8 {
    (at ^ at >> 9 ^ at >> 21) as u8
}

/// A file of so many bytes, durable, and the name of it.
async fn file(client: &Client, bytes: u64) -> Fid {
    let handle = create_on(client, b"f", 0).await;
    for at in (0..bytes).step_by(MIB as usize) {
        let data: Vec<u8> = (at..(at + MIB).min(bytes)).map(byte).collect();
        client.files().write(handle, at, &data).await.expect("there is room");
    }
    client.files().fsync(handle).await.expect("the OST takes everything");
    let fid = client.names().lookup(&root(), Fid::ROOT, b"f").await.expect("it is there").attr.fid;
    client.files().release(handle).await;
    client.sync_all().await.expect("it is durable");
    fid
}

async fn open(client: &Client, fid: Fid) -> Handle {
    client.files().open(&root(), fid, flags(false)).await.expect("it is there")
}

/// Reads `[from, to)` and checks every byte.
async fn read(client: &Client, handle: Handle, from: u64, to: u64) {
    let slices = client.files().read(handle, from, (to - from) as u32).await.expect("it is there");
    assert!(join(&slices).into_iter().eq((from..to).map(byte)), "{from}..{to}");
}

/// A count of `read_ahead_stats`: samples, and what they sum up to.
fn count(client: &Client, name: &str) -> (u64, u64) {
    let stats = value(client, "llite.*.read_ahead_stats");
    let line = stats.lines().find(|line| line.split_whitespace().next() == Some(name));
    let word = |at| line.and_then(|line| line.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0);
    (word(1), word(6))
}

fn with(seed: u64, limits: Limits) -> (World, Arc<Client>, Arc<Client>) {
    let world = World::new(seed, 1);
    let (writer, reader) = (world.mount(), world.mount_with(limits));
    world.osts[0].set_latency(Duration::from_millis(1));
    (world, writer, reader)
}

/// Many requests are on their way at a time, each of them large, and nothing is fetched twice or kept once it was read.
#[test]
fn a_stream_is_ahead_of_its_reader() {
    const BYTES: u64 = 64 * MIB;
    let (world, writer, reader) = with(1, Limits::default());
    world.run(async {
        let fid = file(&writer, BYTES).await;
        let timed = async |step: u64| {
            let (before, begin) = (world.osts[0].counts(), world.hub.rt().now());
            let handle = open(&reader, fid).await;
            for at in (0..BYTES).step_by(step as usize) {
                read(&reader, handle, at, at + step).await;
            }
            client_is_empty(&reader, handle).await;
            let counts = world.osts[0].counts();
            assert_eq!(counts.read_bytes - before.read_bytes, BYTES);
            (counts.reads - before.reads, world.hub.rt().now() - begin)
        };
        let (ahead, fast) = timed(256 << 10).await;
        assert!(ahead <= BYTES as usize / MIB as usize + 8, "{ahead}");
        let (hits, misses) = (count(&reader, "hits").0, count(&reader, "misses").0);
        assert!(hits * 20 > misses * 19 && hits + misses == BYTES / 4096, "{hits} and {misses}");
        set(&reader, "llite.*.read_ahead_stats", "0").await.expect("counts can begin anew");
        assert_eq!((count(&reader, "hits").0, count(&reader, "misses").0), (0, 0));
        set(&reader, "llite.*.max_read_ahead_mb", "0").await.expect("it can be switched off");
        let (asked, slow) = timed(256 << 10).await;
        assert_eq!(asked, BYTES as usize / (256 << 10));
        assert!(fast * 8 < slow, "{fast:?} and {slow:?}");
    });
}

/// Requests of a way that found 8 and more in flight, counted with themselves, and all of them. `column` is 1 for reads and 5 for writes.
fn busy(client: &Client, column: usize) -> (u64, u64) {
    let stats = value(client, "osc.*.rpc_stats");
    let table = stats.lines().skip_while(|line| !line.starts_with("rpcs in flight")).skip(1);
    let rows = table.take_while(|line| !line.is_empty()).map(|line| {
        let number = |at| line.split_whitespace().nth(at).and_then(|word: &str| word.parse::<u64>().ok());
        let in_flight = line.split(':').next().and_then(|word| word.parse::<u64>().ok());
        (in_flight.unwrap_or(0), number(column).unwrap_or(0))
    });
    rows.fold((0, 0), |(busy, all), (in_flight, count)| {
        (busy + if in_flight >= 8 { count } else { 0 }, all + count)
    })
}

/// The kernel cuts a direct read or write of 64 MiB of one thread into requests of 1 MiB, and sends one after the other. The OST has many
/// of them at a time all the same.
#[test]
fn a_large_direct_call_keeps_many_requests_in_flight() {
    const BYTES: u64 = 64 * MIB;
    let (world, writer, reader) = with(7, Limits::default());
    let slow = world.mount_with(Limits { dirty_bytes_max: BYTES, ..Limits::default() });
    world.run(async {
        let fid = file(&writer, BYTES).await;
        let handle = open(&reader, fid).await;
        for at in (0..BYTES).step_by(MIB as usize) {
            read(&reader, handle, at, at + MIB).await;
        }
        let (many, all) = busy(&reader, 1);
        assert!(all >= 64 && many * 2 > all, "{many} of {all} reads");
        let handle = create_on(&slow, b"w", 0).await;
        for at in (0..BYTES).step_by(MIB as usize) {
            slow.files().write(handle, at, &[7; MIB as usize]).await.expect("there is room");
        }
        slow.files().fsync(handle).await.expect("the OST takes everything");
        let (many, all) = busy(&slow, 5);
        assert!(all >= 64 && many * 2 > all, "{many} of {all} writes");
    });
}

/// When nothing is read any more, nothing is kept.
async fn client_is_empty(client: &Client, handle: Handle) {
    client.files().release(handle).await;
    let used = client.admin().memory.cache_use();
    assert_eq!((used.ahead, used.clean), (0, 0), "{used:?}");
}

/// The kernel fills its pages from what is ahead, and has it then.
#[test]
fn pages_are_filled_from_what_is_ahead() {
    const BYTES: u64 = 32 * MIB;
    let (world, writer, reader) = with(2, Limits::default());
    world.run(async {
        let fid = file(&writer, BYTES).await;
        let handle = open(&reader, fid).await;
        for at in (0..BYTES).step_by(128 << 10) {
            let pages = reader.files().read_pages(handle, at, 128 << 10).await.expect("it is there");
            assert!(join(&pages.slices).into_iter().eq((at..at + (128 << 10)).map(byte)), "{at}");
        }
        let counts = world.osts[0].counts();
        assert!(counts.reads <= 48 && counts.read_bytes == BYTES, "{counts:?}");
        client_is_empty(&reader, handle).await;
    });
}

/// One record in sixteen: 47,008 bytes, which fill no whole number of pages.
#[test]
fn records_are_fetched_and_not_what_is_between_them() {
    const RECORD: u64 = 47_008;
    let (world, writer, reader) = with(3, Limits::default());
    world.run(async {
        let fid = file(&writer, 100 * 16 * RECORD).await;
        let handle = open(&reader, fid).await;
        for n in 0..100 {
            read(&reader, handle, n * 16 * RECORD, (n * 16 + 1) * RECORD).await;
        }
        let (hits, misses) = (count(&reader, "hits").0, count(&reader, "misses").0);
        assert!(hits * 20 >= (hits + misses) * 19 && hits > 1000, "{hits} and {misses}");
        assert_eq!(world.osts[0].counts().read_bytes, 100 * RECORD);
        assert_eq!(count(&reader, "read_but_discarded").0, 0);
    });
}

/// What another client writes in front of a reader is what the reader reads.
#[test]
fn what_others_write_is_not_read_from_before() {
    let world = World::real(4, 1);
    let (writer, reader) = (world.mount(), world.mount());
    world.run(async {
        let fid = file(&writer, 32 * MIB).await;
        let handle = open(&reader, fid).await;
        for at in (0..8 * MIB).step_by(256 << 10) {
            read(&reader, handle, at, at + (256 << 10)).await;
        }
        world.hub.rt().sleep(Duration::from_millis(100)).await;
        let stats = value(&reader, "llite.*.read_ahead_stats");
        assert!(reader.admin().memory.cache_use().ahead > 4 * MIB, "{stats}");
        let writing = writer.files().open(&root(), fid, flags(true)).await.expect("it is there");
        writer.files().write(writing, 12 * MIB, &[7; 4096]).await.expect("there is room");
        assert!(count(&reader, "read_but_discarded").0 > 0, "it was given up for the writer");
        let new = reader.files().read(handle, 12 * MIB, 4096).await.expect("it is there");
        assert_eq!(join(&new), [7; 4096]);
        writer.files().release(writing).await;
        read(&reader, handle, 13 * MIB, 14 * MIB).await;
        reader.files().release(handle).await;
        assert_eq!(reader.admin().memory.cache_use().ahead, 0);
    });
}

/// What this client writes in front of its own reader is what the reader reads.
#[test]
fn what_is_written_here_is_not_read_from_before() {
    let world = World::real(5, 1);
    let client = world.mount();
    world.run(async {
        let fid = file(&client, 16 * MIB).await;
        let handle = open(&client, fid).await;
        for at in (0..4 * MIB).step_by(256 << 10) {
            read(&client, handle, at, at + (256 << 10)).await;
        }
        let writing = client.files().open(&root(), fid, flags(true)).await.expect("it is there");
        client.files().write(writing, 5 * MIB, &[7; 4096]).await.expect("there is room");
        let new = client.files().read(handle, 5 * MIB, 4096).await.expect("it is there");
        assert_eq!(join(&new), [7; 4096]);
        read(&client, handle, 5 * MIB + 4096, 6 * MIB).await;
        client.files().release(writing).await;
    });
}

/// A file that is longer than one of its objects: what that does not have is not asked for again and again.
#[test]
fn holes_cost_a_request_or_two() {
    const BYTES: u64 = 64 * MIB;
    let world = World::new(9, 2);
    let (writer, reader) = (world.mount(), world.mount());
    world.run(async {
        let fid = striped(&writer, 2).await;
        let handle = writer.files().open(&root(), fid, flags(true)).await.expect("it is there");
        writer.files().write(handle, BYTES - 1, b"x").await.expect("there is room");
        writer.files().fsync(handle).await.expect("the OST takes everything");
        writer.files().release(handle).await;
        let reading = open(&reader, fid).await;
        for at in (0..BYTES).step_by(MIB as usize) {
            let read = reader.files().read(reading, at, MIB as u32).await.expect("it is a hole");
            assert_eq!(join(&read).len() as u64, MIB);
        }
        let reads: usize = world.osts.iter().map(|ost| ost.counts().reads).sum();
        assert!(reads <= 4 * 64, "two objects, each asked by the reader and by one who reads ahead: {reads}");
    });
}

/// Who reads something else of the OST does not wait for all that is on its way for a stream.
#[test]
fn a_stream_keeps_nobody_waiting() {
    const LATENCY: Duration = Duration::from_millis(10);
    let (world, writer, reader) = with(8, Limits { rpcs_in_flight_max: 4, ..Limits::default() });
    world.run(async {
        let fid = file(&writer, 128 * MIB).await;
        let handles = [open(&reader, fid).await, open(&reader, fid).await];
        world.osts[0].set_latency(LATENCY);
        for at in (0..16 * MIB).step_by(256 << 10) {
            read(&reader, handles[0], at, at + (256 << 10)).await;
        }
        let used = reader.admin().memory.cache_use();
        assert!(used.ahead > used.clean + 8 * MIB, "much is on its way: {used:?}");
        let begin = world.hub.rt().now();
        read(&reader, handles[1], 120 * MIB, 120 * MIB + 4096).await;
        let took = world.hub.rt().now() - begin;
        assert!(took < LATENCY * 3 / 2, "{took:?}");
    });
}

/// What is ahead has half of what may be cached, and what is written goes before it.
#[test]
fn memory_is_bounded() {
    let (world, writer, reader) =
        with(6, Limits { cached_bytes_max: 16 * MIB, dirty_bytes_max: 14 * MIB, ..Limits::default() });
    world.run(async {
        let fid = file(&writer, 64 * MIB).await;
        let handles = [open(&reader, fid).await, open(&reader, fid).await];
        let other = create_on(&reader, b"other", 0).await;
        let mut most = 0;
        for at in (0..16 * MIB).step_by(256 << 10) {
            read(&reader, handles[0], at, at + (256 << 10)).await;
            read(&reader, handles[1], 32 * MIB + at, 32 * MIB + at + (256 << 10)).await;
            if at.is_multiple_of(MIB) {
                reader.files().write(other, at, &[1; MIB as usize]).await.expect("there is room");
            }
            let used = reader.admin().memory.cache_use();
            assert!(used.ahead <= 8 * MIB && used.clean <= 16 * MIB, "{used:?}");
            most = most.max(used.ahead);
        }
        assert!(most >= 2 * MIB, "{most}");
        for handle in handles {
            reader.files().release(handle).await;
        }
        assert_eq!(reader.admin().memory.cache_use().ahead, 0);
    });
}

#[test]
fn a_file_that_is_cut_has_no_more_than_is_left() {
    let world = World::real(7, 1);
    let client = world.mount();
    world.run(async {
        let fid = file(&client, 16 * MIB).await;
        let handle = open(&client, fid).await;
        for at in (0..2 * MIB).step_by(256 << 10) {
            read(&client, handle, at, at + (256 << 10)).await;
        }
        let writing = client.files().open(&root(), fid, flags(true)).await.expect("it is there");
        let change = AttrChange { size: Some(3 * MIB), ..AttrChange::default() };
        client.files().setattr(&root(), fid, change, Some(writing)).await.expect("it can be cut");
        let read = client.files().read(handle, 3 * MIB - 4096, 1 << 20).await.expect("it is there");
        assert_eq!(join(&read).len(), 4096);
        client.files().release(writing).await;
        client_is_empty(&client, handle).await;
    });
}
