//! Directories.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use super::queue::{queues_of_device, set_scheduler};
use super::{File, Shared, open_dir_fd};
use crate::disk::{Space, fnv};
use crate::queue::Queue;

/// A directory that the caller owns. Cheap to clone.
#[derive(Clone)]
pub struct Dir {
    shared: Arc<Shared>,
    inner: Arc<Inner>,
}

struct Inner {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    pub(super) fn open_path(shared: Arc<Shared>, path: PathBuf) -> io::Result<Dir> {
        let fd = open_dir_fd(&path)?;
        Ok(Dir { shared, inner: Arc::new(Inner { fd, path }) })
    }

    /// Makes a file that must not exist and opens it.
    pub async fn create(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::CREATE | OFlags::EXCL).await
    }

    /// Opens an existing file.
    pub async fn open(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::empty()).await
    }

    /// Names of all files and directories, sorted. Names that are not UTF-8 are not ours and are left out.
    pub async fn list(&self) -> io::Result<Vec<String>> {
        self.run(|inner| {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&inner.fd)? {
                match entry?.file_name().to_str() {
                    Ok("." | "..") | Err(_) => {}
                    Ok(name) => names.push(name.to_owned()),
                }
            }
            names.sort_unstable();
            Ok(names)
        })
        .await
    }

    /// Takes a file's name away.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        let name = plain(name)?;
        self.run(move |inner| Ok(rustix::fs::unlinkat(&inner.fd, name, AtFlags::empty())?)).await
    }

    /// Renames a file over another.
    pub async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (plain(from)?, plain(to)?);
        self.run(move |inner| Ok(rustix::fs::renameat(&inner.fd, from, &inner.fd, to)?)).await
    }

    /// Makes the names in the directory durable.
    pub async fn sync(&self) -> io::Result<()> {
        self.run(|inner| Ok(rustix::fs::fsync(&inner.fd)?)).await
    }

    /// Makes a directory inside this one, if it is not there, and opens it.
    pub async fn subdir(&self, name: &str) -> io::Result<Dir> {
        let name = plain(name)?;
        let shared = self.shared.clone();
        self.run(move |inner| {
            match rustix::fs::mkdirat(&inner.fd, &*name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Dir::open_path(shared, inner.path.join(name))
        })
        .await
    }

    /// Takes the directory for this node until it ends. Taking it again is harmless.
    pub async fn lock(&self) -> io::Result<()> {
        let shared = self.shared.clone();
        self.run(move |inner| {
            let stat = rustix::fs::fstat(&inner.fd)?;
            let mut locks = shared.locks.lock();
            if locks.contains_key(&(stat.st_dev, stat.st_ino)) {
                return Ok(());
            }
            // A descriptor of its own, because the lock stays when this directory is closed.
            let fd = open_dir_fd(&inner.path)?;
            rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
            locks.insert((stat.st_dev, stat.st_ino), fd);
            Ok(())
        })
        .await
    }

    /// Gives the directory back before this node ends.
    pub async fn unlock(&self) -> io::Result<()> {
        let shared = self.shared.clone();
        self.run(move |inner| {
            let stat = rustix::fs::fstat(&inner.fd)?;
            // Closing the descriptor ends the lock.
            drop(shared.locks.lock().remove(&(stat.st_dev, stat.st_ino)));
            Ok(())
        })
        .await
    }

    /// Space of the file system that holds the directory.
    pub async fn space(&self) -> io::Result<Space> {
        self.run(|inner| {
            let stat = rustix::fs::fstatvfs(&inner.fd)?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            Ok(Space {
                total: bytes(stat.f_blocks),
                free: bytes(stat.f_bfree),
                available: bytes(stat.f_bavail),
                files_available: if stat.f_files == 0 { u64::MAX } else { stat.f_favail },
                identity: identity(&inner.fd, stat.f_fsid)?,
            })
        })
        .await
    }

    /// The queues of the disks that hold the directory.
    pub async fn queues(&self) -> io::Result<Vec<Queue>> {
        self.run(|inner| Ok(queues_of_device(rustix::fs::fstat(&inner.fd)?.st_dev))).await
    }

    /// Gives a disk of [`Dir::queues`] another scheduler.
    pub async fn set_scheduler(&self, disk: &str, scheduler: &str) -> io::Result<()> {
        let (disk, scheduler) = (disk.to_owned(), scheduler.to_owned());
        self.run(move |_| set_scheduler(&disk, &scheduler)).await
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    async fn open_file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let name = plain(name)?;
        let shared = self.shared.clone();
        self.run(move |inner| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let buffered = rustix::fs::openat(&inner.fd, &*name, flags | how, Mode::RUSR | Mode::WUSR)?;
            // Some file systems refuse; then everything goes through the page cache.
            let direct = rustix::fs::openat(&inner.fd, &*name, flags | OFlags::DIRECT, Mode::empty()).ok();
            Ok(File::new(shared, buffered, direct))
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let inner = self.inner.clone();
        self.shared.pool.run(move || work(&inner)).await
    }
}

/// What only directories of one file system of this machine have in common. Numbers of file systems may be those of devices, which
/// other machines have too: so the machine's present boot goes in.
fn identity(dir: &OwnedFd, fsid: u64) -> io::Result<u64> {
    let own = if fsid == 0 { rustix::fs::fstat(dir)?.st_dev } else { fsid };
    // Where the kernel does not tell it, there is one machine.
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(fnv(boot.into_iter().chain(own.to_le_bytes())).max(1))
}

/// Refuses names that would leave the directory.
fn plain(name: &str) -> io::Result<String> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a file name")));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Node;
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;

    fn check<F: Future<Output = io::Result<()>>>(test: impl FnOnce(Node, tempfile::TempDir) -> F) {
        let node = Node::start(1).expect("a node starts");
        let temp = tempfile::tempdir().expect("a temporary directory");
        node.block_on(test(node.clone(), temp)).expect("no operation fails");
    }

    fn text(temp: &tempfile::TempDir) -> &str {
        temp.path().to_str().expect("temporary directories have plain names")
    }

    #[test]
    fn names_come_and_go() {
        check(async |node, temp| {
            let dir = node.disk().create_dir(&format!("{}/a/b", text(&temp))).await?;
            assert_eq!(dir.path(), temp.path().join("a/b"));
            dir.create("two").await?;
            dir.create("one").await?;
            dir.subdir("sub").await?.create("inner").await?;
            dir.subdir("sub").await?.open("inner").await?;
            assert_eq!(dir.list().await?, ["one", "sub", "two"]);
            assert_eq!(dir.create("one").await.err().map(|e| e.kind()), Some(ErrorKind::AlreadyExists));
            assert_eq!(dir.open("three").await.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
            dir.rename("one", "two").await?;
            dir.remove("two").await?;
            dir.sync().await?;
            assert_eq!(dir.list().await?, ["sub"]);
            assert_eq!(dir.list().await?, ["sub"], "listing twice starts anew");
            Ok(())
        });
    }

    #[test]
    fn modes_are_private() {
        check(async |node, temp| {
            let dir = node.disk().create_dir(&format!("{}/private", text(&temp))).await?;
            dir.create("file").await?;
            let mode = |path: &Path| std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
            assert_eq!(mode(dir.path())?, 0o700);
            assert_eq!(mode(&dir.path().join("file"))?, 0o600);
            Ok(())
        });
    }

    #[test]
    fn names_stay_inside() {
        check(async |node, temp| {
            let dir = node.disk().open_dir(text(&temp)).await?;
            for name in ["", ".", "..", "a/b", "a\0b"] {
                let kind = dir.create(name).await.err().map(|error| error.kind());
                assert_eq!(kind, Some(ErrorKind::InvalidInput), "{name:?}");
                assert!(dir.subdir(name).await.is_err());
            }
            Ok(())
        });
    }

    #[test]
    fn a_directory_has_one_owner() {
        check(async |node, temp| {
            let dir = node.disk().open_dir(text(&temp)).await?;
            dir.lock().await?;
            dir.lock().await?;
            drop(dir);
            let other = Node::start(1)?;
            let theirs = other.disk().open_dir(text(&temp)).await?;
            assert_eq!(theirs.lock().await.err().map(|error| error.kind()), Some(ErrorKind::WouldBlock));
            let ours = node.disk().open_dir(text(&temp)).await?;
            ours.lock().await?;
            ours.unlock().await?;
            theirs.lock().await?;
            assert_eq!(ours.lock().await.err().map(|error| error.kind()), Some(ErrorKind::WouldBlock));
            Ok(())
        });
    }

    #[test]
    fn space_is_known() {
        check(async |node, temp| {
            let space = node.disk().open_dir(text(&temp)).await?.space().await?;
            assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
            assert!(space.files_available > 0);
            let other = node.disk().open_dir(text(&temp)).await?.subdir("sub").await?.space().await?;
            assert!(other.identity == space.identity && space.identity != 0, "they share it");
            let elsewhere = node.disk().open_dir("/proc").await?.space().await?;
            assert_ne!(elsewhere.identity, space.identity);
            Ok(())
        });
    }
}
