//! The way of the data: write-behind cache, sending, reading, sizes of objects.

pub(crate) mod cache;
mod clean;
mod copy;
mod memory;
#[cfg(test)]
mod model;
mod objects;
mod read;
mod seek;
mod send;
mod version;
mod write;

pub(crate) use clean::Clean;
pub(crate) use memory::Memory;
pub(crate) use objects::{Sum, merge};
pub use read::Pages;
