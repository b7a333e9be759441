//! Trees of files that a component makes by itself: a copy as of one moment, and taking one away.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pause before and after the copying. A change within it shows in a file's time, which has the grain of the kernel's tick.
const STILL: Duration = Duration::from_millis(20);
/// Tries before a tree that goes on changing is given up.
const TRIES_MAX: u32 = 50;

/// What shows that a file was changed.
#[derive(PartialEq, Eq)]
struct Print {
    inode: u64,
    len: u64,
    mtime: (i64, i64),
}

/// Copies the tree `from` to `to`, durably, as it is at one moment: as long as somebody changes it, from the beginning.
/// What is in directories called one of `linked` is never changed, only made and removed, and shared with the original
/// instead of copied. Blocks the thread.
pub fn copy_tree(from: &Path, to: &Path, linked: &[&str]) -> io::Result<()> {
    for _ in 0..TRIES_MAX {
        let before = prints(from)?;
        std::thread::sleep(STILL);
        remove_tree(to)?;
        match copy(from, to, linked) {
            Ok(()) => {}
            // A file went while it was looked at.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        if prints(from)? == before {
            return Ok(());
        }
    }
    let text = format!("{} does not stop changing", from.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

/// What the file `path` holds. Blocks the thread.
///
/// # Errors
/// `FileTooLarge` if it has more than `bytes_max` bytes.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::take(fs::File::open(path)?, bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// The paths in the directory `path`, sorted. Blocks the thread.
pub fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Takes away the tree `path`, if it is there. Blocks the thread.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn prints(tree: &Path) -> io::Result<BTreeMap<PathBuf, Print>> {
    let (mut prints, mut dirs) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => dirs.push(path),
                Ok(meta) => {
                    let mtime = (meta.mtime(), meta.mtime_nsec());
                    prints.insert(path, Print { inode: meta.ino(), len: meta.len(), mtime });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(prints)
}

fn copy(from: &Path, to: &Path, linked: &[&str]) -> io::Result<()> {
    fs::create_dir(to)?;
    let is_linked = from.file_name().and_then(OsStr::to_str).is_some_and(|name| linked.contains(&name));
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &copied, linked)?;
        } else if is_linked {
            fs::hard_link(&path, &copied)?;
        } else {
            fs::copy(&path, &copied)?;
            File::open(&copied)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_its_own_but_for_what_is_never_changed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        fs::create_dir_all(from.join("1/tables")).expect("it can be made");
        fs::write(from.join("1/tables/7"), "table").expect("it can be written");
        fs::write(from.join("1/journal"), "journal").expect("it can be written");
        fs::create_dir_all(to.join("left over")).expect("it can be made");
        copy_tree(&from, &to, &["tables"]).expect("nobody changes it");
        assert!(!to.join("left over").exists());
        let inode = |path: PathBuf| fs::metadata(path).expect("it is there").ino();
        assert_eq!(inode(from.join("1/tables/7")), inode(to.join("1/tables/7")));
        assert_ne!(inode(from.join("1/journal")), inode(to.join("1/journal")));
        remove_tree(&from).expect("it can be removed");
        remove_tree(&from).expect("it is not there");
        assert_eq!(fs::read(to.join("1/tables/7")).expect("it stays"), b"table");
        assert_eq!(fs::read(to.join("1/journal")).expect("it stays"), b"journal");
    }

    #[test]
    fn a_change_meanwhile_is_seen() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join("file"), "1").expect("it can be written");
        let before = prints(temp.path()).expect("it can be read");
        assert!(before == prints(temp.path()).expect("it can be read"));
        std::thread::sleep(STILL);
        fs::write(temp.path().join("file"), "2").expect("it can be written");
        assert!(before != prints(temp.path()).expect("it can be read"));
    }
}
