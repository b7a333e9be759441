//! As many OSTs as a large site has, and more than Lustre's table of devices had room for.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use proto::{Fid, TargetId};

use crate::fake::Mgs;
use crate::world::{World, create_on};

/// Polls that a mount takes, a session with each OST, and a change of the configuration.
struct Polls {
    mount: u64,
    sessions: u64,
    change: u64,
}

/// The MGS is a real one, which tells the configuration in pages; all sessions are there in the end.
fn polls(osts: u32) -> Polls {
    let world = World::registered(1, osts);
    // The MDT shows up at each OST.
    world.sim.run_for(Duration::from_secs(60));
    let so_far = || world.sim.handle().stats().polls;
    let before = so_far();
    let client = world.mount();
    let mount = so_far() - before;
    assert_eq!(client.admin().targets().len(), osts as usize + 1, "with the MDT");
    let before = so_far();
    world.run(async {
        for ost in 0..osts {
            let space = client.admin().target_space(TargetId::ost(ost), Duration::from_secs(2)).await;
            assert!(space.is_ok_and(|space| space.is_some()), "OST {ost} answers");
        }
        // One with the MDT besides.
        assert_eq!(client.admin().answers().len(), osts as usize + 1);
    });
    let sessions = so_far() - before;
    let held = world.run(create_on(&client, b"f", 0));
    world.sim.run_for(Duration::from_secs(1));
    let before = so_far();
    let version = client.admin().with_config(|config| config.version());
    let moved = osts / 2;
    world.run(world.move_ost(moved));
    world.sim.run_for(Duration::from_millis(100));
    let nids = |ost| {
        client.admin().with_config(|config| config.target(TargetId::ost(ost)).map(|entry| entry.nids.len()))
    };
    assert_eq!((nids(moved), nids(0)), (Some(2), Some(1)), "whoever holds something hears of it at once");
    assert!(client.admin().with_config(|config| config.version() == version + 1 && config.is_whole()));
    let change = so_far() - before;
    world.run(client.files().release(held));
    Polls { mount, sessions, change }
}

#[test]
fn a_session_of_many_costs_what_one_of_few_does() {
    let (few, many) = (polls(6_000), polls(24_000));
    for (osts, Polls { mount, sessions, change }) in [(6_000, &few), (24_000, &many)] {
        println!("{osts} OSTs: polls of the mount {mount}, of sessions {sessions}, when one moves {change}");
    }
    assert!(many.mount <= few.mount * 5, "the configuration comes in pages");
    assert!(many.sessions <= few.sessions * 41 / 10, "{} and {}", few.sessions, many.sessions);
    assert!(many.change <= few.change * 2, "only what changed is told: {} and {}", few.change, many.change);
}

/// FEATURES I8: with 10,000 sessions that were used, statistics take so much, and nothing once they are switched off.
#[test]
fn statistics_of_many_sessions_can_be_given_up() {
    const OSTS: u32 = 10_000;
    let world = World::registered(1, OSTS);
    world.sim.run_for(Duration::from_secs(60));
    let client = world.mount();
    let write = |osts: std::ops::Range<u32>, name: &str| {
        world.run(async {
            for ost in osts {
                let handle = create_on(&client, format!("{name}{ost}").as_bytes(), ost as i32).await;
                client.files().write(handle, 0, b"some").await.expect("there is room");
                client.files().fsync(handle).await.expect("it is durable");
                client.files().release(handle).await;
            }
        });
    };
    write(0..OSTS, "f");
    let on = client.admin().session_stats_bytes();
    client.admin().set_session_stats(false);
    write(0..100, "g");
    let off = client.admin().session_stats_bytes();
    println!("statistics of {OSTS} sessions: {on} bytes, {off} when they are switched off");
    assert!(on > 1000 * OSTS as usize && off == 0, "{on} and {off}");
}

/// A target that starts while the disk of the MGS fails was refused, and nobody tried it again.
#[test]
fn a_target_that_the_mgs_cannot_keep_asks_again() {
    for failures in [1, 3, 4, 9] {
        let world = World::with_mgs(1, Mgs { osts: 1, failures: AtomicU32::new(failures) });
        let client = world.mount();
        world.run(async {
            client.names().getattr(Fid::ROOT).await.expect("the MDT is served");
        });
    }
}
