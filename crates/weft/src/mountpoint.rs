//! Mount points: where they are, and what state they are in.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::control::{self, Status};
use fuse::session::{self, MountEntry};

use crate::ask;
use crate::failure::Failure;

/// How long a mount may take to say what it is to somebody who asks all of them. It asks nobody else for that.
const SURVEY_WAIT: Duration = Duration::from_secs(3);

/// What there is at a place where something is to be mounted.
#[derive(Debug)]
pub enum State {
    /// Nothing is mounted.
    Free,
    /// weft, and it answers.
    Up(Box<Status>),
    /// weft, but the process behind it is gone.
    Dead,
    /// weft, but the process behind it does not answer.
    Silent,
    /// Something else is mounted.
    Foreign(MountEntry),
}

/// A mount that answers.
#[derive(Debug, Clone)]
pub struct Mount {
    /// Its line in the kernel's table.
    pub entry: MountEntry,
    /// What it says of itself.
    pub status: Status,
}

/// The weft mounts of this machine that this user may look into.
#[derive(Debug, Default)]
pub struct Survey {
    /// Those that answer, in the order of mounting.
    pub mounts: Vec<Mount>,
    /// Where those are that do not. The user was told.
    pub left_out: Vec<PathBuf>,
}

/// The absolute path of a mount point, which may be one that does not answer any more.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| {
        let why = crate::control::describe(&error);
        Failure::new(format!(
            "{} cannot be reached: {why}; check the path, and make the directories above",
            path.display()
        ))
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let mounts = all()?;
    if let Some(entry) = mounts.into_iter().find(|entry| entry.path == absolute) {
        return Ok(entry.path);
    }
    match resolved(path) {
        Ok(path) => Ok(path),
        Err(error) if ask::is_silent(&error) => Err(failed(error)),
        // Only the last part may be missing.
        Err(error) => match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => Ok(resolved(parent).map_err(failed)?.join(name)),
            _ => Err(failed(error)),
        },
    }
}

/// The absolute path without symbolic links. No mount that the path leads through can stop this process.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    if session::mounts()?.iter().any(MountEntry::is_weft) {
        ask::resolve(&absolute)
    } else {
        absolute.canonicalize()
    }
}

/// Every weft mount of this machine that this user may look into, asked at the same time. Tells on standard error which do
/// not answer. A user's mount is for that user alone, even root is kept out.
pub fn survey() -> Result<Survey, Failure> {
    let mut survey = Survey::default();
    let status = |entry: &MountEntry| ask::get_within::<Status>(entry, control::STATUS, SURVEY_WAIT);
    for (entry, status) in all_asked(all()?, status) {
        let name = entry.path.display();
        match status {
            Ok(status) => survey.mounts.push(Mount { entry, status }),
            Err(error) if is_denied(&error) => {}
            Err(error) => {
                if is_dead(&error) {
                    err!("{name} is left out: its process is gone; \"umount -l {name}\" takes it away");
                } else {
                    err!("{name} is left out: {}", crate::control::describe(&error));
                }
                survey.left_out.push(entry.path);
            }
        }
    }
    Ok(survey)
}

/// The mount that a command with a path is about, or all that answer for one without; and whether others do not.
pub fn meant(path: Option<&Path>) -> Result<(Vec<MountEntry>, bool), Failure> {
    if let Some(path) = path {
        let found = containing(path)?;
        let none =
            || Failure::new(format!("{} is in no weft file system; name a mount point", path.display()));
        return Ok((vec![found.ok_or_else(none)?], false));
    }
    let survey = survey()?;
    let mounts = survey.mounts.into_iter().map(|mount| mount.entry);
    Ok((mounts.collect(), !survey.left_out.is_empty()))
}

/// The mounts of [`survey`] that answer.
pub fn usable() -> Result<Vec<Mount>, Failure> {
    Ok(survey()?.mounts)
}

/// Does something with each of `entries` at the same time: each may take as long as a mount may take to answer.
pub fn all_asked<T: Send>(
    entries: Vec<MountEntry>,
    ask: impl Fn(&MountEntry) -> T + Sync,
) -> Vec<(MountEntry, T)> {
    let answers: Vec<T> = std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = entries.iter().map(|entry| scope.spawn(move || ask(entry))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asked.into_iter().map(join).collect()
    });
    entries.into_iter().zip(answers).collect()
}

/// Every weft mount of this machine, in the order of mounting.
pub fn all() -> Result<Vec<MountEntry>, Failure> {
    let mounts = session::mounts().map_err(|error| {
        Failure::new(format!("the table of mounts cannot be read: {error}; is /proc mounted?"))
    })?;
    Ok(mounts.into_iter().filter(MountEntry::is_weft).collect())
}

/// What is mounted at `path`, last.
pub fn entry(path: &Path) -> Result<Option<MountEntry>, Failure> {
    let mounts = session::mounts().map_err(|error| {
        Failure::new(format!("the table of mounts cannot be read: {error}; is /proc mounted?"))
    })?;
    Ok(mounts.into_iter().rfind(|entry| entry.path == path))
}

/// What there is at `path`.
pub fn state(path: &Path) -> Result<State, Failure> {
    let entry = match entry(path)? {
        None => return Ok(State::Free),
        Some(entry) if !entry.is_weft() => return Ok(State::Foreign(entry)),
        Some(entry) => entry,
    };
    match status(&entry) {
        Ok(status) => Ok(State::Up(Box::new(status))),
        Err(error) if is_dead(&error) => Ok(State::Dead),
        Err(error) if ask::is_silent(&error) => Ok(State::Silent),
        Err(error) if is_denied(&error) => Err(Failure::new(format!(
            "the mount at {} is another user's; ask that user, or name another mount point",
            path.display()
        ))),
        Err(error) => Err(Failure::new(format!(
            "the mount at {} does not say what it is: {}; take it away with \"umount -l {}\"",
            path.display(),
            crate::control::describe(&error),
            path.display(),
        ))),
    }
}

/// What to do about a mount whose process does not answer.
pub fn silent(path: &Path) -> Failure {
    Failure::new(format!(
        "the process behind {0} does not answer within {1} s; let it go on if it was stopped, or take the mount away with \"umount -l {0}\"",
        path.display(),
        ask::ANSWER_WAIT.as_secs()
    ))
}

/// What serves a mount.
pub fn status(entry: &MountEntry) -> io::Result<Status> {
    ask::get(entry, control::STATUS)
}

/// Whether the mount is for somebody else.
pub fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Whether nobody serves a mount any more. ECANCELED: the process was killed, and the kernel is taking its rings apart.
pub fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
}

/// The weft mount that `path` lies in.
pub fn containing(path: &Path) -> Result<Option<MountEntry>, Failure> {
    let path = absolute(path)?;
    let mounts = all()?;
    Ok(mounts
        .into_iter()
        .filter(|entry| path.starts_with(&entry.path))
        .max_by_key(|entry| entry.path.as_os_str().len()))
}
