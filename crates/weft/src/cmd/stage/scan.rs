//! What there is to copy: a whole tree, or what a list names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::plan::{self, Entry, Kind};
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
}

impl Found {
    /// Directories before what is in them.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries.into_values().collect()
    }
}

/// Looks through `source`, or only what the lines of `list` name in it.
pub fn scan(source: &Path, list: Option<&[u8]>) -> Result<Found, Failure> {
    let mut found = Found::default();
    let Some(list) = list else {
        look_into(source, Path::new(""), &mut found)?;
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
        let above: Vec<&Path> =
            path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for above in above.into_iter().rev() {
            if look_at(source, above, &mut found)? != Some(Kind::Directory) {
                return Err(Failure::usage(format!(
                    "line {} of the list goes through {}, which is no directory; name the file where it is",
                    number + 1,
                    source.join(above).display()
                )));
            }
        }
        if look_at(source, &path, &mut found)? == Some(Kind::Directory) {
            look_into(source, &path, &mut found)?;
        }
    }
    Ok(found)
}

/// Looks at one name.
fn look_at(source: &Path, path: &Path, found: &mut Found) -> Result<Option<Kind>, Failure> {
    let status = fs::symlink_metadata(source.join(path)).map_err(|error| failed(source, path, &error))?;
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
fn look_into(source: &Path, top: &Path, found: &mut Found) -> Result<(), Failure> {
    let mut to_do = vec![top.to_path_buf()];
    while let Some(directory) = to_do.pop() {
        let names = fs::read_dir(source.join(&directory)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for name in names.map_err(|error| failed(source, &directory, &error))? {
            let path = directory.join(name.file_name());
            if path == Path::new(STATE) || plan::is_temporary(&name.file_name()) {
                continue;
            }
            match look_at(source, &path, found)? {
                Some(Kind::Directory) => to_do.push(path),
                Some(Kind::File | Kind::Link) | None => {}
            }
        }
    }
    Ok(())
}

fn failed(source: &Path, path: &Path, error: &io::Error) -> Failure {
    let path = source.join(path);
    Failure::new(format!("{} cannot be looked at: {}; nothing was copied", path.display(), describe(error)))
}

#[cfg(test)]
mod tests {
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

    fn check(list: Option<&[u8]>, expected: &[&str]) {
        let dir = tree();
        let entries = scan(dir.path(), list).expect("it is there").into_entries();
        let names: Vec<_> = entries.iter().map(|entry| entry.path.to_string_lossy().into_owned()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn trees_and_lists() {
        check(None, &["a", "a/b", "a/b/x", "a/y", "l"]);
        check(Some(b"a/b\n\nl\nl"), &["a", "a/b", "a/b/x", "l"]);
        check(Some(b"./a/y\n"), &["a", "a/y"]);
        check(Some(b""), &[]);
    }

    #[test]
    fn lists_with_other_names_are_refused() {
        let dir = tree();
        for list in ["/etc", "../x", "a/../..", "nothing", ".", "l/x", "a/y/z"] {
            assert!(scan(dir.path(), Some(list.as_bytes())).is_err(), "{list}");
        }
    }
}
