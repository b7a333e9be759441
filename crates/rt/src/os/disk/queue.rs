//! The queues of the disks below a file, from sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::queue::Queue;

/// Where the kernel tells of devices.
const SYSFS: &str = "/sys";
/// Most layers of devices on devices that are followed down.
const LAYERS_MAX: usize = 8;
/// Most disks that are told of one file.
const DISKS_MAX: usize = 64;

/// The queues of the disks that hold `path`, sorted by name: of a partition that of the whole disk, of a device on other devices
/// (LVM, RAID) those of the lowest. Empty for what lies on no block device, and for file systems that hide theirs.
///
/// # Errors
/// `path` cannot be looked at.
pub fn queues(path: &Path) -> io::Result<Vec<Queue>> {
    Ok(queues_of(Path::new(SYSFS), fs::metadata(path)?.dev()))
}

/// The same of a device number.
pub(super) fn queues_of_device(device: u64) -> Vec<Queue> {
    queues_of(Path::new(SYSFS), device)
}

/// Gives a disk another scheduler.
///
/// # Errors
/// The kernel's: `PermissionDenied` for who is not root, `InvalidInput` for a scheduler that it has not.
pub fn set_scheduler(disk: &str, scheduler: &str) -> io::Result<()> {
    if disk.is_empty() || disk.starts_with('.') || disk.contains('/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fs::write(Path::new(SYSFS).join("block").join(disk).join("queue/scheduler"), scheduler)
}

fn queues_of(sysfs: &Path, device: u64) -> Vec<Queue> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut found = BTreeMap::new();
    follow(&sysfs.join(format!("dev/block/{major}:{minor}")), LAYERS_MAX, &mut found);
    found.into_values().collect()
}

/// Adds the queues of the disks at or below `device`, a directory of sysfs. What is not there is no disk.
fn follow(device: &Path, layers: usize, found: &mut BTreeMap<String, Queue>) {
    let Ok(mut device) = fs::canonicalize(device) else { return };
    if device.join("partition").exists() {
        device.pop();
    }
    let below: Vec<PathBuf> = match fs::read_dir(device.join("slaves")) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).take(DISKS_MAX).collect(),
        Err(_) => Vec::new(),
    };
    if below.is_empty() {
        if found.len() < DISKS_MAX
            && let Some(queue) = read(&device)
        {
            found.insert(queue.disk.clone(), queue);
        }
    } else if layers > 0 {
        below.iter().for_each(|device| follow(device, layers - 1, found));
    }
}

fn read(device: &Path) -> Option<Queue> {
    let disk = device.file_name()?.to_str()?.to_owned();
    let text = |name: &str| fs::read_to_string(device.join("queue").join(name)).ok();
    let (scheduler, choices) = parse(&text("scheduler")?)?;
    let rotational = text("rotational")?.trim() == "1";
    Some(Queue { is_virtual: is_virtual(device), disk, rotational, scheduler, choices })
}

/// `none [mq-deadline] bfq`, the present one in brackets; without them where there is nothing to choose.
fn parse(text: &str) -> Option<(String, Vec<String>)> {
    let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let choices: Vec<String> = text.split_whitespace().map(bare).collect();
    let present = text.split_whitespace().find(|word| word.starts_with('[')).map(bare);
    let scheduler = present.or_else(|| choices.first().cloned())?;
    Some((scheduler, choices))
}

/// Whether no hardware of this machine is right behind the device: the kernel keeps such devices apart, and those that a host gives to its
/// guests hang on the buses of virtio and Xen.
fn is_virtual(device: &Path) -> bool {
    let mut parts = device.iter().filter_map(|part| part.to_str());
    parts.any(|part| part == "virtual" || part.starts_with("virtio") || part.starts_with("vbd-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory of sysfs for a device.
    fn device(sysfs: &Path, path: &str, number: &str, queue: Option<(&str, &str)>) -> PathBuf {
        let device = sysfs.join("devices").join(path);
        fs::create_dir_all(device.join("slaves")).expect("a directory");
        if let Some((scheduler, rotational)) = queue {
            fs::create_dir_all(device.join("queue")).expect("a directory");
            fs::write(device.join("queue/scheduler"), scheduler).expect("a file");
            fs::write(device.join("queue/rotational"), rotational).expect("a file");
        }
        fs::create_dir_all(sysfs.join("dev/block")).expect("a directory");
        symlink(&device, sysfs.join("dev/block").join(number)).expect("a link");
        device
    }

    fn names(sysfs: &Path, minor: u32) -> Vec<String> {
        let found = queues_of(sysfs, rustix::fs::makedev(8, minor));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn partitions_and_layers_lead_to_disks() {
        let temp = tempfile::tempdir().expect("a directory");
        let sysfs = temp.path();
        let sda =
            device(sysfs, "pci0/ata1/block/sda", "8:0", Some(("none [mq-deadline] kyber bfq\n", "1\n")));
        device(sysfs, "pci0/ata2/block/sdb", "8:1", Some(("none mq-deadline [bfq]\n", "0\n")));
        let part = device(sysfs, "pci0/ata2/block/sdb/sdb1", "8:2", None);
        fs::write(part.join("partition"), "1\n").expect("a file");
        let raid = device(sysfs, "virtual/block/md0", "8:3", Some(("none\n", "1\n")));
        symlink(&sda, raid.join("slaves/sda")).expect("a link");
        symlink(&part, raid.join("slaves/sdb1")).expect("a link");
        device(sysfs, "pci0/virtio2/block/vda", "8:4", Some(("none [mq-deadline]\n", "1\n")));
        let looped = device(sysfs, "virtual/block/md1", "8:5", Some(("none\n", "1\n")));
        symlink(&looped, looped.join("slaves/md1")).expect("a link");
        let disk_a = "sda: { scheduler: mq-deadline, suitable: mq-deadline, rotational: 1, kind: rotating }";
        let disk_b = "sdb: { scheduler: bfq, suitable: none, rotational: 0, kind: flash }";
        assert_eq!(names(sysfs, 0), [disk_a]);
        assert_eq!(names(sysfs, 2), [disk_b], "the whole disk of a partition");
        assert_eq!(names(sysfs, 3), [disk_a, disk_b], "what is below a RAID");
        let disk_v = "vda: { scheduler: mq-deadline, suitable: none, rotational: 1, kind: virtual }";
        assert_eq!(names(sysfs, 4), [disk_v]);
        assert!(names(sysfs, 5).is_empty(), "a ring ends");
        assert!(names(sysfs, 9).is_empty(), "what is no block device says nothing");
    }

    #[test]
    fn schedulers_are_told_apart() {
        let words = |text| parse(text).map(|(scheduler, choices)| (scheduler, choices.len()));
        assert_eq!(words("none [mq-deadline] kyber bfq\n"), Some(("mq-deadline".into(), 4)));
        assert_eq!(words("none\n"), Some(("none".into(), 1)));
        assert_eq!(words("\n"), None);
    }

    #[test]
    fn a_scheduler_is_set_of_disks_alone() {
        for disk in ["", "..", "a/b", ".hidden"] {
            let refused = set_scheduler(disk, "none").map_err(|error| error.kind());
            assert_eq!(refused, Err(io::ErrorKind::InvalidInput), "{disk:?}");
        }
        assert!(queues(Path::new("/proc")).expect("it is there").is_empty());
    }
}
