//! `lfs osts`, `lfs mdts` and `lfs check`: which targets there are and whether they answer.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fuse::control::{self, Hint, Kind, Spaces, TargetSpace};
use fuse::session::MountEntry;

use crate::ask;
use crate::failure::Failure;
use crate::lfs::Outcome;

/// List targets and whether they answer.
#[derive(clap::Args)]
pub struct Arguments {
    /// A path in the file system [default: all that are mounted here]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Tell whether servers answer.
#[derive(clap::Args)]
pub struct CheckArguments {
    /// Which
    which: Which,
    /// A path in the file system [default: all that are mounted here]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Object storage targets
    Osts,
    /// Metadata targets
    #[value(alias = "mdts")]
    Mds,
    /// Both
    Servers,
    /// Both
    All,
}

/// Runs `lfs osts`.
pub fn osts(arguments: &Arguments) -> Outcome {
    list(arguments.path.as_deref(), Kind::Ost)
}

/// Runs `lfs mdts`.
pub fn mdts(arguments: &Arguments) -> Outcome {
    list(arguments.path.as_deref(), Kind::Mdt)
}

fn list(path: Option<&Path>, kind: Kind) -> Outcome {
    let meant = super::mounts(path)?;
    for mount in meant.mounts {
        crate::out::print(render(&spaces(&mount)?, kind));
    }
    Ok(u8::from(meant.left_out))
}

fn spaces(mount: &MountEntry) -> Result<Spaces, Failure> {
    ask::get(mount, control::SPACE).map_err(|error| {
        Failure::new(format!("error: {}: {}", mount.path.display(), crate::control::describe(&error)))
    })
}

/// Why a layout that names OSTs was refused: one that the file system does not have, or that does not answer; nothing if it is not that, or
/// the mount does not say. `path` is one in the file system.
pub fn missing_ost(path: &Path, hint: &Hint, error: &std::io::Error) -> Option<String> {
    let spaces = || crate::control::get(path, control::SPACE).ok();
    match error.raw_os_error()? {
        libc::EINVAL => first_missing(&spaces()?, hint),
        libc::EIO if !hint.osts.is_empty() => first_inactive(&spaces()?, hint),
        _ => None,
    }
}

fn first_inactive(spaces: &Spaces, hint: &Hint) -> Option<String> {
    let is_inactive = |index: u32| {
        let mut osts = spaces.targets.iter().filter(|target| target.kind == Kind::Ost);
        osts.any(|target| target.index == index && target.space.is_none())
    };
    let inactive = hint.osts.iter().find(|index| is_inactive(**index))?;
    Some(format!("the OST with index {inactive} does not answer, 'lfs check osts' tells which do"))
}

fn first_missing(spaces: &Spaces, hint: &Hint) -> Option<String> {
    let there = |index: u32| spaces.targets.iter().any(|t| t.kind == Kind::Ost && t.index == index);
    let named = hint.osts.iter().copied().chain(u32::try_from(hint.start_index).ok());
    let missing = named.into_iter().find(|index| !there(*index))?;
    Some(format!("there is no OST with index {missing}, 'lfs osts' lists those that there are"))
}

fn render(spaces: &Spaces, kind: Kind) -> String {
    let mut text = String::from(if kind == Kind::Ost { "OBDS:\n" } else { "MDTS:\n" });
    for target in spaces.targets.iter().filter(|target| target.kind == kind) {
        let state = if target.space.is_some() { "ACTIVE" } else { "INACTIVE" };
        text += &format!("{}: {}-{}_UUID {state}\n", target.index, spaces.fsname, target.id());
    }
    text
}

/// Runs `lfs check`.
pub fn check(arguments: &CheckArguments) -> Outcome {
    let meant = super::mounts(arguments.path.as_deref())?;
    let mut all_active = !meant.left_out;
    for mount in meant.mounts {
        let spaces = spaces(&mount)?;
        let (text, are_active) = checked(&spaces, arguments.which);
        crate::out::print(text);
        all_active &= are_active;
    }
    Ok(u8::from(!all_active))
}

/// A line for each target that is meant, and whether all of them answer.
fn checked(spaces: &Spaces, which: Which) -> (String, bool) {
    let (mut text, mut are_active) = (String::new(), true);
    for target in spaces.targets.iter().filter(|target| is_meant(which, target)) {
        let kind = if target.kind == Kind::Ost { "osc" } else { "mdc" };
        let state = if target.space.is_some() { "active." } else { "inactive." };
        text += &format!("{}-{}-{kind} {state}\n", spaces.fsname, target.id());
        are_active &= target.space.is_some();
    }
    (text, are_active)
}

fn is_meant(which: Which, target: &TargetSpace) -> bool {
    match which {
        Which::Osts => target.kind == Kind::Ost,
        Which::Mds => target.kind == Kind::Mdt,
        Which::Servers | Which::All => true,
    }
}

#[cfg(test)]
mod tests {
    use fuse::control::SpaceValues;

    use super::*;

    #[test]
    fn targets_are_listed() {
        let target =
            |kind, index, active: bool| TargetSpace { kind, index, space: active.then(SpaceValues::default) };
        let spaces = Spaces {
            fsname: "w".into(),
            targets: vec![
                target(Kind::Mdt, 0, true),
                target(Kind::Ost, 0, true),
                target(Kind::Ost, 31, false),
            ],
        };
        assert_eq!(
            render(&spaces, Kind::Ost),
            "OBDS:\n0: w-OST0000_UUID ACTIVE\n31: w-OST001f_UUID INACTIVE\n"
        );
        assert_eq!(render(&spaces, Kind::Mdt), "MDTS:\n0: w-MDT0000_UUID ACTIVE\n");
        let all = "w-MDT0000-mdc active.\nw-OST0000-osc active.\nw-OST001f-osc inactive.\n";
        let check = |which| checked(&spaces, which);
        assert_eq!([check(Which::All), check(Which::Servers)], [(all.into(), false), (all.into(), false)]);
        assert_eq!(check(Which::Mds), ("w-MDT0000-mdc active.\n".into(), true));
        assert_eq!(check(Which::Osts), ("w-OST0000-osc active.\nw-OST001f-osc inactive.\n".into(), false));
        let missing = |osts: &[u32], start_index| {
            first_missing(&spaces, &Hint { osts: osts.to_vec(), start_index, ..Hint::default() })
        };
        assert_eq!(missing(&[0, 31], -1), None);
        let inactive =
            |osts: &[u32]| first_inactive(&spaces, &Hint { osts: osts.to_vec(), ..Hint::default() });
        let text = "the OST with index 31 does not answer, 'lfs check osts' tells which do";
        assert_eq!((inactive(&[0, 31]).as_deref(), inactive(&[0])), (Some(text), None));
        let text = "there is no OST with index 30, 'lfs osts' lists those that there are";
        assert_eq!((missing(&[0, 30], -1).as_deref(), missing(&[], 30).as_deref()), (Some(text), Some(text)));
    }
}
