//! The management server: who is a target of the file system, and where; and which clients live.
//!
//! Every process learns the table by a long poll and so hears of a change at once. What is not durable yet is shown
//! to nobody: a version never names two configurations. Leases of clients are [`proto::lease`], in memory only.

mod live;
mod owners;
mod pools;
mod seen;
mod settings;
mod table;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::lease::Leases;
use proto::limits::{NIDS_MAX, TARGETS_MAX};
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::wire::messages::{MgsRequest, OwnersRequest};
use proto::{Code, TargetKind, Transno};
use rpc::{Hub, Peer, Role};
use rt::Rt;
use rt::sync::{Notify, Semaphore};
use service::{Ctx, Done, Env, Handler, Shown, Stop, code_of, space_state};
use store::{Batch, Store, StoreError};

use crate::Counts;
use crate::settings::set_of_process;
use live::Notices;
use owners::OwnerTable;
use seen::Seen;
use table::{Known, Table};

/// Most requests for a newer configuration that wait at one time.
const WAITERS_MAX: usize = 262_144;
/// Longest time that such a request waits.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest name of a server, in bytes.
const SERVER_BYTES_MAX: usize = 255;

/// The management server.
pub struct Mgs {
    rt: Rt,
    hub: Hub,
    store: Arc<Store>,
    stop: Stop,
    fsname: String,
    table: Mutex<Table>,
    owners: OwnerTable,
    seen: Seen,
    /// The table that others see has changed.
    changed: Notify,
    waiters: Semaphore,
    notices: Notices,
    leases: Mutex<Leases>,
}

impl Handler for Mgs {
    type Session = ();
    type Request = MgsRequest;
    type Outside = OwnersRequest;
    const ORDERED: bool = false;

    async fn open(env: Env) -> Result<Mgs, StoreError> {
        Ok(Mgs {
            table: Mutex::new(Table::open(&env.store).await?),
            owners: OwnerTable::load(&env.rt, &env.store, &env.stop)?,
            seen: Seen::load(&env.hub, &env.store)?,
            notices: Notices::new(&env.rt),
            fsname: env.store.label().fsname.as_str().to_owned(),
            leases: Mutex::new(Leases::new(env.rt.now().0, env.store.boot() as u32)),
            rt: env.rt,
            hub: env.hub,
            store: env.store,
            stop: env.stop,
            changed: Notify::new(),
            waiters: Semaphore::new(WAITERS_MAX),
        })
    }

    fn started(self: &Arc<Self>) {
        self.rt.spawn(self.clone().tick());
        let settings = self.table.lock().settings().seen().clone();
        settings.behind(0).for_each(|setting| self.take(setting));
    }

    async fn handle(&self, ctx: &Ctx<()>, request: MgsRequest, _bulk: Vec<Bytes>) -> Result<Done, Code> {
        match request {
            MgsRequest::Register(register) => self.register(ctx, register).await,
            MgsRequest::MarkTarget(mark) => self.mark(ctx, &mark).await,
            MgsRequest::GetConfig(get) => self.get_config(&get).await,
            MgsRequest::RenewLease(renewal) => self.renew_lease(ctx, &renewal),
            MgsRequest::AskLeases(asked) => self.ask_leases(ctx, &asked),
        }
    }

    async fn space(&self) -> Result<msg::Space, Code> {
        let space = self.store.space().await.map_err(|error| code_of(&error))?;
        let files = TARGETS_MAX as u64;
        Ok(msg::Space {
            bytes_total: space.total,
            bytes_free: space.free,
            bytes_available: space.available,
            files_total: files,
            files_free: files.saturating_sub(self.table.lock().count() as u64),
            state: space_state(&self.store),
            disk: space.identity,
            bytes_own: 0,
        })
    }

    async fn outside(&self, peer: &Peer, request: OwnersRequest) -> Result<Reply, Code> {
        if peer.role != Role::Server {
            return Err(Code::Forbidden);
        }
        match request {
            OwnersRequest::RenewTargets(renew) => self.owners.renew(&renew).map(Reply::RenewTargets),
            OwnersRequest::TakeTargets(take) => self.owners.take(&take).await.map(Reply::TakeTargets),
            OwnersRequest::ReleaseTarget(release) => {
                self.owners.release(&release).await.map(Reply::ReleaseTarget)
            }
            OwnersRequest::SettleTarget(settle) => self.owners.settle(&settle).await.map(Reply::SettleTarget),
            OwnersRequest::Claim(claim) => self.claim(&claim).await.map(Reply::Claim),
            OwnersRequest::ChangePool(change) => self.change_pool(&change).await.map(Reply::ChangePool),
            OwnersRequest::RemoveTarget(remove) => self.remove(&remove).await.map(Reply::RemoveTarget),
            OwnersRequest::ReadPools(asked) => self.read_pools(&asked).map(Reply::ReadPools),
            OwnersRequest::ChangeSetting(change) => {
                self.change_setting(&change).await.map(Reply::ChangeSetting)
            }
        }
    }
}

impl Shown for Mgs {
    fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        tree.of_device(Parameter::gauge("lease_time", Unit::Seconds, || proto::lease::TTL_MS / 1000));
        let live = format!("live.{}", self.fsname);
        let live = Parameter::text(live, || self.notices.text(&self.table.lock().config(&self.fsname)));
        tree.of_device(live.settable("write 0 or clear, which clears the times", |text: &str| match text {
            "0" | "clear" => {
                self.notices.clear();
                Ok(())
            }
            _ => Err(Code::Invalid),
        }));
        tree.of_device(Parameter::text("live.params", || self.table.lock().settings().seen().text()));
    }
}

impl Counts for Mgs {}

impl Mgs {
    async fn register(&self, ctx: &Ctx<()>, register: msg::Register) -> Result<Done, Code> {
        ctx.only_servers()?;
        if register.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let sane = register.target.kind != TargetKind::Mgs
            && register.nids.len() <= NIDS_MAX
            && register.server.len() <= SERVER_BYTES_MAX;
        if !sane {
            return Err(Code::Invalid);
        }
        let noted = self.owners.check(&register)?;
        let done = {
            let mut table = self.table.lock();
            // Which server a target is counted to does not change with who stands in for it.
            let stays = table.server(register.target).filter(|_| register.stands_in);
            let before = table.has_replaced(register.target, register.uuid);
            let entry = Known::new(msg::TargetEntry {
                target: register.target,
                uuid: register.uuid,
                nids: register.nids,
                server: stays.unwrap_or(register.server),
                replaces: before || register.replaces,
            });
            match table.admit(&entry)? {
                None => {
                    let reply = Reply::Register(msg::Registered { version: table.newest(), told: false });
                    ctx.commit(Batch { changes: noted, ..Batch::default() }, reply)?
                }
                Some((mut changes, version)) => {
                    changes.extend(noted);
                    let reply = Reply::Register(msg::Registered { version, told: true });
                    let done = ctx.commit(Batch { changes, ..Batch::default() }, reply)?;
                    table.put(entry, version);
                    done
                }
            }
        };
        let Reply::Register(msg::Registered { version, .. }) = done.reply else {
            return Err(Code::Io);
        };
        self.publish(done.transno, version).await?;
        Ok(done)
    }

    /// A target is about to be served, or wants to be remembered as it is now.
    async fn claim(&self, claim: &msg::Claim) -> Result<msg::Claimed, Code> {
        if claim.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let (before, replaced) = {
            let table = self.table.lock();
            let replaced = table.place_of(claim.target, claim.uuid, claim.replaces)?;
            (table.nids(claim.target, claim.uuid), replaced)
        };
        if let Some(nids) = replaced {
            self.seen.may_replace(claim.target, claim.uuid, &nids).await?;
        }
        self.seen.claim(claim, before).await
    }

    /// Shows what the change `transno` has put into the table to others, once it is durable. Even an unchanged entry may be one that is not yet.
    async fn publish(&self, transno: Transno, version: u64) -> Result<(), Code> {
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        if self.table.lock().publish(version) {
            self.notices.news();
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// New files keep away from a target, or no longer.
    async fn mark(&self, ctx: &Ctx<()>, mark: &msg::MarkTarget) -> Result<Done, Code> {
        ctx.only_servers()?;
        let (done, version) = {
            let mut table = self.table.lock();
            let known = table.marked(mark)?;
            let reply = Reply::MarkTarget(msg::Done {});
            match table.admit(&known)? {
                None => (ctx.commit(Batch::default(), reply)?, table.newest()),
                Some((changes, version)) => {
                    let done = ctx.commit(Batch { changes, ..Batch::default() }, reply)?;
                    table.put(known, version);
                    (done, version)
                }
            }
        };
        self.publish(done.transno, version).await?;
        Ok(done)
    }

    /// Changes a pool. Even one that is so already may not be durable yet.
    async fn change_pool(&self, change: &msg::ChangePool) -> Result<msg::PoolChanged, Code> {
        if change.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let commit = |changes| {
            let batch = Batch { changes, ..Batch::default() };
            self.store.commit(batch).map_err(|error| code_of(&error))
        };
        let (transno, version) = {
            let mut table = self.table.lock();
            match table.admit_pool(change)? {
                None => (commit(Vec::new())?, table.newest()),
                Some((new, changes, version)) => {
                    let transno = commit(changes)?;
                    table.put_pool(new, version);
                    (transno, version)
                }
            }
        };
        self.publish(transno, version).await?;
        Ok(msg::PoolChanged { version })
    }

    /// Takes an OST out of the file system, and out of its pools before; or takes that back.
    async fn remove(&self, remove: &msg::RemoveTarget) -> Result<msg::TargetRemoved, Code> {
        if remove.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let ost = remove.target.ost_index().ok_or(Code::Invalid)?;
        let (pools, version) = {
            let table = self.table.lock();
            table.removed(remove.target, !remove.undo)?;
            let pools = if remove.undo { Vec::new() } else { table.pools_of(ost) };
            (pools, table.newest())
        };
        if remove.only_look {
            return Ok(msg::TargetRemoved { version, pools });
        }
        for name in &pools {
            let (fsname, name) = (remove.fsname.clone(), name.clone());
            let change = msg::ChangePool { fsname, name, change: msg::POOL_REMOVE, osts: vec![ost] };
            self.change_pool(&change).await?;
        }
        let (transno, version) = {
            let mut table = self.table.lock();
            let known = table.removed(remove.target, !remove.undo)?;
            let admitted = table.admit_removed(&known);
            let (changes, version) = admitted.unwrap_or_else(|| (Vec::new(), table.newest()));
            let is_new = !changes.is_empty();
            let batch = Batch { changes, ..Batch::default() };
            let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
            if is_new {
                table.put(known, version);
            }
            (transno, version)
        };
        self.publish(transno, version).await?;
        let what = if remove.undo { "part of the file system again" } else { "taken out of the file system" };
        tracing::info!(target = %remove.target, "{what}");
        Ok(msg::TargetRemoved { version, pools })
    }

    /// Keeps a parameter, or keeps it no longer.
    async fn change_setting(&self, change: &msg::ChangeSetting) -> Result<msg::SettingChanged, Code> {
        if change.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let (transno, version) = {
            let mut table = self.table.lock();
            let (new, changes, version) = table.admit_setting(change)?;
            let batch = Batch { changes, ..Batch::default() };
            let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
            table.put_setting(new, version);
            (transno, version)
        };
        self.publish(transno, version).await?;
        if let msg::ChangeSetting { name, value: Some(value), .. } = change {
            self.take(&msg::Setting { name: name.clone(), value: value.clone(), version });
        }
        Ok(msg::SettingChanged { version })
    }

    /// Has this process do what it has others do: it may serve no other target.
    fn take(&self, msg::Setting { name, value, .. }: &msg::Setting) {
        match set_of_process(&self.hub, name, value) {
            Ok(()) | Err(Code::NotFound) => {}
            Err(code) => {
                tracing::warn!(name, value, %code, "a parameter that is kept does not take its value")
            }
        }
    }

    fn read_pools(&self, asked: &msg::ReadPools) -> Result<msg::PoolsTold, Code> {
        if asked.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        Ok(self.table.lock().read_pools(asked))
    }

    async fn get_config(&self, get: &msg::GetConfig) -> Result<Done, Code> {
        if get.fsname != self.fsname {
            return Err(Code::WrongFilesystem);
        }
        let wait = Duration::from_millis(u64::from(get.wait_ms)).min(WAIT_MAX);
        let until = self.rt.now() + wait;
        let version: fn(&Table) -> u64 =
            if get.settings_only { |table| table.settings().version() } else { Table::version };
        if version(&self.table.lock()) <= get.known && !wait.is_zero() {
            let Ok(_place) = self.waiters.try_acquire() else { return Err(Code::TryAgain) };
            // Of targets those hear soon that use them: they are waited for in `live`.
            let _waiting = (!get.settings_only).then(|| self.notices.wait());
            let newer = self.newer(version, get.known);
            self.stop.unless(self.rt.timeout(until - self.rt.now(), newer)).await;
        }
        if get.settings_only {
            let page = self.table.lock().settings_page(&self.fsname, get.known);
            return Ok(Done::unchanged(Reply::GetConfig(page)));
        }
        let mut config = {
            let table = self.table.lock();
            if get.pages { table.page(&self.fsname, get.known) } else { table.config(&self.fsname) }
        };
        config.owners = self.owners.of(config.targets.iter().map(|entry| entry.target));
        Ok(Done::unchanged(Reply::GetConfig(config)))
    }

    /// Waits until the configuration, or the part that `version` is of, is newer than `known`.
    async fn newer(&self, version: fn(&Table) -> u64, known: u64) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if version(&self.table.lock()) > known {
                return;
            }
            changed.await;
        }
    }

    /// Lets the leases know that this process is at work.
    async fn tick(self: Arc<Self>) {
        loop {
            let rest = {
                let mut leases = self.leases.lock();
                let now = self.rt.now().0;
                leases.tick(now);
                Duration::from_nanos(leases.rest(now))
            };
            if self.stop.unless(self.rt.sleep(rest)).await.is_none() {
                return;
            }
        }
    }

    fn renew_lease(&self, ctx: &Ctx<()>, renewal: &msg::RenewLease) -> Result<Done, Code> {
        let client = ctx.session().client();
        let renewed = self.leases.lock().renew(self.rt.now().0, client, renewal);
        renewed.map(|renewed| Done::unchanged(Reply::RenewLease(renewed))).ok_or(Code::TryAgain)
    }

    fn ask_leases(&self, ctx: &Ctx<()>, asked: &msg::AskLeases) -> Result<Done, Code> {
        ctx.only_servers()?;
        if asked.clients.len() > msg::LEASES_ASKED_MAX {
            return Err(Code::TooBig);
        }
        let states = self.leases.lock().ask(self.rt.now().0, asked);
        Ok(Done::unchanged(Reply::AskLeases(states)))
    }
}
