//! Locks as pure state machines.

pub mod ages;
pub mod bits;
pub mod flock;
pub mod range;
