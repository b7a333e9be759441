//! The way of the data: write-behind cache, sending, reading, sizes of objects.

pub(crate) mod cache;
mod clean;
mod copy;
mod memory;
#[cfg(test)]
mod model;
mod objects;
mod read;
mod room;
mod seek;
mod send;
mod version;
mod write;

use proto::Timestamp;

pub(crate) use clean::Clean;
pub(crate) use memory::Memory;
pub(crate) use objects::{Sum, merge};
pub use read::Pages;
pub(crate) use room::{Rooms, Taken};

/// An application's call that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// When it was made.
    pub(crate) time: Timestamp,
    /// It is durable when it returns: whoever sends it asks for that at once.
    pub(crate) sync: bool,
}
