//! The client's end of sessions: what drives their machines ([`proto::session::machine`]), and what carries their frames.
//!
//! Another carrier is another variant of [`Carrier`] beside the process itself and [`crate::tcp`], another network in
//! [`crate::address`], and nothing in the machine.

mod call;
mod carrier;
mod connect;
mod driver;
mod lo;
mod request;
mod rest;

pub use call::Calling;
pub(crate) use call::Options;
pub(crate) use carrier::Carrier;
pub(crate) use driver::Driver;
pub(crate) use lo::{verify_message, verify_reply};
