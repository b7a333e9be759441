//! The way of the data: write-behind cache, sending, reading, sizes of objects.

mod back;
mod budget;
mod cache;
mod clean;
mod copy;
mod cut;
mod dirty;
mod end;
mod extents;
mod files;
mod lost;
mod memory;
#[cfg(test)]
mod model;
mod objects;
mod own;
mod past;
mod pressure;
mod read;
mod readahead;
mod reserve;
mod room;
mod seek;
mod send;
mod sent;
mod share;
mod state;
mod version;
mod whole;
mod write;

use std::sync::Arc;

use proto::Timestamp;
use rt::Rt;

use crate::clock::Clock;
use crate::lease::Lease;
use crate::lock::RangeLocks;
use crate::targets::Targets;

pub(crate) use back::WriteBack;
pub(crate) use budget::{Budgets, Taking};
pub(crate) use cache::Cache;
pub(crate) use clean::Clean;
pub(crate) use copy::{Copied, Side};
pub(crate) use cut::Resize;
pub(crate) use dirty::DirtyFiles;
pub(crate) use extents::Extents;
pub(crate) use files::{FileRef, Files};
pub(crate) use memory::Memory;
pub(crate) use objects::{Objects, Sum, merge};
pub use read::Pages;
pub(crate) use readahead::{ReadAhead, Wanted};
pub(crate) use room::{Rooms, Taken};
pub(crate) use share::Span;
pub(crate) use state::{FileState, Unsent};

/// An application's call that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// When it was made.
    pub(crate) time: Timestamp,
    /// It is durable when it returns: whoever sends it asks for that at once.
    pub(crate) sync: bool,
    /// How often a lock of the file had been lost when it was made: it is in vain once that is more often ([`FileState::check_fence`]).
    pub(crate) fences: Option<u64>,
}

/// The data of all files: what is written goes into the write-behind cache, what is read comes from it, from what was read before
/// and from the OSTs; all of it under locks.
pub(crate) struct Data {
    pub(crate) rt: Rt,
    pub(crate) clock: Arc<Clock>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) targets: Arc<Targets>,
    pub(crate) locks: Arc<RangeLocks>,
    pub(crate) files: Arc<Files>,
    /// What was read and is still true.
    pub(crate) clean: Arc<Clean>,
    pub(crate) objects: Objects,
    pub(crate) back: Arc<WriteBack>,
    /// What may be written, by the limits of whose it is.
    pub(crate) budgets: Arc<Budgets>,
    /// What of files has space.
    pub(crate) extents: Extents,
    pub(crate) ahead: ReadAhead,
}

impl Data {
    /// Nothing is written yet.
    pub(crate) fn new(
        clock: Arc<Clock>,
        lease: Arc<Lease>,
        locks: Arc<RangeLocks>,
        back: Arc<WriteBack>,
    ) -> Data {
        let (rt, targets, files, clean) = back.parts();
        let objects = || Objects::new(targets.clone(), clean.clone());
        let budgets = Arc::new(Budgets::new(rt.clone(), targets.clone(), back.clone(), objects()));
        let extents = Extents { locks: locks.clone(), objects: objects(), back: back.clone() };
        let objects = objects();
        let ahead = ReadAhead::new(back.rooms.kept().max, files.chunk_bytes, rt.wall());
        Data { rt, clock, lease, targets, locks, files, clean, objects, back, budgets, extents, ahead }
    }
}
