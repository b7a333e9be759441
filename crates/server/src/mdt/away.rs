//! OSTs that are not reached: new files keep away from them until they are.
//!
//! A create whose layout takes an OST with a broken session has somebody look after it. A restart or a failover takes seconds, and is waited
//! for; behind that the OST is left out, as one that is degraded is, in the stored order. Nothing is asked while all OSTs are reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::layout::LayoutHint;
use proto::wire::messages::Statfs;
use proto::{Code, Layout, OstIndex};
use rpc::{Import, RpcError};
use rt::wait::join_all;

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
    /// A new file has this layout: has those of its OSTs looked after that are not reached, and the room of all looked at now and then.
    pub fn look_after(self: &Arc<Self>, layout: &Layout) {
        self.look_at_room();
        let targets = layout.components.iter().flat_map(|component| component.targets.iter());
        for ost in targets.filter_map(|target| target.ost()).take(LOOKED_AT) {
            let Some(import) = self.import(ost).filter(|import| import.is_lost()) else { continue };
            if self.choice.away.looked_after.lock().insert(ost) {
                self.rt().spawn(self.clone().until_reached(ost, import));
            }
        }
    }

    /// Who names OSTs gets those and no others: refused with Inactive if one of them is not reached after the time that a restart or a
    /// failover has.
    pub async fn named_are_reached(&self, hint: &LayoutHint) -> Result<(), Code> {
        let named = hint.osts.iter().chain(hint.parts.iter().flat_map(|part| &part.osts));
        let lost = named.filter_map(|ost| Some((*ost, self.import(*ost).filter(|import| import.is_lost())?)));
        let lost: BTreeMap<OstIndex, Arc<Import>> = lost.collect();
        if lost.keys().any(|ost| self.choice.away.avoided.lock().contains(ost)) {
            return Err(Code::Inactive);
        }
        let look = lost.values().map(|import| self.rt().timeout(GRACE, is_reached(import)));
        let looks = self.stop().unless(join_all(look)).await.ok_or(Code::TryAgain)?;
        if looks.contains(&None) { Err(Code::Inactive) } else { Ok(()) }
    }

    async fn until_reached(self: Arc<Self>, ost: OstIndex, import: Arc<Import>) {
        let reached = self.stop().unless(self.rt().timeout(GRACE, is_reached(&import))).await;
        if reached == Some(None) {
            tracing::warn!(%ost, "an OST is not reached: new files keep away from it until it is");
            self.choice.away.avoided.lock().insert(ost);
            self.reorder_now().await;
            if self.stop().unless(is_reached(&import)).await == Some(true) {
                tracing::info!(%ost, "an OST is reached again: new files may lie there");
                self.choice.away.avoided.lock().remove(&ost);
                self.reorder_now().await;
            }
        }
        self.choice.away.looked_after.lock().remove(&ost);
    }

    /// New files lie where the OSTs are that are not avoided.
    async fn reorder_now(&self) {
        if let Some(Err(error)) = self.stop().unless(self.reorder()).await {
            tracing::error!(%error, "the OSTs of the file system");
        }
    }
}

/// Waits until the target answers; false if this process ends first. Whatever it answers, it is there.
async fn is_reached(import: &Import) -> bool {
    !matches!(import.call(Statfs {}).await, Err(RpcError::Closed))
}
