//! Requests over connections: frames on [`rt::net`], authenticated once per connection.

mod accept;
mod admission;
mod batch;
mod connection;
mod door;
mod handshake;
mod link;
mod sealed;

pub(crate) use accept::{Acceptance, accept_loop};
pub(crate) use connection::{Calling, Connection};
pub(crate) use link::{Link, LinkError, Links};
