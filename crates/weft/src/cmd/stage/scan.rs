//! What there is to copy: a whole tree, or what a list names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::plan::{self, Entry, Kind};
use super::tree::{Directory, Tree, Way};
use crate::control::describe;
use crate::failure::Failure;

/// The directory of a stager's state, if nobody names another one. It is copied neither in nor out.
pub const STATE: &str = ".weft-stage";

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    entries: BTreeMap<PathBuf, Entry>,
    /// Names of what is neither a file nor a directory nor a symbolic link.
    pub left_out: Vec<PathBuf>,
    /// What could not be looked at, and why, in sentences. The rest is copied all the same.
    pub unseen: Vec<String>,
}

impl Found {
    /// Something is not looked at. What was removed since its directory was read is not missing.
    fn pass_over(&mut self, source: &Path, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.unseen.push(format!("{}: {}", source.join(path).display(), describe(error)));
        }
    }

    /// Directories before what is in them.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries.into_values().collect()
    }
}

/// Looks through `source`, or only what the lines of `list` name in it.
pub fn scan(source: &Tree, list: Option<&[u8]>) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut way = source.way();
    let Some(list) = list else {
        look_into(source, &mut way, Path::new(""), &mut found)?;
        return Ok(found);
    };
    for (number, line) in list.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        // As find(1) writes names: "./a".
        let parts = Path::new(OsStr::from_bytes(line)).components();
        let path: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        if !plan::is_below(&path) {
            return Err(Failure::usage(format!(
                "line {} of the list is no name below the source; write for example data/input.dat",
                number + 1
            )));
        }
        let mut look = |path: &Path| {
            let directory = way.to(path.parent().unwrap_or(Path::new("")));
            let kind = directory.and_then(|directory| look_at(directory, path, &mut found));
            kind.map_err(|error| failed(source, path, &error))
        };
        let above: Vec<&Path> =
            path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for above in above.into_iter().rev() {
            if look(above)? != Some(Kind::Directory) {
                return Err(Failure::usage(format!(
                    "line {} of the list goes through {}, which is no directory; name the file where it is",
                    number + 1,
                    source.path.join(above).display()
                )));
            }
        }
        if look(&path)? == Some(Kind::Directory) {
            look_into(source, &mut way, &path, &mut found)?;
        }
    }
    Ok(found)
}

/// Looks at what has the last name of `path` in its directory.
fn look_at(directory: &Directory, path: &Path, found: &mut Found) -> io::Result<Option<Kind>> {
    let status = directory.look(path.file_name().unwrap_or_default())?.metadata()?;
    let kind = match status.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Link,
        _ => {
            found.left_out.push(path.to_path_buf());
            return Ok(None);
        }
    };
    let size = if kind == Kind::File { status.len() } else { 0 };
    found.entries.insert(path.to_path_buf(), Entry { kind, size, path: path.to_path_buf() });
    Ok(Some(kind))
}

/// Looks at all that is in a directory.
fn look_into(source: &Tree, way: &mut Way<'_>, top: &Path, found: &mut Found) -> Result<(), Failure> {
    let mut to_do = vec![top.to_path_buf()];
    while let Some(path) = to_do.pop() {
        let listed = way.to(&path).and_then(|directory| Ok((directory, directory.names()?)));
        let (directory, names) = match listed {
            Ok(listed) => listed,
            Err(error) if path.as_os_str().is_empty() => return Err(failed(source, &path, &error)),
            Err(error) => {
                found.pass_over(&source.path, &path, &error);
                continue;
            }
        };
        for name in names {
            let path = path.join(&name);
            if path == Path::new(STATE) {
                continue;
            }
            if plan::is_temporary(&name) {
                // A stager's own; but somebody may have named a file so.
                found.left_out.push(path);
                continue;
            }
            match look_at(directory, &path, found) {
                Ok(Some(Kind::Directory)) => to_do.push(path),
                Ok(Some(Kind::File | Kind::Link) | None) => {}
                Err(error) => found.pass_over(&source.path, &path, &error),
            }
        }
    }
    Ok(())
}

fn failed(source: &Tree, path: &Path, error: &io::Error) -> Failure {
    let path = source.path.join(path);
    Failure::new(format!("{} cannot be looked at: {}; nothing was copied", path.display(), describe(error)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path();
        fs::create_dir_all(top.join("a/b")).expect("directories");
        fs::create_dir(top.join(STATE)).expect("a directory");
        fs::write(top.join("a/b/x"), b"12345").expect("a file");
        fs::write(top.join("a/y"), b"1").expect("a file");
        fs::write(top.join("a/.weft-stage-0123abcd-7-89abcdef"), b"1").expect("a file");
        std::os::unix::fs::symlink("nowhere", top.join("l")).expect("a link");
        dir
    }

    fn scan_at(dir: &Path, list: Option<&[u8]>) -> Result<Found, Failure> {
        let source = Tree::open(dir.canonicalize().expect("it is there")).expect("a directory");
        scan(&source, list)
    }

    fn check(list: Option<&[u8]>, expected: &[&str]) {
        let dir = tree();
        let entries = scan_at(dir.path(), list).expect("it is there").into_entries();
        let names: Vec<_> = entries.iter().map(|entry| entry.path.to_string_lossy().into_owned()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn trees_and_lists() {
        check(None, &["a", "a/b", "a/b/x", "a/y", "l"]);
        check(Some(b"a/b\n\nl\nl"), &["a", "a/b", "a/b/x", "l"]);
        check(Some(b"./a/y\n"), &["a", "a/y"]);
        check(Some(b""), &[]);
        let found = scan_at(tree().path(), None).expect("it is there");
        assert_eq!(found.left_out, [Path::new("a/.weft-stage-0123abcd-7-89abcdef")]);
    }

    #[test]
    fn lists_with_other_names_are_refused() {
        let dir = tree();
        for list in ["/etc", "../x", "a/../..", "nothing", ".", "l/x", "a/y/z"] {
            assert!(scan_at(dir.path(), Some(list.as_bytes())).is_err(), "{list}");
        }
    }
}
