//! What a client has made it knows without asking, until somebody else changes it (`docs/locks.md#made-here`).

use client::{AttrChange, Client, Error, Handle, OpenFlags};
use proto::{Code, Fid};
use weft_sim::cluster::{Shape, with_cluster};
use weft_sim::workload::{READ_WRITE, root};

fn check(seed: u64, test: impl AsyncFnOnce(&Client, &Client)) {
    with_cluster(seed, Shape { osts: 2, osts_per_oss: 2 }, async |cluster| {
        let (_, a) = cluster.mount("a").await;
        let (_, b) = cluster.mount("b").await;
        cluster.osts_are_known(&a).await;
        test(&a, &b).await;
    });
}

async fn create(client: &Client, name: &[u8]) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name, 0o644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    assert!(told.keep_attr, "nobody but this client can change it");
    (told.fid, handle)
}

async fn open(client: &Client, fid: Fid) -> Handle {
    client.files().open(&root(), fid, READ_WRITE).await.expect("root may open")
}

async fn write(client: &Client, handle: Handle, offset: u64, data: &[u8]) {
    client.files().write(handle, offset, data).await.expect("there is room");
}

/// The size, and how many questions it took.
async fn size(client: &Client, fid: Fid) -> (u64, u64) {
    let asked = || client.admin().counters().get("rpc.GetObjectAttr").copied().unwrap_or(0);
    let before = asked();
    let size = client.names().getattr(fid).await.expect("it is there").size;
    (size, asked() - before)
}

async fn exists(client: &Client, dir: Fid, name: &[u8]) -> bool {
    match client.names().lookup(&root(), dir, name).await {
        Ok(_) => true,
        Err(Error::Refused(Code::NotFound)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_that_one_client_makes_and_writes_is_not_asked_for() {
    check(1, async |a, b| {
        let (fid, handle) = create(a, b"f").await;
        assert_eq!(size(a, fid).await, (0, 0));
        write(a, handle, 5, b"unsent").await;
        assert_eq!(size(a, fid).await, (11, 0));
        a.files().fsync(handle).await.expect("everything works");
        assert_eq!(size(a, fid).await, (11, 0));
        let change = AttrChange { size: Some(3), ..AttrChange::default() };
        a.files().setattr(&root(), fid, change, Some(handle)).await.expect("it is open");
        assert_eq!(size(a, fid).await, (3, 0));
        assert_eq!(size(b, fid).await.0, 3, "another one asks");
        a.files().release(handle).await;
        a.sync_all().await.expect("everything works");
        assert_eq!(size(b, fid).await.0, 3);
    });
}

#[test]
fn a_second_writer_is_seen() {
    for seed in 1..=20 {
        check(seed, async |a, b| {
            let (fid, one) = create(a, b"f").await;
            write(a, one, 0, b"a").await;
            let two = open(b, fid).await;
            write(b, two, 0, b"longer").await;
            assert_eq!(size(a, fid).await.0, 6);
            a.files().release(one).await;
            write(b, two, 6, b" still").await;
            a.sync_all().await.expect("everything works");
            assert_eq!(size(a, fid).await.0, 12);
            b.files().release(two).await;
            assert_eq!((size(a, fid).await.0, size(b, fid).await.0), (12, 12));
        });
    }
}

#[test]
fn a_file_that_was_never_written_is_seen_when_another_one_writes() {
    for seed in 1..=20 {
        check(seed, async |a, b| {
            let (fid, one) = create(a, b"f").await;
            a.files().release(one).await;
            // The close may still wait for others.
            let two = open(b, fid).await;
            write(b, two, 0, b"b").await;
            assert_eq!(size(a, fid).await.0, 1);
            b.files().release(two).await;
            let change = AttrChange { size: Some(100), ..AttrChange::default() };
            b.files().setattr(&root(), fid, change, None).await.expect("root may");
            assert_eq!(size(a, fid).await.0, 100);
        });
    }
}

#[test]
fn a_cut_by_another_client_is_seen() {
    for seed in 1..=20 {
        check(seed, async |a, b| {
            let (fid, one) = create(a, b"f").await;
            write(a, one, 0, b"a hundred").await;
            let change = AttrChange { size: Some(2), ..AttrChange::default() };
            b.files().setattr(&root(), fid, change, None).await.expect("root may");
            assert_eq!(size(a, fid).await.0, 2);
            write(a, one, 2, b"c").await;
            a.files().release(one).await;
            assert_eq!((size(a, fid).await.0, size(b, fid).await.0), (3, 3));
        });
    }
}

#[test]
fn names_in_a_new_directory_are_known() {
    check(3, async |a, b| {
        let made = a.names().make(&root(), Fid::ROOT, b"d", 0o040_755, 0, bytes::Bytes::new()).await;
        let dir = made.expect("a new name can be made").fid;
        let looks = |client: &Client| client.admin().counters().get("rpc.Lookup").copied().unwrap_or(0);
        let before = looks(a);
        assert!(!exists(a, dir, b"one").await);
        let made = a.files().create(&root(), dir, b"one", 0o644, READ_WRITE).await.expect("a new name");
        a.files().release(made.1).await;
        assert!(exists(a, dir, b"one").await && !exists(a, dir, b"two").await);
        a.names().rename(&root(), dir, b"one", dir, b"two", 0).await.expect("root may");
        assert!(exists(a, dir, b"two").await);
        a.names().unlink(&root(), dir, b"two").await.expect("root may");
        assert!(!exists(a, dir, b"two").await && !exists(a, dir, b"three").await);
        // The old name of a rename is asked for, and the source before the rename.
        assert!(looks(a) - before <= 2, "{}", looks(a) - before);
        let made = b.files().create(&root(), dir, b"three", 0o644, READ_WRITE).await.expect("a new name");
        b.files().release(made.1).await;
        assert!(exists(a, dir, b"three").await && !exists(a, dir, b"one").await);
        b.names().unlink(&root(), dir, b"three").await.expect("root may");
        assert!(!exists(a, dir, b"three").await);
    });
}

/// The close that waited for the file's size does not wait for that any more. It must not say that nothing was written.
#[test]
fn a_file_that_is_open_keeps_its_size_when_its_name_goes() {
    check(8, async |a, b| {
        let (fid, handle) = create(a, b"f").await;
        write(a, handle, 0, b"data").await;
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let readers = [
            a.files().open(&root(), fid, read).await.expect("root may open"),
            b.files().open(&root(), fid, read).await.expect("root may open"),
        ];
        a.files().release(handle).await;
        a.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
        for (client, reader) in [a, b].into_iter().zip(readers) {
            assert_eq!(size(client, fid).await.0, 4);
            let bytes = client.files().read(reader, 0, 100).await.expect("it is open");
            assert_eq!(bytes.concat(), b"data");
            client.files().release(reader).await;
        }
    });
}
