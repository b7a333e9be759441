//! Memory and bounds of a mount, as the control attributes `weft.tunables` and `weft.tunable.NAME` and `lctl` say them.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{CacheUse, Client, LockUse, OstUse};
use proto::{Code, OstIndex, TargetId, TargetKind};
use serde::{Deserialize, Serialize};

use crate::control::Kind;
use client::posix::{Errno, Result};

/// The attribute: [`Tunables`] on any file of a mount. `weft.tunables.N` begins with the session after the first N.
pub const TUNABLES: &str = "weft.tunables";
/// Sets one, whose name follows: `max_cached_mb`, or one of a target as in `OST0001.max_dirty_mb`. The value is a number of
/// bytes, of locks (or `clear`), or of milliseconds. For root, and for whom the mount belongs to.
pub const TUNABLE: &str = "weft.tunable.";
/// Sessions in one answer: it has to fit into an attribute.
pub const SESSIONS_MAX: usize = 128;

/// All of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunables {
    /// Name of the file system.
    pub fsname: String,
    /// As whom the mount has its sessions.
    pub client: String,
    /// Its cache.
    pub cache: Cache,
    /// Sessions with targets, by kind and index.
    pub sessions: Vec<Session>,
    /// There are more.
    pub more: bool,
}

/// What a mount caches, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The mount, and each session with an OST.
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

/// What a mount has of one target; sizes are in bytes, and 0 for an MDT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Kind.
    pub kind: Kind,
    /// Index among its kind.
    pub index: u32,
    /// What was written to an OST and not taken by it yet.
    pub dirty: u64,
    /// Most of that.
    pub dirty_max: u64,
    /// What it has taken, and is kept until it is durable.
    pub unstable: u64,
    /// What the mount may have unsent, as the OST said last.
    pub room: Option<u64>,
    /// Locks that are held.
    pub locks: usize,
    /// Those that nobody uses now.
    pub locks_unused: usize,
    /// Most that are kept; 0 for as many as there is room for.
    pub locks_max: usize,
    /// How long they are kept when they are not used, in milliseconds.
    pub locks_age_max_ms: u64,
}

impl Session {
    /// The target.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }
}

impl From<CacheUse> for Cache {
    fn from(of: CacheUse) -> Cache {
        let CacheUse { users, max, clean, dirty, dirty_max, unstable, reclaims } = of;
        Cache { users, max, clean, dirty, dirty_max, unstable, reclaims }
    }
}

impl Session {
    fn of(locks: &LockUse, written: Option<&OstUse>) -> Session {
        Session {
            kind: locks.target.kind.into(),
            index: locks.target.index,
            dirty: written.map_or(0, |of| of.dirty),
            dirty_max: written.map_or(0, |of| of.dirty_max),
            unstable: written.map_or(0, |of| of.unstable),
            room: written.and_then(|of| of.room),
            locks: locks.count,
            locks_unused: locks.unused,
            locks_max: locks.max,
            locks_age_max_ms: u64::try_from(locks.age_max.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Those of `client`, from the session after the first `after`.
pub fn told(client: &Client, after: usize) -> Tunables {
    let written: BTreeMap<OstIndex, OstUse> =
        client.admin().ost_uses().into_iter().map(|of| (of.ost, of)).collect();
    let of = |locks: LockUse| {
        let of_ost = locks.target.ost_index().and_then(|ost| written.get(&ost));
        Session::of(&locks, of_ost)
    };
    let uses = client.admin().lock_uses();
    let more = uses.len() > after.saturating_add(SESSIONS_MAX);
    Tunables {
        fsname: client.admin().fsname(),
        client: client.admin().id().to_string(),
        cache: client.admin().cache_use().into(),
        sessions: uses.into_iter().skip(after).take(SESSIONS_MAX).map(of).collect(),
        more,
    }
}

/// Sets one.
pub async fn set(client: &Client, name: &str, value: &[u8]) -> Result<()> {
    let text = std::str::from_utf8(value).map_err(|_| Errno::INVALID)?;
    let number = || text.parse::<u64>().map_err(|_| Errno::INVALID);
    match name.split_once('.') {
        None if name == "max_cached_mb" => client.admin().set_cached_max(number()?).await?,
        None if name == "max_dirty_mb" => client.admin().set_dirty_max(number()?)?,
        None => return Err(Errno::NO_ATTRIBUTE),
        Some((target, name)) => {
            let mut ids = client.admin().targets().into_iter();
            let id = ids.find(|id| id.to_string() == target).ok_or(Errno::from(Code::NotFound))?;
            match name {
                "max_dirty_mb" if id.kind == TargetKind::Ost => {
                    client.admin().set_ost_dirty_max(OstIndex(id.index), number()?)?;
                }
                "lru_size" if text == "clear" => client.admin().clear_locks(id).await?,
                "lru_size" => {
                    let count = usize::try_from(number()?).map_err(|_| Errno::INVALID)?;
                    client.admin().set_locks_max(id, count).await?;
                }
                "lru_max_age" => client.admin().set_locks_age_max(id, Duration::from_millis(number()?))?,
                _ => return Err(Errno::NO_ATTRIBUTE),
            }
        }
    }
    Ok(())
}
