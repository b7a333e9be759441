//! Locks: what a client may keep, and how it is called back.
//!
//! Two kinds. *Inode bits* of an MDT come with its answers and say what of them the client may keep; *ranges* of an
//! object's bytes are asked for. Both are numbered by the target that grants them, and both are given up by answering
//! its callback, which may come twice, late, or before the grant that it speaks of (`docs/locks.md`).

use crate::ids::{Fid, ObjectId};
use crate::time::Timestamp;
use crate::wire_struct;

/// The names of a file: what [`super::Lookup`] answered (Lustre's MDS_INODELOCK_LOOKUP).
pub const LOCK_LOOKUP: u32 = 1 << 0;
/// Attributes but for those of [`LOCK_PERM`]; of a directory its entries too, and that there are no others.
pub const LOCK_UPDATE: u32 = 1 << 1;
/// The file may be kept open at the MDT after its last close.
pub const LOCK_OPEN: u32 = 1 << 2;
/// Where the data lies.
pub const LOCK_LAYOUT: u32 = 1 << 3;
/// Mode, owner, group and ACL.
pub const LOCK_PERM: u32 = 1 << 4;
/// Extended attributes, and that there are no others.
pub const LOCK_XATTR: u32 = 1 << 5;
/// Every bit that several clients may have.
pub const LOCK_ALL: u32 = (1 << 6) - 1;

/// A directory that nobody else looks at or changes: its client may do so ahead of the MDT (`docs/locks.md#alone`). One client has it, and
/// only with a directory that it has just made.
pub const LOCK_ALONE: u32 = 1 << 6;

wire_struct! {
    /// What of an answer the client may keep until it is called back.
    #[derive(Copy, Default)]
    pub struct Granted {
        /// `LOCK_*` bits; 0 for nothing.
        pub bits: u32,
        /// Number of the grant: it grows with each of the target.
        pub number: u64,
    }
}

wire_struct! {
    /// Gives inode bits up that nobody has asked back.
    pub struct CancelBits {
        /// The locks.
        pub locks: Vec<BitLock>,
    }
}

wire_struct! {
    /// Inode bits of one file.
    pub struct BitLock {
        /// The file.
        pub fid: Fid,
        /// `LOCK_*` bits.
        pub bits: u32,
        /// Whatever was granted up to this number is given up; what was granted later stays.
        pub number: u64,
    }
}

wire_struct! {
    /// The kernel behind this client may use names that it was told before the MDT restarted, or uses none of them any more.
    pub struct RestateNames {
        /// Which restart it is, as the client counts them: what it says of an earlier one counts no more.
        pub restart: u64,
        /// Whether some may be used still. Until it says otherwise the client is called back for each file whose name changes.
        pub kept: bool,
    }
}

wire_struct! {
    /// Directories that this client has to itself, with changes that it has told and the MDT has not answered.
    pub struct RestateAlone {
        /// The directories.
        pub dirs: Vec<Fid>,
    }
}

wire_struct! {
    /// Callback: gives inode bits back. Answered when nothing of them is used any more, the kernel's caches included.
    pub struct RevokeBits {
        /// The file.
        pub fid: Fid,
        /// `LOCK_*` bits.
        pub bits: u32,
        /// Whatever was granted up to this number.
        pub number: u64,
    }
}

wire_struct! {
    /// Asks for a range of an object, to read or to change it. Waits until it is free.
    pub struct Enqueue {
        /// The object.
        pub object: ObjectId,
        /// Whether it is to be changed; else others may read it too.
        pub write: bool,
        /// First byte.
        pub start: u64,
        /// First byte behind it; `u64::MAX` for no end.
        pub end: u64,
        /// The client had it before the target restarted; taken only while clients replay.
        pub restate: bool,
    }
}

wire_struct! {
    /// A range of an object that a client may use until it is called back.
    pub struct Token {
        /// Number of the grant: it grows with each of the target.
        pub number: u64,
        /// Whether the range may be changed.
        pub write: bool,
        /// First byte; at most what was asked for.
        pub start: u64,
        /// First byte behind it; at least what was asked for.
        pub end: u64,
        /// Nothing was granted, for others want the same: read and write with [`super::Write::locked`] instead.
        pub contended: bool,
    }
}

wire_struct! {
    /// Gives ranges up that nobody has asked back.
    pub struct CancelRanges {
        /// The ranges.
        pub ranges: Vec<ObjectRange>,
    }
}

wire_struct! {
    /// A range of one object.
    pub struct ObjectRange {
        /// The object.
        pub object: ObjectId,
        /// First byte.
        pub start: u64,
        /// First byte behind it.
        pub end: u64,
        /// Whatever was granted up to this number.
        pub number: u64,
    }
}

wire_struct! {
    /// Callback: gives a range back. Answered when what was changed in it has been written to the object, and nothing
    /// of it is used any more, the kernel's pages included.
    pub struct RevokeRange {
        /// The object.
        pub object: ObjectId,
        /// First byte that somebody else needs.
        pub start: u64,
        /// First byte behind it.
        pub end: u64,
        /// Whatever was granted up to this number.
        pub number: u64,
        /// The other one only reads: the right to read may be kept.
        pub keep_read: bool,
        /// Several clients use the object: what lies around the range and was not used is to be given up with it.
        pub trim: bool,
    }
}

wire_struct! {
    /// The range that was given back, or kept for reading: at least what was asked for.
    pub struct RangeRevoked {
        /// First byte.
        pub start: u64,
        /// First byte behind it.
        pub end: u64,
        /// The right to read it was kept.
        pub kept_read: bool,
        ;
        /// Whatever was granted of it up to this number was given up; at least that of the callback counts.
        pub number: u64,
    }
}

wire_struct! {
    /// Callback: asks what a client has written to an object and not sent yet. Nothing is given up (Lustre's glimpse).
    pub struct Glimpse {
        /// The object.
        pub object: ObjectId,
    }
}

wire_struct! {
    /// What is not in the object yet.
    pub struct Glimpsed {
        /// First byte behind what was written; 0 for nothing.
        pub size: u64,
        /// Time of the newest write.
        pub time: Timestamp,
    }
}
