//! A directory that a client made is listed without asking (`docs/locks.md#made-here`).

use std::time::Duration;

use client::posix::{AccessTimes, Item, Posix};
use client::{AttrChange, Behind, Client, PageEntry};
use proto::Fid;
use weft_sim::workload::{READ, root};

use super::{attr, check, count, create, mkdir, mounts, numbered};

/// All entries, in the order in which they come, and the directory above.
async fn listed(client: &Client, dir: Fid) -> (Fid, Vec<(u64, Vec<u8>, Fid, u32)>) {
    let (mut all, mut behind) = (Vec::new(), Behind::START);
    loop {
        let page = client.names().read_dir(dir, &behind, true).await.expect("a directory");
        let plain = |entry: &PageEntry| (entry.cookie, entry.name.as_bytes().to_vec(), entry.fid, entry.mode);
        all.extend(page.entries.iter().map(plain));
        match page.next() {
            Some(next) => behind = next,
            None => return (page.parent, all),
        }
    }
}

#[test]
fn nobody_is_asked_and_it_is_the_same() {
    check(1, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let top = mkdir(&a, Fid::ROOT, b"top").await;
        let dir = mkdir(&a, top, b"d").await;
        assert_eq!(listed(&a, dir).await, (top, Vec::new()));
        for name in numbered(200) {
            let (_, handle) = create(&a, dir, &name).await.expect("a new name");
            a.files().release(handle).await;
        }
        mkdir(&a, dir, b"sub").await;
        let link = b"there".as_slice().into();
        a.names().make(&root(), dir, b"link", 0o120_777, 0, link).await.expect("a new name");
        // Before the MDT knows of them.
        let before = listed(&a, dir).await;
        assert_eq!(before.1.len(), 202);
        let middle =
            a.names().read_dir(dir, &Behind::hash(before.1[100].0), false).await.expect("it is there");
        assert_eq!(middle.entries.len(), 101);
        attr(&b, Fid::ROOT, "top").await.expect("it is there");
        attr(&b, top, "d").await.expect("it is there");
        assert_eq!(listed(&b, dir).await, before, "the MDT lists it in the same way");
        assert_eq!(count(&a, "rpc.ReadDir"), 0);

        for name in numbered(200).iter().step_by(3) {
            a.names().unlink(&root(), dir, name.as_bytes()).await.expect("it is there");
        }
        let (old, new) = (numbered(200)[1].clone(), b"moved");
        a.names().rename(&root(), dir, old.as_bytes(), dir, new, 0).await.expect("it is there");
        a.names().link(&root(), before.1[0].2, top, b"other").await.err();
        let after = listed(&a, dir).await;
        assert_eq!((listed(&b, dir).await, after.1.len()), (after, 202 - 67));
    });
}

#[test]
fn what_others_make_is_listed() {
    check(2, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        create(&a, dir, "mine").await.expect("a new name");
        assert_eq!((listed(&a, dir).await.1.len(), count(&a, "rpc.ReadDir")), (1, 0));
        create(&b, dir, "his").await.expect("a new name");
        assert_eq!(listed(&a, dir).await.1.len(), 2);
        b.names().unlink(&root(), dir, b"mine").await.expect("it is there");
        assert_eq!(listed(&a, dir).await.1.len(), 1);
        assert!(count(&a, "rpc.ReadDir") > 0);
        // Moved by somebody else, it lies elsewhere.
        let own = mkdir(&a, Fid::ROOT, b"own").await;
        assert_eq!(listed(&a, own).await.0, Fid::ROOT);
        b.names().rename(&root(), Fid::ROOT, b"own", dir, b"own", 0).await.expect("it is there");
        assert_eq!(listed(&a, own).await.0, dir);
    });
}

/// A directory is opened, listed and closed.
async fn look_into(client: &Client, dir: Fid) {
    let handle = client.files().open(&root(), dir, READ).await.expect("root may");
    client.files().accessed(handle);
    listed(client, dir).await;
    client.files().release(handle).await;
}

#[test]
fn the_mdt_hears_later_that_it_was_read() {
    check(3, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let (dir, gone) = (mkdir(&a, Fid::ROOT, b"d").await, mkdir(&a, Fid::ROOT, b"gone").await);
        create(&a, dir, "f").await.expect("a new name");
        cluster.handle().rt("clock").sleep(Duration::from_secs(1)).await;
        let before = a.names().getattr(dir).await.expect("it is there").atime;
        look_into(&a, dir).await;
        look_into(&a, gone).await;
        a.names().rmdir(&root(), Fid::ROOT, b"gone").await.expect("it is empty");
        let after = a.names().getattr(dir).await.expect("it is there").atime;
        assert!(after > before);
        assert_eq!((count(&a, "rpc.Open"), count(&a, "rpc.Close")), (0, 0));
        cluster.handle().rt("clock").sleep(Duration::from_secs(2)).await;
        assert_eq!(attr(&b, Fid::ROOT, "d").await.expect("it is there").atime, after);
        assert_eq!((count(&a, "rpc.Open"), count(&a, "rpc.Close")), (0, 1));
    });
}

#[test]
fn who_has_it_open_may_look_when_others_have_removed_it() {
    check(4, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let posix = Posix::new(a.clone(), AccessTimes::default());
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        let handle = posix.open_dir(&root(), dir, 0).await.expect("root may");
        assert_eq!(count(&a, "rpc.Open"), 0);
        b.names().rmdir(&root(), Fid::ROOT, b"d").await.expect("it is empty");
        assert_eq!(posix.getattr(dir).await.expect("it is open").nlink, 0);
        let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
        assert_eq!(posix.setattr(&root(), dir, change, None).await.expect("it is open").mode & 0o777, 0o700);
        let mut names = 0;
        let mut all = |_: Item<'_>| {
            names += 1;
            false
        };
        posix.read_dir(dir, handle, (0, false), &mut all).await.expect("it is open");
        assert_eq!(names, 2);
        posix.release_dir(handle).await;
        assert!(posix.getattr(dir).await.is_err(), "nobody has it open");
    });
}
