//! The trees that are copied from and to, by descriptors of their directories. Others may be able to write in them, and put a symbolic link
//! where a directory was: no step below the top follows one, and what was opened stays what is meant, whatever becomes of its names.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, readlinkat, renameat, symlinkat, unlinkat};

/// Directories of a way that stay open at most, of the deepest ones. Each of 64 streams has two ways, and a process may commonly have 1024
/// files open.
const OPEN_MAX: usize = 4;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BELOW: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// A directory that is open, for nothing but to name what is in it.
#[derive(Debug)]
pub struct Directory(File);

impl Directory {
    /// The one that a user named, by whatever links.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Ok(Directory(File::from(rustix::fs::open(path, DIRECTORY, Mode::empty())?)))
    }

    /// The one in which a path names something, and the name.
    pub fn of(path: &Path) -> io::Result<(Directory, &OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Directory::open(parent.unwrap_or(Path::new(".")))?, name))
    }

    /// A directory in it.
    pub fn down(&self, name: &OsStr) -> io::Result<Directory> {
        Ok(Directory(File::from(openat(&self.0, name, DIRECTORY | BELOW, Mode::empty())?)))
    }

    /// What it is itself.
    pub fn status(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// It, to list it, to change its attributes and to make it durable.
    pub fn readable(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | BELOW;
        Ok(File::from(openat(&self.0, ".", flags, Mode::empty())?))
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(OsStr::from_bytes(name).to_owned()),
            }
        }
        Ok(names)
    }

    /// Whatever has a name, opened for nothing but its attributes: a link is itself.
    pub fn look(&self, name: &OsStr) -> io::Result<File> {
        Ok(File::from(openat(&self.0, name, OFlags::PATH | BELOW, Mode::empty())?))
    }

    /// A file, to be read. A pipe that has its name holds nobody up.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | BELOW;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// A new file, which nobody else may look into.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | BELOW;
        Ok(File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// A file that is made if it is not there, to be written to as `flags` say.
    pub fn open_or_create(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | BELOW | flags;
        Ok(File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Makes a directory in it, which nobody else may look into. Whether there was nothing with its name.
    pub fn make(&self, name: &OsStr) -> io::Result<bool> {
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a symbolic link in it.
    pub fn link(&self, leads_to: &Path, name: &OsStr) -> io::Result<()> {
        Ok(symlinkat(leads_to, &self.0, name)?)
    }

    /// Gives something in it another name, which another thing may have had.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a name that is no directory's; it is fine if there is none.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes its names durable.
    pub fn sync(&self) -> io::Result<()> {
        self.readable()?.sync_all()
    }

    /// Lets its owner read, write and enter it.
    pub fn admit_owner(&self) -> io::Result<()> {
        let mode = self.status()?.permissions().mode() & 0o7777;
        if mode & 0o700 == 0o700 {
            return Ok(());
        }
        // Who may not read it cannot open it for that, and the kernel takes modes for what is open in another way only by this path.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o700))
    }
}

/// Where a symbolic link leads to that was looked at.
pub fn leads_to(link: &File) -> io::Result<PathBuf> {
    let to = readlinkat(link, "", Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(to.to_bytes())))
}

/// A tree that is copied from or to.
#[derive(Debug)]
pub struct Tree {
    /// Where it was found, for people and for records.
    pub path: PathBuf,
    /// Its top.
    pub top: Directory,
}

impl Tree {
    /// The tree with this path, which has no link in it.
    pub fn open(path: PathBuf) -> io::Result<Tree> {
        let mut top = Directory::open(Path::new("/"))?;
        for name in path.iter().skip(1) {
            top = top.down(name)?;
        }
        Ok(Tree { path, top })
    }

    /// Somebody to go through it.
    pub fn way(&self) -> Way<'_> {
        Way { tree: self, path: PathBuf::new(), open: VecDeque::new() }
    }
}

/// Goes from directory to directory of a tree. However deep it is, a few directories are open at a time; one near the last one is a few
/// steps away.
#[derive(Debug)]
pub struct Way<'t> {
    tree: &'t Tree,
    /// Where it leads now.
    path: PathBuf,
    /// Directories on it with their depths, of which the top has none.
    open: VecDeque<(usize, Directory)>,
}

impl Way<'_> {
    /// The directory with this path below the top.
    pub fn to(&mut self, path: &Path) -> io::Result<&Directory> {
        let common = self.path.iter().zip(path).take_while(|(ours, other)| ours == other).count();
        while self.open.back().is_some_and(|(depth, _)| *depth > common) {
            self.open.pop_back();
        }
        let start = self.open.back().map_or(0, |(depth, _)| *depth);
        // If a step fails, what is open lies on this path all the same.
        self.path = path.to_path_buf();
        for (above, name) in path.iter().enumerate().skip(start) {
            let next = self.end().down(name)?;
            if self.open.len() == OPEN_MAX {
                self.open.pop_front();
            }
            self.open.push_back((above + 1, next));
        }
        Ok(self.end())
    }

    fn end(&self) -> &Directory {
        self.open.back().map_or(&self.tree.top, |(_, directory)| directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(dir: &Path) -> Tree {
        Tree::open(dir.canonicalize().expect("it is there")).expect("a directory")
    }

    fn check(way: &mut Way<'_>, path: &str) {
        let content = way.to(Path::new(path)).and_then(|directory| directory.read("name".as_ref()));
        let content = content.and_then(io::read_to_string).expect("there");
        assert_eq!(content, path);
        assert!(way.open.len() <= OPEN_MAX);
    }

    #[test]
    fn ways_lead_to_their_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = (0..9).map(|depth| depth.to_string()).collect::<Vec<_>>().join("/");
        let paths = ["", "a", "a/b", "a/c/d", &deep, "0/1/2/3/4/5/6/7", "0/1/2", "0/1/2/x", "0/1", "a"];
        for path in paths {
            fs::create_dir_all(dir.path().join(path)).expect("directories");
            fs::write(dir.path().join(path).join("name"), path).expect("a file");
        }
        let tree = tree(dir.path());
        let mut way = tree.way();
        for path in paths.iter().chain(paths.iter().rev()) {
            check(&mut way, path);
            assert!(way.to(&Path::new(path).join("nothing/at/all")).is_err());
        }
    }

    #[test]
    fn what_is_put_in_place_of_a_directory_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("d/e")).expect("directories");
        fs::create_dir_all(dir.path().join("outside/e")).expect("directories");
        let tree = tree(&top);
        let mut way = tree.way();
        way.to(Path::new("d")).expect("a directory");
        fs::rename(top.join("d"), top.join("was")).expect("another name");
        std::os::unix::fs::symlink("../outside", top.join("d")).expect("a link");
        // What is open is what it was.
        way.to(Path::new("d/e")).and_then(|e| e.create("file".as_ref())).expect("a file");
        assert!(top.join("was/e/file").exists());
        for path in ["d", "d/e"] {
            let mut way = tree.way();
            assert!(way.to(Path::new(path)).is_err(), "{path}");
        }
        assert!(tree.top.read("d".as_ref()).is_err());
        assert!(tree.top.look("d".as_ref()).and_then(|link| link.metadata()).expect("it").is_symlink());
    }

    #[test]
    fn modes_of_directories_that_may_not_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("d")).expect("a directory");
        fs::set_permissions(dir.path().join("d"), fs::Permissions::from_mode(0o015)).expect("a mode");
        let directory = tree(dir.path()).top.down("d".as_ref()).expect("a directory");
        directory.admit_owner().expect("it is ours");
        assert_eq!(directory.status().expect("it").permissions().mode() & 0o7777, 0o715);
    }
}
