//! `lfs setquota`.

use std::path::PathBuf;

use fuse::quotas::{Asked, Limits, Order, Owner, QUOTA};
use proto::wire::messages::{QUOTA_DEFAULT_ID, QUOTA_PROJECT, QUOTA_USER};

use super::{Named, default_kind, grace, mount_of, named_pool, owner, refused};
use crate::ask;
use crate::failure::Failure;
use crate::lfs::Outcome;

/// Set what a user, group or project may have: what is not named stays, and 0 is no limit.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("owner").required(true))]
pub struct Arguments {
    /// A user, by name or number; with -t all users
    #[arg(short = 'u', long, value_name = "USER", group = "owner", num_args = 0..=1, default_missing_value = "")]
    user: Option<String>,
    /// A group, by name or number; with -t all groups
    #[arg(short = 'g', long, value_name = "GROUP", group = "owner", num_args = 0..=1, default_missing_value = "")]
    group: Option<String>,
    /// A project, by its number; with -t all projects
    #[arg(short = 'p', long, value_name = "PROJECT", group = "owner", num_args = 0..=1, default_missing_value = "")]
    projid: Option<String>,
    /// All users who have no limits of their own, but for root
    #[arg(short = 'U', long, group = "owner")]
    default_usr: bool,
    /// All groups that have no limits of their own
    #[arg(short = 'G', long, group = "owner")]
    default_grp: bool,
    /// All projects that have no limits of their own
    #[arg(short = 'P', long, group = "owner")]
    default_prj: bool,
    /// How many inodes for long; with -t how long more are permitted, as in 604800 or 1w
    #[arg(short = 'i', long, value_name = "SOFT", alias = "inode-grace")]
    inode_softlimit: Option<String>,
    /// How many inodes at all
    #[arg(short = 'I', long, value_name = "HARD")]
    inode_hardlimit: Option<String>,
    /// How much space for long, in KiB or as in 500M or 6T; with -t how long more is permitted, as in 604800 or 1w
    #[arg(short = 'b', long, value_name = "SOFT", alias = "block-grace")]
    block_softlimit: Option<String>,
    /// How much space at all
    #[arg(short = 'B', long, value_name = "HARD")]
    block_hardlimit: Option<String>,
    /// Set how long soft limits may be passed
    #[arg(short = 't', long, conflicts_with_all = ["inode_hardlimit", "block_hardlimit"])]
    times: bool,
    /// Take the owner's own limits away: those of all apply (-U, -G, -P), if there are any
    #[arg(short = 'd', long = "default", alias = "delete", conflicts_with_all = ["inode_softlimit", "inode_hardlimit", "block_softlimit", "block_hardlimit", "times"])]
    forget: bool,
    /// Of what lies on the OSTs of a pool: space alone
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// A path in the file system
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { user, group, projid, path, .. } = arguments;
    let named = match arguments.default_kind() {
        Some(kind) => Named::default_of(kind, path.as_ref())?,
        None => Named::of([user, group, projid].map(Option::as_ref), path.as_ref())?,
    };
    if path.is_none() && !arguments.times {
        return Err(Failure::usage("name a path in the file system, behind the limits"));
    }
    let (owner, order) = meant(arguments, &named)?;
    let asked = Asked { owner, pool: arguments.pool_with(&order)? };
    let mount = mount_of("setquota", &named.path)?;
    let text = order.to_string();
    ask::set(&mount, &format!("{QUOTA}{asked}"), text.as_bytes())
        .map(|()| 0)
        .map_err(|error| refused("setquota", &mount, &error))
}

impl Arguments {
    /// The kind of owners whose common limits are meant.
    fn default_kind(&self) -> Option<u8> {
        default_kind([self.default_usr, self.default_grp, self.default_prj])
    }

    /// The pool of which `order` is said; as in Lustre, inodes of a pool have no limits.
    fn pool_with(&self, order: &Order) -> Result<Option<String>, Failure> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let pool = named_pool("setquota", pool)?;
        if order.inodes != Limits::default() {
            let message =
                "setquota: inodes lie in no pool: give limits of space alone, -b and -B, with --pool";
            return Err(Failure { message: message.to_owned(), status: libc::EINVAL as u8 });
        }
        Ok(Some(pool))
    }
}

/// Whose quota is to be changed, and how.
fn meant(arguments: &Arguments, named: &Named) -> Result<(Owner, Order), Failure> {
    let (kind, name) = (named.kind.unwrap_or(QUOTA_USER), &named.name);
    if arguments.times {
        let time =
            |text: &Option<String>| text.as_deref().map(grace::parse).transpose().map_err(Failure::usage);
        let inodes = Limits { grace_s: time(&arguments.inode_softlimit)?, ..Limits::default() };
        let bytes = Limits { grace_s: time(&arguments.block_softlimit)?, ..Limits::default() };
        let order = Order { inodes, bytes, forget: false };
        if order == Order::default() {
            return Err(Failure::usage("-t says how long: add -b TIME or -i TIME, as in -i 1w"));
        }
        if !name.is_empty() {
            return Err(Failure::usage(
                "a time is for all users or groups; write -t -u or -t -g without a name",
            ));
        }
        return Ok((Owner { kind, id: 0 }, order));
    }
    if let Some(kind) = arguments.default_kind() {
        return Ok((Owner { kind, id: QUOTA_DEFAULT_ID }, limits(arguments)?));
    }
    if name.is_empty() {
        return Err(Failure::usage("say whose quota it is: -u USER, -g GROUP or -p PROJECT"));
    }
    let owner = owner(kind, name)?;
    match owner {
        Owner { kind: QUOTA_USER, id: 0 } => return Err(Failure::usage("root has no limits")),
        Owner { kind: QUOTA_PROJECT, id: 0 } => {
            return Err(Failure::usage("0 is no project, and has no limits"));
        }
        Owner { .. } => {}
    }
    Ok((owner, limits(arguments)?))
}

/// The new limits.
fn limits(arguments: &Arguments) -> Result<Order, Failure> {
    if arguments.forget {
        return Ok(Order { forget: true, ..Order::default() });
    }
    let limit = |text: &Option<String>, read: fn(&str) -> Result<u64, String>| {
        text.as_deref().map(read).transpose().map_err(Failure::usage)
    };
    let inodes = Limits {
        soft: limit(&arguments.inode_softlimit, crate::size::count)?,
        hard: limit(&arguments.inode_hardlimit, crate::size::count)?,
        grace_s: None,
    };
    let bytes = Limits {
        soft: limit(&arguments.block_softlimit, space)?,
        hard: limit(&arguments.block_hardlimit, space)?,
        grace_s: None,
    };
    let order = Order { inodes, bytes, forget: false };
    if order == Order::default() {
        return Err(Failure::usage(
            "say what is to be set: -b SOFT, -B HARD, -i SOFT, -I HARD, or --default",
        ));
    }
    Ok(order)
}

/// A limit of space, in bytes: a number without a unit is KiB, as in Lustre.
fn space(text: &str) -> Result<u64, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = if is_plain { crate::size::count(&format!("{text}K")) } else { crate::size::count(text) };
    bytes.map_err(|_| format!("\"{text}\" is not an amount of space; write for example 500M or 6T"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_in_kib() {
        assert_eq!(space("5"), Ok(5 << 10));
        assert_eq!(space("0"), Ok(0));
        assert_eq!(space("6T"), Ok(6 << 40));
        assert_eq!(space("7b"), Ok(7));
        for wrong in ["", "x", "-1", "99999999999999999999", "99999999999T"] {
            assert!(space(wrong).is_err(), "{wrong}");
        }
    }
}
