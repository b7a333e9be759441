//! Files whose data is moved while they are in use, and whose mover is lost.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use client::{Allocation, AttrChange, Client, Error, Handle, OpenFlags, Seek, TimeSet};
use parking_lot::Mutex;
use proto::layout::{HintPart, LayoutHint};
use proto::{Code, Fid, Layout, TargetId, Timestamp};
use rt::sim::{Handle as World, Rng};
use rt::wait::join_all;
use rt::{BoxFuture, Rt};
use weft_sim::cluster::{Cluster, Shape, with_cluster};
use weft_sim::scenario::on;
use weft_sim::workload::{READ, READ_WRITE, root};

const BYTES: usize = 300_000;
const HOLE: u64 = 5 << 20;

fn check(seed: u64, test: impl AsyncFnOnce(&Cluster, &World)) {
    with_cluster(seed, Shape { osts: 4, osts_per_oss: 2 }, async |cluster| {
        test(cluster, cluster.handle()).await;
    });
}

fn hint(stripe_count: i32, stripe_size: u32) -> LayoutHint {
    LayoutHint { stripe_count, stripe_size, ..LayoutHint::default() }
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|n| (n / 7 * seed + n) as u8).collect()
}

async fn make(client: &Client, name: &[u8]) -> (Fid, Handle) {
    let made = client.files().create(&root(), Fid::ROOT, name, 0o100_644, READ_WRITE).await;
    let (told, handle) = made.expect("a new name can be made");
    (told.fid, handle)
}

async fn read(client: &Client, handle: Handle, offset: u64) -> Vec<u8> {
    client.files().read(handle, offset, BYTES as u32).await.expect("what is healthy can be read").concat()
}

async fn layout(client: &Client, fid: Fid) -> Layout {
    client.names().layout(fid).await.expect("it is there").expect("of a file")
}

async fn objects(client: &Client) -> u64 {
    let mut objects = 0;
    for ost in (0..4).map(TargetId::ost) {
        let space =
            client.admin().target_space(ost, Duration::from_secs(10)).await.expect("it tells its space");
        let space = space.expect("it is served");
        objects += space.files_total - space.files_free;
    }
    objects
}

#[test]
fn everything_but_the_place_stays() {
    check(1, async |cluster, world| {
        let (rt, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        let (fid, handle) = make(&user, b"f").await;
        let data = bytes(3);
        user.files().write(handle, 0, &data).await.expect("there is room");
        user.files().write(handle, HOLE, b"behind a hole").await.expect("there is room");
        let old = TimeSet::At(Timestamp { secs: 1_000_000, nanos: 7 });
        let change = AttrChange { mtime: Some(old), size: Some(HOLE + 100), ..AttrChange::default() };
        let before = user.files().setattr(&root(), fid, change, None).await.expect("root may");
        let own = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        assert_eq!(read(&other, own, 0).await, data);
        let from = layout(&other, fid).await;
        for (generation, hint) in [(1, hint(4, 1 << 16)), (2, hint(1, 1 << 20)), (3, hint(3, 1 << 17))] {
            let wanted = (hint.stripe_count as usize, hint.stripe_size);
            user.migrate(&root(), fid, hint).await.expect("the owner may");
            let to = layout(&other, fid).await;
            assert_eq!((to.object_count(), to.components[0].stripe_size), wanted);
            assert_eq!(to.generation, from.generation + generation);
            let after = other.names().getattr(fid).await.expect("it is there");
            assert_eq!((after.size, after.mtime), (HOLE + 100, before.mtime));
            assert_eq!(read(&other, own, 0).await, data);
            assert_eq!(read(&user, handle, HOLE).await, [&b"behind a hole"[..], &[0; 87]].concat());
            let hole = other.files().seek(fid, BYTES as u64, Seek::Data).await.expect("it can be asked");
            assert!(hole.is_some_and(|at| at > HOLE - (1 << 20)), "holes stay holes: {hole:?}");
        }
        other.files().write(own, 5, b"new").await.expect("there is room");
        assert_eq!(read(&user, handle, 5).await[..3], *b"new");
        rt.sleep(Duration::from_secs(5)).await;
        let stripes = layout(&user, fid).await.object_count() as u64;
        assert!(objects(&user).await <= stripes, "the old objects are gone");
        let _ = world;
    });
}

/// A move that lets others go before (`lfs migrate -n`) ends without them having waited for its end, and the file stays where it is.
#[test]
fn a_move_gives_way_to_others() {
    check(3, async |cluster, world| {
        let (rt, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        let (fid, handle) = make(&user, b"f").await;
        let mut data = bytes(3);
        user.files().write(handle, 0, &data).await.expect("there is room");
        let own = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
        let (mut moves, mut given_up) = (0, 0);
        for step in 0..40 {
            let before = layout(&other, fid).await;
            let (moving, hint) = (user.clone(), hint(2 + step % 3, 1 << 16));
            let moved =
                on(world, "user", async move { moving.migrate_unless_used(&root(), fid, hint).await });
            rt.sleep(Duration::from_micros(u64::from(step as u32) * 300)).await;
            // A writer, and a reader.
            if step % 2 == 0 {
                data[step as usize] = 0xff;
                other.files().write(own, step as u64, &[0xff]).await.expect("there is room");
            } else {
                assert_eq!(read(&other, own, 0).await, data);
            }
            let after = async || layout(&user, fid).await.generation;
            match moved.await.expect("it lives") {
                Ok(()) => {
                    moves += 1;
                    assert_eq!(after().await, before.generation + 1);
                }
                Err(error) => {
                    given_up += 1;
                    assert_eq!(error, Error::Refused(Code::WouldBlock));
                    assert_eq!(after().await, before.generation, "it stays where it is");
                }
            }
            assert_eq!(read(&user, handle, 0).await, data);
        }
        assert!(moves > 3 && given_up > 3, "moved {moves} times, given up {given_up} times");
        user.migrate_unless_used(&root(), fid, hint(1, 1 << 16)).await.expect("nobody uses it");
        assert_eq!(read(&other, own, 0).await, data);
    });
}

/// The time that was set is the inode's alone: the objects would show it again when it is set anew.
#[test]
fn a_time_that_was_set_does_not_move_along() {
    check(2, async |cluster, _| {
        let (_, user) = cluster.mount("user").await;
        let (_, other) = cluster.mount("other").await;
        cluster.osts_are_known(&user).await;
        for (n, writes) in [(0, false), (1, true)] {
            let (fid, handle) = make(&user, format!("f{n}").as_bytes()).await;
            user.files().write(handle, 0, &bytes(3)).await.expect("there is room");
            user.files().release(handle).await;
            let at = |secs| Timestamp { secs, nanos: 0 };
            let set = async |secs| {
                let mtime = Some(TimeSet::At(at(secs)));
                let change = AttrChange { mtime, ..AttrChange::default() };
                user.files().setattr(&root(), fid, change, None).await.expect("root may");
                [&user, &other].map(|client| client.names().getattr(fid))
            };
            // In the future, and then in the past.
            drop(set(1 << 40).await);
            user.migrate(&root(), fid, hint(2, 1 << 16)).await.expect("the owner may");
            assert_eq!(other.names().getattr(fid).await.expect("it is there").mtime, at(1 << 40));
            if writes {
                let handle = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
                other.files().write(handle, 0, b"x").await.expect("there is room");
                other.files().release(handle).await;
            }
            for told in set(1_000).await {
                assert_eq!(told.await.expect("it is there").mtime, at(1_000));
            }
        }
    });
}

/// Where a file ends is told by the object that holds its last byte. A file that is moved meanwhile may have no object there.
#[test]
fn a_file_that_grows_while_it_is_moved_is_as_long_as_was_said() {
    for step in 0..80 {
        check(step, async |cluster, _| {
            let (_, user) = cluster.mount("user").await;
            let (rt, other) = cluster.mount("other").await;
            cluster.osts_are_known(&user).await;
            let (fid, handle) = make(&user, b"f").await;
            user.files().write(handle, 0, b"short").await.expect("there is room");
            let own = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
            let parts =
                vec![HintPart::new(2 << 16, hint(1, 1 << 16)), HintPart::new(u64::MAX, hint(2, 1 << 16))];
            let wanted = LayoutHint { parts, ..LayoutHint::default() };
            let size = 700_000 + step;
            let moved = async || user.migrate(&root(), fid, wanted.clone()).await.expect("the owner may");
            let grown = async || {
                rt.sleep(Duration::from_micros(step / 2 * 150)).await;
                if step % 2 == 0 {
                    let change = AttrChange { size: Some(size), ..AttrChange::default() };
                    other.files().setattr(&root(), fid, change, Some(own)).await.expect("root may");
                } else {
                    let reserve = Allocation::Reserve { keep_size: false };
                    other.files().allocate(own, size - 9, 9, reserve).await.expect("there is room");
                }
            };
            let both: [BoxFuture<()>; 2] = [Box::pin(moved()), Box::pin(grown())];
            join_all(both).await;
            for client in [&user, &other] {
                let told = client.names().getattr(fid).await.expect("it is there");
                assert_eq!(told.size, size, "step {step}");
            }
            assert_eq!(read(&user, handle, 0).await[..6], *b"short\0");
        });
    }
}

/// A mover that is lost at whichever moment leaves a file that everybody can use, with its data where it was or where it
/// was to be.
#[test]
fn a_mover_may_be_lost_at_any_time() {
    let mut moved = 0;
    for step in 0..60 {
        check(step, async |cluster, world| {
            let (rt, user) = cluster.mount("user").await;
            let (fid, handle) = make(&user, b"f").await;
            let data = bytes(5);
            user.files().write(handle, 0, &data).await.expect("there is room");
            user.sync_all().await.expect("what is healthy can be synced");
            let (_, mover) = cluster.mount("mover").await;
            let moving: Arc<Client> = mover.clone();
            let _moved = on(world, "mover", async move {
                let _ = moving.migrate(&root(), fid, hint(3, 1 << 16)).await;
            });
            rt.sleep(Duration::from_micros(step * step * 100)).await;
            world.crash("mover");
            user.files().write(handle, 3, b"new").await.expect("there is room");
            let mut wanted = data;
            wanted[3..6].copy_from_slice(b"new");
            assert_eq!(read(&user, handle, 0).await, wanted);
            let (_, other) = cluster.mount("other").await;
            let own = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
            assert_eq!(read(&other, own, 0).await, wanted);
            moved += layout(&other, fid).await.object_count() / 3;
            user.files().release(handle).await;
            other.files().release(own).await;
            user.names().unlink(&root(), Fid::ROOT, b"f").await.expect("it is there");
            rt.sleep(Duration::from_secs(400)).await;
            assert_eq!(objects(&other).await, 0, "nothing is left behind");
        });
    }
    assert!((5..55).contains(&moved), "{moved} of 60 were moved: too early or too late each time");
}

/// A power failure of any server costs a move a pause.
#[test]
fn servers_may_lose_power_meanwhile() {
    for (step, server) in (0..40).zip(["mds", "oss0", "oss1", "mgs"].into_iter().cycle()) {
        check(step, async |cluster, world| {
            let (rt, user) = cluster.mount("user").await;
            cluster.osts_are_known(&user).await;
            let (fid, handle) = make(&user, b"f").await;
            let data = bytes(7);
            user.files().write(handle, 0, &data).await.expect("there is room");
            let moving = user.clone();
            let moved =
                on(world, "user", async move { moving.migrate(&root(), fid, hint(4, 1 << 16)).await });
            rt.sleep(Duration::from_micros(step * step * 200)).await;
            let servers = [server.to_owned()];
            cluster.cut_power(&servers);
            cluster.restart(&servers);
            moved.await.expect("it lives").expect("the owner may");
            let (_, other) = cluster.mount("other").await;
            let own = other.files().open(&root(), fid, READ_WRITE).await.expect("root may open");
            assert_eq!(read(&other, own, 0).await, data);
            // An MDT that has just started may not have heard of every OST yet.
            assert!(layout(&other, fid).await.object_count() >= 3);
        });
    }
}

/// However many files a client moves at the same time, there is one more session, which ends a while after the last of them.
#[test]
fn one_session_moves_many_files() {
    check(2, async |cluster, _| {
        let (rt, user) = cluster.mount("user").await;
        cluster.osts_are_known(&user).await;
        let mut files = Vec::new();
        for n in 0..12 {
            let (fid, handle) = make(&user, format!("f{n}").as_bytes()).await;
            user.files().write(handle, 0, &bytes(n + 3)).await.expect("there is room");
            files.push((fid, handle, bytes(n + 3)));
        }
        let sessions = || cluster.granted()[&TargetId::mdt(0)].sessions.len();
        let (before, caller) = (sessions(), root());
        // Each file twice: within one session locks keep nobody out.
        let wanted = [hint(3, 1 << 16), hint(2, 1 << 17)];
        let each = files.iter().flat_map(|file| wanted.iter().map(move |hint| (file.0, hint.clone())));
        let mut moving = pin!(join_all(each.map(|(fid, hint)| user.migrate(&caller, fid, hint))));
        let mut most = 0;
        let moved = loop {
            most = most.max(sessions());
            if let Some(moved) = rt.timeout(Duration::from_micros(100), moving.as_mut()).await {
                break moved;
            }
        };
        assert_eq!(moved, vec![Ok(()); 24]);
        assert_eq!(most, before + 1);
        for (fid, handle, data) in &files {
            assert_eq!(layout(&user, *fid).await.generation, 2);
            assert_eq!(read(&user, *handle, 0).await, *data);
        }
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(sessions(), before);
        assert!(objects(&user).await <= 12 * 3, "the old objects are gone");
        // The next one is another, and the end of the client is its end, too.
        user.migrate(&caller, files[0].0, hint(1, 1 << 16)).await.expect("the owner may");
        assert_eq!(sessions(), before + 1);
        user.drain().await.expect("what is healthy can be drained");
        assert_eq!(sessions(), before);
        user.migrate(&caller, files[0].0, hint(2, 1 << 16)).await.expect("the owner may");
        assert_eq!(sessions(), before + 1);
        user.unmount().await.expect("what is healthy can be unmounted");
        assert_eq!(sessions(), before - 1);
    });
}

const SMALL: usize = 24;

/// Small files that were just written: each holds its number.
async fn make_small(client: &Client, rt: &Rt, dir: Fid, rng: &mut Rng) -> Vec<Fid> {
    let mut made = Vec::new();
    for n in 0..SMALL {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let name = format!("f{n}");
        let created = client.files().create(&root(), dir, name.as_bytes(), 0o100_644, flags).await;
        let (told, handle) = created.expect("a new name");
        made.push(told.fid);
        drop(told);
        client.files().write(handle, 0, name.as_bytes()).await.expect("there is room");
        client.files().flush(handle).await.expect("it is healthy");
        client.files().release(handle).await;
        if rng.one_in(3) {
            rt.sleep(Duration::from_micros(rng.below(30_000))).await;
        }
    }
    made
}

/// Each file has what was written, for whoever looks.
async fn check_small(clients: &[&Arc<Client>], dir: Fid, made: &[Fid]) {
    for (n, fid) in made.iter().enumerate() {
        let name = format!("f{n}");
        for client in clients {
            let found = client.names().lookup(&root(), dir, name.as_bytes()).await.expect("it is there");
            assert_eq!((found.fid, found.size), (*fid, name.len() as u64), "{name}");
            drop(found);
            let handle = client.files().open(&root(), *fid, READ).await.expect("root may");
            assert_eq!(read(client, handle, 0).await, name.as_bytes(), "{name} {fid}");
            client.files().release(handle).await;
        }
    }
}

/// Moves files one after the other, of those that are left.
async fn move_small(rt: Rt, client: Arc<Client>, left: Arc<Mutex<Vec<Fid>>>, pause: Duration) {
    loop {
        let next = left.lock().pop();
        let Some(fid) = next else { return };
        client.migrate(&root(), fid, hint(2, 0)).await.expect("servers come back");
        rt.sleep(pause).await;
    }
}

/// The MDS and an OSS fail and come back.
async fn fail_servers(cluster: &Cluster, rt: &Rt, rng: &mut Rng) {
    let oss = *rng.pick(&["oss0", "oss1"]);
    for server in ["mds", oss] {
        let until = if rng.one_in(2) { 20_000 } else { 300_000 };
        rt.sleep(Duration::from_micros(rng.below(until))).await;
        let servers = [server.to_owned()];
        if rng.one_in(2) {
            cluster.kill(server)
        } else {
            cluster.cut_power(&servers)
        }
        let away = if rng.one_in(2) { 10_000 } else { 2_000_000 };
        rt.sleep(Duration::from_micros(rng.below(away))).await;
        cluster.restart(&servers);
        if rng.one_in(2) {
            rt.sleep(Duration::from_micros(rng.below(4_000_000))).await;
        }
    }
}

/// Files that were just written are moved, a few at a time, while servers fail.
#[test]
fn small_files_are_moved_while_servers_fail() {
    for seed in 1..8 {
        check(seed, async |cluster, world| {
            let mut rng = Rng::new(seed * 77 + 5);
            let (rt, user) = cluster.mount("user").await;
            let (_, other) = cluster.mount("other").await;
            cluster.osts_are_known(&user).await;
            let made = user.names().make(&root(), Fid::ROOT, b"d", 0o040_755, 0, bytes::Bytes::new()).await;
            let dir = made.expect("a new name").fid;
            if !rng.one_in(3) {
                user.names().set_layout(&root(), dir, Some(hint(1, 0))).await.expect("root may");
            }
            let made = make_small(&user, &rt, dir, &mut rng).await;
            let (left, pause) =
                (Arc::new(Mutex::new(made.clone())), Duration::from_micros(rng.below(60_000)));
            let movers: Vec<_> = (0..4)
                .map(|_| on(world, "user", move_small(rt.clone(), user.clone(), left.clone(), pause)))
                .collect();
            for _ in 0..1 + rng.below(3) {
                fail_servers(cluster, &rt, &mut rng).await;
            }
            for mover in movers {
                mover.await.expect("it lives");
            }
            let (_, fresh) = cluster.mount("fresh").await;
            check_small(&[&user, &other, &fresh], dir, &made).await;
            rt.sleep(Duration::from_secs(60)).await;
            check_small(&[&other], dir, &made).await;
        });
    }
}
