//! A full disk, and a file system without free inodes: what grows is refused before anything fails, what
//! frees space goes on, and the target starts. The disk was filled to its last block before, and the store failed and did not open again.

use rt::sim::{Handle, Options, Sim};

use super::owned::Toy;
use super::*;
use crate::Owned;
use crate::log;
use crate::open::Way;

const NODE: &str = "server";
const PATH: &str = "target";

/// Runs `test` on a node of its own, with a formatted target.
fn on_a_disk<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Handle, Rt) -> F) {
    let sim = Sim::new(Options::seed(1));
    let handle = sim.handle();
    let rt = handle.rt(NODE);
    let run = async {
        Store::format(&rt, PATH, &label()).await?;
        test(handle.clone(), rt.clone()).await
    };
    sim.run(run).expect("no operation fails but for want of space");
}

async fn used(rt: &Rt) -> u64 {
    let dir = rt.disk().open_dir(PATH).await.expect("it is there");
    let space = dir.space().await.expect("it is told");
    space.total - space.free
}

/// Waits until the store has looked at its disk.
async fn looked(rt: &Rt, store: &Arc<Store>) -> Result<(), StoreError> {
    for _ in 0..3 {
        rt.sleep(Duration::from_millis(1500)).await;
        let last = store.commit(batch([put("look", "")]))?;
        store.committed(last).await?;
    }
    Ok(())
}

/// Commits changes of a kilobyte until there is no room for them, and says how many it were.
async fn fill(store: &Arc<Store>) -> Result<u64, StoreError> {
    for made in 0..100_000 {
        match store.room(Need::Growth).await {
            Ok(()) => {}
            Err(StoreError::NoSpace) => return Ok(made),
            Err(error) => return Err(error),
        }
        let last = store.commit(batch([put(&format!("{made}"), &"x".repeat(1000))]))?;
        store.committed(last).await?;
    }
    panic!("the disk is not that large");
}

/// Takes away what [`fill`] has made.
async fn empty(store: &Arc<Store>, keys: std::ops::Range<u64>) -> Result<(), StoreError> {
    for key in keys {
        store.room(Need::Release).await?;
        let last = store.commit(batch([delete(&format!("{key}"))]))?;
        store.committed(last).await?;
    }
    Ok(())
}

#[test]
fn a_disk_that_others_filled_up_takes_what_frees_space_and_the_target_starts() {
    on_a_disk(async |handle, rt| {
        let store = Store::open_with(&rt, PATH, small()).await?;
        rt.sleep(Duration::from_secs(1)).await;
        for key in 0..10 {
            store.commit(batch([put(&format!("{key}"), "x")]))?;
        }
        store.committed(store.last_transno()).await?;
        // Not a block is left to anybody.
        handle.set_capacity(NODE, used(&rt).await);
        looked(&rt, &store).await?;
        assert!(store.is_full());
        assert_eq!(store.space().await?.available, 0);
        assert!(matches!(store.room(Need::Growth).await, Err(StoreError::NoSpace)));
        empty(&store, 0..5).await?;
        store.abandon().await;
        drop(store);
        let store = Store::open_with(&rt, PATH, small()).await?;
        empty(&store, 5..10).await?;
        assert!(matches!(store.room(Need::Growth).await, Err(StoreError::NoSpace)));
        handle.set_capacity(NODE, 1 << 30);
        looked(&rt, &store).await?;
        looked(&rt, &store).await?;
        store.room(Need::Growth).await?;
        assert!(!store.is_full() && !store.shared.reserve.is_used_up(), "it was made again");
        store.close().await
    });
}

#[test]
fn a_disk_that_was_filled_refuses_in_time_and_what_was_made_goes() {
    on_a_disk(async |handle, rt| {
        handle.set_capacity(NODE, 4 << 20);
        let store = Store::open_with(&rt, PATH, small()).await?;
        let made = fill(&store).await?;
        assert!(made > 200, "{made}");
        // In a simulation the log is never cut: it is what the disk is full of.
        empty(&store, 0..20).await?;
        store.abandon().await;
        drop(store);
        let store = Store::open_with(&rt, PATH, small()).await?;
        assert_eq!(value_of(&store, "19"), None);
        assert!(value_of(&store, "20").is_some());
        empty(&store, 20..30).await?;
        store.close().await
    });
}

/// Removes what [`fill`] has made until there is no room even for that, and says how many it were.
async fn empty_as_far_as_it_goes(store: &Arc<Store>) -> Result<u64, StoreError> {
    for key in 0.. {
        match empty(store, key..key + 1).await {
            Ok(()) => {}
            Err(StoreError::NoSpace) => return Ok(key),
            Err(error) => return Err(error),
        }
    }
    Ok(0)
}

/// A quota says nothing before it refuses: the margin had been used up by then, and nothing could be removed when it was.
#[test]
fn a_quota_leaves_as_much_for_what_frees_space_as_a_full_disk() {
    const BYTES: u64 = 4 << 20;
    let removed = |is_quota: bool| {
        let mut removed = 0;
        on_a_disk(async |handle, rt| {
            if is_quota {
                handle.set_quota(NODE, BYTES);
            } else {
                handle.set_capacity(NODE, BYTES);
            }
            let store = Store::open_with(&rt, PATH, small()).await?;
            fill(&store).await?;
            // In a simulation the log is never cut, so that this ends.
            removed = empty_as_far_as_it_goes(&store).await?;
            store.close().await
        });
        removed
    };
    let (disk, quota) = (removed(false), removed(true));
    assert!(quota > 60 && quota >= disk * 3 / 4, "{quota} under a quota, {disk} on a full disk");
}

#[test]
fn a_quota_that_is_used_up_is_as_a_full_disk() {
    on_a_disk(async |handle, rt| {
        handle.set_quota(NODE, 4 << 20);
        let store = Store::open_with(&rt, PATH, small()).await?;
        let made = fill(&store).await?;
        assert!(made > 200, "{made}");
        assert!(store.is_full());
        assert_eq!(store.space().await?.available, 0);
        empty(&store, 0..15).await?;
        store.abandon().await;
        drop(store);
        // Others use up what is left.
        handle.set_quota(NODE, used(&rt).await);
        let store = Store::open_with(&rt, PATH, small()).await?;
        assert_eq!(value_of(&store, "14"), None);
        assert!(store.is_full(), "the start took of the reserve");
        assert!(matches!(store.room(Need::Growth).await, Err(StoreError::NoSpace)));
        empty(&store, 15..30).await?;
        handle.set_quota(NODE, u64::MAX);
        looked(&rt, &store).await?;
        looked(&rt, &store).await?;
        store.room(Need::Growth).await?;
        assert!(!store.is_full() && !store.shared.reserve.is_used_up(), "it was made again");
        store.close().await
    });
}

#[test]
fn without_inodes_nothing_grows() {
    on_a_disk(async |handle, rt| {
        let store = Store::open_with(&rt, PATH, small()).await?;
        looked(&rt, &store).await?;
        store.room(Need::Growth).await?;
        handle.set_files_available(NODE, 10);
        looked(&rt, &store).await?;
        assert!(matches!(store.room(Need::Growth).await, Err(StoreError::NoSpace)));
        store.room(Need::Release).await?;
        handle.set_files_available(NODE, 1_000_000);
        looked(&rt, &store).await?;
        store.room(Need::Growth).await?;
        store.close().await
    });
}

async fn take_over(rt: &Rt, epoch: u64, before: u64) -> Result<Arc<Store>, StoreError> {
    let owned = Owned { right: Arc::new(Toy::default()), epoch, before, in_place: before == 0 };
    Store::start(rt, PATH, Some(small()), Way::Owned(owned)).await
}

/// An owner that takes a target over writes what the log holds once more: the reserve has room for it, and if that is not enough, nothing
/// stays of the attempt.
#[test]
fn a_target_on_a_full_disk_is_taken_over() {
    // Some 8 KiB of the log each.
    let sizes = (18..30).step_by(2).map(|changes| (changes, true)).chain([(500, false)]);
    for (changes, fits) in sizes {
        on_a_disk(async |handle, rt| {
            handle.set_capacity(NODE, 1 << 30);
            let store = take_over(&rt, 1, 0).await?;
            looked(&rt, &store).await?;
            for key in 0..changes {
                let last = store.commit(batch([put(&format!("{key}"), &"x".repeat(3800))]))?;
                store.committed(last).await?;
            }
            store.abandon().await;
            drop(store);
            handle.set_capacity(NODE, used(&rt).await);
            if !fits {
                let log = rt.disk().open_dir(PATH).await?.subdir(log::DIR).await?;
                let before = log.list().await?;
                for epoch in 2..5 {
                    assert!(take_over(&rt, epoch, 1).await.is_err(), "it does not fit");
                }
                assert_eq!(log.list().await?, before, "each attempt leaves something");
                handle.set_capacity(NODE, 1 << 30);
            }
            let store = take_over(&rt, 5, 1).await?;
            assert!((0..changes).all(|key| value_of(&store, &format!("{key}")).is_some()));
            store.abandon().await;
            Ok(())
        });
    }
}
