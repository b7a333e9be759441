//! Two clients of one file system, names, and files that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::posix::{AccessTimes, Item, Posix};
use client::{Behind, Caller, Error, OpenFlags};
use proto::layout::LayoutHint;
use proto::{Code, Fid, FileKind, TargetId};
use rt::Time;
use rt::sync::oneshot;

use crate::world::{World, create, join, make, read_only, read_write, root};

#[test]
fn what_one_client_flushed_the_other_reads() {
    let world = World::real(1, 2);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let (attr, writer) = create(&one, b"f").await;
        let reader = two.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
        one.files().write(writer, 0, b"from one").await.expect("there is room");
        one.files().flush(writer).await.expect("the OST takes it");
        assert_eq!(join(&two.files().read(reader, 0, 100).await.expect("it can be read")), b"from one");
        assert_eq!(two.names().getattr(attr.fid).await.expect("it is there").size, 8);
        let append = OpenFlags { append: true, ..read_write() };
        let appender = two.files().open(&root(), attr.fid, append).await.expect("it is there");
        two.files().write(appender, 0, b", from two").await.expect("there is room");
        two.files().write(appender, 0, b"!").await.expect("there is room");
        two.files().flush(appender).await.expect("the OST takes it");
        assert_eq!(
            join(&one.files().read(writer, 0, 100).await.expect("it can be read")),
            b"from one, from two!"
        );
    });
}

/// Each had its answer in hand, which a callback waits for, while it cut the file, which waits for the other one's
/// callback: neither ever ended.
#[test]
fn two_that_empty_a_file_at_the_same_time_do_not_wait_for_each_other() {
    let world = World::remote(1, 2);
    let clients = [world.mount(), world.mount()];
    let (attr, handle) = world.run(create(&clients[0], b"f"));
    world.run(async {
        let flags = OpenFlags { truncate: true, ..read_write() };
        for _ in 0..20 {
            let opened = clients.clone().map(|client| {
                let (sender, opened) = oneshot::channel();
                world.hub.rt().spawn(async move {
                    let made = client.files().create(&root(), Fid::ROOT, b"f", 0o644, flags).await;
                    let made = made.map(|(told, handle)| (told.fid, told.size, handle));
                    if let Ok((_, _, handle)) = made {
                        client.files().release(handle).await;
                    }
                    let _ = sender.send(made.map(|(fid, size, _)| (fid, size)));
                });
                opened
            });
            for opened in opened {
                let made = world.hub.rt().timeout(Duration::from_secs(60), opened).await;
                assert_eq!(made, Some(Ok(Ok((attr.fid, 0)))));
            }
        }
        clients[0].files().release(handle).await;
    });
}

/// Who took the last name went on keeping what the MDT did not call back any more.
#[test]
fn what_becomes_of_a_file_without_a_name_is_seen() {
    let world = World::new(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        for take_away in ["unlink", "rename"] {
            let (attr, mine) = create(&one, b"f").await;
            let others = two.files().open(&root(), attr.fid, read_write()).await.expect("it is there");
            if take_away == "unlink" {
                one.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
            } else {
                let (_, new) = create(&one, b"new").await;
                one.files().release(new).await;
                one.names()
                    .rename(&root(), Fid::ROOT, b"new", Fid::ROOT, b"f", 0)
                    .await
                    .expect("both are there");
            }
            assert_eq!(one.names().getattr(attr.fid).await.expect("it is open").mode & 0o777, 0o666);
            let change = client::AttrChange { mode: Some(0o600), ..Default::default() };
            two.files().setattr(&root(), attr.fid, change, Some(others)).await.expect("root may");
            assert_eq!(
                one.names().getattr(attr.fid).await.expect("it is open").mode & 0o777,
                0o600,
                "{take_away}"
            );
            one.files().release(mine).await;
            two.files().release(others).await;
        }
    });
}

/// The numbers of grants began again with each start of the MDT: what was granted then looked older than what it called
/// back, and the client kept it.
#[test]
fn what_was_granted_after_a_restart_is_called_back() {
    let mut world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    let attr = world.run(async {
        let (attr, handle) = create(&one, b"f").await;
        for mode in 0..100 {
            let change = client::AttrChange { mode: Some(mode), ..Default::default() };
            one.files().setattr(&root(), attr.fid, change, None).await.expect("root may");
        }
        one.files().fsync(handle).await.expect("it is durable");
        one.files().release(handle).await;
        attr
    });
    world.restart_servers(1);
    world.run(async {
        for mode in 0..10 {
            one.names().getattr(attr.fid).await.expect("it is there");
            let change = client::AttrChange { mode: Some(mode), ..Default::default() };
            two.files().setattr(&root(), attr.fid, change, None).await.expect("root may");
            assert_eq!(one.names().getattr(attr.fid).await.expect("it is there").mode & 0o777, mode);
        }
    });
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (attr, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, b"still here").await.expect("there is room");
        client.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
        assert_eq!(
            client.names().lookup(&root(), Fid::ROOT, b"f").await,
            Err(Error::Refused(Code::NotFound))
        );
        assert_eq!(join(&client.files().read(handle, 0, 100).await.expect("it is open")), b"still here");
        client.files().flush(handle).await.expect("the OST takes it");
        assert_eq!(client.names().getattr(attr.fid).await.expect("it is open").nlink, 0);
        client.files().release(handle).await;
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(world.osts[0].objects(), 0, "the MDT had it destroyed");
    });
}

/// A client that removes a file of a thousand stripes tells the MDT, and no OST: the objects are the MDT's to destroy.
#[test]
fn who_removes_a_file_destroys_no_objects() {
    let world = World::new(1, 4);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let stripes =
            LayoutHint { stripe_count: 1000, stripe_size: 65_536, overstripe: true, ..LayoutHint::default() };
        let names = client.names();
        let made =
            names.create_with_layout(&root(), Fid::ROOT, b"f", 0o644, stripes).await.expect("a new file");
        let handle = client.files().open(&root(), made.fid, read_write()).await.expect("it is there");
        for stripe in 0..1000 {
            client.files().write(handle, stripe * 65_536, b"data").await.expect("there is room");
        }
        client.files().fsync(handle).await.expect("the OSTs take it");
        client.files().release(handle).await;
        let objects = || world.osts.iter().map(|ost| ost.objects()).sum::<usize>();
        assert_eq!(objects(), 1000);
        let before = client.admin().counters();
        names.unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
        rt.sleep(Duration::from_secs(60)).await;
        let sent = client.admin().counters();
        let of = |counters: &BTreeMap<String, u64>, name: &str| counters.get(name).copied().unwrap_or(0);
        assert_eq!(of(&sent, "rpc.Unlink") - of(&before, "rpc.Unlink"), 1);
        assert_eq!((of(&sent, "rpc.Destroy"), objects()), (0, 0), "the MDT had them destroyed");
    });
}

#[test]
fn a_rename_over_a_file_makes_the_new_contents_durable_first() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        for name in [b"old", b"new"] {
            let (_, handle) = create(&client, name).await;
            client.files().write(handle, 0, name).await.expect("there is room");
            client.files().release(handle).await;
        }
        assert!(!world.osts[0].is_committed() || world.osts[0].objects() == 0);
        client
            .names()
            .rename(&root(), Fid::ROOT, b"new", Fid::ROOT, b"old", 0)
            .await
            .expect("both are there");
        assert!(world.osts[0].is_committed() && world.osts[0].objects() >= 1);
    });
}

#[test]
fn groups_are_asked_for_only_when_they_matter() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = asked.clone();
        let groups = Arc::new(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            vec![500]
        });
        let caller = Caller { uid: 1000, gid: 1000, groups, umask: 0, gives_way: false };
        let change = client::AttrChange { gid: Some(500), mode: Some(0o640), ..Default::default() };
        let (attr, handle) = create(&client, b"f").await;
        client.files().setattr(&root(), attr.fid, change, None).await.expect("root may");
        client.names().lookup(&caller, Fid::ROOT, b"f").await.expect("everybody may look");
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let by_group = client.files().open(&caller, attr.fid, read).await.expect("the group may read");
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
        client.files().release(by_group).await;
        client.files().release(handle).await;
    });
}

#[test]
fn names_of_all_kinds() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let dir = client
            .names()
            .make(&root(), Fid::ROOT, b"d", 0o040_755, 0, Bytes::new())
            .await
            .expect("a directory");
        let to = Bytes::from_static(b"../d");
        let link = client.names().make(&root(), dir.fid, b"l", 0o120_777, 0, to).await.expect("a link");
        assert_eq!(
            client.names().readlink(link.fid).await.expect("it is a link"),
            Bytes::from_static(b"../d")
        );
        let file =
            client.names().make(&root(), dir.fid, b"f", 0o100_644, 0, Bytes::new()).await.expect("a file");
        assert_eq!((file.size, file.size_known), (0, true));
        client.names().link(&root(), file.fid, Fid::ROOT, b"hard").await.expect("a hard link");
        assert_eq!(client.names().lookup(&root(), dir.fid, b"..").await.map(|attr| attr.fid), Ok(Fid::ROOT));
        let page = client.names().read_dir(dir.fid, &Behind::START, true).await.expect("a page");
        let mut names: Vec<Vec<u8>> = page.entries.iter().map(|e| e.name.as_bytes().to_vec()).collect();
        names.sort();
        assert_eq!((names, page.end), (vec![b"f".to_vec(), b"l".to_vec()], true));
        client
            .names()
            .set_xattr(&root(), file.fid, b"user.a", Bytes::from_static(b"1"), 0)
            .await
            .expect("set");
        assert_eq!(
            client.names().get_xattr(&root(), file.fid, b"user.a").await,
            Ok(Bytes::from_static(b"1"))
        );
        assert_eq!(client.names().list_xattr(file.fid).await.map(|names| names.len()), Ok(1));
        client.names().remove_xattr(&root(), file.fid, b"user.a").await.expect("it is there");
        assert_eq!(client.names().rmdir(&root(), Fid::ROOT, b"d").await, Err(Error::Refused(Code::NotEmpty)));
        let paths = client.names().fid_to_path(&root(), file.fid).await.expect("two names");
        assert_eq!(paths.len(), 2);
        client.names().access(&root(), file.fid, 4).await.expect("root may read");
        let opened = client.files().open(&root(), dir.fid, read_only()).await.expect("a directory");
        client.files().fsync(opened).await.expect("it is durable");
        client.files().release(opened).await;
        let space = client.admin().statfs().await.expect("everything answers");
        assert_eq!(space.bytes_total, 2 << 30);
        let one =
            client.admin().target_space(TargetId::ost(1), Duration::from_secs(1)).await.expect("it answers");
        assert_eq!(one.map(|space| space.bytes_total), Some(1 << 30));
        assert_eq!(client.admin().targets().len(), 3);
        let bad = client.files().read(client::Handle(99), 0, 1).await;
        assert_eq!(bad, Err(Error::BadHandle));
    });
}

/// `df` and `umount` look at the root and ask for the space, and are not to wait for servers that are away.
#[test]
fn space_and_root_are_told_while_nobody_answers() {
    let mut world = World::remote(3, 2);
    let client = world.mount();
    let (rt, admin) = (world.hub.rt().clone(), client.admin());
    let space = world.run(admin.statfs()).expect("all answer");
    assert!(space.bytes_total > 0 && space.files_total > 0);
    let posix = Posix::new(client.clone(), AccessTimes::default());
    let before = world.run(posix.getattr(Fid::ROOT)).expect("it answers").attr;
    let dir = world.run(make(&client, Fid::ROOT, b"d", FileKind::Dir, b""));
    world.sim.crash("servers");
    let mut names = Vec::new();
    let mut note = |item: Item<'_>| {
        names.push(item.name.to_vec());
        false
    };
    let opened = world.run(async {
        let within_a_glance = async |what: &str, begin: Time| {
            assert!(rt.now() - begin <= Duration::from_secs(2), "{what}");
        };
        let begin = rt.now();
        let away = admin.statfs().await.expect("it is as it was");
        assert_eq!((away.bytes_total, away.files_total), (0, space.files_total));
        within_a_glance("space", begin).await;
        // What it has of the root is gone with its lease; a power cut is noticed late.
        rt.sleep(Duration::from_secs(300)).await;
        assert!(admin.is_away(TargetId::mdt(0)));
        let begin = rt.now();
        assert_eq!(posix.getattr(Fid::ROOT).await.map(|told| told.attr), Ok(before));
        within_a_glance("attributes", begin).await;
        let begin = rt.now();
        let opened = posix.open_dir(&root(), Fid::ROOT, 0).await.expect("nobody has to be asked");
        within_a_glance("open", begin).await;
        assert_eq!(admin.glance(posix.read_dir(Fid::ROOT, opened, (0, false), &mut note)).await, None);
        assert_eq!(admin.glance(posix.getattr(dir)).await.map(drop), None);
        opened
    });
    world.restart_servers(2);
    world.run(async {
        posix.read_dir(Fid::ROOT, opened, (0, false), &mut note).await.expect("it is back");
        posix.release_dir(opened).await;
        let now = posix.getattr(Fid::ROOT).await.expect("it answers");
        assert_eq!(now.attr.nlink, 3, "not as it was before");
    });
    assert_eq!(names, [&b"."[..], b"..", b"d"]);
}
