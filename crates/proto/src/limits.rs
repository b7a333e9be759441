//! Every limit that two peers have to agree on, with its name and unit.

/// Longest name of a directory entry, in bytes (POSIX NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest symbolic link target, in bytes (Linux PATH_MAX less the terminator).
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest value of an extended attribute, in bytes (Linux XATTR_SIZE_MAX).
pub const XATTR_BYTES_MAX: usize = 65_536;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Most links to one inode.
pub const LINKS_MAX: u32 = 65_000;
/// Most stripes of one layout (Lustre's LOV_MAX_STRIPE_COUNT).
pub const STRIPES_MAX: usize = 2000;
/// Most components of one layout.
pub const COMPONENTS_MAX: usize = 64;
/// Smallest unit of a stripe size, in bytes; every stripe size is a multiple of it.
pub const STRIPE_SIZE_UNIT: u32 = 65_536;
/// Most bytes of a file that lie on an MDT; a multiple of [`STRIPE_SIZE_UNIT`].
pub const MDT_DATA_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of a file that come with the answer to an open.
pub const HEAD_BYTES_MAX: u64 = 16 << 10;
/// Stripe size of a layout that asks for none, in bytes.
pub const STRIPE_SIZE_DEFAULT: u32 = 1 << 20;
/// Most supplementary groups of a caller (Linux NGROUPS_MAX).
pub const GROUPS_MAX: usize = 65_536;
/// Largest body of a message, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest bulk of a message, in bytes.
pub const BULK_BYTES_MAX: usize = 4 << 20;
/// Messages of one batch.
pub const BATCH_MAX: usize = 64;
/// Bytes of the body of one batch.
pub const BATCH_BYTES_MAX: usize = 64 << 10;
/// Parts of one WriteParts.
pub const WRITE_PARTS_MAX: usize = 1024;
/// Largest body before a peer has proved that it holds a key, in bytes.
pub const BODY_BYTES_MAX_STRANGER: usize = 1024;
/// Most targets of one file system.
pub const TARGETS_MAX: usize = 65_536;
/// Longest text of a NID, in bytes.
pub const NID_BYTES_MAX: usize = 255;
/// Most addresses of one target.
pub const NIDS_MAX: usize = 32;
/// Most entries in one list of a message that has no narrower limit.
pub const LIST_MAX: usize = 65_536;
/// Requests that change something which one client may have under way at one target: its reply slots.
pub const SLOTS_MAX: u32 = 256;
/// Most files that a client has open to read without the MDT, which has room to be told of all of them.
pub const OWN_OPENS_MAX: usize = 65_536;
/// Directories of an MDT that a client has to itself, at most.
pub const ALONE_MAX: usize = 4096;
/// How many of them one request states again after a restart of the MDT.
pub const ALONE_STATED_MAX: usize = 1024;
/// Changes that a client has told of before the MDT has made them, in one request.
pub const PROMISES_MAX: usize = 128;
/// Object ids of one sequence: the low bits of an inode number.
pub const OID_BITS: u32 = 20;
/// Bits of a sequence that fit in an inode number.
pub const SEQ_BITS: u32 = 43;
/// Largest file, in bytes (what a signed 64-bit offset can address).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Default TCP port of a weft server.
pub const PORT_DEFAULT: u16 = 7988;
