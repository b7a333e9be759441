//! Pools of OSTs, as `lfs`, `lctl` and a mount speak of them.

use std::time::Duration;

use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::wire::messages as msg;
use proto::{ConfigCopy, OstIndex};
use serde::{Deserialize, Serialize};

use crate::control;
use crate::virtuals::may_administrate;

/// [`PoolNames`] of the file system.
pub const POOLS: &str = "weft.pools";
/// [`PoolMembers`] of the pool whose name follows; `weft.pool.flash.31` begins behind OST 31.
pub const POOL: &str = "weft.pool.";
/// Set to a [`PoolOrder`]: the MGS changes a pool. For root and for whom the mount belongs to, in a process that serves targets.
pub const CHANGE_POOL: &str = "weft.change-pool";
/// Members that one answer has.
const MEMBERS_COUNT: usize = 8192;
/// OSTs of one order.
pub const ORDER_OSTS_MAX: usize = 8192;
/// How long the MGS may take to say what is new.
const LEARN_WAIT: Duration = Duration::from_secs(3);
/// How long the MGS may take to change a pool.
const ORDER_WAIT: Duration = Duration::from_secs(8);

/// The pools of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolNames {
    /// Name of the file system.
    pub fsname: String,
    /// Their names, in order.
    pub names: Vec<String>,
}

/// The members of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMembers {
    /// Name of the file system.
    pub fsname: String,
    /// Their indexes, in order.
    pub osts: Vec<u32>,
    /// There are more behind these.
    pub more: bool,
}

/// A change of a pool; the fields are those of [`msg::ChangePool`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolOrder {
    /// Name of the pool.
    pub name: String,
    /// What is done.
    pub change: u8,
    /// Indexes of the OSTs that it is done with.
    pub osts: Vec<u32>,
}

/// What an attribute asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked<'a> {
    Names,
    Members { pool: &'a str, behind: Option<OstIndex> },
}

impl Asked<'_> {
    fn parse(name: &str) -> Option<Asked<'_>> {
        if name == POOLS {
            return Some(Asked::Names);
        }
        let asked = name.strip_prefix(POOL)?;
        let (pool, behind) = match asked.split_once('.') {
            Some((pool, behind)) => (pool, Some(OstIndex(behind.parse().ok()?))),
            None => (asked, None),
        };
        Some(Asked::Members { pool, behind })
    }

    fn answer(&self, config: &ConfigCopy) -> Option<Vec<u8>> {
        let fsname = config.fsname().to_owned();
        Some(match self {
            Asked::Names => {
                let names = config.pools().names().map(str::to_owned).collect();
                control::encode(&PoolNames { fsname, names })
            }
            Asked::Members { pool, behind } => {
                let members = config.pools().get(pool)?;
                let from = behind.map_or(0, |ost| ost.0.saturating_add(1));
                let mut left = members.range(OstIndex(from)..);
                let osts = left.by_ref().take(MEMBERS_COUNT).map(|ost| ost.0).collect();
                control::encode(&PoolMembers { fsname, osts, more: left.next().is_some() })
            }
        })
    }
}

/// The attribute behind which the members of `pool` begin that come behind `last`.
pub fn members_behind(pool: &str, last: Option<u32>) -> String {
    match last {
        Some(last) => format!("{POOL}{pool}.{last}"),
        None => format!("{POOL}{pool}"),
    }
}

/// Whether the attribute `name` is about pools.
pub(crate) fn is_asked(name: &str) -> bool {
    Asked::parse(name).is_some()
}

/// The value of an attribute. A mount that holds nothing does not follow the configuration, so it is asked for.
pub(crate) async fn answer(client: &Client, name: &str) -> Result<Vec<u8>> {
    let asked = Asked::parse(name).ok_or(Errno::NO_ATTRIBUTE)?;
    client.admin().learn(LEARN_WAIT).await;
    client.admin().with_config(|config| asked.answer(config)).ok_or(Errno::NO_ATTRIBUTE)
}

/// Has the MGS change a pool.
pub(crate) async fn change(client: &Client, caller: &Caller, value: &[u8]) -> Result<()> {
    may_administrate(caller)?;
    let order: PoolOrder = control::decode(value).map_err(|_| Errno::INVALID)?;
    let change = msg::ChangePool {
        fsname: client.admin().fsname(),
        name: order.name,
        change: order.change,
        osts: order.osts.into_iter().map(OstIndex).collect(),
    };
    Ok(client.admin().order_mgs(change, ORDER_WAIT).await?)
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::{Config, PoolEntry};

    use super::*;

    #[test]
    fn members_come_in_pages() {
        let mut config = ConfigCopy::new("w");
        let osts = (0..2 * MEMBERS_COUNT as u32).map(|index| OstIndex(2 * index)).collect();
        let pools = vec![PoolEntry { name: "all".into(), osts }];
        assert!(config.take(Config { version: 1, newest: 1, pools, ..Config::empty("w") }));
        let page = |name: &str| {
            let bytes = Asked::parse(name).and_then(|asked| asked.answer(&config))?;
            assert!(bytes.len() < proto::limits::XATTR_BYTES_MAX);
            Some(control::decode::<PoolMembers>(&bytes).expect("members"))
        };
        let first = page(&members_behind("all", None)).expect("there is such a pool");
        assert_eq!((first.osts.len(), first.more), (MEMBERS_COUNT, true));
        let second = page(&members_behind("all", first.osts.last().copied())).expect("there is such a pool");
        assert_eq!((second.osts.len(), second.more), (MEMBERS_COUNT, false));
        assert_eq!(second.osts.first(), Some(&(2 * MEMBERS_COUNT as u32)));
        assert_eq!(page("weft.pool.none"), None);
        let names = Asked::parse(POOLS).and_then(|asked| asked.answer(&config)).expect("names");
        assert_eq!(names, br#"{"fsname":"w","names":["all"]}"#);
        for (name, fine) in [("weft.pool.a.x", false), ("weft.pools.a", false), ("weft.pool.a.7", true)] {
            assert_eq!(is_asked(name), fine, "{name}");
        }
    }
}
