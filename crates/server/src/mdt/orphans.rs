//! Inodes without a name that were open when the MDT went down.

use std::sync::Arc;
use std::time::Duration;

use proto::Fid;
use store::{Store, StoreError};

use super::{Changes, Mdt, keys};
use crate::target::keys::behind;

/// How long clients have after a restart to open again what they had open.
const GRACE: Duration = Duration::from_secs(120);
/// Keys that one scan brings.
const SCAN_COUNT: usize = 1024;

/// The orphans that the store has.
pub(super) fn load(store: &Store) -> Result<Vec<Fid>, StoreError> {
    let mut from = vec![keys::ORPHAN];
    let until = behind(&from);
    let mut orphans = Vec::new();
    loop {
        let page = store.scan(&from, &until, SCAN_COUNT)?;
        let Some((last, _)) = page.last() else { return Ok(orphans) };
        from = last.to_vec();
        from.push(0);
        orphans.extend(page.iter().filter_map(|(key, _)| keys::fid_of(key)));
    }
}

/// Takes away what nobody has opened again after the grace time.
pub(super) async fn clean(mdt: Arc<Mdt>) {
    if mdt.inherited_orphans.is_empty() || mdt.stop.unless(mdt.rt.sleep(GRACE)).await.is_none() {
        return;
    }
    for fid in &mdt.inherited_orphans {
        if mdt.store.room().await.is_err() || mdt.stop.is_stopped() {
            return;
        }
        let _inode = mdt.locks.inodes(&[*fid]);
        let mut changes = Changes::default();
        if !mdt.opens.is_open(*fid) && mdt.drop_if_nameless(&mut changes, *fid).is_ok() {
            mdt.commit_apart(changes, "an orphan");
        }
    }
}
