//! Everything that lies on a target's disk. `docs/disk.md` is the specification.
//!
//! One commit log per target is the durable truth and draws the transnos; memory tables stand above it; an ordered
//! key-value engine is filled behind it. Objects are extents in large preallocated files.

mod apply;
mod atomic_file;
mod binding;
mod boot;
pub mod check;
mod counts;
mod engine;
pub mod error;
mod idle;
pub mod label;
pub mod limits;
mod log;
mod merge;
pub mod note;
pub mod object;
mod open;
pub mod recount;
mod reserve;
mod right;
mod scan;
mod shared;
mod snapshot;
pub mod sums;
mod table;
mod takeover;
pub mod target;
#[cfg(test)]
mod tests;
pub mod view;

pub use counts::{DiskCounts, Side};
pub use error::StoreError;
pub use label::Label;
pub use object::Objects;
pub use right::{Owned, Right};
pub use scan::{Scan, after, scan_all};
pub use snapshot::Snapshot;
pub use sums::Sums;
pub use target::{Author, Batch, Change, Need, Store, Value};
pub use view::{Guarded, Held, Known};
