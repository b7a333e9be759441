//! Bounds of what is not sent: whoever has no room waits, and has others sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::DataTarget;

use super::room::OstRoom;
use crate::data::WriteBack;
use crate::{Error, Result};

/// With less than this part of the bound on its way, a writer without room sends what is not full.
const IN_FLIGHT_PART: u64 = 8;
/// Most that it sends itself before it looks again, in bytes: what is sent to a target in the same process is stored by whoever sends it.
const SENT_BYTES_MAX: u64 = 4 << 20;
/// How often a writer without room looks again.
const PRESSURE_TICK: Duration = Duration::from_millis(20);

impl WriteBack {
    /// Takes `bytes` from the bounds of dirty data for an OST; waits while there is no room.
    pub(crate) async fn reserve(self: &Arc<Self>, target: DataTarget, bytes: u32) -> Result<()> {
        let room = self.rooms.of(target);
        if self.rooms.memory().is_short() {
            self.until_memory(target, &room, u64::from(bytes)).await?;
        }
        if self.rooms.try_take(&room, bytes) {
            return Ok(());
        }
        let mut taking = std::pin::pin!(self.rooms.take(&room, bytes));
        let mut has_waited = false;
        loop {
            self.press(target, &room, u64::from(bytes), has_waited);
            has_waited = true;
            if let Some(taken) = self.rt.timeout(PRESSURE_TICK, taking.as_mut()).await {
                return taken;
            }
        }
    }

    /// The process holds more than it should: what can go at once goes, and then this waits until less is written. Never for memory
    /// that others hold.
    async fn until_memory(self: &Arc<Self>, target: DataTarget, room: &OstRoom, bytes: u64) -> Result<()> {
        self.clean.fit();
        self.files.memory.give_back();
        while self.rooms.is_short() {
            if self.rooms.is_closed() {
                return Err(Error::Closed);
            }
            self.press(target, room, bytes, true);
            self.rt.sleep(PRESSURE_TICK).await;
        }
        Ok(())
    }

    /// Somebody waits to write `bytes` to an OST. Chunks that are not full are sent only if too little is on its way, and from the oldest
    /// on: small writes would otherwise never be merged once a bound is reached. What is not durable is made so.
    fn press(self: &Arc<Self>, target: DataTarget, room: &OstRoom, bytes: u64, has_waited: bool) {
        let (all, kept) = (self.rooms.dirty(), self.rooms.kept());
        let is_short = self.rooms.is_short();
        let is_kept_full = kept.used + bytes > kept.max;
        if is_kept_full || is_short {
            for target in self.targets.all() {
                target.commit_soon();
            }
        }
        // A commit gives the room of what was sent back: nothing goes early for that, unless most was not sent, or the commit takes long.
        let is_waiting = has_waited || all.used > self.rooms.unstable();
        let is_full = is_short || all.used + bytes > all.max || is_kept_full && is_waiting;
        let enough = all.max.min(kept.max) / IN_FLIGHT_PART;
        let is_little = self.rooms.in_flight() < enough;
        if is_full && is_little {
            self.send_some(if is_short { u64::MAX } else { enough.min(SENT_BYTES_MAX) }, |_| true);
        }
        // Its own may be full beside it, and what is on its way may be for one that does not answer.
        let enough = room.dirty.max() / IN_FLIGHT_PART;
        let is_own_wanted = room.dirty.used() + bytes > room.dirty.max() || is_full && !is_little;
        if is_own_wanted && room.in_flight.load(Ordering::Relaxed) < enough {
            self.send_some(enough.min(SENT_BYTES_MAX), |of| of == target);
        }
    }

    /// Sends `bytes`, from what each file wrote first on. Not only what just lacks: small chunks would be looked for one by one.
    fn send_some(self: &Arc<Self>, bytes: u64, meant: impl Fn(DataTarget) -> bool) {
        let mut left = bytes;
        for file in self.dirty.files() {
            left = left.saturating_sub(self.send_oldest(&file, left, &meant));
            if left == 0 {
                return;
            }
        }
    }

    /// Sends what is not sent, and has all of it made durable.
    pub(crate) fn relieve(self: &Arc<Self>) {
        for file in self.dirty.files() {
            self.send_older(&file, rt::Time(u64::MAX));
        }
        for target in self.targets.all() {
            target.commit_soon();
        }
    }
}
