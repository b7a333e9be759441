//! The roles: management server, metadata target, object storage target.
//!
//! [`start`] opens the target in a directory, whatever its kind, and serves it in a hub. It is called the same way
//! by the binary and by the simulator.

mod accept;
mod accounts;
mod check;
mod data;
mod given;
mod mdt;
mod mgs;
mod ost;
pub mod owner;
mod replace;
mod settings;
#[cfg(test)]
mod tests;

use rt::{BoxFuture, Rt};
use std::sync::Arc;
use std::time::Duration;

use proto::limits::NIDS_MAX;
use proto::wire::messages::Register;
use proto::{ClientId, Code, Nid, TargetId, TargetKind};
use rpc::{Goodbye, Hub, Import, Role, RpcError};
use rt::wait::{Either, race};
use service::{Claimant, Handler, Start, Target, Unclaimed, Watch};
use store::{Label, Owned, Store, StoreError};

pub use accept::{Accepted, accept_older};
pub use check::check_target;
pub use data::TokenCounts;
pub use given::give as give_parameters;
pub use mdt::LockCounts;
pub use replace::replace_lost;
pub use service::{Held, Holding};

/// How to serve a target.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the target.
    pub path: String,
    /// Where this process can be reached; told to the MGS.
    pub nids: Vec<Nid>,
    /// Name of the server (OSS) that the target belongs to.
    pub server: String,
}

/// Why a target does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store does not open.
    #[error("{path}: {error}")]
    Store {
        /// Directory of the target.
        path: String,
        /// Why.
        error: StoreError,
    },
    /// The MGS remembers a later state of the target, or it is being served elsewhere.
    #[error("{path} is not served: the MGS refused {target}: {code}")]
    NotAccepted {
        /// The target.
        target: TargetId,
        /// Its directory.
        path: String,
        /// Why.
        code: Code,
    },
    /// The MGS refused the target.
    #[error("the MGS refused {target}: {code}")]
    Refused {
        /// The target.
        target: TargetId,
        /// Why.
        code: Code,
    },
    /// The target is of another file system than the hub.
    #[error("{path} belongs to file system {found}, not to {wanted}")]
    OtherFilesystem {
        /// Directory of the target.
        path: String,
        /// Its file system.
        found: String,
        /// The hub's.
        wanted: String,
    },
}

/// A target that is being served.
pub struct Running {
    target: TargetId,
    counts: Arc<dyn Counts + Send + Sync>,
    watch: Arc<dyn Watch>,
    hub: Hub,
    /// As whom the target asks others.
    client: ClientId,
    claimant: Option<Arc<Claimant>>,
}

/// How a target is started that is started again when it fails.
pub(crate) struct Supervision {
    /// The right to serve it, if others may have that too.
    pub owned: Option<Owned>,
    /// What an operator orders.
    pub orders: Arc<owner::Orders>,
}

/// What of a role is counted, for those who measure; all zero where there is nothing of the kind.
pub(crate) trait Counts {
    /// How many inode bits are granted, and how often.
    fn lock_counts(&self) -> LockCounts {
        LockCounts::default()
    }

    /// What is held of objects, and how often something happened with it.
    fn token_counts(&self) -> TokenCounts {
        TokenCounts::default()
    }
}

impl Running {
    /// Which target it is.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// Locks of an MDT's inodes: what `ldlm.namespaces` shows. All zero for other targets.
    pub fn lock_counts(&self) -> LockCounts {
        self.counts.lock_counts()
    }

    /// What an OST's clients hold of its objects, and how often they were called back.
    pub fn token_counts(&self) -> TokenCounts {
        self.counts.token_counts()
    }

    /// Names of the target's sessions; `None` while it waits for what clients replay and state again.
    pub fn sessions(&self) -> Option<Vec<u64>> {
        self.watch.sessions()
    }

    /// What sessions hold now, as the target believes.
    pub fn held(&self) -> Vec<Held> {
        self.watch.held()
    }

    /// Who waits for what, a line for each; sessions and what was granted besides, as far as they matter to that.
    pub fn waits(&self) -> Vec<String> {
        self.watch.waits()
    }

    /// Whether the target may answer: it works, and no other server can have had it until now.
    pub fn is_owner(&self) -> bool {
        self.watch.is_owner()
    }

    /// Sets all parameters that fit `pattern` until the target is started again: what `lctl set_param` does.
    ///
    /// # Errors
    /// `NotFound` if there is none, and `Invalid` for a value that is none.
    pub fn set_parameter(&self, pattern: &str, value: &str) -> Result<(), Code> {
        self.watch.set_parameter(pattern, value)
    }

    /// Stops in order: what was acknowledged is durable afterwards.
    pub async fn stop(self) {
        self.close().await;
    }

    /// The same.
    pub(crate) async fn close(&self) {
        self.watch.refuse().await;
        self.hub.withdraw(self.target);
        self.watch.close().await;
        if let Some(claimant) = &self.claimant {
            claimant.note_last().await;
        }
        self.hub.end_client(self.client, Goodbye::Said).await;
    }

    /// Stops as if the process had been killed.
    pub(crate) async fn abandon(&self) {
        // Those who wait learn that they have to look elsewhere.
        self.hub.rt().timeout(ABANDON_TIME_MAX, self.watch.refuse()).await;
        // Those who ask nothing just now would notice nothing, and the next start would wait for them.
        for session in self.watch.sessions().unwrap_or_default() {
            self.hub.session_evicted(self.target, session);
        }
        self.hub.withdraw(self.target);
        self.hub.end_client(self.client, Goodbye::Unsaid).await;
        self.watch.abandon().await;
    }

    /// Waits until reading or writing its directory has failed.
    pub(crate) async fn failed(&self) {
        self.watch.failed().await;
    }
}

/// How long requests that are under way may take to notice that their target is gone.
const ABANDON_TIME_MAX: Duration = Duration::from_secs(2);
/// How often a target that waits for the MGS looks whether it has another owner.
const LOSS_PAUSE: Duration = Duration::from_millis(500);

/// Opens the target in `config.path` and serves it in `hub`: the MGS at once, others after they have registered
/// with the MGS (which is waited for).
pub async fn start(hub: &Hub, config: Config) -> Result<Running, StartError> {
    open(hub, config, None).await
}

/// The same for a target that is started again when it fails.
pub(crate) async fn start_supervised(
    hub: &Hub,
    config: Config,
    supervision: Supervision,
) -> Result<Running, StartError> {
    open(hub, config, Some(supervision)).await
}

fn open(
    hub: &Hub,
    config: Config,
    supervision: Option<Supervision>,
) -> BoxFuture<'_, Result<Running, StartError>> {
    Box::pin(async move {
        let path = config.path.clone();
        let failed = |error| StartError::Store { path: path.clone(), error };
        let label = Store::read_label(hub.rt(), &config.path).await.map_err(failed)?;
        if label.fsname != *hub.fsname() {
            return Err(StartError::OtherFilesystem {
                path: config.path,
                found: label.fsname.to_string(),
                wanted: hub.fsname().to_string(),
            });
        }
        let (owned, supervision) = match supervision {
            None => (None, service::Supervision::None),
            Some(Supervision { owned: None, .. }) => (None, service::Supervision::Alone),
            Some(Supervision { owned, orders }) => (owned, service::Supervision::Shared(orders)),
        };
        let store = match owned {
            Some(owned) => Store::open_owned(hub.rt(), &config.path, owned).await,
            None if label.service.is_empty() => Store::open(hub.rt(), &config.path).await,
            None => Err(StoreError::NotOwner),
        };
        let store = store.map_err(failed)?;
        let claimant = match label.target.kind {
            TargetKind::Mgs => None,
            TargetKind::Mdt | TargetKind::Ost => Some(Arc::new(Claimant::new(hub, &store, &config.nids))),
        };
        if let Some(claimant) = &claimant
            && let Err(unclaimed) = accept::claim(&store, claimant).await
        {
            close(&store).await;
            return Err(match unclaimed {
                Unclaimed::Refused(code) => StartError::NotAccepted { target: label.target, path, code },
                Unclaimed::Lost(error) => failed(error),
            });
        }
        // Former owners may not know yet that they are.
        hub.incarnate(label.uuid, store.boot());
        let mgs = match label.target.kind {
            TargetKind::Mgs => None,
            TargetKind::Mdt | TargetKind::Ost => {
                Some(hub.import(TargetId::MGS, label.uuid, Role::Server, label.mgs.clone()))
            }
        };
        let backchannel = Arc::new(hub.clone());
        let rt = hub.rt().clone();
        let start = Start { rt, hub: hub.clone(), store, mgs, backchannel, supervision, claimant };
        match label.target.kind {
            TargetKind::Mgs => serve::<mgs::Mgs>(start, &config, label).await,
            TargetKind::Mdt => serve::<mdt::Mdt>(start, &config, label).await,
            TargetKind::Ost => serve::<ost::Ost>(start, &config, label).await,
        }
    })
}

async fn serve<H: Handler + Counts>(
    start: Start,
    config: &Config,
    label: Label,
) -> Result<Running, StartError> {
    let (hub, store, mgs) = (start.hub.clone(), start.store.clone(), start.mgs.clone());
    let claimant = start.claimant.clone();
    let target = match Target::<H>::open(start).await {
        Ok(target) => target,
        Err(error) => {
            close(&store).await;
            hub.end_client(label.uuid, Goodbye::Said).await;
            return Err(StartError::Store { path: config.path.clone(), error });
        }
    };
    let id = label.target;
    hub.serve(id, target.clone());
    if let Some(mgs) = &mgs {
        match register_as_owner(mgs, &label, config, &store, &hub).await {
            Ok(true) => target.set_told(),
            Ok(false) => {}
            Err(error) => {
                hub.withdraw(id);
                target.close().await;
                hub.end_client(label.uuid, Goodbye::Said).await;
                return Err(error);
            }
        }
    }
    target.handler().started();
    if let Some(mgs) = mgs {
        let (watch, nids) = (target.clone(), label.mgs.clone());
        let follower = settings::Follower { hub: hub.clone(), target: id, mgs, nids, store, watch };
        hub.rt().spawn(follower.follow());
    }
    let counts = target.handler().clone();
    Ok(Running { target: id, counts, watch: target, hub, client: label.uuid, claimant })
}

/// Tells the MGS of the target. It does not answer one that has another owner by now: that is the end, too.
async fn register_as_owner(
    mgs: &Arc<Import>,
    label: &Label,
    config: &Config,
    store: &Store,
    hub: &Hub,
) -> Result<bool, StartError> {
    let lost = async {
        loop {
            if let Err(error) = store.confirmed().await {
                return error;
            }
            hub.rt().sleep(LOSS_PAUSE).await;
        }
    };
    match race(register((mgs, hub.rt()), label, config, store), lost).await {
        Either::First(Ok(told)) => Ok(told),
        Either::First(Err(code)) => Err(StartError::Refused { target: label.target, code }),
        Either::Second(error) => Err(StartError::Store { path: config.path.clone(), error }),
    }
}

/// Tells the MGS of the target; waits until it answers, and says whether clients hear of it.
async fn register(
    (mgs, rt): (&Arc<Import>, &Rt),
    label: &Label,
    config: &Config,
    store: &Store,
) -> Result<bool, Code> {
    let mut nids = config.nids.clone();
    // Where it is, and then where else it may be.
    nids.extend(label.service.iter().filter(|nid| !config.nids.contains(nid)).cloned());
    nids.truncate(NIDS_MAX);
    let register = Register {
        fsname: label.fsname.to_string(),
        target: label.target,
        uuid: label.uuid,
        nids,
        server: config.server.clone(),
        epoch: if label.service.is_empty() { 0 } else { store.boot() },
        replaces: service::replaced::waits(store),
        stands_in: label.service.first().is_some_and(|first| !config.nids.contains(first)),
    };
    loop {
        match mgs.call(register.clone()).await {
            Ok(registered) => return Ok(registered.reply.told),
            // Its disk fails: it starts again with what is durable there, or somebody mends that.
            Err(RpcError::Refused(Code::Io)) => {
                tracing::warn!(target = %label.target, "the MGS cannot register the target, because its disk fails: it is asked again");
                rt.sleep(LOSS_PAUSE).await;
            }
            Err(RpcError::Refused(code)) => return Err(code),
            Err(RpcError::Closed) => return Err(Code::NoSession),
        }
    }
}

async fn close(store: &Store) {
    if let Err(error) = store.close().await {
        tracing::error!(%error, "the store did not close in order");
    }
}
