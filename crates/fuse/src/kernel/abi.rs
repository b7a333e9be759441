//! The structures, numbers and flags of the kernel's FUSE protocol, version 7.45, as its public header
//! `include/uapi/linux/fuse.h` defines them. Host byte order; padding is named so that every structure is plain bytes.
//!
//! Structures are named after the header's, without the prefix: `fuse_entry_out` is [`EntryOut`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// The newest minor version that this file knows.
pub const MINOR: u32 = 45;
/// The oldest minor version that is spoken: Linux 5.4.
pub const MINOR_MIN: u32 = 31;
/// The node id of the root.
pub const ROOT_NODE: u64 = 1;

/// The least buffer that the kernel accepts a read of the device with, in bytes.
pub const READ_BUFFER_BYTES_MIN: usize = 8192;

/// Numbers of operations.
pub mod opcode {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SETUPMAPPING: u32 = 48;
    pub const REMOVEMAPPING: u32 = 49;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of INIT. Those from bit 32 on travel in `flags2`.
pub mod init {
    #![allow(missing_docs)]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of [`OpenOut`].
pub mod fopen {
    #![allow(missing_docs)]
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Which fields of [`SetattrIn`] count.
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// GETATTR and STATX name a handle.
pub const GETATTR_FH: u32 = 1 << 0;
/// RELEASE also gives up the flock locks of the open file.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// READ names a lock owner: it is a direct read. Without, it fills the page cache.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// WRITE comes from the page cache; its handle is a guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// WRITE names a lock owner.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// WRITE takes the privilege bits away.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A lock of flock(2), not of fcntl(2).
pub const LK_FLOCK: u32 = 1 << 0;
/// FSYNC of the data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// SETXATTR of an ACL also takes the set-group-id bit away.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Numbers of notifications; they travel where a reply has its error, and `unique` is 0.
pub mod notify {
    #![allow(missing_docs)]
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    /// Flag of [`INVAL_ENTRY`]: the name is asked for again when it is used next, and stays if it is still true.
    pub const EXPIRE_ONLY: u32 = 1 << 0;
    /// The minor version since which [`EXPIRE_ONLY`] is understood.
    pub const EXPIRE_ONLY_MINOR: u32 = 38;
}

/// The ioctl that makes a second descriptor of the device serve the connection of a first one.
pub const DEVICE_CLONE: u64 = 0x8004_e500;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type),* }
    )*};
}

structures! {
    /// What every request begins with.
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 }
    /// What every reply begins with. `error` is a negated errno.
    OutHeader { len: u32, error: i32, unique: u64 }
    /// Attributes.
    FileAttr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// What a name means, and how long the kernel may believe it.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: FileAttr,
    }
    /// Attributes, and how long the kernel may believe them.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FileAttr }
    ForgetIn { nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteOut { size: u32, padding: u32 }
    /// Space of the file system.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// Without `SETXATTR_EXT`.
    SetxattrIn { size: u32, flags: u32 }
    /// With `SETXATTR_EXT`.
    SetxattrExtIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    /// A range of a lock, `end` being part of it; `type` is one of fcntl.h.
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    LkOut { lk: FileLock }
    AccessIn { mask: u32, padding: u32 }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    CopyFileRangeOut { bytes_copied: u64 }
    /// An entry of a directory; the name follows, filled up to 8 bytes with zeros.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    SyncfsIn { padding: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SxTime { sec: i64, nsec: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime,
        mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    /// Names to expire; the name and a NUL follow.
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    /// What FUSE over io_uring says about the payload of a ring entry.
    UringEntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// The command in an entry of the submission queue.
    UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// Bytes of the parts of the header of a ring entry.
pub const URING_HEADER_PART_BYTES: usize = 128;

/// The header of a ring entry: first the header of the request or reply, then the structure of the operation.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct UringReqHeader {
    /// [`InHeader`] or [`OutHeader`].
    pub in_out: [u8; URING_HEADER_PART_BYTES],
    /// The operation's first structure, of a request only.
    pub op_in: [u8; URING_HEADER_PART_BYTES],
    /// The size of the payload.
    pub entry: UringEntInOut,
}

/// Registers a ring entry and fetches a request.
pub const URING_CMD_REGISTER: u32 = 1;
/// Commits a reply and fetches a request.
pub const URING_CMD_COMMIT_AND_FETCH: u32 = 2;

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    /// The sizes that the kernel's header gives on every 64-bit platform.
    #[test]
    fn structures_have_the_size_of_the_kernels() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<FileAttr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<SetattrIn>(), 88),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<StatfsOut>(), 80),
            (size_of::<LkIn>(), 48),
            (size_of::<InitIn>(), 64),
            (size_of::<InitOut>(), 64),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<Dirent>(), 24),
            (size_of::<StatxIn>(), 24),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<UringEntInOut>(), 32),
            (size_of::<UringReqHeader>(), 288),
            (size_of::<UringCmdReq>(), 24),
        ];
        for (index, (ours, kernels)) in sizes.into_iter().enumerate() {
            assert_eq!(ours, kernels, "structure {index}");
        }
    }
}
