//! fusermount3, which mounts and unmounts for users.

// It is a process, with a file of its own.
#![allow(clippy::disallowed_methods)]

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::session::{MountError, Options, SUBTYPE};

/// The program.
const PROGRAM: &str = "fusermount3";
/// Where it finds the descriptor of the socket that it sends the device through.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";
/// Where a user permits mounts to be seen by others.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Mounts on `path` and gives the device.
pub fn mount(path: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let other = |error| MountError::Other { path: path.display().to_string(), error };
    let (ours, theirs) = UnixStream::pair().map_err(other)?;
    let mut command = Command::new(PROGRAM);
    command.args(["-o", &option_text(options), "--"]).arg(path);
    // The socket is its standard input: a descriptor that a new program keeps without further ado.
    command.env(SOCKET_VARIABLE, "0").stdin(OwnedFd::from(theirs));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // The command holds the other end of the socket; with it gone, the end of the child is the end of the stream.
    drop(command);
    let mut child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper(error),
        _ => other(error),
    })?;
    let device = receive(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).map_err(other)?;
    }
    let status = child.wait().map_err(other)?;
    match device.map_err(other)? {
        Some(device) if status.success() => Ok(device),
        _ => Err(other(io::Error::other(said.trim().to_owned()))),
    }
}

fn option_text(options: &Options) -> String {
    let flags = [
        (true, if options.read_only { "ro" } else { "rw" }),
        (options.no_exec, "noexec"),
        (options.no_atime, "noatime"),
        (true, "default_permissions"),
        (others_are_permitted(), "allow_other"),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned());
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let named = [format!("fsname={source}"), format!("subtype={SUBTYPE}")];
    named.into_iter().chain(flags).collect::<Vec<_>>().join(",")
}

fn others_are_permitted() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string(FUSE_CONF)
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
}

/// The descriptor that comes through `socket`, if one comes.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// Unmounts.
pub fn unmount(path: &Path, arguments: &[&str]) -> io::Result<()> {
    // It was asked for because the kernel refused it to this user: without it that stays so.
    let no_helper = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::EPERM),
        _ => error,
    };
    let output = Command::new(PROGRAM).args(arguments).arg("--").arg(path).env("LC_ALL", "C").output();
    let output = output.map_err(no_helper)?;
    if output.status.success() { Ok(()) } else { Err(refusal(&String::from_utf8_lossy(&output.stderr))) }
}

/// What the program means by what it says.
fn refusal(said: &str) -> io::Error {
    let said = said.trim();
    if said.contains("busy") {
        io::Error::from_raw_os_error(libc::EBUSY)
    } else if said.is_empty() || said.contains("not found in") || said.contains("not permitted") {
        // Its table has the mounts of the user who asks.
        io::Error::from_raw_os_error(libc::EPERM)
    } else {
        io::Error::other(said.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_reason() {
        let number = |said| refusal(said).raw_os_error();
        assert_eq!(number("fusermount3: failed to unmount /m: Device or resource busy"), Some(libc::EBUSY));
        assert_eq!(number("fusermount3: entry for /m not found in /etc/mtab"), Some(libc::EPERM));
        assert_eq!(number("fusermount3: failed to unmount /m: Operation not permitted"), Some(libc::EPERM));
        assert_eq!(number(""), Some(libc::EPERM));
        assert_eq!(refusal("fusermount3: something\n").to_string(), "fusermount3: something");
    }
}
