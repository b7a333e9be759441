//! Which errno an application sees. Nowhere else does a refusal become one.

use proto::Code;

use crate::Error;

/// A number from errno.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What an operation gives to a program.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// What should have been done was not, for whatever reason.
    pub const IO: Errno = Errno(libc::EIO);
    /// A signal came first.
    pub const INTERRUPTED: Errno = Errno(libc::EINTR);
    /// The name exists.
    pub const EXISTS: Errno = Errno(libc::EEXIST);
    /// An argument makes no sense.
    pub const INVALID: Errno = Errno(libc::EINVAL);
    /// No such attribute.
    pub const NO_ATTRIBUTE: Errno = Errno(libc::ENODATA);
    /// There is nothing at this offset.
    pub const NO_DATA_HERE: Errno = Errno(libc::ENXIO);
    /// The file system does not offer this.
    pub const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    /// The caller's buffer is too small.
    pub const RANGE: Errno = Errno(libc::ERANGE);
    /// The value is too large.
    pub const TOO_BIG: Errno = Errno(libc::E2BIG);
    /// The request is not one that is offered.
    pub const NO_SUCH_CALL: Errno = Errno(libc::ENOSYS);
    /// Too many locks.
    pub const NO_LOCKS: Errno = Errno(libc::ENOLCK);
    /// Not possible for a directory.
    pub const IS_DIRECTORY: Errno = Errno(libc::EISDIR);
    /// Only possible for a directory.
    pub const NOT_DIRECTORY: Errno = Errno(libc::ENOTDIR);
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Refused(code) => code.into(),
            Error::BadHandle => Errno(libc::EBADF),
            Error::Closed => Errno(libc::ENOTCONN),
        }
    }
}

impl From<Code> for Errno {
    fn from(code: Code) -> Errno {
        Errno(match code {
            Code::NotFound => libc::ENOENT,
            Code::Exists => libc::EEXIST,
            Code::NotPermitted => libc::EPERM,
            Code::AccessDenied | Code::NeedGroups | Code::Forbidden => libc::EACCES,
            Code::NotDirectory => libc::ENOTDIR,
            Code::IsDirectory => libc::EISDIR,
            Code::NotEmpty => libc::ENOTEMPTY,
            Code::NameTooLong => libc::ENAMETOOLONG,
            Code::NoSpace => libc::ENOSPC,
            Code::Quota => libc::EDQUOT,
            Code::TooLarge => libc::EFBIG,
            Code::NoComponent | Code::Released => libc::ENODATA,
            Code::TooManyLinks => libc::EMLINK,
            // The kernel follows symbolic links itself, so this is a directory that would move below itself.
            Code::Loop | Code::Invalid => libc::EINVAL,
            // The kernel lets go of the directory and asks again.
            Code::Stale | Code::Gone | Code::GiveWay => libc::ESTALE,
            Code::NoXattr => libc::ENODATA,
            Code::Range => libc::ERANGE,
            Code::TooBig => libc::E2BIG,
            Code::NotSupported => libc::EOPNOTSUPP,
            Code::ReadOnly => libc::EROFS,
            Code::Busy => libc::EBUSY,
            Code::CrossDevice => libc::EXDEV,
            Code::TryAgain | Code::WouldBlock | Code::Sealed => libc::EAGAIN,
            Code::Deadlock => libc::EDEADLK,
            Code::NoLocks => libc::ENOLCK,
            Code::Interrupted => libc::EINTR,
            Code::Io
            | Code::Corrupt
            | Code::NoSession
            | Code::Version
            | Code::WrongFilesystem
            | Code::IndexUsed
            | Code::NotHere
            | Code::Malformed
            | Code::Evicted
            | Code::Older
            | Code::Lost
            | Code::OldSequence
            | Code::Removed
            | Code::Inactive
            | Code::Unknown(_) => libc::EIO,
        })
    }
}
