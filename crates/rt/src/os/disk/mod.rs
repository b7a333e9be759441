//! Files of this machine.
//!
//! Operations on names are rare and all run on the pool. Large aligned data goes past the page cache; small data
//! goes through it.

mod dir;
mod direct;
mod file;
mod queue;
mod ring;
pub mod tree;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::pool::Pool;
use super::reactor::Reactors;

pub use dir::Dir;
pub use file::File;
pub use queue::{queues, set_scheduler};

/// The machine's disk. Cheap to clone.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

/// What all directories and files of a node share.
struct Shared {
    pool: Pool,
    /// Where reads, writes and syncs go if there are rings.
    reactors: Option<Arc<Reactors>>,
    /// Directories that the node has taken for itself, by device and inode, until it ends.
    locks: Mutex<BTreeMap<(u64, u64), OwnedFd>>,
}

impl Disk {
    pub(super) fn new(reactors: Option<Arc<Reactors>>) -> Disk {
        Disk { shared: Arc::new(Shared { pool: Pool::new(), reactors, locks: Mutex::default() }) }
    }

    /// Opens the directory at `path`.
    pub async fn open_dir(&self, path: &str) -> io::Result<Dir> {
        let path = PathBuf::from(path);
        let shared = self.shared.clone();
        self.shared.pool.run(move || Dir::open_path(shared, std::path::absolute(path)?)).await
    }

    /// Makes the directory at `path` and those above it, durably, and opens it.
    pub async fn create_dir(&self, path: &str) -> io::Result<Dir> {
        let path = PathBuf::from(path);
        let shared = self.shared.clone();
        self.shared
            .pool
            .run(move || {
                let path = std::path::absolute(path)?;
                make_path(&path)?;
                Dir::open_path(shared, path)
            })
            .await
    }
}

/// Makes `path` and what is missing above it; each name is durable before the next is made.
fn make_path(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let Some(above) = path.parent() else { return Ok(()) };
    make_path(above)?;
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::fs::fsync(open_dir_fd(above)?)?;
    Ok(())
}

fn open_dir_fd(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
