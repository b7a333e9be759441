//! `lfs hsm_*`: files whose data has a copy in an archive (`docs/hsm.md`). Words and output are Lustre's.

use std::io;
use std::path::{Path, PathBuf};

use fuse::hsm::{HSM, HsmFile, HsmOrder};
use proto::hsm::{ARCHIVE_MAX, Action, ActionState, Flags, flag};

use crate::failure::Failure;
use crate::lfs::Outcome;

/// Say which files have a copy in an archive.
#[derive(clap::Args)]
pub struct StateArguments {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Say what a copytool does, or will do, with files.
#[derive(clap::Args)]
pub struct ActionArguments {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Set flags of files.
#[derive(clap::Args)]
pub struct FlagArguments {
    /// They are not to be released
    #[arg(long)]
    norelease: bool,
    /// They are not to be archived
    #[arg(long)]
    noarchive: bool,
    /// The copy is an old one
    #[arg(long)]
    dirty: bool,
    /// The copy is complete; for root
    #[arg(long)]
    archived: bool,
    /// There is a copy; for root
    #[arg(long)]
    exists: bool,
    /// The archive has lost the copy; for root
    #[arg(long)]
    lost: bool,
    /// Number of the archive; for root
    #[arg(long, visible_alias = "archive_id", value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(ARCHIVE_MAX)))]
    archive_id: u32,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Have copytools copy files to an archive.
#[derive(clap::Args)]
pub struct ArchiveArguments {
    /// Number of the archive [default: that which has the copy, or `mdt.*.hsm.default_archive_id`]
    #[arg(short, long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(ARCHIVE_MAX)))]
    archive: u32,
    #[command(flatten)]
    files: FileArguments,
}

/// Files of a command.
#[derive(clap::Args)]
pub struct FileArguments {
    /// A file with the name of a file in each line
    #[arg(short = 'l', long, value_name = "LIST")]
    filelist: Option<PathBuf>,
    /// Files
    #[arg(required_unless_present = "filelist", value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// `lfs hsm_state`.
pub fn state(arguments: &StateArguments) -> Outcome {
    each(&arguments.paths, |path| {
        let HsmFile { flags, archive, .. } = read(path)?;
        let archive = if archive == 0 { String::new() } else { format!(", archive_id: {archive}") };
        out!("{}: {}{archive}", path.display(), Flags(flags));
        Ok(())
    })
}

/// `lfs hsm_action`.
pub fn action(arguments: &ActionArguments) -> Outcome {
    each(&arguments.paths, |path| {
        let file = read(path)?;
        let word = match (Action::of(file.action), ActionState::of(file.state)) {
            (Some(action), Some(ActionState::Started)) => {
                format!("{action} running({} bytes moved)", file.done)
            }
            (Some(action), _) => format!("{action} waiting"),
            (None, _) => "NOOP".to_owned(),
        };
        out!("{}: {word}", path.display());
        Ok(())
    })
}

/// `lfs hsm_set`.
pub fn set(arguments: &FlagArguments) -> Outcome {
    let (set, archive) = (arguments.flags(), arguments.archive_id);
    order_all(&arguments.paths, HsmOrder::Flags { set, clear: 0, archive })
}

/// `lfs hsm_clear`.
pub fn clear(arguments: &FlagArguments) -> Outcome {
    let (clear, archive) = (arguments.flags(), arguments.archive_id);
    order_all(&arguments.paths, HsmOrder::Flags { set: 0, clear, archive })
}

/// `lfs hsm_archive`.
pub fn archive(arguments: &ArchiveArguments) -> Outcome {
    order_all(&arguments.files.all()?, HsmOrder::Archive(arguments.archive))
}

/// `lfs hsm_restore`, `hsm_release`, `hsm_remove` and `hsm_cancel`.
pub fn order(arguments: &FileArguments, order: HsmOrder) -> Outcome {
    order_all(&arguments.all()?, order)
}

impl FlagArguments {
    fn flags(&self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.norelease, flag::NORELEASE)
            | bit(self.noarchive, flag::NOARCHIVE)
            | bit(self.dirty, flag::DIRTY)
            | bit(self.archived, flag::ARCHIVED)
            | bit(self.exists, flag::EXISTS)
            | bit(self.lost, flag::LOST)
    }
}

impl FileArguments {
    fn all(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut all = self.paths.clone();
        if let Some(list) = &self.filelist {
            let text = std::fs::read_to_string(list).map_err(|error| {
                Failure::new(format!("error: {}: {}", list.display(), crate::control::describe(&error)))
            })?;
            all.extend(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from));
        }
        Ok(all)
    }
}

fn order_all(paths: &[PathBuf], order: HsmOrder) -> Outcome {
    each(paths, |path| give(path, order))
}

/// Gives one order.
pub(crate) fn give(path: &Path, order: HsmOrder) -> Result<(), String> {
    crate::control::set(path, HSM, &fuse::control::encode(&order)).map_err(|error| why(path, order, &error))
}

/// Does something with each of them; those that fail do not end it.
fn each(paths: &[PathBuf], act: impl Fn(&Path) -> Result<(), String>) -> Outcome {
    let mut failed = false;
    for path in paths {
        if let Err(why) = act(path) {
            failed = true;
            err!("error: {}: {why}", path.display());
        }
    }
    Ok(u8::from(failed))
}

/// The HSM state of a file.
pub(crate) fn read(path: &Path) -> Result<HsmFile, String> {
    crate::control::get(path, HSM).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => "only regular files have an HSM state".to_owned(),
        _ => crate::control::describe(&error),
    })
}

fn why(path: &Path, order: HsmOrder, error: &io::Error) -> String {
    let flags = || read(path).map_or(0, |file| file.flags);
    let text = match (order, error.raw_os_error()) {
        (_, Some(libc::EINVAL)) if !path.is_file() => "only regular files can be archived",
        (HsmOrder::Release, Some(libc::EPERM)) if flags() & flag::NORELEASE != 0 => {
            "it is not to be released; see \"lfs hsm_clear --norelease\""
        }
        (HsmOrder::Release, Some(libc::EPERM)) if flags() & flag::ARCHIVED == 0 => {
            "no archive has a copy; use \"lfs hsm_archive\" first"
        }
        (HsmOrder::Release, Some(libc::EPERM)) if may_own(path) => {
            "flags that were set by hand make no copy; use \"lfs hsm_archive\" first"
        }
        (HsmOrder::Archive(_) | HsmOrder::Flags { .. }, Some(libc::EXDEV)) => {
            "its copy is in another archive; use \"lfs hsm_remove\" first"
        }
        (HsmOrder::Release, Some(libc::EBUSY)) if flags() & flag::LOST != 0 => {
            "the archive has lost the copy"
        }
        (HsmOrder::Release, Some(libc::EBUSY)) if flags() & flag::DIRTY != 0 => {
            "it was opened for writing since it was archived; use \"lfs hsm_archive\" again"
        }
        (HsmOrder::Release, Some(libc::EBUSY)) => "it is open for writing, or somebody moves it",
        (HsmOrder::Archive(_), Some(libc::EPERM)) if flags() & flag::NOARCHIVE != 0 => {
            "it is not to be archived; see \"lfs hsm_clear --noarchive\""
        }
        (HsmOrder::Remove, Some(libc::EPERM)) if flags() & flag::RELEASED != 0 => {
            "the copy is all that there is of the data; use \"lfs hsm_restore\" first"
        }
        (HsmOrder::Flags { clear, .. }, Some(libc::EPERM)) if clear & flags() & flag::DIRTY != 0 => {
            "only a new copy is what the file has; use \"lfs hsm_archive\""
        }
        (HsmOrder::Flags { .. }, Some(libc::EPERM)) if flags() & flag::RELEASED != 0 => {
            "the copy is all that there is of the data"
        }
        (HsmOrder::Archive(_) | HsmOrder::Restore | HsmOrder::Remove, Some(libc::EBUSY)) => {
            "the coordinator takes no requests; see \"lctl get_param mdt.*.hsm_control\""
        }
        _ => return crate::control::describe(error),
    };
    text.to_owned()
}

/// Whether the caller is the owner of a file, or root.
fn may_own(path: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    uid == 0 || std::fs::metadata(path).is_ok_and(|file| std::os::unix::fs::MetadataExt::uid(&file) == uid)
}
