//! What files and callers are made of: attributes, kinds, credentials.

use crate::ids::Fid;
use crate::time::Timestamp;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Character device.
    Char,
    /// Block device.
    Block,
    /// Socket.
    Socket,
}

/// The bits of a mode that hold the kind of file.
pub const MODE_KIND: u32 = 0o170_000;
/// The bits of a mode that `chmod` can set.
pub const MODE_PERMISSIONS: u32 = 0o7777;
/// Set user id on execution.
pub const MODE_SETUID: u32 = 0o4000;
/// Set group id on execution; on a directory: entries inherit the group.
pub const MODE_SETGID: u32 = 0o2000;
/// Name of the extended attribute that gives rights to whoever executes the file, as setuid does.
pub const XATTR_CAPABILITY: &[u8] = b"security.capability";
/// Sticky: only owners delete entries of a directory.
pub const MODE_STICKY: u32 = 0o1000;

impl FileKind {
    /// The kind's bits of a mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Socket => 0o140_000,
            FileKind::Symlink => 0o120_000,
            FileKind::File => 0o100_000,
            FileKind::Block => 0o060_000,
            FileKind::Dir => 0o040_000,
            FileKind::Char => 0o020_000,
            FileKind::Fifo => 0o010_000,
        }
    }

    /// The kind that a mode tells; `None` if its bits name none.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & MODE_KIND {
            0o140_000 => FileKind::Socket,
            0o120_000 => FileKind::Symlink,
            0o100_000 => FileKind::File,
            0o060_000 => FileKind::Block,
            0o040_000 => FileKind::Dir,
            0o020_000 => FileKind::Char,
            0o010_000 => FileKind::Fifo,
            _ => return None,
        })
    }
}

/// Attributes of a file as a server knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// The file.
    pub fid: Fid,
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as in `st_rdev`.
    pub rdev: u32,
    /// Bytes. For a regular file of an MDT this counts only with `size_known`.
    pub size: u64,
    /// Used space in units of 512 bytes; counts only with `size_known`.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Whether `size` and `blocks` are the truth; otherwise the objects have to be asked (`docs/wire.md#sizes`).
    pub size_known: bool,
    /// Version of the inode: the transno of its last change on the MDT.
    pub version: u64,
    /// Time of the call that set `mtime` to what it is: what objects say of data written earlier does not count.
    pub mtime_set: Timestamp,
    /// The project that it counts for; 0 for none.
    pub project: u32,
    /// Of a directory: what is made in it gets its project, and what has another one does not come into it.
    pub inherits: bool,
}

/// An access time older than this is renewed even if the file was not changed since, in seconds.
const ATIME_AGE_MAX_SECS: i64 = 24 * 3600;

/// Whether an access at `now` is worth being noted (relatime): once after each change, and once a day.
pub fn access_counts(atime: Timestamp, mtime: Timestamp, ctime: Timestamp, now: Timestamp) -> bool {
    atime <= mtime || atime <= ctime || now.secs.saturating_sub(atime.secs) >= ATIME_AGE_MAX_SECS
}

impl Attr {
    /// Kind of the file; a mode that names none counts as a regular file.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::File)
    }

    /// The time with which the data of the file is written elsewhere: `mtime`, if a write set that. What was set later (utimensat) is in the
    /// inode alone, and must not come from the objects, too: it may lie in the future, and would outlast what is set next.
    pub fn data_time(&self) -> Timestamp {
        if self.mtime > self.mtime_set { self.mtime_set.just_before() } else { self.mtime }
    }
}

/// Whose a file is, as somebody knows it who holds its data or a part of it (`docs/operations.md#quotas`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Version of the inode that said so. Of two that differ the newer one is right; 0 is nobody.
    pub version: u64,
    /// The project; 0 for none.
    pub project: u32,
}

impl FileOwner {
    /// The owner that the attributes name.
    pub fn of(attr: &Attr) -> FileOwner {
        FileOwner { uid: attr.uid, gid: attr.gid, version: attr.version, project: attr.project }
    }

    /// The newer one of the two.
    pub fn newer(self, other: FileOwner) -> FileOwner {
        if other.version > self.version { other } else { self }
    }
}

/// On whose behalf a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cred {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// Supplementary groups; `None` if the client did not look them up.
    pub groups: Option<Vec<u32>>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Some(Vec::new()) }
    }
}
