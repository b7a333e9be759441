//! Quotas (FEATURES I13, I14): what users, groups and projects have of inodes and space, and may have. `docs/operations.md#quotas`.
//!
//! Inodes: what each owner has is a sum of the store, which every change of an inode adds to in its own commit: so it is exact after any
//! crash, and a limit that is checked where sums are settled is never passed, however many clients create at once. The superuser has no
//! limits. A replay has none either: what was answered before is so.
//!
//! Space: each target has the sums of its objects ([`usage`]), and the MDT permits clients what is left ([`space`]).

mod limit;
mod space;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::wire::messages::{
    QUOTA_DEFAULT_ID, QUOTA_GRACE_MAX_S, QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER, QuotaState, QuotaUse,
    ReadQuota, SetQuota,
};
use proto::{Code, Cred, Transno};
use rt::{Rt, Time};
use service::keys::behind;
use service::{Env, Recovery, Stop, code_of};
use smallvec::SmallVec;
use store::sums::{self, INODE_OWNERS, put_right, sum_of};
use store::{Batch, Change, Need, Store, StoreError};

use super::inode::Inode;
use super::osts::Objects;
use super::plan::Step;
use super::{Ctx, Mdt, access, keys};
use crate::data::Data;
use limit::{Limit, Most};
use space::Space;
use usage::Usage;

/// How long an owner may be above its soft limit unless somebody says otherwise, in seconds: a week, as in Lustre (`MAX_IQ_TIME`).
const GRACE_DEFAULT_S: u64 = 7 * 24 * 3600;
/// Most limits of owners of all kinds.
const LIMITS_MAX: usize = 262_144;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;
/// In the second byte of a key: it is the deadline of an owner of that kind.
const DEADLINE: u8 = 0x80;
/// In the second byte of a key: it is about space, and not about inodes.
const SPACE: u8 = 0x40;

/// What owners may have.
pub struct Quotas {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    /// Whether there is any limit.
    is_used: AtomicBool,
    table: Mutex<Table>,
    usage: Usage,
    space: Space,
}

/// Limits, by kind and number of the owner; kinds of limits of space have [`SPACE`].
#[derive(Default)]
struct Table {
    /// How long owners of each kind may be above their soft limits, in seconds, if that is not the default.
    graces: BTreeMap<u8, u64>,
    /// What was said of an owner, if that is that it has none; with [`QUOTA_DEFAULT_ID`] what holds for those of whom nothing was said.
    limits: BTreeMap<(u8, u32), Limit>,
    /// Until when those that are above their soft limits may be.
    deadlines: BTreeMap<(u8, u32), u64>,
    /// Until when clients have been told that an owner without limits has none.
    free_until: Time,
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

fn corrupt() -> StoreError {
    StoreError::Corrupt { what: "a quota".into() }
}

fn number(bytes: &[u8]) -> Result<u64, StoreError> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| corrupt())
}

fn is_kind(kind: u8) -> bool {
    matches!(kind, QUOTA_USER | QUOTA_GROUP | QUOTA_PROJECT)
}

/// What [`SetQuota`] wants of inodes, or of space.
struct Wanted {
    /// The kind, with [`SPACE`] if it is about that.
    kind: u8,
    id: u32,
    soft: Option<u64>,
    hard: Option<u64>,
    grace_s: Option<u64>,
}

impl Wanted {
    fn of(set: &SetQuota) -> [Wanted; 2] {
        let SetQuota { kind, id, .. } = *set;
        [
            Wanted { kind, id, soft: set.inodes_soft, hard: set.inodes_hard, grace_s: set.inodes_grace_s },
            Wanted {
                kind: kind | SPACE,
                id,
                soft: set.bytes_soft,
                hard: set.bytes_hard,
                grace_s: set.bytes_grace_s,
            },
        ]
    }

    /// Whether a limit is to be set.
    fn limits(&self) -> bool {
        self.soft.is_some() || self.hard.is_some()
    }
}

impl Table {
    fn load(store: &Store) -> Result<Table, StoreError> {
        let mut table = Table::default();
        let (mut from, until) = (vec![keys::QUOTA], behind(&[keys::QUOTA]));
        loop {
            let page = store.scan(&from, &until, SCAN_COUNT)?;
            let Some((last, _)) = page.last() else { return Ok(table) };
            from = [last, &[0][..]].concat();
            for (key, value) in &page {
                table.take(key, &value.bytes)?;
            }
        }
    }

    /// Takes over what is stored with `key`.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        match *key {
            [_, kind] if is_kind(kind & !SPACE) => drop(self.graces.insert(kind, number(value)?)),
            [_, kind, a, b, c, d] if is_kind(kind & !SPACE) => {
                let limit = Limit::decode(value).ok_or_else(corrupt)?;
                self.limits.insert((kind, u32::from_be_bytes([a, b, c, d])), limit);
            }
            [_, kind, a, b, c, d] if is_kind((kind ^ DEADLINE) & !SPACE) => {
                self.deadlines.insert((kind ^ DEADLINE, u32::from_be_bytes([a, b, c, d])), number(value)?);
            }
            _ => return Err(corrupt()),
        }
        Ok(())
    }

    fn grace_s(&self, kind: u8) -> u64 {
        self.graces.get(&kind).copied().unwrap_or(GRACE_DEFAULT_S)
    }

    /// What an owner may have, and whether nothing was said of it alone. Root's user and group, and files without a project, have no limits
    /// that nobody gave them.
    fn effective(&self, (kind, id): (u8, u32)) -> (Limit, bool) {
        let own = self.limits.get(&(kind, id));
        let default =
            || self.limits.get(&(kind, QUOTA_DEFAULT_ID)).filter(|limit| id != 0 && !limit.is_none());
        let (limit, is_default) = match own.or_else(default) {
            Some(limit) => (*limit, own.is_none()),
            None => (Limit::default(), false),
        };
        let deadline_s = self.deadlines.get(&(kind, id)).copied().unwrap_or(0);
        (Limit { deadline_s, ..limit }, is_default)
    }

    /// The limits of an owner, if it has any.
    fn limit(&self, owner: (u8, u32)) -> Option<Limit> {
        Some(self.effective(owner).0).filter(|limit| !limit.is_none())
    }

    /// An owner is above its soft limit, and may be until then; or is not any more.
    fn set_deadline(&mut self, owner: (u8, u32), deadline_s: u64) {
        match deadline_s {
            0 => drop(self.deadlines.remove(&owner)),
            _ => drop(self.deadlines.insert(owner, deadline_s)),
        }
    }

    /// How an owner that has `used` stands to its limits.
    fn state(&self, (kind, id): (u8, u32), used: u64, now_s: u64) -> QuotaUse {
        let (limit, is_default) = self.effective((kind, id));
        let deadline_s = limit.deadline(used);
        QuotaUse {
            used,
            soft: limit.soft,
            hard: limit.hard,
            deadline_s,
            left_s: deadline_s.saturating_sub(now_s),
            grace_s: self.grace_s(kind),
            is_default,
        }
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
            space: Space::default(),
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            is_used: AtomicBool::new(table.limits.values().any(|limit| !limit.is_none())),
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
            let grace_s = table.grace_s(kind);
            let Some(limit) = table.limit((kind, id)) else { continue };
            let stored = mdt.names.get(ctx.reads(), &INODE_OWNERS.key(kind, id))?;
            let used = sum_of(stored.map(|value| value.bytes).as_ref()).map_err(|error| code_of(&error))?;
            let Most { most, deadline_s } = limit.most(used, now_s, grace_s);
            if let Some(deadline_s) = deadline_s {
                table.set_deadline((kind, id), deadline_s);
            }
            bounds.push(Bound { kind, id, most, change: deadline_s.map(|at| deadline_change(kind, id, at)) });
        }
        Ok(bounds)
    }

    /// Whether anybody has a limit.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.rt.wall().secs).unwrap_or(0)
    }

    /// What an owner has, and may have.
    pub async fn read(&self, asked: &ReadQuota) -> Result<QuotaState, Code> {
        let ReadQuota { kind, id } = *asked;
        if !is_kind(kind) {
            return Err(Code::NotSupported);
        }
        let targets = if id == QUOTA_DEFAULT_ID { Vec::new() } else { self.usage.of(kind, id).await };
        let bytes = targets.iter().filter_map(|of| of.bytes).sum();
        let inodes = self.store.sum(&INODE_OWNERS.key(kind, id)).map_err(|error| code_of(&error))?;
        let table = self.table.lock();
        Ok(QuotaState {
            inodes: table.state((kind, id), inodes, self.now_s()),
            bytes: Some(table.state((kind | SPACE, id), bytes, self.now_s())),
            targets,
        })
    }

    /// Changes what an owner may have, or all of a kind. Clients keep to it when this returns.
    pub async fn set(&self, set: &SetQuota) -> Result<QuotaState, Code> {
        if !is_kind(set.kind) {
            return Err(Code::NotSupported);
        }
        let wanted = Wanted::of(set);
        if wanted.iter().any(|of| of.grace_s.is_some_and(|grace_s| grace_s > QUOTA_GRACE_MAX_S)) {
            return Err(Code::Range);
        }
        // While clients replay, the target draws no transno of its own.
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        // Limits of all go with those of one.
        let limits_space = wanted[1].limits() || set.forget;
        let is_growth = !set.forget
            && wanted.iter().flat_map(|of| [of.soft, of.hard, of.grace_s]).flatten().any(|n| n != 0);
        self.store
            .room(if is_growth { Need::Growth } else { Need::Release })
            .await
            .map_err(|error| code_of(&error))?;
        self.store.look_up_time().await;
        let inodes = self.store.sum(&INODE_OWNERS.key(set.kind, set.id)).map_err(|error| code_of(&error))?;
        let bytes = match wanted[1].limits() && set.id != QUOTA_DEFAULT_ID {
            true => self.usage.of(set.kind, set.id).await.iter().filter_map(|of| of.bytes).sum(),
            false => 0,
        };
        let (transno, free_until) = self.commit(&wanted, set.forget, [inodes, bytes])?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        if limits_space {
            let left = free_until.0.saturating_sub(self.rt.now().0);
            self.stop.unless(self.rt.sleep(std::time::Duration::from_nanos(left))).await;
        }
        self.read(&ReadQuota { kind: set.kind, id: set.id }).await
    }

    /// Keeps what is wanted. Says until when clients may take the owner for one without limits.
    fn commit(&self, wanted: &[Wanted], forget: bool, used: [u64; 2]) -> Result<(Transno, Time), Code> {
        let mut table = self.table.lock();
        let mut changes = Vec::new();
        let mut said = SmallVec::<[((u8, u32), Option<Limit>); 2]>::new();
        for (wanted, used) in wanted.iter().zip(used) {
            let Wanted { kind, id, soft, hard, grace_s } = *wanted;
            if forget {
                changes.push(Change { key: keys::quota(kind, id), value: None });
                changes.push(deadline_change(kind, id, 0));
                said.push(((kind, id), None));
                continue;
            }
            if let Some(grace_s) = grace_s {
                let value = grace_s.to_le_bytes().to_vec().into();
                changes.push(Change { key: keys::quota_of_all(kind), value: Some(value) });
            }
            if !wanted.limits() {
                continue;
            }
            let (mut limit, _) = table.effective((kind, id));
            limit.soft = soft.unwrap_or(limit.soft);
            limit.hard = hard.unwrap_or(limit.hard);
            if limit.hard != 0 && limit.soft > limit.hard {
                return Err(Code::Invalid);
            }
            if !table.limits.contains_key(&(kind, id)) && table.limits.len() + said.len() >= LIMITS_MAX {
                return Err(Code::TooBig);
            }
            let grace_s = grace_s.unwrap_or(table.grace_s(kind));
            let is_above = limit.deadline(used) != 0;
            if !is_above {
                let begins = limit.soft != 0 && used > limit.soft;
                limit.deadline_s = if begins { self.now_s().saturating_add(grace_s) } else { 0 };
            }
            changes.push(Change { key: keys::quota(kind, id), value: Some(limit.encode().into()) });
            changes.push(deadline_change(kind, id, limit.deadline_s));
            said.push(((kind, id), Some(limit)));
        }
        let batch = Batch { changes, ..Batch::default() };
        let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
        for Wanted { kind, grace_s, .. } in wanted.iter().filter(|_| !forget) {
            if let Some(grace_s) = grace_s {
                table.graces.insert(*kind, *grace_s);
            }
        }
        for (owner, limit) in said {
            table.set_deadline(owner, limit.map_or(0, |limit| limit.deadline_s));
            match limit {
                None => table.limits.remove(&owner),
                Some(limit) => table.limits.insert(owner, Limit { deadline_s: 0, ..limit }),
            };
        }
        self.is_used.store(table.limits.values().any(|limit| !limit.is_none()), Ordering::Relaxed);
        Ok((transno, table.free_until))
    }

    /// A session ended: what it held is written, or never will be.
    pub fn ended(&self, session: u64) {
        self.space.ended(session);
    }
}

/// Keeps until when an owner may be above its soft limit; nothing for 0.
fn deadline_change(kind: u8, id: u32, deadline_s: u64) -> Change {
    let value = (deadline_s != 0).then(|| deadline_s.to_le_bytes().to_vec().into());
    Change { key: keys::quota(kind ^ DEADLINE, id), value }
}
