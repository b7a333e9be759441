//! Targets that have one owner after the other, not all of them gone when the next one comes.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt::os::Node;
use rt::sim::{Options, Sim};
use rt::sync::Notify;
use rt::{BoxFuture, Rt};

use super::{label, small};
use crate::limits::Limits;
use crate::log::segment::SegmentId;
use crate::open::Way;
use crate::{Batch, Change, Owned, Right, Store, StoreError, check, log};

/// A right that a test takes away and gives back.
#[derive(Default)]
pub(super) struct Toy {
    suspended: AtomicBool,
    lost: AtomicBool,
    changed: Notify,
}

impl Toy {
    fn set(&self, what: &AtomicBool, to: bool) {
        what.store(to, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Right for Toy {
    fn is_valid(&self) -> bool {
        !self.suspended.load(Ordering::SeqCst) && !self.is_lost()
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    fn confirmed(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.is_valid() || self.is_lost() {
                    return !self.is_lost();
                }
                changed.await;
            }
        })
    }
}

/// Those of production, or so small that everything happens often.
fn limits(epoch: u64) -> Limits {
    if epoch.is_multiple_of(2) { small() } else { Limits::default() }
}

/// A process with a target.
struct Owner {
    node: Node,
    right: Arc<Toy>,
    store: Arc<Store>,
}

impl Owner {
    async fn try_open(path: &str, epoch: u64, before: u64, in_place: bool) -> Result<Owner, StoreError> {
        Owner::try_open_with(limits(epoch), path, epoch, before, in_place).await
    }

    async fn try_open_with(
        limits: Limits,
        path: &str,
        epoch: u64,
        before: u64,
        in_place: bool,
    ) -> Result<Owner, StoreError> {
        let node = Node::start(1).expect("a node starts");
        let right = Arc::new(Toy::default());
        let owned = Owned { right: right.clone(), epoch, before, in_place };
        let store = Store::start(&Rt::os(node.clone()), path, Some(limits), Way::Owned(owned)).await?;
        Ok(Owner { node, right, store })
    }

    async fn open(path: &str, epoch: u64, before: u64, in_place: bool) -> Owner {
        Owner::try_open(path, epoch, before, in_place).await.expect("the target opens")
    }

    fn put(&self, key: &str, value: &str) -> proto::Transno {
        let change = Change { key: key.to_owned().into(), value: Some(value.to_owned().into()) };
        self.store.commit(Batch { changes: vec![change], ..Batch::default() }).expect("the store works")
    }

    async fn put_durably(&self, key: &str, value: &str) {
        self.store.committed(self.put(key, value)).await.expect("the disk works");
    }

    fn get(&self, key: &str) -> Option<String> {
        let value = self.store.get(key.as_bytes()).expect("the store works")?;
        Some(String::from_utf8(value.bytes.to_vec()).expect("it is text"))
    }

    async fn close(self) {
        self.store.close().await.expect("it closes in order");
        drop(self.node);
    }
}

/// Runs `test` with a formatted directory.
fn run(test: impl AsyncFnOnce(Rt, String)) {
    let node = Node::start(1).expect("a node starts");
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("target").to_str().expect("a plain name").to_owned();
    let rt = Rt::os(node.clone());
    node.block_on(async {
        Store::format(&rt, &path, &label()).await.expect("an empty directory can be formatted");
        test(rt, path).await;
    });
}

async fn assert_clean(rt: &Rt, path: &str) {
    let report = check::check_to(rt, path, check::Depth::Data).await.expect("it can be checked");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn owners_follow_each_other_in_order() {
    run(async |rt, path| {
        let mut epoch = 0;
        for (next, in_place) in [(1, true), (4, true), (5, false), (9, true), (10, true), (11, false)] {
            let owner = Owner::open(&path, next, epoch, in_place).await;
            assert_eq!(owner.store.boot(), next);
            if epoch > 0 {
                assert_eq!(owner.get("epoch"), Some(epoch.to_string()), "before {next}");
            }
            epoch = next;
            owner.put("epoch", &epoch.to_string());
            owner.close().await;
            assert_clean(&rt, &path).await;
        }
        let stale = Owner::try_open(&path, 11, 0, true).await;
        assert!(matches!(stale.err(), Some(StoreError::NotOwner)), "that epoch was used");
    });
}

/// A disk that loses the first block of a log of several segments must not make all of it count for nothing. (Of one segment it
/// cannot be told from one that was made and not written.)
#[test]
fn a_log_that_lost_its_first_block_is_damaged() {
    run(async |_, path| {
        let former = Owner::open(&path, 1, 0, true).await;
        former.put_durably("a", "1").await;
        former.close().await;
        // Nothing that the engine has is missed.
        let never_applied = Limits { apply_after_bytes: u64::MAX, ..small() };
        let owner = Owner::try_open_with(never_applied, &path, 2, 1, true).await.expect("the target opens");
        let segment = |number| format!("{path}/log/{}", SegmentId { boot: 2, number }.name());
        while !std::path::Path::new(&segment(1)).exists() {
            owner.put_durably("b", &"2".repeat(2000)).await;
        }
        let file = std::fs::File::options().write(true).open(segment(0)).expect("it is there");
        file.write_all_at(&[0; crate::limits::BLOCK_BYTES], 0).expect("it can be written");
        let next = Owner::try_open(&path, 3, 2, false).await;
        assert!(matches!(next.err(), Some(StoreError::Damaged(_))), "what was durable would be gone");
        owner.close().await;
    });
}

#[test]
fn what_was_taken_over_is_handed_back() {
    run(async |rt, path| {
        let former = Owner::open(&path, 1, 0, true).await;
        for n in 0..100 {
            former.put_durably(&format!("key{n}"), "former").await;
        }
        // More than what goes into the engine at once, and not through its journal.
        for n in 0..50 {
            former.put(&format!("large{n}"), &"x".repeat(60_000));
        }
        former.put_durably("end", "former").await;
        former.store.abandon().await;
        drop(former);
        let second = Owner::open(&path, 2, 1, false).await;
        assert_eq!(second.get("key7").as_deref(), Some("former"));
        second.put_durably("key1", "second").await;
        second.close().await;
        let third = Owner::open(&path, 3, 2, true).await;
        for n in 0..100 {
            let want = if n == 1 { "second" } else { "former" };
            assert_eq!(third.get(&format!("key{n}")).as_deref(), Some(want), "{n}");
        }
        third.close().await;
        assert_clean(&rt, &path).await;
    });
}

#[test]
fn a_former_owner_that_goes_on_harms_nobody() {
    run(async |rt, path| {
        let former = Owner::open(&path, 1, 0, true).await;
        for n in 0..200 {
            former.put_durably(&format!("key{n}"), "former").await;
        }
        // It is stopped here, and everybody believes that it is gone.
        let next = Owner::open(&path, 2, 1, false).await;
        assert_eq!(next.get("key199").as_deref(), Some("former"));
        next.put_durably("key0", "next").await;
        // It goes on, writes, fills its engine and cuts its log.
        for n in 0..2000 {
            let key = format!("late{n}").into();
            let change = Change { key, value: Some("x".repeat(200).into()) };
            let _ = former.store.commit(Batch { changes: vec![change], ..Batch::default() });
        }
        // Its engine may find that its files are gone, and its log that it does not fit.
        let _ = former.store.committed(former.store.last_transno()).await;
        next.put_durably("key1", "next").await;
        former.right.set(&former.right.lost, true);
        let _ = former.store.commit(Batch::default());
        former.store.failed().await;
        former.store.abandon().await;
        next.store.abandon().await;
        drop((former, next));
        assert_clean(&rt, &path).await;
        let third = Owner::open(&path, 3, 2, false).await;
        assert_eq!(third.get("key0").as_deref(), Some("next"));
        assert_eq!(third.get("key1").as_deref(), Some("next"));
        assert_eq!(third.get("key199").as_deref(), Some("former"));
        assert_eq!((third.get("late0"), third.get("late1999")), (None, None));
        third.close().await;
        assert_clean(&rt, &path).await;
    });
}

#[test]
fn a_take_over_that_did_not_end_is_begun_again() {
    run(async |rt, path| {
        let former = Owner::open(&path, 1, 0, true).await;
        former.put_durably("key", "former").await;
        former.close().await;
        // The second owner made itself an engine, which may be anything, and died before it had read the log.
        std::fs::create_dir(format!("{path}/kv.0000000000000002")).expect("it can be made");
        // It is restarted in its place; but it is not the one that used the directory last.
        let third = Owner::open(&path, 3, 2, true).await;
        assert_eq!(third.get("key").as_deref(), Some("former"));
        assert!(!std::path::Path::new(&format!("{path}/kv.0000000000000002")).exists());
        assert!(std::path::Path::new(&format!("{path}/kv.0000000000000003")).exists(), "it was no restart");
        third.close().await;
        assert_clean(&rt, &path).await;
    });
}

#[test]
fn nothing_is_announced_without_the_right() {
    run(async |rt, path| {
        let owner = Owner::open(&path, 1, 0, true).await;
        owner.put_durably("key", "1").await;
        let before = owner.store.last_committed();
        owner.right.set(&owner.right.suspended, true);
        let transno = owner.put("key", "2");
        let committed = rt.timeout(Limits::default().commit_after * 3, owner.store.committed(transno)).await;
        assert!(committed.is_none() && owner.store.last_committed() == before);
        owner.right.set(&owner.right.suspended, false);
        owner.store.committed(transno).await.expect("it may go on");
        owner.right.set(&owner.right.suspended, true);
        let transno = owner.put("key", "3");
        owner.right.set(&owner.right.lost, true);
        assert!(owner.store.committed(transno).await.is_err());
        assert!(owner.store.has_failed());
    });
}

/// The owner before deletes, when it goes on, segments that the new one has copied and deletes, too: that stopped the new one.
#[test]
fn who_deletes_a_segment_first_does_not_matter() {
    run(async |rt, path| {
        let never_applied = Limits { apply_after_bytes: u64::MAX, ..small() };
        let former = Owner::try_open_with(never_applied, &path, 1, 0, true).await.expect("the target opens");
        for n in 0..100 {
            former.put_durably(&format!("key{n}"), &"x".repeat(3000)).await;
        }
        let next = Owner::try_open_with(small(), &path, 2, 1, false).await.expect("the target opens");
        let of_former = |name: &std::ffi::OsString| {
            name.to_str().and_then(SegmentId::parse).is_some_and(|id| id.boot == 1)
        };
        let log = format!("{path}/log");
        let names = || std::fs::read_dir(&log).expect("it is there").flatten().map(|entry| entry.file_name());
        let gone: Vec<_> = names().filter(of_former).collect();
        assert!(gone.len() > 1, "{gone:?}");
        for name in gone {
            std::fs::remove_file(std::path::Path::new(&log).join(name)).expect("it is there");
        }
        for n in 0..100 {
            next.put_durably(&format!("key{n}"), &"y".repeat(3000)).await;
        }
        next.store.applied(next.store.last_transno()).await.expect("it goes on");
        assert_eq!(next.get("key99"), Some("y".repeat(3000)));
        next.close().await;
        former.right.set(&former.right.lost, true);
        former.store.abandon().await;
        drop(former);
        assert_clean(&rt, &path).await;
    });
}

/// It was a failure of the disk, and who took the target over gave up.
#[test]
fn a_segment_that_goes_while_the_log_is_read_is_no_failure() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt("node");
    sim.run(async {
        Store::format(&rt, "target", &label()).await?;
        let store = Store::open(&rt, "target").await?;
        let dir = store.dir().subdir(log::DIR).await?;
        let position = store.last_transno().0;
        for after in 0..200 {
            // Of a boot that did not get far: nothing of it counts.
            let name = SegmentId { boot: 2, number: 0 }.name();
            dir.create(&name).await?.allocate(0, crate::limits::BLOCK_BYTES as u64).await?;
            let (gone, told) = (Arc::new(Notify::new()), dir.clone());
            rt.spawn({
                let (rt, gone) = (rt.clone(), gone.clone());
                async move {
                    rt.sleep(Duration::from_micros(after * 10)).await;
                    told.remove(&name).await.expect("nobody else deletes it");
                    gone.notify_one();
                }
            });
            if after % 2 == 0 {
                assert_eq!(log::scan::newest(&dir).await?, 1);
            } else {
                log::scan::scan(&dir, position, 1, |_| Ok(())).await?;
            }
            gone.notified().await;
        }
        store.close().await
    })
    .expect("nothing fails");
}
