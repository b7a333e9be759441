//! An etcd cluster as store of owners (`docs/adr/0007-owners-in-etcd.md`).
//!
//! Two keys of each target: `/weft/FSNAME/owners/TARGET` says who the newest owner is, and is written by compare-and-swap
//! only; `/weft/FSNAME/beats/TARGET` is written with each renewal, under the condition that the first one is still the
//! owner's. Whoever wants the target and sees neither change for as long as a renewal holds swaps the first one, under the
//! condition that both are what it has seen. So no clock but the owner's and the taker's own counts, and only how fast they go.
//!
//! Everything that is sent may be sent again: a renewal and a release say nothing else the second time, and what was swapped
//! is recognised.

mod owners;

mod quiet;

mod client;
mod endpoints;
mod kv;

#[cfg(test)]
pub(super) mod model;
#[cfg(test)]
mod tests;

pub use client::{Credentials, Transport};
pub use owners::EtcdOwners;
