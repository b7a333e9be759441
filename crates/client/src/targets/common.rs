//! What the sessions of a client have in common, and how they are made.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use proto::{ClientId, DataTarget, Nid, TargetId};
use rpc::{Callbacks, Hub, Role};

use super::SignOfLife;
use super::counting::Counting;
use super::requests::Requests;
use super::target::Target;
use crate::Limits;
use crate::order::{LEAF, Mutex};

/// Told of the bytes that a session keeps until they are durable: those of before, and those of now.
pub(crate) type Retained = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// How many targets may have too little space for what this client may have unsent.
pub(crate) struct Shortage {
    /// More than that is never unsent (bytes).
    pub(super) plenty: AtomicU64,
    /// How many.
    pub(super) count: AtomicUsize,
}

/// What the sessions of a client have in common.
pub(super) struct Common {
    pub(super) hub: Hub,
    pub(super) client: ClientId,
    pub(super) rpcs_in_flight_max: u32,
    pub(super) counting: Arc<Counting>,
    pub(super) shortage: Arc<Shortage>,
    pub(super) requests: Arc<Requests>,
    lease: Arc<dyn SignOfLife>,
    /// Told of what an OST has taken and is not durable there: bytes before, and now.
    retained: Retained,
    /// OSTs that were used since somebody looked; each is here once at most.
    pub(super) used: Arc<Mutex<LEAF, Vec<DataTarget>>>,
    /// Whom targets call back.
    pub(super) called_back: OnceLock<Arc<dyn Callbacks>>,
}

impl Common {
    /// No session is made yet.
    pub(super) fn new(
        hub: &Hub,
        client: ClientId,
        limits: &Limits,
        lease: Arc<dyn SignOfLife>,
        retained: Retained,
    ) -> Common {
        let plenty = AtomicU64::new(limits.dirty_bytes_max);
        Common {
            hub: hub.clone(),
            client,
            rpcs_in_flight_max: limits.rpcs_in_flight_max,
            counting: Arc::new(Counting::new()),
            shortage: Arc::new(Shortage { plenty, count: AtomicUsize::new(0) }),
            requests: Arc::new(Requests::new()),
            lease,
            retained,
            used: Arc::default(),
            called_back: OnceLock::new(),
        }
    }

    /// Makes the session with the MGS, which is at `nids`: nothing is held of it.
    pub(super) fn mgs(&self, nids: Vec<Nid>) -> Target {
        let import = self.hub.import(TargetId::MGS, self.client, Role::Client, nids);
        Target::new(self, import, None, None)
    }

    /// Makes the session with a target, which is at `nids`.
    pub(super) fn make(&self, id: TargetId, nids: Vec<Nid>) -> Target {
        let import = self.hub.import(id, self.client, Role::Client, nids);
        if let Some(called_back) = self.called_back.get() {
            import.set_callbacks(called_back.clone());
        }
        import.set_retaining(self.retained.clone());
        let notes = DataTarget::try_from(id).ok().map(|target| (target, self.used.clone()));
        Target::new(self, import, Some(self.lease.clone()), notes)
    }
}
