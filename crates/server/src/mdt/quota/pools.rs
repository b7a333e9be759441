//! Pools come and go: what was said of one that is destroyed is forgotten, and what owners have of those that are left is asked anew.

use std::sync::Arc;

use proto::Code;
use service::code_of;
use store::{Batch, Need};

use super::Quotas;
use super::kept::Kept;
use crate::mdt::Mdt;

/// Records that one batch takes away.
const BATCH_COUNT: usize = 1024;

/// Follows the pools until the target is stopped.
pub async fn forget(mdt: Arc<Mdt>) {
    if let Err(code) = mdt.quotas.follow_pools().await {
        tracing::debug!(%code, "limits of pools that are destroyed are forgotten by the next start");
    }
}

impl Quotas {
    async fn follow_pools(&self) -> Result<(), Code> {
        self.usage.until_told().await?;
        let mut known = self.usage.table();
        loop {
            self.forget_pools().await?;
            self.usage.until_not(&known).await?;
            let now = self.usage.table();
            if !now.has_pools_of(&known) {
                // What is in a pool from now on may have been written unasked.
                self.space.ask_again(|_| true);
            }
            known = now;
        }
    }

    /// Forgets limits of pools that are no more. What a crash leaves of them is forgotten by the next start.
    async fn forget_pools(&self) -> Result<(), Code> {
        // While clients replay, the target draws no transno of its own.
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        let pools = self.usage.table();
        if !pools.is_told {
            return Ok(());
        }
        let gone = self.table.lock().forget_pools(|pool| pools.pool(pool).is_some());
        for some in gone.chunks(BATCH_COUNT) {
            self.store.room(Need::Release).await.map_err(|error| code_of(&error))?;
            // A new pool of that name may have been given the same meanwhile.
            let table = self.table.lock();
            let changes = some.iter().filter(|kept| !table.has(kept)).map(Kept::remove).collect();
            self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))?;
        }
        Ok(())
    }
}
