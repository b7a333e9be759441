//! OSTs that are not reached: new files keep away from them until they are.
//!
//! A create whose layout takes an OST with a broken session has somebody look after it. A restart or a failover takes seconds, and is waited
//! for; behind that the OST is left out, as one that is degraded is, in the stored order. Nothing is asked while all OSTs are reached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::wire::messages::Statfs;
use proto::{Layout, OstIndex};
use rpc::{Import, RpcError};

use super::osts::Osts;

/// How long an OST may be out of reach before new files keep away from it: a failover to another server takes less.
const GRACE: Duration = Duration::from_secs(5);
/// Stripes of a new layout that are looked at.
const LOOKED_AT: usize = 16;

/// The OSTs that are not reached.
#[derive(Default)]
pub(super) struct Away {
    /// Those that somebody looks after.
    looked_after: Mutex<BTreeSet<OstIndex>>,
    /// Those that new files keep away from.
    avoided: Mutex<BTreeSet<OstIndex>>,
}

impl Away {
    /// Those that new files keep away from.
    pub fn avoided(&self) -> Vec<OstIndex> {
        self.avoided.lock().iter().copied().collect()
    }
}

impl Osts {
    /// Has those looked after that a new file takes and that are not reached.
    pub fn look_after(self: &Arc<Self>, layout: &Layout) {
        let targets = layout.components.iter().flat_map(|component| component.targets.iter());
        for ost in targets.filter_map(|target| target.ost()).take(LOOKED_AT) {
            let Some(import) = self.import(ost).filter(|import| import.is_lost()) else { continue };
            if self.away().looked_after.lock().insert(ost) {
                self.rt().spawn(self.clone().until_reached(ost, import));
            }
        }
    }

    async fn until_reached(self: Arc<Self>, ost: OstIndex, import: Arc<Import>) {
        // Whatever it answers, it is there.
        let reached = async { !matches!(import.call(Statfs {}).await, Err(RpcError::Closed)) };
        let reached = self.stop().unless(self.rt().timeout(GRACE, reached)).await;
        if reached == Some(None) {
            tracing::warn!(%ost, "an OST is not reached: new files keep away from it until it is");
            self.avoid(ost, true).await;
            let reached = async { !matches!(import.call(Statfs {}).await, Err(RpcError::Closed)) };
            if self.stop().unless(reached).await == Some(true) {
                tracing::info!(%ost, "an OST is reached again: new files may lie there");
                self.avoid(ost, false).await;
            }
        }
        self.away().looked_after.lock().remove(&ost);
    }

    async fn avoid(&self, ost: OstIndex, is_away: bool) {
        {
            let mut avoided = self.away().avoided.lock();
            let _ = if is_away { avoided.insert(ost) } else { avoided.remove(&ost) };
        }
        if let Some(Err(error)) = self.stop().unless(self.reorder()).await {
            tracing::error!(%error, "the OSTs of the file system");
        }
    }
}
