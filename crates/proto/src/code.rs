//! Refusals: what a server answers when it will not do what was asked.
//!
//! These numbers are weft's own and travel on the wire; a platform's errno is chosen at the edge only.

/// Why a request was refused. The number is the wire format (`docs/wire.md#codes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// No such file, entry or object.
    NotFound,
    /// The name exists already.
    Exists,
    /// The caller may not do this to this file, whatever its mode bits say.
    NotPermitted,
    /// The mode bits deny it.
    AccessDenied,
    /// A directory was needed.
    NotDirectory,
    /// Anything but a directory was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The name is too long.
    NameTooLong,
    /// No space left on the target.
    NoSpace,
    /// Quota exceeded.
    Quota,
    /// The file would be larger than a file can be.
    TooLarge,
    /// Too many links to one inode.
    TooManyLinks,
    /// Too many levels of symbolic links, or a directory moved below itself.
    Loop,
    /// An argument makes no sense.
    Invalid,
    /// The file was deleted; its FID names nothing any more.
    Stale,
    /// No such extended attribute.
    NoXattr,
    /// A value does not fit in what the caller offered.
    Range,
    /// A list or value is too large.
    TooBig,
    /// The operation is not one that this target offers.
    NotSupported,
    /// The file system is read only.
    ReadOnly,
    /// The file is being executed or otherwise in use.
    Busy,
    /// Names on two file systems.
    CrossDevice,
    /// Storage failed; what was asked may or may not have happened.
    Io,
    /// Stored data did not match its checksum.
    Corrupt,
    /// The answer depends on the caller's supplementary groups: send them.
    NeedGroups,
    /// The peer's key does not allow this.
    Forbidden,
    /// The session is not known here: connect (again).
    NoSession,
    /// The target is starting or recovering: try again after a while.
    TryAgain,
    /// The object was destroyed; it does not come back.
    Gone,
    /// Peer and target speak no common version, or a needed feature is missing.
    Version,
    /// The target belongs to another file system.
    WrongFilesystem,
    /// The index is used by another target.
    IndexUsed,
    /// The target is not served here.
    NotHere,
    /// The request could not be decoded.
    Malformed,
    /// The client was evicted: its locks and uncommitted changes on this target are gone.
    Evicted,
    /// Waiting for a lock would close a circle of owners that wait for each other.
    Deadlock,
    /// There are too many file locks.
    NoLocks,
    /// The operation was interrupted while it waited.
    Interrupted,
    /// Somebody else has the lock, and the caller did not want to wait.
    WouldBlock,
    /// The layout of the object is sealed: its file has another one, or is about to. Ask the MDT.
    Sealed,
    /// The target is an older copy of one that was further: nothing that it has can be relied on.
    Older,
    /// The layout of the file has no component there.
    NoComponent,
    /// The change waits for another client that may wait for the caller, who holds up an answer to a callback. Nothing was done: the
    /// caller lets go of what it has locked, and asks again.
    GiveWay,
    /// The object was on an OST that is lost, and that another one has replaced.
    Lost,
    /// The OST that was asked for has replaced a lost one, and the sequence of the FID may name objects of that: take a new sequence.
    OldSequence,
    /// The target was taken out of the file system.
    Removed,
    /// An operator has said that the target is not to be asked; or an OST that a layout is to have is not reached.
    Inactive,
    /// The data of the file is in its archive alone: have it restored, and ask again.
    Released,
    /// A number that this version does not know.
    Unknown(u32),
}

const TABLE: [(u32, Code); 48] = [
    (1, Code::NotFound),
    (2, Code::Exists),
    (3, Code::NotPermitted),
    (4, Code::AccessDenied),
    (5, Code::NotDirectory),
    (6, Code::IsDirectory),
    (7, Code::NotEmpty),
    (8, Code::NameTooLong),
    (9, Code::NoSpace),
    (10, Code::Quota),
    (11, Code::TooLarge),
    (12, Code::TooManyLinks),
    (13, Code::Loop),
    (14, Code::Invalid),
    (15, Code::Stale),
    (16, Code::NoXattr),
    (17, Code::Range),
    (18, Code::TooBig),
    (19, Code::NotSupported),
    (20, Code::ReadOnly),
    (21, Code::Busy),
    (22, Code::CrossDevice),
    (23, Code::Io),
    (24, Code::Corrupt),
    (25, Code::NeedGroups),
    (26, Code::Forbidden),
    (27, Code::NoSession),
    (28, Code::TryAgain),
    (29, Code::Gone),
    (30, Code::Version),
    (31, Code::WrongFilesystem),
    (32, Code::IndexUsed),
    (33, Code::NotHere),
    (34, Code::Malformed),
    (35, Code::Evicted),
    (36, Code::Deadlock),
    (37, Code::NoLocks),
    (38, Code::Interrupted),
    (39, Code::WouldBlock),
    (40, Code::Sealed),
    (41, Code::Older),
    (42, Code::NoComponent),
    (43, Code::GiveWay),
    (44, Code::Lost),
    (45, Code::OldSequence),
    (46, Code::Removed),
    (47, Code::Inactive),
    (48, Code::Released),
];

impl Code {
    /// The number that travels; never 0, which means success.
    pub fn to_u32(self) -> u32 {
        match self {
            Code::Unknown(n) => n,
            known => TABLE.iter().find(|(_, code)| *code == known).map_or(u32::MAX, |(n, _)| *n),
        }
    }

    /// The inverse of [`Code::to_u32`]; `None` for 0, which means success.
    pub fn from_u32(n: u32) -> Option<Code> {
        match n {
            0 => None,
            n => Some(
                TABLE.iter().find(|(number, _)| *number == n).map_or(Code::Unknown(n), |(_, code)| *code),
            ),
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Code {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for n in 1..200 {
            assert_eq!(Code::from_u32(n).map(Code::to_u32), Some(n));
        }
        assert_eq!(Code::from_u32(0), None);
        assert_eq!(Code::from_u32(199), Some(Code::Unknown(199)));
    }
}
