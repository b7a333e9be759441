//! Mount points: where they are, and what state they are in.

use std::io;
use std::path::{Path, PathBuf};

use fuse::control::{self, Status};
use fuse::session::{self, MountEntry};

use crate::failure::Failure;

/// What there is at a place where something is to be mounted.
#[derive(Debug)]
pub enum State {
    /// Nothing is mounted.
    Free,
    /// weft, and it answers.
    Up(Box<Status>),
    /// weft, but the process behind it is gone.
    Dead,
    /// Something else is mounted.
    Foreign(MountEntry),
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
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => {
            // Only the last part may be missing, or be a dead mount.
            let absolute = std::path::absolute(path).map_err(failed)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
                _ => Err(failed(error)),
            }
        }
    }
}

/// Every weft mount of this machine that this user may look into, in the order of mounting. A user's mount is for that
/// user alone, even root is kept out.
pub fn usable() -> Result<Vec<MountEntry>, Failure> {
    let denied = |path: &Path| {
        status(path).is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)))
    };
    Ok(all()?.into_iter().filter(|entry| !denied(&entry.path)).collect())
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
    match entry(path)? {
        None => Ok(State::Free),
        Some(entry) if !entry.is_weft() => Ok(State::Foreign(entry)),
        Some(_) => match status(path) {
            Ok(status) => Ok(State::Up(Box::new(status))),
            Err(error) if is_dead(&error) => Ok(State::Dead),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Failure::new(format!(
                "the mount at {} is another user's; ask that user, or name another mount point",
                path.display()
            ))),
            Err(error) => Err(Failure::new(format!(
                "the mount at {} does not say what it is: {}; take it away with \"umount -l {}\"",
                path.display(),
                crate::control::describe(&error),
                path.display(),
            ))),
        },
    }
}

/// What serves the mount at `path`.
pub fn status(path: &Path) -> io::Result<Status> {
    crate::control::get(path, control::STATUS)
}

/// Whether nobody serves a mount any more.
pub fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
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
