//! The client's end of sessions: what drives their machines ([`proto::session::machine`]), and what carries their frames.
//!
//! Another carrier is another variant of [`Carrier`] beside the process itself and a [`Link`], another network in
//! [`crate::address`], and nothing in the machine.

mod call;
mod carrier;
mod connect;
mod driver;
mod link;
mod lo;
mod request;
mod rest;
mod restate;

pub use call::Calling;
pub(crate) use call::Options;
pub(crate) use carrier::Carrier;
pub(crate) use driver::Driver;
pub(crate) use link::{Link, LinkError, Links};
pub(crate) use lo::{verify_message, verify_reply};
pub use restate::Restate;
