//! Quotas of inodes (FEATURES I13): what users and groups have, and may have. `docs/operations.md#quotas`.
//!
//! What each owner has is a sum of the store, which every change of an inode adds to in its own commit: so it is exact after any crash, and a
//! limit that is checked where sums are settled is never passed, however many clients create at once. The superuser has no limits. A replay
//! has none either: what was answered before is so.

mod limit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::wire::messages::{
    QUOTA_GRACE_MAX_S, QUOTA_GROUP, QUOTA_USER, QuotaState, QuotaUse, ReadQuota, SetQuota,
};
use proto::{Code, Cred, Transno};
use rt::Rt;
use service::keys::behind;
use service::{Env, Recovery, Stop, code_of};
use smallvec::SmallVec;
use store::sums::{INODE_OWNERS, put_right, sum_of};
use store::{Batch, Change, Need, Store, StoreError};

use super::inode::Inode;
use super::plan::Step;
use super::{Ctx, Mdt, access, keys};
use limit::{Limit, Most};

pub use proto::wire::messages::{QUOTA_GROUP as GROUP, QUOTA_USER as USER};

/// How long an owner may be above its soft limit unless somebody says otherwise, in seconds: a week, as in Lustre (`MAX_IQ_TIME`).
const GRACE_DEFAULT_S: u64 = 7 * 24 * 3600;
/// Most owners of both kinds that have limits.
const LIMITS_MAX: usize = 262_144;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;
/// In the second byte of a key: it is the deadline of an owner of that kind.
const DEADLINE: u8 = 0x80;

/// What owners may have.
pub struct Quotas {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    /// Whether there is any limit.
    is_used: AtomicBool,
    table: Mutex<Table>,
}

struct Table {
    /// How long owners of each kind may be above their soft limits, in seconds.
    graces: [u64; 2],
    limits: BTreeMap<(u8, u32), Limit>,
}

/// What an operation may give the owners of an inode.
pub type Bounds = SmallVec<[Bound; 2]>;

/// The most that one owner may come to.
pub struct Bound {
    /// `USER` or `GROUP`.
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
    matches!(kind, QUOTA_USER | QUOTA_GROUP)
}

impl Table {
    fn load(store: &Store) -> Result<Table, StoreError> {
        let mut table = Table { graces: [GRACE_DEFAULT_S; 2], limits: BTreeMap::new() };
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

    /// Takes over what is stored with `key`. Limits come before deadlines.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        match *key {
            [_, kind] => *self.graces.get_mut(usize::from(kind)).ok_or_else(corrupt)? = number(value)?,
            [_, kind, a, b, c, d] if is_kind(kind) => {
                let limit = Limit::decode(value).ok_or_else(corrupt)?;
                self.limits.insert((kind, u32::from_be_bytes([a, b, c, d])), limit);
            }
            [_, kind, a, b, c, d] if is_kind(kind ^ DEADLINE) => {
                let owner = (kind ^ DEADLINE, u32::from_be_bytes([a, b, c, d]));
                // Without limits nobody is above them.
                if let Some(limit) = self.limits.get_mut(&owner) {
                    limit.deadline_s = number(value)?;
                }
            }
            _ => return Err(corrupt()),
        }
        Ok(())
    }
}

impl Quotas {
    /// Those in the store of `env`.
    pub fn open(env: &Env) -> Result<Quotas, StoreError> {
        let table = Table::load(&env.store)?;
        Ok(Quotas {
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            is_used: AtomicBool::new(!table.limits.is_empty()),
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
        for (kind, id) in [(USER, inode.uid), (GROUP, inode.gid)] {
            let grace_s = table.graces[usize::from(kind)];
            let Some(limit) = table.limits.get_mut(&(kind, id)) else { continue };
            let stored = mdt.names.get(ctx.reads(), &INODE_OWNERS.key(kind, id))?;
            let used = sum_of(stored.map(|value| value.bytes).as_ref()).map_err(|error| code_of(&error))?;
            let Most { most, deadline_s } = limit.most(used, now_s, grace_s);
            if let Some(deadline_s) = deadline_s {
                limit.deadline_s = deadline_s;
            }
            bounds.push(Bound { kind, id, most, change: deadline_s.map(|at| deadline_change(kind, id, at)) });
        }
        Ok(bounds)
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.rt.wall().secs).unwrap_or(0)
    }

    /// What an owner has, and may have.
    pub fn read(&self, asked: &ReadQuota) -> Result<QuotaState, Code> {
        let ReadQuota { kind, id } = *asked;
        if !is_kind(kind) {
            return Err(Code::NotSupported);
        }
        let used = self.store.sum(&INODE_OWNERS.key(kind, id)).map_err(|error| code_of(&error))?;
        let table = self.table.lock();
        let limit = table.limits.get(&(kind, id)).copied().unwrap_or_default();
        let deadline_s = limit.deadline(used);
        Ok(QuotaState {
            inodes: QuotaUse {
                used,
                soft: limit.soft,
                hard: limit.hard,
                deadline_s,
                left_s: deadline_s.saturating_sub(self.now_s()),
                grace_s: table.graces[usize::from(kind)],
            },
        })
    }

    /// Changes what an owner may have, or all of a kind.
    pub async fn set(&self, set: &SetQuota) -> Result<QuotaState, Code> {
        if !is_kind(set.kind) {
            return Err(Code::NotSupported);
        }
        if set.inodes_grace_s.is_some_and(|grace_s| grace_s > QUOTA_GRACE_MAX_S) {
            return Err(Code::Range);
        }
        // While clients replay, the target draws no transno of its own.
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        let is_growth =
            [set.inodes_soft, set.inodes_hard, set.inodes_grace_s].iter().flatten().any(|limit| *limit != 0);
        self.store
            .room(if is_growth { Need::Growth } else { Need::Release })
            .await
            .map_err(|error| code_of(&error))?;
        self.store.look_up_time().await;
        let used = self.store.sum(&INODE_OWNERS.key(set.kind, set.id)).map_err(|error| code_of(&error))?;
        let transno = self.commit(set, used)?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        self.read(&ReadQuota { kind: set.kind, id: set.id })
    }

    fn commit(&self, set: &SetQuota, used: u64) -> Result<Transno, Code> {
        let SetQuota { kind, id, inodes_soft, inodes_hard, inodes_grace_s } = *set;
        let mut table = self.table.lock();
        let mut changes = Vec::new();
        if let Some(grace_s) = inodes_grace_s {
            let value = grace_s.to_le_bytes().to_vec().into();
            changes.push(Change { key: keys::quota_of_all(kind), value: Some(value) });
        }
        let known = table.limits.get(&(kind, id)).copied();
        let mut limit = known.unwrap_or_default();
        if inodes_soft.is_some() || inodes_hard.is_some() {
            limit.soft = inodes_soft.unwrap_or(limit.soft);
            limit.hard = inodes_hard.unwrap_or(limit.hard);
            if limit.hard != 0 && limit.soft > limit.hard {
                return Err(Code::Invalid);
            }
            if known.is_none() && !limit.is_none() && table.limits.len() >= LIMITS_MAX {
                return Err(Code::TooBig);
            }
            let grace_s = inodes_grace_s.unwrap_or(table.graces[usize::from(kind)]);
            let is_above = limit.deadline(used) != 0;
            if !is_above {
                let begins = limit.soft != 0 && used > limit.soft;
                limit.deadline_s = if begins { self.now_s().saturating_add(grace_s) } else { 0 };
            }
            changes.push(Change { key: keys::quota(kind, id), value: limit.encode().map(Into::into) });
            changes.push(deadline_change(kind, id, limit.deadline_s));
        }
        let batch = Batch { changes, ..Batch::default() };
        let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
        if let Some(grace_s) = inodes_grace_s {
            table.graces[usize::from(kind)] = grace_s;
        }
        match limit.is_none() {
            true => table.limits.remove(&(kind, id)),
            false => table.limits.insert((kind, id), limit),
        };
        self.is_used.store(!table.limits.is_empty(), Ordering::Relaxed);
        Ok(transno)
    }
}

/// Keeps until when an owner may be above its soft limit; nothing for 0.
fn deadline_change(kind: u8, id: u32, deadline_s: u64) -> Change {
    let value = (deadline_s != 0).then(|| deadline_s.to_le_bytes().to_vec().into());
    Change { key: keys::quota(kind ^ DEADLINE, id), value }
}
