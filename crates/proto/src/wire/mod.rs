//! Bytes on the wire. `docs/wire.md` is the specification.

pub mod batch;
pub mod codec;
pub mod header;
pub mod messages;
mod values;

pub use codec::{Body, DecodeError, Reader, Wire, put_framed};
pub use header::Header;
pub use messages::{Reply, Request};
