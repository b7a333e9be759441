//! Memory that this process may use: the machine's, or what its memory groups (cgroups, version 1 or 2) leave of it.

use std::fs::{read, read_to_string};
use std::path::{Path, PathBuf};

/// What is assumed where the machine does not say, in bytes.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Files of a memory group that bound it, in bytes; a word instead of a number bounds nothing. Above `memory.high` the kernel
/// slows a group down until it gives memory back, so a process has to stay below that too.
const LIMIT_FILES: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// Memory that this process may use now, in bytes.
pub(super) fn memory_bytes() -> u64 {
    // Places of mounts may have any bytes.
    let file = |path: &str| String::from_utf8_lossy(&read(path).unwrap_or_default()).into_owned();
    let machine = total_of(&file("/proc/meminfo")).unwrap_or(UNKNOWN_BYTES);
    let groups = group_dirs(&file("/proc/self/cgroup"), &file("/proc/self/mountinfo"));
    groups.iter().flat_map(|(dir, top)| limits_of(dir, top)).fold(machine, u64::min)
}

/// The machine's memory, of the text of `/proc/meminfo`.
fn total_of(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The memory groups of a process and the directories where their trees begin, of the texts of `/proc/self/cgroup` and
/// `/proc/self/mountinfo`.
fn group_dirs(cgroup: &str, mountinfo: &str) -> Vec<(PathBuf, PathBuf)> {
    mountinfo.lines().filter_map(|line| group_dir(cgroup, line)).collect()
}

fn group_dir(cgroup: &str, mount: &str) -> Option<(PathBuf, PathBuf)> {
    let (left, right) = mount.split_once(" - ")?;
    let (mut left, mut right) = (left.split(' '), right.split(' '));
    let (root, point) = (left.nth(3)?, left.next()?);
    let (kind, options) = (right.next()?, right.nth(1)?);
    let is_unified = kind == "cgroup2";
    if !is_unified && (kind != "cgroup" || !options.split(',').any(|option| option == "memory")) {
        return None;
    }
    let path = cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = if is_unified {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == "memory")
        };
        is_it.then_some(path)
    })?;
    // A container sees a part of the tree, mounted as if it were all; a path outside it is not to be seen.
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    Some((Path::new(point).join(below), PathBuf::from(point)))
}

/// The limits of the group `dir` and of those that it is in, up to `top`.
fn limits_of(dir: &Path, top: &Path) -> Vec<u64> {
    let groups = dir.ancestors().take_while(|group| group.starts_with(top));
    let files = groups.flat_map(|group| LIMIT_FILES.map(|name| group.join(name)));
    files.filter_map(|file| read_to_string(file).ok()?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total_of("MemTotal:       24579820 kB\nMemFree: 1 kB\n"), Some(24_579_820 << 10));
        assert_eq!(total_of("nothing"), None);
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let cgroup = "4:cpu,cpuacct:/x\n3:memory:/jobs/one\n0::/user.slice/weft.service\n";
        let mounts = "30 24 0:26 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n\
                      31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 24 0:29 / /proc rw - proc proc rw\n";
        let dir = |path: &str, top: &str| (PathBuf::from(path), PathBuf::from(top));
        let want = vec![
            dir("/sys/fs/cgroup/unified/user.slice/weft.service", "/sys/fs/cgroup/unified"),
            dir("/sys/fs/cgroup/memory/jobs/one", "/sys/fs/cgroup/memory"),
        ];
        assert_eq!(group_dirs(cgroup, mounts), want);
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_tree() {
        let mounts =
            |root: &str| format!("30 24 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup2 rw,nsdelegate\n");
        let dir = |path: &str| vec![(PathBuf::from(path), PathBuf::from("/sys/fs/cgroup"))];
        assert_eq!(group_dirs("0::/pod/a/b\n", &mounts("/pod/a")), dir("/sys/fs/cgroup/b"));
        assert_eq!(group_dirs("0::/elsewhere\n", &mounts("/pod/a")), dir("/sys/fs/cgroup/"));
    }

    #[test]
    fn the_smallest_limit_of_all_groups_above_counts() {
        let top = std::env::temp_dir().join(format!("weft-groups-{}", std::process::id()));
        let dir = top.join("a/b");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("memory.max"), "max\n").expect("a file");
        std::fs::write(top.join("a/memory.max"), "536870912\n").expect("a file");
        std::fs::write(top.join("a/memory.high"), "500000000\n").expect("a file");
        let mut limits = limits_of(&dir, &top);
        std::fs::remove_dir_all(&top).expect("it is there");
        limits.sort_unstable();
        assert_eq!(limits, [500_000_000, 536_870_912]);
    }
}
