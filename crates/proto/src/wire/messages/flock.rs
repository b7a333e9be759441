//! flock(2) and fcntl(2) locks of a file, cluster-wide (`docs/wire.md#flock`).
//!
//! A request that has to wait is answered at once, and [`FlockWait`] asks what became of it: so nothing that can be
//! lost and sent again has an effect of its own. The locks live in the MDT's memory and die with the session.

use crate::ids::Fid;
use crate::wire_struct;

/// A lock of a range, as fcntl(2) sets it.
pub const FLOCK_POSIX: u8 = 1;
/// A lock of the whole file, as flock(2) sets it. The two kinds do not see each other.
pub const FLOCK_WHOLE: u8 = 2;

/// No lock.
pub const FLOCK_UNLOCK: u8 = 0;
/// A lock that others may have too.
pub const FLOCK_READ: u8 = 1;
/// A lock that nobody else has.
pub const FLOCK_WRITE: u8 = 2;

/// The lock is set.
pub const FLOCK_GRANTED: u8 = 0;
/// The request waits: ask with [`FlockWait`].
pub const FLOCK_WAITING: u8 = 1;
/// Somebody else has a lock that does not allow it, and the request was not to wait.
pub const FLOCK_CONFLICT: u8 = 2;
/// Waiting would have closed a circle of owners that wait for each other.
pub const FLOCK_DEADLOCK: u8 = 3;
/// The request was cancelled.
pub const FLOCK_CANCELLED: u8 = 4;
/// There are too many locks, or too many requests that wait.
pub const FLOCK_NO_LOCKS: u8 = 5;
/// The target knows nothing of the request: it restarted. Ask for the lock again.
pub const FLOCK_UNKNOWN: u8 = 6;

wire_struct! {
    /// Sets, changes or takes away a lock of a file. What the owner had in the range is replaced.
    pub struct Flock {
        /// The file.
        pub fid: Fid,
        /// The client's name for the owner: a process (POSIX) or an open file (flock).
        pub owner: u64,
        /// The process that asks, for [`FlockTest`].
        pub pid: u32,
        /// [`FLOCK_POSIX`] or [`FLOCK_WHOLE`].
        pub kind: u8,
        /// [`FLOCK_READ`], [`FLOCK_WRITE`] or [`FLOCK_UNLOCK`].
        pub mode: u8,
        /// First byte.
        pub start: u64,
        /// Last byte; `u64::MAX` for all that may ever come.
        pub end: u64,
        /// Number under which the request waits if others are in its way, used once in the session; 0 for not at all.
        pub wait: u64,
        /// Requests whose outcome the client knows: the target need not remember them.
        pub known: Vec<u64>,
    }
}

wire_struct! {
    /// What became of a request.
    pub struct Flocked {
        /// `FLOCK_GRANTED` and the others.
        pub state: u8,
        /// Of two changes of an owner's locks on a file the one with the greater number was later.
        pub change: u64,
    }
}

wire_struct! {
    /// Asks what became of a request that waits; answered when it waits no more, or after a while. Asking twice does
    /// no harm.
    pub struct FlockWait {
        /// Number of the request.
        pub wait: u64,
        /// Requests whose outcome the client knows.
        pub known: Vec<u64>,
    }
}

wire_struct! {
    /// Ends a request that waits. If it was granted meanwhile, the owner gets back what it had before.
    pub struct FlockCancel {
        /// Number of the request.
        pub wait: u64,
    }
}

wire_struct! {
    /// Asks which lock stands in the way of one (F_GETLK).
    pub struct FlockTest {
        /// The file.
        pub fid: Fid,
        /// Who asks: its own locks are not in its way.
        pub owner: u64,
        /// [`FLOCK_POSIX`] or [`FLOCK_WHOLE`].
        pub kind: u8,
        /// [`FLOCK_READ`] or [`FLOCK_WRITE`].
        pub mode: u8,
        /// First byte.
        pub start: u64,
        /// Last byte.
        pub end: u64,
    }
}

wire_struct! {
    /// The lock that is in the way and begins first.
    pub struct FlockFound {
        /// `None` if there is none.
        pub lock: Option<FlockLock>,
    }
}

wire_struct! {
    /// A lock of somebody.
    pub struct FlockLock {
        /// First byte.
        pub start: u64,
        /// Last byte.
        pub end: u64,
        /// [`FLOCK_READ`] or [`FLOCK_WRITE`].
        pub mode: u8,
        /// The process that set it.
        pub pid: u32,
        /// Whether it is a process of this client.
        pub own: bool,
    }
}

wire_struct! {
    /// States the locks again that the client had before the target restarted. Each is set unless somebody else has a
    /// lock that does not allow it. Taken only while clients replay; stating twice does no harm.
    pub struct RestateFlocks {
        /// The locks.
        pub locks: Vec<FlockHeld>,
    }
}

wire_struct! {
    /// A lock that a client has.
    pub struct FlockHeld {
        /// The file.
        pub fid: Fid,
        /// The client's name for the owner.
        pub owner: u64,
        /// The process that set it.
        pub pid: u32,
        /// [`FLOCK_POSIX`] or [`FLOCK_WHOLE`].
        pub kind: u8,
        /// [`FLOCK_READ`] or [`FLOCK_WRITE`].
        pub mode: u8,
        /// First byte.
        pub start: u64,
        /// Last byte.
        pub end: u64,
    }
}
