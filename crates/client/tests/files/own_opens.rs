//! Files that a client made or has looked up are opened to read without the MDT, and are there for whoever has them open, whoever removes them
//! (`docs/locks.md#own-opens`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, Handle};
use proto::{Fid, FileKind};

use crate::world::{World, join, make, read_only, read_write, root};

/// Until everything is told.
const SOON: Duration = Duration::from_secs(2);
/// Until the MDT answers again, or has removed what nobody has open.
const LONG: Duration = Duration::from_secs(10);

/// How a file loses its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Unlinked,
    Replaced,
}

fn asked(client: &Client, operation: &str) -> u64 {
    client.admin().counters().get(&format!("rpc.{operation}")).copied().unwrap_or(0)
}

async fn made(client: &Client, dir: Fid, name: &[u8], data: &[u8]) -> Fid {
    let (told, handle) = client.files().create(&root(), dir, name, 0o644, read_write()).await.expect("new");
    let fid = told.fid;
    drop(told);
    client.files().write(handle, 0, data).await.expect("there is room");
    client.files().release(handle).await;
    fid
}

async fn open(client: &Client, fid: Fid) -> Handle {
    client.files().open(&root(), fid, read_only()).await.expect("it is there")
}

async fn remove(client: &Client, dir: Fid, name: &[u8], way: Way) {
    match way {
        Way::Unlinked => client.names().unlink(&root(), dir, name).await.expect("it is there"),
        Way::Replaced => {
            make(client, dir, b"new", FileKind::File, b"").await;
            client.names().rename(&root(), dir, b"new", dir, name, 0).await.expect("it is there");
        }
    }
}

#[test]
fn what_a_client_made_it_opens_without_a_question() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let dir = make(&client, Fid::ROOT, b"d", FileKind::Dir, b"").await;
        let fid = made(&client, dir, b"f", b"data").await;
        world.hub.rt().sleep(SOON).await;
        let before = (asked(&client, "Open"), asked(&client, "Close"));
        let handles = [open(&client, fid).await, open(&client, fid).await];
        for handle in handles {
            assert_eq!(join(&client.files().read(handle, 0, 10).await.expect("it is there")), b"data");
            client.files().release(handle).await;
        }
        world.hub.rt().sleep(SOON).await;
        assert_eq!(asked(&client, "Open"), before.0);
        assert_eq!(asked(&client, "Close"), before.1 + 1, "the MDT hears of the access");
        let other = world.mounted(client::Limits::default()).await;
        let attr = other.names().getattr(fid).await.expect("it is there");
        assert!(attr.atime > attr.mtime, "{attr:?}");
        // What another one has written to is not the client's alone.
        let handle = other.files().open(&root(), fid, read_write()).await.expect("it is there");
        other.files().write(handle, 0, b"DATA").await.expect("there is room");
        other.files().release(handle).await;
        client.files().release(open(&client, fid).await).await;
        assert_eq!(asked(&client, "Open"), before.0 + 1);
    });
}

#[test]
fn what_a_client_has_looked_up_it_opens_without_a_question() {
    let world = World::remote(1, 1);
    let (maker, readers) = (world.mount(), [world.mount(), world.mount()]);
    world.run(async {
        let dir = make(&maker, Fid::ROOT, b"d", FileKind::Dir, b"").await;
        let fid = made(&maker, dir, b"f", b"data").await;
        maker.sync_all().await.expect("what is healthy can be synced");
        let mut handles = Vec::new();
        for reader in &readers {
            reader.names().lookup(&root(), dir, b"f").await.map(drop).expect("it is there");
            handles.push(open(reader, fid).await);
        }
        for (reader, handle) in readers.iter().zip(handles) {
            assert_eq!(join(&reader.files().read(handle, 0, 10).await.expect("it is there")), b"data");
            // The first access calls the attributes back from those who have the file open still: they need not say so.
            reader.files().release(handle).await;
            world.hub.rt().sleep(SOON).await;
        }
        for reader in &readers {
            assert_eq!((asked(reader, "Open"), asked(reader, "StateOpens")), (0, 0));
        }
        assert_eq!(asked(&readers[0], "Close"), 1, "the MDT hears of the access");
    });
}

#[test]
fn what_is_open_stays_whoever_removes_it() {
    let ways = [
        (Way::Unlinked, true, false),
        (Way::Unlinked, true, true),
        (Way::Unlinked, false, false),
        (Way::Unlinked, false, true),
        (Way::Replaced, true, false),
        (Way::Replaced, false, false),
        (Way::Replaced, false, true),
    ];
    for (seed, (way, is_own, restarts)) in (1..).zip(ways) {
        for opens_own in [true, false] {
            stays_open(seed, way, is_own, restarts, opens_own);
        }
    }
}

/// Who opens a file has made it or not (`opens_own`), and removes it or not (`is_own`).
fn stays_open(seed: u64, way: Way, is_own: bool, restarts: bool, opens_own: bool) {
    let mut world = World::remote(seed, 1);
    let (one, two) = (world.mount(), world.mount());
    let maker = if opens_own { &one } else { &two };
    let (dir, fid, handle) = world.run(async {
        let dir = make(maker, Fid::ROOT, b"d", FileKind::Dir, b"").await;
        let fid = made(maker, dir, b"f", b"data").await;
        maker.sync_all().await.expect("what is healthy can be synced");
        one.names().lookup(&root(), dir, b"f").await.map(drop).expect("it is there");
        let before = asked(&one, "Open");
        let handle = open(&one, fid).await;
        assert_eq!(asked(&one, "Open"), before);
        (dir, fid, handle)
    });
    if restarts {
        world.restart_servers(1);
        world.run(async { world.hub.rt().sleep(LONG).await });
    }
    world.run(async {
        remove(if is_own { &one } else { &two }, dir, b"f", way).await;
        if is_own {
            one.sync_all().await.expect("what is healthy can be synced");
        }
        let how =
            format!("{way:?} by who opened it: {is_own}, who made it: {opens_own}, restart: {restarts}");
        is_there_until_closed(&world, [&one, &two], (fid, handle), &how).await;
    });
}

/// A removed file that the first client has open is there, for the second one, too, until it is closed.
async fn is_there_until_closed(
    world: &World,
    [one, two]: [&Client; 2],
    (fid, handle): (Fid, Handle),
    how: &str,
) {
    let rt = world.hub.rt();
    rt.sleep(LONG).await;
    let read = one.files().read(handle, 0, 10).await.map(|slices| join(&slices));
    assert_eq!(read.as_deref(), Ok(&b"data"[..]), "{how}");
    assert_eq!(two.names().getattr(fid).await.map(|attr| attr.nlink), Ok(0), "{how}");
    one.files().release(handle).await;
    rt.sleep(LONG).await;
    assert!(two.names().getattr(fid).await.is_err(), "nobody has it open: {how}");
}

/// A restarted MDT is told what is open before it is told of files that were made ahead of it.
#[test]
fn what_a_restarted_mdt_does_not_know_yet_stays_open() {
    for (seed, is_own) in [(1, true), (2, false)] {
        let mut world = World::remote(seed, 1);
        let (one, two) = (world.mount(), world.mount());
        let dir = world.run(async {
            let dir = make(&one, Fid::ROOT, b"d", FileKind::Dir, b"").await;
            one.sync_all().await.expect("what is healthy can be synced");
            dir
        });
        let (fid, handle) = world.run(async {
            let fid = made(&one, dir, b"f", b"data").await;
            (fid, open(&one, fid).await)
        });
        assert!(one.admin().counters()["ahead.pending"] > 0, "the MDT does not know of it");
        world.restart_servers(1);
        world.run(async {
            world.hub.rt().sleep(LONG).await;
            remove(if is_own { &one } else { &two }, dir, b"f", Way::Unlinked).await;
            one.sync_all().await.expect("what is healthy can be synced");
            let how = format!("by who opened it: {is_own}");
            is_there_until_closed(&world, [&one, &two], (fid, handle), &how).await;
        });
    }
}

/// A restarted MDT lets nobody into a directory that was on its way back when it stopped: the OSTs may not know yet that its files are
/// written to.
#[test]
fn a_directory_on_its_way_back_stays_closed_over_a_restart() {
    const FILES: usize = 400;
    for seed in 1..=12 {
        let mut world = World::remote(seed, 1);
        let (one, two) = (world.mount(), world.mount());
        let rt = world.hub.rt().clone();
        let name = |n: usize| format!("f{n}").into_bytes();
        let dir = world.run(async {
            let dir = make(&one, Fid::ROOT, b"d", FileKind::Dir, b"").await;
            for n in 0..FILES {
                made(&one, dir, &name(n), b"data").await;
            }
            // Until the MDT knows of them.
            while one.admin().counters()["ahead.pending"] > 0 {
                rt.sleep(Duration::from_millis(1)).await;
            }
            dir
        });
        world.run(async {
            let looks = two.clone();
            rt.spawn(async move { drop(looks.names().lookup(&root(), dir, &name(0)).await) });
            rt.sleep(Duration::from_micros(250 * seed)).await;
        });
        world.restart_servers(1);
        world.run(async {
            for n in (0..FILES).rev() {
                let name = name(n);
                let fid = two.names().lookup(&root(), dir, &name).await.expect("it is there").fid;
                let handle = open(&two, fid).await;
                let read = two.files().read(handle, 0, 10).await.map(|slices| join(&slices));
                assert_eq!(read.as_deref(), Ok(&b"data"[..]), "seed {seed}, file {n}");
                two.files().release(handle).await;
            }
        });
    }
}

/// Whatever comes in between: nothing is open at the MDT in the end that nobody has open here, and what is open here is there.
#[test]
fn opens_and_removals_that_cross_lose_nothing() {
    for seed in 1..=40 {
        let world = World::remote(seed, 1);
        let (one, two) = (world.mount(), world.mount());
        world.run(async {
            let rt = world.hub.rt();
            let dir = make(&one, Fid::ROOT, b"d", FileKind::Dir, b"").await;
            let fid = made(&one, dir, b"f", b"data").await;
            one.sync_all().await.expect("what is healthy can be synced");
            let (opener, pause) = (one.clone(), rt.clone());
            let is_removed = Arc::new(AtomicBool::new(false));
            let ends = is_removed.clone();
            let (done, opened) = rt::sync::oneshot::channel();
            rt.spawn(async move {
                let mut found = Vec::new();
                while !ends.load(Ordering::Relaxed) {
                    let Ok(handle) = opener.files().open(&root(), fid, read_only()).await else { break };
                    let read = opener.files().read(handle, 0, 10).await;
                    found.push(read.map(|slices| join(&slices)));
                    opener.files().release(handle).await;
                    pause.sleep(Duration::from_micros(20)).await;
                }
                let _ = done.send(found);
            });
            rt.sleep(Duration::from_micros(seed * 37)).await;
            let remover = if seed % 2 == 0 { &one } else { &two };
            remove(remover, dir, b"f", if seed % 4 < 2 { Way::Unlinked } else { Way::Replaced }).await;
            is_removed.store(true, Ordering::Relaxed);
            let found = opened.await.expect("it comes to an end");
            assert!(found.iter().all(|read| read.as_deref() == Ok(b"data")), "seed {seed}: {found:?}");
            rt.sleep(LONG).await;
            assert!(two.names().getattr(fid).await.is_err(), "seed {seed}: nobody has it open");
        });
    }
}
