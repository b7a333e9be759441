//! Locks that this client has.
//!
//! *Extent locks*: ranges of objects that it may read or change until it is called back (`docs/locks.md`). [`held`]
//! is the state of one object, pure; [`spaces`] counts what is held of each OST; [`tokens`] asks, pins and gives back; [`filling`] keeps that from waiting for the
//! kernel's page cache; [`change`] is for
//! what is not sent as data; [`dead`] is for files that are gone; [`callbacks`] is what targets call.
//! *File locks* of applications are [`flock`]. What the MDT lets the client keep is [`crate::cache`].

mod callbacks;
mod change;
mod dead;
mod filling;
pub(crate) mod flock;
mod held;
mod needs;
mod ranges;
mod spaces;
mod tokens;

pub(crate) use callbacks::CalledBack;
pub(crate) use change::Eras;
pub(crate) use filling::Filling;
pub(crate) use held::Pages;
pub(crate) use needs::{beyond, needs_of, surely, whole};
pub(crate) use spaces::Keep;
pub(crate) use tokens::{Locks, ObjectLocks, Pins};
