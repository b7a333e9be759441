//! What those see who look on: what sessions hold, and who waits for what. For diagnoses and for checkers.

use proto::{Fid, ObjectId};

/// Something that a target has granted to a session, and believes it to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The session, as requests name it.
    pub session: u64,
    /// What it is.
    pub what: Holding,
}

/// What can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Inode bits (`LOCK_*`) of a file.
    Bits {
        /// The file.
        fid: Fid,
        /// Which.
        bits: u32,
    },
    /// Bytes `start..end` of an object.
    Range {
        /// The object.
        object: ObjectId,
        /// First byte.
        start: u64,
        /// First byte behind it.
        end: u64,
        /// Whether they may be changed.
        write: bool,
    },
}
