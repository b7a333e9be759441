//! Bytes on the wire. `docs/wire.md` is the specification.

pub mod batch;
pub mod codec;
pub mod header;
pub mod messages;
mod values;

pub use codec::{DecodeError, Reader, Wire};
pub use header::Header;
pub use messages::{Reply, Request};
