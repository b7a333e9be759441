//! Sessions between real hubs on simulated machines.

// The other crates know this one by its short name.
extern crate weft_rpc as rpc;

mod asked;
mod batch;
mod callback;
mod events;
mod faults;
mod lo;
mod middle;
mod os;
mod resting;
mod slow;
mod strangers;
mod target;
mod tcp;
mod thief;
mod waiting;
