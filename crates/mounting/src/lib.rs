//! How a program reaches a file system: what it is called and where its MGS is ([`source`]), the key that lets it in ([`keys`]), how the
//! client is to work ([`options`]), and the client itself ([`connect`]). `weft mount` puts a FUSE mount on that; a library, or a tool that
//! needs no mount, uses the client as it is.

pub mod connect;
mod failure;
// They are files of the program's user.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod keys;
pub mod options;
pub mod source;

pub use failure::{Failure, Result};
pub use options::Options;
pub use source::Source;
