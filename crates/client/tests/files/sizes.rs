//! Sizes and times: who knows them, and when.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use client::{Allocation, AttrChange, Limits, OpenFlags, TimeSet};
use proto::{Code, Fid, Timestamp};

use crate::parameters::set;
use crate::world::{MIB, World, create, join, read_write, root, striped};

#[test]
fn the_mdt_knows_the_size_after_the_last_close() {
    let world = World::new(1, 3);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let fid = striped(&client, 3).await;
        let one = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        let two = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(one, 200_000, b"end").await.expect("there is room");
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.size_known), (200_003, false), "unsent data counts");
        client.files().flush(one).await.expect("the OSTs take it");
        client.files().release(one).await;
        rt.sleep(Duration::from_secs(2)).await;
        assert!(
            !client.names().getattr(fid).await.expect("it is there").size_known,
            "there is another writer"
        );
        client.files().release(two).await;
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 200_003, "the objects tell");
        rt.sleep(Duration::from_secs(2)).await;
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.size_known), (200_003, true));
        for ost in &world.osts {
            ost.counts();
        }
        client.names().getattr(fid).await.expect("it is there");
        assert!(world.osts.iter().all(|ost| ost.counts() == crate::fake::Counts::default()));
    });
}

/// Who had written a file and closed it, or had cut it, asked for its attributes again with the next look.
#[test]
fn what_was_written_here_is_known_when_it_is_closed() {
    let world = World::real(1, 2);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (attr, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"some text").await.expect("there is room");
        client.files().release(handle).await;
        rt.sleep(Duration::from_secs(3)).await;
        let looks = || {
            let sent = client.admin().counters();
            let count = |name: &str| sent.get(name).copied().unwrap_or(0);
            count("rpc.Lookup") + count("rpc.GetAttr") + count("rpc.GetObjectAttr")
        };
        let before = looks();
        let told = client.names().lookup(&root(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!((told.fid, told.size, told.size_known), (attr.fid, 9, true));
        assert!(!told.keep_name.is_zero() && told.keep_attr, "the kernel may keep it, too");
        assert_eq!(looks() - before, 0, "its close has told what it is now");
        drop(told);
        let change = AttrChange { size: Some(4), ..AttrChange::default() };
        client.files().setattr(&root(), attr.fid, change, None).await.expect("the owner may");
        rt.sleep(Duration::from_secs(3)).await;
        let before = looks();
        let told = client.names().getattr(attr.fid).await.expect("it is there");
        assert_eq!((told.size, told.size_known), (4, true));
        assert_eq!(looks() - before, 0, "so has the size that was told");
        drop(told);
        // What another client changes is called back as ever.
        let other = world.mounted(Limits::default()).await;
        let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        other.files().setattr(&root(), attr.fid, mode, None).await.expect("the owner may");
        assert_eq!(client.names().getattr(attr.fid).await.expect("it is there").mode & 0o777, 0o600);
    });
}

#[test]
fn truncates_cut_and_enlarge() {
    let world = World::new(1, 4);
    let client = world.mount();
    world.run(async {
        let fid = striped(&client, 4).await;
        let handle = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(handle, 0, &vec![9; MIB as usize]).await.expect("there is room");
        for size in [300_000, 70_000, 65_536, 65_535, 1, 5 * MIB, 400_000, 0, 10] {
            let change = AttrChange { size: Some(size), ..AttrChange::default() };
            let set =
                client.files().setattr(&root(), fid, change, Some(handle)).await.expect("the owner may");
            assert_eq!(set.size, size);
            assert_eq!(client.names().getattr(fid).await.expect("it is there").size, size);
            let end = join(&client.files().read(handle, size, 100).await.expect("it can be read"));
            assert_eq!(end, b"", "nothing lies behind {size}");
        }
        assert_eq!(join(&client.files().read(handle, 0, 100).await.expect("it can be read")), [0; 10]);
        client.files().release(handle).await;
        let change = AttrChange { size: Some(77), ..AttrChange::default() };
        client.files().setattr(&root(), fid, change, None).await.expect("the owner may");
        world.hub.rt().sleep(Duration::from_secs(2)).await;
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.size_known), (77, true));
        let flags = OpenFlags { truncate: true, ..read_write() };
        let handle = client.files().open(&root(), fid, flags).await.expect("it is there");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 0);
        client.files().release(handle).await;
    });
}

/// What was written behind the new end is dropped before the OSTs are asked.
#[test]
fn what_a_failed_truncate_has_dropped_is_told_as_lost() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let fid = striped(&client, 2).await;
        let handle = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(handle, 0, &[9; 600_000]).await.expect("there is room");
        world.osts.iter().for_each(|ost| ost.set_capacity(Some(0)));
        let change = AttrChange { size: Some(300_000), ..AttrChange::default() };
        let refused = client.files().setattr(&root(), fid, change.clone(), Some(handle)).await;
        assert_eq!(refused.err(), Some(Code::NoSpace.into()));
        world.osts.iter().for_each(|ost| ost.set_capacity(None));
        assert_eq!(client.files().fsync(handle).await, Err(Code::NoSpace.into()), "its end is lost");
        assert_eq!(client.files().fsync(handle).await, Ok(()), "that is told once");
        // Nothing is behind the end: nothing is lost.
        let (_, handle) = create(&client, b"short").await;
        client.files().write(handle, 0, b"short").await.expect("there is room");
        world.osts.iter().for_each(|ost| ost.set_capacity(Some(0)));
        let refused =
            client.files().setattr(&root(), handle_fid(&client, b"short").await, change, None).await;
        assert_eq!(refused.err(), Some(Code::NoSpace.into()));
        world.osts.iter().for_each(|ost| ost.set_capacity(None));
        assert_eq!(client.files().fsync(handle).await, Ok(()));
    });
}

/// Nobody may ask an OST of the file when it is cut. Others' words for the size do not count until the one that cuts has told, so it does when the
/// OST can be asked again.
#[test]
fn a_size_that_could_not_be_told_after_a_cut_is_told_later() {
    let world = World::new(1, 2);
    let (client, other) = (world.mount(), world.mount());
    world.run(async {
        let rt = world.hub.rt();
        let fid = striped(&client, 2).await;
        let handle = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(handle, 0, &[9; 600_000]).await.expect("there is room");
        client.files().release(handle).await;
        rt.sleep(Duration::from_secs(2)).await;
        let active = async |value: &str| set(&client, "osc.*OST0001*.active", value).await;
        assert_eq!(active("0").await, Ok(()));
        let change = AttrChange { size: Some(300_000), ..AttrChange::default() };
        client.files().setattr(&root(), fid, change, None).await.expect_err("one OST is not asked");
        rt.sleep(Duration::from_secs(30)).await;
        let attr = async || other.names().getattr(fid).await.expect("it is there");
        assert!(!attr().await.size_known);
        // Nobody else is believed meanwhile.
        let handle = other.files().open(&root(), fid, read_write()).await.expect("it is there");
        other.files().write(handle, 0, b"9").await.expect("there is room");
        other.files().release(handle).await;
        rt.sleep(Duration::from_secs(2)).await;
        assert!(!attr().await.size_known);
        assert_eq!(active("1").await, Ok(()));
        rt.sleep(Duration::from_secs(25)).await;
        assert!(attr().await.size_known);
    });
}

async fn handle_fid(client: &client::Client, name: &[u8]) -> Fid {
    client.names().lookup(&root(), Fid::ROOT, name).await.expect("it is there").fid
}

#[test]
fn set_times_stay_and_write_times_count() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (made, handle) = create(&client, b"f").await;
        let fid = made.fid;
        rt.sleep(Duration::from_secs(10)).await;
        client.files().write(handle, 0, b"data").await.expect("there is room");
        let written = client.names().getattr(fid).await.expect("it is there");
        assert!(written.mtime.secs >= made.mtime.secs + 10);
        rt.sleep(Duration::from_secs(10)).await;
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        client.files().setattr(&root(), fid, change, None).await.expect("the owner may");
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!(attr.mtime, written.mtime, "a change of mode leaves mtime alone");
        assert!(attr.ctime > written.ctime);
        let old = Timestamp { secs: 1_000_000, nanos: 5 };
        client.files().write(handle, 0, b"more").await.expect("there is room");
        let change = AttrChange { mtime: Some(TimeSet::At(old)), ..AttrChange::default() };
        client.files().setattr(&root(), fid, change, None).await.expect("the owner may");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").mtime, old);
        client.files().flush(handle).await.expect("the OST takes it");
        client.files().release(handle).await;
        rt.sleep(Duration::from_secs(2)).await;
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.mtime, attr.size_known, attr.size), (old, true, 4));
    });
}

#[test]
fn holes_can_be_punched_and_space_allocated() {
    let world = World::new(1, 3);
    let client = world.mount();
    world.run(async {
        let fid = striped(&client, 3).await;
        let handle = client.files().open(&root(), fid, read_write()).await.expect("it is there");
        client.files().write(handle, 0, &vec![5; 500_000]).await.expect("there is room");
        client.files().allocate(handle, 60_000, 200_000, Allocation::PunchHole).await.expect("a hole");
        let seen = join(&client.files().read(handle, 0, 500_000).await.expect("it can be read"));
        let hole = |i: usize| (60_000..260_000).contains(&i);
        assert!(seen.iter().enumerate().all(|(i, byte)| *byte == if hole(i) { 0 } else { 5 }));
        client
            .files()
            .allocate(handle, 0, 600_000, Allocation::Reserve { keep_size: true })
            .await
            .expect("nothing to do");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 500_000);
        client
            .files()
            .allocate(handle, 0, 600_000, Allocation::Reserve { keep_size: false })
            .await
            .expect("it grows");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 600_000);
    });
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the operation has to wait"),
    }
}

#[test]
fn what_needs_no_waiting_is_done_in_the_first_poll() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        // The first file fetches a sequence and opens the sessions.
        let (_, handle) = create(&client, b"first").await;
        client.files().write(handle, 0, b"x").await.expect("there is room");
        client.files().flush(handle).await.expect("the OST takes it");
    });
    let (attr, handle) =
        now(client.files().create(&root(), Fid::ROOT, b"f", 0o644, read_write())).expect("a new file");
    now(client.files().write(handle, 0, &vec![3; 3 * MIB as usize + 5])).expect("there is room");
    now(client.files().flush(handle)).expect("the OST takes it");
    assert_eq!(now(client.names().getattr(attr.fid)).expect("it is there").size, 3 * MIB + 5);
    let end = now(client.files().read(handle, 3 * MIB, 100)).expect("it can be read");
    assert_eq!(join(&end), [3; 5]);
    now(client.files().release(handle));
    now(client.names().unlink(&root(), Fid::ROOT, b"f")).expect("it is there");
}

/// Files that were written and closed at the same time: the questions for their sizes travel together, and so do their closes
/// (FEATURES R29).
#[test]
fn many_closes_are_few_frames() {
    const FILES: usize = 200;
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let mut open = Vec::new();
        for n in 0..FILES {
            let (attr, handle) = create(&client, format!("f{n}").as_bytes()).await;
            client.files().write(handle, 0, &[7; 100]).await.expect("there is room");
            client.files().fsync(handle).await.expect("it is durable");
            open.push((attr.fid, handle));
        }
        let before = world.sim.node_stats("client").frames_sent;
        for (_, handle) in &open {
            client.files().release(*handle).await;
        }
        world.hub.rt().sleep(Duration::from_secs(2)).await;
        let frames = world.sim.node_stats("client").frames_sent - before;
        for (fid, _) in open {
            let attr = client.names().getattr(fid).await.expect("it is there");
            assert_eq!((attr.size, attr.size_known), (100, true));
        }
        assert!(frames <= 20, "{frames} frames for the closes of {FILES} files");
    });
}
