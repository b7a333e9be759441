//! `lfs path2fid` and `lfs fid2path`.

use std::path::{Path, PathBuf};

use fuse::control::{self, Paths};
use fuse::session::MountEntry;
use proto::Fid;

use crate::ask;
use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::mountpoint;

/// Print the FIDs of files.
#[derive(clap::Args)]
pub struct PathArguments {
    /// Files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Print the paths of FIDs.
#[derive(clap::Args)]
pub struct FidArguments {
    /// The file system: its name, or a path in it
    #[arg(value_name = "FSNAME|PATH")]
    filesystem: PathBuf,
    /// FIDs, for example `[0x200000400:0x1:0x0]`
    #[arg(required = true, value_name = "FID")]
    fids: Vec<Fid>,
}

/// Runs `lfs path2fid`.
pub fn path2fid(arguments: &PathArguments) -> Outcome {
    let several = arguments.paths.len() > 1;
    for path in &arguments.paths {
        let fid = crate::control::get_text(path, control::FID).map_err(|error| {
            let why = crate::control::describe(&error);
            Failure::new(format!("path2fid: can't get fid for {}: {why}", path.display()))
        })?;
        if several {
            out!("{}: {fid}", path.display());
        } else {
            out!("{fid}");
        }
    }
    Ok(0)
}

/// Runs `lfs fid2path`.
pub fn fid2path(arguments: &FidArguments) -> Outcome {
    let mount = find(&arguments.filesystem)?;
    for fid in &arguments.fids {
        let found: Paths = ask::get(&mount, &format!("{}{fid}", control::PATHS)).map_err(|error| {
            let why = crate::control::describe(&error);
            Failure::new(format!("fid2path: error on FID {fid}: {why}"))
        })?;
        for path in found.paths {
            out!("{}", if path.is_empty() { mount.path.clone() } else { mount.path.join(path) }.display());
        }
    }
    Ok(0)
}

fn find(filesystem: &Path) -> Result<MountEntry, Failure> {
    // A path is no name.
    if filesystem.components().count() == 1 {
        let mut mounts = mountpoint::usable()?.into_iter();
        let by_name = mounts.find(|mount| Some(mount.status.fsname.as_str()) == filesystem.to_str());
        if let Some(mount) = by_name {
            return Ok(mount.entry);
        }
    }
    Ok(super::mounts(Some(filesystem))?.mounts.swap_remove(0))
}
