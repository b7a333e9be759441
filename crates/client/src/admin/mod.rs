//! What an administrator sees and sets of a mounted file system: space, configuration, memory, locks.

mod ahead;
mod answers;
mod counting;
mod import;
mod locks;
mod memory;
mod parameters;
mod readahead;
mod sessions;
mod settings;
mod statahead;
mod stats;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use proto::session::Estimated;
use proto::wire::messages::{GetState, Operation, ParameterPage, ReadParameters, Space, Statfs, TargetState};
use proto::{Code, ConfigCopy, TargetId, TargetKind};
use rpc::{AskError, LinkState, Role};
use rt::wait::join_all;

use crate::order::{LEAF, Mutex};
use crate::{LeaseState, Result, Shared, SlowOst};

pub use locks::{LockBounds, LockUse};
pub use memory::{CACHED_BYTES_MIN, CacheUse, MemoryBounds, OstUse};
pub use parameters::Setting;
pub use settings::{NewSetting, TakenSettings};
pub use watch::{Held, HeldRange};

/// How long [`Admin::glance`] waits. `df` and `umount` ask for the space of a mount.
const GLANCE_WAIT: Duration = Duration::from_secs(2);
/// How long after a target did not answer it is asked again, where it is.
const AGAIN: Duration = Duration::from_millis(100);

/// What an administrator sees and sets of a mounted file system.
pub struct Admin {
    shared: Arc<Shared>,
    /// What is held of each target.
    pub locks: LockBounds,
    /// What memory is taken.
    pub memory: MemoryBounds,
    /// What the MDT told of its space last.
    names: Mutex<LEAF, Space>,
}

impl Admin {
    pub(crate) fn of(shared: &Arc<Shared>) -> Admin {
        Admin {
            shared: shared.clone(),
            locks: LockBounds::of(shared),
            memory: MemoryBounds::of(shared),
            names: Mutex::new(Space::default()),
        }
    }

    /// What `look` finds, unless it takes longer than whoever looks on waits: they are not held up by a target that is away.
    pub async fn glance<T>(&self, look: impl Future<Output = T>) -> Option<T> {
        self.shared.rt.timeout(GLANCE_WAIT, look).await
    }

    /// Whether a target is being looked for: there is neither a connection to it, nor is it in this process.
    pub fn is_away(&self, target: TargetId) -> bool {
        self.shared.targets.get(target).is_ok_and(|target| target.state().link == LinkState::Connecting)
    }

    /// Space of all OSTs together, files of the MDT. An OST that is away is missing from the sum, as `df` of Lustre shows it; of the MDT
    /// this is what it told last.
    pub async fn statfs(&self) -> Result<Space> {
        let mdt = self.shared.targets.first_mdt()?.id();
        let osts = self.targets().into_iter().filter(|id| id.kind == TargetKind::Ost);
        let asked = std::iter::once(mdt).chain(osts).map(|id| self.target_space(id, GLANCE_WAIT));
        let mut told = join_all(asked).await.into_iter();
        if let Some(space) = told.next().transpose()?.flatten() {
            *self.names.lock() = space;
        }
        let names = *self.names.lock();
        let data = Space::sum(told.filter_map(|space| space.ok().flatten()));
        Ok(Space { files_total: names.files_total, files_free: names.files_free, state: names.state, ..data })
    }

    /// Space of one target; `None` if it does not answer within `wait`.
    pub async fn target_space(&self, target: TargetId, wait: Duration) -> Result<Option<Space>> {
        let target = self.shared.targets.get(target)?;
        match self.shared.rt.timeout(wait, target.call(Statfs {})).await {
            Some(answered) => Ok(Some(answered?.reply)),
            None => Ok(None),
        }
    }

    /// How a target is, even one that recovers; `None` if it does not answer within `wait`.
    pub async fn target_state(&self, target: TargetId, wait: Duration) -> Option<TargetState> {
        self.order(target, GetState {}, wait).await.ok()
    }

    /// How long answers take in each session that there has been, but the MGS's.
    pub fn answers(&self) -> Vec<(TargetId, Estimated)> {
        self.shared.targets.answers()
    }

    /// Asks a target something outside any session, with all rights that this process has: those of the servers if it
    /// serves targets itself.
    pub async fn order<O: Operation>(
        &self,
        target: TargetId,
        order: O,
        wait: Duration,
    ) -> std::result::Result<O::Reply, AskError> {
        let hub = self.shared.targets.hub();
        let role = if hub.has_key(Role::Server) { Role::Server } else { Role::Client };
        let nids = self.shared.targets.config().target(target).map_or(Vec::new(), |entry| entry.nids.clone());
        hub.ask(target, role, &nids, order, wait).await
    }

    /// The same of an order that may be given twice: a target that restarts is asked again for as long as `wait` lasts.
    pub async fn order_again<O: Operation + Clone>(
        &self,
        target: TargetId,
        order: O,
        wait: Duration,
    ) -> std::result::Result<O::Reply, AskError> {
        let rt = &self.shared.rt;
        let end = rt.now() + wait;
        loop {
            let answered = self.order(target, order.clone(), end - rt.now()).await;
            let is_away = answered.as_ref().is_err_and(AskError::is_away);
            if !is_away || rt.now() + AGAIN >= end {
                return answered;
            }
            rt.sleep(AGAIN).await;
        }
    }

    /// Gives the MGS an order, with the rights of this process.
    ///
    /// # Errors
    /// What the MGS refuses; `NotSupported` if this process does not reach it outside its session.
    pub async fn order_mgs(&self, order: impl Operation, wait: Duration) -> Result<()> {
        match self.order(TargetId::MGS, order, wait).await {
            Ok(_) => Ok(()),
            Err(AskError::Refused(code)) => Err(code.into()),
            Err(AskError::Unanswered(why)) => {
                tracing::warn!(%why, "the MGS does not carry an order out");
                Err(Code::NotSupported.into())
            }
        }
    }

    /// The parameters of this process that `read` asks for.
    pub fn process_parameters(&self, read: &ReadParameters) -> Result<ParameterPage> {
        let process = self.shared.targets.hub().process().ok_or(Code::NotSupported)?;
        Ok(rpc::process::read(&**process, read)?)
    }

    /// A value of this process that is no parameter, as [`rpc::Process`] names them.
    pub fn process_value(&self, name: &str) -> Option<String> {
        self.shared.targets.hub().process()?.value(name)
    }

    /// Sets a parameter of this process, or such a value.
    pub fn set_process_value(&self, name: &str, value: &str) -> Result<()> {
        let process = self.shared.targets.hub().process().ok_or(Code::NotSupported)?;
        Ok(rpc::process::set(&**process, name, value)?)
    }

    /// Sets the parameters of this process that fit what the MGS keeps.
    pub fn set_kept_of_process(&self, name: &str, value: &str) -> Result<()> {
        let process = self.shared.targets.hub().process().ok_or(Code::NotFound)?;
        Ok(rpc::process::set_kept(&**process, name, value)?)
    }

    /// Reads the configuration as the client knows it.
    pub fn with_config<T>(&self, read: impl FnOnce(&ConfigCopy) -> T) -> T {
        read(&self.shared.targets.config())
    }

    /// Learns what is new in the configuration, if the MGS says so within `wait`. A client that holds nothing hears of nothing.
    pub async fn learn(&self, wait: Duration) {
        self.shared.rt.timeout(wait, self.shared.targets.learn()).await;
    }

    /// Name of the file system.
    pub fn fsname(&self) -> String {
        self.with_config(|config| config.fsname().to_owned())
    }

    /// Every target that the client knows of, by kind and index.
    pub fn targets(&self) -> Vec<TargetId> {
        self.with_config(|config| config.targets().map(|entry| entry.target).collect())
    }

    /// The lease with the MGS.
    pub fn lease(&self) -> LeaseState {
        self.shared.lease.state()
    }

    /// OSTs that are slower than the others, by what this client wrote in the last minute.
    pub fn slow_osts(&self) -> Vec<SlowOst> {
        self.shared.targets.slow(self.shared.rt.now())
    }
}
