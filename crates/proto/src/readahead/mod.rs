//! What to read before it is asked for: sequential and strided readers, byte by byte.
//!
//! A [`File`] hears of reads and says which bytes to fetch now; it hears what became of them. The rules follow Lustre's
//! read-ahead as it is since LU-12518 (`lustre/llite/rw.c`): it counts bytes and not pages, and a read that does not belong to a
//! pattern leaves the pattern alone. There is no clock, no request and no cache here: the client fetches, keeps and
//! drops. `docs/readahead.md` says how the decisions are made.
//!
//! The order of the calls: [`File::read`] when an application reads, then a request for each range that it gives, then
//! [`File::arrived`] or [`File::lost`] for each of them; [`File::lost`] too when bytes that have arrived are not there any
//! more; [`File::closed`] at the end of a handle. What all files of a mount share is a [`Mount`].

mod budget;
mod file;
mod pages;
mod settings;
mod spans;
mod stats;
mod stream;
mod streams;
mod stride;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use budget::Budget;
pub use file::{Decision, File, Why};
pub use settings::{PAGE_BYTES, Settings, Unit};
pub use stats::{Counter, Sampled, Stats, Width};

/// What the files of a mount share: the settings, the memory for what is ahead, and the counts.
#[derive(Debug, Clone)]
pub struct Mount {
    /// May change at any time; what is ahead already stays.
    pub settings: Settings,
    /// Nothing more is fetched ahead: the memory is needed for other things.
    pub is_short: bool,
    /// Bytes that are ahead of all readers.
    pub budget: Budget,
    /// Lustre's `read_ahead_stats`.
    pub stats: Stats,
}

impl Mount {
    /// Nothing is ahead yet.
    pub fn new(settings: Settings) -> Mount {
        Mount { settings, is_short: false, budget: Budget::default(), stats: Stats::default() }
    }
}

/// Number of pages that a range touches.
fn pages_of(range: &Range<u64>) -> u64 {
    match range.is_empty() {
        true => 0,
        false => (range.end - 1) / PAGE_BYTES - range.start / PAGE_BYTES + 1,
    }
}

/// Cuts a range where a request may end: at multiples of `rpc_bytes`.
fn pieces(range: Range<u64>, rpc_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = (at - at % rpc_bytes).saturating_add(rpc_bytes).min(range.end);
        let piece = at..end;
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}
