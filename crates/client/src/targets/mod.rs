//! The sessions with the targets of the file system, made on first use.

mod ask;
mod common;
mod counters;
mod counting;
mod in_flight;
mod pace;
mod pending;
mod requests;
mod rpcs;
mod switches;
mod target;
mod times;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::session::Estimated;
use proto::wire::messages::Config;
use proto::{ClientId, Code, ConfigCopy, DataTarget, Nid, OstIndex, TargetId, TargetKind};
use rpc::{Callbacks, Hub};
use rt::BoxFuture;
use rt::sync::Notify;
use rt::wait::unless;

use crate::order::{CONFIG, LEAF, Mutex, ReadGuard, RwLock, SESSIONS};
use crate::{Error, Limits, Result};
use common::Common;
use requests::Requests;
use switches::Switches;

pub(crate) use common::Retained;
pub use pace::SlowOst;
pub(crate) use pending::Pending;
pub(crate) use rpcs::Way;
pub(crate) use target::Target;

/// Time that the configuration has to bring an OST that a layout names.
const LEARN_PATIENCE: Duration = Duration::from_secs(120);
/// How often it is asked for.
const LEARN_AGAIN: Duration = Duration::from_secs(1);

/// What the MGS knows of this client: that it lives, as long as it holds something.
pub(crate) trait SignOfLife: Send + Sync {
    /// Something is asked of a target: from now on there is something to hold.
    fn touch(&self);
    /// Whether the MGS knows that this client lives: a target that restarts does not wait for others.
    fn has_begun(&self) -> bool;
    /// Waits until it does.
    fn until_begun(&self) -> BoxFuture<'_, ()>;
}

/// All targets that this client has had to do with, and the table of those that there are.
pub(crate) struct Targets {
    common: Common,
    /// What was told ahead of MDTs.
    pub(crate) pending: Pending,
    mgs: Arc<Target>,
    /// Where the MGS may be.
    mgs_nids: Vec<Nid>,
    config: RwLock<CONFIG, ConfigCopy>,
    /// Told when the configuration changes, or a target is used for the first time.
    changed: Notify,
    /// Targets that were used for the first time since somebody looked.
    fresh: Mutex<LEAF, Vec<TargetId>>,
    made: RwLock<SESSIONS, BTreeMap<TargetId, Arc<Target>>>,
    switches: Switches,
}

impl Targets {
    pub(crate) fn new(
        hub: &Hub,
        client: ClientId,
        mgs: Vec<Nid>,
        limits: &Limits,
        (lease, retained): (Arc<dyn SignOfLife>, Retained),
    ) -> Targets {
        let common = Common::new(hub, client, limits, lease, retained);
        Targets {
            mgs: Arc::new(common.mgs(mgs.clone())),
            mgs_nids: mgs,
            pending: Pending::default(),
            config: RwLock::new(ConfigCopy::new(hub.fsname().as_str().to_owned())),
            changed: Notify::new(),
            fresh: Mutex::default(),
            made: RwLock::new(BTreeMap::new()),
            switches: Switches::default(),
            common,
        }
    }

    /// Where targets are reached.
    pub(crate) fn hub(&self) -> &Hub {
        &self.common.hub
    }

    /// What another mount of the same file system needs.
    pub(crate) fn way_in(&self) -> (Hub, Vec<Nid>) {
        (self.common.hub.clone(), self.mgs_nids.clone())
    }

    /// Says whom targets call back; once, before the first of them is made.
    pub(crate) fn set_called_back(&self, called_back: Arc<dyn Callbacks>) {
        assert!(self.common.called_back.set(called_back).is_ok(), "a client is mounted once");
    }

    /// Requests by operation.
    pub(crate) fn requests(&self) -> &Requests {
        &self.common.requests
    }

    pub(crate) fn mgs(&self) -> &Target {
        &self.mgs
    }

    /// The configuration as far as it is known.
    pub(crate) fn config(&self) -> ReadGuard<'_, CONFIG, ConfigCopy> {
        self.config.read()
    }

    /// Whether the whole configuration is known, and `id` is in it.
    pub(crate) fn knows(&self, id: TargetId) -> bool {
        let config = self.config.read();
        config.is_whole() && config.target(id).is_some()
    }

    /// Asks the MGS what is new in the configuration, until it has told all of it or does not answer.
    pub(crate) async fn learn(&self) {
        loop {
            let question = self.config().question(0);
            match self.mgs().call(question).await {
                Ok(answered) => self.set_config(answered.reply),
                Err(error) => {
                    tracing::debug!(%error, "the MGS does not tell the configuration");
                    return;
                }
            }
            if self.config().is_whole() {
                return;
            }
        }
    }

    /// Takes news of the configuration over; what is older than what is known is ignored.
    pub(crate) fn set_config(&self, page: Config) {
        let told: Vec<_> = page.targets.iter().map(|entry| (entry.target, entry.nids.clone())).collect();
        let removed = page.removed.clone();
        let owners: Vec<_> = page.owners.iter().map(|owner| (owner.target, owner.epoch)).collect();
        if !self.config.write().take(page) {
            return;
        }
        self.changed.notify_waiters();
        {
            let made = self.made.read();
            for (id, nids) in told {
                if let Some(target) = made.get(&id) {
                    target.import.set_nids(nids);
                    target.import.bar(self.switches.bar_of(id));
                }
            }
            for target in removed.iter().filter_map(|id| made.get(id)) {
                target.import.bar(Some(Code::Removed));
            }
        }
        for (target, epoch) in owners {
            self.common.hub.owned_by(target, epoch);
        }
    }

    /// What an operator has switched.
    pub(crate) fn switches(&self) -> &Switches {
        &self.switches
    }

    /// From now on the target is asked, or whoever needs it is refused at once.
    pub(crate) fn set_active(&self, id: TargetId, active: bool) {
        let made = self.made.read();
        self.switches.set_active(id, active);
        let is_there = self.config.read().target(id).is_some();
        if let Some(target) = made.get(&id).filter(|_| is_there) {
            target.import.bar(self.switches.bar_of(id));
        }
    }

    /// From now on data has a checksum on its way to the target and back, or not.
    pub(crate) fn set_checksums(&self, id: TargetId, on: bool) {
        let made = self.made.read();
        self.switches.set_checksums(id, on);
        if let Some(target) = made.get(&id) {
            target.import.set_checksums(on);
        }
    }

    /// Told of news of the configuration, and of a target that is used for the first time.
    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Whether a target was used for the first time since [`Targets::take_fresh`].
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.lock().is_empty()
    }

    /// The targets that were used for the first time since this was called last.
    pub(crate) fn take_fresh(&self) -> Vec<TargetId> {
        std::mem::take(&mut *self.fresh.lock())
    }

    /// As whom the sessions are.
    pub(crate) fn client(&self) -> ClientId {
        self.common.client
    }

    /// The session with `id`; an unknown target is a failure of storage, not of the caller's arguments.
    pub(crate) fn get(&self, id: TargetId) -> Result<Arc<Target>> {
        if let Some(target) = self.made.read().get(&id) {
            return Ok(target.clone());
        }
        let mut made = self.made.write();
        // Under this lock, or news of where the target is could come in between, and pass it by.
        let nids = self.config.read().target(id).ok_or(Error::Refused(Code::Io))?.nids.clone();
        let target = made.entry(id).or_insert_with(|| {
            let target = self.common.make(id, nids);
            target.import.bar(self.switches.bar_of(id));
            target.import.set_checksums(self.switches.has_checksums(id));
            self.fresh.lock().push(id);
            self.changed.notify_waiters();
            Arc::new(target)
        });
        Ok(target.clone())
    }

    /// The session with a target that a layout names. The MDT may know of an OST before this client does: then the MGS is asked for the
    /// configuration that has it. The answer to the question that is always under way may be lost, and is missed only after
    /// half a minute.
    pub(crate) async fn data(&self, target: DataTarget) -> Result<Arc<Target>> {
        let id = target.into();
        if let Ok(target) = self.get(id) {
            return Ok(target);
        }
        if self.config.read().is_removed(id) {
            return Err(Error::Refused(Code::Removed));
        }
        let learn = async {
            loop {
                let changed = self.changed.notified();
                if let Ok(target) = self.get(id) {
                    return target;
                }
                changed.await;
            }
        };
        let rt = self.common.hub.rt();
        let ask = async {
            loop {
                self.learn().await;
                rt.sleep(LEARN_AGAIN).await;
            }
        };
        rt.timeout(LEARN_PATIENCE, unless(ask, learn)).await.flatten().ok_or(Error::Refused(Code::Io))
    }

    /// No more than `bytes` are unsent from now on.
    pub(crate) fn set_unsent_max(&self, bytes: u64) {
        self.common.shortage.plenty.store(bytes, Ordering::Relaxed);
    }

    /// Whether an OST may have too little space for what this client may have unsent.
    pub(crate) fn any_short(&self) -> bool {
        self.common.shortage.count.load(Ordering::Relaxed) > 0
    }

    /// Whether sessions have statistics.
    pub(crate) fn is_counting(&self) -> bool {
        self.common.counting.is_on()
    }

    /// Sessions have statistics from now on, or have none and give up what they had.
    pub(crate) fn set_counting(&self, is_on: bool) {
        self.common.counting.set(is_on);
        if !is_on {
            for target in self.made.read().values() {
                target.counters.give_up();
            }
        }
    }

    /// Bytes that the statistics of all sessions take.
    pub(crate) fn counting_bytes(&self) -> usize {
        self.made.read().values().map(|target| target.counters.bytes()).sum()
    }

    /// The session with `id`, if there has been one.
    pub(crate) fn made(&self, id: TargetId) -> Option<Arc<Target>> {
        self.made.read().get(&id).cloned()
    }

    /// The name of each session but the MGS's.
    pub(crate) fn sessions(&self) -> BTreeMap<TargetId, u64> {
        self.made.read().iter().map(|(id, target)| (*id, target.import.session())).collect()
    }

    /// How long answers take in each session but the MGS's.
    pub(crate) fn answers(&self) -> Vec<(TargetId, Estimated)> {
        self.made.read().iter().map(|(id, target)| (*id, target.state().answers)).collect()
    }

    /// What is waited for in any session but the MGS's.
    pub(crate) fn waits(&self) -> Vec<String> {
        self.made.read().values().flat_map(|target| target.waits()).collect()
    }

    /// Every session with an OST that there has been, by index.
    pub(crate) fn osts(&self) -> Vec<(OstIndex, Arc<Target>)> {
        let made = self.made.read();
        made.iter().filter_map(|(id, target)| Some((id.ost_index()?, target.clone()))).collect()
    }

    /// Targets that were used since this was asked last.
    pub(crate) fn take_used(&self) -> Vec<(DataTarget, Arc<Target>)> {
        let used = std::mem::take(&mut *self.common.used.lock());
        used.into_iter().filter_map(|ost| Some((ost, self.made(ost.into())?))).collect()
    }

    /// Every session with a target of a kind that there has been.
    fn of_kind(&self, kind: TargetKind) -> Vec<Arc<Target>> {
        self.made.read().iter().filter(|(id, _)| id.kind == kind).map(|(_, target)| target.clone()).collect()
    }

    /// Every session but the MGS's.
    pub(crate) fn all(&self) -> Vec<Arc<Target>> {
        self.made.read().values().cloned().collect()
    }
}
