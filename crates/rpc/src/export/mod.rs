//! The server's end of sessions: connections are accepted, their requests are let in and answered, and it is known where each session
//! lives.

mod accept;
mod admission;
mod batch;
mod connection;
mod door;
mod parked;
mod reply;
mod sessions;

pub(crate) use accept::Acceptance;
pub(crate) use connection::{Calling, Connection};
pub(crate) use sessions::{Absence, Callee, Key, Sessions, Way};
