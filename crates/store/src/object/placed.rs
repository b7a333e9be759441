//! Data that has its place in a data file, and that nothing refers to yet.

use rt::File;

use super::extent::{Extent, Run};
use super::logged::LOGGED_BYTES_MAX;
use crate::target::Logged;

/// How data that was written gets durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// With its file, which is synced before the log.
    Synced,
    /// With the log, which carries it, too.
    Logged,
}

impl Durable {
    /// The way for a write of `len` bytes in all.
    pub fn of(len: u64) -> Durable {
        if len <= LOGGED_BYTES_MAX { Durable::Logged } else { Durable::Synced }
    }
}

/// Data that was written and that nothing refers to yet. Dropped while the disk may still be writing, its blocks
/// stay taken until the target is opened again.
#[derive(Default)]
pub struct Placed {
    /// The new extents, by offset in the object.
    pub extents: Vec<(u64, Extent)>,
    /// The files that have to be synced before anything refers to the extents.
    pub files: Vec<File>,
    /// What the log carries of it.
    pub logged: Logged,
    pub(super) runs: Vec<Run>,
}

impl Placed {
    /// Adds what was written behind it in the object.
    pub fn add(&mut self, other: Placed) {
        self.extents.extend(other.extents);
        self.files.extend(other.files);
        self.logged.entries.extend(other.logged.entries);
        self.logged.files.extend(other.logged.files);
        self.runs.extend(other.runs);
    }

    /// The blocks that the data occupies.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
}
