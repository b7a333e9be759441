//! What the MDT lets this client keep: names, attributes, pages of directories, extended attributes, open files.
//!
//! Everything is kept under inode bits that came with the answer, and dropped when they are called back
//! (`docs/locks.md`). Each part calls those before it only:
//!
//! - [`inode`]: what is kept of one file, with its [`dir_names`] if it is a directory, [`table`]: of all of them, and [`asked`]: questions that are under way;
//! - [`kept`]: what of it may be used, and [`listing`]: directories of which all is known;
//! - [`kernel`]: what the kernel may keep, and has to forget; an answer that is on its way to it is [`told`], behind a [`gate`];
//! - [`answer`]: what answers bring;
//! - [`opens`]: files that are open, at the MDT or without it ([`own_opens`]);
//! - [`recall`]: what is called back, [`lost`]: what the MDT has forgotten, [`room`]: what is given up;
//! - [`promise`]: what is told before the MDT has made it.
//!
//! One thing comes back: whoever learns too much has room made ([`answer::MakesRoom`]).

mod answer;
mod asked;
mod dir_names;
mod gate;
mod inode;
mod kept;
mod kernel;
mod listing;
mod lost;
mod opens;
mod own_opens;
mod promise;
mod recall;
mod room;
mod table;
mod told;

use std::sync::{Arc, Weak};

use rt::Rt;

use super::{Accesses, Changes};
use crate::copies::Keepers;
use crate::data::Files;
use crate::lease::Lease;
use crate::targets::Targets;

pub(crate) use answer::Answers;
pub(crate) use asked::{Asked, Changing};
pub(crate) use inode::{OpenKept, Touch};
pub(crate) use kept::{Kept, Known};
pub(crate) use kernel::KernelCopies;
pub(crate) use lost::LostBits;
pub(crate) use opens::Opens;
pub(in crate::names) use opens::Taken;
pub(in crate::names) use own_opens::{End, Untold};
pub(crate) use promise::Promises;
pub(crate) use recall::Recalls;
pub(crate) use room::Room;
pub(crate) use table::Inodes;
pub use told::{Fill, OnItsWay, Told};

/// What the MDT lets a client keep.
pub(crate) struct MetadataCache {
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) kernel: Arc<KernelCopies>,
    pub(crate) answers: Arc<Answers>,
    pub(crate) opens: Arc<Opens>,
    pub(crate) recalls: Arc<Recalls>,
    pub(crate) lost: Arc<LostBits>,
    pub(crate) room: Arc<Room>,
    pub(crate) promises: Promises,
    /// Accesses that the MDT is told of at close.
    pub(crate) accesses: Arc<Accesses>,
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
        let (accesses, changes) = (Arc::new(Accesses::default()), Arc::new(Changes::new(targets.clone())));
        let inodes = Arc::new(Inodes::new(rt.memory_share()));
        let kept = Arc::new(Kept::new(inodes.clone(), lease.clone()));
        let kernel = Arc::new(KernelCopies::new(kept.clone(), lease, accesses.clone(), files, copies));
        let answers = Arc::new(Answers::new(inodes.clone(), targets.clone()));
        let opens = Arc::new(Opens::new(
            kept.clone(),
            answers.clone(),
            targets.clone(),
            accesses.clone(),
            changes.clone(),
        ));
        let recalls = Arc::new(Recalls::new(rt.clone(), inodes.clone(), kernel.clone(), opens.clone()));
        let lost = Arc::new(LostBits::new(
            rt.clone(),
            targets.clone(),
            inodes.clone(),
            kernel.clone(),
            opens.clone(),
        ));
        let room = Arc::new(Room::new(rt, targets, inodes.clone(), kernel.clone(), opens.clone()));
        let maker: Weak<Room> = Arc::downgrade(&room);
        answers.set_room(maker);
        let promises = Promises::new(kept.clone(), answers.clone(), recalls.clone());
        MetadataCache {
            inodes,
            kept,
            kernel,
            answers,
            opens,
            recalls,
            lost,
            room,
            promises,
            accesses,
            changes,
        }
    }
}
