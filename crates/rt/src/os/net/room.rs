//! Room for frames that are being received, of all connections of a process together.
//!
//! Whoever says that a large frame follows makes this process take memory for it. That memory is taken from a bounded room, before it
//! is allocated; while there is none the connection is not read. Nobody waits in a circle: what is given back depends on the one
//! peer that is sending, never on another frame. While others wait for room, a peer is disconnected that sends nothing of a frame for a
//! while, or that has had more time for it than its size deserves: a byte now and then does not keep room for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Frames of at most so many bytes take no room: a connection has a buffer of that size in any case.
const SMALL_BYTES: usize = 16 << 10;
/// Bytes of one permit.
const UNIT_BYTES: usize = 4 << 10;
/// The part of the process's memory that frames which are being received may take.
const MEMORY_PART: u64 = 16;
/// The least, whatever the memory, and the most, in bytes.
const ROOM_BYTES_MIN: u64 = 8 << 20;
const ROOM_BYTES_MAX: u64 = 1 << 30;
/// How long a peer may send nothing of a frame while others wait for room.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long any frame may take while others wait for room, whatever its size.
const FRAME_TIME_MIN: Duration = Duration::from_secs(30);
/// Bytes that have to come in a second besides that.
const RATE_MIN: u64 = 64 << 10;

/// The room of a process.
pub(crate) struct Room {
    permits: Arc<Semaphore>,
    units: AtomicUsize,
    waiting: AtomicUsize,
    pace: Pace,
}

/// How long a peer that keeps others waiting for room may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Without sending anything of a frame.
    pub silence_max: Duration,
    /// For a whole frame, whatever its size.
    pub frame_time_min: Duration,
    /// Bytes that have to come in a second besides that.
    pub rate_min: u64,
}

impl Pace {
    const DEFAULT: Pace =
        Pace { silence_max: SILENCE_MAX, frame_time_min: FRAME_TIME_MIN, rate_min: RATE_MIN };

    /// For a frame of `bytes`.
    fn of_frame(&self, bytes: usize) -> Duration {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / self.rate_min.max(1);
        self.frame_time_min + Duration::from_nanos(nanos)
    }
}

/// Room for one frame; given back when dropped.
pub(super) struct Taken {
    _permit: Option<OwnedSemaphorePermit>,
    /// When it should be whole.
    due: Instant,
}

impl Taken {
    fn new(permit: Option<OwnedSemaphorePermit>, time: Duration) -> Taken {
        Taken { _permit: permit, due: Instant::now() + time }
    }

    /// Whether the frame has had the time that its size deserves.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.due
    }
}

/// One who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of a process that may use `memory` bytes.
fn bytes_within(memory: u64) -> usize {
    (memory / MEMORY_PART).clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX) as usize
}

impl Room {
    /// The room of a process that may use `memory` bytes.
    pub(crate) fn within(memory: u64) -> Room {
        Room::new(bytes_within(memory), Pace::DEFAULT)
    }

    pub(super) fn new(bytes: usize, pace: Pace) -> Room {
        let units = bytes / UNIT_BYTES;
        let permits = Arc::new(Semaphore::new(units));
        Room { permits, units: AtomicUsize::new(units), waiting: AtomicUsize::new(0), pace }
    }

    /// Becomes the room of a process that may use `memory` bytes. What is too much and taken goes when it is given back.
    pub(crate) async fn fit(&self, memory: u64) {
        let units = bytes_within(memory) / UNIT_BYTES;
        let before = self.units.swap(units, Ordering::Relaxed);
        match units.checked_sub(before) {
            Some(more) => self.permits.add_permits(more),
            // It has its turn after those who wait: they were promised that there is enough.
            None => {
                let less = u32::try_from(before - units).unwrap_or(u32::MAX);
                self.permits.acquire_many(less).await.expect("the room is never closed").forget();
            }
        }
    }

    /// Room for a frame of `bytes`, if there is some now. A frame that is larger than all of the room takes all of it.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Taken> {
        if bytes <= SMALL_BYTES {
            return Some(Taken::new(None, self.pace.of_frame(bytes)));
        }
        self.permits
            .clone()
            .try_acquire_many_owned(self.units_of(bytes))
            .ok()
            .map(|permit| Taken::new(Some(permit), self.pace.of_frame(bytes)))
    }

    /// Waits for it; those who came first get it first.
    pub(super) async fn take(&self, bytes: usize) -> Taken {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let permit = self.permits.clone().acquire_many_owned(self.units_of(bytes)).await;
        Taken::new(Some(permit.expect("the room is never closed")), self.pace.of_frame(bytes))
    }

    fn units_of(&self, bytes: usize) -> u32 {
        let units = self.units.load(Ordering::Relaxed);
        u32::try_from(bytes.div_ceil(UNIT_BYTES).min(units)).unwrap_or(u32::MAX)
    }

    /// Whether somebody waits for room.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How long a peer may send nothing of a frame while somebody does.
    pub(super) fn silence_max(&self) -> Duration {
        self.pace.silence_max
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_room_becomes_smaller_when_what_is_taken_comes_back() {
        let room = Room::within(1 << 30);
        let frame = room.try_take(60 << 20).expect("it is 64 MiB");
        {
            let mut fitting = pin!(room.fit(256 << 20));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(fitting.as_mut().poll(&mut cx).is_pending(), "it is taken");
            drop(frame);
            assert_eq!(fitting.as_mut().poll(&mut cx), Poll::Ready(()));
        }
        let all = room.try_take(60 << 20).expect("a frame that is larger takes all");
        assert!(room.try_take(SMALL_BYTES + 1).is_none());
        drop(all);
        assert_eq!(pin!(room.fit(1 << 30)).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
        let _first = room.try_take(60 << 20).expect("it is 64 MiB again");
        assert!(room.try_take(3 << 20).is_some() && room.try_take(5 << 20).is_none());
    }
}
