//! How far the kernel reads ahead of who reads a file in sequence.
//!
//! The kernel's own choice is 128 KiB for whatever file system: for one whose answers come from a disk or over a network, most of the time
//! goes by in waiting. FUSE_INIT can only ask for less, so root says it to the kernel, by the mount's device in sysfs. Users
//! who mount keep the kernel's choice. Figures: `docs/benchmarks.md#read-ahead`.

use crate::proc;

/// How far, in KiB. A request takes a MiB at most, so a few of them are on their way at a time.
const READ_AHEAD_KIB: u32 = 4096;

/// Sets it for the mount whose device has this number. Files that are opened from now on have it. Where the caller may not, as in a
/// container, the kernel's own choice stays.
pub fn set(device: Option<u32>) {
    let Some(device) = device else { return };
    let file = format!("/sys/class/bdi/0:{device}/read_ahead_kb");
    if let Err(error) = proc::set(&file, &READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, "the kernel reads ahead as far as it does by itself");
    }
}
