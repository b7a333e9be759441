//! `mount -o remount,...`: what the kernel decides about a mount can be changed while it is mounted; what the process behind
//! it was started with stays.

use std::path::Path;

use fuse::session::MountEntry;
use rustix::mount::MountFlags;

use crate::cmd::mount::{MountOptions, Unknown};
use crate::failure::Failure;
use crate::mountpoint;

/// What `mount` shows of every FUSE mount, and so gives to a remount again.
const SHOWN: &[&str] =
    &["user_id=", "group_id=", "rootmode=", "max_read=", "blksize=", "fd=", "subtype=", "fsname="];
/// The same without a value.
const SHOWN_WORDS: &[&str] = &["default_permissions", "allow_other", "relatime", "nouser", "remount"];
/// Options of access times: the process behind the mount keeps them.
const TIMES: &[(&str, &str)] =
    &[("noatime", "atime"), ("atime", "noatime"), ("nodiratime", "diratime"), ("diratime", "nodiratime")];
/// Switches, and the flag that each sets (`true`) or takes away.
const SWITCHES: &[(&str, MountFlags, bool)] = &[
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
];

/// Whether the options ask for a remount.
pub fn is_meant(options: &str) -> bool {
    options.split(',').any(|option| option == "remount")
}

/// Changes the mount at `path`.
pub fn run(path: &Path, options: &str, unknown: Unknown) -> Result<(), Failure> {
    let path = mountpoint::absolute(path)?;
    let name = path.display();
    let entry = mountpoint::entry(&path)?.filter(MountEntry::is_weft);
    let entry = entry.ok_or_else(|| Failure::new(format!("no weft file system is mounted at {name}")))?;
    let (flags, kept) = flags(&entry.options, options, unknown)?;
    rustix::mount::mount_remount(&path, flags, c"").map_err(|error| match error {
        rustix::io::Errno::PERM => Failure::new(format!("only root may change the mount at {name}")),
        rustix::io::Errno::BUSY => Failure::new(format!(
            "{name} is in use for writing; end what writes (\"fuser -vm {name}\" lists it) and try again"
        )),
        error => Failure::new(format!("the mount at {name} cannot be changed: {error}")),
    })?;
    for option in kept {
        err!("mount.weft: {option}: the process behind {name} keeps what it was started with");
    }
    Ok(())
}

/// The flags of a mount with `now` after `options`, and which of these change nothing.
fn flags<'a>(now: &str, options: &'a str, unknown: Unknown) -> Result<(MountFlags, Vec<&'a str>), Failure> {
    // Behind what is said of the mount itself comes what is said of the file system.
    let now: Vec<&str> = now.split(',').collect();
    let has = |option: &str| now.contains(&option);
    let mut flags = MountFlags::empty();
    for (option, flag, on) in SWITCHES {
        flags.set(*flag, flags.contains(*flag) || (*on && has(option)));
    }
    for (option, flag) in [("noatime", MountFlags::NOATIME), ("nodiratime", MountFlags::NODIRATIME)] {
        flags.set(flag, has(option));
    }
    let mut kept = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        if let Some((_, flag, on)) = SWITCHES.iter().find(|(switch, ..)| *switch == option) {
            flags.set(*flag, *on);
            continue;
        }
        let is_shown = SHOWN_WORDS.contains(&option) || SHOWN.iter().any(|shown| option.starts_with(shown));
        if is_shown || has(option) {
            continue;
        }
        if let Some((_, other)) = TIMES.iter().find(|(times, _)| *times == option) {
            if has(other) || option.starts_with("no") {
                return Err(Failure::usage(format!(
                    "mount option \"{option}\" cannot be changed while it is mounted; unmount and mount again"
                )));
            }
            continue;
        }
        // Refused by its name, or something that it was mounted with.
        if !MountOptions::parse(option, unknown)?.to_text().is_empty() || option.contains('=') {
            kept.push(option);
        }
    }
    Ok((flags, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "rw,nosuid,relatime,rw,user_id=0,group_id=0,default_permissions,allow_other";

    fn check(options: &str) -> Result<(MountFlags, Vec<&str>), String> {
        flags(NOW, options, Unknown::Refused).map_err(|failure| failure.message)
    }

    #[test]
    fn what_the_kernel_decides_is_changed() {
        let nosuid = MountFlags::NOSUID;
        assert_eq!(check(&format!("{NOW},remount,ro")), Ok((nosuid | MountFlags::RDONLY, vec![])));
        assert_eq!(check("remount,ro,rw,suid,noexec"), Ok((MountFlags::NOEXEC, vec![])));
        assert_eq!(check("remount"), Ok((nosuid, vec![])));
        let with_times =
            flags("ro,noatime,ro", "remount,noatime,rw", Unknown::Refused).map(|(flags, _)| flags);
        assert_eq!(with_times.map_err(|failure| failure.message), Ok(MountFlags::NOATIME));
    }

    #[test]
    fn what_the_process_does_stays_or_is_refused_by_its_name() {
        assert_eq!(
            check("remount,key=/k,max_cached_mb=8"),
            Ok((MountFlags::NOSUID, vec!["key=/k", "max_cached_mb=8"]))
        );
        for option in ["noatime", "nodiratime", "sync", "strictatime", "flok"] {
            assert!(check(&format!("remount,{option}")).is_err_and(|said| said.contains(option)), "{option}");
        }
        assert_eq!(check("remount,atime,_netdev"), Ok((MountFlags::NOSUID, vec![])));
    }
}
