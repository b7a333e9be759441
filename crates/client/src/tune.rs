//! What an administrator sees of the memory that a client takes, and the bounds that can be set while it runs.

use std::sync::Arc;

use proto::{Code, TargetId};

use crate::io::Taken;
use crate::{Client, Error, Result, Shared};

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
}

/// What a client has written to an OST, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OstUse {
    /// Its index.
    pub ost: u32,
    /// What it has not taken yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What it has taken, and is kept until it is durable.
    pub unstable: u64,
    /// What the client may have unsent, as the OST said last; `None` if it did not say.
    pub room: Option<u64>,
}

impl Client {
    /// What is cached now.
    pub fn cache_use(&self) -> CacheUse {
        let shared = &self.shared;
        let [_, clean, reclaims] = shared.clean.counts();
        let (dirty, unstable) = (shared.rooms.dirty(), shared.rooms.unstable());
        CacheUse {
            users: 1 + shared.targets.osts().len(),
            max: shared.rooms.kept().max,
            clean,
            dirty: dirty.used,
            dirty_max: dirty.max,
            unstable,
            reclaims,
        }
    }

    /// What was written to each OST with which there has been a session, by index.
    pub fn ost_uses(&self) -> Vec<OstUse> {
        let shared = &self.shared;
        let of = |(ost, target): (u32, Arc<crate::targets::Target>)| {
            let Taken { max, used } = shared.rooms.of_ost(ost);
            OstUse { ost, dirty: used, dirty_max: max, unstable: target.unstable(), room: target.room() }
        };
        shared.targets.osts().into_iter().map(of).collect()
    }

    /// No more than `bytes` are cached from now on: what was read goes at once; what was written is sent and made durable
    /// first, which may go on after this returns.
    pub async fn set_cached_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        let shared = &self.shared;
        shared.rooms.set_kept_max(bytes);
        shared.memory.set_cached_max(bytes);
        shared.clean.fit();
        let kept = shared.rooms.kept();
        if kept.used > kept.max {
            shared.relieve();
        }
        shared.rt.release_memory().await;
        Ok(())
    }

    /// No more than `bytes` are written and not sent from now on, whatever the OST.
    pub fn set_dirty_max(&self, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        self.shared.rooms.set_dirty_max(bytes);
        self.shared.targets.set_unsent_max(bytes);
        Ok(())
    }

    /// No more than `bytes` are written and not taken by an OST from now on. What is more already stays until it is sent.
    pub fn set_ost_dirty_max(&self, ost: u32, bytes: u64) -> Result<()> {
        at_least(bytes)?;
        if self.shared.targets.made(TargetId::ost(ost)).is_none() {
            return Err(Error::Refused(Code::NotFound));
        }
        self.shared.rooms.set_ost_max(ost, bytes);
        Ok(())
    }
}

fn at_least(bytes: u64) -> Result<()> {
    if bytes < CACHED_BYTES_MIN { Err(Error::Refused(Code::Invalid)) } else { Ok(()) }
}

impl Shared {
    /// Sends what is not sent, and has all of it made durable.
    fn relieve(self: &Arc<Self>) {
        for file in self.keeper.files() {
            self.send_older(&file, rt::Time(u64::MAX));
        }
        for (_, target) in self.targets.osts() {
            target.commit_soon();
        }
    }
}
