//! `lfs`: what users ask of a file system. Names, options and output are those of Lustre's `lfs`, because scripts
//! read them.

mod changelog;
mod components;
mod df;
mod fid;
pub(crate) mod find;
mod getstripe;
pub(crate) mod hsm;
mod ladvise;
pub(crate) mod migrate;
mod names;
mod pools;
mod project;
mod quota;
mod setstripe;
mod som;
mod targets;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use fuse::control::Hint;
use fuse::hsm::HsmOrder;
use fuse::session::MountEntry;

use crate::failure::Failure;
use crate::{mountpoint, usage};

/// What a sub-command gives: exit status, or what is printed to standard error as it is.
type Outcome = Result<u8, Failure>;

/// Look at layouts, space and targets of a file system.
#[derive(Parser)]
#[command(name = "lfs", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setstripe(setstripe::Arguments),
    Getstripe(getstripe::Arguments),
    Migrate(migrate::Arguments),
    Df(df::Arguments),
    Find(find::Arguments),
    Ladvise(ladvise::Arguments),
    Changelog(changelog::Arguments),
    #[command(name = "changelog_clear")]
    ChangelogClear(changelog::ClearArguments),
    Project(project::Arguments),
    Quota(quota::Arguments),
    Setquota(quota::SetArguments),
    Osts(targets::Arguments),
    Mdts(targets::Arguments),
    Check(targets::CheckArguments),
    #[command(name = "pool_list", alias = "poollist")]
    PoolList(pools::Arguments),
    #[command(name = "path2fid")]
    Path2fid(fid::PathArguments),
    Getsom(som::Arguments),
    #[command(name = "fid2path")]
    Fid2path(fid::FidArguments),
    #[command(name = "hsm_state")]
    HsmState(hsm::StateArguments),
    #[command(name = "hsm_action")]
    HsmAction(hsm::ActionArguments),
    #[command(name = "hsm_set")]
    HsmSet(hsm::FlagArguments),
    /// Clear flags of files
    #[command(name = "hsm_clear")]
    HsmClear(hsm::FlagArguments),
    #[command(name = "hsm_archive")]
    HsmArchive(hsm::ArchiveArguments),
    /// Have copytools bring the data of files back
    #[command(name = "hsm_restore")]
    HsmRestore(hsm::FileArguments),
    /// Give the data of files up that an archive has
    #[command(name = "hsm_release")]
    HsmRelease(hsm::FileArguments),
    /// Have copytools remove the copies of files
    #[command(name = "hsm_remove")]
    HsmRemove(hsm::FileArguments),
    /// Cancel what copytools were asked to do with files
    #[command(name = "hsm_cancel")]
    HsmCancel(hsm::FileArguments),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Lustre's sub-commands that are not available yet.
const NOT_YET: &[&str] = &[
    "cp",
    "data_version",
    "flushctx",
    "getdirstripe",
    "getname",
    "heat_get",
    "heat_set",
    "ls",
    "mirror",
    "mkdir",
    "nodemap",
    "ostlist",
    "path2ost",
    "pcc",
    "rm_entry",
    "rmdir",
    "rmfid",
    "setdirstripe",
    "som_sync",
    "swap_layouts",
    "unlink_foreign",
];

/// How lines for `lfs` are written.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// The program called as `lfs`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments;
    components::long_id(&mut arguments);
    let own = migrate::take_own_options(&mut arguments);
    let (mut arguments, parts) = match components::split(&arguments) {
        None => (arguments, Vec::new()),
        Some(Ok(line)) => (line.rest, line.parts),
        Some(Err(failure)) => {
            err!("{}", failure.message);
            return ExitCode::from(failure.status);
        }
    };
    let behind_command = arguments.len().min(2);
    arguments.splice(behind_command..behind_command, own);
    let arguments: Arguments = match usage::parse(arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let outcome = match arguments.command {
        Command::Setstripe(arguments) => setstripe::run(arguments, parts),
        Command::Getstripe(arguments) => getstripe::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments, parts),
        Command::Df(arguments) => df::run(&arguments),
        Command::Find(arguments) => find::run(&arguments),
        Command::Ladvise(arguments) => ladvise::run(&arguments),
        Command::Changelog(arguments) => changelog::run(&arguments),
        Command::ChangelogClear(arguments) => changelog::clear(&arguments),
        Command::Project(arguments) => project::run(&arguments),
        Command::Quota(arguments) => quota::run(&arguments),
        Command::Setquota(arguments) => quota::set(&arguments),
        Command::Osts(arguments) => targets::osts(&arguments),
        Command::Mdts(arguments) => targets::mdts(&arguments),
        Command::PoolList(arguments) => pools::list(&arguments),
        Command::Check(arguments) => targets::check(&arguments),
        Command::Path2fid(arguments) => fid::path2fid(&arguments),
        Command::Getsom(arguments) => som::run(&arguments),
        Command::Fid2path(arguments) => fid::fid2path(&arguments),
        Command::HsmState(arguments) => hsm::state(&arguments),
        Command::HsmAction(arguments) => hsm::action(&arguments),
        Command::HsmSet(arguments) => hsm::set(&arguments),
        Command::HsmClear(arguments) => hsm::clear(&arguments),
        Command::HsmArchive(arguments) => hsm::archive(&arguments),
        Command::HsmRestore(arguments) => hsm::order(&arguments, HsmOrder::Restore),
        Command::HsmRelease(arguments) => hsm::order(&arguments, HsmOrder::Release),
        Command::HsmRemove(arguments) => hsm::order(&arguments, HsmOrder::Remove),
        Command::HsmCancel(arguments) => hsm::order(&arguments, HsmOrder::Cancel),
        Command::Other(words) => Err(usage::no_command("lfs", &words, NOT_YET)),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            err!("{}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

/// Why a layout was refused. `path` is one in the file system.
pub(crate) fn why_refused(path: &Path, hint: &Hint, error: &io::Error) -> String {
    let released = || {
        let text = "its data is in an archive alone; use \"lfs hsm_restore\" first";
        (error.raw_os_error() == Some(libc::ENODATA)).then(|| text.to_owned())
    };
    let known = pools::why_refused(path, hint, error).or_else(|| targets::missing_ost(path, hint, error));
    let known = known.or_else(released);
    known.unwrap_or_else(|| crate::control::describe(error))
}

/// What a command is about.
struct Meant {
    mounts: Vec<MountEntry>,
    /// There are others, which do not answer; the user was told.
    left_out: bool,
}

/// The mounts that a command without or with a path is about; with a path it is one.
fn mounts(path: Option<&Path>) -> Result<Meant, Failure> {
    match path {
        None => {
            let survey = mountpoint::survey()?;
            let left_out = !survey.left_out.is_empty();
            let mounts: Vec<MountEntry> = survey.mounts.into_iter().map(|mount| mount.entry).collect();
            if mounts.is_empty() && !left_out {
                Err(Failure::new("error: no weft file system is mounted here"))
            } else {
                Ok(Meant { mounts, left_out })
            }
        }
        Some(path) => {
            let invalid =
                |why: &str| Failure::new(format!("error: invalid path '{}': {why}", path.display()));
            if !mountpoint::all()?.iter().any(|entry| entry.path == path) {
                mountpoint::resolved(path).map_err(|error| invalid(&crate::control::describe(&error)))?;
            }
            match mountpoint::containing(path)? {
                Some(entry) => Ok(Meant { mounts: vec![entry], left_out: false }),
                None => Err(invalid("not in a weft file system")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn lines_are_parsed() {
        for (line, fine) in [
            ("lfs setstripe -c -1 /f", true),
            ("lfs setstripe -C 8 -S 1M -i -1 /f", true),
            ("lfs setstripe -o 0,2,4-6 /f", true),
            ("lfs setstripe --stripe-count=4 --stripe-size 64k /a /b", true),
            ("lfs setstripe -d /d", true),
            ("lfs setstripe", false),
            ("lfs setstripe -c x /f", false),
            ("lfs setstripe -S 65537 /f", false),
            ("lfs setstripe -c 1 -C 2 /f", false),
            ("lfs getstripe -c /f", true),
            ("lfs getstripe -r -y /f /g", true),
            ("lfs getstripe", false),
            ("lfs df -h", true),
            ("lfs df -i /m", true),
            ("lfs check servers", true),
            ("lfs check cows", false),
            ("lfs setstripe -p flash -c -1 /f", true),
            ("lfs pool_list /m", true),
            ("lfs pool_list", false),
            ("lfs find /m -newer /m/f ! -name -o -c +2", true),
            ("lfs find -type f", true),
            ("lfs path2fid /f", true),
            ("lfs fid2path weft [0x200000400:0x1:0x0]", true),
            ("lfs frobnicate", true),
        ] {
            assert_eq!(Arguments::try_parse_from(line.split(' ')).is_ok(), fine, "{line}");
        }
    }
}
