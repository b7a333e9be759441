//! Locks as pure state machines.

pub mod flock;
