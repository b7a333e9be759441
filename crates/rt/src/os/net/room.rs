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
const ROOM_BYTES_MIN: u64 = 32 << 20;
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
    units: usize,
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

impl Room {
    /// The room of a process that may use `memory` bytes.
    pub(crate) fn within(memory: u64) -> Room {
        let bytes = (memory / MEMORY_PART).clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX) as usize;
        Room::new(bytes, Pace::DEFAULT)
    }

    pub(super) fn new(bytes: usize, pace: Pace) -> Room {
        let units = bytes / UNIT_BYTES;
        Room { permits: Arc::new(Semaphore::new(units)), units, waiting: AtomicUsize::new(0), pace }
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
        u32::try_from(bytes.div_ceil(UNIT_BYTES).min(self.units)).unwrap_or(u32::MAX)
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
