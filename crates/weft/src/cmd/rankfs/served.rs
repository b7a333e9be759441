//! The form of `weft rankfs run` for users who may not mount, and have no loop devices: a program of e2fsprogs, fuse2fs, serves the image in
//! a user name space, over a file that keeps its blocks in memory ([`super::paged`]). The image is the same one: the kernel mounts it, and
//! any e2fsck checks it.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rt::os::loopback;

use super::image;
use super::paged::Paged;
use crate::control::describe;
use crate::failure::Failure;

const PROGRAM: &str = "fuse2fs";
/// It reads the whole of the image's tables first.
const START_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// An image that a program serves.
pub struct Served {
    server: Child,
    paged: Paged,
}

impl Served {
    /// Has `file`, the image at `path`, served at `at`, for this process and what it starts.
    pub fn begin(path: &Path, file: &File, at: &Path) -> Result<Served, Failure> {
        if at.as_os_str().as_bytes().contains(&b',') {
            return Err(Failure::usage(format!(
                "{PROGRAM} takes no place with a comma; name another with --at"
            )));
        }
        loopback::private_mounts_of_user().map_err(|error| {
            Failure::new(format!(
                "no user name space can be had: {}; root can allow it (user.max_user_namespaces), or run this",
                describe(&error)
            ))
        })?;
        // At the place itself, below what the program will see there: another directory would have to be made, and to remove it afterwards
        // takes away what other runs of this user's have mounted on it.
        let paged = Paged::begin(file, at).map_err(|error| {
            Failure::new(format!(
                "{} cannot be served: {}; may this user open /dev/fuse?",
                path.display(),
                describe(&error)
            ))
        })?;
        let mut command = Command::new(PROGRAM);
        command.arg("-f").arg(paged.path()).arg(at).args(["-o", "nosuid,nodev"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        loopback::kill_with_parent(&mut command);
        loopback::with_mount_rights(&mut command);
        let before = device(at).map_err(|error| image::failed(at, "cannot be looked at", &error))?;
        let server = command.spawn();
        let server = server.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(format!(
                "{PROGRAM} is not installed; install the package {PROGRAM}, or run this as root"
            )),
            _ => Failure::new(format!("{PROGRAM} cannot be started: {}", describe(&error))),
        })?;
        let mut served = Served { server, paged };
        match served.until_mounted(at, before) {
            Ok(()) => Ok(served),
            Err(failure) => {
                // It may have ended already.
                let _ = served.server.kill();
                let _ = served.server.wait();
                Err(failure)
            }
        }
    }

    fn until_mounted(&mut self, at: &Path, before: u64) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if device(at).is_ok_and(|device| device != before) {
                return Ok(());
            }
            if self.server.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(Failure::new(format!("{PROGRAM} cannot serve the image")));
            }
            std::thread::sleep(PAUSE);
        }
        Err(Failure::new(format!("{PROGRAM} does not serve the image within {} s", START_MAX.as_secs())))
    }

    /// The number of the process that serves it.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The image was unmounted: waits until all of it is in its file.
    pub fn end(mut self, path: &Path) -> Result<(), Failure> {
        let status = self.server.wait();
        let stored = self.paged.end();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                return Err(Failure::new(format!(
                    "{}: {PROGRAM} ended with {status}; not all may be in it",
                    path.display()
                )));
            }
            Err(error) => {
                return Err(Failure::new(format!("the end of {PROGRAM} is unknown: {}", describe(&error))));
            }
        }
        stored.map_err(|error| image::has_lost(path, &error))
    }
}

fn device(at: &Path) -> io::Result<u64> {
    fs::metadata(at).map(|status| status.dev())
}
