//! The file system as a library: name space, data, layouts. FUSE, tests and later bindings are its users.
//!
//! An operation whose answer needs no waiting is done in its first poll: a target of the same process is called on
//! the caller's thread.
//!
//! Each part owns its state, and calls those below it only:
//!
//! - [`posix`]: what system calls mean, for whoever serves programs;
//! - [`files`]: open files and directories, and what is done through them;
//! - [`names`]: the name space, and what is kept of what the MDT told, as long as its locks permit;
//! - [`data`]: what is written and read, through a write-behind cache;
//! - [`lock`]: the ranges of objects that this client may read or change;
//! - [`targets`]: the sessions, and [`lease`], the right to use what is kept.
//!
//! What comes back takes three ways: targets call the client ([`callbacks`]), the locks ask the data under them to be sent and
//! forgotten ([`lock::RangeUser`]), and the lease has everything given up ([`lease::Holder`]). Whoever keeps copies of what the client
//! told, the kernel behind a mount, is asked to forget it ([`Copies`]). The order of all locks is in [`order`].

mod admin;
mod advise;
mod callbacks;
mod clock;
mod copies;
mod data;
mod drain;
mod files;
mod holder;
pub mod hsm;
mod lease;
mod lock;
mod losses;
mod migrate;
mod mount;
mod mover;
mod names;
mod order;
pub mod posix;
mod targets;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use proto::{Code, Name, Timestamp};
use rt::Rt;
use rt::sync::Semaphore;

pub use admin::{
    Admin, CACHED_BYTES_MIN, CacheUse, Held, HeldRange, LockBounds, LockUse, MemoryBounds, NewSetting,
    OstUse, Setting, TakenSettings,
};
pub use copies::{Copies, Forget};
pub use data::Pages;
pub use files::{FlockRequest, Flocks, FoundLock, OpenFiles};
pub use lease::LeaseState;
pub use mount::Lost;
pub use names::{Behind, Fill, Names, OnItsWay, Page, PageEntry, Told};
pub use rpc::{AskError, job};
pub use targets::SlowOst;

/// Why an operation failed. A refusal is the server's answer; everything else is the client's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A server's refusal.
    #[error("{0}")]
    Refused(#[from] Code),
    /// The handle names no open file, or not one open for this.
    #[error("bad file handle")]
    BadHandle,
    /// The client is being unmounted.
    #[error("the file system is being unmounted")]
    Closed,
}

/// What operations give.
pub type Result<T> = std::result::Result<T, Error>;

impl From<rpc::RpcError> for Error {
    fn from(error: rpc::RpcError) -> Error {
        match error {
            rpc::RpcError::Refused(code) => Error::Refused(code),
            rpc::RpcError::Closed => Error::Closed,
        }
    }
}

/// Limits of a mount.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes written by applications and not yet taken by an OST, of all files together.
    pub dirty_bytes_max: u64,
    /// The same of one OST.
    pub ost_dirty_bytes_max: u64,
    /// Bytes of one write request.
    pub rpc_bytes_max: u32,
    /// Write and read requests in flight per OST.
    pub rpcs_in_flight_max: u32,
    /// Bytes that are kept besides what the kernel keeps: what was written and is not durable, and what was read.
    pub cached_bytes_max: u64,
}

impl Limits {
    /// What is right for a process that may use `memory` bytes: an eighth of it for the cache, and half of that for what is not
    /// written yet.
    pub fn within(memory: u64) -> Limits {
        let default = Limits::default();
        let part = |limit: u64, parts: u64| limit.min((memory / parts).max(CACHED_BYTES_MIN));
        Limits {
            dirty_bytes_max: part(default.dirty_bytes_max, 16),
            ost_dirty_bytes_max: part(default.ost_dirty_bytes_max, 32),
            cached_bytes_max: part(default.cached_bytes_max, 8),
            ..default
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            dirty_bytes_max: 256 << 20,
            ost_dirty_bytes_max: 64 << 20,
            rpc_bytes_max: 1 << 20,
            rpcs_in_flight_max: 16,
            cached_bytes_max: 512 << 20,
        }
    }
}

/// Names an open file of this client; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenFlags {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Every write goes to the end (O_APPEND).
    pub append: bool,
    /// An existing file is an error (O_EXCL).
    pub exclusive: bool,
    /// The file is emptied (O_TRUNC).
    pub truncate: bool,
    /// Execution, by the kernel: it takes the right to execute, and not the right to read.
    pub execute: bool,
    /// O_SYNC or O_DSYNC: every write is durable before it returns.
    pub sync: bool,
    /// Reading leaves the access time as it is (O_NOATIME).
    pub no_atime: bool,
}

/// What fallocate does to a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// Reserves space (mode 0 and FALLOC_FL_KEEP_SIZE).
    Reserve {
        /// The file does not grow; what lies behind its end is not reserved.
        keep_size: bool,
    },
    /// Makes everything zeros, with space reserved (FALLOC_FL_ZERO_RANGE).
    Zero {
        /// As above.
        keep_size: bool,
    },
    /// Gives the space back; the range reads as zeros (FALLOC_FL_PUNCH_HOLE).
    PunchHole,
}

/// What to look for in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written (SEEK_DATA).
    Data,
    /// Bytes that were not, or whose space was given back (SEEK_HOLE); the end of the file is one.
    Hole,
}

/// Attributes to change; `None` stays.
#[derive(Debug, Clone, Default)]
pub struct AttrChange {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeSet>,
    /// Last change of the data.
    pub mtime: Option<TimeSet>,
    /// The project that it counts for; 0 for none.
    pub project: Option<u32>,
    /// Of a directory: whether what is made in it gets its project.
    pub inherits: Option<bool>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    /// The time of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// The caller: who, and how to learn its supplementary groups if the answer depends on them (the MDT then refuses
/// with NeedGroups and the client asks `groups` once and repeats).
#[derive(Clone)]
pub struct Caller {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// Looks the supplementary groups up.
    pub groups: Arc<dyn Fn() -> Vec<u32> + Send + Sync>,
    /// Permissions that new files do not get, unless their directory has a default ACL; 0 if they were taken off the
    /// modes already.
    pub umask: u32,
    /// The caller has locked something that answers to callbacks need, and asks again if it is told to let go of that
    /// ([`proto::Code::GiveWay`]). Otherwise the client asks again itself.
    pub gives_way: bool,
}

impl Caller {
    /// The file system itself, for what an application's right was checked for before (write-back of mapped pages).
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Arc::new(Vec::new), umask: 0, gives_way: false }
    }
}

/// A mounted file system.
pub struct Client {
    shared: Arc<Shared>,
    admin: Admin,
    movers: Arc<mover::Movers>,
}

impl Client {
    /// The name space.
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// Open files and directories.
    pub fn files(&self) -> &OpenFiles {
        &self.shared.files
    }

    /// File locks.
    pub fn flocks(&self) -> &Arc<Flocks> {
        &self.shared.files.flocks
    }

    /// What an administrator sees and sets.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }
}

/// The parts of a client.
struct Shared {
    rt: Rt,
    targets: Arc<targets::Targets>,
    /// The right to use what is kept.
    lease: Arc<lease::Lease>,
    lessee: Arc<lease::LeaseKeeper>,
    /// Sessions that are not used.
    resting: Arc<lock::Resting>,
    names: Arc<Names>,
    files: Arc<OpenFiles>,
    /// Whoever keeps copies of what this client told.
    copies: Arc<copies::Keepers>,
    /// Losses that a sync of everything has told of: of data, and of names.
    synced: [AtomicU64; 2],
    /// One drain goes on at a time.
    draining: Semaphore,
}

impl Shared {
    /// Ranges of objects that this client may use.
    fn locks(&self) -> &Arc<lock::RangeLocks> {
        &self.names.data.locks
    }
}

/// Makes a name out of bytes that came from a caller.
pub fn name(bytes: &[u8]) -> Result<Name> {
    Name::new(Bytes::copy_from_slice(bytes)).map_err(|error| match error {
        proto::name::NameError::TooLong => Error::Refused(Code::NameTooLong),
        proto::name::NameError::Illegal => Error::Refused(Code::Invalid),
    })
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn with_little_memory_less_is_cached() {
        let (small, plenty) = (Limits::within(512 << 20), Limits::within(64 << 30));
        assert_eq!((small.cached_bytes_max, small.dirty_bytes_max), (64 << 20, 32 << 20));
        assert_eq!(plenty.cached_bytes_max, Limits::default().cached_bytes_max);
    }
}
