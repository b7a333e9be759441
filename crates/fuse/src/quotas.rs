//! Quotas as control attributes: users see their own and those of their groups and of projects; root, and whom the mount belongs to, see
//! and set all.
//!
//! `weft.quota.u.1000` is what the user 1000 has and may have, a body of `docs/wire.md`; `g` is for groups, and `p` for projects.
//! `weft.quota.u.1000.flash` is that of the pool `flash`. It is set to an [`Order`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::TargetId;
use proto::pool::is_pool_name;
use proto::wire::Body;
use proto::wire::messages::{
    QUOTA_DEFAULT_ID, QUOTA_GROUP, QUOTA_IN_POOL, QUOTA_PROJECT, QUOTA_USER, ReadQuota, SetQuota,
};

use crate::virtuals::{answer, may_administrate};

/// What the names begin with; [`Asked`] follows.
pub const QUOTA: &str = "weft.quota.";
/// How long the MDT may take to answer, which asks the OSTs.
const READ_WAIT: Duration = Duration::from_secs(5);
/// How long it may take for a change, which is durable then, and which clients keep to. Less than `lfs` waits for the mount, so that it says why.
const SET_WAIT: Duration = Duration::from_secs(9);

/// A user, a group or a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// One of `QUOTA_*`.
    pub kind: u8,
    /// Its number.
    pub id: u32,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            QUOTA_USER => 'u',
            QUOTA_GROUP => 'g',
            _ => 'p',
        };
        write!(f, "{kind}.{}", self.id)
    }
}

impl FromStr for Owner {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Owner> {
        let (kind, id) = text.split_once('.').ok_or(Errno::NO_ATTRIBUTE)?;
        let kind = match kind {
            "u" => QUOTA_USER,
            "g" => QUOTA_GROUP,
            "p" => QUOTA_PROJECT,
            _ => return Err(Errno::NO_ATTRIBUTE),
        };
        Ok(Owner { kind, id: id.parse().map_err(|_| Errno::NO_ATTRIBUTE)? })
    }
}

/// Whose quota, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Whose.
    pub owner: Owner,
    /// Of the OSTs of this pool; `None`: of everything.
    pub pool: Option<String>,
}

impl Asked {
    /// The kind and the pool as an MDT is told.
    fn told(self) -> (u8, String) {
        match self.pool {
            None => (self.owner.kind, String::new()),
            Some(pool) => (self.owner.kind | QUOTA_IN_POOL, pool),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            None => self.owner.fmt(f),
            Some(pool) => write!(f, "{}.{pool}", self.owner),
        }
    }
}

impl FromStr for Asked {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Asked> {
        let (owner, pool) = match text.match_indices('.').nth(1) {
            None => (text, None),
            Some((at, _)) => (&text[..at], Some(&text[at + 1..])),
        };
        if pool.is_some_and(|pool| !is_pool_name(pool)) {
            return Err(Errno::NO_ATTRIBUTE);
        }
        Ok(Asked { owner: owner.parse()?, pool: pool.map(str::to_owned) })
    }
}

/// An [`Order`] that takes an owner's own limits away.
const FORGET: &str = "forget";

/// What of a quota is to be changed, as text: `soft=10 hard=20`, `grace=3600` of inodes, `bsoft=4096` and so on of space. What is not
/// named stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Order {
    /// Limits of inodes.
    pub inodes: Limits,
    /// Limits of space, in bytes.
    pub bytes: Limits,
    /// The owner has no limits of its own any more: nothing else is said then.
    pub forget: bool,
}

/// What of the limits of one thing is to be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The soft limit; 0 for none.
    pub soft: Option<u64>,
    /// The hard limit; 0 for none.
    pub hard: Option<u64>,
    /// How long all of the kind may be above their soft limits, in seconds.
    pub grace_s: Option<u64>,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { inodes, bytes, forget } = self;
        if *forget {
            return f.write_str(FORGET);
        }
        let parts = [
            ("soft", inodes.soft),
            ("hard", inodes.hard),
            ("grace", inodes.grace_s),
            ("bsoft", bytes.soft),
            ("bhard", bytes.hard),
            ("bgrace", bytes.grace_s),
        ];
        let words = parts.iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}")));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

impl FromStr for Order {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Order> {
        if text == FORGET {
            return Ok(Order { forget: true, ..Order::default() });
        }
        let mut order = Order::default();
        for word in text.split(' ') {
            let (name, value) = word.split_once('=').ok_or(Errno::INVALID)?;
            let place = match name {
                "soft" => &mut order.inodes.soft,
                "hard" => &mut order.inodes.hard,
                "grace" => &mut order.inodes.grace_s,
                "bsoft" => &mut order.bytes.soft,
                "bhard" => &mut order.bytes.hard,
                "bgrace" => &mut order.bytes.grace_s,
                _ => return Err(Errno::INVALID),
            };
            *place = Some(value.parse().map_err(|_| Errno::INVALID)?);
        }
        Ok(order)
    }
}

/// Whether the caller may see what the owner has.
fn may_see(caller: &Caller, owner: Owner) -> Result<()> {
    let is_own = match owner.kind {
        QUOTA_USER => caller.uid == owner.id,
        _ if owner.id == QUOTA_DEFAULT_ID => true,
        QUOTA_PROJECT => true,
        _ => caller.gid == owner.id || (caller.groups)().contains(&owner.id),
    };
    if is_own { Ok(()) } else { may_administrate(caller) }
}

/// What the attribute whose name ends with `asked` says.
pub(crate) async fn get(client: &Client, caller: &Caller, asked: &str) -> Result<Vec<u8>> {
    let asked: Asked = asked.parse()?;
    may_see(caller, asked.owner)?;
    let (id, (kind, pool)) = (asked.owner.id, asked.told());
    let read = ReadQuota { kind, id, pool };
    let mut bytes = Vec::new();
    answer(client.admin().order_again(TargetId::mdt(0), read, READ_WAIT).await)?.put_fields(&mut bytes);
    Ok(bytes)
}

/// Changes a quota as `text` says.
pub(crate) async fn set(client: &Client, caller: &Caller, asked: &str, text: &str) -> Result<()> {
    may_administrate(caller)?;
    let asked: Asked = asked.parse()?;
    let (id, (kind, pool)) = (asked.owner.id, asked.told());
    let Order { inodes, bytes, forget } = text.parse()?;
    let set = SetQuota {
        kind,
        id,
        inodes_soft: inodes.soft,
        inodes_hard: inodes.hard,
        inodes_grace_s: inodes.grace_s,
        bytes_soft: bytes.soft,
        bytes_hard: bytes.hard,
        bytes_grace_s: bytes.grace_s,
        forget,
        pool,
    };
    answer(client.admin().order_again(TargetId::mdt(0), set, SET_WAIT).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_orders_are_text() {
        for (text, kind) in [("u.0", QUOTA_USER), ("g.4294967295", QUOTA_GROUP), ("p.7", QUOTA_PROJECT)] {
            let owner: Owner = text.parse().expect("an owner");
            assert_eq!((owner.kind, owner.to_string()), (kind, text.to_owned()));
        }
        for text in ["", "u", "x.1", "u.-1", "u.bob"] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
        for (text, pool) in [("u.7", None), ("g.7.flash", Some("flash")), ("p.0.a-b_1", Some("a-b_1"))] {
            let asked: Asked = text.parse().expect("an owner, and a pool");
            assert_eq!((asked.pool.as_deref(), asked.to_string()), (pool, text.to_owned()));
        }
        let (kind, pool) = "g.7.flash".parse::<Asked>().expect("an owner, and a pool").told();
        assert_eq!((kind, pool), (QUOTA_GROUP | QUOTA_IN_POOL, "flash".to_owned()));
        for text in ["u.1.", "u.1.none", "u.1.a.b", "u..a", "u.1.an_overlong_name_"] {
            assert!(text.parse::<Asked>().is_err(), "{text}");
        }
        for text in [
            "soft=1 hard=18446744073709551615",
            "grace=0",
            "soft=0",
            "hard=2 bsoft=3 bhard=4",
            "bgrace=5",
            "forget",
        ] {
            assert_eq!(text.parse::<Order>().map(|order| order.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "forget soft=1", "soft", "soft=-1", "blocks=1", "soft=1  hard=2"] {
            assert!(text.parse::<Order>().is_err(), "{text}");
        }
    }
}
