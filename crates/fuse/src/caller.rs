//! Who asks, and the supplementary groups that the kernel does not send.

use std::sync::Arc;

use client::Caller;

use crate::proc;

/// The process behind a request. Its supplementary groups are read only when an answer depends on them.
pub fn of_process(uid: u32, gid: u32, pid: u32) -> Caller {
    Caller { uid, gid, groups: Arc::new(move || groups_of(pid)), umask: 0, gives_way: false }
}

/// Supplementary groups of a process. None if it is gone or lives in a PID namespace that this one does not see
/// (`pid` is 0 then): it can only get fewer rights this way.
fn groups_of(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    // A request can come from any thread of the process, and each has credentials of its own: the kernel sends the
    // thread's id, which /proc resolves too.
    match proc::read(pid, "status") {
        Ok(status) => parse_groups(&status),
        Err(_) => Vec::new(),
    }
}

fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or("");
    line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_parsed() {
        let status = "Name:\tcat\nUid:\t0\t0\t0\t0\nGroups:\t4 24 1000 \nNStgid:\t1\n";
        assert_eq!(parse_groups(status), [4, 24, 1000]);
        assert_eq!(parse_groups("Groups:\t\nx"), [0u32; 0]);
        assert_eq!(parse_groups(""), [0u32; 0]);
    }
}
