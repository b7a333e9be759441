//! Requests over connections: frames on [`rt::net`], authenticated once per connection.

mod accept;
mod admission;
mod batch;
mod door;
mod handshake;
mod link;
mod sealed;

pub(crate) use accept::{Acceptance, Calling, Connection, accept_loop};
pub(crate) use link::{Link, LinkError, Links};
