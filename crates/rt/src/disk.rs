//! Files, as a store needs them. All paths are relative to a directory that one node owns.

use std::io;

use bytes::Bytes;

use crate::queue::Queue;
use crate::{os, sim};

/// A node's disk.
#[derive(Clone)]
pub enum Disk {
    /// Of this machine.
    Os(os::disk::Disk),
    /// Of a simulated machine.
    Sim(sim::disk::Disk),
}

/// A directory that the caller owns.
#[derive(Clone)]
pub enum Dir {
    /// Of this machine.
    Os(os::disk::Dir),
    /// Of a simulated machine.
    Sim(sim::disk::Dir),
}

/// An open file. Cheap to clone; reads and writes may overlap in time.
#[derive(Clone)]
pub enum File {
    /// Of this machine.
    Os(os::disk::File),
    /// Of a simulated machine.
    Sim(sim::disk::File),
}

/// Space of the file system that holds a directory, in bytes and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that no file uses.
    pub free: u64,
    /// Bytes that this process can still use.
    pub available: u64,
    /// Files that this process can still make; the largest number where the file system sets no limit.
    pub files_available: u64,
    /// Which file system of which machine: directories with the same number share their space. Never 0.
    pub identity: u64,
}

/// FNV-1a: for numbers that only have to differ.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

macro_rules! forward {
    ($self:ident, $type:ident, $inner:ident => $call:expr) => {
        match $self {
            $type::Os($inner) => $call,
            $type::Sim($inner) => $call,
        }
    };
}

impl Disk {
    /// Opens the directory at `path`.
    pub async fn open_dir(&self, path: &str) -> io::Result<Dir> {
        match self {
            Disk::Os(disk) => disk.open_dir(path).await.map(Dir::Os),
            Disk::Sim(disk) => disk.open_dir(path).await.map(Dir::Sim),
        }
    }

    /// Makes the directory at `path` and those above it, durably, and opens it.
    pub async fn create_dir(&self, path: &str) -> io::Result<Dir> {
        match self {
            Disk::Os(disk) => disk.create_dir(path).await.map(Dir::Os),
            Disk::Sim(disk) => disk.create_dir(path).await.map(Dir::Sim),
        }
    }
}

impl Dir {
    /// Makes a file that must not exist (O_EXCL) and opens it for reading and writing.
    pub async fn create(&self, name: &str) -> io::Result<File> {
        match self {
            Dir::Os(dir) => dir.create(name).await.map(File::Os),
            Dir::Sim(dir) => dir.create(name).await.map(File::Sim),
        }
    }

    /// Opens an existing file for reading and writing.
    pub async fn open(&self, name: &str) -> io::Result<File> {
        match self {
            Dir::Os(dir) => dir.open(name).await.map(File::Os),
            Dir::Sim(dir) => dir.open(name).await.map(File::Sim),
        }
    }

    /// Names of all files and directories, sorted.
    pub async fn list(&self) -> io::Result<Vec<String>> {
        forward!(self, Dir, dir => dir.list().await)
    }

    /// Takes a file's name away; lost in a crash unless the directory is synced.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        forward!(self, Dir, dir => dir.remove(name).await)
    }

    /// Renames a file over another; atomic, lost in a crash unless the directory is synced.
    pub async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        forward!(self, Dir, dir => dir.rename(from, to).await)
    }

    /// Makes the names in the directory durable.
    pub async fn sync(&self) -> io::Result<()> {
        forward!(self, Dir, dir => dir.sync().await)
    }

    /// Makes a directory inside this one, if it is not there, and opens it.
    pub async fn subdir(&self, name: &str) -> io::Result<Dir> {
        match self {
            Dir::Os(dir) => dir.subdir(name).await.map(Dir::Os),
            Dir::Sim(dir) => dir.subdir(name).await.map(Dir::Sim),
        }
    }

    /// Takes the directory for this process until the node ends; `WouldBlock` if another process has it.
    pub async fn lock(&self) -> io::Result<()> {
        forward!(self, Dir, dir => dir.lock().await)
    }

    /// Gives the directory back that [`Dir::lock`] took.
    pub async fn unlock(&self) -> io::Result<()> {
        forward!(self, Dir, dir => dir.unlock().await)
    }

    /// Space of the file system that holds the directory.
    pub async fn space(&self) -> io::Result<Space> {
        forward!(self, Dir, dir => dir.space().await)
    }

    /// The queues of the disks that hold the directory, sorted by name; none if it lies on no block device, and in a simulation.
    pub async fn queues(&self) -> io::Result<Vec<Queue>> {
        match self {
            Dir::Os(dir) => dir.queues().await,
            Dir::Sim(_) => Ok(Vec::new()),
        }
    }

    /// Gives a disk of [`Dir::queues`] another I/O scheduler; only root may.
    pub async fn set_scheduler(&self, disk: &str, scheduler: &str) -> io::Result<()> {
        match self {
            Dir::Os(dir) => dir.set_scheduler(disk, scheduler).await,
            Dir::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits for as long as a look-up takes in files of the directory that a component keeps by itself, in a simulation, where it keeps
    /// memory instead; elsewhere there is nothing to wait for. Whether memory is so short now that what was looked up before is to be
    /// forgotten.
    pub async fn look_up_time(&self) -> bool {
        match self {
            Dir::Os(_) => false,
            Dir::Sim(dir) => dir.look_up_time().await,
        }
    }

    /// Whether such a look-up fails.
    ///
    /// # Errors
    /// In a simulation, as often as it is told to.
    pub fn look_up_result(&self) -> io::Result<()> {
        match self {
            Dir::Os(_) => Ok(()),
            Dir::Sim(dir) => dir.look_up_result(),
        }
    }

    /// The directory's path on this machine, for components that open files by themselves; `None` in a simulation.
    pub fn os_path(&self) -> Option<&std::path::Path> {
        match self {
            Dir::Os(dir) => Some(dir.path()),
            Dir::Sim(_) => None,
        }
    }
}

impl File {
    /// Whether `other` is a clone of this one.
    pub fn is_same(&self, other: &File) -> bool {
        match (self, other) {
            (File::Os(file), File::Os(other)) => file.is_same(other),
            (File::Sim(file), File::Sim(other)) => file.is_same(other),
            _ => false,
        }
    }

    /// Reads up to `len` bytes at `offset`; short only at the end of the file. Large aligned reads go past the
    /// page cache.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        forward!(self, File, file => file.read_at(offset, len).await)
    }

    /// The same through the page cache whatever the size, so that the next read finds it there. The machine takes that memory
    /// back when it is short.
    pub async fn read_cached_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match self {
            File::Os(file) => file.read_cached_at(offset, len).await,
            File::Sim(file) => file.read_at(offset, len).await,
        }
    }

    /// Writes all of `slices`, one behind the other, at `offset`. Durable only after [`File::sync`]. Large aligned
    /// writes go past the page cache; small ones are done when the first poll returns.
    pub async fn write_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        forward!(self, File, file => file.write_at(offset, slices).await)
    }

    /// The same through the page cache whatever the size, so that the next read finds it there.
    pub async fn write_cached_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        match self {
            File::Os(file) => file.write_cached_at(offset, slices).await,
            File::Sim(file) => file.write_at(offset, slices).await,
        }
    }

    /// Makes everything written before the call durable (fdatasync). After an error nothing is known of any of it.
    pub async fn sync(&self) -> io::Result<()> {
        forward!(self, File, file => file.sync().await)
    }

    /// Reserves `[offset, offset + len)` so that writes there cannot run out of space; grows the file.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        forward!(self, File, file => file.allocate(offset, len).await)
    }

    /// Gives the space of `[offset, offset + len)` back; it reads as zeros.
    pub async fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        forward!(self, File, file => file.punch(offset, len).await)
    }

    /// Gives all of its space back, on any file system. Its length is not defined afterwards.
    pub async fn empty(&self) -> io::Result<()> {
        match self {
            File::Os(file) => file.empty().await,
            File::Sim(file) => file.punch(0, file.len().await?).await,
        }
    }

    /// Bytes of the disk that the file takes, about: file systems differ in what they count.
    pub async fn space(&self) -> io::Result<u64> {
        forward!(self, File, file => file.space().await)
    }

    /// Bytes of the file.
    pub async fn len(&self) -> io::Result<u64> {
        forward!(self, File, file => file.len().await)
    }
}
