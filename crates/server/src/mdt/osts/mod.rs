//! The OSTs that the file system has, as the MGS tells.
//!
//! [`table`] is one state of the configuration, [`current`] the one that is in force, [`choice`] what goes into the order of the OSTs besides,
//! [`stored`] that order as it is kept over a restart. The [`sessions`] are those with the OSTs.

mod choice;
mod current;
mod sessions;
mod stored;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use proto::layout::LayoutHint;
use proto::limits::{MDT_DATA_BYTES_MAX, STRIPE_SIZE_UNIT};
use proto::parameters::{Parameter, TargetTree, Unit, device_name};
use proto::wire::messages::{LoseBefore, Statfs, TargetEntry};
use proto::{Code, ConfigCopy, OstIndex, TargetId};
use rpc::{Import, RpcError};
use rt::Rt;
use rt::sync::Semaphore;
use service::{Env, Recovery, Stop};
use store::{Store, StoreError};

use super::allocate::{Order, Replaced};
use super::destroy::Destroyer;
use super::owners::Numbers;
use super::sequence::Sequences;
use crate::data::Data;
use choice::Choice;
use current::Current;
use sessions::OstSessions;
pub use table::Table;

/// How long the MGS may hold a request for a newer configuration, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// What `dom_stripesize` takes.
const ON_MDT_MAX: &str = "write bytes, a multiple of 65536 up to 1048576; 0 has new files lie on OSTs alone";
/// Pause after a refusal of the MGS.
const PAUSE: Duration = Duration::from_secs(1);

/// What of objects concerns an MDT: where new ones may lie, and which are to be destroyed.
pub(super) struct Objects {
    pub osts: Arc<Osts>,
    pub destroyer: Arc<Destroyer>,
    /// Of what got another owner.
    pub numbers: Numbers,
    /// The root's default layout, which directories without one of their own follow.
    pub root_hint: RwLock<Option<LayoutHint>>,
}

impl Objects {
    /// Those of a target whose root has the default layout `root_hint`.
    pub fn open(
        env: &Env,
        root_hint: Option<LayoutHint>,
        data: Arc<Data>,
        sequences: Arc<Sequences>,
    ) -> Result<Objects, StoreError> {
        let osts = Arc::new(Osts::open(env, sequences)?);
        let destroyer = Arc::new(Destroyer::open(env, osts.clone(), data)?);
        let numbers = Numbers::new(env.store.boot());
        Ok(Objects { osts, destroyer, numbers, root_hint: RwLock::new(root_hint) })
    }
}

/// The OSTs of the file system.
pub struct Osts {
    rt: Rt,
    stop: Stop,
    recovery: Arc<Recovery>,
    mgs: Option<Arc<Import>>,
    fsname: String,
    store: Arc<Store>,
    sequences: Arc<Sequences>,
    sessions: OstSessions,
    /// The state of the configuration.
    pub(super) current: Current,
    /// One state follows the other.
    turn: Semaphore,
    /// By what new files choose among them.
    pub(super) choice: Choice,
}

impl Osts {
    /// Those that the target knew before.
    pub fn open(env: &Env, sequences: Arc<Sequences>) -> Result<Osts, StoreError> {
        let label = env.store.label();
        let order = stored::load(&env.store)?;
        let choice = Choice::new(order.on_mdt_max());
        let table = Table { order, spills: choice.spills.clone(), ..Table::default() };
        Ok(Osts {
            rt: env.rt.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            mgs: env.mgs.clone(),
            fsname: label.fsname.to_string(),
            store: env.store.clone(),
            sequences,
            sessions: OstSessions::new(env.hub.clone(), label.uuid),
            current: Current::new(table, env.mgs.is_none()),
            turn: Semaphore::new(1),
            choice,
        })
    }

    /// What is known now.
    pub fn table(&self) -> Arc<Table> {
        self.current.table()
    }

    /// The session with an OST; `None` if there is no such OST.
    pub fn import(&self, ost: OstIndex) -> Option<Arc<Import>> {
        let nids = self.table().nids.get(&ost)?.clone();
        Some(self.sessions.with(ost, nids))
    }

    /// Waits until there is an OST, at most for `duration` since the MGS has said that there is none: before, nobody knows. If all were
    /// taken out, nobody waits.
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn wait_for_any(&self, duration: Duration) -> Result<(), Code> {
        let is_there = || {
            let table = self.table();
            !table.order.is_empty() || !table.removed.is_empty()
        };
        let told = || is_there() || self.current.is_told();
        let any = async {
            self.current.until(told).await;
            self.rt.timeout(duration, self.current.until(is_there)).await;
        };
        self.stop.unless(any).await.ok_or(Code::TryAgain)
    }

    /// Whether the MGS has told what there is, if there is one.
    pub fn is_told(&self) -> bool {
        self.mgs.is_none() || self.table().is_told
    }

    /// Waits until [`Osts::is_told`].
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn until_told(&self) -> Result<(), Code> {
        let told = self.current.until(|| self.is_told());
        self.stop.unless(told).await.ok_or(Code::TryAgain)
    }

    /// Waits until `table` is not the state any more.
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn until_not(&self, table: &Arc<Table>) -> Result<(), Code> {
        let changed = self.current.until(|| !self.current.is(table));
        self.stop.unless(changed).await.ok_or(Code::TryAgain)
    }

    /// Waits until every pool that `hint` asks for is there and has an OST, at most for `duration`.
    pub async fn wait_for_pools(&self, hint: &LayoutHint, duration: Duration) {
        let there = self.current.until(|| self.table().order.has_pools(hint));
        self.stop.unless(self.rt.timeout(duration, there)).await;
    }

    /// Takes a new configuration.
    pub async fn apply(self: &Arc<Self>, config: &ConfigCopy) -> Result<(), StoreError> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let osts = config.targets().filter_map(|entry| Some((entry.target.ost_index()?, entry)));
        let replaced = self.replaced(config, osts.clone()).await?;
        let servers: BTreeMap<OstIndex, String> =
            osts.clone().map(|(ost, entry)| (ost, entry.server.clone())).collect();
        let order = Order::new(servers.clone().into_iter().collect()).replacing(replaced);
        self.choice.qos.keep(|ost| servers.contains_key(&ost));
        let nids = Arc::new(osts.map(|(ost, entry)| (ost, entry.nids.clone())).collect());
        let degraded = config.degraded().filter_map(TargetId::ost_index).collect();
        let pools = Arc::new(config.pools().clone());
        let removed = Arc::new(config.removed().filter_map(TargetId::ost_index).collect());
        let (told, spills) = (Mutex::default(), self.choice.spills.clone());
        let (servers, is_told) = (Arc::new(servers), true);
        let table = Table { order, nids, servers, removed, degraded, pools, told, spills, is_told };
        let before = self.put(table).await?;
        let table = self.table();
        self.sessions.bar_removed(&before, &table);
        for (ost, nids) in table.nids.iter() {
            if before.nids.get(ost).is_some_and(|known| known != nids)
                && let Some(import) = self.import(*ost)
            {
                import.set_nids(nids.clone());
            }
            if !before.nids.contains_key(ost) {
                self.show_up(*ost);
            }
        }
        for (ost, replaced) in table.order.replaced() {
            self.tell_lost(*ost, *replaced);
        }
        for owner in config.owners() {
            self.sessions.owned_by(owner.target, owner.epoch);
        }
        self.current.announce();
        Ok(())
    }

    /// Whether an OST was taken out of the file system.
    pub fn is_removed(&self, ost: OstIndex) -> bool {
        self.table().removed.contains(&ost)
    }

    /// Those of `osts` that took the place of a lost one. What is new since this MDT last looked begins with a sequence of its own; one that
    /// was taken out may come back, with what it has.
    async fn replaced<'a>(
        &self,
        config: &ConfigCopy,
        osts: impl Iterator<Item = (OstIndex, &'a TargetEntry)>,
    ) -> Result<BTreeMap<OstIndex, Replaced>, StoreError> {
        let before = self.table();
        let known = before.order.replaced().iter().map(|(ost, known)| (*ost, *known));
        let mut replaced: BTreeMap<_, _> =
            known.filter(|(ost, _)| config.is_removed(TargetId::ost(*ost))).collect();
        let mut first = None;
        for (ost, entry) in osts.filter(|(_, entry)| entry.replaces) {
            let known = before.order.replaced().get(&ost).filter(|known| known.uuid == entry.uuid);
            let known = match (known, first) {
                (Some(known), _) => *known,
                (None, Some(first)) => Replaced { uuid: entry.uuid, first },
                (None, None) => {
                    self.recovery.until_over().await;
                    let sequence = self.sequences.take(&self.store).await.map_err(|code| {
                        StoreError::Io(std::io::Error::other(format!("no sequence for new objects: {code}")))
                    })?;
                    self.sequences.begin_at(sequence);
                    first = Some(sequence);
                    Replaced { uuid: entry.uuid, first: sequence }
                }
            };
            replaced.insert(ost, known);
        }
        Ok(replaced)
    }

    /// Lets an OST know what the lost one may have had whose place it took; once for each start of this MDT.
    fn tell_lost(self: &Arc<Self>, ost: OstIndex, replaced: Replaced) {
        if !self.sessions.begin_to_tell(replaced.uuid) {
            return;
        }
        let osts = self.clone();
        self.rt.spawn(async move {
            while osts.table().order.replaced().get(&ost) == Some(&replaced)
                && let Some(import) = osts.import(ost)
            {
                match osts.stop.unless(import.call(LoseBefore { sequence: replaced.first })).await {
                    None | Some(Ok(_)) => return,
                    Some(Err(error)) => {
                        tracing::warn!(%ost, %error, "an OST that took the place of a lost one does not take what it is told")
                    }
                }
                if osts.stop.unless(osts.rt.sleep(PAUSE)).await.is_none() {
                    return;
                }
            }
            // It was taken out before it was told; it may come back.
            osts.sessions.is_untold(replaced.uuid);
        });
    }

    /// The OSTs that are not reached are others now.
    pub async fn reorder(&self) -> Result<(), StoreError> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let now = self.table();
        let (nids, servers, removed) = (now.nids.clone(), now.servers.clone(), now.removed.clone());
        let (degraded, pools) = (now.degraded.clone(), now.pools.clone());
        let order = Order::from_osts(now.order.osts().to_vec()).replacing(now.order.replaced().clone());
        let (told, spills, is_told) = (Mutex::default(), self.choice.spills.clone(), now.is_told);
        self.put(Table { order, nids, servers, removed, degraded, pools, told, spills, is_told }).await?;
        self.current.announce();
        Ok(())
    }

    /// As Lustre has them, below `lod`.
    pub fn parameters<'a>(self: &'a Arc<Osts>, tree: &mut TargetTree<'a>) {
        let max = Parameter::gauge("dom_stripesize", Unit::Bytes, || {
            self.choice.on_mdt_max.lock().unwrap_or(MDT_DATA_BYTES_MAX)
        });
        tree.of_layouts(max.settable(ON_MDT_MAX, |text: &str| {
            let bytes: u64 = text.trim().parse().map_err(|_| Code::Invalid)?;
            if bytes > MDT_DATA_BYTES_MAX || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
                return Err(Code::Invalid);
            }
            *self.choice.on_mdt_max.lock() = Some(bytes).filter(|bytes| *bytes < MDT_DATA_BYTES_MAX);
            let osts = self.clone();
            self.rt.spawn(async move {
                if let Some(Err(error)) = osts.stop.unless(osts.reorder()).await {
                    tracing::error!(%error, "how much of new files lies on the MDT");
                }
            });
            Ok(())
        }));
    }

    /// The OSTs and pools that this MDT knows, as Lustre lists them below `lod`.
    pub fn list_parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        let table = self.table();
        let name = |ost: &OstIndex| format!("{}_UUID", device_name(&self.fsname, TargetId::ost(*ost)));
        let away = self.choice.away.avoided();
        let (all, active) = (table.nids.len(), table.osts().filter(|ost| !away.contains(ost)).count());
        tree.of_layouts(Parameter::gauge("numobd", Unit::None, move || all));
        tree.of_layouts(Parameter::gauge("activeobd", Unit::None, move || active));
        let lines = table.clone();
        tree.of_layouts(Parameter::text("target_obd", move || {
            let state = |ost| if away.contains(ost) { "INACTIVE" } else { "ACTIVE" };
            let lines = lines.nids.keys().map(|ost| format!("{}: {} {}", ost.0, name(ost), state(ost)));
            lines.collect::<Vec<_>>().join("\n")
        }));
        for (pool, osts) in table.pools.iter() {
            let members = osts.iter().map(name).collect::<Vec<_>>().join("\n");
            tree.of_layouts(Parameter::text(format!("pools.{pool}"), move || members));
        }
    }

    /// Takes a new state, and gives the one before. The order in which stripes take OSTs is durable before it is used: creates that
    /// are replayed after a crash have to find the one that they were made with.
    async fn put(&self, table: Table) -> Result<Arc<Table>, StoreError> {
        let now = self.table();
        let table = Table { order: self.choice.order(&table, &now.order), ..table };
        if table.order != now.order {
            self.recovery.until_over().await;
            // A create with the old order must not come behind the new one in the log: if it were lost in a crash that
            // the new order survives, it would be replayed with that.
            self.current.begin_reordering();
            let saved = self.make_durable(&table.order).await;
            if saved.is_err() {
                self.current.stays();
            }
            saved?;
        }
        Ok(self.current.replace(table))
    }

    pub(super) fn rt(&self) -> &Rt {
        &self.rt
    }

    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Lets an OST know that this MDT began anew: if it restarted too, it may be waiting for what the MDT of before had to
    /// say.
    fn show_up(&self, ost: OstIndex) {
        let Some(import) = self.import(ost) else { return };
        let stop = self.stop.clone();
        self.rt.spawn(async move {
            if let Some(Err(error)) = stop.unless(import.call(Statfs {})).await {
                tracing::debug!(%ost, %error, "an OST does not say how it is");
            }
        });
    }

    async fn make_durable(&self, order: &Order) -> Result<(), StoreError> {
        let transno = stored::save(&self.store, order)?;
        self.store.committed(transno).await
    }
}

/// Follows the configuration until the target is stopped.
pub async fn watch(osts: Arc<Osts>, destroyer: Arc<Destroyer>) {
    let Some(mgs) = osts.mgs.clone() else { return };
    let mut known = ConfigCopy::new(osts.fsname.clone());
    let mut applied = known.version();
    loop {
        match osts.stop.unless(mgs.call(known.question(WAIT_MS))).await {
            None | Some(Err(RpcError::Closed)) => return,
            Some(Ok(answered)) => {
                // The order of the OSTs follows from all of them.
                if known.take(answered.reply) && known.is_whole() && known.version() != applied {
                    match osts.stop.unless(osts.apply(&known)).await {
                        Some(Ok(())) => {}
                        Some(Err(error)) => {
                            tracing::error!(%error, "the OSTs of the file system");
                            return;
                        }
                        None => return,
                    }
                    applied = known.version();
                    destroyer.wake(&[]);
                }
            }
            Some(Err(RpcError::Refused(code))) => {
                tracing::warn!(%code, "the MGS does not tell the configuration");
                if osts.stop.unless(osts.rt.sleep(PAUSE)).await.is_none() {
                    return;
                }
            }
        }
    }
}
