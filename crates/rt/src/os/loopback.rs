//! A file as a block device of this machine: Linux's loop devices, and what a process needs that mounts one for itself alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::signal_set;

const CONTROL: &str = "/dev/loop-control";
/// Of linux/loop.h.
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
/// A free device may be taken by somebody else in between: of all that begin together one has it.
const TRIES_MAX: u32 = 2000;
/// Between two tries; those that began together part.
const PAUSES: u32 = 16;
const PAUSE: Duration = Duration::from_micros(300);
/// Bytes of a name that the kernel keeps, its end included.
const NAME_LENGTH: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Default)]
struct LoopInfo {
    device: u64,
    inode: u64,
    real_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u64; NAME_LENGTH / 8],
    crypt_name: [u64; NAME_LENGTH / 8],
    encrypt_key: [u64; 4],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A block device over a file. When the last user closes it the kernel lets the file go: as long as it is mounted, the kernel holds the
/// file open, with the locks that were taken through it.
#[derive(Debug)]
pub struct LoopDevice {
    /// Its path in /dev.
    pub path: PathBuf,
    /// The device. It has to stay open until it is mounted.
    pub device: File,
}

/// Makes a block device over `file`, which reads and writes the file without keeping its data in memory.
pub fn attach(file: BorrowedFd<'_>, is_read_only: bool) -> io::Result<LoopDevice> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    let mut tries = 0;
    loop {
        let number = get_free(control.as_fd())?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(!is_read_only).open(&path)?;
        match configure(device.as_fd(), file, is_read_only) {
            Ok(()) => return Ok(LoopDevice { path, device }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES_MAX => {
                tries += 1;
                std::thread::sleep(PAUSE * (1 + std::process::id() % PAUSES));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The file that a block device reads, as device and inode; nothing if somebody may write to it.
#[allow(unsafe_code)]
pub fn read_only_over(device: &Path) -> io::Result<Option<(u64, u64)>> {
    let device = File::open(device)?;
    let mut info = LoopInfo::default();
    // SAFETY: the request fills a structure of this layout and keeps no reference to it.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((info.flags & READ_ONLY != 0).then_some((info.device, info.inode)))
}

#[allow(unsafe_code)]
fn get_free(control: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: this request has no argument, and gives a number.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

#[allow(unsafe_code)]
fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>, is_read_only: bool) -> io::Result<()> {
    let flags = AUTOCLEAR | DIRECT_IO | if is_read_only { READ_ONLY } else { 0 };
    let config = LoopConfig {
        file: file.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: LoopInfo { flags, ..LoopInfo::default() },
        reserved: [0; 8],
    };
    // SAFETY: the request reads a structure of this layout and keeps no reference to it.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From now on this thread, and what it starts, has a table of mounts of its own. What is mounted outside from now on is seen here; what
/// is mounted here is seen nowhere else, and ends with the last process that has this table. To be called by the only thread.
#[allow(unsafe_code)]
pub fn private_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: no memory, file or signal of the process changes; paths lead where they led.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// The same for who may not mount: this process gets a user name space of its own too, in which it is the user that it was and may
/// mount what the kernel lets such users mount. What it starts may not, but for [`with_mount_rights`].
#[allow(unsafe_code)]
pub fn private_mounts_of_user() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    use rustix::process::{getegid, geteuid};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: no memory, file or signal of the process changes; paths lead where they led.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
    // Who gives up the right to change its groups may keep one.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// Has `command`'s program keep the right to mount that this process has in its user name space.
#[allow(unsafe_code)]
pub fn with_mount_rights(command: &mut Command) {
    use rustix::thread::{
        CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
    };
    let arm = || {
        let mut sets = capabilities(None)?;
        sets.inheritable |= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)?;
        Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
    };
    // SAFETY: it makes three calls of the kernel and neither allocates nor locks.
    unsafe { command.pre_exec(arm) };
}

/// Has `command` killed when the thread that started it has ended.
#[allow(unsafe_code)]
pub fn kill_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        let is_there = rustix::process::getppid()
            .is_some_and(|pid| pid.as_raw_nonzero().get().cast_unsigned() == parent);
        if is_there { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: it makes two calls of the kernel and neither allocates nor locks.
    unsafe { command.pre_exec(arm) };
}

/// The signals that tell a program to end (SIGTERM, SIGINT, SIGHUP), which this thread, and those that it starts from then on, do not die of.
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Holds the signals back from now on, also in programs that are started, but for those of [`EndSignals::let_through`].
    #[allow(unsafe_code)]
    pub fn hold() -> io::Result<EndSignals> {
        let set = signal_set(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        // SAFETY: `set` is an initialised signal set, and no old set is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(EndSignals { set }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Has `command`'s program get them as ever.
    #[allow(unsafe_code)]
    pub fn let_through(&self, command: &mut Command) {
        let set = self.set;
        let arm = move || {
            // SAFETY: `set` is an initialised signal set, and no old set is asked for.
            match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: it makes one call of the kernel and neither allocates nor locks.
        unsafe { command.pre_exec(arm) };
    }

    /// Waits for the next one and gives its number.
    #[allow(unsafe_code)]
    pub fn next(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: both point to initialised values that live across the call, which fails only for signals that do not exist.
        unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
        signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_kernels_layout() {
        assert_eq!((size_of::<LoopConfig>(), std::mem::offset_of!(LoopConfig, info)), (304, 8));
        assert_eq!(std::mem::offset_of!(LoopInfo, flags), 52);
        assert_eq!((size_of::<LoopInfo>(), std::mem::offset_of!(LoopInfo, file_name)), (232, 56));
    }
}
