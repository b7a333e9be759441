//! Paths: from names to files, as path_resolution(7) has it.

use proto::{Attr, Code, Fid, FileKind};

use super::{Errno, Posix, Result};
use crate::Caller;

/// Symbolic links that one path may lead through, as the kernel has it.
const LINKS_MAX: usize = 40;
/// Longest path, with those of the links that are left to follow, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Who walks, and where from.
#[derive(Clone)]
pub struct Process {
    /// Its rights.
    pub caller: Caller,
    /// Where absolute paths begin.
    pub root: Fid,
    /// Where others do.
    pub working_directory: Fid,
}

impl Process {
    /// One that stands in the root of the file system.
    pub fn new(caller: Caller) -> Process {
        Process { caller, root: Fid::ROOT, working_directory: Fid::ROOT }
    }
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// The directory of the last name.
    pub parent: Fid,
    /// The last name; empty if the path ends at a directory that it does not name (`/`, `.`, `..`).
    pub name: Vec<u8>,
    /// The file, if there is one, with what of its attributes was known on the way.
    pub found: Option<Attr>,
    /// The path demands a directory: it ends with a slash.
    pub is_directory: bool,
}

impl Walked {
    /// The file, or ENOENT.
    pub fn file(self) -> Result<Attr> {
        self.found.ok_or(Errno(libc::ENOENT))
    }
}

impl Posix {
    /// Follows a path. Its last name may mean nothing; whether a symbolic link there is followed `follow` says.
    ///
    /// Fails with ENOENT (a name on the way means nothing, or the path is empty), ENOTDIR, EACCES, ELOOP, ENAMETOOLONG.
    pub async fn walk(&self, process: &Process, path: &[u8], follow: bool) -> Result<Walked> {
        if path.is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        let mut rest = path.to_vec();
        let mut at = process.working_directory;
        let mut links = 0;
        loop {
            if rest.len() >= PATH_BYTES_MAX {
                return Err(Errno(libc::ENAMETOOLONG));
            }
            if rest.first() == Some(&b'/') {
                at = process.root;
            }
            let (name, behind) = split(&rest);
            let is_directory = behind.first() == Some(&b'/');
            let is_last = behind.iter().all(|byte| *byte == b'/');
            let found = match name {
                b"" => {
                    let found = Some(self.client.names().getattr(at).await?.into());
                    return Ok(Walked { parent: at, name: Vec::new(), found, is_directory: true });
                }
                // Nothing is above the root of a process.
                b".." if at == process.root => Some(self.client.names().getattr(at).await?.into()),
                name => self.find(process, at, name).await?,
            };
            let kind = found.as_ref().map(|found| found.kind());
            if kind == Some(FileKind::Symlink) && (!is_last || follow || is_directory) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno(libc::ELOOP));
                }
                let fid = found.map_or(Fid::ZERO, |found| found.fid);
                rest = [&self.client.names().readlink(fid).await?[..], behind].concat();
                continue;
            }
            if is_directory && kind.is_some_and(|kind| kind != FileKind::Dir) {
                return Err(Errno::NOT_DIRECTORY);
            }
            if is_last {
                let name = if name == b"." || name == b".." { Vec::new() } else { name.to_vec() };
                return Ok(Walked { parent: at, name, found, is_directory });
            }
            at = found.ok_or(Errno(libc::ENOENT))?.fid;
            rest = behind.iter().copied().skip_while(|byte| *byte == b'/').collect();
        }
    }

    async fn find(&self, process: &Process, dir: Fid, name: &[u8]) -> Result<Option<Attr>> {
        match self.client.names().lookup(&process.caller, dir, name).await {
            Ok(found) => Ok(Some(found.into())),
            Err(crate::Error::Refused(Code::NotFound)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The first name of a path, without slashes before it, and what stands behind it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let (_, path) = path.split_at(start);
    path.split_at(path.iter().position(|byte| *byte == b'/').unwrap_or(path.len()))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_path_is_cut_at_slashes() {
        assert_eq!(split(b"//a//b"), (&b"a"[..], &b"//b"[..]));
        assert_eq!(split(b"a"), (&b"a"[..], &b""[..]));
        assert_eq!(split(b"//"), (&b""[..], &b""[..]));
    }
}
