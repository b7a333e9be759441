//! Room for frames that are being received, of all connections of a process together.
//!
//! Whoever says that a large frame follows makes this process take memory for it. That memory is taken from a bounded room, before it
//! is allocated; while there is none the connection is not read. Nobody waits in a circle: what is given back depends on the one
//! peer that is sending, never on another frame. A peer that keeps its room for long, or sends nothing into it, while others wait for
//! room, is disconnected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// The room of a process.
pub(crate) struct Room {
    permits: Arc<Semaphore>,
    units: usize,
    waiting: AtomicUsize,
    silence_max: Duration,
}

/// Room for one frame; given back when dropped.
pub(super) struct Taken(#[allow(dead_code)] Option<OwnedSemaphorePermit>);

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
        Room::new(bytes, SILENCE_MAX)
    }

    pub(super) fn new(bytes: usize, silence_max: Duration) -> Room {
        let units = bytes / UNIT_BYTES;
        Room { permits: Arc::new(Semaphore::new(units)), units, waiting: AtomicUsize::new(0), silence_max }
    }

    /// Room for a frame of `bytes`, if there is some now. A frame that is larger than all of the room takes all of it.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Taken> {
        if bytes <= SMALL_BYTES {
            return Some(Taken(None));
        }
        self.permits
            .clone()
            .try_acquire_many_owned(self.units_of(bytes))
            .ok()
            .map(|permit| Taken(Some(permit)))
    }

    /// Waits for it; those who came first get it first.
    pub(super) async fn take(&self, bytes: usize) -> Taken {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let permit = self.permits.clone().acquire_many_owned(self.units_of(bytes)).await;
        Taken(Some(permit.expect("the room is never closed")))
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
        self.silence_max
    }
}
