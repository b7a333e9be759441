//! The client with a real MDT and OSTs that tests control, on one simulated machine.

// The other crates know this one by its short name.
extern crate weft_client as client;

mod ahead;
mod appends;
mod behind;
mod bounds;
mod crossing;
mod durable;
mod fake;
mod jobs;
mod kept;
mod locks;
mod many;
mod memory;
mod model;
mod opens;
mod own_opens;
mod parameters;
mod past;
mod posix;
mod ranges;
mod resting;
mod shared;
mod sizes;
mod walk;
mod world;
