//! What was written and sent is read again without a question, as long as it is locked and is as it was written.

use std::time::Duration;

use client::{Client, Handle};
use proto::layout::LayoutHint;
use proto::{Code, Fid, FileKind};

use crate::world::{World, create, join, make, read_only, read_write, root};

async fn write(client: &Client, handle: Handle, offset: u64, bytes: &[u8]) {
    client.files().write(handle, offset, bytes).await.expect("there is room");
}

async fn read(client: &Client, handle: Handle) -> Vec<u8> {
    join(&client.files().read(handle, 0, 1 << 20).await.expect("it can be read"))
}

#[test]
fn what_was_written_is_read_without_a_question() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        write(&client, handle, 0, b"written").await;
        write(&client, handle, 7, b" here").await;
        client.files().fsync(handle).await.expect("the OST takes it");
        world.osts[0].counts();
        assert_eq!(read(&client, handle).await, b"written here");
        let asked = world.osts[0].counts();
        assert_eq!((asked.reads, asked.attrs), (0, 0), "bytes and end are known");
        // More behind it, of which the OST has not heard.
        write(&client, handle, 20, b"!").await;
        assert_eq!(read(&client, handle).await, b"written here\0\0\0\0\0\0\0\0!");
        client.files().fsync(handle).await.expect("the OST takes it");
        assert_eq!(read(&client, handle).await, b"written here\0\0\0\0\0\0\0\0!");
    });
}

/// The kernel asks for whole pages, and nobody was asked for a lock when it was written.
#[test]
fn what_was_written_and_closed_is_read_without_a_question() {
    let world = World::remote(1, 4);
    let client = world.mount();
    world.run(async {
        let dir = make(&client, Fid::ROOT, b"d", FileKind::Dir, b"").await;
        let (told, handle) =
            client.files().create(&root(), dir, b"f", 0o644, read_write()).await.expect("a new file");
        let fid = told.attr.fid;
        drop(told);
        write(&client, handle, 0, b"written").await;
        client.files().release(handle).await;
        world.hub.rt().sleep(Duration::from_secs(2)).await;
        let reads = || client.admin().counters().get("rpc.Read").copied();
        let handle = client.files().open(&root(), fid, read_only()).await.expect("it is there");
        let pages = client.files().read_pages(handle, 0, 4096).await.expect("it can be read");
        assert_eq!(join(&pages.slices), b"written");
        world.hub.rt().sleep(Duration::from_secs(1)).await;
        assert_eq!(reads(), None, "bytes and end are known");
    });
}

#[test]
fn what_is_written_meanwhile_counts() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        // The second is not kept when it is sent, and the first must not be there in its place.
        let (first, second) = (vec![1; 1000], vec![2; 300 << 10]);
        world.osts[0].hold();
        write(&client, handle, 0, &first).await;
        let sending = client.clone();
        world.hub.rt().spawn(async move {
            let _ = sending.files().fsync(handle).await;
        });
        while world.osts[0].held_bytes() == 0 {
            world.hub.rt().sleep(Duration::from_millis(1)).await;
        }
        write(&client, handle, 0, &second).await;
        world.osts[0].release();
        client.files().fsync(handle).await.expect("the OST takes it");
        assert!(read(&client, handle).await == second);
    });
}

#[test]
fn what_another_one_changes_is_not_kept() {
    let world = World::real(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let (attr, mine) = create(&one, b"f").await;
        let theirs = two.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        for round in 0..10_u8 {
            write(&one, mine, 0, &[round; 100]).await;
            one.files().fsync(mine).await.expect("the OST takes it");
            assert_eq!(read(&one, mine).await[..100], [round; 100]);
            write(&two, theirs, 50 + u64::from(round), &[100 + round; 60]).await;
            let found = read(&one, mine).await;
            assert_eq!(found.len(), 110 + usize::from(round));
            assert_eq!(found[50 + usize::from(round)..], [100 + round; 60]);
        }
    });
}

#[test]
fn what_an_ost_has_forgotten_is_not_kept() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        write(&client, handle, 0, b"written here").await;
        client.files().fsync(handle).await.expect("the OST takes it");
        world.osts[0].evict();
        // Whatever asks the OST hears of it.
        let (_, other) = create(&client, b"g").await;
        write(&client, other, 0, b"x").await;
        let _ = client.files().fsync(other).await;
        world.osts[0].counts();
        assert_eq!(read(&client, handle).await, b"written here");
        assert!(world.osts[0].counts().reads > 0, "others may have been there");
    });
}

/// Moved, its lost data would be zeros for ever.
#[test]
fn a_file_that_has_lost_data_is_not_moved() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let (attr, handle) = create(&client, b"f").await;
        write(&client, handle, 0, b"written here").await;
        client.files().fsync(handle).await.expect("the OST takes it");
        client.files().release(handle).await;
        client.sync_all().await.expect("it is healthy");
        let size_known = async || client.names().getattr(attr.fid).await.expect("it is there").size_known;
        while !size_known().await {
            world.hub.rt().sleep(Duration::from_millis(100)).await;
        }
        let hint = LayoutHint { stripe_count: 2, ..LayoutHint::default() };
        world.osts.iter().for_each(|ost| ost.lose_objects());
        let moved = client.migrate(&root(), attr.fid, hint).await;
        assert_eq!(moved, Err(Code::Io.into()));
        assert_eq!(client.names().getattr(attr.fid).await.expect("it is there").size, 12);
    });
}
