//! The OSTs that the file system has, as the MGS tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use proto::layout::LayoutHint;
use proto::limits::{MDT_DATA_BYTES_MAX, STRIPE_SIZE_UNIT};
use proto::parameters::{Parameter, TargetTree, Unit, device_name};
use proto::pool::POOLS_MAX;
use proto::wire::messages::{LoseBefore, PoolEntry, Statfs, TargetEntry};
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, Code, ConfigCopy, Fid, Layout, Nid, OstIndex, Pools, TargetId, Transno};
use rpc::{Hub, Import, Role, RpcError};
use rt::Rt;
use rt::sync::{Notify, Semaphore};
use service::{Env, Recovery, Stop};
use store::{Batch, Change, Store, StoreError};

use super::allocate::{self, Order, Replaced};
use super::away::Away;
use super::destroy::Destroyer;
use super::keys;
use super::owners::Numbers;
use super::qos::Qos;
use super::sequence::Sequences;
use super::spill::Spills;
use super::turns::Round;
use crate::data::Data;

/// How long the MGS may hold a request for a newer configuration, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// Version of the format of the stored order: some OSTs have more turns than others.
const FORMAT_ROUNDS: u8 = 6;
/// The one before, which is written as long as all have as many: pools spill.
const FORMAT_SPILLS: u8 = 5;
/// The one before that, which is written as long as no pool spills, either.
const FORMAT: u8 = 4;
/// The one before that: nobody took a lost one's place.
const FORMAT_POOLS: u8 = 3;
/// And before that: no pools.
const FORMAT_MARKED: u8 = 2;
/// And before that: nothing of what is avoided.
const FORMAT_PLAIN: u8 = 1;
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
    hub: Hub,
    stop: Stop,
    recovery: Arc<Recovery>,
    mgs: Option<Arc<Import>>,
    fsname: String,
    client: ClientId,
    store: Arc<Store>,
    sequences: Arc<Sequences>,
    table: RwLock<Arc<Table>>,
    /// The MGS has told what there is since this start.
    told: AtomicBool,
    /// Whether another order is being made durable. Who makes a layout holds this until its commit.
    reordering: RwLock<bool>,
    /// One state follows the other.
    turn: Semaphore,
    away: Away,
    spills: Arc<Spills>,
    qos: Qos,
    /// Most bytes of a new file that lie on the MDT, as an operator wants it; the newest order has it when that is durable.
    on_mdt_max: Mutex<Option<u64>>,
    /// Those that were told, or are being told, what the lost one had whose place they took.
    told_lost: Mutex<BTreeSet<ClientId>>,
    changed: Notify,
}

/// One state of the configuration.
#[derive(Default)]
pub struct Table {
    /// In which order stripes take them.
    pub order: Order,
    nids: Arc<BTreeMap<OstIndex, Vec<Nid>>>,
    /// Who serves them.
    servers: Arc<BTreeMap<OstIndex, String>>,
    /// Those that were taken out of the file system.
    removed: Arc<BTreeSet<OstIndex>>,
    /// Those that an operator has new files keep away from.
    degraded: Vec<OstIndex>,
    pools: Arc<Pools>,
    /// Pools of which the log says already that they cannot give what they are asked for.
    told: Mutex<BTreeSet<String>>,
    spills: Arc<Spills>,
    /// The MGS has told it: before, nobody knows which OSTs and pools there are.
    pub is_told: bool,
}

impl Table {
    /// Every OST.
    pub fn osts(&self) -> impl Iterator<Item = OstIndex> {
        self.nids.keys().copied()
    }

    /// The members of a pool; `None` if there is no such pool.
    pub fn pool(&self, name: &str) -> Option<&BTreeSet<OstIndex>> {
        self.pools.get(name)
    }

    /// Whether `other` has the same pools.
    pub fn has_pools_of(&self, other: &Table) -> bool {
        self.pools == other.pools
    }

    /// A layout with the name `id` after `hint`. A pool that has been destroyed is asked for by defaults of before.
    pub fn allocate(&self, id: Fid, hint: &LayoutHint) -> Result<Layout, Code> {
        if let Some(pool) = self.order.lost_pool(hint).filter(|pool| self.is_news(pool)) {
            tracing::warn!(pool, "the pool of a default layout was destroyed: new files get OSTs of all");
        }
        let made = allocate::allocate(id, hint, &self.order);
        self.look(&made, hint);
        if let Ok(layout) = &made {
            self.count(hint, layout);
        }
        made
    }

    /// Whether all of a file is where it was. Lost if an OST was replaced since, Removed if one was taken out: then the objects that are left
    /// do not say any more how large the file is, so nobody may change what is known of that.
    pub fn check_whole(&self, layout: &Layout) -> Result<(), Code> {
        if self.order.replaced().is_empty() && self.removed.is_empty() {
            return Ok(());
        }
        layout.places().try_for_each(|place| match place.target.ost() {
            Some(ost) if self.removed.contains(&ost) => Err(Code::Removed),
            Some(ost) => match self.order.replaced().get(&ost) {
                Some(replaced) if place.object.layout.seq < replaced.first => Err(Code::Lost),
                _ => Ok(()),
            },
            None => Ok(()),
        })
    }

    /// See [`allocate::place`].
    pub fn place(
        &self,
        layout: &Layout,
        range: (u64, u64),
        fresh: impl FnMut() -> Result<Fid, Code>,
    ) -> Result<Option<Layout>, Code> {
        let made = allocate::place(layout, range, &self.order, fresh);
        for wanted in layout.components.iter().filter_map(|component| component.wanted.as_deref()) {
            self.look(&made, wanted);
        }
        if let Ok(Some(made)) = &made {
            let pairs = layout.components.iter().zip(&made.components);
            let placed = pairs.filter(|(before, now)| !before.is_placed() && now.is_placed());
            let wanted = placed.filter_map(|(before, _)| before.wanted.as_deref());
            wanted.for_each(|wanted| self.spills.count(wanted, &self.order));
        }
        made
    }

    /// Counts what went past a full pool: of several components the first one that has objects.
    fn count(&self, hint: &LayoutHint, layout: &Layout) {
        if hint.parts.is_empty() {
            return self.spills.count(hint, &self.order);
        }
        let parts = hint.parts.iter().zip(&layout.components).filter(|(_, of)| of.osts().next().is_some());
        parts.for_each(|(part, _)| self.spills.count(&part.hint(), &self.order));
    }

    /// A pool without OSTs is told of in the log.
    fn look<T>(&self, made: &Result<T, Code>, hint: &LayoutHint) {
        let empty = self.order.empty_pool(hint).filter(|_| matches!(made, Err(Code::NoSpace)));
        if let Some(pool) = empty.filter(|pool| self.is_news(pool)) {
            tracing::warn!(
                pool,
                "the pool has no OST: files that ask for it cannot be made; see lctl pool_add"
            );
        }
    }

    /// Whether the log does not say it yet. It says it once for each state of the configuration.
    fn is_news(&self, pool: &str) -> bool {
        let mut told = self.told.lock();
        told.len() < POOLS_MAX && told.insert(pool.to_owned())
    }
}

impl Osts {
    /// Those that the target knew before.
    pub fn open(env: &Env, sequences: Arc<Sequences>) -> Result<Osts, StoreError> {
        let label = env.store.label();
        let order = load_order(&env.store)?;
        let on_mdt_max = Mutex::new(order.on_mdt_max());
        let spills = Arc::new(Spills::default());
        Ok(Osts {
            rt: env.rt.clone(),
            hub: env.hub.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            mgs: env.mgs.clone(),
            fsname: label.fsname.to_string(),
            client: label.uuid,
            store: env.store.clone(),
            sequences,
            table: RwLock::new(Arc::new(Table { order, spills: spills.clone(), ..Table::default() })),
            told: AtomicBool::new(env.mgs.is_none()),
            reordering: RwLock::new(false),
            turn: Semaphore::new(1),
            away: Away::default(),
            spills,
            qos: Qos::default(),
            on_mdt_max,
            told_lost: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// What is known now.
    pub fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    /// The order stays as it is until the result is dropped; `None` while it changes.
    pub fn ordered(&self) -> Option<impl Sized + '_> {
        Some(self.reordering.read()).filter(|reordering| !**reordering)
    }

    /// Waits until the order does not change any more.
    pub async fn until_ordered(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !*self.reordering.read() {
                return;
            }
            changed.await;
        }
    }

    /// The session with an OST; `None` if there is no such OST.
    pub fn import(&self, ost: OstIndex) -> Option<Arc<Import>> {
        let nids = self.table().nids.get(&ost)?.clone();
        Some(self.hub.import(TargetId::ost(ost), self.client, Role::Server, nids))
    }

    /// Waits until there is an OST, at most for `duration` since the MGS has said that there is none: before, nobody knows. If all were
    /// taken out, nobody waits.
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn wait_for_any(&self, duration: Duration) -> Result<(), Code> {
        let is_there = || {
            let table = self.table();
            !table.order.is_empty() || !table.removed.is_empty()
        };
        let told = || is_there() || self.told.load(Ordering::Acquire);
        let any = async {
            self.until(told).await;
            self.rt.timeout(duration, self.until(is_there)).await;
        };
        self.stop.unless(any).await.ok_or(Code::TryAgain)
    }

    /// Waits until the MGS has told what there is, if there is one.
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn until_told(&self) -> Result<(), Code> {
        let told = self.until(|| self.mgs.is_none() || self.table().is_told);
        self.stop.unless(told).await.ok_or(Code::TryAgain)
    }

    /// Waits until `table` is not the state any more.
    /// [`Code::TryAgain`] if the target is being stopped.
    pub async fn until_not(&self, table: &Arc<Table>) -> Result<(), Code> {
        let changed = self.until(|| !Arc::ptr_eq(&self.table.read(), table));
        self.stop.unless(changed).await.ok_or(Code::TryAgain)
    }

    /// Waits until every pool that `hint` asks for is there and has an OST, at most for `duration`.
    pub async fn wait_for_pools(&self, hint: &LayoutHint, duration: Duration) {
        let there = self.until(|| self.table().order.has_pools(hint));
        self.stop.unless(self.rt.timeout(duration, there)).await;
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if condition() {
                return;
            }
            changed.await;
        }
    }

    /// Takes a new configuration.
    pub async fn apply(self: &Arc<Self>, config: &ConfigCopy) -> Result<(), StoreError> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let osts = config.targets().filter_map(|entry| Some((entry.target.ost_index()?, entry)));
        let replaced = self.replaced(config, osts.clone()).await?;
        let servers: BTreeMap<OstIndex, String> =
            osts.clone().map(|(ost, entry)| (ost, entry.server.clone())).collect();
        let order = Order::new(servers.clone().into_iter().collect()).replacing(replaced);
        self.qos.keep(|ost| servers.contains_key(&ost));
        let nids = Arc::new(osts.map(|(ost, entry)| (ost, entry.nids.clone())).collect());
        let degraded = config.degraded().filter_map(TargetId::ost_index).collect();
        let pools = Arc::new(config.pools().clone());
        let removed = Arc::new(config.removed().filter_map(TargetId::ost_index).collect());
        let (told, spills) = (Mutex::default(), self.spills.clone());
        let (servers, is_told) = (Arc::new(servers), true);
        let table = Table { order, nids, servers, removed, degraded, pools, told, spills, is_told };
        let before = self.put(table).await?;
        let table = self.table();
        self.bar_removed(&before, &table);
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
            self.hub.owned_by(owner.target, owner.epoch);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Nobody asks an OST that was taken out, until another one has its index.
    fn bar_removed(&self, before: &Table, now: &Table) {
        let bar = |ost: OstIndex, nids: &[Nid], why| {
            self.hub.import(TargetId::ost(ost), self.client, Role::Server, nids.to_vec()).bar(why);
        };
        let gone = before.nids.iter().filter(|(ost, _)| now.removed.contains(ost));
        gone.for_each(|(ost, nids)| bar(*ost, nids, Some(Code::Removed)));
        let back = now.nids.iter().filter(|(ost, _)| before.removed.contains(ost));
        back.for_each(|(ost, nids)| bar(*ost, nids, None));
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
        if !self.told_lost.lock().insert(replaced.uuid) {
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
            osts.told_lost.lock().remove(&replaced.uuid);
        });
    }

    /// The OSTs that are not reached are others now.
    pub async fn reorder(&self) -> Result<(), StoreError> {
        let Ok(_turn) = self.turn.acquire().await else { return Ok(()) };
        let now = self.table();
        let (nids, servers, removed) = (now.nids.clone(), now.servers.clone(), now.removed.clone());
        let (degraded, pools) = (now.degraded.clone(), now.pools.clone());
        let order = Order::from_osts(now.order.osts().to_vec()).replacing(now.order.replaced().clone());
        let (told, spills, is_told) = (Mutex::default(), self.spills.clone(), now.is_told);
        self.put(Table { order, nids, servers, removed, degraded, pools, told, spills, is_told }).await?;
        self.changed.notify_waiters();
        Ok(())
    }

    /// As Lustre has them, below `lod`.
    pub fn parameters<'a>(self: &'a Arc<Osts>, tree: &mut TargetTree<'a>) {
        let max = Parameter::gauge("dom_stripesize", Unit::Bytes, || {
            self.on_mdt_max.lock().unwrap_or(MDT_DATA_BYTES_MAX)
        });
        tree.of_layouts(max.settable(ON_MDT_MAX, |text: &str| {
            let bytes: u64 = text.trim().parse().map_err(|_| Code::Invalid)?;
            if bytes > MDT_DATA_BYTES_MAX || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
                return Err(Code::Invalid);
            }
            *self.on_mdt_max.lock() = Some(bytes).filter(|bytes| *bytes < MDT_DATA_BYTES_MAX);
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
        let away = self.away.avoided();
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
        let avoided = table.degraded.iter().copied().chain(self.away.avoided()).chain(self.qos.full());
        let order = table.order.clone().avoiding(avoided.collect()).with_pools(&table.pools);
        let order = self.qos.in_turns(order, &self.table().order, &table.servers);
        let order = order.with_on_mdt_max(*self.on_mdt_max.lock()).spilling(self.spills.active());
        let table = Table { order, ..table };
        if table.order != self.table().order {
            self.recovery.until_over().await;
            // A create with the old order must not come behind the new one in the log: if it were lost in a crash that
            // the new order survives, it would be replayed with that.
            *self.reordering.write() = true;
            let saved = self.make_durable(&table.order).await;
            if saved.is_err() {
                *self.reordering.write() = false;
                self.changed.notify_waiters();
            }
            saved?;
        }
        let before = std::mem::replace(&mut *self.table.write(), Arc::new(table));
        self.told.store(true, Ordering::Release);
        *self.reordering.write() = false;
        Ok(before)
    }

    /// Those that are not reached.
    pub(super) fn away(&self) -> &Away {
        &self.away
    }

    /// Pools that spill, or may.
    pub(super) fn spills(&self) -> &Spills {
        &self.spills
    }

    /// How much room OSTs have.
    pub(super) fn qos(&self) -> &Qos {
        &self.qos
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
        let transno = save_order(&self.store, order)?;
        self.store.committed(transno).await
    }
}

fn load_order(store: &Store) -> Result<Order, StoreError> {
    let Some(value) = store.get(&[keys::OSTS])? else { return Ok(Order::default()) };
    order_of(&value.bytes).ok_or_else(|| StoreError::Corrupt { what: "the order of the OSTs".into() })
}

/// An order as it was stored.
fn order_of(value: &Bytes) -> Option<Order> {
    match *value.first()? {
        FORMAT_ROUNDS => in_rounds(&mut Reader::new(value.slice(1..))),
        FORMAT_SPILLS => spilling(&mut Reader::new(value.slice(1..))).ok(),
        FORMAT => whole(&mut Reader::new(value.slice(1..))).ok(),
        FORMAT_POOLS => with_pools(&mut Reader::new(value.slice(1..))).ok(),
        _ => without_pools(value),
    }
}

/// Behind the turns of all OSTs, and those of each pool, there is an order without that.
fn in_rounds(from: &mut Reader) -> Option<Order> {
    let all = Round::new(from.take().ok()?);
    let pools = from.take::<Vec<PoolEntry>>().ok()?.into_iter();
    let pools: BTreeMap<String, Round> = pools.map(|pool| (pool.name, Round::new(pool.osts))).collect();
    let rest = from.take_bytes(from.remaining()).ok()?;
    let order =
        Some(rest).filter(|rest| rest.first() != Some(&FORMAT_ROUNDS)).and_then(|rest| order_of(&rest))?;
    Some(order.with_rounds(|pool, _| match pool {
        Some(pool) => pools.get(pool).cloned().unwrap_or_default(),
        None => all.clone(),
    }))
}

/// Behind what pools spill from and to there is an order without that.
fn spilling(from: &mut Reader) -> Result<Order, DecodeError> {
    let (pools, targets) = (from.take::<Vec<String>>()?, from.take::<Vec<String>>()?);
    if pools.len() != targets.len() {
        return Err(DecodeError::BadValue);
    }
    Ok(whole(from)?.spilling(pools.into_iter().zip(targets).collect()))
}

fn whole(from: &mut Reader) -> Result<Order, DecodeError> {
    let order = with_pools(from)?;
    let osts = from.take::<Vec<OstIndex>>()?;
    let (uuids, firsts) = (from.take::<Vec<ClientId>>()?, from.take::<Vec<u64>>()?);
    if osts.len() != uuids.len() || osts.len() != firsts.len() {
        return Err(DecodeError::BadValue);
    }
    let names = uuids.into_iter().zip(firsts).map(|(uuid, first)| Replaced { uuid, first });
    // A program that does not know it reads no further.
    let on_mdt_max = if from.is_empty() { None } else { Some(from.take()?) };
    Ok(order.replacing(osts.into_iter().zip(names).collect()).with_on_mdt_max(on_mdt_max))
}

fn with_pools(from: &mut Reader) -> Result<Order, DecodeError> {
    let order = Order::from_osts(from.take()?).avoiding(from.take()?);
    let mut pools = Pools::default();
    from.take::<Vec<PoolEntry>>()?.into_iter().for_each(|pool| pools.insert(pool));
    Ok(order.with_pools(&pools))
}

fn without_pools(value: &[u8]) -> Option<Order> {
    let (format, rest) = value.split_first()?;
    let (numbers, rest) = rest.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
    let count = match *format {
        FORMAT_MARKED => numbers.next()? as usize,
        FORMAT_PLAIN => numbers.len(),
        _ => return None,
    };
    let whole = rest.is_empty() && count <= numbers.len();
    let mut osts = numbers.map(OstIndex);
    whole.then(|| Order::from_osts(osts.by_ref().take(count).collect()).avoiding(osts.collect()))
}

fn order_value(order: &Order) -> Bytes {
    let mut value = Vec::new();
    let turns = |pool| order.round(pool).map(|round| round.turns().to_vec());
    let of_pools = order.pools().filter_map(|(name, _)| Some((name, turns(Some(name))?)));
    let of_pools: Vec<PoolEntry> =
        of_pools.map(|(name, osts)| PoolEntry { name: name.to_owned(), osts }).collect();
    if turns(None).is_some() || !of_pools.is_empty() {
        value.push(FORMAT_ROUNDS);
        turns(None).unwrap_or_default().put(&mut value);
        of_pools.put(&mut value);
    }
    value.push(if order.spills().is_empty() { FORMAT } else { FORMAT_SPILLS });
    if !order.spills().is_empty() {
        order.spills().keys().cloned().collect::<Vec<_>>().put(&mut value);
        order.spills().values().cloned().collect::<Vec<_>>().put(&mut value);
    }
    order.osts().to_vec().put(&mut value);
    order.avoided().to_vec().put(&mut value);
    let pools = order.pools().map(|(name, osts)| PoolEntry { name: name.to_owned(), osts: osts.to_vec() });
    pools.collect::<Vec<_>>().put(&mut value);
    let replaced = order.replaced();
    replaced.keys().copied().collect::<Vec<_>>().put(&mut value);
    replaced.values().map(|replaced| replaced.uuid).collect::<Vec<_>>().put(&mut value);
    replaced.values().map(|replaced| replaced.first).collect::<Vec<_>>().put(&mut value);
    order.on_mdt_max().iter().for_each(|max| max.put(&mut value));
    value.into()
}

fn save_order(store: &Store, order: &Order) -> Result<Transno, StoreError> {
    let change = Change { key: Bytes::from_static(&[keys::OSTS]), value: Some(order_value(order)) };
    store.commit(Batch { changes: vec![change], ..Batch::default() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_a_format_before_is_read() {
        let order_of = |value: &[u8]| order_of(&Bytes::copy_from_slice(value));
        let plain = [1, 7, 0, 0, 0, 3, 0, 0, 0];
        let (order, seven) = (Order::from_osts(vec![OstIndex(7), OstIndex(3)]), vec![OstIndex(7)]);
        assert_eq!(order_of(&plain), Some(order.clone()));
        let marked = [2, 2, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(order_of(&marked), Some(order.avoiding(seven)));
        for wrong in [&[][..], &[3], &[4], &[5], &[2], &[2, 1, 0, 0, 0], &[1, 7, 0, 0]] {
            assert_eq!(order_of(wrong), None, "{wrong:?}");
        }
    }

    /// The bytes are pinned: targets that were written before have to be read.
    #[test]
    fn an_order_with_pools_has_these_bytes() {
        let mut pools = Pools::default();
        pools.insert(PoolEntry { name: "a".into(), osts: vec![OstIndex(3), OstIndex(7)] });
        pools.insert(PoolEntry { name: "b".into(), osts: vec![] });
        let order = Order::from_osts(vec![OstIndex(7), OstIndex(3)]).avoiding(vec![OstIndex(3)]);
        let order = order.with_pools(&pools);
        let replaced = Replaced { uuid: ClientId(0x0f), first: 0x1_0203 };
        let order = order.replacing(BTreeMap::from([(OstIndex(7), replaced)]));
        let value = order_value(&order);
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let osts = "04 02000000 07000000 03000000 01000000 03000000";
        let pools = "02000000 11000000 01000000 61 02000000 07000000 03000000 09000000 01000000 62 00000000";
        let replaced =
            "01000000 07000000 01000000 0f000000000000000000000000000000 01000000 0302010000000000";
        assert_eq!(hex, [osts, pools, replaced].concat().replace(' ', ""));
        let before =
            Bytes::from([&[3], &value[1..value.len() - replaced.replace(' ', "").len() / 2]].concat());
        assert_eq!(order_of(&before), Some(order.clone().replacing(BTreeMap::new())), "of the format before");
        assert_eq!(order_of(&value), Some(order.clone()));
        for len in 0..value.len() {
            assert_eq!(order_of(&value.slice(..len)), None, "{len} bytes");
        }
        let bounded = order_value(&order.clone().with_on_mdt_max(Some(65_536)));
        assert_eq!(bounded, [&value[..], &[0, 0, 1, 0, 0, 0, 0, 0]].concat());
        let order = order.with_on_mdt_max(Some(65_536));
        assert_eq!(order_of(&bounded), Some(order.clone()));
        let order = order.spilling(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let spilling = order_value(&order);
        let front = [5, 1, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 0, 0, 0, 1, 0, 0, 0, b'b'];
        assert_eq!(spilling, [&front[..], &bounded[1..]].concat());
        assert_eq!(order_of(&spilling), Some(order.clone()));
        let turns = |osts: &[u32]| Round::new(osts.iter().copied().map(OstIndex).collect());
        let order = order.with_rounds(|pool, _| match pool {
            None => turns(&[7, 3, 7]),
            Some("a") => turns(&[3, 3]),
            Some(_) => Round::default(),
        });
        let rounds = order_value(&order);
        let front =
            "06 03000000 07000000 03000000 07000000 01000000 11000000 01000000 61 02000000 03000000 03000000";
        let hex: String = rounds.iter().map(|byte| format!("{byte:02x}")).collect();
        let rest: String = spilling.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, front.replace(' ', "") + &rest);
        assert_eq!(order_of(&rounds), Some(order));
        let twice = [&rounds[..hex.len() / 2 - spilling.len()], &rounds[..]].concat();
        assert_eq!(order_of(&twice.into()), None, "there is one order");
    }
}
