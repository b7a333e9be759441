//! Before maintenance: the client gives back everything that it keeps, so that nobody ever waits for it.

use std::sync::Arc;
use std::time::Duration;

use proto::Fid;
use proto::wire::messages::{DRAIN_FILES_MAX, DrainDone};
use rt::BoxFuture;

use crate::{Result, Shared};

/// How long the end of the lease may take: it is told to the MGS, who may be away.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(2);

impl Shared {
    pub(crate) fn drain(self: &Arc<Self>) -> BoxFuture<'_, Result<DrainDone>> {
        Box::pin(async move {
            // One at a time: the targets ask each for itself.
            let Ok(_turn) = self.draining.acquire().await else { return Err(crate::Error::Closed) };
            tracing::info!("an operator has this client drained: what it keeps is given back");
            self.give_all_back().await?;
            Ok(self.left_after_drain())
        })
    }

    /// The same without the figures: nobody waits for this client afterwards, even if it cannot say goodbye.
    pub(crate) async fn give_all_back(self: &Arc<Self>) -> Result<()> {
        self.names.ahead.leave_all().await;
        self.sync_all().await?;
        self.names.sizes.close_pending();
        self.names.sizes.closer.drained().await;
        self.names.data.locks.leaver.leave_these(self.names.data.locks.table.all()).await;
        self.names.meta.room.give_up_inodes().await;
        // The closes were changes, too.
        self.sync_all().await?;
        self.lessee.end_lease(RELEASE_TIME_MAX).await;
        Ok(())
    }

    fn left_after_drain(&self) -> DrainDone {
        let handles = self.files.handles.all();
        let mut files: Vec<Fid> =
            handles.iter().filter_map(|handle| Some(self.files.handles.get(*handle).ok()?.fid)).collect();
        files.sort_unstable();
        files.dedup();
        files.truncate(DRAIN_FILES_MAX);
        let locks = self.names.data.locks.table.held().len() + self.names.meta.inodes.held().len();
        DrainDone {
            unsent_bytes: self.lost().bytes,
            locks: u32::try_from(locks).unwrap_or(u32::MAX),
            open_count: u32::try_from(handles.len()).unwrap_or(u32::MAX),
            open_files: files,
        }
    }
}
