//! Ranges of files: where data is, space that is reserved, copies between files.

use client::{Allocation, AttrChange, Client, Handle, Seek, TimeSet};
use proto::layout::LayoutHint;
use proto::{Code, Fid, Timestamp};

use crate::world::*;

/// A file of `count` stripes of 64 KiB from OST 0 on, open.
async fn file(client: &Client, name: &[u8], count: i32) -> (Fid, Handle) {
    let hint =
        LayoutHint { stripe_count: count, stripe_size: 65_536, start_index: 0, ..LayoutHint::default() };
    let fid = client
        .names()
        .create_with_layout(&root(), Fid::ROOT, name, 0o644, hint)
        .await
        .expect("a new file")
        .fid;
    (fid, client.files().open(&root(), fid, read_write()).await.expect("it is there"))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

#[test]
fn space_that_is_reserved_changes_times_and_nothing_else() {
    let world = World::real(1, 3);
    let client = world.mount();
    world.run(async {
        let (fid, handle) = file(&client, b"f", 3).await;
        client.files().write(handle, 0, &pattern(100_000)).await.expect("there is room");
        let old = Timestamp { secs: 7, nanos: 0 };
        for (offset, keep_size) in [(0, false), (0, true), (200_000, true)] {
            let change = AttrChange { mtime: Some(TimeSet::At(old)), ..AttrChange::default() };
            let before = client.files().setattr(&root(), fid, change, None).await.expect("root may");
            let before = (before.ctime, before.size);
            let what = Allocation::Reserve { keep_size };
            client.files().allocate(handle, offset, 50_000, what).await.expect("there is room");
            let after = client.names().getattr(fid).await.expect("it is there");
            assert!(after.mtime > old && after.ctime > before.0, "{offset}, {keep_size}: {after:?}");
            assert_eq!(after.size, before.1);
        }
    });
}

#[test]
fn data_and_holes_of_a_striped_file() {
    let world = World::real(1, 3);
    let client = world.mount();
    world.run(async {
        let (fid, handle) = file(&client, b"f", 3).await;
        let seek =
            async |offset, what| client.files().seek(fid, offset, what).await.expect("it can be asked");
        assert_eq!(
            (seek(0, Seek::Data).await, seek(0, Seek::Hole).await),
            (None, None),
            "an empty file has neither"
        );
        // Not sent yet, in the second and third stripe; then a hole, and one byte in the first.
        client.files().write(handle, 100_000, &pattern(60_000)).await.expect("there is room");
        client.files().write(handle, 400_000, b"x").await.expect("there is room");
        let table = [
            (0, Some(100_000), Some(0)),
            (100_000, Some(100_000), Some(160_000)),
            (131_072, Some(131_072), Some(160_000)),
            (160_000, Some(400_000), Some(160_000)),
            (400_000, Some(400_000), Some(400_001)),
            (400_001, None, None),
        ];
        for (from, data, hole) in table {
            assert_eq!((seek(from, Seek::Data).await, seek(from, Seek::Hole).await), (data, hole), "{from}");
        }
        client.files().allocate(handle, 110_000, 20_000, Allocation::PunchHole).await.expect("a hole");
        assert_eq!(
            (seek(100_000, Seek::Hole).await, seek(110_000, Seek::Data).await),
            (Some(110_000), Some(130_000))
        );
        client
            .files()
            .allocate(handle, 110_000, 20_000, Allocation::Reserve { keep_size: true })
            .await
            .expect("space");
        assert_eq!(seek(110_000, Seek::Data).await, Some(130_000), "reserved space is a hole");
    });
}

#[test]
fn reserved_space_counts_and_stays_zero() {
    let world = World::real(1, 2);
    let client = world.mount();
    world.run(async {
        let (fid, handle) = file(&client, b"f", 2).await;
        client
            .files()
            .allocate(handle, 0, 1_000_000, Allocation::Reserve { keep_size: true })
            .await
            .expect("space");
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!((attr.size, attr.blocks), (0, 0), "behind the end nothing is reserved");
        client.files().write(handle, 10, &pattern(100)).await.expect("there is room");
        client
            .files()
            .allocate(handle, 0, 1_000_000, Allocation::Reserve { keep_size: false })
            .await
            .expect("space");
        let attr = client.names().getattr(fid).await.expect("it is there");
        assert_eq!(attr.size, 1_000_000);
        assert!((1954..2000).contains(&attr.blocks), "{}", attr.blocks);
        let mut want = vec![0; 1_000_000];
        want[10..110].copy_from_slice(&pattern(100));
        assert!(join(&client.files().read(handle, 0, 1_000_000).await.expect("it can be read")) == want);
        client.files().allocate(handle, 5, 50, Allocation::Zero { keep_size: true }).await.expect("space");
        want[5..55].fill(0);
        client
            .files()
            .allocate(handle, 999_000, 5_000, Allocation::Zero { keep_size: true })
            .await
            .expect("space");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 1_000_000);
        client
            .files()
            .allocate(handle, 999_000, 5_000, Allocation::Zero { keep_size: false })
            .await
            .expect("space");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").size, 1_004_000);
        want.resize(1_004_000, 0);
        assert!(join(&client.files().read(handle, 0, 2_000_000).await.expect("it can be read")) == want);
        client.files().allocate(handle, 0, 1_004_000, Allocation::PunchHole).await.expect("a hole");
        assert_eq!(client.names().getattr(fid).await.expect("it is there").blocks, 0);
        let refused = client.files().allocate(handle, 0, u64::MAX, Allocation::PunchHole).await;
        assert_eq!(refused, Err(Code::TooLarge.into()));
    });
}

#[test]
fn what_lies_on_one_ost_is_copied_there() {
    let world = World::new(1, 3);
    let client = world.mount();
    world.run(async {
        let (_, source) = file(&client, b"a", 3).await;
        let (copy, target) = file(&client, b"b", 3).await;
        client.files().write(source, 0, &pattern(1_000_000)).await.expect("there is room");
        client.files().write(target, 70_000, b"it goes").await.expect("there is room");
        let copied = client.files().copy_range((source, 65_536), (target, 65_536), u64::MAX / 4).await;
        assert_eq!(copied, Ok(1_000_000 - 65_536), "up to the end of the source");
        let counts: Vec<_> = world.osts.iter().map(|ost| ost.counts()).collect();
        assert!(counts.iter().all(|counts| counts.copies > 0 && counts.reads == 0), "{counts:?}");
        let seen = join(&client.files().read(target, 0, 2_000_000).await.expect("it can be read"));
        assert!(
            seen[65_536..] == pattern(1_000_000)[65_536..] && seen[..65_536].iter().all(|byte| *byte == 0)
        );
        assert_eq!(client.files().copy_range((source, 1_000_000), (target, 0), 1).await, Ok(0));
        // One stripe further: every piece lies on another OST.
        for ost in &world.osts {
            ost.counts();
        }
        assert_eq!(client.files().copy_range((source, 0), (target, 65_536), 300_000).await, Ok(300_000));
        assert!(world.osts.iter().all(|ost| ost.counts().copies == 0));
        let seen = join(&client.files().read(target, 65_536, 300_000).await.expect("it can be read"));
        assert!(seen == pattern(300_000));
        client.files().fsync(target).await.expect("it becomes durable");
        assert!(world.osts.iter().all(|ost| ost.is_committed()));
        assert_eq!(client.names().getattr(copy).await.expect("it is there").size, 1_000_000);
    });
}

#[test]
fn copies_that_make_no_sense_are_refused() {
    let world = World::real(1, 1);
    let client = world.mount();
    world.run(async {
        let (fid, both) = file(&client, b"f", 1).await;
        client.files().write(both, 0, &pattern(1000)).await.expect("there is room");
        assert_eq!(client.files().copy_range((both, 0), (both, 500), 501).await, Err(Code::Invalid.into()));
        assert_eq!(client.files().copy_range((both, 0), (both, 500), 500).await, Ok(500));
        assert_eq!(
            client.files().copy_range((both, 0), (both, u64::MAX), 1).await,
            Err(Code::TooLarge.into())
        );
        let seen = join(&client.files().read(both, 0, 2000).await.expect("it can be read"));
        assert!(seen == [&pattern(500)[..], &pattern(500)[..]].concat());
        let read =
            client.files().open(&root(), fid, client::OpenFlags { read: true, ..Default::default() }).await;
        let read = read.expect("it is there");
        assert_eq!(client.files().copy_range((both, 0), (read, 500), 1).await, Err(client::Error::BadHandle));
        let append = client::OpenFlags { append: true, ..read_write() };
        let append = client.files().open(&root(), fid, append).await.expect("it is there");
        assert_eq!(
            client.files().copy_range((both, 0), (append, 500), 1).await,
            Err(client::Error::BadHandle)
        );
    });
}

#[test]
fn a_file_without_a_name_gets_one() {
    let world = World::real(1, 1);
    let client = world.mount();
    world.run(async {
        let (made, handle) =
            client.files().create_unnamed(&root(), Fid::ROOT, 0o600, read_write()).await.expect("root may");
        assert_eq!((made.nlink, made.mode), (0, 0o100_600));
        client.files().write(handle, 0, b"hello").await.expect("there is room");
        assert_eq!(client.names().getattr(made.fid).await.map(|attr| (attr.nlink, attr.size)), Ok((0, 5)));
        let linked =
            client.names().link(&root(), made.fid, Fid::ROOT, b"f").await.expect("it may have a name");
        assert_eq!((linked.nlink, linked.size), (1, 5));
        client.files().fsync(handle).await.expect("it becomes durable");
        client.files().release(handle).await;
        let again = client.files().open(&root(), made.fid, read_write()).await.expect("it is there");
        assert_eq!(join(&client.files().read(again, 0, 10).await.expect("it can be read")), b"hello");
        let (lost, handle) =
            client.files().create_unnamed(&root(), Fid::ROOT, 0o600, read_write()).await.expect("root may");
        client.files().write(handle, 0, b"hello").await.expect("there is room");
        client.files().release(handle).await;
        client.unmount().await.expect("everything works");
        let client = world.mounted(client::Limits::default()).await;
        assert_eq!(client.names().getattr(lost.fid).await, Err(Code::Stale.into()));
    });
}
