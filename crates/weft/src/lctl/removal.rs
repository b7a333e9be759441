//! `lctl del_ost`: an OST is taken out of the file system (`docs/operations.md#remove`).

use std::time::Duration;

use clap::Args;
use proto::wire::messages::RemoveTarget;
use proto::{Code, FsName, TargetId};
use rpc::AskError;

use super::orders::refused;
use super::pools::Keeper;
use super::reach::Reach;
use crate::failure::{Failure, Outcome};

/// How long the MGS may take.
const ORDER_WAIT: Duration = Duration::from_secs(10);

/// An OST.
#[derive(Args)]
pub struct Removal {
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dryrun: bool,
    /// It is part of the file system again, with all that it has; its pools are not
    #[arg(long)]
    undo: bool,
    /// The OST, as in w-OST0001
    #[arg(short = 't', long, value_name = "OST")]
    target: String,
}

/// Runs the command.
pub fn run(reach: &mut Reach, asked: &Removal) -> Outcome {
    let name = asked.target.trim_end_matches("_UUID");
    let (fsname, target) = parse(name).ok_or_else(|| {
        Failure::usage(format!("{name} names no OST: write the file system and the OST, as in w-OST0001"))
    })?;
    let Keeper::Mgs(device) = reach.keeper(&fsname)? else {
        return Err(Failure::new(format!(
            "del_ost: no MGS of {fsname} is reached from here: run this on its host, as root"
        )));
    };
    let order = RemoveTarget { fsname, target, only_look: asked.dryrun, undo: asked.undo };
    let removed = match reach.ask(&device, order, ORDER_WAIT)? {
        Ok(removed) => removed,
        Err(AskError::Refused(Code::NotFound)) => {
            let message =
                format!("del_ost: {name} is no target of the file system: 'lctl dl' lists those that are");
            return Err(Failure { message, status: libc::ENOENT as u8 });
        }
        Err(error) => return Err(refused(&device, &error)),
    };
    let dry = if asked.dryrun { "[DRY RUN] " } else { "" };
    removed.pools.iter().for_each(|pool| out!("{dry}del_ost: {name} removed from pool {pool}"));
    match asked.undo {
        true => out!("{dry}del_ost: {name} is part of the file system again"),
        false => out!("{dry}del_ost: {name} removed"),
    }
    Ok(0)
}

/// The file system and the OST that `name` names.
fn parse(name: &str) -> Option<(String, TargetId)> {
    let (fsname, index) = name.rsplit_once("-OST")?;
    let index = (index.len() == 4).then(|| u32::from_str_radix(index, 16).ok())??;
    fsname.parse::<FsName>().ok()?;
    Some((fsname.to_owned(), TargetId::ost(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osts_are_named_as_everywhere() {
        assert_eq!(parse("w-OST001f"), Some(("w".into(), TargetId::ost(0x1f))));
        assert_eq!(parse("a-OST-OST0000"), Some(("a-OST".into(), TargetId::ost(0))));
        for wrong in ["w-MDT0000", "OST0001", "w-OST1", "-OST0001", "w-OSTzzzz", "w"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
