//! Which processes of this machine serve targets: a file of each, so that `lctl` finds them.
//!
//! A file is locked by its process as long as that lives. It holds no secret, but says where the key is that whoever
//! gives orders has to be able to read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fuse::control::Kind;
use proto::TargetId;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::keys;

/// Names another directory for the files, for example where several servers on one machine play several machines.
const DIRECTORY_VARIABLE: &str = "WEFT_RUN";
/// Most bytes of a file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// A process that serves targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its file system.
    pub fsname: String,
    /// The process.
    pub pid: u32,
    /// Where it listens.
    pub nids: Vec<String>,
    /// File of the servers' key.
    pub key: PathBuf,
    /// What it serves, or may serve.
    pub targets: Vec<Served>,
    /// Where its MGS is.
    #[serde(default)]
    pub mgs: Vec<String>,
    /// The directories of what it serves.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    /// Directories that hold no target that could be served, a sentence for each.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// One target that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Kind.
    pub kind: Kind,
    /// Index among its kind.
    pub index: u32,
    /// Where else it may be served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

impl Served {
    /// Kind and index.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }
}

impl From<TargetId> for Served {
    fn from(target: TargetId) -> Served {
        Served { kind: target.kind.into(), index: target.index, elsewhere: Vec::new() }
    }
}

/// The file of this process; taken away when dropped.
pub struct Announced {
    path: PathBuf,
    _locked: File,
}

impl Drop for Announced {
    fn drop(&mut self) {
        // What stays behind is known by its lock.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where processes of this user say that they are there.
pub fn directory() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(DIRECTORY_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/weft"));
    }
    Ok(keys::user_directory("XDG_RUNTIME_DIR", ".local/state")?)
}

/// Tells the tools of this machine that this process serves targets. Not being able to is no reason not to serve.
pub fn announce(server: &Server) -> Option<Announced> {
    let announced = directory().map_err(|failure| failure.message).and_then(|directory| {
        announce_in(&directory, server).map_err(|error| format!("{}: {error}", directory.display()))
    });
    match announced {
        Ok(announced) => Some(announced),
        Err(error) => {
            tracing::warn!(error, "lctl on this machine will not find this server");
            None
        }
    }
}

/// Makes the directory, if it is missing.
pub fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)
}

fn announce_in(directory: &Path, server: &Server) -> io::Result<Announced> {
    make(directory)?;
    // Those that were killed leave their files: looking at them takes them away.
    all_in(directory);
    let unfinished = directory.join(format!(".{}.new", server.pid));
    let path = directory.join(format!("serve-{}.json", server.pid));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    // The lock comes before the name: a file without one is a dead process's.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(&serde_json::to_vec(server)?)?;
    fs::rename(&unfinished, &path)?;
    Ok(Announced { path, _locked: file })
}

/// Every process of this machine that serves targets and that this user may know of.
pub fn all() -> Result<Vec<Server>, Failure> {
    Ok(all_in(&directory()?))
}

fn all_in(directory: &Path) -> Vec<Server> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let is_ours = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("serve-") && name.ends_with(".json")
    };
    paths.iter().filter(is_ours).filter_map(|path| read(path)).collect()
}

/// What a file says, if its process lives.
fn read(path: &Path) -> Option<Server> {
    let file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        // Nobody has it: its process is gone.
        let _ = fs::remove_file(path);
        return None;
    }
    serde_json::from_reader(io::Read::take(file, BYTES_MAX)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced_as(path: &Path) -> Server {
        serde_json::from_slice(&fs::read(path).expect("it is there")).expect("it is whole")
    }

    #[test]
    fn a_server_is_known_as_long_as_it_lives() {
        let directory = tempfile::tempdir().expect("a directory");
        let server = Server {
            fsname: "w".into(),
            pid: 7,
            nids: vec!["10.1.1.2@tcp".into()],
            key: "/etc/weft/w.server.key".into(),
            targets: vec![TargetId::ost(3).into()],
            mgs: vec!["10.1.1.1@tcp".into()],
            directories: vec!["/srv/ost3".into()],
            missing: vec!["/srv/ost4 holds no target".into()],
        };
        let announced = announce_in(directory.path(), &server).expect("it can be written");
        assert_eq!(all_in(directory.path()), [server]);
        let path = announced.path.clone();
        // A process that was killed leaves its file, but not its lock.
        let left = directory.path().join("serve-8.json");
        fs::copy(&path, &left).expect("it can be copied");
        assert_eq!(all_in(directory.path()).len(), 1);
        assert!(!left.exists());
        fs::copy(&path, &left).expect("it can be copied");
        let next = Server { pid: 9, ..announced_as(&path) };
        drop(announce_in(directory.path(), &next).expect("it can be written"));
        assert!(!left.exists(), "the next server takes it away");
        drop(announced);
        assert!(!path.exists() && all_in(directory.path()).is_empty());
    }
}
