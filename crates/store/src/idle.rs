//! What the engine's task does besides: it sees to the engine, and while the disk is short of space it has it give back what was removed.
//! Rules: `docs/disk.md#room`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::{Engine, Space};
use crate::error::StoreError;
use crate::shared::{BEHIND_WAIT, Shared};

/// How often the engine is asked whether it still works.
const CHECK_AFTER: Duration = Duration::from_secs(1);
/// The same once it had nothing to do and nothing changed since: a store that rests lets its machine rest.
const REST_AFTER: Duration = Duration::from_secs(60);
/// How long nothing has to come before what was removed is merged away, while there is no room.
const TIDY_AFTER: Duration = Duration::from_millis(100);

/// What the task remembers from one wait to the next.
#[derive(Default)]
pub(crate) struct Idle {
    /// The newest change when the engine had nothing more to give back.
    tidied: Option<u64>,
    /// The newest change when the engine was looked at and left alone.
    left_alone: Option<u64>,
}

impl Idle {
    /// Waits until there may be something to apply.
    pub async fn wait(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let before = newest(shared);
        let is_full = shared.is_full();
        let woken = shared.apply_wake.notified();
        if !is_full && !shared.log_is_cut {
            // In a simulation the engine neither fails nor has anything to give back.
            woken.await;
            return Ok(());
        }
        let after = match is_full {
            true => TIDY_AFTER,
            false if self.left_alone == Some(before) => REST_AFTER,
            false => CHECK_AFTER,
        };
        if shared.rt.timeout(after, woken).await.is_some() {
            return Ok(());
        }
        let engine = shared.view.engine()?;
        engine.check()?;
        if is_full {
            shared.look_for_space();
        }
        let is_quiet = newest(shared) == before;
        let is_done = self.tidied == Some(before) || !is_quiet && !is_full;
        if is_done || !is_full && !is_worth_it(shared, engine.as_ref()).await? {
            self.left_alone = Some(before);
            return Ok(());
        }
        // What the log has not got yet comes after this.
        if shared.last_committed() < before {
            return Ok(());
        }
        if is_quiet && shared.unapplied.load(Ordering::Relaxed) > 0 {
            // What removes something frees nothing as long as the engine has not got it.
            shared.backlog.lock().flush = true;
            return Ok(());
        }
        while self.tidy(shared, &engine).await? {
            if newest(shared) != before || shared.is_ending() {
                return Ok(());
            }
        }
        self.tidied = Some(before);
        Ok(())
    }

    /// The engine got something. Whoever adds while there is little room should find what was removed gone, and may never pause.
    pub async fn applied(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        if !shared.log_is_cut || shared.is_ending() {
            return Ok(());
        }
        let engine = shared.view.engine()?;
        if shared.is_full() || is_worth_it(shared, engine.as_ref()).await? {
            self.tidy(shared, &engine).await?;
        }
        Ok(())
    }

    /// One step; whether there may be more to do.
    async fn tidy(&self, shared: &Arc<Shared>, engine: &Arc<dyn Engine>) -> Result<bool, StoreError> {
        shared.confirmed().await?;
        // It may be at the same tables already.
        while engine.is_busy() && !shared.is_ending() {
            engine.check()?;
            shared.rt.sleep(BEHIND_WAIT).await;
        }
        let room = shared.reserve.have(shared.reserve.for_engine()).await?;
        if shared.is_full() {
            // What somebody reads as it was cannot be given back.
            shared.view.snapshots.end();
        }
        let engine = engine.clone();
        let done = shared.rt.offload(move || engine.tidy(room)).await?;
        shared.look().await?;
        Ok(done)
    }
}

/// The newest change.
fn newest(shared: &Shared) -> u64 {
    shared.last_transno.load(Ordering::Acquire)
}

/// Whether so much could be given back that it is worth it, though there is room.
async fn is_worth_it(shared: &Shared, engine: &dyn Engine) -> Result<bool, StoreError> {
    let Space { all, stale } = engine.space();
    // If they are half of all, no more than as much is written again.
    if stale >= shared.limits.engine_stale_max && stale >= all / 2 {
        return Ok(true);
    }
    Ok(stale > 0 && stale >= shared.reserve.available().await? / 2)
}
