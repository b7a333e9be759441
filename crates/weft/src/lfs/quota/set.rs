//! `lfs setquota`.

use std::path::PathBuf;

use fuse::quotas::{Order, Owner, QUOTA};
use proto::wire::messages::QUOTA_USER;

use super::{Named, grace, mount_of, owner, refused};
use crate::ask;
use crate::failure::Failure;
use crate::lfs::Outcome;

/// Set what a user or group may have: what is not named stays, and 0 is no limit.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("owner").required(true))]
pub struct Arguments {
    /// A user, by name or number; with -t all users
    #[arg(short = 'u', long, value_name = "USER", group = "owner", num_args = 0..=1, default_missing_value = "")]
    user: Option<String>,
    /// A group, by name or number; with -t all groups
    #[arg(short = 'g', long, value_name = "GROUP", group = "owner", num_args = 0..=1, default_missing_value = "")]
    group: Option<String>,
    /// How many inodes for long; with -t how long more are permitted, as in 604800 or 1w
    #[arg(short = 'i', long, value_name = "SOFT", alias = "inode-grace")]
    inode_softlimit: Option<String>,
    /// How many inodes at all
    #[arg(short = 'I', long, value_name = "HARD")]
    inode_hardlimit: Option<String>,
    /// Of blocks there are no limits yet: only 0
    #[arg(short = 'b', long, value_name = "SOFT", alias = "block-grace")]
    block_softlimit: Option<String>,
    /// Of blocks there are no limits yet: only 0
    #[arg(short = 'B', long, value_name = "HARD")]
    block_hardlimit: Option<String>,
    /// Set how long soft limits may be passed
    #[arg(short = 't', long, conflicts_with = "inode_hardlimit")]
    times: bool,
    /// Take the limits away
    #[arg(long, conflicts_with_all = ["inode_softlimit", "inode_hardlimit", "times"])]
    delete: bool,
    /// A path in the file system
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { user, group, path, .. } = arguments;
    let named = Named::of(user.as_ref(), group.as_ref(), path.as_ref())?;
    if path.is_none() && !arguments.times {
        return Err(Failure::usage("name a path in the file system, behind the limits"));
    }
    let (target, order) = meant(arguments, &named)?;
    let mount = mount_of("setquota", &named.path)?;
    if order == Order::default() {
        // Limits of blocks that are none.
        return Ok(0);
    }
    let text = order.to_string();
    ask::set(&mount, &format!("{QUOTA}{target}"), text.as_bytes())
        .map(|()| 0)
        .map_err(|error| refused("setquota", &mount, &error))
}

/// Whose quota is to be changed, and how.
fn meant(arguments: &Arguments, named: &Named) -> Result<(Owner, Order), Failure> {
    let blocks = [&arguments.block_softlimit, &arguments.block_hardlimit];
    if blocks.into_iter().flatten().any(|limit| limit != "0") {
        return Err(Failure::usage("limits of blocks are not available yet; leave -b and -B out, or give 0"));
    }
    let (kind, name) = (named.kind.unwrap_or(QUOTA_USER), &named.name);
    if arguments.times {
        let time = arguments.inode_softlimit.as_deref();
        let time = time.ok_or_else(|| Failure::usage("-t says how long: add -i TIME, as in -i 1w"))?;
        let grace_s = Some(grace::parse(time).map_err(Failure::usage)?);
        if !name.is_empty() {
            return Err(Failure::usage(
                "a time is for all users or groups; write -t -u or -t -g without a name",
            ));
        }
        return Ok((Owner { kind, id: 0 }, Order { grace_s, ..Order::default() }));
    }
    if name.is_empty() {
        return Err(Failure::usage("say whose quota it is: -u USER or -g GROUP"));
    }
    let owner = owner(kind, name)?;
    if arguments.delete {
        return Ok((owner, Order { soft: Some(0), hard: Some(0), grace_s: None }));
    }
    let number =
        |text: &Option<String>| text.as_deref().map(crate::size::count).transpose().map_err(Failure::usage);
    let order = Order {
        soft: number(&arguments.inode_softlimit)?,
        hard: number(&arguments.inode_hardlimit)?,
        grace_s: None,
    };
    if order == Order::default() && blocks.iter().all(|limit| limit.is_none()) {
        return Err(Failure::usage("say what is to be set: -i SOFT, -I HARD, or --delete"));
    }
    Ok((owner, order))
}
