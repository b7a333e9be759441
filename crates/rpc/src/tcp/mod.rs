//! Requests over connections: frames on [`rt::net`], authenticated once per connection.

mod accept;
mod admission;
mod batch;
mod handshake;
mod link;

pub(crate) use accept::{Acceptance, Calling, Connection, accept_loop};
pub(crate) use link::{Link, LinkError, Links};
