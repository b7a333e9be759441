//! What the kernel offers and what is taken of it.

use super::abi::{self, InitIn, InitOut, init};
use super::request::Dialect;

/// Largest write that the kernel sends, in bytes.
pub const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a page as the protocol counts them.
const PAGE_BYTES: u32 = 4096;
/// Requests that the kernel may have under way without a thread that waits for them (asynchronous I/O).
const BACKGROUND_MAX: u16 = 256;
/// Above this number of them it stops making new ones.
const CONGESTION_AT: u16 = BACKGROUND_MAX / 4 * 3;
/// Granularity of times, in nanoseconds.
const TIME_GRANULARITY: u32 = 1;

/// Capabilities that are used where the kernel has them. `WRITEBACK_CACHE` is not among them (the kernel would own sizes and times,
/// which other mounts change too), and never `NO_OPEN_SUPPORT` (opens have state on the servers). Where a symbolic link leads never changes, so
/// the kernel need not be told to forget it.
const WANTED: u64 = init::ASYNC_READ
    | init::ASYNC_DIO
    | init::ATOMIC_O_TRUNC
    | init::AUTO_INVAL_DATA
    | init::BIG_WRITES
    | init::CACHE_SYMLINKS
    | init::DIRECT_IO_ALLOW_MMAP
    | init::EXPORT_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::INIT_EXT
    | init::MAX_PAGES
    | init::PARALLEL_DIROPS;

/// What the file system asks for besides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Requests through io_uring.
    pub uring: bool,
    /// The kernel evaluates POSIX ACLs that it asks for as extended attributes.
    pub acl: bool,
    /// Locks of fcntl(2) and flock(2) are asked for, not kept by the kernel alone.
    pub locks: bool,
    /// Directories are read together with the attributes of their entries.
    pub readdirplus: bool,
    /// The kernel keeps what is written, and owns sizes and times. For files that nobody else changes.
    pub writeback: bool,
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Minor version that both speak.
    pub minor: u32,
    /// Flags that both want.
    pub flags: u64,
}

/// The kernel cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel speaks FUSE {major}.{minor}; version {}.{} or later is needed (Linux 5.4)",
    abi::MAJOR,
    abi::MINOR_MIN
)]
pub struct TooOld {
    /// Its major version.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
}

impl Agreed {
    /// Whether all of `flags` were agreed.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// How requests look.
    pub fn dialect(&self) -> Dialect {
        Dialect { setxattr_ext: self.has(init::SETXATTR_EXT) }
    }

    /// Whether names can be expired one by one.
    pub fn expires_names(&self) -> bool {
        self.minor >= abi::notify::EXPIRE_ONLY_MINOR
    }
}

/// The flags that the kernel offers.
pub fn offered(given: &InitIn) -> u64 {
    let high = if u64::from(given.flags) & init::INIT_EXT != 0 { given.flags2 } else { 0 };
    u64::from(given.flags) | u64::from(high) << 32
}

/// The answer to INIT.
pub fn answer(given: &InitIn, wish: Wish) -> Result<(InitOut, Agreed), TooOld> {
    let InitIn { major, minor, max_readahead, .. } = *given;
    if major != abi::MAJOR || minor < abi::MINOR_MIN {
        return Err(TooOld { major, minor });
    }
    let more = [
        (wish.uring, init::OVER_IO_URING),
        (wish.acl, init::POSIX_ACL | init::SETXATTR_EXT | init::DONT_MASK),
        (wish.locks, init::POSIX_LOCKS | init::FLOCK_LOCKS),
        (wish.writeback, init::WRITEBACK_CACHE),
        (wish.readdirplus, init::DO_READDIRPLUS | init::READDIRPLUS_AUTO),
    ];
    let wanted = more.iter().filter(|(wish, _)| *wish).fold(WANTED, |all, (_, flags)| all | flags);
    let agreed = Agreed { minor: minor.min(abi::MINOR), flags: offered(given) & wanted };
    let out = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead,
        flags: agreed.flags as u32,
        flags2: (agreed.flags >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTION_AT,
        max_write: WRITE_BYTES_MAX,
        time_gran: TIME_GRANULARITY,
        max_pages: (WRITE_BYTES_MAX / PAGE_BYTES) as u16,
        ..InitOut::default()
    };
    Ok((out, agreed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(minor: u32, flags: u64) -> InitIn {
        InitIn {
            major: 7,
            minor,
            max_readahead: 131_072,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            unused: [0; 11],
        }
    }

    #[test]
    fn only_what_is_offered_is_taken() {
        let given =
            kernel(45, init::INIT_EXT | init::ASYNC_READ | init::WRITEBACK_CACHE | init::OVER_IO_URING);
        let (out, agreed) =
            answer(&given, Wish { uring: true, acl: true, ..Wish::default() }).expect("new enough");
        assert_eq!(agreed.flags, init::INIT_EXT | init::ASYNC_READ | init::OVER_IO_URING);
        assert_eq!(out.flags2, 1 << 9);
        let (_, agreed) = answer(&given, Wish::default()).expect("new enough");
        assert!(!agreed.has(init::OVER_IO_URING));
    }

    #[test]
    fn high_flags_count_only_with_the_longer_init() {
        let given = kernel(45, init::ASYNC_READ | init::OVER_IO_URING);
        assert_eq!(offered(&given), init::ASYNC_READ);
    }

    #[test]
    fn old_kernels_are_refused() {
        assert_eq!(answer(&kernel(30, 0), Wish::default()).map(|_| ()), Err(TooOld { major: 7, minor: 30 }));
        assert!(answer(&kernel(31, 0), Wish::default()).is_ok());
    }

    #[test]
    fn expiring_names_is_known_by_version() {
        assert!(!Agreed { minor: 37, flags: 0 }.expires_names());
        assert!(Agreed { minor: 38, flags: 0 }.expires_names());
    }
}
