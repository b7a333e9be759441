//! How much clients may write before they send it: what the disk has left, shared out among them.
//!
//! A client that has more than that unsent writes through, so that `write` says ENOSPC, and not `fsync` or `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use proto::wire::header::Room;
use rt::Rt;
use store::Store;

/// How old the answer of the file system may be.
const AGE_MAX: Duration = Duration::from_millis(100);
/// Of what is left, so much is for the log and for what the store keeps of objects (bytes).
const KEPT: u64 = 64 << 20;
/// Of the rest one part in so many is shared out: what is written takes more than its bytes.
const PART: u64 = 2;

/// What a disk has left for each client, asked again when somebody wants to know and the last answer is old.
pub(super) struct Left(Arc<Inner>);

struct Inner {
    rt: Rt,
    store: Arc<Store>,
    /// A [`Room`].
    room: AtomicU32,
    /// In nanoseconds of the clock; 0 for never.
    asked_at: AtomicU64,
    asking: AtomicBool,
}

impl Left {
    pub(super) fn new(rt: &Rt, store: &Arc<Store>) -> Left {
        Left(Arc::new(Inner {
            rt: rt.clone(),
            store: store.clone(),
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
    let space = inner.store.dir().space().await;
    inner.asked_at.store(inner.rt.now().0.max(1), Ordering::Relaxed);
    // Whose space is not known may write as ever, and hears of the end later.
    let room = space.map_or(Room::default(), |space| share(space.available, clients));
    inner.room.store(room.0, Ordering::Relaxed);
    inner.asking.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

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
