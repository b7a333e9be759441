//! Requests over connections: frames on [`rt::net`], authenticated once per connection.

mod accept;
mod admission;
mod handshake;
mod link;
mod sessions;

pub(crate) use accept::{Acceptance, accept_loop};
pub(crate) use link::{Link, LinkError, Links};
pub(crate) use sessions::Sessions;
