//! Locks that this client has.

pub(crate) mod flock;
