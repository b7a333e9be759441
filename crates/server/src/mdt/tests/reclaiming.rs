//! Locks that are called back because there are too many.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::wire::messages as msg;
use proto::wire::messages::{LOCK_PERM, LOCK_UPDATE};
use proto::{Code, Fid};
use service::Watch;

use crate::mdt::testing::{Client, World, gave_back};

fn set(world: &World, name: &str, value: u64) -> Result<(), Code> {
    Watch::set_parameter(&*world.target, &format!("*.{name}"), &value.to_string())
}

fn locks(world: &World) -> u64 {
    world.target.handler().grants.bits.counts().locks
}

fn held_by(world: &World, client: &Client) -> usize {
    world.target.handler().grants.bits.held_by_session(client.session()).len()
}

/// Files `f0`, `f1` and so on of a new directory.
fn make(client: &Client, count: u32) -> Vec<Fid> {
    let dir = client.mkdir(Fid::ROOT, "d");
    (0..count).map(|n| client.file(dir, &format!("f{n}"))).collect()
}

/// Looks at a file, and says whether something of it may be kept.
fn look(client: &Client, fid: Fid) -> bool {
    client.call(msg::GetAttr { fid }).expect("it exists").lock.bits & LOCK_PERM != 0
}

/// Time for callbacks to be sent and answered.
fn settle(world: &World) {
    world.sim.run_for(Duration::from_millis(100));
}

#[test]
fn what_is_not_used_makes_room_for_what_is() {
    let world = World::new();
    let (a, idle) = (world.client(1), world.client(2));
    let files = make(&a, 1000);
    files[..64].iter().for_each(|fid| assert!(look(&idle, *fid)));
    world.called.take();
    set(&world, "lru_size", 256).expect("it is a number");
    settle(&world);
    let called = world.called.take();
    assert!(called.iter().all(|(session, _)| *session == a.session()), "the other one has few");
    assert_eq!(held_by(&world, &a), 256);
    assert_eq!(called.len(), 1001 - 256, "each once: {} are held", locks(&world));
    let newest: BTreeSet<Fid> = files[800..].iter().copied().collect();
    assert!(called.iter().all(|(_, revoke)| !newest.contains(&revoke.fid)), "what was used last stays");
    for fid in &files {
        assert!(look(&a, *fid), "what is asked for is granted");
        settle(&world);
        assert!(held_by(&world, &a) <= 256 + 64);
    }
    assert_eq!(held_by(&world, &idle), 64);
    assert_eq!(world.target.handler().grants.bits.counts().callbacks, 0, "nobody needed anything");
}

#[test]
fn a_directory_in_which_files_are_made_counts_as_used() {
    let world = World::new();
    let a = world.client(1);
    let dir = a.mkdir(Fid::ROOT, "d");
    set(&world, "lru_size", 256).expect("it is a number");
    for n in 0..800 {
        a.file(dir, &format!("f{n}"));
        settle(&world);
    }
    let called = world.called.take();
    assert!(called.len() > 500 && called.iter().all(|(_, revoke)| revoke.fid != dir), "{}", called.len());
}

#[test]
fn callbacks_are_few_at_a_time_and_nobody_is_evicted_for_them() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let files = make(&a, 1000);
    files[..100].iter().for_each(|fid| assert!(look(&b, *fid)));
    world.called.take();
    world.called.hold();
    set(&world, "lru_size", 64).expect("it is a number");
    settle(&world);
    let of = |client: &Client, calls: &[(u64, msg::RevokeBits)]| {
        calls.iter().filter(|(session, _)| *session == client.session()).count()
    };
    let first = world.called.take();
    assert_eq!((of(&a, &first), of(&b, &first)), (32, 32));
    world.sim.run_for(Duration::from_secs(19));
    assert_eq!(world.called.take(), [], "they are waited for");
    world.sim.run_for(Duration::from_secs(2));
    let second = world.called.take();
    assert_eq!((of(&a, &second), of(&b, &second)), (32, 32), "then for others");
    let asked: BTreeSet<Fid> = first.iter().filter(|(s, _)| *s == a.session()).map(|(_, r)| r.fid).collect();
    assert!(second.iter().all(|(s, revoke)| *s != a.session() || !asked.contains(&revoke.fid)));
    assert!(world.called.ended().is_empty(), "nobody waits for this");
    world.called.answer(gave_back());
    settle(&world);
    world.sim.run_for(Duration::from_secs(60));
    assert_eq!((held_by(&world, &a), held_by(&world, &b)), (64, 64));
}

#[test]
fn an_operation_calls_back_for_itself_what_is_being_reclaimed() {
    let world = World::new();
    let (a, b) = (world.client(1), world.client(2));
    let files = make(&a, 640);
    world.called.take();
    world.called.hold();
    set(&world, "lru_size", 64).expect("it is a number");
    settle(&world);
    let (_, reclaimed) = world.called.take().swap_remove(0);
    assert!(files.contains(&reclaimed.fid) || reclaimed.fid != Fid::ROOT);
    let chmod = msg::SetAttr { mode: Some(0o700), ..b.set_attr(reclaimed.fid, &proto::Cred::root()) };
    let pending = b.start(b.xid() + 1, chmod);
    settle(&world);
    let own: Vec<_> = world.called.take().into_iter().filter(|(_, r)| r.fid == reclaimed.fid).collect();
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].0, own[0].1.bits & LOCK_PERM), (a.session(), LOCK_PERM));
    world.called.answer(gave_back());
    assert!(world.sim.run(pending).result.is_ok());
}

/// The check of row K7 as far as a table goes: a cap of 64 MiB, a million requests of eight clients, and all get on.
#[test]
fn a_million_requests_stay_within_the_cap() {
    const CLIENTS: u128 = 8;
    let world = World::new();
    let clients: Vec<Client> = (1..=CLIENTS).map(|id| world.client(id)).collect();
    for (name, value) in [("lock_reclaim_threshold_mb", 42), ("lock_limit_mb", 64)] {
        set(&world, name, value).expect("there is so much memory");
    }
    let (bits, cap) = (&world.target.handler().grants.bits, (64 << 20) / 256);
    for n in 0..1_000_000_u64 {
        let client = &clients[n as usize % clients.len()];
        let fid = Fid { seq: 0x7_0000_0000 + (n >> 20), oid: n as u32, ver: 0 };
        let granted = bits.grant_guarded(client.session(), fid, LOCK_UPDATE | LOCK_PERM);
        assert_ne!(granted.bits, 0, "request {n}: every client gets on");
        // Clients answer now and then.
        if n % 4096 == 0 {
            world.sim.run_for(Duration::from_millis(100));
            assert!(locks(&world) <= cap, "{} locks", locks(&world));
        }
    }
    let counts = bits.counts();
    assert!(counts.reclaimed > 700_000 && counts.locks <= cap, "{counts:?}");
    assert!(world.called.ended().is_empty());
}
