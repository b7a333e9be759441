//! What `weft up` has served on this machine, by mount point: a later `weft up MOUNTPOINT` brings it back, with its data and its
//! options, and `weft status` tells of what is stopped.
//!
//! A file of each, which its process has locked as long as it serves.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::keys;

/// Where the files are, beside the data of file systems, whose names are shorter.
const DIRECTORY: &str = "instances";
/// Most files that are looked at.
const INSTANCES_MAX: usize = 1024;
/// Most bytes of a file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// A file system that was served here by one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Where it was mounted.
    pub mountpoint: PathBuf,
    /// Its name.
    pub fsname: String,
    /// Where its data lies.
    pub data: PathBuf,
    /// Where it listened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Its mount options.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
}

/// An instance that is served, until this is dropped.
pub struct Registered {
    _locked: File,
}

/// Below it lie the data of file systems whose users name no directory, and the files of instances.
pub fn base() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/weft"));
    }
    Ok(keys::user_directory("XDG_DATA_HOME", ".local/share")?)
}

fn directory() -> Result<PathBuf, Failure> {
    Ok(base()?.join(DIRECTORY))
}

/// The file of a mount point: its path may be longer than a name.
fn file(directory: &Path, mountpoint: &Path) -> PathBuf {
    /// FNV-1a, 64 bits.
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = mountpoint.as_os_str().as_bytes();
    let hash = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    directory.join(format!("{hash:016x}.json"))
}

/// Remembers what is served from now on, durably.
///
/// # Errors
/// It cannot be written down, and is not there from before. Then nothing may be served: a later `weft up` there would make another, empty
/// file system.
pub fn register(instance: &Instance) -> Result<Registered, Failure> {
    let directory = directory()?;
    register_in(&directory, instance).or_else(|error| {
        let path = file(&directory, &instance.mountpoint);
        if let (Ok(Some(known)), Ok(file)) = (find_in(&directory, &instance.mountpoint), File::open(&path))
            && known == *instance
        {
            tracing::warn!(%error, directory = %directory.display(), "what is served stays written down as it was");
            // The process before may still have it.
            let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
            return Ok(Registered { _locked: file });
        }
        Err(Failure::new(format!(
            "what is served at {} cannot be written down in {}: {}; nothing is started, since \"weft up\" would not find it again: see to it that this user can write there",
            instance.mountpoint.display(),
            directory.display(),
            crate::control::describe(&error)
        )))
    })
}

fn register_in(directory: &Path, instance: &Instance) -> io::Result<Registered> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let own = file(directory, &instance.mountpoint);
    let unfinished = directory.join(format!(".{}.new", std::process::id()));
    let mut file_of_it =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    // The lock comes before the name: a file without one is of something that is stopped.
    flock(&file_of_it, FlockOperation::NonBlockingLockExclusive)?;
    file_of_it.write_all(&serde_json::to_vec_pretty(instance)?)?;
    file_of_it.sync_all()?;
    fs::rename(&unfinished, &own)?;
    for (path, other, is_up) in all_in(directory) {
        let moved = other.data == instance.data && !is_up;
        // What is gone altogether was a trial.
        if path != own && (moved || !(other.data.exists() || other.mountpoint.exists())) {
            fs::remove_file(path)?;
        }
    }
    File::open(directory)?.sync_all()?;
    Ok(Registered { _locked: file_of_it })
}

/// What was served at `mountpoint` last.
pub fn find(mountpoint: &Path) -> Result<Option<Instance>, Failure> {
    find_in(&directory()?, mountpoint)
}

fn find_in(directory: &Path, mountpoint: &Path) -> Result<Option<Instance>, Failure> {
    let path = file(directory, mountpoint);
    let unknown = |why: String| {
        let (at, path) = (mountpoint.display(), path.display());
        Failure::new(format!(
            "{path} says what was served at {at}, and {why}; mend that, or name its data with --data"
        ))
    };
    let (instance, _) = match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(unknown(format!("is damaged: {error}")));
        }
        Err(error) => {
            return Err(unknown(format!("cannot be read: {}", crate::control::describe(&error))));
        }
        Ok(read) => read,
    };
    Ok((instance.mountpoint == mountpoint).then_some(instance))
}

/// What is not served now, and could be: its data is there, and nobody uses it.
pub fn stopped() -> Result<Vec<Instance>, Failure> {
    Ok(stopped_in(&directory()?))
}

fn stopped_in(directory: &Path) -> Vec<Instance> {
    let all = all_in(directory);
    let used = |data: &Path| all.iter().any(|(_, instance, up)| *up && instance.data == data);
    let stopped = all.iter().filter(|(_, instance, up)| !*up && !used(&instance.data));
    stopped.map(|(_, instance, _)| instance.clone()).filter(|instance| instance.data.exists()).collect()
}

/// Every file, what it says, and whether that is served.
fn all_in(directory: &Path) -> Vec<(PathBuf, Instance, bool)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.truncate(INSTANCES_MAX);
    let told = paths.into_iter().filter_map(|path| {
        let (instance, up) = read(&path).ok()?;
        Some((path, instance, up))
    });
    told.collect()
}

fn read(path: &Path) -> io::Result<(Instance, bool)> {
    let file = File::open(path)?;
    let is_up = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, BYTES_MAX), &mut text)?;
    let instance = serde_json::from_slice(&text);
    Ok((instance.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?, is_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_served_is_found_again() {
        let temporary = tempfile::tempdir().expect("a directory");
        let (directory, data) = (temporary.path().join("instances"), temporary.path().join("data"));
        fs::create_dir(&data).expect("data");
        let instance = |mountpoint: &str| Instance {
            mountpoint: temporary.path().join(mountpoint),
            fsname: "x".into(),
            data: data.clone(),
            listen: Some("127.0.0.1:7001@tcp".into()),
            options: "nosuid".into(),
        };
        let first = instance("a");
        let up = register_in(&directory, &first).expect("it can be written");
        assert_eq!(find_in(&directory, &first.mountpoint), Ok(Some(first.clone())));
        assert_eq!(find_in(&directory, &temporary.path().join("b")), Ok(None));
        assert_eq!(stopped_in(&directory), []);
        drop(up);
        assert_eq!(stopped_in(&directory), std::slice::from_ref(&first));
        // The same data at another place.
        let second = instance("b");
        let up = register_in(&directory, &second).expect("it can be written");
        assert_eq!(find_in(&directory, &first.mountpoint), Ok(None));
        drop(up);
        assert_eq!(stopped_in(&directory), std::slice::from_ref(&second));
        // Data that is away may come back; what has no mount point either does not.
        fs::create_dir(&second.mountpoint).expect("a mount point");
        fs::remove_dir(&data).expect("it is empty");
        let third = Instance { data: temporary.path().into(), ..instance("c") };
        drop(register_in(&directory, &third).expect("it can be written"));
        assert_eq!(find_in(&directory, &second.mountpoint), Ok(Some(second.clone())));
        assert_eq!(stopped_in(&directory), std::slice::from_ref(&third));
        fs::remove_dir(&second.mountpoint).expect("it is empty");
        drop(register_in(&directory, &third).expect("it can be written"));
        assert_eq!(find_in(&directory, &second.mountpoint), Ok(None));
    }
    /// A record that could not be read counted as none, and the next start made an empty file system.
    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_none() {
        let temporary = tempfile::tempdir().expect("a directory");
        let mountpoint = temporary.path().join("m");
        assert_eq!(find_in(temporary.path(), &mountpoint), Ok(None));
        fs::write(file(temporary.path(), &mountpoint), "{").expect("a file");
        let said = find_in(temporary.path(), &mountpoint).expect_err("it is damaged").message;
        assert!(said.contains("is damaged") && said.contains("--data"), "{said}");
        fs::remove_file(file(temporary.path(), &mountpoint)).expect("it is there");
        fs::create_dir(file(temporary.path(), &mountpoint)).expect("a directory");
        let said = find_in(temporary.path(), &mountpoint).expect_err("it is no file").message;
        assert!(said.contains("cannot be read"), "{said}");
    }
}
