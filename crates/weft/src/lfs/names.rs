//! Names of files, from the line or from a list in a file (`--files-from`, `--null`), one after the other as they are asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Longest name in a list, in bytes: the kernel takes no longer one.
const NAME_MAX: usize = 4096;

/// A list of names.
pub struct List {
    /// The file that has it, `-` for standard input.
    pub from: PathBuf,
    /// A NUL stands behind each name, not the end of a line.
    pub has_nuls: bool,
}

/// What gives one name after the other.
pub type Names<'a> = Box<dyn Iterator<Item = Result<PathBuf, Failure>> + Send + 'a>;

/// The names of `list`, or else those of the line.
pub fn names<'a>(paths: &'a [PathBuf], list: Option<&List>) -> Result<Names<'a>, Failure> {
    let Some(List { from, has_nuls }) = list else {
        return Ok(Box::new(paths.iter().cloned().map(Ok)));
    };
    let is_input = from == Path::new("-");
    let whose = if is_input { "on standard input".to_owned() } else { format!("'{}'", from.display()) };
    let reader: Box<dyn BufRead + Send> = if is_input {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(from).map_err(|error| unread(&whose, &error))?;
        Box::new(BufReader::new(file))
    };
    let mut listed = Listed { reader, whose, behind: if *has_nuls { 0 } else { b'\n' } };
    let mut is_over = false;
    Ok(Box::new(std::iter::from_fn(move || {
        // Behind what cannot be read, nothing can.
        let next = if is_over { None } else { listed.next().transpose() };
        is_over = !matches!(next, Some(Ok(_)));
        next
    })))
}

fn unread(whose: &str, error: &io::Error) -> Failure {
    Failure::new(format!(
        "error: migrate: the list {whose} cannot be read: {}",
        crate::control::describe(error)
    ))
}

struct Listed {
    reader: Box<dyn BufRead + Send>,
    whose: String,
    behind: u8,
}

impl Listed {
    /// The next name that is not empty; `None` behind the last.
    fn next(&mut self) -> Result<Option<PathBuf>, Failure> {
        loop {
            let mut name = Vec::new();
            let mut some = (&mut self.reader).take(NAME_MAX as u64 + 1);
            let count =
                some.read_until(self.behind, &mut name).map_err(|error| unread(&self.whose, &error))?;
            if count == 0 {
                return Ok(None);
            }
            if name.last() == Some(&self.behind) {
                name.pop();
            }
            if name.len() > NAME_MAX || name.contains(&0) {
                let how = match self.behind {
                    0 => "leave -0 out if each name has a line of its own",
                    _ => "give -0 if a NUL stands behind each name",
                };
                return Err(Failure::new(format!(
                    "error: migrate: the list {} has a name of more than {NAME_MAX} bytes, or with a NUL, and is not read on: {how}",
                    self.whose
                )));
            }
            if !name.is_empty() {
                return Ok(Some(PathBuf::from(OsString::from_vec(name))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &[u8], has_nuls: bool) -> Vec<Result<String, String>> {
        let dir = tempfile::tempdir().expect("there is room");
        let from = dir.path().join("list");
        std::fs::write(&from, text).expect("there is room");
        let names = names(&[], Some(&List { from, has_nuls })).unwrap_or_else(|_| panic!("it is there"));
        names
            .map(|name| name.map(|name| name.display().to_string()).map_err(|failure| failure.message))
            .collect()
    }

    #[test]
    fn a_list_has_a_name_in_each_line_or_before_each_nul() {
        let ok = |names: &[&str]| names.iter().map(|name| Ok((*name).to_owned())).collect::<Vec<_>>();
        assert_eq!(listed(b"a\n\n b c\nd", false), ok(&["a", " b c", "d"]));
        assert_eq!(listed(b"a\nb\0\0c\0", true), ok(&["a\nb", "c"]));
        assert_eq!(listed(b"", true), ok(&[]));
        assert_eq!(listed(&[b'x'; NAME_MAX], false), ok(&[&"x".repeat(NAME_MAX)]));
    }

    #[test]
    fn the_wrong_separator_is_told_of() {
        let failed = |text: &[u8], has_nuls, how: &str| {
            let names = listed(text, has_nuls);
            assert!(matches!(&names[..], [Err(why)] if why.ends_with(how)), "{names:?}");
        };
        failed(b"a\0b\0", false, "give -0 if a NUL stands behind each name");
        failed(&b"a\n".repeat(NAME_MAX), true, "leave -0 out if each name has a line of its own");
    }

    #[test]
    fn a_name_that_no_file_has_ends_the_list() {
        let mut text = b"a\n".to_vec();
        text.extend(vec![b'x'; 3 * NAME_MAX]);
        text.extend(b"\nb\n");
        let names = listed(&text, false);
        assert_eq!((names.len(), names[0].as_deref()), (2, Ok("a")));
        assert!(names[1].as_ref().is_err_and(|why| why.contains("more than 4096 bytes")), "{names:?}");
        let missing = List { from: "/nonexistent/list".into(), has_nuls: false };
        assert!(
            super::names(&[], Some(&missing))
                .is_err_and(|failure| failure.message.contains("/nonexistent/list"))
        );
    }
}
