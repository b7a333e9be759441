//! `lfs pool_list`, and why a layout in a pool was refused.

use std::io;
use std::path::{Path, PathBuf};

use fuse::control::Hint;
use fuse::pools::{POOLS, PoolNames};
use fuse::session::MountEntry;

use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::pools::{self, Named};
use crate::{ask, mountpoint};

/// List the pools of a file system, or the OSTs of a pool.
#[derive(clap::Args)]
pub struct Arguments {
    /// A path in the file system, its name, a pool as in w.flash, or a mount point and a pool as in /mnt/flash
    #[arg(value_name = "PATH|FS[.POOL]")]
    named: PathBuf,
}

/// Runs the command.
pub fn list(arguments: &Arguments) -> Outcome {
    let (mount, pool) = find(&arguments.named)?;
    let failed = |error: io::Error| {
        let why = crate::control::describe(&error);
        Failure::new(format!("error: pool_list: {}: {why}", mount.path.display()))
    };
    let told = pools::names(&mount).map_err(failed)?;
    let text = match pool {
        None => pools::list(&told.fsname, &told.names),
        Some(pool) => {
            let osts = pools::members(&mount, &pool).map_err(failed)?;
            pools::one(&told.fsname, &pool, &osts.ok_or_else(|| none(&pool, &told.fsname))?)
        }
    };
    crate::out::print(text);
    Ok(0)
}

fn none(pool: &str, fsname: &str) -> Failure {
    Failure { message: format!("error: pool_list: {}", missing(pool, fsname)), status: libc::ENOENT as u8 }
}

/// There is no such pool.
pub fn missing(pool: &str, fsname: &str) -> String {
    format!("there is no pool '{pool}'; 'lfs pool_list {fsname}' lists those that there are")
}

/// The mount that is meant, and the pool.
fn find(named: &Path) -> Result<(MountEntry, Option<String>), Failure> {
    let text = named.to_string_lossy();
    if !text.contains('/') && !named.exists() {
        let (fsname, pool) = match text.split_once('.') {
            None => (text.into_owned(), None),
            Some(_) => {
                let Named { fsname, pool } = Named::parse("error: pool_list", &text)?;
                (fsname, Some(pool))
            }
        };
        return Ok((mount_of(&fsname)?, pool));
    }
    // A pool behind a mount point is no file there.
    if let (Some(parent), Some(name), false) = (named.parent(), named.file_name(), named.exists())
        && mountpoint::all()?.iter().any(|entry| entry.path == parent)
    {
        return Ok((at(parent)?, Some(name.to_string_lossy().into_owned())));
    }
    Ok((at(named)?, None))
}

fn at(path: &Path) -> Result<MountEntry, Failure> {
    let mount = super::mounts(Some(path))?.mounts.into_iter().next();
    mount.ok_or_else(|| Failure::new(format!("error: invalid path '{}'", path.display())))
}

fn mount_of(fsname: &str) -> Result<MountEntry, Failure> {
    let mut mounts = mountpoint::usable()?.into_iter();
    let found = mounts.find(|mount| mount.status.fsname == fsname).map(|mount| mount.entry);
    found.ok_or_else(|| {
        Failure::new(format!(
            "error: pool_list: no file system '{fsname}' is mounted here; name a path in one"
        ))
    })
}

/// Why a layout that names pools was refused; nothing if that is not about pools, or the mount does not say. `path` is one in the file
/// system.
pub fn why_refused(path: &Path, hint: &Hint, error: &io::Error) -> Option<String> {
    let number = error.raw_os_error()?;
    if ![libc::ENOENT, libc::EINVAL, libc::ENOSPC].contains(&number) {
        return None;
    }
    let asked = || hint.parts.iter().map(|part| &part.hint).chain(std::iter::once(hint));
    if asked().all(|hint| hint.pool.is_empty()) {
        return None;
    }
    let PoolNames { fsname, names } = crate::control::get(path, POOLS).ok()?;
    for hint in asked().filter(|hint| !hint.pool.is_empty() && hint.pool != proto::pool::POOL_IGNORE) {
        if !names.contains(&hint.pool) {
            return Some(missing(&hint.pool, &fsname));
        }
        let get = |attribute: &str| crate::control::get(path, attribute);
        let osts = pools::all_members(&hint.pool, get).ok()??;
        if let Some(why) = outside(&fsname, hint, &osts) {
            return Some(why);
        }
    }
    None
}

/// What `hint` names outside its pool, which has `osts`.
fn outside(fsname: &str, hint: &Hint, osts: &[u32]) -> Option<String> {
    let pool = &hint.pool;
    let named = hint.osts.iter().copied().chain(u32::try_from(hint.start_index).ok());
    if let Some(ost) = named.into_iter().find(|ost| !osts.contains(ost)) {
        return Some(format!(
            "OST {ost} is not in the pool '{pool}'; 'lfs pool_list {fsname}.{pool}' lists those that are"
        ));
    }
    osts.is_empty()
        .then(|| format!("the pool '{pool}' has no OST; 'lctl pool_add {fsname}.{pool} OST...' adds some"))
}

/// The OSTs of the pool that `df` is about.
pub fn of_df(mount: &MountEntry, pool: &str) -> Result<Vec<u32>, String> {
    let pool = pool.rsplit_once('.').map_or(pool, |(_, pool)| pool);
    let members = pools::members(mount, pool).map_err(|error| crate::control::describe(&error))?;
    let fsname = || ask::get::<PoolNames>(mount, POOLS).map_or_else(|_| "FS".to_owned(), |told| told.fsname);
    members.ok_or_else(|| missing(pool, &fsname()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_a_pool_is_named() {
        let hint = |osts: &[u32], start_index| Hint {
            pool: "flash".into(),
            osts: osts.to_vec(),
            start_index,
            ..Hint::default()
        };
        let check =
            |osts: &[u32], start_index, members: &[u32]| outside("w", &hint(osts, start_index), members);
        assert_eq!(check(&[0, 1], -1, &[0, 1]), None);
        let text = "OST 2 is not in the pool 'flash'; 'lfs pool_list w.flash' lists those that are";
        assert_eq!(
            (check(&[0, 2], -1, &[0, 1]).as_deref(), check(&[], 2, &[0]).as_deref()),
            (Some(text), Some(text))
        );
        let text = "the pool 'flash' has no OST; 'lctl pool_add w.flash OST...' adds some";
        assert_eq!(check(&[], -1, &[]).as_deref(), Some(text));
    }
}
