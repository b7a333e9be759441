//! Locks as pure state machines.

pub mod bits;
pub mod flock;
pub mod range;
