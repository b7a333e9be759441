//! What a client may cache: of each OST, of all, and with what is not durable yet.

use std::time::Duration;

use client::{CACHED_BYTES_MIN, Client, Error, Handle, Limits};
use proto::{Code, OstIndex};

use crate::world::{MIB, World, create_on};

/// Writes chunks from `from` on until the end of `until`, in pieces that fill none at once.
async fn write(client: &Client, handle: Handle, from: u64, until: u64) {
    let data = vec![7; 100_000];
    let mut at = from;
    while at < until {
        client.files().write(handle, at, &data).await.expect("writers wait, they do not fail");
        at += data.len() as u64;
    }
}

fn dirty(client: &Client, ost: u32) -> u64 {
    client.admin().memory.ost_uses().iter().find(|of| of.ost == OstIndex(ost)).map_or(0, |of| of.dirty)
}

/// One OST does not answer: its writers wait, with no more dirty data than it may have, and those of another one do not
/// notice. `ost_dirty_bytes_max`: without a bound of its own it takes all.
fn slow_ost(ost_dirty_bytes_max: u64) -> bool {
    let world = World::new(1, 2);
    let client =
        world.mount_with(Limits { ost_dirty_bytes_max, dirty_bytes_max: 16 * MIB, ..Limits::default() });
    world.run(async {
        let rt = world.hub.rt();
        let (slow, quick) = (create_on(&client, b"slow", 0).await, create_on(&client, b"quick", 1).await);
        world.osts[0].hold();
        world.osts[1].set_latency(Duration::from_millis(1));
        let mut waiting = std::pin::pin!(write(&client, slow, 0, 24 * MIB));
        assert!(rt.timeout(Duration::from_secs(5), waiting.as_mut()).await.is_none(), "the writer waits");
        let taken = dirty(&client, 0);
        assert!(taken > ost_dirty_bytes_max - MIB && taken <= ost_dirty_bytes_max, "{taken}");
        let goes_on = rt.timeout(Duration::from_secs(1), write(&client, quick, 0, 48 * MIB)).await.is_some();
        assert!(dirty(&client, 0) <= ost_dirty_bytes_max);
        if goes_on {
            client
                .admin()
                .memory
                .set_ost_dirty_max(OstIndex(0), 2 * ost_dirty_bytes_max)
                .expect("it is enough");
            assert!(rt.timeout(Duration::from_secs(5), waiting.as_mut()).await.is_none(), "it waits again");
            let more = dirty(&client, 0);
            assert!(more > taken + ost_dirty_bytes_max - MIB && more <= 2 * ost_dirty_bytes_max, "{more}");
            client.admin().memory.set_ost_dirty_max(OstIndex(0), CACHED_BYTES_MIN).expect("it is enough");
            assert_eq!(dirty(&client, 0), more, "what is there stays until it is sent");
        }
        world.osts[0].release();
        waiting.await;
        for handle in [slow, quick] {
            client.files().fsync(handle).await.expect("the OSTs take everything");
        }
        let used = client.admin().memory.cache_use();
        assert_eq!((used.dirty, dirty(&client, 0), dirty(&client, 1)), (0, 0, 0));
        goes_on
    })
}

#[test]
fn a_slow_ost_keeps_nobody_else_waiting() {
    assert!(slow_ost(4 * MIB));
    assert!(!slow_ost(16 * MIB), "it takes all");
}

/// An OST makes durable what it has now and then, and at once if it is asked: it is asked before writers have to wait.
#[test]
fn what_is_not_durable_counts() {
    let world = World::remote(1, 1);
    let limits = Limits { cached_bytes_max: 8 * MIB, dirty_bytes_max: 6 * MIB, ..Limits::default() };
    let client = world.mount_with(limits);
    world.run(async {
        let rt = world.hub.rt();
        let handle = create_on(&client, b"f", 0).await;
        let (mut newest, begin) = (0, rt.now());
        for n in 0..12 {
            write(&client, handle, n * MIB, (n + 1) * MIB).await;
            let used = client.admin().memory.cache_use();
            newest = newest.max(used.unstable);
            // Not their sum: what is being answered is counted in both for a moment.
            assert!(used.dirty <= 6 * MIB && used.unstable <= 8 * MIB, "{used:?}");
        }
        assert!(newest > MIB, "{newest}");
        let took = rt.now() - begin;
        assert!(took < Duration::from_secs(1), "{took:?}");
        client.files().fsync(handle).await.expect("the OST takes everything");
        assert_eq!(client.admin().memory.cache_use().unstable, 0);
        write(&client, handle, 0, 5 * MIB).await;
        client.admin().memory.set_cached_max(CACHED_BYTES_MIN).await.expect("it is enough");
        rt.sleep(Duration::from_millis(500)).await;
        let used = client.admin().memory.cache_use();
        assert!(used.dirty + used.unstable <= CACHED_BYTES_MIN, "{used:?}");
    });
}

/// An OST that makes nothing durable until it is asked is asked, as often as it takes for a writer of twice as much as may be kept to
/// come to its end; and there is never more than that (FEATURES R25).
#[test]
fn an_ost_that_only_commits_when_it_is_asked_is_asked() {
    let world = World::remote_registered(1, 1);
    let kept_max = 8 * MIB;
    let client = world.mount_with(Limits {
        cached_bytes_max: kept_max,
        dirty_bytes_max: 6 * MIB,
        ..Limits::default()
    });
    world.run(async {
        let rt = world.hub.rt();
        let handle = create_on(&client, b"f", 0).await;
        world.osts[0].set_latency(Duration::from_millis(2));
        world.osts[0].counts();
        let mut writing = std::pin::pin!(write(&client, handle, 0, 2 * kept_max));
        let (mut newest, mut looks) = (0, 0);
        while rt.timeout(Duration::from_micros(50), writing.as_mut()).await.is_none() {
            let unstable = client.admin().memory.cache_use().unstable;
            assert!(unstable <= kept_max, "{unstable}");
            newest = newest.max(unstable);
            looks += 1;
            assert!(looks < 100_000, "the writer waits for ever");
        }
        let counts = world.osts[0].counts();
        // Nobody has closed or synced the file: it is the bound that asks.
        assert!(newest > kept_max / 4 && counts.syncs >= 2, "{newest}, {counts:?}");
        assert_eq!(counts.sync_writes, 0);
        client.files().fsync(handle).await.expect("the OST takes everything");
        assert!(world.osts[0].is_committed());
        assert_eq!(client.admin().memory.cache_use().unstable, 0);
    });
}

/// Writes the first `len` bytes of each of these chunks.
async fn begin(client: &Client, handle: Handle, chunks: std::ops::Range<u64>, len: usize) {
    for chunk in chunks {
        client
            .files()
            .write(handle, chunk * MIB, &vec![7; len])
            .await
            .expect("writers wait, they do not fail");
    }
}

/// Most of what fills the bound was sent, and waits for a commit: chunks that are not full wait for it with the writer, and are not
/// sent in pieces.
#[test]
fn a_commit_is_waited_for_before_chunks_go_that_are_not_full() {
    let world = World::remote_registered(1, 1);
    let limits = Limits { cached_bytes_max: 8 * MIB, dirty_bytes_max: 6 * MIB, ..Limits::default() };
    let client = world.mount_with(limits);
    world.run(async {
        let rt = world.hub.rt();
        let handle = create_on(&client, b"f", 0).await;
        world.osts[0].set_sync_latency(Duration::from_millis(15));
        begin(&client, handle, 0..5, MIB as usize).await;
        while client.admin().memory.cache_use().dirty > 0 {
            rt.sleep(Duration::from_micros(50)).await;
        }
        let began = rt.now();
        begin(&client, handle, 5..15, 300_000).await;
        begin(&client, handle, 15..25, 30_000).await;
        let took = rt.now() - began;
        assert!(took > Duration::from_millis(10), "it has waited for room: {took:?}");
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(world.osts[0].counts().writes, 5);
        client.files().fsync(handle).await.expect("the OST takes everything");
    });
}

/// What is on its way is for an OST that does not answer, and the rest of the bound is in chunks that are not full: a writer to another
/// OST sends its own.
#[test]
fn a_writer_sends_its_own_when_another_ost_holds_up_what_is_sent() {
    let world = World::new(1, 2);
    let limits = Limits { ost_dirty_bytes_max: 16 * MIB, dirty_bytes_max: 16 * MIB, ..Limits::default() };
    let client = world.mount_with(limits);
    world.run(async {
        let rt = world.hub.rt();
        let (slow, quick) = (create_on(&client, b"slow", 0).await, create_on(&client, b"quick", 1).await);
        world.osts[0].hold();
        begin(&client, slow, 0..4, MIB as usize).await;
        let began = rt.now();
        begin(&client, quick, 0..100, 500_000).await;
        let took = rt.now() - began;
        assert!(took < Duration::from_millis(200), "{took:?}");
        world.osts[0].release();
        for handle in [slow, quick] {
            client.files().fsync(handle).await.expect("the OSTs take everything");
        }
    });
}

/// Many small chunks fill the bound: they go several at a time, not one for each write.
#[test]
fn small_chunks_go_together() {
    let world = World::new(1, 1);
    let limits = Limits { dirty_bytes_max: 8 * MIB, ..Limits::default() };
    let client = world.mount_with(limits);
    world.run(async {
        let handle = create_on(&client, b"f", 0).await;
        let dirty_of = |chunks: u64| chunks * (8192 + 512);
        let room = 8 * MIB / dirty_of(1);
        begin(&client, handle, 0..room, 8192).await;
        assert_eq!(world.osts[0].counts().writes, 0);
        begin(&client, handle, room..room + 1, 8192).await;
        let sent = world.osts[0].counts().writes as u64;
        assert!(dirty_of(sent) >= MIB, "{sent} of {room} chunks");
        assert!(dirty_of(sent) <= 2 * MIB, "{sent} of {room} chunks");
    });
}

#[test]
fn what_was_read_goes_when_less_may_be_cached() {
    let world = World::real(1, 4);
    let client = world.mount_with(Limits { cached_bytes_max: 64 * MIB, ..Limits::default() });
    world.run(async {
        let handle = create_on(&client, b"f", 2).await;
        write(&client, handle, 0, 16 * MIB).await;
        client.files().fsync(handle).await.expect("the OST takes everything");
        for at in (0..16 * MIB).step_by(128 << 10) {
            client.files().read(handle, at, 128 << 10).await.expect("it is there");
        }
        assert!(client.admin().memory.cache_use().clean >= 16 * MIB, "one object may have all of it");
        let small = client.admin().memory.set_cached_max(CACHED_BYTES_MIN - 1).await;
        assert_eq!(small, Err(Error::Refused(Code::Invalid)));
        client.admin().memory.set_cached_max(8 * MIB).await.expect("it is enough");
        let used = client.admin().memory.cache_use();
        assert!(used.clean <= 8 * MIB && used.clean > 7 * MIB && used.reclaims > 0, "{used:?}");
        assert_eq!(
            client.admin().memory.set_ost_dirty_max(OstIndex(7), 8 * MIB),
            Err(Error::Refused(Code::NotFound))
        );
    });
}
