//! Requests of the kernel as types; [`super::parse`] makes them.

use zerocopy::FromBytes;

use super::abi;

/// What was agreed at INIT and changes how requests look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dialect {
    /// SETXATTR has the longer structure.
    pub setxattr_ext: bool,
}

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not even a header.
    #[error("shorter than a header")]
    Short,
    /// The length in the header is not that of the message.
    #[error("the header says another length")]
    Length,
    /// The operation's structure or what follows it is cut off.
    #[error("operation {0} is cut off")]
    Truncated(u32),
    /// A name has no end.
    #[error("a name of operation {0} has no end")]
    Name(u32),
}

/// A request and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Names the request until it is answered.
    pub unique: u64,
    /// The inode.
    pub node: u64,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Thread that asks; 0 if it cannot be seen from here.
    pub pid: u32,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// Seconds and nanoseconds since the epoch, the latter counted forward.
    At(i64, u32),
}

/// What SETATTR changes; `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Kind and permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// The open file that the caller has.
    pub handle: Option<u64>,
    /// The privilege bits have to go.
    pub kill_privileges: bool,
}

/// A READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub handle: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// Most bytes of the answer.
    pub size: u32,
    /// Whether the answer goes into the kernel's page cache, and not straight to an application.
    pub fill: bool,
    /// The open flags at the time of the call.
    pub flags: u32,
}

/// A WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file; a guess if `cached`.
    pub handle: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// It comes from pages that were changed through a mapping.
    pub cached: bool,
    /// The privilege bits have to go.
    pub kill_privileges: bool,
    /// The open flags at the time of the call.
    pub flags: u32,
}

/// A lock request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The open file.
    pub handle: u64,
    /// Who: a process's files for fcntl, an open file for flock.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: u32,
    /// Process that asks.
    pub pid: u32,
    /// flock(2), not fcntl(2).
    pub flock: bool,
}

/// A COPY_FILE_RANGE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The open file to read.
    pub handle_in: u64,
    /// Where to read.
    pub offset_in: u64,
    /// Inode to write.
    pub node_out: u64,
    /// The open file to write.
    pub handle_out: u64,
    /// Where to write.
    pub offset_out: u64,
    /// How many bytes.
    pub len: u64,
    /// Flags of copy_file_range(2).
    pub flags: u64,
    /// The answer has room for 64 bits.
    pub wide: bool,
}

/// What a request asks. The fields are those of the kernel's structures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// So many lookups are forgotten; no reply.
    Forget {
        lookups: u64,
    },
    BatchForget {
        forgets: Forgets<'a>,
    },
    GetAttr {
        handle: Option<u64>,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MkDir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The request's node is the directory of the new name.
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        kill_privileges: bool,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
    },
    TmpFile {
        mode: u32,
        umask: u32,
        flags: u32,
    },
    Read(Read),
    Write(Write<'a>),
    StatFs,
    Release {
        handle: u64,
        flags: u32,
        owner: u64,
        unlock: bool,
    },
    Fsync {
        handle: u64,
        data_only: bool,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        kill_setgid: bool,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush {
        handle: u64,
        owner: u64,
    },
    OpenDir {
        flags: u32,
    },
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    ReleaseDir {
        handle: u64,
    },
    FsyncDir {
        handle: u64,
        data_only: bool,
    },
    GetLock(Lock),
    SetLock {
        lock: Lock,
        wait: bool,
    },
    Access {
        mask: u32,
    },
    /// No reply.
    Interrupt {
        unique: u64,
    },
    Init(abi::InitIn),
    Destroy,
    Allocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyRange(CopyRange),
    SyncFs,
    Statx {
        handle: Option<u64>,
        flags: u32,
        mask: u32,
    },
    Ioctl,
    Poll,
    /// An answer to a question of ours, which we never ask; no reply.
    NotifyReply,
    /// One that this file does not know.
    Unknown(u32),
}

/// The inodes of a BATCH_FORGET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a>(pub(super) &'a [u8]);

impl Forgets<'_> {
    /// Each inode and how many lookups of it are forgotten.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let chunks = self.0.chunks_exact(size_of::<abi::ForgetOne>());
        chunks
            .filter_map(|one| abi::ForgetOne::read_from_bytes(one).ok())
            .map(|one| (one.nodeid, one.nlookup))
    }
}
