//! The lease of a client with the MGS: its one sign of life, whatever the number of targets (`docs/recovery.md#leases`).
//!
//! Pure state machines: [`ClientLease`] is the client's side, [`Leases`] the MGS's. Times are nanoseconds of the caller's
//! own clock, which only goes forward; the two sides never compare them. The client counts from the moment at which it
//! sent a renewal and the MGS from the one at which it got it, so the client's lease is over first.

mod client;
mod table;

pub use client::{ClientLease, Due, Look, Renewed, Told};
pub use table::{Counts, Leases, Overview};

/// How long a lease lasts, in milliseconds.
pub const TTL_MS: u32 = 15_000;
/// How long a client that somebody waits for may be silent, nobody having closed its connection: it may be stopped, or behind a link
/// that is down, and be back with all that it holds.
pub const SILENT_MAX_MS: u32 = 170_000;
/// How often it is renewed, in nanoseconds.
pub const RENEW_NANOS: u64 = 5_000_000_000;
/// So long before its end a client stops using what it holds: time for the kernel to forget. In nanoseconds.
pub const MARGIN_NANOS: u64 = 3_000_000_000;

const NANOS_PER_MS: u64 = 1_000_000;
