//! How soon the kernel tries again what was lost on the way.
//!
//! TCP doubles the pause before it repeats a segment that nobody acknowledged, up to two minutes. So after a link was
//! down for ten seconds, connections would say nothing for up to ten seconds more, and whoever waits would wait for twice the
//! outage. The pauses are bounded instead, where the kernel can do that (Linux 6.15 and later). The kernel also gives a
//! connection up sooner then: after about twelve seconds instead of fifteen minutes. That is what the sessions above
//! do by themselves, and they go on over another connection.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Longest pause between two repetitions of a segment; the kernel takes one second and more.
const REPEAT_MAX: Duration = Duration::from_secs(1);

/// `TCP_RTO_MAX_MS` of `linux/tcp.h`.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Bounds the pauses of a connection. An older kernel goes on doubling them.
#[allow(unsafe_code)]
pub(super) fn limit(socket: &impl AsFd) {
    let value = REPEAT_MAX.as_millis() as libc::c_int;
    // SAFETY: the descriptor is open as long as `socket`, and the pointer and the length are those of `value`, which
    // lives across the call and is only read.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if failed != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "the kernel chooses when it repeats what was lost");
    }
}
