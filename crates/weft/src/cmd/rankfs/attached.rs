//! Images that this machine has mounted: mounting, unmounting, and finding them in the kernel's tables, whoever mounted them.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fuse::session::{MountEntry, mounts, mounts_of};
use rt::os::loopback;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::image::{self, Access};
use crate::control::describe;
use crate::failure::Failure;

/// What the kernel does when it finds damage. An image would say that itself, and might say that the machine has to stop.
const ON_ERRORS: &CStr = c"errors=remount-ro";
const ON_ERRORS_DISCARDING: &CStr = c"errors=remount-ro,discard";
/// Locked by whoever looks whether an image is mounted for reading, and mounts it if not.
const TURN: &str = "/run/weft-rankfs.lock";

/// How an image is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// By many at the same time.
    pub reads_only: bool,
    /// Space of removed files goes back to the shared file system at once, which makes removing slower.
    pub discards: bool,
}

/// Mounts an image that `file` is, with its lock. The kernel keeps the file open as long as the image is mounted, and the lock with it.
pub fn attach(path: &Path, file: &File, at: &Path, how: How) -> Result<(), Failure> {
    let device = loopback::attach(file.as_fd(), how.reads_only).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new("this machine has no loop devices; load them with \"modprobe loop\"")
        }
        _ => image::failed(path, "cannot be a loop device", &error),
    })?;
    let data = if how.discards { ON_ERRORS_DISCARDING } else { ON_ERRORS };
    let tried = |kind| mount(&device.path, at, kind, flags(how.reads_only), data);
    let mounted = match tried(c"ext2") {
        // A kernel without the driver may have the next one.
        Err(Errno::NODEV) => tried(c"ext4"),
        other => other,
    };
    mounted.map_err(|error| match error {
        Errno::INVAL | Errno::UCLEAN => Failure::new(format!(
            "{} has no file system that can be mounted; run \"e2fsck -f\" on it",
            path.display()
        )),
        error => Failure::new(format!(
            "{} cannot be mounted on {}: {}",
            path.display(),
            at.display(),
            describe(&error.into())
        )),
    })
}

/// Mounts an image for reading. If this machine has it already, its pages are shared: what one rank has read the next one finds in memory.
pub fn attach_shared(path: &Path, at: &Path) -> Result<(), Failure> {
    let known = path.canonicalize().map_err(|error| image::failed(path, "cannot be reached", &error))?;
    // Those that begin at the same time would each find nothing.
    let turn =
        File::create(TURN).map_err(|error| image::failed(Path::new(TURN), "cannot be made", &error))?;
    rustix::fs::flock(&turn, FlockOperation::LockExclusive)
        .map_err(|error| image::failed(Path::new(TURN), "cannot be locked", &error.into()))?;
    let status = fs::metadata(&known).map_err(|error| image::failed(path, "cannot be looked at", &error))?;
    // Names and numbers may be those of another file system, too: the kernel knows which file a device is over.
    let is_over = |device: &Path| {
        loopback::read_only_over(device).is_ok_and(|file| file == Some((status.dev(), status.ino())))
    };
    for device in devices_of(&known).into_iter().filter(|device| is_over(device)) {
        // The kernel holds the lock for all that have mounted the device, until the last of them unmounts.
        if mount(&device, at, c"ext2", flags(true), ON_ERRORS).is_ok() {
            if is_over(&device) {
                return Ok(());
            }
            // It had become another file's in the meantime.
            detach(at)?;
        }
    }
    let file = image::open_locked(path, Access::Shared)?;
    image::refuse_damaged(path, &file)?;
    attach(path, &file, at, How { reads_only: true, discards: false })
}

fn flags(reads_only: bool) -> MountFlags {
    let common = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    if reads_only { common | MountFlags::RDONLY } else { common }
}

/// A place beside `at`, for what is mounted below what is seen there.
pub fn beside(at: &Path, suffix: &str) -> PathBuf {
    let mut name = at.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Has all that was written to the image that is mounted at `at` reach its file. What the kernel failed to write earlier, when nobody
/// waited, it tells here: an unmount says nothing of it.
pub fn flush(at: &Path) -> io::Result<()> {
    let root = File::open(at)?;
    Ok(rustix::fs::syncfs(&root)?)
}

/// Unmounts the image that is mounted at `at`, last.
pub fn detach(at: &Path) -> Result<(), Failure> {
    unmount(at, UnmountFlags::NOFOLLOW).map_err(|error| match error {
        Errno::BUSY => Failure::new(format!("{0} is in use; \"fuser -vm {0}\" says by whom", at.display())),
        error => image::failed(at, "cannot be unmounted", &error.into()),
    })
}

/// Has all that was written to a closed image reach the servers.
pub fn settle(path: &Path) -> Result<(), Failure> {
    // Without its lock: somebody else may have it by now.
    match File::open(path).and_then(|file| file.sync_all()) {
        // It was removed in the meantime, by whoever may.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| image::failed(path, "cannot be written", &error)),
    }
}

/// Loop devices of this machine by the path of their file.
pub fn devices() -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut devices: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        // A path may have any bytes.
        let Ok(file) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        let file = OsStr::from_bytes(file.strip_suffix(b" (deleted)").unwrap_or(file));
        devices.entry(file.into()).or_default().push(Path::new("/dev").join(entry.file_name()));
    }
    devices
}

/// The loop devices that have an image: by its path, or by that of the same file in another mount of its file system.
pub fn devices_of(image: &Path) -> Vec<PathBuf> {
    // A kernel without the table has no mounts to show.
    let table = mounts().unwrap_or_default();
    let inode = |path: &Path| fs::symlink_metadata(path).ok().map(|status| status.ino());
    let is_image = |file: &Path| {
        file == image
            || (file.file_name() == image.file_name()
                && inode(file).is_some_and(|file| Some(file) == inode(image))
                && file_system_of(&table, file) == file_system_of(&table, image))
    };
    devices().into_iter().filter(|(file, _)| is_image(file)).flat_map(|(_, devices)| devices).collect()
}

/// The file system that a path is in, by a table of mounts: a file of another one may have the same name and number.
fn file_system_of<'a>(table: &'a [MountEntry], path: &Path) -> Option<&'a str> {
    mount_above(table, path).map(name_of)
}

/// The mount that a path is in.
pub fn mount_above<'a>(table: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    // Of those that are mounted at one place the last is seen.
    let above = table.iter().filter(|entry| path.starts_with(&entry.path));
    above.max_by_key(|entry| entry.path.as_os_str().len())
}

/// What a mount shows. Of weft the name behind the servers' addresses, which may be written in several ways.
pub fn name_of(entry: &MountEntry) -> &str {
    entry.source.rsplit(":/").next().unwrap_or(&entry.source)
}

/// Where loop devices are mounted here: source and place.
pub fn mounts_here() -> Vec<(PathBuf, PathBuf)> {
    of_loop_devices(mounts().unwrap_or_default())
}

fn of_loop_devices(table: Vec<MountEntry>) -> Vec<(PathBuf, PathBuf)> {
    let of_loop = table.into_iter().filter(|entry| entry.source.starts_with("/dev/loop"));
    of_loop.map(|entry| (entry.source.into(), entry.path)).collect()
}

/// Processes with a table of mounts of their own in which one of `devices` is.
pub fn private_users(devices: &[PathBuf]) -> Vec<u32> {
    let this = mount_space("self");
    let is_user = |pid: u32, space: &Path| {
        Some(space) != this.as_deref()
            // A process may end at any time.
            && of_loop_devices(mounts_of(pid).unwrap_or_default())
                .iter()
                .any(|(source, _)| devices.contains(source))
    };
    processes(is_user)
}

/// The table of mounts of a process, as the kernel names it.
pub fn mount_space(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// Other processes that have the same table of mounts as this one, which is not `outer`, that of everybody else: what this process has
/// started since it has it.
pub fn inmates(outer: &Path) -> Vec<u32> {
    let own = std::process::id();
    match mount_space("self") {
        Some(this) if this != outer => processes(|pid, space| pid != own && space == this),
        // Everybody would be meant.
        _ => Vec::new(),
    }
}

/// The processes that are `wanted`, by number and table of mounts.
fn processes(wanted: impl Fn(u32, &Path) -> bool) -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    pids.filter(|pid| mount_space(&pid.to_string()).is_some_and(|space| wanted(*pid, &space))).collect()
}

/// The image that is mounted at a place, or the place where an image is mounted: both, for either of them.
pub fn find(path: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let path = path.canonicalize().map_err(|error| image::failed(path, "cannot be reached", &error))?;
    let devices = devices();
    for (source, at) in mounts_here().into_iter().rev() {
        let file = devices.iter().find(|(_, devices)| devices.contains(&source)).map(|(file, _)| file);
        if let Some(file) = file.filter(|file| at == path || **file == path) {
            return Ok((file.clone(), at));
        }
    }
    Err(Failure::new(format!(
        "{} is no image that is mounted here; \"weft rankfs list\" shows images",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_an_inmate_of_what_all_have() {
        let this = mount_space("self").expect("this process has one");
        assert_eq!(inmates(&this), [] as [u32; 0]);
    }

    fn entry(path: &str, source: &str) -> MountEntry {
        MountEntry { path: path.into(), source: source.to_owned(), ..MountEntry::default() }
    }

    #[test]
    fn images_are_mounted_from_loop_devices() {
        let table = vec![entry("/", "/dev/root"), entry("/mnt/a b", "/dev/loop3")];
        assert_eq!(of_loop_devices(table), [("/dev/loop3".into(), "/mnt/a b".into())]);
    }

    #[test]
    fn file_systems() {
        let table = [
            entry("/", "/dev/root"),
            entry("/mnt/a", "10.0.0.1@tcp:/w"),
            entry("/mnt/b", "10.0.0.1@tcp:10.0.0.2@tcp:/w"),
            entry("/mnt/c", "10.0.0.1@tcp:/x"),
        ];
        let of = |path: &str| file_system_of(&table, Path::new(path));
        assert_eq!(of("/mnt/a/images/i"), of("/mnt/b/i"));
        assert_ne!(of("/mnt/a/images/i"), of("/mnt/c/images/i"));
        assert_eq!(of("/mnt/ab"), Some("/dev/root"));
    }
}
