//! `weft rank-mount`: the ranks of a job on one machine share several mounts of a file system, one rank after the other. Each mount has a
//! connection, a cache and threads of its own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuse::session::{self, MountEntry};
use rt::os::loopback;

use super::rankfs::attached;
use super::rankfs::record::rank_of_environment;
use crate::control::describe;
use crate::failure::{Failure, Outcome};

/// Run a rank of a job on one of several mounts of a file system: rank R sees mount R modulo their number. The exit status is the program's.
#[derive(clap::Args)]
pub struct Arguments {
    /// The mounts, with commas between
    #[arg(long, value_name = "DIR", value_delimiter = ',', required = true)]
    mounts: Vec<PathBuf>,
    /// Where the program sees its mount, a directory that is there [default: the first of the mounts]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// The rank in the job [default: what the environment says]
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// The program, and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let rank = arguments.rank.or_else(rank_of_environment);
    let rank = rank.ok_or_else(|| Failure::usage("which rank this is is not known; give --rank N"))?;
    let (Some(mount), Some(first)) = (chosen(&arguments.mounts, rank), arguments.mounts.first()) else {
        return Err(Failure::usage("name the mounts, as in --mounts /mnt/w0,/mnt/w1"));
    };
    let table = session::mounts()
        .map_err(|error| Failure::new(format!("the mounts cannot be read: {}", describe(&error))))?;
    check(&arguments.mounts, mount, &table)?;
    let at = arguments.at.as_ref().unwrap_or(first);
    if mount != at {
        let seen = private_mounts().and_then(|()| bind(mount, at)).and_then(|()| work_there());
        seen.map_err(|error| {
            Failure::new(format!(
                "{} cannot be seen at {}: {}",
                mount.display(),
                at.display(),
                describe(&error)
            ))
        })?;
    }
    let Some((program, words)) = arguments.command.split_first() else {
        return Err(Failure::usage("say what is to be run"));
    };
    // It takes the place of this process.
    let error = Command::new(program).args(words).exec();
    Err(Failure {
        message: format!("{} cannot be run: {}", program.display(), describe(&error)),
        status: 127,
    })
}

fn chosen(mounts: &[PathBuf], rank: u32) -> Option<&PathBuf> {
    mounts.get((rank as usize).checked_rem(mounts.len())?)
}

/// Whether the chosen mount is one of weft, and those that are there are of one file system: what is written somewhere else is lost to the
/// other ranks.
fn check(mounts: &[PathBuf], chosen: &Path, table: &[MountEntry]) -> Result<(), Failure> {
    let file_system = |path: &Path| {
        let entry = attached::mount_above(table, &path.canonicalize().ok()?)?;
        entry.is_weft().then(|| attached::name_of(entry))
    };
    let Some(meant) = file_system(chosen) else {
        return Err(Failure::new(format!(
            "{} is no mount of weft on this machine; mount the file system there first",
            chosen.display()
        )));
    };
    let other = mounts.iter().find(|mount| file_system(mount).is_some_and(|name| name != meant));
    match other {
        Some(other) => Err(Failure::usage(format!(
            "{} and {} are different file systems; name mounts of one",
            chosen.display(),
            other.display()
        ))),
        None => Ok(()),
    }
}

fn private_mounts() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return loopback::private_mounts();
    }
    loopback::private_mounts_of_user()
}

fn bind(mount: &Path, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(mount, at)?)
}

/// The working directory may be at the place that means the mount now.
fn work_there() -> io::Result<()> {
    std::env::set_current_dir(std::env::current_dir()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_one_file_system_are_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().canonicalize().expect("it is there");
        let [a, b, other, none] = ["a", "b", "other", "none"].map(|name| top.join(name));
        for path in [&a, &b, &other, &none] {
            std::fs::create_dir(path).expect("a new name");
        }
        let entry = |path: &Path, source: &str, kind: &str| MountEntry {
            path: path.to_owned(),
            source: source.to_owned(),
            kind: kind.to_owned(),
            ..MountEntry::default()
        };
        let table = [
            entry(Path::new("/"), "/dev/root", "ext4"),
            entry(&a, "n1@tcp:/w", "fuse.weft"),
            entry(&b, "n2@tcp:n1@tcp:/w", "fuse.weft"),
            entry(&other, "n1@tcp:/x", "fuse.weft"),
        ];
        assert!(check(&[a.clone(), b.clone()], &b, &table).is_ok());
        assert!(check(&[a.clone(), none.clone()], &a, &table).is_ok(), "no rank of this one");
        assert!(check(&[a.clone(), none.clone()], &none, &table).is_err());
        assert!(check(&[a.clone(), other], &a, &table).is_err());
    }

    #[test]
    fn ranks_take_the_mounts_in_turn() {
        let mounts = [PathBuf::from("/a"), PathBuf::from("/b"), PathBuf::from("/c")];
        let names: Vec<_> = (0..5).filter_map(|rank| chosen(&mounts, rank)?.to_str()).collect();
        assert_eq!(names, ["/a", "/b", "/c", "/a", "/b"]);
        assert_eq!(chosen(&[], 3), None);
    }
}
