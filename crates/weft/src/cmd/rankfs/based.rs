//! An image over another one, which many ranks read: programs and data that all of them need lie in one image, each machine reads it once,
//! and what a rank changes is in its own image.

use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::attached::{self, How};
use super::image;
use crate::control::describe;
use crate::failure::Failure;

/// Where the two are mounted, beside the place that the program sees.
const BASE: &str = ".base";
const OWN: &str = ".own";
/// In the rank's image: what it has changed, and what the kernel needs for it.
const CHANGED: &str = "changed";
const WORK: &str = "work";

/// The mounts below the one that the program sees.
pub struct Based {
    base: PathBuf,
    own: PathBuf,
}

impl Based {
    /// Mounts `base` for reading, the rank's image, and both at `at`, whose top directory belongs to `owner`.
    pub fn begin(
        base: &Path,
        (path, file, how): (&Path, &File, How),
        owner: Option<(u32, u32)>,
        at: &Path,
    ) -> Result<Based, Failure> {
        if at.as_os_str().as_bytes().iter().any(|byte| b",:\\".contains(byte)) {
            return Err(Failure::usage("with --base, --at may not have any of , : \\ in it"));
        }
        let based = Based { base: attached::beside(at, BASE), own: attached::beside(at, OWN) };
        for place in [&based.base, &based.own] {
            fs::create_dir_all(place).map_err(|error| image::failed(place, "cannot be made", &error))?;
        }
        attached::attach_shared(base, &based.base)?;
        attached::attach(path, file, &based.own, how)?;
        let (changed, work) = (based.own.join(CHANGED), based.own.join(WORK));
        for part in [&changed, &work] {
            let made = DirBuilder::new().mode(0o755).recursive(true).create(part);
            made.map_err(|error| image::failed(part, "cannot be made", &error))?;
        }
        let (uid, gid) = owner.map_or((None, None), |(uid, gid)| (Some(uid), Some(gid)));
        std::os::unix::fs::chown(&changed, uid, gid)
            .map_err(|error| image::failed(&changed, "cannot get its owner", &error))?;
        let mut data = OsString::from("lowerdir=");
        data.push(&based.base);
        data.push(",upperdir=");
        data.push(&changed);
        data.push(",workdir=");
        data.push(&work);
        let data = CString::new(data.as_bytes()).map_err(|_| Failure::usage("a path has a zero in it"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        mount("overlay", at, "overlay", flags, data.as_c_str()).map_err(|error| {
            Failure::new(format!(
                "{} cannot be mounted over {}: {}; it needs the kernel's overlay file system",
                path.display(),
                base.display(),
                describe(&error.into())
            ))
        })?;
        Ok(based)
    }

    /// Where the rank's own image is mounted.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Unmounts both.
    pub fn end(self) -> Result<(), Failure> {
        for place in [&self.own, &self.base] {
            unmount(place, UnmountFlags::NOFOLLOW)
                .map_err(|error| image::failed(place, "cannot be unmounted", &error.into()))?;
        }
        Ok(())
    }
}
