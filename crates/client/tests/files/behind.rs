//! Write-behind: what is sent when, what is bounded, who hears of failures.

use std::time::Duration;

use client::{Allocation, AttrChange, Error, Limits, OpenFlags};
use proto::{Code, Fid};
use rt::wait::join_all;

use crate::fake::Counts;
use crate::world::{MIB, World, create, join, read_write, root, striped};

#[test]
fn a_direct_write_of_a_chunk_is_one_request_of_one_slice() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        let data = vec![7; MIB as usize];
        for i in 0..4 {
            client.files().write(handle, i * MIB, &data).await.expect("there is room");
        }
        client.files().flush(handle).await.expect("the OST takes everything");
        assert_eq!(world.osts[0].counts(), Counts { writes: 4, slices: 4, ..Counts::default() });
    });
}

/// The data of a small write travels in the message that asks for it (Lustre's `short_io_bytes`).
#[test]
fn a_small_write_is_one_message_each_way() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        // The range is held from now on, and nothing else is under way.
        client.files().write(handle, 0, &[7; 4096]).await.expect("there is room");
        client.files().fsync(handle).await.expect("the OST is there");
        client.sync_all().await.expect("what is healthy can be synced");
        let sent = || ["client", "servers"].map(|node| world.sim.node_stats(node).frames_sent);
        let before = sent();
        client.files().write(handle, 4096, &[7; 3901]).await.expect("there is room");
        client.files().flush(handle).await.expect("the OST takes it");
        let after = sent();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1]);
    });
}

#[test]
fn small_writes_are_merged() {
    for len in [4096, 47_008, 100_000] {
        let world = World::new(1, 1);
        let client = world.mount();
        world.run(async {
            let (_, handle) = create(&client, b"f").await;
            let mut at = 0;
            while at < 4 * MIB {
                client.files().write(handle, at, &vec![7; len as usize]).await.expect("there is room");
                at += len;
            }
            client.files().flush(handle).await.expect("the OST takes everything");
            let counts = world.osts[0].counts();
            assert!(counts.writes <= 5, "writes of {len}: {counts:?}");
        });
    }
}

/// Two ranks write the records of a file in turns, and one of them is ahead: the chunks between them are not full. Where there is no room
/// for more, the oldest of those go, and no more than are needed.
#[test]
fn few_chunks_go_before_they_are_full() {
    const RECORD: u64 = 47_008;
    const AHEAD: u64 = 70;
    let world = World::new(1, 1);
    let client = world.mount_with(Limits { dirty_bytes_max: 4 * MIB, ..Limits::default() });
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        world.osts[0].set_latency(Duration::from_millis(1));
        let records = 32 * MIB / RECORD;
        let data = vec![7; RECORD as usize];
        for turn in 0..records / 2 + AHEAD {
            let ahead = (turn * 2 < records).then_some(turn * 2);
            let behind = turn.checked_sub(AHEAD).map(|turn| turn * 2 + 1);
            for record in [ahead, behind].into_iter().flatten() {
                client
                    .files()
                    .write(handle, record * RECORD, &data)
                    .await
                    .expect("writers wait, they do not fail");
            }
        }
        client.files().flush(handle).await.expect("the OST takes everything");
        let counts = world.osts[0].counts();
        assert!(counts.writes <= 64, "{counts:?}");
    });
}

#[test]
fn dirty_data_is_bounded_and_writers_wait() {
    let world = World::new(1, 1);
    let limits = Limits { dirty_bytes_max: 4 * MIB, ..Limits::default() };
    let client = world.mount_with(limits);
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        world.osts[0].hold();
        let data = vec![1; 100_000];
        let mut at = 0;
        let write = async {
            loop {
                client.files().write(handle, at, &data).await.expect("writers wait, they do not fail");
                at += data.len() as u64;
            }
        };
        assert!(rt.timeout(Duration::from_secs(30), write).await.is_none(), "the writer waits");
        assert!((3 * MIB..=4 * MIB).contains(&at), "{at} bytes were taken");
        assert!(world.osts[0].held_bytes() <= 4 * MIB);
        world.osts[0].release();
        client.files().write(handle, at, &data).await.expect("there is room again");
        client.files().flush(handle).await.expect("the OST takes everything");
        let attr = client.names().lookup(&root(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!(attr.size, at + 100_000);
    });
}

#[test]
fn a_writer_that_waits_while_its_session_ends_locks_anew() {
    let world = World::new(1, 1);
    let client = world.mount_with(Limits { dirty_bytes_max: 4 * MIB, ..Limits::default() });
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        world.osts[0].hold();
        let (written, last) = (std::cell::Cell::new(0), std::cell::Cell::new(false));
        let write = async {
            while !last.get() {
                let data = vec![1; 100_000];
                written.set(
                    written.get() + u64::from(client.files().write(handle, written.get(), &data).await?),
                );
            }
            Ok::<_, Error>(())
        };
        let mut write = std::pin::pin!(write);
        assert!(rt.timeout(Duration::from_secs(5), write.as_mut()).await.is_none(), "the writer waits");
        last.set(true);
        world.osts[0].evict();
        world.osts[0].release();
        let done = rt.timeout(Duration::from_secs(60), write.as_mut()).await.expect("there is room");
        done.expect("it is told of the loss by fsync");
        assert_eq!(client.files().fsync(handle).await, Err(Error::Refused(Code::Evicted)));
        assert_eq!(client.files().fsync(handle).await, Ok(()));
    });
}

/// Others may have written since.
#[test]
fn what_was_locked_before_a_session_ended_is_not_done_after_it() {
    let world = World::new(1, 1);
    let client = world.mount_with(Limits { rpcs_in_flight_max: 2, ..Limits::default() });
    world.run(async {
        let rt = world.hub.rt();
        let (attr, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"content").await.expect("there is room");
        client.files().fsync(handle).await.expect("the OST takes everything");
        let (_, other) = create(&client, b"other").await;
        world.osts[0].hold();
        for n in 0..2 {
            // They take all the room that there is for requests that write.
            client.files().write(other, n * MIB, &vec![1; MIB as usize]).await.expect("there is room");
        }
        world.osts[0].counts();
        let change = AttrChange { size: Some(3), ..AttrChange::default() };
        let caller = root();
        let mut cut = std::pin::pin!(client.files().setattr(&caller, attr.fid, change, Some(handle)));
        let mut hole = std::pin::pin!(client.files().allocate(handle, 1, 3, Allocation::PunchHole));
        assert!(rt.timeout(Duration::from_secs(5), cut.as_mut()).await.is_none(), "it waits for room");
        world.osts[0].evict();
        world.osts[0].release();
        let lost = Err(Error::Refused(Code::Evicted));
        let cut = rt.timeout(Duration::from_secs(60), cut).await.expect("there is room");
        assert_eq!(cut.map(|_| ()), lost);
        assert_eq!(world.osts[0].counts().punches, 0);
        hole.as_mut().await.expect("it is locked anew");
        assert_eq!(world.osts[0].counts().punches, 1);
        assert_eq!(join(&client.files().read(handle, 0, 10).await.expect("it is there")), b"c\0\0\0ent");
    });
}

#[test]
fn dirty_data_is_sent_when_it_is_old() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"hello").await.expect("there is room");
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(world.osts[0].counts(), Counts::default());
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(world.osts[0].counts(), Counts { writes: 1, slices: 1, ..Counts::default() });
    });
}

/// Of an OST that says how much it has left, the end is told by the write that has no space.
#[test]
fn a_full_ost_is_told_by_write() {
    let world = World::new(1, 1);
    let client = world.mount();
    let full = Err(Error::Refused(Code::NoSpace));
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        world.osts[0].say_room();
        world.osts[0].set_capacity(Some(40 * MIB));
        let data = vec![1; MIB as usize];
        let mut written = 0;
        let refused = loop {
            match client.files().write(handle, written, &data).await {
                Ok(len) => written += u64::from(len),
                refused => break refused,
            }
            assert!(written <= 40 * MIB);
        };
        assert_eq!((refused, written), (full, 40 * MIB));
        let counts = world.osts[0].counts();
        assert!((40..60).contains(&counts.writes), "{counts:?}: most of it is sent behind the writer");
        client.files().fsync(handle).await.expect("what was taken is there");
        assert_eq!(client.files().write(handle, written, &data).await, full);
        world.osts[0].set_capacity(None);
        client.files().write(handle, written, &data).await.expect("there is space");
        client.files().fsync(handle).await.expect("there is space");
    });
}

#[test]
fn a_full_ost_is_told_once_and_then_at_each_write() {
    let world = World::new(1, 1);
    let client = world.mount();
    let full = Err(Error::Refused(Code::NoSpace));
    world.run(async {
        let (attr, handle) = create(&client, b"f").await;
        let other = client.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        world.osts[0].set_capacity(Some(MIB));
        client.files().write(handle, 0, &vec![1; 3 * MIB as usize]).await.expect("nobody knows yet");
        assert_eq!(client.files().flush(handle).await, full);
        assert_eq!(client.files().flush(handle).await, Ok(()), "a handle reports a failure once");
        assert_eq!(client.files().fsync(other).await, full, "each handle reports it");
        assert_eq!(client.files().write(handle, 3 * MIB, b"x").await, Err(Error::Refused(Code::NoSpace)));
        assert_eq!(client.files().flush(handle).await, Ok(()), "that was told at the write");
        world.osts[0].set_capacity(None);
        client.files().write(handle, 0, b"again").await.expect("there is space");
        client.files().flush(handle).await.expect("there is space");
        assert_eq!(join(&client.files().read(handle, 0, 5).await.expect("it is there")), b"again");
    });
}

#[test]
fn a_lost_commit_is_told_once_to_each_handle_that_was_open() {
    let world = World::new(1, 1);
    let client = world.mount();
    let lost = Err(Error::Refused(Code::Io));
    world.run(async {
        let (attr, first) = create(&client, b"f").await;
        let second = client.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        let reads = OpenFlags { read: true, ..OpenFlags::default() };
        let reader = client.files().open(&root(), attr.fid, reads).await.expect("it is there");
        let closer = client.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        client.files().write(first, 0, b"data").await.expect("there is room");
        world.osts[0].set_latency(Duration::from_millis(10));
        world.osts[0].set_loses(true);
        // Both wait for the same commit.
        let told = join_all([first, second].map(|handle| client.files().fsync(handle))).await;
        assert_eq!(told, [lost, lost]);
        let late = client.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        for handle in [first, second, late] {
            assert_eq!(client.files().fsync(handle).await, Ok(()), "it knows, or was not there");
        }
        assert_eq!(client.files().fsync(reader).await, lost);
        assert_eq!(client.files().fsync(reader).await, Ok(()));
        assert_eq!(client.files().flush(closer).await, lost);
        assert_eq!(client.files().flush(closer).await, Ok(()));
        assert_eq!(client.files().flush(late).await, Ok(()));
        world.osts[0].set_loses(false);
        client.files().write(first, 0, b"again").await.expect("there is room");
        assert_eq!(client.files().fsync(first).await, Ok(()));
    });
}

#[test]
fn a_failure_is_told_by_the_next_write() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        world.osts[0].set_capacity(Some(0));
        world.osts[0].hold();
        client.files().write(handle, 0, &vec![1; MIB as usize]).await.expect("nobody knows yet");
        world.osts[0].release();
        world.hub.rt().sleep(Duration::from_secs(1)).await;
        assert_eq!(client.files().write(handle, MIB, b"x").await, Err(Error::Refused(Code::NoSpace)));
    });
}

#[test]
fn sync_handles_wait_for_the_commit() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let flags = OpenFlags { sync: true, ..read_write() };
        let (_, handle) =
            client.files().create(&root(), Fid::ROOT, b"f", 0o644, flags).await.expect("a new file");
        client.files().write(handle, 0, b"durable").await.expect("there is room");
        assert!(world.osts.iter().all(|ost| ost.is_committed()));
    });
}

/// A write through an O_SYNC handle, or one that is fsynced, costs one request for each object it is in; more than a chunk of
/// one object is one commit for all.
#[test]
fn a_durable_write_is_one_request() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let flags = OpenFlags { sync: true, ..read_write() };
        let fid = striped(&client, 2).await;
        let handle = client.files().open(&root(), fid, flags).await.expect("it is there");
        let cost = async |handle, offset, len: u64, fsync| {
            world.osts.iter().for_each(|ost| _ = ost.counts());
            client.files().write(handle, offset, &vec![7; len as usize]).await.expect("there is room");
            if fsync {
                client.files().fsync(handle).await.expect("everything works");
            }
            assert!(world.osts.iter().all(|ost| ost.is_committed()));
            let counts = world.osts.iter().map(|ost| ost.counts());
            counts.fold((0, 0, 0), |sum, of| (sum.0 + of.writes, sum.1 + of.sync_writes, sum.2 + of.syncs))
        };
        assert_eq!(cost(handle, 0, 100, false).await, (1, 1, 0));
        assert_eq!(cost(handle, (64 << 10) - 10, 20, false).await, (2, 2, 0), "two objects");
        let (writes, sync_writes, syncs) = cost(handle, 8 * MIB, 8 * MIB, false).await;
        assert_eq!((writes, sync_writes, syncs), (8, 0, 2), "four chunks of each of two objects");
        let (attr, handle) = create(&client, b"g").await;
        let durable = client.files().open(&root(), attr.fid, flags).await.expect("it is there");
        assert_eq!(cost(durable, 3 * MIB, MIB, false).await, (1, 1, 0), "a whole chunk");
        assert_eq!(cost(handle, 0, 100, true).await, (1, 1, 0));
        client.files().write(handle, 0, &vec![7; MIB as usize]).await.expect("there is room");
        assert_eq!(cost(handle, MIB, 100, true).await.2, 0, "what was answered before is durable with it");
    });
}

#[test]
fn fsync_and_sync_make_durable() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"durable").await.expect("there is room");
        client.files().fsync(handle).await.expect("everything works");
        assert!(world.osts.iter().all(|ost| ost.is_committed()));
        client.files().write(handle, 0, b"more").await.expect("there is room");
        client.sync_all().await.expect("everything works");
        assert!(world.osts.iter().all(|ost| ost.is_committed()));
        client.files().fsync_dir(Fid::ROOT).await.expect("everything works");
        client.files().write(handle, 0, b"last").await.expect("there is room");
        client.unmount().await.expect("everything works");
        assert!(world.osts.iter().all(|ost| ost.is_committed()));
    });
}

#[test]
fn closes_share_commits() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        for i in 0..200 {
            let name = format!("f{i}");
            let (_, handle) = create(&client, name.as_bytes()).await;
            client.files().write(handle, 0, b"small").await.expect("there is room");
            client.files().flush(handle).await.expect("the OST takes it");
            client.files().release(handle).await;
        }
        world.hub.rt().sleep(Duration::from_secs(2)).await;
        let counts = world.osts[0].counts();
        assert_eq!(
            (counts.writes, counts.attrs),
            (200, 0),
            "nobody else can have changed what this client made"
        );
        assert!(counts.syncs <= 2, "{counts:?}");
    });
}
