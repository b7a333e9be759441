//! Breaks the connection to the kernel, whatever this process does at that moment.
//!
//! A connection ends by itself when its last descriptor is closed. That is not enough: a process that was killed keeps
//! its descriptors until its last thread is gone, and the thread that has the kernel forget pages waits there, beyond
//! the reach of any signal, for pages whose requests nobody answers any more (`invalidate_inode_pages2_range` below
//! `fuse_reverse_inval_inode`). Then nothing that uses the mount, nor the process, nor its connections to servers would
//! ever end. The kernel's way out is the file `abort` of the connection in fusectl.

// The file of the connection is the kernel's, and the guard is a process.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::proc;

/// Where fusectl is mounted, if it is.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// What the kernel writes before the number of a connection, in what it says of a descriptor (Linux 6.16 and later).
const NUMBER: &str = "fuse_connection:";
/// The hidden sub-command of the program that guards a mount.
pub const GUARD_COMMAND: &str = "guard-mount";

/// The right to break one connection, and no later one that has its number.
pub struct Abort {
    file: File,
}

impl Abort {
    /// Of the connection with this number.
    pub fn of(number: u32) -> io::Result<Abort> {
        Ok(Abort { file: control(number)? })
    }

    /// Breaks it. Everybody who waits for an answer gets an error; nothing happens if it is gone.
    pub fn abort(&self) -> io::Result<()> {
        (&self.file).write_all(b"1")
    }

    /// Starts a process that breaks the connection when the calling thread, the main one, has ended: however that comes.
    pub(crate) fn guard(&self) -> io::Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(GUARD_COMMAND).arg(std::process::id().to_string()).current_dir("/");
        command.stdin(self.file.try_clone()?).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends after this process, so nobody waits for it here.
        command.spawn().map(|_| ())
    }
}

/// What the process does that guards the mount of process `parent`. Its standard input is the connection's file.
pub fn guard(parent: u32) -> io::Result<()> {
    rt::os::process::until_parent_ends(parent)?;
    io::stdin().as_fd().try_clone_to_owned().map(File::from)?.write_all(b"1")
}

/// The number of the connection of `device`, which is mounted at `path`: that of the mount's device.
pub(crate) fn number_of(device: &OwnedFd, path: &Path) -> io::Result<u32> {
    let told = proc::read("self", &format!("fdinfo/{}", device.as_raw_fd()))?;
    let number = told.lines().find_map(|line| line.strip_prefix(NUMBER)?.trim().parse().ok());
    if let Some(number) = number {
        return Ok(number);
    }
    let table = proc::mounts()?;
    number_in(&table, path).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the mount has no number"))
}

/// The number of what was mounted at `path` last.
fn number_in(table: &[u8], path: &Path) -> Option<u32> {
    let mounts = crate::session::parse_mounts(table);
    mounts.iter().rfind(|mount| mount.path == path).map(|mount| mount.device)
}

/// Opens the file of a connection; where fusectl is not mounted, on a mount of its own that nobody sees.
fn control(number: u32) -> io::Result<File> {
    match File::options().write(true).open(format!("{CONNECTIONS}/{number}/abort")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&mount, format!("{number}/abort"), flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_place() {
        let table =
            b"36 27 0:39 / /mnt/a rw - fuse.weft a rw\n37 27 0:40 / /mnt/b\\040c rw - fuse.weft b rw\n\
                      38 36 0:41 / /mnt/a rw - fuse.weft a rw\n39 27 254:1 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(number_in(table, Path::new("/mnt/a")), Some(41), "the last one is on top");
        assert_eq!(number_in(table, Path::new("/mnt/b c")), Some(40));
        assert_eq!(number_in(table, Path::new("/")), Some(254 << 20 | 1));
        assert_eq!(number_in(table, Path::new("/mnt")), None);
    }
}
