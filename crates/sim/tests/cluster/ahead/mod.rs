//! Files that a client makes ahead of the MDT (`docs/locks.md#alone`): nobody can tell, whatever fails.

mod listing;
mod trees;

use std::sync::Arc;
use std::time::Duration;

use client::{AttrChange, Behind, Client, Error, Handle, OpenFlags};
use proto::wire::messages::{QUOTA_USER, SetQuota};
use proto::{Attr, Code, Fid, TargetId};
use rt::Rt;
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scenario::on;
use weft_sim::workload::{READ, READ_WRITE, root};

const MDS: &str = "mds";
const EXCLUSIVE: OpenFlags = OpenFlags { exclusive: true, ..READ_WRITE };

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster)) {
    with_cluster(seed, Shape { osts: 2, osts_per_oss: 2 }, test);
}

/// A mount that makes files ahead, and one that does not.
async fn mounts(cluster: &Cluster) -> (Arc<Client>, Arc<Client>) {
    let (_, a) = cluster.mount("a").await;
    let (_, b) = cluster.mount("b").await;
    cluster.osts_are_known(&a).await;
    a.admin().set_metadata_writeback(true);
    (a, b)
}

async fn mkdir(client: &Client, parent: Fid, name: &[u8]) -> Fid {
    let made = client.names().make(&root(), parent, name, 0o040_755, 0, bytes::Bytes::new()).await;
    made.expect("a new name can be made").fid
}

async fn create(client: &Client, dir: Fid, name: &str) -> Result<(Attr, Handle), Error> {
    let made = client.files().create(&root(), dir, name.as_bytes(), 0o644, EXCLUSIVE).await;
    made.map(|(told, handle)| (told.into(), handle))
}

fn count(client: &Client, what: &str) -> u64 {
    client.admin().counters().get(what).copied().unwrap_or(0)
}

async fn attr(client: &Client, dir: Fid, name: &str) -> Option<Attr> {
    match client.names().lookup(&root(), dir, name.as_bytes()).await {
        Ok(told) => Some(told.into()),
        Err(Error::Refused(Code::NotFound)) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

async fn names(client: &Client, dir: Fid) -> Vec<String> {
    let (mut names, mut behind) = (Vec::new(), Behind::START);
    loop {
        let page = client.names().read_dir(dir, &behind, true).await.expect("a directory");
        names.extend(page.entries.iter().map(|e| String::from_utf8_lossy(e.name.as_bytes()).into_owned()));
        match page.next() {
            Some(next) => behind = next,
            None => break,
        }
    }
    names.sort();
    names
}

async fn content(client: &Client, fid: Fid) -> Vec<u8> {
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = client.files().open(&root(), fid, read).await.expect("it is there");
    let bytes = client.files().read(handle, 0, 1 << 16).await.expect("the OSTs are there");
    client.files().release(handle).await;
    bytes.iter().flat_map(|part| part.iter().copied()).collect()
}

/// Two at the same time.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|cx| {
        if of_a.is_none()
            && let std::task::Poll::Ready(done) = a.as_mut().poll(cx)
        {
            of_a = Some(done);
        }
        if of_b.is_none()
            && let std::task::Poll::Ready(done) = b.as_mut().poll(cx)
        {
            of_b = Some(done);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("f{n:03}")).collect()
}

#[test]
fn the_mdt_is_not_asked_before_a_file_is_there() {
    check(1, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        a.sync_all().await.expect("the disks work");
        let (asked, closes) = (count(&a, "rpc.Create"), count(&a, "rpc.Close"));
        let mut told = Vec::new();
        for name in numbered(50) {
            let (attr, handle) = create(&a, dir, &name).await.expect("a new name");
            a.files().release(handle).await;
            told.push((name, attr));
        }
        assert_eq!(count(&a, "rpc.Create"), asked, "nobody was asked");
        assert_eq!(create(&a, dir, "f007").await.err(), Some(Error::Refused(Code::Exists)));
        for (name, attr) in &told {
            assert_eq!(
                a.names().lookup(&root(), dir, name.as_bytes()).await.expect("it is there").fid,
                attr.fid
            );
        }
        let dir_here: Attr = a.names().getattr(dir).await.expect("it is there").into();
        let requests = count(&a, "rpc.Lookup") + count(&a, "rpc.GetAttr");
        let dir_there: Attr = b.names().getattr(dir).await.expect("it is there").into();
        assert_eq!((dir_here.mtime, dir_here.nlink), (dir_there.mtime, dir_there.nlink));
        assert_eq!(count(&a, "rpc.Lookup") + count(&a, "rpc.GetAttr"), requests);
        for (name, told) in told {
            let seen = attr_but_version(attr(&b, dir, &name).await.expect("others see it"));
            // It was closed before the MDT was asked.
            assert_eq!(seen, attr_but_version(Attr { size_known: true, ..told }), "{name}");
        }
        assert_eq!((count(&a, "ahead.made"), count(&a, "ahead.lost")), (50, 0));
        assert_eq!(count(&a, "rpc.Close"), closes);
        create(&a, dir, "late").await.expect("a new name");
        assert_eq!(count(&a, "ahead.made"), 50, "another one has seen the directory");
    });
}

fn attr_but_version(attr: Attr) -> Attr {
    Attr { version: 0, ..attr }
}

#[test]
fn whoever_looks_sees_all_of_it() {
    for seed in 0..30 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            let other = mkdir(&a, Fid::ROOT, b"other").await;
            let all = numbered(20 + seed as usize);
            for name in &all {
                let (_, handle) = create(&a, dir, name).await.expect("a new name");
                if seed % 2 == 0 {
                    a.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
                }
                a.files().release(handle).await;
            }
            let is_there = || Some(Error::Refused(Code::Exists));
            match seed % 6 {
                0 => assert_eq!(names(&b, dir).await, all),
                1 => assert_eq!(create(&b, dir, &all[0]).await.err(), is_there()),
                2 => {
                    let renamed = b.names().rename(&root(), dir, all[3].as_bytes(), other, b"there", 0).await;
                    renamed.expect("root may");
                    assert!(
                        attr(&a, dir, &all[3]).await.is_none() && attr(&a, other, "there").await.is_some()
                    );
                    assert_eq!(names(&b, dir).await.len(), all.len() - 1);
                }
                3 => {
                    let removed = b.names().rmdir(&root(), Fid::ROOT, b"d").await;
                    assert_eq!(removed, Err(Error::Refused(Code::NotEmpty)));
                }
                4 => {
                    let fid = attr(&b, dir, &all[5]).await.expect("it is there").fid;
                    assert_eq!(content(&b, fid).await, all[5].as_bytes());
                }
                _ => {
                    let removed = b.names().unlink(&root(), dir, all[1].as_bytes()).await;
                    removed.expect("root may");
                    assert!(attr(&a, dir, &all[1]).await.is_none());
                }
            }
            assert_eq!(count(&a, "ahead.lost"), 0);
            assert!(count(&a, "ahead.made") > 0);
        });
    }
}

#[test]
fn what_comes_next_finds_the_file() {
    for seed in 0..8 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            let (told, handle) = create(&a, dir, "f").await.expect("a new name");
            let caller = root();
            match seed {
                0 => a.names().unlink(&caller, dir, b"f").await.expect("root may"),
                1 => a.names().rename(&caller, dir, b"f", Fid::ROOT, b"g", 0).await.expect("root may"),
                2 => drop(a.names().link(&caller, told.fid, Fid::ROOT, b"g").await.expect("root may")),
                3 => {
                    let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
                    let set = a.files().setattr(&caller, told.fid, mode, None).await;
                    set.expect("root may");
                }
                4 => {
                    a.files().write(handle, 0, b"some").await.expect("there is room");
                    let cut = AttrChange { size: Some(2), ..AttrChange::default() };
                    a.files().setattr(&caller, told.fid, cut, Some(handle)).await.expect("it is open");
                }
                5 => {
                    let removed = a.names().rmdir(&caller, Fid::ROOT, b"d").await;
                    assert_eq!(removed, Err(Error::Refused(Code::NotEmpty)));
                }
                6 => a.files().fsync(handle).await.expect("the disks work"),
                _ => {
                    let again = a.files().open(&caller, told.fid, READ_WRITE).await.expect("root may");
                    a.files().write(again, 0, b"some").await.expect("there is room");
                    a.files().release(again).await;
                }
            }
            a.files().release(handle).await;
            a.sync_all().await.expect("the disks work");
            let (in_dir, in_root) = (attr(&b, dir, "f").await, attr(&b, Fid::ROOT, "g").await);
            assert_eq!((in_dir.is_some(), in_root.is_some()), (seed > 1, seed == 1 || seed == 2), "{seed}");
            match seed {
                2 => assert_eq!(in_dir.map(|attr| attr.nlink), Some(2)),
                3 => assert_eq!(in_dir.map(|attr| attr.mode), Some(0o100_600)),
                4 => assert_eq!(content(&b, told.fid).await, b"so"),
                7 => assert_eq!(content(&b, told.fid).await, b"some"),
                _ => {}
            }
            let told = if seed == 0 || seed == 3 { 2 } else { 1 };
            assert_eq!((count(&a, "ahead.made"), count(&a, "ahead.lost")), (told, 0));
        });
    }
}

/// The MDS loses power at any moment: others, who wait to make the same names, never get them.
#[test]
fn nothing_is_lost_with_the_mds() {
    let mut waited = 0;
    for seed in 0..60 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            if seed % 3 == 0 {
                a.sync_all().await.expect("the disks work");
            }
            let all = numbered(100);
            let told = std::cell::RefCell::new(Vec::new());
            let making = async {
                for name in &all {
                    match create(&a, dir, name).await {
                        Ok((_, handle)) => {
                            told.borrow_mut().push(name.clone());
                            a.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
                            a.files().release(handle).await;
                        }
                        Err(error) => assert_eq!(error, Error::Refused(Code::Exists)),
                    }
                    rt.sleep(Duration::from_micros(seed * 7)).await;
                }
            };
            let rivalling = async {
                rt.sleep(Duration::from_micros(seed * seed * 20)).await;
                cluster.cut_power(&[MDS.to_owned()]);
                // Those who want names that will be told have asked before.
                let next = told.borrow().len();
                let rivals = all[next..].iter().take(30).map(|name| create(&b, dir, name));
                let rivals = rt::wait::join_all(rivals);
                let restarting = async {
                    if seed % 2 == 0 {
                        rt.sleep(Duration::from_millis(200)).await;
                    }
                    waited += count(&a, "ahead.pending");
                    cluster.restart(&[MDS.to_owned()]);
                };
                let (rivals, ()) = both(rivals, restarting).await;
                for (name, made) in all[next..].iter().zip(rivals) {
                    match made {
                        Ok((_, handle)) => {
                            b.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
                            b.files().release(handle).await;
                            assert!(!told.borrow().contains(name), "{name} was made by two");
                        }
                        Err(error) => assert_eq!(error, Error::Refused(Code::Exists)),
                    }
                }
            };
            both(making, rivalling).await;
            a.sync_all().await.expect("the disks work");
            assert_eq!(names(&b, dir).await, all);
            for name in &all {
                let fid = attr(&b, dir, name).await.expect("it was made").fid;
                assert_eq!(content(&b, fid).await, name.as_bytes(), "{name}");
            }
            assert_eq!(count(&a, "ahead.lost"), 0);
            is_ahead_again(&rt, &a).await;
        });
    }
    assert!(waited > 100, "the MDS is lost while files wait to be made: {waited}");
}

/// New directories are used as those of before, once there are FIDs that are certainly the client's.
async fn is_ahead_again(rt: &Rt, a: &Client) {
    let dir = mkdir(a, Fid::ROOT, b"new").await;
    create(a, dir, "f").await.expect("a new name");
    rt.sleep(Duration::from_secs(2)).await;
    let before = count(a, "ahead.made");
    let dir = mkdir(a, Fid::ROOT, b"last").await;
    create(a, dir, "f").await.expect("a new name");
    a.sync_all().await.expect("the disks work");
    assert_eq!(count(a, "ahead.made"), before + 1, "after a restart");
}

/// A client that is lost leaves the first of its files, and all that it made durable.
#[test]
fn a_lost_client_leaves_the_first_of_its_files() {
    let (mut some, mut fewer) = (0, 0);
    for seed in 0..60 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            a.sync_all().await.expect("the disks work");
            let all = numbered(150);
            let durable = (seed % 4 == 0).then_some(seed as usize);
            let made = std::cell::Cell::new(0);
            let making = async {
                for (n, name) in all.iter().enumerate() {
                    let (_, handle) = create(&a, dir, name).await.expect("a new name");
                    if durable == Some(n) {
                        a.files().fsync(handle).await.expect("the disks work");
                    }
                    a.files().release(handle).await;
                    made.set(n + 1);
                    rt.sleep(Duration::from_micros(100)).await;
                }
            };
            let _ = rt.timeout(Duration::from_micros(seed * 250 + 1), making).await;
            cluster.handle().crash("a");
            if seed % 3 == 0 {
                cluster.cut_power(&[MDS.to_owned()]);
                cluster.restart(&[MDS.to_owned()]);
            }
            let left = names(&b, dir).await;
            assert_eq!(left, all[..left.len()], "a prefix");
            assert!(left.len() <= made.get() + 1);
            if let Some(durable) = durable.filter(|n| *n < made.get()) {
                assert!(left.len() > durable, "{} of what was durable up to {durable}", left.len());
            }
            some += usize::from(!left.is_empty());
            fewer += usize::from(left.len() < made.get());
        });
    }
    assert!(some > 10 && fewer > 10, "both happen: {some}, {fewer}");
}

#[test]
fn no_ost_is_asked_before_a_file_is_written() {
    check(1, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        a.sync_all().await.expect("the disks work");
        let asked = (count(&a, "rpc.Enqueue"), count(&a, "rpc.Create"));
        let mut handles = Vec::new();
        for name in numbered(20) {
            let (told, handle) = create(&a, dir, &name).await.expect("a new name");
            a.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
            assert_eq!(a.names().getattr(told.fid).await.expect("it is there").size, 4);
            handles.push(handle);
        }
        assert_eq!((count(&a, "rpc.Enqueue"), count(&a, "rpc.Create")), asked, "nobody was asked");
        for handle in handles {
            a.files().write(handle, 4, b" and more").await.expect("there is room");
            let sent = count(&a, "rpc.Write");
            a.files().flush(handle).await.expect("there is room");
            assert_eq!(count(&a, "rpc.Write"), sent, "a close sends nothing that nobody can look at");
            if handle.0 % 2 == 0 {
                a.files().fsync(handle).await.expect("the disks work");
            }
        }
        for name in numbered(20) {
            let fid = attr(&b, dir, &name).await.expect("others see it").fid;
            assert_eq!(content(&b, fid).await, format!("{name} and more").as_bytes());
        }
        assert_eq!(count(&a, "ahead.lost"), 0);
    });
}

/// A temporary file costs the OSTs nothing.
#[test]
fn what_nobody_can_look_at_any_more_is_not_sent() {
    check(1, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        a.sync_all().await.expect("the disks work");
        let sent = (count(&a, "rpc.Enqueue"), count(&a, "rpc.Write"));
        for name in numbered(20) {
            let (_, handle) = create(&a, dir, &name).await.expect("a new name");
            a.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
            a.files().release(handle).await;
            a.names().unlink(&root(), dir, name.as_bytes()).await.expect("root may");
        }
        a.sync_all().await.expect("the disks work");
        assert_eq!((count(&a, "rpc.Enqueue"), count(&a, "rpc.Write")), sent);
        assert_eq!((names(&b, dir).await.len(), count(&a, "ahead.lost")), (0, 0));
        let (_, handle) = create(&a, Fid::ROOT, "shared").await.expect("a new name");
        a.files().write(handle, 0, b"some").await.expect("there is room");
        let fid = attr(&b, Fid::ROOT, "shared").await.expect("others see it").fid;
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let theirs = b.files().open(&root(), fid, read).await.expect("it is there");
        a.names().unlink(&root(), Fid::ROOT, b"shared").await.expect("root may");
        a.files().release(handle).await;
        let left = b.files().read(theirs, 0, 100).await.expect("it is open").concat();
        assert_eq!(left, b"some", "others have it open");
    });
}

/// Where a file ends is known before and after its OST is asked.
#[test]
fn what_is_appended_follows() {
    for seed in 0..10 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            let append = OpenFlags { append: true, ..EXCLUSIVE };
            let made = a.files().create(&root(), dir, b"log", 0o644, append).await;
            let (told, log) = made.expect("a new name");
            let mut all = Vec::new();
            for n in 0..12u64 {
                let line = format!("line {n}\n");
                a.files().write(log, 0, line.as_bytes()).await.expect("there is room");
                all.extend_from_slice(line.as_bytes());
                match (n * 7 + seed) % 10 {
                    0 => a.files().fsync(log).await.expect("the disks work"),
                    1 => {
                        let fid = attr(&b, dir, "log").await.expect("others see it").fid;
                        assert_eq!(content(&b, fid).await, all);
                    }
                    2 => a.names().rename(&root(), dir, b"log", dir, b"log", 0).await.expect("root may"),
                    _ => assert_eq!(
                        a.names().getattr(told.fid).await.expect("it is there").size,
                        all.len() as u64
                    ),
                }
            }
            a.files().release(log).await;
            let seen = attr(&b, dir, "log").await.expect("others see it");
            assert_eq!(content(&b, seen.fid).await, all);
        });
    }
}

/// A file leaves its directory, or gets another name, with data that no OST knows of.
#[test]
fn a_file_that_moves_takes_its_data_along() {
    for seed in 0..12 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            let (told, handle) = create(&a, dir, "f").await.expect("a new name");
            a.files().write(handle, 0, b"unsent").await.expect("there is room");
            let caller = root();
            match seed % 3 {
                0 => a.names().rename(&caller, dir, b"f", Fid::ROOT, b"g", 0).await.expect("root may"),
                1 => drop(a.names().link(&caller, told.fid, Fid::ROOT, b"g").await.expect("root may")),
                _ => {
                    let (_, other) = a
                        .files()
                        .create(&caller, Fid::ROOT, b"g", 0o644, EXCLUSIVE)
                        .await
                        .expect("a new name");
                    a.files().release(other).await;
                    a.names()
                        .rename(&caller, dir, b"f", Fid::ROOT, b"g", 2)
                        .await
                        .expect("they change places");
                }
            }
            let there = attr(&b, Fid::ROOT, "g").await.expect("it has moved");
            assert_eq!((there.fid, content(&b, there.fid).await), (told.fid, b"unsent".to_vec()));
            let read_write = b.files().open(&caller, told.fid, READ_WRITE).await.expect("root may");
            b.files().write(read_write, 0, b"theirs").await.expect("there is room");
            a.files().write(handle, 6, b" and ours").await.expect("there is room");
            assert_eq!(content(&b, told.fid).await, b"theirs and ours");
            assert_eq!(content(&a, told.fid).await, b"theirs and ours");
        });
    }
}

/// A client is given up while it has data that no OST knows of: what others have written since stays.
#[test]
fn a_client_that_was_given_up_writes_over_nothing() {
    let mut waited = 0;
    for seed in 0..24 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            a.sync_all().await.expect("the disks work");
            let (told, handle) = create(&a, dir, "f").await.expect("a new name");
            // The MDT has the file, and the OST none of its data.
            a.names().access(&root(), told.fid, 4).await.expect("root may");
            a.files().write(handle, 0, b"mine, and longer").await.expect("there is room");
            let servers: &[&str] = if seed % 3 < 2 { &["mgs", "mds", "oss0"] } else { &["mgs", "mds"] };
            servers.iter().for_each(|server| cluster.handle().partition("a", server));
            rt.sleep(Duration::from_millis(seed * 3)).await;
            let began = rt.now();
            let fid = attr(&b, dir, "f").await.expect("the MDT has it").fid;
            waited += u64::from(rt.now() - began > Duration::from_secs(5));
            let theirs = b.files().open(&root(), fid, READ_WRITE).await.expect("root may");
            b.files().write(theirs, 0, b"theirs").await.expect("there is room");
            b.files().fsync(theirs).await.expect("the disks work");
            b.files().release(theirs).await;
            if seed % 3 == 0 {
                // The OST is there again, and nobody says that the client is not.
                cluster.handle().heal("a", "oss0");
                rt.sleep(Duration::from_secs(30)).await;
            }
            servers.iter().for_each(|server| cluster.handle().heal("a", server));
            let synced = a.files().fsync(handle).await;
            rt.sleep(Duration::from_secs(30)).await;
            let left = content(&b, fid).await;
            match synced {
                // It was sent, under a lock of the OST, before anybody gave the client up.
                Ok(()) => assert_eq!(left, b"theirsand longer"),
                Err(_) => assert!(left == b"theirs" || left == b"theirsand longer", "{left:?}"),
            }
        });
    }
    assert!(waited > 12, "others wait until the client is given up: {waited}");
}

/// A client is given up with a file of which the MDT has not heard: whoever asks for durable files and names is told.
#[test]
fn who_syncs_is_told_that_it_is_lost() {
    for seed in 0..8 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            a.sync_all().await.expect("the disks work");
            let before = a.files().open(&root(), dir, READ).await.expect("root may");
            ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().partition("a", server));
            let (_, handle) = create(&a, dir, "f").await.expect("a new name");
            let looking = async {
                rt.sleep(Duration::from_millis(seed * 3)).await;
                assert!(attr(&b, dir, "f").await.is_none(), "it was given up");
                ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().heal("a", server));
            };
            let (synced, ()) = both(a.files().fsync(handle), looking).await;
            assert!(synced.is_err(), "the file is not there");
            a.files().release(handle).await;
            let after = a.files().open(&root(), dir, READ).await.expect("root may");
            let mut told = Vec::new();
            for handle in [before, before, after, after] {
                told.push(a.files().fsync(handle).await.is_err());
            }
            // The second handle was opened when nobody had been told.
            assert_eq!(told, [true, false, true, false]);
            let late = a.files().open(&root(), dir, READ).await.expect("root may");
            assert_eq!(a.files().fsync(late).await, Ok(()));
        });
    }
}

/// A client is given up after it was told that a file took the place of another one, as gzip(1) does: the old one stays.
#[test]
fn what_was_told_in_a_session_that_ended_is_not_done_in_the_next() {
    for seed in 0..8 {
        check(seed, async |cluster| {
            let (a, b) = mounts(cluster).await;
            let (rt, _) = cluster.mount("c").await;
            let dir = mkdir(&a, Fid::ROOT, b"d").await;
            let (_, handle) = create(&a, dir, "old").await.expect("a new name");
            a.files().release(handle).await;
            a.sync_all().await.expect("the disks work");
            ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().partition("a", server));
            let (_, handle) = create(&a, dir, "new").await.expect("a new name");
            // The first request is under way by then, or not.
            rt.sleep(Duration::from_millis(seed * 4)).await;
            let caller = root();
            let unlinking = a.names().unlink(&caller, dir, b"old");
            let unlinked = rt.timeout(Duration::from_secs(1), unlinking).await;
            assert_eq!(unlinked.map(|done| done.is_ok()), Some(true), "it is told ahead");
            assert!(attr(&b, dir, "new").await.is_none(), "it was given up");
            ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().heal("a", server));
            assert!(a.files().fsync(handle).await.is_err(), "the file is not there");
            a.files().release(handle).await;
            rt.sleep(Duration::from_secs(5)).await;
            assert!(attr(&b, dir, "old").await.is_some(), "nothing is done without what was done before it");
        });
    }
}

/// The same of a change that nobody tells ahead, and that waits behind what was told.
#[test]
fn what_waited_behind_a_session_that_ended_is_not_done_in_the_next() {
    check(1, async |cluster| {
        let (a, b) = mounts(cluster).await;
        let (rt, _) = cluster.mount("c").await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        let (_, handle) = create(&a, Fid::ROOT, "old").await.expect("a new name");
        a.files().release(handle).await;
        a.sync_all().await.expect("the disks work");
        ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().partition("a", server));
        let (_, handle) = create(&a, dir, "new").await.expect("a new name");
        let unlinking = on(cluster.handle(), "a", {
            let a = a.clone();
            async move { a.names().unlink(&root(), Fid::ROOT, b"old").await }
        });
        rt.sleep(Duration::from_secs(1)).await;
        assert!(attr(&b, dir, "new").await.is_none(), "it was given up");
        ["mgs", MDS, "oss0"].iter().for_each(|server| cluster.handle().heal("a", server));
        let unlinked = unlinking.await.expect("it lives");
        assert_eq!(unlinked.map(drop), Err(Error::Refused(Code::Evicted)));
        assert!(a.files().fsync(handle).await.is_err(), "the file is not there");
        assert!(
            attr(&b, Fid::ROOT, "old").await.is_some(),
            "nothing is done without what was done before it"
        );
    });
}

/// Nobody may make files ahead where the MDT might have to refuse them.
#[test]
fn where_there_are_limits_the_mdt_is_asked() {
    check(1, async |cluster| {
        let (a, _) = mounts(cluster).await;
        let dir = mkdir(&a, Fid::ROOT, b"d").await;
        create(&a, dir, "ahead").await.expect("a new name");
        assert_eq!(count(&a, "ahead.dirs"), 1);
        let set = SetQuota {
            kind: QUOTA_USER,
            id: 1000,
            inodes_soft: None,
            inodes_hard: Some(5),
            inodes_grace_s: None,
            bytes_soft: None,
            bytes_hard: None,
            bytes_grace_s: None,
            forget: false,
            pool: String::new(),
        };
        let asked = a.admin().order(TargetId::mdt(0), set, Duration::from_secs(10)).await;
        asked.expect("the MDT takes limits");
        assert_eq!((count(&a, "ahead.dirs"), count(&a, "ahead.made")), (0, 1));
        let late = mkdir(&a, Fid::ROOT, b"late").await;
        create(&a, late, "asked").await.expect("a new name");
        assert_eq!((count(&a, "ahead.dirs"), count(&a, "ahead.made")), (0, 1));
    });
}
