//! flock(2) and fcntl(2) between clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Error, FlockRequest, Handle, Limits, Result};
use parking_lot::Mutex;
use proto::lock::flock::{Kind, Mode, Range};
use proto::{Attr, Code, Fid};
use rt::sim::{Chance, Rng, Span};
use rt::sync::oneshot;
use rt::wait::join_all;

use crate::world::{World, create, read_write, root};
use Mode::{Read, Write};

/// A lock of the bytes `[start, end)`.
fn posix(mode: Option<Mode>, start: u64, end: u64) -> FlockRequest {
    let range = Range::new(start, end - 1).expect("a range that is not empty");
    FlockRequest { kind: Kind::Posix, range, mode, pid: 42 }
}

fn whole(mode: Option<Mode>) -> FlockRequest {
    FlockRequest { kind: Kind::Flock, range: Range::ALL, mode, pid: 42 }
}

const BUSY: Result<()> = Err(Error::Refused(Code::WouldBlock));

async fn open(client: &Client, attr: &Attr) -> Handle {
    client.files().open(&root(), attr.fid, read_write()).await.expect("it is there")
}

/// Begins to wait for a lock.
fn wait(
    world: &World,
    client: &Arc<Client>,
    handle: Handle,
    owner: u64,
    request: FlockRequest,
) -> oneshot::Receiver<Result<()>> {
    let (sender, told) = oneshot::channel();
    let client = client.clone();
    world.hub.rt().spawn(async move {
        let _ = sender.send(client.flocks().set_lock_wait(handle, owner, request).await);
    });
    told
}

/// Long enough for messages, and not for anything that was lost to be sent again.
const SOON: Duration = Duration::from_millis(100);

#[test]
fn locks_of_two_clients_keep_each_other_out() {
    let world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let (attr, a) = create(&one, b"f").await;
        let b = open(&two, &attr).await;
        one.flocks().set_lock(a, 1, posix(Some(Write), 0, 10)).await.expect("nobody has it");
        assert_eq!(two.flocks().set_lock(b, 1, posix(Some(Read), 5, 6)).await, BUSY);
        let found = two
            .flocks()
            .get_lock(b, 1, posix(Some(Read), 5, 6))
            .await
            .expect("it can be asked")
            .expect("a lock");
        assert_eq!(
            (found.range, found.mode, found.pid, found.own),
            (Range { start: 0, end: 9 }, Write, 42, false)
        );
        assert_eq!(one.flocks().get_lock(a, 1, posix(Some(Read), 5, 6)).await, Ok(None));
        two.flocks().set_lock(b, 1, whole(Some(Write))).await.expect("the kinds do not see each other");
        assert_eq!(one.flocks().set_lock(a, 1, whole(Some(Read))).await, BUSY);
        let waiting = wait(&world, &two, b, 1, posix(Some(Read), 5, 6));
        world.hub.rt().sleep(Duration::from_secs(60)).await;
        one.flocks().set_lock(a, 1, posix(None, 0, 10)).await.expect("an unlock is not refused");
        assert_eq!(world.hub.rt().timeout(SOON, waiting).await, Some(Ok(Ok(()))), "after a minute, at once");
    });
}

#[test]
fn a_downgrade_lets_the_readers_of_another_client_in() {
    let world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let rt = world.hub.rt();
        let (attr, a) = create(&one, b"f").await;
        let b = open(&two, &attr).await;
        one.flocks().set_lock(a, 1, posix(Some(Write), 0, 100)).await.expect("nobody has it");
        let within = wait(&world, &two, b, 1, posix(Some(Read), 10, 20));
        let mut behind = wait(&world, &two, b, 2, posix(Some(Read), 60, 70));
        rt.sleep(SOON).await;
        one.flocks().set_lock(a, 1, posix(Some(Read), 0, 50)).await.expect("it is the owner's");
        assert_eq!(rt.timeout(SOON, within).await, Some(Ok(Ok(()))));
        assert_eq!(rt.timeout(SOON, &mut behind).await, None);
        one.flocks().set_lock(a, 1, posix(Some(Read), 0, 100)).await.expect("it is the owner's");
        assert_eq!(rt.timeout(SOON, behind).await, Some(Ok(Ok(()))));
    });
}

#[test]
fn who_would_wait_in_a_circle_is_told() {
    let world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let ((f, f1), (g, g1)) = (create(&one, b"f").await, create(&one, b"g").await);
        let (f2, g2) = (open(&two, &f).await, open(&two, &g).await);
        one.flocks().set_lock(f1, 1, posix(Some(Write), 0, 1)).await.expect("nobody has it");
        two.flocks().set_lock(g2, 1, posix(Some(Write), 0, 1)).await.expect("nobody has it");
        let waiting = wait(&world, &one, g1, 1, posix(Some(Write), 0, 1));
        world.hub.rt().sleep(SOON).await;
        let circle = two.flocks().set_lock_wait(f2, 1, posix(Some(Read), 0, 1)).await;
        assert_eq!(circle, Err(Error::Refused(Code::Deadlock)));
        two.flocks().unlock_owner(g2, 1).await.expect("an unlock is not refused");
        assert_eq!(world.hub.rt().timeout(SOON, waiting).await, Some(Ok(Ok(()))));
    });
}

#[test]
fn locks_go_with_the_close_the_last_close_and_the_client() {
    let world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    world.run(async {
        let (attr, first) = create(&one, b"f").await;
        let (second, other) = (open(&one, &attr).await, open(&two, &attr).await);
        let free = async |request| match two.flocks().get_lock(other, 9, request).await {
            Ok(found) => found.is_none(),
            Err(error) => panic!("a lock can be asked for: {error}"),
        };
        one.flocks().set_lock(first, 1, posix(Some(Write), 0, 10)).await.expect("nobody has it");
        one.flocks().set_lock(first, 2, posix(Some(Write), 10, 20)).await.expect("nobody has it");
        one.flocks().set_lock(first, 3, whole(Some(Read))).await.expect("nobody has it");
        one.flocks().unlock_owner(second, 1).await.expect("an unlock is not refused");
        assert!(free(posix(Some(Read), 0, 10)).await, "a process loses its locks with any close of the file");
        assert!(!free(posix(Some(Read), 10, 20)).await, "another process's stay");
        one.files().release(second).await;
        assert!(!free(posix(Some(Read), 10, 20)).await && !free(whole(Some(Write))).await);
        one.files().release(first).await;
        assert!(free(posix(Some(Read), 0, 20)).await && free(whole(Some(Write))).await);
        assert_eq!(one.flocks().locks(), []);
        let third = open(&one, &attr).await;
        one.flocks().set_lock(third, 1, posix(Some(Write), 0, 10)).await.expect("nobody has it");
        one.unmount().await.expect("nothing is left to write");
        assert!(free(posix(Some(Read), 0, 10)).await);
    });
}

#[test]
fn a_flock_of_a_file_that_is_being_closed_is_waited_for() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt();
        let (attr, first) = create(&client, b"f").await;
        let second = open(&client, &attr).await;
        client.flocks().set_lock(first, 1, whole(Some(Write))).await.expect("nobody has it");
        let begun = rt.now();
        assert_eq!(client.flocks().set_lock(second, 2, whole(Some(Write))).await, BUSY);
        assert!(rt.now() - begun < Duration::from_millis(2), "nobody closes anything");
        // close(2): the kernel tells of the last close a moment later.
        client.flocks().unlock_owner(first, 7).await.expect("an unlock is not refused");
        let (closer, pause) = (client.clone(), rt.clone());
        rt.spawn(async move {
            pause.sleep(Duration::from_millis(30)).await;
            closer.files().release(first).await;
        });
        client.flocks().set_lock(second, 2, whole(Some(Write))).await.expect("the other one is closed");
        // A copy of the descriptor is open still.
        let third = open(&client, &attr).await;
        client.flocks().unlock_owner(second, 7).await.expect("an unlock is not refused");
        assert_eq!(client.flocks().set_lock(third, 3, whole(Some(Read))).await, BUSY);
    });
}

#[test]
fn what_a_client_has_it_knows() {
    let world = World::remote(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        let shown = || {
            let show = |lock: &proto::lock::flock::KeptLock| (lock.range.start, lock.range.end, lock.mode);
            client.flocks().locks().iter().map(show).collect::<Vec<_>>()
        };
        client.flocks().set_lock_wait(handle, 1, posix(Some(Write), 0, 10)).await.expect("nobody has it");
        client.flocks().set_lock(handle, 1, posix(Some(Read), 4, 6)).await.expect("nobody has it");
        assert_eq!(shown(), [(0, 3, Write), (4, 5, Read), (6, 9, Write)]);
        client.flocks().set_lock(handle, 1, posix(None, 0, 8)).await.expect("an unlock is not refused");
        client.flocks().set_lock(handle, 2, whole(Some(Read))).await.expect("nobody has it");
        assert_eq!(shown(), [(8, 9, Write), (0, u64::MAX, Read)]);
        client.flocks().set_lock(handle, 2, whole(Some(Write))).await.expect("nobody has it");
        assert_eq!(shown(), [(8, 9, Write), (0, u64::MAX, Write)]);
    });
}

#[test]
fn an_interrupted_wait_leaves_nothing() {
    let mut granted = 0;
    for micros in (0..400).step_by(7) {
        let world = World::remote(micros, 1);
        let (one, two) = (world.mount(), world.mount());
        world.run(async {
            let rt = world.hub.rt();
            let (attr, a) = create(&one, b"f").await;
            let b = open(&two, &attr).await;
            one.flocks().set_lock(a, 1, posix(Some(Write), 5, 100)).await.expect("nobody has it");
            two.flocks().set_lock(b, 1, posix(Some(Read), 0, 5)).await.expect("nobody has it");
            // The unlock and the signal come at about the same time.
            let (holder, pause) = (one.clone(), rt.clone());
            rt.spawn(async move {
                pause.sleep(Duration::from_micros(150)).await;
                holder.flocks().set_lock(a, 1, posix(None, 0, 100)).await.expect("an unlock is not refused");
            });
            let waiting = two.flocks().set_lock_wait(b, 1, posix(Some(Write), 0, 10));
            let told = rt.timeout(Duration::from_micros(micros), waiting).await;
            // What the owner asks for next is not undone.
            two.flocks()
                .set_lock_wait(b, 1, posix(Some(Write), 50, 60))
                .await
                .expect("the other one lets go");
            let left = one.flocks().get_lock(a, 1, posix(Some(Read), 0, 10)).await.expect("it can be asked");
            assert_eq!(left.is_none(), told.is_none(), "{micros}: an interrupted request has no effect");
            let kept = one.flocks().get_lock(a, 1, posix(Some(Write), 0, 5)).await.expect("it can be asked");
            assert!(kept.is_some(), "{micros}: what was there before the request is there after it");
            let kept = one.flocks().get_lock(a, 1, posix(Some(Read), 50, 51)).await.expect("it can be asked");
            assert!(kept.is_some());
            granted += usize::from(told.is_some());
        });
    }
    assert!((10..50).contains(&granted), "{granted} of 58 came before the signal");
}

#[test]
fn locks_outlive_a_restart_of_the_mdt() {
    for seed in 0..8 {
        let mut world = World::remote(seed, 1);
        let (one, two) = (world.mount(), world.mount());
        let (attr, a) = world.run(create(&one, b"f"));
        let b = world.run(open(&two, &attr));
        let (posix_wait, flock_wait) = world.run(async {
            one.files().fsync(a).await.expect("the file is there after the crash");
            one.flocks().set_lock(a, 1, posix(Some(Write), 0, 10)).await.expect("nobody has it");
            one.flocks().set_lock(a, 1, posix(Some(Read), 3, 5)).await.expect("nobody has it");
            one.flocks().set_lock(a, 2, whole(Some(Read))).await.expect("nobody has it");
            two.flocks().set_lock(b, 1, posix(Some(Write), 20, 30)).await.expect("nobody has it");
            let waits = (
                wait(&world, &two, b, 1, posix(Some(Write), 0, 1)),
                wait(&world, &two, b, 2, whole(Some(Write))),
            );
            world.hub.rt().sleep(SOON).await;
            waits
        });
        world.restart_servers(1);
        world.run(async {
            let rt = world.hub.rt();
            assert_eq!(two.flocks().set_lock(b, 3, posix(Some(Read), 0, 1)).await, BUSY);
            two.flocks().set_lock(b, 3, posix(Some(Read), 3, 5)).await.expect("it is a lock to read");
            assert_eq!(one.flocks().set_lock(a, 3, posix(Some(Read), 25, 26)).await, BUSY);
            assert_eq!(two.flocks().set_lock(b, 3, whole(Some(Write))).await, BUSY);
            rt.sleep(SOON).await;
            one.flocks().set_lock(a, 1, posix(None, 0, 10)).await.expect("an unlock is not refused");
            assert_eq!(rt.timeout(SOON, posix_wait).await, Some(Ok(Ok(()))), "who waited goes on waiting");
            one.flocks().set_lock(a, 2, whole(None)).await.expect("an unlock is not refused");
            assert_eq!(rt.timeout(SOON, flock_wait).await, Some(Ok(Ok(()))));
        });
    }
}

/// A client has `held` of a file, and sends `asks`, which the MDT carries out; the answer is lost. `freed` has the other client get a lock
/// by that. Then the MDT loses power. Whatever the first one states first, the other one's lock counts afterwards.
fn an_answer_is_lost(
    held: FlockRequest,
    asks: FlockRequest,
    other: FlockRequest,
    freed: impl AsyncFn(&Client, Handle),
) {
    for seed in 0..8 {
        let mut world = World::remote(seed, 1);
        let other_machine = world.machine("elsewhere");
        let one =
            world.run(Client::mount(&other_machine, world.mgs(), Limits::default())).expect("all is there");
        let (two, third) = (world.mount(), world.mount());
        let (attr, a) = world.run(create(&one, b"f"));
        let (b, c) = world.run(async { (open(&two, &attr).await, open(&third, &attr).await) });
        let (done, asked) = oneshot::channel();
        world.run(async {
            let rt = world.hub.rt();
            one.files().fsync(a).await.expect("the file is there after the crash");
            one.flocks().set_lock(a, 1, held).await.expect("nobody has it");
            if held.kind == Kind::Flock {
                two.flocks().set_lock(b, 2, held).await.expect("it is a lock to read");
            }
            let waits = wait(&world, &two, b, 1, other);
            rt.sleep(SOON).await;
            world.sim.handle().partition_one_way("servers", "elsewhere");
            let asking = one.clone();
            other_machine.rt().spawn(async move {
                let _ = done.send(asking.flocks().set_lock(a, 1, asks).await);
            });
            rt.sleep(SOON).await;
            freed(&two, b).await;
            assert_eq!(rt.timeout(SOON, waits).await, Some(Ok(Ok(()))), "it gets what was freed");
        });
        world.sim.handle().heal("servers", "elsewhere");
        world.restart_servers(1);
        world.run(async {
            let answer = asked.await.expect("the request comes to an end");
            if asks.kind == Kind::Flock {
                assert_eq!(answer, BUSY, "the other one has it");
            } else {
                assert_eq!(answer, Ok(()));
                one.flocks().set_lock(a, 1, posix(None, 0, 10)).await.expect("an unlock is not refused");
            }
            let lock = FlockRequest { mode: Some(Write), ..other };
            assert_eq!(third.flocks().set_lock(c, 3, lock).await, BUSY, "seed {seed}: two have it");
            two.flocks().set_lock(b, 1, FlockRequest { mode: None, ..other }).await.expect("it has it");
            third.flocks().set_lock(c, 3, lock).await.expect("nobody else has it");
        });
    }
}

#[test]
fn a_lock_whose_unlock_the_mdt_answered_in_vain_is_the_next_one_s_after_a_restart() {
    let (held, other) = (posix(Some(Write), 0, 10), posix(Some(Write), 5, 10));
    an_answer_is_lost(held, posix(None, 0, 10), other, async |_, _| {});
}

#[test]
fn a_lock_that_became_one_to_read_in_vain_lets_readers_stay_after_a_restart() {
    let (held, other) = (posix(Some(Write), 0, 10), posix(Some(Read), 5, 10));
    an_answer_is_lost(held, posix(Some(Read), 0, 10), other, async |_, _| {});
}

#[test]
fn a_flock_that_went_with_a_refused_change_is_the_next_one_s_after_a_restart() {
    an_answer_is_lost(whole(Some(Read)), whole(Some(Write)), whole(Some(Write)), async |two, b| {
        two.flocks().set_lock(b, 2, whole(None)).await.expect("an unlock is not refused");
    });
}

const BYTES: u64 = 16;

/// Who has what, as the callers were told.
type Told = Arc<Mutex<BTreeMap<(u64, u64), Mode>>>;

/// One process: takes, changes and drops locks at random, and gives up some waits.
async fn process(world: &World, client: Arc<Client>, fid: Fid, me: u64, mut rng: Rng, told: Told) {
    let rt = world.hub.rt();
    let handle = client.files().open(&root(), fid, read_write()).await.expect("it is there");
    for _ in 0..60 {
        let start = rng.below(BYTES);
        let end = start + 1 + rng.below(BYTES - start);
        let mode = if rng.one_in(2) { Read } else { Write };
        let set = |bytes: std::ops::Range<u64>, mode: Option<Mode>| {
            let mut told = told.lock();
            for byte in bytes {
                match mode {
                    None => told.remove(&(byte, me)),
                    Some(mode) => told.insert((byte, me), mode),
                };
                let modes: Vec<Mode> = told.range((byte, 0)..(byte + 1, 0)).map(|(_, mode)| *mode).collect();
                assert!(modes.len() < 2 || !modes.contains(&Write), "byte {byte} is locked twice");
            }
        };
        match rng.below(4) {
            0 => {
                set(start..end, None);
                client
                    .flocks()
                    .set_lock(handle, me, posix(None, start, end))
                    .await
                    .expect("an unlock is not refused");
                continue;
            }
            1 => {
                // Whoever asks for less has less from the moment it asks.
                for byte in (start..end).filter(|_| mode == Read) {
                    told.lock().entry((byte, me)).and_modify(|mode| *mode = Read);
                }
                match client.flocks().set_lock(handle, me, posix(Some(mode), start, end)).await {
                    Ok(()) => set(start..end, Some(mode)),
                    Err(error) => assert_eq!(error, Error::Refused(Code::WouldBlock)),
                }
            }
            _ => {
                let patience = Duration::from_micros(rng.below(30_000));
                let waiting = client.flocks().set_lock_wait(handle, me, posix(Some(Write), start, end));
                match rt.timeout(patience, waiting).await {
                    Some(Ok(())) => set(start..end, Some(Write)),
                    Some(Err(error)) => assert_eq!(error, Error::Refused(Code::Deadlock)),
                    None => {}
                }
            }
        }
        rt.sleep(Duration::from_micros(rng.below(2_000))).await;
        if rng.one_in(6) {
            told.lock().retain(|(_, by), _| *by != me);
            client.flocks().unlock_owner(handle, me).await.expect("an unlock is not refused");
        }
    }
    told.lock().retain(|(_, by), _| *by != me);
    client.files().release(handle).await;
}

#[test]
fn nobody_has_what_somebody_else_has_whatever_the_network_does() {
    for seed in 0..24 {
        let world = World::remote(seed, 1);
        let clients = [world.mount(), world.mount()];
        let (attr, handle) = world.run(create(&clients[0], b"f"));
        let sim = world.sim.handle();
        if seed % 3 > 0 {
            sim.change_net(|net| {
                net.drop = Chance::percent(1);
                net.duplicate = Chance::percent(1);
                net.reorder = Chance::percent(10);
                net.reorder_delay = Span::micros(10, 3_000);
                net.break_connection = if seed % 3 == 2 { Chance::percent(1) } else { Chance::NEVER };
            });
        }
        let told = Told::default();
        world.run(async {
            let processes = (0..4).map(|me| {
                let client = clients[me as usize % 2].clone();
                process(&world, client, attr.fid, me, sim.rng(&format!("process {me}")), told.clone())
            });
            join_all(processes).await;
        });
        sim.calm();
        let all = FlockRequest { range: Range::ALL, ..posix(Some(Write), 0, 1) };
        let taken = world.run(
            world
                .hub
                .rt()
                .timeout(Duration::from_secs(120), clients[0].flocks().set_lock_wait(handle, 9, all)),
        );
        assert_eq!(taken, Some(Ok(())), "seed {seed}: nothing is left");
        assert_eq!(clients[0].flocks().locks().len() + clients[1].flocks().locks().len(), 1);
    }
}
