//! What the MDT lets this client keep: names, attributes, pages of directories, extended attributes, open files.
//!
//! Everything is kept under inode bits that came with the answer, and dropped when they are called back
//! (`docs/locks.md`). [`inode`] is what is kept of one file, [`table`] all of them, [`answer`] the way in and out, [`told`] what an answer permits the
//! kernel, [`recall`] the callbacks.

mod answer;
mod inode;
mod recall;
mod table;
mod told;

pub(crate) use answer::Known;
pub(crate) use inode::{OpenKept, Touch};
pub(crate) use recall::{Lost, Recalls};
pub(crate) use table::{Asked, Changing, Inodes};
pub use told::{Fill, OnItsWay, Told};
