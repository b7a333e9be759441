//! What those see who look on: what sessions hold, and who waits for what. For diagnoses and for checkers.

use proto::{Code, Fid, ObjectId};
use rt::BoxFuture;

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

/// Somebody waits for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The sessions that have to do with it.
    pub sessions: Vec<u64>,
    /// Who waits for what, a line for people.
    pub text: String,
}

/// A target to look at, and to end.
pub trait Watch: Send + Sync {
    /// Names of its sessions; `None` while it waits for what clients replay and state again.
    fn sessions(&self) -> Option<Vec<u64>>;

    /// What sessions hold.
    fn held(&self) -> Vec<Held>;

    /// Who waits for what, a line for each.
    fn waits(&self) -> Vec<String>;

    /// Whether it may answer now: it works, and nobody else had the target until now.
    fn is_owner(&self) -> bool;

    /// Sets all parameters that fit `pattern`, as an operator does. `NotFound`: there is none.
    fn set_parameter(&self, pattern: &str, value: &str) -> Result<(), Code>;

    /// Sets all parameters that fit the `pattern` that the MGS keeps. `NotFound`: there is none.
    fn set_kept(&self, pattern: &str, value: &str) -> Result<(), Code>;

    /// Takes no more requests, and waits for those under way.
    fn refuse(&self) -> BoxFuture<'_, ()>;

    /// Closes the store after that.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Lets the store go instead, as if the process had been killed.
    fn abandon(&self) -> BoxFuture<'_, ()>;

    /// Waits until the store fails.
    fn failed(&self) -> BoxFuture<'_, ()>;
}
