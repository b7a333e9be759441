//! The commit log: the durable truth of a target.
//!
//! `record`, `sectors` and `segment` are the format, `scan` reads what former boots left, `writer` appends, `tail` collects
//! what the next group commit takes, `commit` is the task that does it.

pub mod commit;
pub mod record;
pub mod scan;
pub mod sectors;
pub mod segment;
pub mod tail;
pub mod writer;

/// Directory of the segment files within the target's.
pub const DIR: &str = "log";
