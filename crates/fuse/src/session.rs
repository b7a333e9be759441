//! Mounts, serves until the file system is unmounted, and unmounts.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::Rt;
use rt::sync::oneshot;
use rustix::io::Errno as OsErrno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::abort::{self, Abort};
use crate::dispatch::{Dispatcher, Teller};
use crate::engine::dev::DEVICE;
use crate::engine::{self, Choice, Ends, Wanted, dev};
use crate::helper;
use crate::kernel::init::Wish;
use crate::known::Known;
use crate::notify::Notifier;
use crate::ops::{Offers, Ops};
use crate::{proc, readahead};
use client::posix::AccessTimes;

pub use crate::dispatch::Locking;

/// What `mount` and /proc/mounts show behind `fuse.`.
pub const SUBTYPE: &str = "weft";

/// How to mount.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What `mount` shows as the source: `10.1.1.2@tcp:/weft`.
    pub source: String,
    /// No changes.
    pub read_only: bool,
    /// Set-user-id bits have no effect.
    pub no_suid: bool,
    /// Device files have no effect.
    pub no_dev: bool,
    /// Nothing can be executed.
    pub no_exec: bool,
    /// Access times are not kept.
    pub no_atime: bool,
    /// Those of directories are not kept.
    pub no_dir_atime: bool,
    /// How requests come from the kernel.
    pub engine: Choice,
    /// Where file locks are.
    pub locking: Locking,
}

/// Why nothing was mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error(
        "there is no {DEVICE}: load the kernel module with \"modprobe fuse\", and in a container pass the device in"
    )]
    NoDevice,
    /// FUSE is not permitted here.
    #[error(
        "{DEVICE} cannot be opened ({0}): have root run \"chmod 666 {DEVICE}\", and in a container permit the device"
    )]
    DeviceForbidden(io::Error),
    /// There is no directory to mount on.
    #[error("{path} is not a directory that can be mounted on: {error}")]
    MountPoint {
        /// Where.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A user without fusermount3.
    #[error("mounting as a user needs fusermount3: install the package fuse3, or mount as root ({0})")]
    NoHelper(io::Error),
    /// Anything else.
    #[error("mounting on {path} failed: {error}")]
    Other {
        /// Where.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// A mounted file system.
pub struct Mounted {
    path: PathBuf,
    ended: oneshot::Receiver<io::Result<()>>,
    abort: Option<Arc<Abort>>,
    dispatcher: Arc<Dispatcher>,
    device: Option<u32>,
}

impl Mounted {
    /// The number of the mount's device, if that could be found out.
    pub fn device(&self) -> Option<u32> {
        self.device
    }

    /// Waits until the file system was unmounted, by whomever.
    pub async fn ended(&mut self) -> io::Result<()> {
        (&mut self.ended).await.unwrap_or(Ok(()))
    }

    /// Whether somebody waited for an answer when the connection ended: then it was ended by force.
    pub fn was_forced(&self) -> bool {
        self.dispatcher.was_busy()
    }

    /// Breaks the connection: everybody who still uses the mount gets an error.
    pub fn abort(&self) {
        if let Some(abort) = &self.abort
            && let Err(error) = abort.abort()
        {
            tracing::warn!(%error, "the connection to the kernel is not broken");
        }
    }

    /// Starts a process that breaks the connection when the calling thread, the main one, has ended. This program has to
    /// call [`crate::abort::guard`] for [`crate::abort::GUARD_COMMAND`].
    pub fn guard(&self) {
        let Some(abort) = &self.abort else { return };
        if let Err(error) = abort.guard() {
            tracing::warn!(%error, "nobody breaks the connection to the kernel if this process is killed");
        }
    }

    /// Takes the mount away from the tree of directories. Files that are open stay usable as long as the process
    /// serves them.
    pub fn unmount(&self) -> io::Result<()> {
        match unmount(&self.path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => detach(&self.path),
            other => other,
        }
    }
}

/// Mounts `ops` on `path` and serves it on threads of its own.
pub fn mount(rt: Rt, ops: Arc<Ops>, path: &Path, options: &Options) -> Result<Mounted, MountError> {
    let device = dev::open().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            MountError::NoDevice
        } else {
            MountError::DeviceForbidden(error)
        }
    })?;
    let device = match mount_directly(&device, path, options)? {
        true => device,
        false => helper::mount(path, options)?,
    };
    let number = abort::number_of(&device, path);
    let number = number.inspect_err(|error| tracing::debug!(%error, "the mount has no number")).ok();
    let abort = number.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT));
    let abort = abort.and_then(Abort::of).map(Arc::new);
    let abort =
        abort.inspect_err(|error| tracing::debug!(%error, "the connection cannot be broken from here")).ok();
    let known = Known::within(rt.memory_bytes());
    let teller = Teller::new(rt.clone(), known.clone());
    let locking = options.locking;
    let dispatcher = Arc::new(Dispatcher::new(rt.clone(), ops.clone(), teller, locking));
    let (sender, ended) = oneshot::channel();
    let on_end = move |result| {
        // Nobody waits any more if the process is about to end.
        let _ = sender.send(result);
    };
    let (broken, breaks) = (path.to_owned(), abort.clone());
    let break_off = move || {
        let _ = breaks.as_ref().map(|abort| abort.abort());
        if let Err(error) = rustix::mount::unmount(&broken, UnmountFlags::FORCE | UnmountFlags::DETACH) {
            tracing::warn!(%error, path = %broken.display(), "the broken mount stays behind");
        }
    };
    let ends = Ends { abort: Box::new(break_off), on_end: Box::new(on_end) };
    let Offers { locks, acl } = ops.offers();
    let locks = locks && locking != Locking::Local;
    let wish = Wish { locks, acl, readdirplus: true, ..Wish::default() };
    let device = Arc::new(device);
    let wanted = Wanted { choice: options.engine, wish, reactors: rt.reactors() };
    let started = Notifier::start(rt.clone(), device.clone(), known).and_then(|notifier| {
        // Before the kernel can have anything that it may have to forget.
        ops.set_copies(Arc::new(notifier));
        engine::start(&device, wanted, dispatcher.clone(), ends)
    });
    match started {
        Ok((engine, agreed)) => {
            let expires = agreed.expires_names();
            if !expires {
                tracing::info!(
                    "this kernel cannot be told to forget a name: it asks each time (Linux 6.2 and later keep them)"
                );
            }
            ops.served_by(engine);
            dispatcher.may_keep(expires);
            readahead::set(number);
            Ok(Mounted { path: path.to_owned(), ended, abort, dispatcher, device: number })
        }
        Err(error) => {
            // The kernel and this process do not understand each other: the mount would hang.
            if let Err(error) = detach(path) {
                tracing::warn!(%error, path = %path.display(), "the mount stays behind");
            }
            Err(MountError::Other { path: path.display().to_string(), error })
        }
    }
}

/// Memory that this process needs for I/O must not wait for I/O that this process has to do. For the calling thread, and those that it
/// starts from now on: before the runtime is started.
pub fn flush_io_first() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "this process is not treated as one that flushes I/O");
    }
}

/// mount(2); `false` if that is not permitted.
fn mount_directly(device: &OwnedFd, path: &Path, options: &Options) -> Result<bool, MountError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
        (options.no_atime, MountFlags::NOATIME),
        (options.no_dir_atime, MountFlags::NODIRATIME),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).fold(MountFlags::empty(), |all, (_, flag)| all | *flag);
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let data = CString::new(data).expect("the text has no NUL");
    let kind = format!("fuse.{SUBTYPE}");
    match rustix::mount::mount(options.source.as_str(), path, kind, flags, Some(data.as_c_str())) {
        Ok(()) => Ok(true),
        // Root without the right to mount, as in a container.
        Err(OsErrno::PERM) => Ok(false),
        Err(error @ (OsErrno::NOENT | OsErrno::NOTDIR | OsErrno::NOTCONN)) => {
            Err(MountError::MountPoint { path: path.display().to_string(), error: error.into() })
        }
        Err(error) => Err(MountError::Other { path: path.display().to_string(), error: error.into() }),
    }
}

/// umount(2), or fusermount3 for a user. Refused with EBUSY while something is in use.
pub fn unmount(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::empty()) {
        Err(OsErrno::PERM) => helper::unmount(path, &["-u"]),
        result => result.map_err(io::Error::from),
    }
}

/// Takes the mount away at once, even if it is in use or nobody serves it any more.
pub fn detach(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(OsErrno::PERM) => helper::unmount(path, &["-u", "-z"]),
        result => result.map_err(io::Error::from),
    }
}

/// A line of the kernel's table of mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountEntry {
    /// Source.
    pub source: String,
    /// Where.
    pub path: PathBuf,
    /// Type, `fuse.weft` for ours.
    pub kind: String,
    /// Options of this mount and of the file system, with commas between.
    pub options: String,
    /// Number of the device.
    pub device: u32,
}

impl Options {
    /// Whose access times are not kept.
    pub fn access_times(&self) -> AccessTimes {
        AccessTimes { none: self.no_atime, no_directories: self.no_dir_atime }
    }
}

impl MountEntry {
    /// Whether it is a mount of weft.
    pub fn is_weft(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(SUBTYPE)
    }
}

/// Every mount that this process sees, in the order of mounting. Looks at no mount itself.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse_mounts(&proc::mounts()?))
}

/// The same of another process, by its number.
pub fn mounts_of(process: u32) -> io::Result<Vec<MountEntry>> {
    Ok(parse_mounts(&proc::bytes(process, "mountinfo")?))
}

/// Lines of /proc/PID/mountinfo, as proc_pid_mountinfo(5) has them.
pub(crate) fn parse_mounts(table: &[u8]) -> Vec<MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    /// Bits of the minor number.
    const MINOR_BITS: u32 = 20;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = major.parse::<u32>().ok()? << MINOR_BITS | minor.parse::<u32>().ok()?;
    // Behind the device comes what of the file system is mounted.
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(fields.nth(1)?)));
    let of_mount = text(unescape(fields.next()?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1).map(unescape);
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    let options = format!("{of_mount},{}", text(fields.next()?));
    Some(MountEntry { source, path, kind, options, device })
}

/// The kernel writes blanks, newlines and backslashes as three octal digits.
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match code {
            Some(code) => {
                bytes.push(code);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_parsed() {
        let table = b"28 1 254:1 / / rw,noatime shared:1 - ext4 /dev/vda rw\n\
            36 28 0:39 / /mnt/a\\040b rw,nosuid shared:2 master:1 - fuse.weft 0@lo:/weft rw,user_id=0\n\
            37 28 0:40 / /mnt/c rw - tmpfs none rw\n";
        let mounts = parse_mounts(table);
        assert_eq!(mounts.len(), 3);
        assert!(!mounts[0].is_weft() && mounts[1].is_weft());
        assert_eq!((mounts[0].device, mounts[1].device), (254 << 20 | 1, 39));
        assert_eq!(mounts[1].path, PathBuf::from("/mnt/a b"));
        assert_eq!(mounts[1].source, "0@lo:/weft");
        assert_eq!(mounts[1].options, "rw,nosuid,rw,user_id=0");
        assert_eq!((mounts[2].kind.as_str(), mounts[2].path.as_path()), ("tmpfs", Path::new("/mnt/c")));
    }
}
