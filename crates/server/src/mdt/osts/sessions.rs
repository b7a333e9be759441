//! The sessions of an MDT with the OSTs.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{ClientId, Code, Nid, OstIndex, TargetId};
use rpc::{Hub, Import, Role};

use super::table::Table;

/// What an MDT has with the OSTs.
pub(super) struct OstSessions {
    hub: Hub,
    client: ClientId,
    /// Those that were told, or are being told, what the lost one had whose place they took.
    told_lost: Mutex<BTreeSet<ClientId>>,
}

impl OstSessions {
    /// Those of the MDT that is the OSTs' `client`.
    pub fn new(hub: Hub, client: ClientId) -> OstSessions {
        OstSessions { hub, client, told_lost: Mutex::default() }
    }

    /// The session with an OST that is reached at `nids`.
    pub fn with(&self, ost: OstIndex, nids: Vec<Nid>) -> Arc<Import> {
        self.hub.import(TargetId::ost(ost), self.client, Role::Server, nids)
    }

    /// Nobody asks an OST that was taken out, until another one has its index.
    pub fn bar_removed(&self, before: &Table, now: &Table) {
        let bar = |ost: OstIndex, nids: &[Nid], why| self.with(ost, nids.to_vec()).bar(why);
        let gone = before.nids.iter().filter(|(ost, _)| now.removed.contains(ost));
        gone.for_each(|(ost, nids)| bar(*ost, nids, Some(Code::Removed)));
        let back = now.nids.iter().filter(|(ost, _)| before.removed.contains(ost));
        back.for_each(|(ost, nids)| bar(*ost, nids, None));
    }

    /// A target is owned by the server that has it since `epoch`.
    pub fn owned_by(&self, target: TargetId, epoch: u64) {
        self.hub.owned_by(target, epoch);
    }

    /// Whether an OST that took the place of a lost one has to be told of that: nobody does it yet.
    pub fn begin_to_tell(&self, uuid: ClientId) -> bool {
        self.told_lost.lock().insert(uuid)
    }

    /// It was not told.
    pub fn is_untold(&self, uuid: ClientId) {
        self.told_lost.lock().remove(&uuid);
    }
}
