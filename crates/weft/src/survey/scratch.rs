//! A directory of a measurement's own, which goes with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::control;
use crate::failure::Failure;

/// More than the data itself: the log and the files that a store makes ahead of need.
const EXTRA_BYTES: u64 = 1 << 30;

/// A directory that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in `dir`, where there has to be room for `bytes`.
    ///
    /// # Errors
    /// There is no such directory, nothing can be made in it, or it has no room.
    pub fn new(dir: &Path, bytes: u64) -> Result<Scratch, Failure> {
        let name = dir.display();
        let failed = |error: io::Error| {
            Failure::new(format!(
                "{name}: {}; name a directory in which files can be made",
                control::describe(&error)
            ))
        };
        let space = rustix::fs::statvfs(dir).map_err(|error| failed(error.into()))?;
        let (free, needed) =
            (space.f_bavail.saturating_mul(space.f_frsize), bytes.saturating_add(EXTRA_BYTES));
        if free < needed {
            return Err(Failure::new(format!(
                "{name} has {} MiB free, and {} are needed; make room, or give a smaller --size",
                free >> 20,
                needed >> 20
            )));
        }
        let path =
            std::path::absolute(dir).map_err(failed)?.join(format!("weft-survey.{}", std::process::id()));
        fs::create_dir(&path).map_err(failed)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its path as text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self) -> Result<&str, Failure> {
        crate::cmd::format::text(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            err!("{} stays behind: {}; remove it", self.0.display(), control::describe(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_what_is_in_it() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let scratch = Scratch::new(temp.path(), 0).expect("there is room");
        fs::write(scratch.path().join("file"), "data").expect("it can be written");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
        let no_room = Scratch::new(temp.path(), u64::MAX).map(drop).map_err(|failure| failure.message);
        assert!(no_room.is_err_and(|why| why.contains("give a smaller --size")));
        let missing = Scratch::new(&path, 0).map(drop).map_err(|failure| failure.message);
        assert!(missing.is_err_and(|why| why.contains("No such file or directory; name a directory")));
    }
}
