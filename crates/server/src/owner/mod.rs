//! Targets that several servers may serve, one of them at a time.
//!
//! Who that is says a store of owners ([`OwnerStore`]): the MGS's own ([`MgsOwners`]). A process has one [`Ownerships`], which
//! keeps what it owns and waits for what it may own; [`supervise`] serves one target for as long as it may, starts it again
//! after a failure, and leaves it to another server when it is ordered to.

mod mgs;
mod ownerships;
mod store;
mod supervise;

pub use mgs::MgsOwners;
pub use ownerships::{Ownership, Ownerships};
pub use store::{Me, OwnerStore, Renewed, Unavailable};
pub use supervise::{Orders, State, Supervised, supervise};
