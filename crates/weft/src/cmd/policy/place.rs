//! The directory that a rule is about, and how one gets to a file below it without following anything that was put there meanwhile.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fuse::control;
use fuse::session::MountEntry;
use proto::Fid;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat, unlinkat};

use crate::control::describe;
use crate::lfs::find::Asked;

/// A directory of a mount.
pub struct Place {
    start: PathBuf,
    root: OwnedFd,
    device: u64,
    asked: Asked,
}

/// A file that was found by its path, and is the one that was meant.
pub struct Named {
    parent: OwnedFd,
    name: Vec<u8>,
    /// It, opened for nothing but to name it.
    file: OwnedFd,
    fid: Fid,
    device: u64,
}

const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Place {
    /// A directory of a weft mount, with its path as the user wrote it: `below` lies in `dir`, and no symbolic link leads to it from there.
    ///
    /// # Errors
    /// A sentence, without the path.
    pub fn open(dir: &Path, below: &Path) -> Result<Place, String> {
        let failed = |error: rustix::io::Errno| describe(&error.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut root = rustix::fs::open(dir, flags, Mode::empty()).map_err(failed)?;
        for part in below {
            root = openat(&root, part, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
        }
        let start = if below.as_os_str().is_empty() { dir.to_path_buf() } else { dir.join(below) };
        let asked = Asked::of(start.as_os_str())?;
        let device = fstat(&root).map_err(failed)?.st_dev;
        let fid = crate::control::get_text(&by_descriptor(&root), control::FID);
        // Somebody may have put something else there.
        if fid.map_err(|error| describe(&error))?.parse() != Ok(asked.fid) {
            return Err("it is being moved; try again".to_owned());
        }
        Ok(Place { start, root, device, asked })
    }

    /// The path of the directory, as the user wrote it.
    pub fn start(&self) -> &[u8] {
        self.start.as_os_str().as_bytes()
    }

    /// The path of what lies below, as `lfs find` prints it.
    pub fn path(&self, below: &[u8]) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&proto::find::path_below(self.start(), below)))
    }

    /// The mount.
    pub fn mount(&self) -> &MountEntry {
        self.asked.mount()
    }

    /// Somebody to ask the mount; each one that asks at the same time has another number.
    pub fn asked(&self, number: usize) -> Asked {
        self.asked.beside(number + 1)
    }

    /// The file with this path, if it is the one with this FID; `None` if another file has the path by now, or none.
    pub fn find(&self, below: &[u8], fid: Fid) -> io::Result<Option<Named>> {
        let found = self.named(below, fid);
        match found {
            Err(error) if is_gone(&error) => Ok(None),
            found => Ok(Some(found?).filter(Named::is_meant)),
        }
    }

    /// Goes down directory by directory: a symbolic link on the way is none.
    fn named(&self, below: &[u8], fid: Fid) -> io::Result<Named> {
        let mut parent = openat(&self.root, ".", NAME_ONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut parts = below.split(|byte| *byte == b'/').peekable();
        while let Some(name) = parts.next() {
            let name = OsStr::from_bytes(name);
            if parts.peek().is_some() {
                parent = openat(&parent, name, NAME_ONLY | OFlags::DIRECTORY, Mode::empty())?;
                continue;
            }
            let file = openat(&parent, name, NAME_ONLY, Mode::empty())?;
            return Ok(Named { parent, name: name.as_bytes().to_vec(), file, fid, device: self.device });
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Named {
    /// The opened file has the FID, which no other file ever had or gets.
    fn is_meant(&self) -> bool {
        fstat(&self.file).is_ok_and(|of| self.is_it(&of))
    }

    fn is_it(&self, of: &rustix::fs::Stat) -> bool {
        of.st_dev == self.device && of.st_ino == self.fid.ino().0
    }

    /// A path that leads to the opened file, whatever becomes of its names.
    pub fn path(&self) -> PathBuf {
        by_descriptor(&self.file)
    }

    /// Removes the name, if it is still the file's; an empty directory, too. Whether it was.
    pub fn remove(&self) -> io::Result<bool> {
        let name = OsStr::from_bytes(&self.name);
        let removed = statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW).and_then(|of| {
            if !self.is_it(&of) {
                return Ok(false);
            }
            let is_directory = rustix::fs::FileType::from_raw_mode(of.st_mode).is_dir();
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            unlinkat(&self.parent, name, flags).map(|()| true)
        });
        match removed.map_err(io::Error::from) {
            Err(error) if is_gone(&error) => Ok(false),
            removed => removed,
        }
    }
}

/// Whether there is no such file any more, or no way to it that leads through directories alone.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ESTALE))
}

fn by_descriptor(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}
