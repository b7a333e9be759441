//! What an administrator sees of the memory that a client takes, and the bounds that can be set while it runs.

use std::time::Duration;

use proto::{Code, DataTarget, OstIndex, TargetId, TargetKind};

use super::Admin;
use crate::data::Taken;
use crate::lock::Keep;
use crate::targets::Target;
use crate::{Error, Result};

/// Least that may be cached, or be unsent to an OST, in bytes: some requests have to fit.
pub const CACHED_BYTES_MIN: u64 = 4 << 20;

/// What a client caches, in bytes, besides what the kernel keeps of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// Who uses it: the mount, and each session with an OST.
    pub users: usize,
    /// Most that may be cached.
    pub max: u64,
    /// What was read.
    pub clean: u64,
    /// What was written and not taken by an OST yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What was written and is kept until it is durable.
    pub unstable: u64,
    /// How often something had to go to make room.
    pub reclaims: u64,
    /// What was fetched for readers to come, on its way or here.
    pub ahead: u64,
    /// Most of that.
    pub ahead_max: u64,
}

/// What a client has written to an OST, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OstUse {
    /// Its index.
    pub ost: OstIndex,
    /// What it has not taken yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What it has taken, and is kept until it is durable.
    pub unstable: u64,
    /// What the client may have unsent, as the OST said last; `None` if it did not say.
    pub room: Option<u64>,
}

/// What a client holds of a target. All that it holds of one file, or of one object, is one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockUse {
    /// The target.
    pub target: TargetId,
    /// Locks.
    pub count: usize,
    /// Those that nobody uses now.
    pub unused: usize,
    /// Most that are kept; 0 for as many as there is room for.
    pub max: usize,
    /// How long they are kept when nothing is asked of an OST, or, those of an MDT, of anybody.
    pub age_max: Duration,
}

impl Admin {
    /// What is held of each target with which there has been a session, in order.
    pub fn lock_uses(&self) -> Vec<LockUse> {
        self.shared.targets.sessions().into_keys().map(|target| self.lock_use(target)).collect()
    }

    fn lock_use(&self, target: TargetId) -> LockUse {
        let Keep { count_max, age_max } = self.keep(target);
        let (count, unused) = (self.lock_count(target), self.lock_unused_count(target));
        LockUse { target, count, unused, max: count_max, age_max }
    }

    pub(super) fn lock_count(&self, target: TargetId) -> usize {
        let ranges = DataTarget::try_from(target).map_or(0, |of| self.shared.locks().table.spaces.count(of));
        ranges + if target.kind == TargetKind::Mdt { self.shared.names.meta.inodes.count() } else { 0 }
    }

    /// Looks at each lock of the target.
    pub(super) fn lock_unused_count(&self, target: TargetId) -> usize {
        let ranges = DataTarget::try_from(target).map_or(0, |of| self.shared.locks().table.unused_count(of));
        let inodes = &self.shared.names.meta.inodes;
        ranges + if target.kind == TargetKind::Mdt { inodes.unused_count() } else { 0 }
    }

    pub(super) fn keep(&self, target: TargetId) -> Keep {
        match target.ost_index() {
            Some(ost) => self.shared.locks().table.spaces.keep(ost.into()),
            None => self.shared.names.meta.inodes.keep(),
        }
    }

    /// No more than `count` locks of a target are kept from now on, but for those that are in use; 0 for as many as there is
    /// room for. Those that are too many are given back before this returns. Of an MDT that holds for its inodes, and for the ranges
    /// of what data it has.
    pub async fn set_locks_max(&self, target: TargetId, count: usize) -> Result<()> {
        self.set_keep(target, |keep| keep.count_max = count)?;
        let locks = self.shared.locks();
        if let Ok(of) = DataTarget::try_from(target) {
            locks.leaver.leave_these(locks.table.excess(of)).await;
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.room.give_up_excess().await;
        }
        Ok(())
    }

    /// Locks of a target are given back when nothing was asked of it (of anybody, for an MDT's inodes) for `age`. It is looked
    /// every few seconds.
    pub fn set_locks_age_max(&self, target: TargetId, age: Duration) -> Result<()> {
        self.set_keep(target, |keep| keep.age_max = age)?;
        if let Ok(of) = DataTarget::try_from(target) {
            self.shared.resting.look_soon(of);
        }
        Ok(())
    }

    /// Gives back every lock of a target that nobody uses.
    pub async fn clear_locks(&self, target: TargetId) -> Result<()> {
        self.set_keep(target, |_| {})?;
        let locks = self.shared.locks();
        if let Ok(of) = DataTarget::try_from(target) {
            locks.leaver.leave_these(locks.table.of(of)).await;
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.room.give_up_inodes().await;
        }
        Ok(())
    }

    fn set_keep(&self, target: TargetId, set: impl Fn(&mut Keep)) -> Result<()> {
        if self.shared.targets.made(target).is_none() {
            return Err(Error::Refused(Code::NotFound));
        }
        if let Ok(of) = DataTarget::try_from(target) {
            self.shared.locks().table.spaces.set_keep(of, &set);
        }
        if target.kind == TargetKind::Mdt {
            self.shared.names.meta.inodes.set_keep(&set);
        }
        Ok(())
    }

    /// What is cached now.
    pub fn cache_use(&self) -> CacheUse {
        let [_, clean, reclaims] = self.shared.names.data.clean.counts();
        let (dirty, unstable) =
            (self.shared.names.data.back.rooms.dirty(), self.shared.names.data.back.rooms.unstable());
        CacheUse {
            users: 1 + self.shared.targets.osts().len(),
            max: self.shared.names.data.back.rooms.kept().max,
            clean,
            dirty: dirty.used,
            dirty_max: dirty.max,
            unstable,
            reclaims,
            ahead: self.shared.names.data.ahead.held_bytes(),
            ahead_max: self.shared.names.data.ahead.settings().mount_bytes_max,
        }
    }

    /// What was written to each OST with which there has been a session, by index.
    pub fn ost_uses(&self) -> Vec<OstUse> {
        let osts = self.shared.targets.osts().into_iter();
        osts.map(|(ost, target)| self.use_of(ost, &target)).collect()
    }

    /// What was written to `ost`; `None` if there was no session with it.
    pub(super) fn ost_use(&self, ost: OstIndex) -> Option<OstUse> {
        Some(self.use_of(ost, &*self.shared.targets.made(TargetId::ost(ost))?))
    }

    fn use_of(&self, ost: OstIndex, target: &Target) -> OstUse {
        let Taken { max, used } = self.shared.names.data.back.rooms.of_ost(ost.into());
        OstUse { ost, dirty: used, dirty_max: max, unstable: target.unstable(), room: target.room() }
    }

    /// No more than `bytes` are cached from now on: what was read goes at once; what was written is sent and made durable
    /// first, which may go on after this returns.
    pub async fn set_cached_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        self.shared.names.data.back.rooms.set_kept_max(bytes);
        self.shared.names.data.files.memory.set_cached_max(bytes);
        self.shared.names.data.ahead.set(bytes, |_| ());
        self.shared.names.data.clean.fit();
        let kept = self.shared.names.data.back.rooms.kept();
        if kept.used > kept.max {
            self.shared.names.data.back.relieve();
        }
        self.shared.rt.release_memory().await;
        Ok(())
    }

    /// No more than `bytes` are written and not sent from now on, whatever the OST.
    pub fn set_dirty_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        self.shared.names.data.back.rooms.set_dirty_max(bytes);
        self.shared.targets.set_unsent_max(bytes);
        Ok(())
    }

    /// No more than `bytes` are written and not taken by an OST from now on. What is more already stays until it is sent.
    pub fn set_ost_dirty_max(&self, ost: OstIndex, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        if self.shared.targets.made(TargetId::ost(ost)).is_none() {
            return Err(Error::Refused(Code::NotFound));
        }
        self.shared.names.data.back.rooms.set_ost_max(ost.into(), bytes);
        Ok(())
    }
}

fn at_least(bytes: u64) -> Result<()> {
    if bytes < CACHED_BYTES_MIN { Err(Error::Refused(Code::Invalid)) } else { Ok(()) }
}
