//! How much clients may write before they send it: what the target has left for new data, shared out among them.
//!
//! A client that has more than that unsent writes through, so that `write` says ENOSPC, and not `fsync` or `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use proto::wire::header::Room;
use rt::Rt;
use store::{Objects, Store};

/// How old what is told may be.
const AGE_MAX: Duration = Duration::from_millis(100);
/// Of what is left, so much may be written before it is asked again (bytes).
const KEPT: u64 = 64 << 20;
/// Of the rest one part in so many is shared out: what is written takes more than its bytes.
const PART: u64 = 2;

/// What a target has left for each client, asked again when somebody wants to know and the last answer is old.
pub(super) struct Left(Arc<Inner>);

struct Inner {
    rt: Rt,
    store: Arc<Store>,
    objects: Arc<Objects>,
    /// A [`Room`].
    room: AtomicU32,
    /// In nanoseconds of the clock; 0 for never.
    asked_at: AtomicU64,
    asking: AtomicBool,
}

impl Left {
    pub(super) fn new(rt: &Rt, store: &Arc<Store>, objects: &Arc<Objects>) -> Left {
        Left(Arc::new(Inner {
            rt: rt.clone(),
            store: store.clone(),
            objects: objects.clone(),
            room: AtomicU32::new(0),
            asked_at: AtomicU64::new(0),
            asking: AtomicBool::new(false),
        }))
    }

    /// The room of each client; `count` says how many there are.
    pub(super) fn room(&self, count: impl FnOnce() -> usize) -> Room {
        let inner = &self.0;
        let asked_at = inner.asked_at.load(Ordering::Relaxed);
        let is_old = u128::from(inner.rt.now().0.saturating_sub(asked_at)) >= AGE_MAX.as_nanos();
        if (asked_at == 0 || is_old) && !inner.asking.swap(true, Ordering::AcqRel) {
            inner.rt.run_in_place(ask(inner.clone(), count()));
        }
        Room(inner.room.load(Ordering::Relaxed))
    }
}

fn share(bytes: u64, clients: usize) -> Room {
    Room::of(bytes.saturating_sub(KEPT) / PART / clients.max(1) as u64)
}

async fn ask(inner: Arc<Inner>, clients: usize) {
    let space = inner.objects.space().await;
    inner.asked_at.store(inner.rt.now().0.max(1), Ordering::Relaxed);
    // Whose space is not known may write as ever, and hears of the end later.
    let room = space.map_or(Room::default(), |space| {
        // What is free in data files is of no use without a place in the log.
        let left = if inner.store.is_full() { 0 } else { space.bytes_available };
        share(left, clients)
    });
    inner.room.store(room.0, Ordering::Relaxed);
    inner.asking.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use proto::{ClientId, Fid, ObjectId, TargetId, Timestamp};
    use rt::sim::{Options, Sim};
    use store::object::Extra;
    use store::{Label, StoreError};

    use super::*;

    const NODE: &str = "oss";
    const PATH: &str = "ost";
    const MIB: u64 = 1 << 20;

    /// Runs `test` with a target on a disk of 8 GiB.
    fn check(test: impl AsyncFnOnce(Rt, Arc<Store>, Arc<Objects>) -> Result<(), StoreError>) {
        let sim = Sim::new(Options::seed(1));
        let rt = sim.rt(NODE);
        sim.set_capacity(NODE, 8 << 30);
        sim.run(async {
            let fsname = "weft".parse().expect("a file system's name");
            let target = TargetId::ost(0);
            let label = Label { fsname, target, uuid: ClientId(7), mgs: vec![], service: vec![] };
            Store::format(&rt, PATH, &label).await?;
            let store = Store::open(&rt, PATH).await?;
            let objects = Objects::open(&rt, store.clone()).await?;
            test(rt.clone(), store.clone(), objects.clone()).await?;
            objects.close().await?;
            store.close().await
        })
        .expect("no operation fails");
    }

    /// What is told to the only client when it is asked anew.
    async fn told(rt: &Rt, left: &Left) -> u64 {
        rt.sleep(AGE_MAX).await;
        left.room(|| 1);
        rt.sleep(AGE_MAX / 10).await;
        left.room(|| 1).bytes().expect("it is told")
    }

    async fn take(objects: &Objects, oid: u32, bytes: u64) -> Result<(), StoreError> {
        let object = ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }, stripe: 0 };
        let time = Timestamp::default();
        objects.punch(object, bytes, u64::MAX, time, None, Extra::default()).await?;
        objects.allocate(object, 0..bytes, time, None, Extra::default()).await?;
        Ok(())
    }

    /// Objects leave more of a large disk to the log and the engine than was kept here: clients of a full target went on to write ahead,
    /// and only fsync or close said that there was no space.
    #[test]
    fn what_is_told_can_be_written() {
        check(async |rt, store, objects| {
            let left = Left::new(&rt, &store, &objects);
            let mut oid = 1;
            loop {
                let bytes = told(&rt, &left).await;
                if bytes == 0 {
                    break;
                }
                take(&objects, oid, bytes).await?;
                oid += 1;
            }
            assert!(oid > 5, "more than nothing is told of an empty disk");
            while take(&objects, oid, MIB).await.is_ok() {
                oid += 1;
            }
            assert!(!store.is_full(), "there is room for what frees space, and more");
            assert_eq!(told(&rt, &left).await, 0);
            Ok(())
        });
    }

    #[test]
    fn nothing_is_told_when_there_is_no_room_in_the_log() {
        check(async |rt, store, objects| {
            let left = Left::new(&rt, &store, &objects);
            assert!(told(&rt, &left).await > 1 << 30);
            let available = store.dir().space().await?.available;
            let other = store.dir().create("other").await?;
            other.allocate(0, available - MIB).await?;
            // It has looked a moment ago.
            rt.sleep(Duration::from_secs(2)).await;
            store.look_for_space();
            rt.sleep(AGE_MAX).await;
            let available = objects.space().await?.bytes_available;
            assert!(store.is_full() && available > 2 * KEPT, "{available} in files that were made");
            assert_eq!(told(&rt, &left).await, 0);
            Ok(())
        });
    }

    #[test]
    fn what_is_left_is_shared_out() {
        assert_eq!(share(0, 1).bytes(), Some(0));
        assert_eq!(share(KEPT, 3).bytes(), Some(0));
        assert_eq!(share(KEPT + (8 << 20), 0).bytes(), Some(4 << 20));
        assert_eq!(share(KEPT + (8 << 20), 2).bytes(), Some(2 << 20));
        assert_eq!(share(u64::MAX, 1), Room(u32::MAX));
        assert_eq!(Room::default().bytes(), None);
    }
}
