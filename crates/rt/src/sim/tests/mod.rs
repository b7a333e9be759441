//! Tests of the simulation, from outside: through [`crate::Rt`] as roles use it.

mod determinism;
mod disk;
mod executor;
mod net;

use bytes::Bytes;

use crate::{Addr, Frame};

fn addr(text: &str) -> Addr {
    Addr(text.to_owned())
}

/// A frame whose head says a number.
fn frame(number: u64) -> Frame {
    Frame { head: Bytes::copy_from_slice(&number.to_le_bytes()), bulk: Vec::new() }
}

fn number(frame: &Frame) -> u64 {
    u64::from_le_bytes(frame.head[..8].try_into().expect("the test sends eight bytes"))
}
