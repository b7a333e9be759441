//! A process that may hold little: writers wait, caches give back, and nothing fails.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Limits};
use rt::memory::LIMIT_BYTES_MIN;

use crate::world::{World, create_on};

const MIB: u64 = 1 << 20;

async fn write(client: &Arc<Client>, handle: client::Handle, len: u64) {
    for at in (0..len).step_by(MIB as usize) {
        client.files().write(handle, at, &[7; MIB as usize]).await.expect("there is room, after a while");
    }
}

/// Two writers, one to an OST that does not answer for a while, and somebody else who holds `others` of the process's memory. Gives
/// the most that the process held, and how much was read and kept in the end.
fn busy(limit: u64, others: u64) -> (u64, u64) {
    let world = World::new(1, 2);
    let rt = world.hub.rt().clone();
    rt.memory().set_limit(limit);
    let client = world.mount_with(Limits::default());
    world.run(async {
        let other = rt.memory().user("others");
        other.add(others);
        let (slow, quick) = (create_on(&client, b"slow", 0).await, create_on(&client, b"quick", 1).await);
        world.osts[0].hold();
        world.osts[1].set_latency(Duration::from_millis(1));
        let mut waiting = std::pin::pin!(write(&client, slow, 96 * MIB));
        let is_done = rt.timeout(Duration::from_secs(5), waiting.as_mut()).await.is_some();
        assert!(!is_done, "its OST does not answer");
        world.osts[0].release();
        waiting.await;
        write(&client, quick, 96 * MIB).await;
        for handle in [slow, quick] {
            client.files().fsync(handle).await.expect("the OSTs take everything");
            for at in (0..96 * MIB).step_by(64 << 10) {
                let read = client.files().read(handle, at, 64 << 10).await.expect("it is there");
                assert_eq!(read.iter().map(|slice| slice.len()).sum::<usize>(), 64 << 10);
            }
        }
        (rt.memory().used_max() - others, client.admin().memory.cache_use().clean)
    })
}

#[test]
fn no_more_is_held_than_the_limit_and_nothing_fails() {
    let (most, clean) = busy(1 << 30, 0);
    assert!(most > 64 * MIB && clean > 64 * MIB, "with much memory: {most} {clean}");
    let (most, clean) = busy(LIMIT_BYTES_MIN, 0);
    assert!(most <= LIMIT_BYTES_MIN && clean > 0, "{most} {clean}");
    // Others leave 4 MiB.
    let (most, clean) = busy(64 * MIB, 52 * MIB);
    assert!(most <= 12 * MIB && clean <= 4 * MIB, "{most} {clean}");
    // Others hold all of it, for ever: what is written is little, and goes on.
    let (most, clean) = busy(LIMIT_BYTES_MIN, 1 << 30);
    assert!(most <= 8 * MIB && clean == 0, "{most} {clean}");
}

#[test]
fn a_limit_that_is_set_holds_at_once_and_can_be_taken_back() {
    let world = World::new(1, 1);
    let rt = world.hub.rt().clone();
    let client = world.mount_with(Limits::within(rt.memory().bytes()));
    world.run(async {
        let handle = create_on(&client, b"f", 0).await;
        write(&client, handle, 64 * MIB).await;
        client.files().fsync(handle).await.expect("the OST takes everything");
        for at in (0..64 * MIB).step_by(64 << 10) {
            client.files().read(handle, at, 64 << 10).await.expect("it is there");
        }
        let before = client.admin().memory.cache_use();
        assert!(before.clean > 60 * MIB, "{before:?}");
        rt.set_memory_limit(LIMIT_BYTES_MIN).await;
        rt.sleep(Duration::from_millis(10)).await;
        let small = client.admin().memory.cache_use();
        assert!(rt.memory().used() <= LIMIT_BYTES_MIN, "{:?}", rt.memory().users());
        assert_eq!((small.max, small.dirty_max), (8 * MIB, 4 * MIB));
        rt.set_memory_limit(u64::MAX).await;
        rt.sleep(Duration::from_millis(10)).await;
        let after = client.admin().memory.cache_use();
        assert_eq!((after.max, after.dirty_max), (before.max, before.dirty_max));
    });
}
