//! Inodes without a name that nobody has open after a restart.
//!
//! What is open for reading only clients know. So while they replay and state again what they have, every inode that loses its last name
//! stays; then those that nobody has open go.

use std::sync::Arc;
use std::time::Duration;

use proto::{Code, Fid};
use service::code_of;
use service::keys::behind;
use store::Need;

use super::{Mdt, keys};

/// A client of this process is not waited for, and comes back within this time.
const LOCAL_GRACE: Duration = Duration::from_secs(10);
/// Keys that one scan brings.
const SCAN_COUNT: usize = 1024;

/// Takes away what nobody has opened again.
pub(super) async fn clean(mdt: Arc<Mdt>) {
    let all_are_back = async {
        mdt.recovery.until_over().await;
        mdt.rt.sleep(LOCAL_GRACE).await;
    };
    if mdt.stop.unless(all_are_back).await.is_none() {
        return;
    }
    let mut from = vec![keys::ORPHAN];
    loop {
        let page = match mdt.nameless(&mut from) {
            Ok(page) => page,
            Err(code) => {
                return tracing::error!(%code, "files that nobody has open stay until the next restart");
            }
        };
        if page.is_empty() {
            return;
        }
        for fid in page {
            if mdt.store.room(Need::Release).await.is_err() || mdt.stop.is_stopped() {
                return;
            }
            mdt.store.look_up_time().await;
            if let Err(code) = mdt.drop_unopened(fid, "an orphan", Mdt::drop_if_nameless) {
                tracing::error!(%code, %fid, "a file that nobody has open stays until the next restart");
            }
        }
    }
}

impl Mdt {
    /// Some inodes without a name, and where the next ones begin.
    fn nameless(&self, from: &mut Vec<u8>) -> Result<Vec<Fid>, Code> {
        let page =
            self.store.scan(from, &behind(&[keys::ORPHAN]), SCAN_COUNT).map_err(|error| code_of(&error))?;
        if let Some((last, _)) = page.last() {
            *from = last.to_vec();
            from.push(0);
        }
        Ok(page.iter().filter_map(|(key, _)| keys::fid_of(key)).collect())
    }
}
