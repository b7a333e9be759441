//! Takes records away that no reader needs.

use std::sync::Arc;

use bytes::Bytes;
use proto::Code;
use service::code_of;
use store::{Batch, Change, Need};

use super::{Changelog, SCAN_COUNT};
use crate::mdt::{Mdt, keys};

/// Removes records whenever readers have cleared some, until the target stops.
pub async fn run(mdt: Arc<Mdt>) {
    let changelog = &mdt.changelog;
    if changelog.stop.unless(changelog.recovery.until_over()).await.is_none() {
        return;
    }
    loop {
        while !changelog.stop.is_stopped() {
            match changelog.remove_some().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(code) => {
                    tracing::error!(%code, "records of the changelog stay until some are cleared again");
                    break;
                }
            }
        }
        if changelog.stop.unless(changelog.cleared.notified()).await.is_none() {
            return;
        }
    }
}

impl Changelog {
    /// Removes the oldest records, if there are some that nobody needs; says whether there were.
    async fn remove_some(&self) -> Result<bool, Code> {
        let (oldest, until) = {
            let state = self.state.lock();
            (state.kept.oldest, state.needless())
        };
        if oldest > until {
            return Ok(false);
        }
        self.store.room(Need::Release).await.map_err(|error| code_of(&error))?;
        let end = keys::changelog(until + 1);
        let found =
            self.store.scan(&keys::changelog(oldest), &end, SCAN_COUNT).map_err(|error| code_of(&error))?;
        let keys: Vec<Bytes> = found.into_iter().map(|(key, _)| key).collect();
        let next = match keys.last().filter(|_| keys.len() == SCAN_COUNT) {
            Some(last) => keys::changelog_of(last).ok_or(Code::Corrupt)? + 1,
            None => until + 1,
        };
        let mut changes: Vec<Change> = keys.into_iter().map(|key| Change { key, value: None }).collect();
        let mut state = self.state.lock();
        let before = state.kept;
        state.kept.oldest = next;
        changes.push(state.change());
        let committed = self.store.commit(Batch { changes, ..Batch::default() });
        if committed.is_err() {
            state.kept = before;
        }
        committed.map(|_| true).map_err(|error| code_of(&error))
    }
}
