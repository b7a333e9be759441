//! `weft down`: unmounts and waits until everything has stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::{Failure, Outcome};
use crate::instances;
use crate::mountpoint::{self, State};

/// Unmount a file system and stop what served it on this machine; the data stays.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

/// How long the process may take to write out what it has.
const STOP_WAIT: Duration = Duration::from_secs(120);

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = mountpoint::absolute(&arguments.mountpoint)?;
    let name = path.display();
    match mountpoint::state(&path)? {
        State::Free => {
            out!("Nothing is mounted at {name}.");
            Ok(0)
        }
        State::Foreign(entry) => Err(Failure::new(format!(
            "{} ({}) is mounted at {name}, which is not weft; use umount for it",
            entry.source, entry.kind
        ))),
        State::Silent => Err(mountpoint::silent(&path)),
        State::Dead => {
            fuse::session::detach(&path).map_err(|error| {
                Failure::new(format!("the dead mount at {name} cannot be taken away: {error}"))
            })?;
            out!("The process behind {name} was gone; the mount point is free again.");
            Ok(0)
        }
        State::Up(status) => {
            stop_process(&path, status.pid)?;
            match status.data {
                Some(data) => {
                    out!("File system {} is down; its data stays in {data}.{}", status.fsname, again(&path));
                }
                None => out!("File system {} is unmounted from {name}.", status.fsname),
            }
            Ok(0)
        }
    }
}

/// How it is brought back.
fn again(path: &Path) -> String {
    match instances::find(path) {
        Ok(Some(_)) => format!(" \"weft up {}\" brings it back.", path.display()),
        _ => String::new(),
    }
}

/// Unmounts what is mounted at `path`; a process of weft behind it has ended when this returns.
pub fn stop(path: &Path) -> Result<(), Failure> {
    match mountpoint::state(path)? {
        State::Up(status) => stop_process(path, status.pid),
        State::Free | State::Foreign(_) | State::Dead | State::Silent => unmount(path),
    }
}

fn stop_process(path: &Path, pid: u32) -> Result<(), Failure> {
    // Opened before the unmount, so that it is this process that is waited for and no later one.
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).map(watch);
    unmount(path)?;
    match process {
        Some(process) => wait(process?, pid),
        None => Ok(()),
    }
}

fn unmount(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    fuse::session::unmount(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Failure::new(format!(
            "{name} is in use; end what uses it (\"fuser -vm {name}\" lists it) and try again"
        )),
        Some(libc::EPERM) => Failure::new(format!(
            "{name} is not this user's mount; run this as the one who mounted it, or as root"
        )),
        _ => Failure::new(format!("{name} cannot be unmounted: {error}")),
    })
}

fn watch(pid: Pid) -> Result<Option<OwnedFd>, Failure> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => {
            Err(Failure::new(format!("process {} cannot be watched: {error}", pid.as_raw_nonzero())))
        }
    }
}

/// Waits until the process has ended.
pub fn wait(process: Option<OwnedFd>, pid: u32) -> Result<(), Failure> {
    let Some(process) = process else { return Ok(()) };
    let timeout = rustix::event::Timespec { tv_sec: STOP_WAIT.as_secs().cast_signed(), tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => {
                return Err(Failure::new(format!(
                    "process {pid} has not ended within {} seconds; its log says why",
                    STOP_WAIT.as_secs()
                )));
            }
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new(format!("process {pid} cannot be waited for: {error}"))),
        }
    }
}
