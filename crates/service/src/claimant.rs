//! Has the MGS remember how far a target is, so that an older copy of it is not served (`docs/recovery.md#older`).

use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages as msg;
use proto::{Code, Nid, TargetId};
use rpc::{AskError, Hub, Role};
use store::{Store, StoreError};

use crate::{keys, replaced};

/// Time for one answer of the MGS.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the end of a target waits for it.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Pause before the MGS is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Why the MGS does not know how far the target is.
#[derive(Debug)]
pub enum Unclaimed {
    /// It refuses the target.
    Refused(Code),
    /// The target is not this process's any more, or does not work.
    Lost(StoreError),
}

/// One start of a target.
pub struct Claimant {
    hub: Hub,
    store: Arc<Store>,
    mgs: Vec<Nid>,
    nids: Vec<Nid>,
    instance: u64,
}

impl Claimant {
    /// The target in `store`, which is to be served at `nids`.
    pub fn new(hub: &Hub, store: &Arc<Store>, nids: &[Nid]) -> Claimant {
        Claimant {
            hub: hub.clone(),
            store: store.clone(),
            mgs: store.label().mgs.clone(),
            nids: nids.to_vec(),
            instance: hub.rt().random_u64(),
        }
    }

    fn claim(&self) -> msg::Claim {
        let label = self.store.label();
        msg::Claim {
            fsname: label.fsname.to_string(),
            target: label.target,
            uuid: label.uuid,
            nids: self.nids.clone(),
            instance: self.instance,
            boot: self.store.boot(),
            committed: self.store.last_committed(),
            shared: !label.service.is_empty(),
            replaces: replaced::waits(&self.store),
        }
    }

    /// Comes back when the MGS has made durable how far the target is now; it is asked until it answers. Gives the number of targets that
    /// had its index before.
    pub async fn note(&self) -> Result<u32, Unclaimed> {
        let mut warned = false;
        loop {
            let asked = self.hub.ask(TargetId::MGS, Role::Server, &self.mgs, self.claim(), PATIENCE).await;
            match asked {
                Ok(claimed) => return Ok(claimed.replaced),
                // Its disk fails: it starts again with what is durable there, or somebody mends that.
                Err(AskError::Refused(Code::Io)) => warn_once(&mut warned, self.store.label().target),
                Err(AskError::Refused(code)) if code != Code::TryAgain && code != Code::NotHere => {
                    return Err(Unclaimed::Refused(code));
                }
                Err(error) => tracing::debug!(%error, "the MGS does not answer yet"),
            }
            self.store.confirmed().await.map_err(Unclaimed::Lost)?;
            self.hub.rt().sleep(PAUSE).await;
        }
    }

    /// The same at the end, when nothing more comes; if the MGS is away, it does not matter.
    pub async fn note_last(&self) {
        let _ = self.hub.ask(TargetId::MGS, Role::Server, &self.mgs, self.claim(), LAST_PATIENCE).await;
    }
}

fn warn_once(warned: &mut bool, target: TargetId) {
    if !std::mem::replace(warned, true) {
        tracing::warn!(%target, "the MGS cannot keep that the target starts, because its disk fails: it is asked again");
    }
}

/// The start with which an older copy was accepted; 0 if there was none.
pub(crate) fn accepted(store: &Store) -> Result<u64, StoreError> {
    let Some(value) = store.get(&[keys::ACCEPTED])? else { return Ok(0) };
    let boot = value.bytes.as_ref().try_into();
    boot.map(u64::from_le_bytes)
        .map_err(|_| StoreError::Corrupt { what: "with which start an older copy was accepted".into() })
}
