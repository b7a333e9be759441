//! Targets that several servers may serve, one of them at a time.
//!
//! Who that is says a store of owners ([`OwnerStore`]): the MGS's own ([`MgsOwners`]), or an etcd cluster ([`EtcdOwners`]). A process
//! has one [`Ownerships`], which keeps what it owns and waits for what it may own; [`supervise`] serves one target for as long as it
//! may, starts it again after a failure, and leaves it to another server when it is ordered to. Before it serves a target that its
//! former owner may still use, it has that one fenced ([`Fence`]).

mod etcd;
mod fence;
mod mgs;
mod ownerships;
mod store;
mod supervise;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

pub use etcd::{Credentials, EtcdOwners, Transport};
pub use fence::{Fence, FenceOrder};
pub use mgs::MgsOwners;
pub use ownerships::{Ownership, Ownerships};
pub use store::{Grant, Me, OwnerStore, Renewed, Unavailable};
pub use supervise::{Orders, State, Supervised, supervise};
