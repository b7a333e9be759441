//! What the MDT lets this client keep: names, attributes, pages of directories, extended attributes, open files.
//!
//! Everything is kept under inode bits that came with the answer, and dropped when they are called back
//! (`docs/locks.md`). [`inode`] is what is kept of one file, [`table`] all of them, [`answer`] the way in and out, [`told`] what an answer permits the
//! kernel, [`recall`] the callbacks, [`promise`] what is told before the MDT has made it.

mod answer;
mod gate;
mod inode;
mod listing;
mod promise;
mod recall;
mod table;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::Rt;
use rt::sync::Semaphore;

use super::own_opens::OwnOpens;
use super::{Accesses, Changes};
use crate::copies::Keepers;
use crate::data::Files;
use crate::lease::Lease;
use crate::order::{LEAF, LOST_BITS, Mutex};
use crate::targets::Targets;

pub(crate) use answer::Known;
pub(crate) use inode::{ATTR_BITS, OpenKept, Touch};
use recall::{Lost, Recalls};
pub(crate) use table::{Asked, Changing, Inodes};
pub use told::{Fill, OnItsWay, Told};

/// What the MDT lets a client keep.
pub(crate) struct MetadataCache {
    pub(super) rt: Rt,
    pub(super) targets: Arc<Targets>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) copies: Arc<Keepers>,
    pub(super) files: Arc<Files>,
    pub(crate) inodes: Inodes,
    /// Callbacks that are being worked on.
    recalls: Mutex<LEAF, Recalls>,
    /// What was lost with a session and has to be forgotten still.
    lost_bits: Mutex<LOST_BITS, Vec<Lost>>,
    /// Held by whoever has that forgotten.
    forgetting: Semaphore,
    /// Restarts of the MDT over which the kernel kept names.
    restarts: AtomicU64,
    bits_called_back: AtomicU64,
    /// Accesses that the MDT is told of at close.
    pub(crate) accesses: Accesses,
    /// Files that are open without the MDT.
    pub(in crate::names) own_opens: OwnOpens,
    /// What fsync of a file waits for on the MDT.
    pub(crate) changes: Arc<Changes>,
}

impl MetadataCache {
    /// Nothing is kept yet.
    pub(super) fn new(
        rt: Rt,
        targets: Arc<Targets>,
        lease: Arc<Lease>,
        copies: Arc<Keepers>,
        files: Arc<Files>,
    ) -> MetadataCache {
        MetadataCache {
            inodes: Inodes::new(rt.memory_share()),
            changes: Arc::new(Changes::new(targets.clone())),
            rt,
            targets,
            lease,
            copies,
            files,
            recalls: Mutex::default(),
            lost_bits: Mutex::default(),
            forgetting: Semaphore::new(1),
            restarts: AtomicU64::new(0),
            bits_called_back: AtomicU64::new(0),
            accesses: Accesses::default(),
            own_opens: OwnOpens::default(),
        }
    }

    /// How many callbacks came.
    pub(crate) fn called_back_count(&self) -> u64 {
        self.bits_called_back.load(Ordering::Relaxed)
    }

    /// What callbacks that are being worked on wait for: a line for each.
    pub(crate) fn waits(&self) -> Vec<String> {
        self.recalls.lock().waits()
    }
}
