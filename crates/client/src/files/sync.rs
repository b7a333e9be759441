//! fsync(2).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::Result;
use crate::data::FileState;
use crate::files::OpenFiles;

impl OpenFiles {
    /// Makes `file` durable, its name and attributes too; `seen` is the failure mark of the handle that asks.
    pub(crate) async fn sync_file(&self, file: &Arc<FileState>, seen: &AtomicU64) -> Result<()> {
        self.names.data.back.flush_durably(file).await;
        let committed = self.names.data.back.commit_objects(file).await;
        file.take_failure(seen)?;
        committed?;
        if let Err(error) = self.names.meta.changes.commit_changes(file.fid).await {
            file.inner.lock().fail(error);
        }
        // Of a file that was made ahead it shows only now whether it is there.
        file.take_failure(seen)
    }
}
