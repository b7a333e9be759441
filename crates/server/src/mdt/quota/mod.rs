//! Quotas (FEATURES I13, I14): what users, groups and projects have of inodes and space, and may have. `docs/operations.md#quotas`.
//!
//! Inodes: what each owner has is a sum of the store, which every change of an inode adds to in its own commit: so it is exact after any
//! crash, and a limit that is checked where sums are settled is never passed, however many clients create at once. The superuser has no
//! limits. A replay has none either: what was answered before is so.
//!
//! Space: each target has the sums of its objects ([`usage`]), and the MDT permits clients what is left ([`space`]), of all targets and of
//! the OSTs of pools.

mod kept;
mod last;
mod limit;
mod pools;
mod space;
mod table;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::wire::messages::{
    QUOTA_DEFAULT_ID, QUOTA_GRACE_MAX_S, QUOTA_GROUP, QUOTA_IN_POOL, QUOTA_PROJECT, QUOTA_USER, QuotaState,
    ReadQuota, SetQuota,
};
use proto::{Code, Cred, Transno};
use rt::{Rt, Time};
use service::{Env, Recovery, Stop, code_of};
use smallvec::SmallVec;
use store::recount::put_right;
use store::sums::{self, INODE_OWNERS, sum_of};
use store::{Batch, Change, Need, Store, StoreError};

use super::inode::Inode;
use super::osts::Objects;
use super::plan::Step;
use super::{Ctx, Mdt, access};
use crate::data::Data;
use kept::{Kept, deadline_change};
use limit::{Limit, Most};
use space::Space;
use table::{Pool, Slot, Table};
use usage::Usage;

pub use pools::forget as forget_pools;

/// Most limits of owners of all kinds.
const LIMITS_MAX: usize = 262_144;
/// In a kind: it is about space, and not about inodes.
const SPACE: u8 = 0x40;

/// What owners may have.
pub struct Quotas {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    /// Whether there is any limit but of pools.
    is_used: AtomicBool,
    table: Mutex<Table>,
    usage: Usage,
    space: Space,
}

/// What an operation may give the owners of an inode.
pub type Bounds = SmallVec<[Bound; 2]>;

/// The most that one owner may come to.
pub struct Bound {
    /// One of `QUOTA_*`.
    pub kind: u8,
    /// Its number.
    pub id: u32,
    /// So many inodes.
    pub most: u64,
    /// It comes above its soft limit: that is kept with the change.
    pub change: Option<Change>,
}

/// Sums up what owners have in a target of before that was counted. Nobody uses it yet.
pub async fn sum_up(rt: &Rt, store: &Arc<Store>) -> Result<(), StoreError> {
    if store.get(&INODE_OWNERS.marker())?.is_some() {
        return Ok(());
    }
    let found = put_right(rt, store).await?;
    tracing::info!(sums = found.len(), "the inodes of each user and group are summed up from now on");
    Ok(())
}

fn is_kind(kind: u8) -> bool {
    matches!(kind, QUOTA_USER | QUOTA_GROUP | QUOTA_PROJECT)
}

/// What [`SetQuota`] wants of inodes, or of space.
struct Wanted {
    slot: Slot,
    soft: Option<u64>,
    hard: Option<u64>,
    grace_s: Option<u64>,
    /// What the owner has of it.
    used: u64,
}

impl Wanted {
    /// Inodes, unless it is about a pool, and space.
    fn of(set: &SetQuota, (kind, pool): (u8, Pool)) -> SmallVec<[Wanted; 2]> {
        let owner = (kind, set.id);
        let space = Wanted {
            slot: Slot::space(owner, &pool),
            soft: set.bytes_soft,
            hard: set.bytes_hard,
            grace_s: set.bytes_grace_s,
            used: 0,
        };
        let inodes = Wanted {
            slot: Slot::inodes(owner),
            soft: set.inodes_soft,
            hard: set.inodes_hard,
            grace_s: set.inodes_grace_s,
            used: 0,
        };
        let inodes = pool.is_none().then_some(inodes);
        inodes.into_iter().chain([space]).collect()
    }

    /// Whether a limit is to be set.
    fn limits(&self) -> bool {
        self.soft.is_some() || self.hard.is_some()
    }

    /// Whether that takes room.
    fn is_growth(&self) -> bool {
        [self.soft, self.hard, self.grace_s].into_iter().flatten().any(|number| number != 0)
    }
}

impl Quotas {
    /// Those in the store of `env`; `objects` and `data` say where space is used.
    pub fn open(env: &Env, objects: &Objects, data: Arc<Data>) -> Result<Quotas, StoreError> {
        let mut table = Table::load(&env.store)?;
        // The one before may have told clients so.
        table.free_until = env.rt.now() + space::FREE_TIME;
        Ok(Quotas {
            usage: Usage::new(env, objects, data),
            space: Space::open(&env.store)?,
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            is_used: AtomicBool::new(table.is_used()),
            table: Mutex::new(table),
        })
    }

    /// What the caller may give the owners of `inode`, which gets one more of them. Their sums are known.
    pub(super) fn bounds(&self, mdt: &Mdt, ctx: &Ctx, cred: &Cred, inode: &Inode) -> Step<Bounds> {
        let mut bounds = Bounds::new();
        if !self.is_used.load(Ordering::Relaxed) || ctx.replay.is_some() || access::is_root(cred) {
            return Ok(bounds);
        }
        let now_s = self.now_s();
        let mut table = self.table.lock();
        for (kind, id) in sums::owners(inode.owner()) {
            let slot = Slot::inodes((kind, id));
            let grace_s = table.grace_s(kind, &None);
            let Some(limit) = table.limit(&slot) else { continue };
            let stored = mdt.names.get(ctx.reads(), &INODE_OWNERS.key(kind, id))?;
            let used = sum_of(stored.map(|value| value.bytes).as_ref()).map_err(|error| code_of(&error))?;
            let Most { most, deadline_s } = limit.most(used, now_s, grace_s);
            let change = deadline_s.map(|at| deadline_change(&slot, at));
            if let Some(deadline_s) = deadline_s {
                table.set_deadline(slot, deadline_s);
            }
            bounds.push(Bound { kind, id, most, change });
        }
        Ok(bounds)
    }

    /// Whether anybody has a limit but of pools.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.rt.wall().secs).unwrap_or(0)
    }

    /// What a question is about: a kind of owners, and a pool that there is, or none.
    async fn meant(&self, kind: u8, pool: &str) -> Result<(u8, Pool), Code> {
        let (plain, is_of_pool) = (kind & !QUOTA_IN_POOL, kind & QUOTA_IN_POOL != 0);
        if !is_kind(plain) {
            return Err(Code::NotSupported);
        }
        if is_of_pool == pool.is_empty() {
            return Err(Code::Invalid);
        }
        if !is_of_pool {
            return Ok((plain, None));
        }
        self.usage.until_told().await?;
        match self.usage.table().pool(pool) {
            Some(_) => Ok((plain, Some(pool.into()))),
            None => Err(Code::NotFound),
        }
    }

    /// What an owner has, and may have.
    pub async fn read(&self, asked: &ReadQuota) -> Result<QuotaState, Code> {
        let (kind, pool) = self.meant(asked.kind, &asked.pool).await?;
        self.state((kind, asked.id), &pool).await
    }

    async fn state(&self, (kind, id): (u8, u32), pool: &Pool) -> Result<QuotaState, Code> {
        let targets = match id {
            QUOTA_DEFAULT_ID => Vec::new(),
            _ => self.usage.of_pool((kind, id), pool).await?,
        };
        let bytes = targets.iter().filter_map(|of| of.bytes).sum();
        let inodes = self.store.sum(&INODE_OWNERS.key(kind, id)).map_err(|error| code_of(&error))?;
        let (table, now_s) = (self.table.lock(), self.now_s());
        let inodes = match pool {
            None => table.state(&Slot::inodes((kind, id)), inodes, now_s),
            // Inodes lie on no OST: they are told, and have no limit.
            Some(_) => Table::default().state(&Slot::inodes((kind, id)), inodes, now_s),
        };
        let bytes = Some(table.state(&Slot::space((kind, id), pool), bytes, now_s));
        Ok(QuotaState { inodes, bytes, targets })
    }

    /// Changes what an owner may have, or all of a kind. Clients keep to it when this returns.
    pub async fn set(&self, set: &SetQuota) -> Result<QuotaState, Code> {
        let (kind, pool) = self.meant(set.kind, &set.pool).await?;
        let is_about_inodes =
            [set.inodes_soft, set.inodes_hard, set.inodes_grace_s].iter().any(Option::is_some);
        if pool.is_some() && is_about_inodes {
            return Err(Code::Invalid);
        }
        let owner = (kind, set.id);
        let mut wanted = Wanted::of(set, (kind, pool.clone()));
        if wanted.iter().any(|of| of.grace_s.is_some_and(|grace_s| grace_s > QUOTA_GRACE_MAX_S)) {
            return Err(Code::Range);
        }
        // While clients replay, the target draws no transno of its own.
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        let is_growth = !set.forget && wanted.iter().any(Wanted::is_growth);
        self.store
            .room(if is_growth { Need::Growth } else { Need::Release })
            .await
            .map_err(|error| code_of(&error))?;
        self.store.look_up_time().await;
        let mut limits_space = set.forget;
        for of in &mut wanted {
            let is_space = of.slot.kind & SPACE != 0;
            limits_space |= is_space && of.limits();
            of.used = match is_space {
                false => self.store.sum(&INODE_OWNERS.key(kind, set.id)).map_err(|error| code_of(&error))?,
                true if of.limits() && set.id != QUOTA_DEFAULT_ID => {
                    self.usage.of_pool(owner, &pool).await?.iter().filter_map(|of| of.bytes).sum()
                }
                true => 0,
            };
        }
        let (transno, free_until) = self.commit(&wanted, set.forget)?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        // Limits of all go with those of one.
        if limits_space {
            let left = free_until.0.saturating_sub(self.rt.now().0);
            self.stop.unless(self.rt.sleep(std::time::Duration::from_nanos(left))).await;
            // Some may have written unasked meanwhile.
            self.space.ask_again(|of| set.id == QUOTA_DEFAULT_ID || of == owner);
        }
        self.state(owner, &pool).await
    }

    /// Keeps what is wanted. Says until when clients may take the owner for one without limits.
    fn commit(&self, wanted: &[Wanted], forget: bool) -> Result<(Transno, Time), Code> {
        let mut table = self.table.lock();
        let mut changes = Vec::new();
        let mut said = SmallVec::<[(Slot, Option<Limit>); 2]>::new();
        for wanted in wanted {
            let Wanted { slot, soft, hard, grace_s, used } = wanted;
            if forget {
                changes.push(Kept::Limit(slot.clone(), Limit::default()).remove());
                changes.push(deadline_change(slot, 0));
                said.push((slot.clone(), None));
                continue;
            }
            if let Some(grace_s) = grace_s {
                changes.push(Kept::Grace(slot.kind, slot.pool.clone(), *grace_s).put());
            }
            if !wanted.limits() {
                continue;
            }
            let (mut limit, _) = table.effective(slot);
            limit.soft = soft.unwrap_or(limit.soft);
            limit.hard = hard.unwrap_or(limit.hard);
            if limit.hard != 0 && limit.soft > limit.hard {
                return Err(Code::Invalid);
            }
            if !table.says(slot) && table.len() + said.len() >= LIMITS_MAX {
                return Err(Code::TooBig);
            }
            let grace_s = grace_s.unwrap_or(table.grace_s(slot.kind, &slot.pool));
            let is_above = limit.deadline(*used) != 0;
            if !is_above {
                let begins = limit.soft != 0 && *used > limit.soft;
                limit.deadline_s = if begins { self.now_s().saturating_add(grace_s) } else { 0 };
            }
            changes.push(Kept::Limit(slot.clone(), limit).put());
            changes.push(deadline_change(slot, limit.deadline_s));
            said.push((slot.clone(), Some(limit)));
        }
        let batch = Batch { changes, ..Batch::default() };
        let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
        for Wanted { slot, grace_s, .. } in wanted.iter().filter(|_| !forget) {
            if let Some(grace_s) = grace_s {
                table.set_grace(slot.kind, &slot.pool, *grace_s);
            }
        }
        for (slot, limit) in said {
            table.set_limit(slot, limit);
        }
        self.is_used.store(table.is_used(), Ordering::Relaxed);
        Ok((transno, table.free_until))
    }

    /// A session ended: what it held is written, or never will be.
    pub fn ended(&self, session: u64) {
        self.space.ended(session);
    }
}
