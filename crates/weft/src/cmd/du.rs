//! `weft du`: how much lies below a directory, summed from what the MDT knows and not from a walk through the mount.
//!
//! The numbers are those of du(1): a file with several names counts once, bytes are those of files and symbolic links, blocks those of
//! directories, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueEnum;
use proto::find::{Expr, path_below};
use proto::wire::messages::{FIND_ENTRY, Found};
use proto::{Attr, Fid, FileKind};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::lfs::find::{Asked, Database, Query, Search, name_of};

/// Bytes of a block, as stat(2) counts them.
const BLOCK_BYTES: u64 = 512;
/// Directories that could not be looked into and are named.
const HIDDEN_MAX: usize = 20;

/// Sum up what lies below directories, as du does: asked of the metadata servers, all of one moment
///
/// Exit status: 1, something could not be looked at.
#[derive(clap::Args)]
pub struct Arguments {
    /// A sum for each owner
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// Print an object of JSON for each directory
    #[arg(long)]
    json: bool,
    /// Directories of a weft file system
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

/// Of what there are sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Of each user
    User,
    /// Of each group
    Group,
    /// Of each project
    Project,
}

/// A sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Sum {
    /// What files and symbolic links hold: `du --apparent-size`.
    bytes: u64,
    /// What is taken on disks, in bytes: `du`.
    disk_bytes: u64,
    /// All but directories.
    files: u64,
    directories: u64,
}

/// Sums of one directory.
#[derive(Default)]
struct Sums {
    by: Option<By>,
    all: Sum,
    /// By the number of the user, group or project.
    each: BTreeMap<u32, Sum>,
    /// Files with several names that were counted. Those with one need not be remembered.
    linked: BTreeSet<Fid>,
}

#[derive(Serialize)]
struct Answer<'a> {
    path: &'a str,
    #[serde(flatten)]
    sum: Sum,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<Share>,
}

/// What belongs to one user, group or project.
#[derive(Serialize)]
struct Share {
    id: u32,
    name: Option<String>,
    #[serde(flatten)]
    sum: Sum,
}

impl Sum {
    fn add(&mut self, attr: &Attr) {
        match attr.kind() {
            FileKind::Dir => self.directories += 1,
            _ => self.files += 1,
        }
        if matches!(attr.kind(), FileKind::File | FileKind::Symlink) {
            self.bytes = self.bytes.saturating_add(attr.size);
        }
        self.disk_bytes = self.disk_bytes.saturating_add(attr.blocks.saturating_mul(BLOCK_BYTES));
    }

    /// The numbers, and behind them of what they are.
    fn line(&self, name: &str) -> String {
        let Sum { bytes, disk_bytes, files, directories } = self;
        format!("{bytes:>18} {disk_bytes:>18} {files:>12} {directories:>11}  {name}")
    }
}

impl Sums {
    fn add(&mut self, found: &Found) {
        let Some(attr) = found.entry.as_ref().map(|entry| &entry.attr) else { return };
        let has_names = attr.kind() != FileKind::Dir && attr.nlink > 1;
        if has_names && !self.linked.insert(found.fid) {
            return;
        }
        self.all.add(attr);
        let id = match self.by {
            Some(By::User) => attr.uid,
            Some(By::Group) => attr.gid,
            Some(By::Project) => attr.project,
            None => return,
        };
        self.each.entry(id).or_default().add(attr);
    }

    fn shares(&self) -> Vec<Share> {
        let database = match self.by {
            Some(By::User) => Some(Database::Users),
            Some(By::Group) => Some(Database::Groups),
            _ => None,
        };
        let name = |id| database.and_then(|database| name_of(database, id));
        self.each.iter().map(|(&id, &sum)| Share { id, name: name(id), sum }).collect()
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if !arguments.json {
        out!("{:>18} {:>18} {:>12} {:>11}", "bytes", "on disk", "files", "directories");
    }
    let mut status = 0;
    for dir in &arguments.dirs {
        let mut sums = Sums { by: arguments.by, ..Sums::default() };
        match sum_up(dir.as_os_str(), &mut sums) {
            Ok(0) => {}
            Ok(_) => status = 1,
            Err(why) => {
                err!("weft du: {}: {why}", dir.display());
                status = 1;
                continue;
            }
        }
        tell(&dir.to_string_lossy(), &sums, arguments)?;
    }
    Ok(status)
}

fn tell(path: &str, sums: &Sums, arguments: &Arguments) -> Result<(), Failure> {
    let each = sums.shares();
    if arguments.json {
        let text = serde_json::to_string(&Answer { path, sum: sums.all, each });
        out!("{}", text.map_err(|error| Failure::new(format!("the sums cannot be written: {error}")))?);
        return Ok(());
    }
    out!("{}", sums.all.line(path));
    for share in each {
        let name = share.name.unwrap_or_else(|| share.id.to_string());
        out!("{}", share.sum.line(&format!("{path} {name}")));
    }
    Ok(())
}

/// Sums up what lies below `start`, and that itself. Gives how many directories could not be looked into.
fn sum_up(start: &OsStr, sums: &mut Sums) -> Result<u64, String> {
    let all = Query { expr: Expr::All(Vec::new()), depth_min: 0, depth_max: u32::MAX };
    let mut search = Search::new(Asked::of(start)?, &all, start.as_bytes(), FIND_ENTRY);
    let mut hidden = 0;
    loop {
        // Sums of two moments would be of neither.
        let page = search.next_page().map_err(|error| format!("{}; try again", error.sentence()))?;
        let Some(page) = page else { return Ok(hidden) };
        page.found.iter().for_each(|found| sums.add(found));
        for path in &page.hidden {
            hidden += 1;
            if hidden <= HIDDEN_MAX as u64 {
                let path = path_below(start.as_bytes(), path);
                err!("weft du: {}: Permission denied", OsStr::from_bytes(&path).display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::Timestamp;
    use proto::wire::messages::{Entry, Granted};

    use super::*;

    fn found(oid: u32, mode: u32, (size, blocks): (u64, u64), (nlink, uid): (u32, u32)) -> Found {
        let fid = Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        let time = Timestamp { secs: 0, nanos: 0 };
        let attr = Attr {
            fid,
            mode,
            nlink,
            uid,
            gid: 7,
            rdev: 0,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            size_known: true,
            version: 1,
            mtime_set: time,
            project: 0,
            inherits: false,
        };
        let entry = Entry { attr, layout: None, xattrs: false, lock: Granted::default() };
        Found { path: Bytes::new(), fid, mode, open: false, entry: Some(Box::new(entry)), target: None }
    }

    #[test]
    fn files_with_several_names_count_once() {
        let mut sums = Sums { by: Some(By::User), ..Sums::default() };
        sums.add(&found(1, 0o040_755, (4096, 8), (3, 0)));
        sums.add(&found(2, 0o100_644, (1000, 2), (1, 5)));
        sums.add(&found(3, 0o100_644, (100, 1), (2, 5)));
        sums.add(&found(3, 0o100_644, (100, 1), (2, 5)));
        sums.add(&found(4, 0o120_777, (10, 0), (1, 0)));
        sums.add(&found(5, 0o010_644, (0, 0), (1, 0)));
        let sum = |bytes, blocks: u64, files, directories| Sum {
            bytes,
            disk_bytes: blocks * 512,
            files,
            directories,
        };
        assert_eq!(sums.all, sum(1110, 11, 4, 1));
        let each: Vec<_> = sums.each.into_iter().collect();
        assert_eq!(each, [(0, sum(10, 8, 2, 1)), (5, sum(1100, 3, 2, 0))]);
    }
}
