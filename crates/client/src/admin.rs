//! Space, durability of everything, the configuration.

use std::sync::Arc;
use std::time::Duration;

use proto::session::Estimated;
use proto::wire::messages::{GetState, Operation, ReadParameters, Space, Statfs, TargetState};
use proto::{Code, ConfigCopy, TargetId, TargetKind};
use rpc::{AskError, Role};

use crate::util::join_all;
use crate::{Client, Result, Shared};

/// How long `statfs` waits for an OST; one that is slower is left out.
const STATFS_WAIT: Duration = Duration::from_secs(2);

impl Client {
    /// Space of all OSTs together, files of the MDT.
    pub async fn statfs(&self) -> Result<Space> {
        let osts = self.targets().into_iter().filter(|id| id.kind == TargetKind::Ost);
        let asked = osts.map(|id| self.target_space(id, STATFS_WAIT));
        let names = self.shared.targets.mdt()?.call(Statfs {}).await?.reply;
        // One that is away is missing from the sum, as `df` of Lustre shows it.
        let data = Space::sum(join_all(asked).await.into_iter().filter_map(|space| space.ok().flatten()));
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

    /// The value of a parameter of a target; `None` if it has none of that name, or does not answer within `wait`.
    pub async fn target_parameter(&self, target: TargetId, name: &str, wait: Duration) -> Option<String> {
        let names = vec![name.to_owned()];
        let parameters = self.order(target, ReadParameters { names }, wait).await.ok()?.parameters;
        parameters.into_iter().find(|one| one.name == name).map(|one| one.value)
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

    /// A value of this process, as [`rpc::Process`] names them.
    pub fn process_value(&self, name: &str) -> Option<String> {
        self.shared.targets.hub().process()?.value(name)
    }

    /// Sets a value of this process.
    pub fn set_process_value(&self, name: &str, value: &str) -> Result<()> {
        let process = self.shared.targets.hub().process().ok_or(Code::NotSupported)?;
        Ok(process.set_value(name, value)?)
    }

    /// Everything this client wrote, data and names, is durable when it returns.
    pub async fn sync_all(&self) -> Result<()> {
        self.shared.sync_all().await
    }

    /// Reads the configuration as the client knows it.
    pub fn with_config<T>(&self, read: impl FnOnce(&ConfigCopy) -> T) -> T {
        read(&self.shared.targets.config())
    }

    /// Name of the file system.
    pub fn fsname(&self) -> String {
        self.with_config(|config| config.fsname().to_owned())
    }

    /// Every target that the client knows of, by kind and index.
    pub fn targets(&self) -> Vec<TargetId> {
        self.with_config(|config| config.targets().map(|entry| entry.target).collect())
    }
}

impl Shared {
    pub(crate) async fn sync_all(self: &Arc<Self>) -> Result<()> {
        let files = self.keeper.files();
        join_all(files.into_iter().map(|file| async move { self.flush_file(&file).await })).await;
        let commits =
            self.targets.all().into_iter().map(|target| async move { target.commit(target.newest()).await });
        join_all(commits).await.into_iter().collect()
    }
}
