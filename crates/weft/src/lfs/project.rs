//! `lfs project`: for which project files count.

use std::path::{Path, PathBuf};

use fuse::control::PROJECT;
use fuse::projects::Project;

use crate::failure::Failure;
use crate::lfs::Outcome;

/// Say, or set, for which project files and directories count.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The project that they are to count for, or that is looked for
    #[arg(short = 'p', value_name = "ID", value_parser = clap::value_parser!(u32).range(..4_294_967_295))]
    id: Option<u32>,
    /// Directories themselves, and not what is in them
    #[arg(short = 'd')]
    directory: bool,
    /// Everything below, too
    #[arg(short = 'r', conflicts_with = "directory")]
    recursive: bool,
    /// What is made in the directories gets their project
    #[arg(short = 's')]
    inherits: bool,
    /// Say what has another project than its directory
    #[arg(short = 'c', conflicts_with_all = ["inherits", "clear"])]
    check: bool,
    /// With -c: names that end with NUL, alone
    #[arg(short = '0', requires = "check")]
    nul: bool,
    /// Take projects away
    #[arg(short = 'C', conflicts_with_all = ["id", "inherits"])]
    clear: bool,
    /// With -C: only what is made in the directories gets no project any more
    #[arg(short = 'k', requires = "clear")]
    keep: bool,
    /// Print help
    #[arg(long, short = 'h', action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// What is to be done with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Print its project.
    List,
    /// Give it this one; whether directories pass it on, if that is said.
    Set { id: Option<u32>, inherits: bool },
    /// Take it away, unless it is kept, and what directories pass on.
    Clear { keep: bool },
    /// Say so if it is not in this one.
    Check { id: u32, nul: bool },
}

/// Runs `lfs project`.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut walk = Walk { failed: false };
    for path in &arguments.paths {
        let task = match arguments {
            Arguments { check: true, id, nul, .. } => match id {
                Some(id) => Task::Check { id: *id, nul: *nul },
                None => Task::Check { id: read(path).map_err(|why| failed(path, &why))?.id, nul: *nul },
            },
            Arguments { clear: true, keep, .. } => Task::Clear { keep: *keep },
            Arguments { id: None, inherits: false, .. } => Task::List,
            Arguments { id, inherits, .. } => Task::Set { id: *id, inherits: *inherits },
        };
        let lists = matches!(task, Task::List | Task::Check { .. });
        let is_dir = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        // As Lustre has it: a directory is listed by what is in it, and set itself.
        if !lists || arguments.directory || !is_dir || arguments.recursive {
            walk.visit(path, task);
        }
        if is_dir && !arguments.directory && (lists || arguments.recursive) {
            walk.entries(path, task, arguments.recursive);
        }
    }
    Ok(u8::from(walk.failed))
}

/// Goes through the files.
struct Walk {
    failed: bool,
}

impl Walk {
    fn visit(&mut self, path: &Path, task: Task) {
        if let Err(why) = carry_out(path, task) {
            self.failed = true;
            err!("{}", failed(path, &why).message);
        }
    }

    /// What is in a directory, in the order of the names; symbolic links and devices have no data.
    fn entries(&mut self, dir: &Path, task: Task, recursive: bool) {
        let found = std::fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match found {
            Ok(entries) => entries,
            Err(error) => {
                self.failed = true;
                err!("{}", failed(dir, &crate::control::describe(&error)).message);
                return;
            }
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() || kind.is_file() {
                self.visit(&path, task);
            }
            if kind.is_dir() && recursive {
                self.entries(&path, task, recursive);
            }
        }
    }
}

fn carry_out(path: &Path, task: Task) -> Result<(), String> {
    let before = read(path)?;
    let is_dir = || std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    match task {
        Task::List => {
            let Project { id, inherits } = before;
            out!("{id:>5} {} {}", if inherits { 'P' } else { '-' }, path.display());
            Ok(())
        }
        Task::Set { id, inherits } => {
            let inherits = before.inherits || inherits && is_dir();
            write(path, before, Project { id: id.unwrap_or(before.id), inherits })
        }
        Task::Clear { keep } => {
            write(path, before, Project { id: if keep { before.id } else { 0 }, inherits: false })
        }
        Task::Check { id, nul } => {
            let is_wrong = before.id != id;
            let passes_nothing_on = is_dir() && !before.inherits;
            match nul {
                true if is_wrong || passes_nothing_on => crate::out::print(format!("{}\0", path.display())),
                true => {}
                false => {
                    if is_wrong {
                        let is = before.id;
                        out!("{} - project identifier is not set (inode={is}, tree={id})", path.display());
                    }
                    if passes_nothing_on {
                        out!("{} - project inheritance flag is not set", path.display());
                    }
                }
            }
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Project, String> {
    let text = crate::control::get_text(path, PROJECT).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY | libc::ENODATA) => {
            "it is not in a weft file system, or its mount runs an older version".to_owned()
        }
        _ => crate::control::describe(&error),
    })?;
    text.parse()
        .map_err(|_| "the answer of its mount is not understood; it may run another version".to_owned())
}

fn write(path: &Path, before: Project, project: Project) -> Result<(), String> {
    if before == project {
        return Ok(());
    }
    crate::control::set(path, PROJECT, project.to_string().as_bytes()).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM) => "only root sets projects".to_owned(),
            _ => crate::control::describe(&error),
        }
    })
}

fn failed(path: &Path, why: &str) -> Failure {
    Failure::new(format!("error: project: {}: {why}", path.display()))
}
