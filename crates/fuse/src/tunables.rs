//! Memory and bounds of a mount, as the control attributes `weft.tunables` and `weft.tunable.NAME` and `lctl` say them.

use client::{CacheUse, Client, OstUse};
use proto::{Code, TargetId, TargetKind};
use serde::{Deserialize, Serialize};

use crate::control::Kind;
use crate::errno::{Errno, Result};

/// The attribute: [`Tunables`] on any file of a mount. `weft.tunables.N` begins with the session after the first N.
pub const TUNABLES: &str = "weft.tunables";
/// Sets one, whose name follows: `max_cached_mb`, or one of a target as in `OST0001.max_dirty_mb`. The value is a number of
/// bytes. For root, and for whom the mount belongs to.
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

/// What a mount has of one target, in bytes.
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

impl From<OstUse> for Session {
    fn from(of: OstUse) -> Session {
        let OstUse { ost, dirty, dirty_max, unstable, room } = of;
        Session { kind: Kind::Ost, index: ost, dirty, dirty_max, unstable, room }
    }
}

/// Those of `client`, from the session after the first `after`.
pub fn told(client: &Client, after: usize) -> Tunables {
    let uses = client.ost_uses();
    let more = uses.len() > after.saturating_add(SESSIONS_MAX);
    Tunables {
        fsname: client.config().fsname.clone(),
        client: client.id().to_string(),
        cache: client.cache_use().into(),
        sessions: uses.into_iter().skip(after).take(SESSIONS_MAX).map(Session::from).collect(),
        more,
    }
}

/// Sets one.
pub async fn set(client: &Client, name: &str, value: &[u8]) -> Result<()> {
    let text = std::str::from_utf8(value).map_err(|_| Errno::INVALID)?;
    let number = || text.parse::<u64>().map_err(|_| Errno::INVALID);
    match name.split_once('.') {
        None if name == "max_cached_mb" => client.set_cached_max(number()?).await?,
        None if name == "max_dirty_mb" => client.set_dirty_max(number()?)?,
        Some((target, "max_dirty_mb")) => {
            let config = client.config();
            let mut ids = config.targets.iter().map(|entry| entry.target);
            let id = ids.find(|id| id.kind == TargetKind::Ost && id.to_string() == target);
            client.set_ost_dirty_max(id.ok_or(Errno::from(Code::NotFound))?.index, number()?)?;
        }
        _ => return Err(Errno::NO_ATTRIBUTE),
    }
    Ok(())
}
