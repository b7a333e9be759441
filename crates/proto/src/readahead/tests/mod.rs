//! Readers of all kinds, and what is fetched for them.

mod events;
mod mixed;
mod model;
mod pages;
mod sequential;
mod strided;

use std::ops::Range;

use rt::sim::Rng;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// A record of IO500's ior-hard, in bytes.
const RECORD: u64 = 47_008;

/// Lustre's settings on a large machine, with requests of 1 MiB.
fn settings() -> Settings {
    Settings::new(64 << 30, MIB)
}

/// A file, and a client whose requests arrive at once.
struct World {
    mount: Mount,
    file: File,
    size: u64,
}

impl World {
    fn new(size: u64) -> World {
        World::with(settings(), size)
    }

    fn with(settings: Settings, size: u64) -> World {
        World { mount: Mount::new(settings), file: File::default(), size }
    }

    /// Handle 1 reads; what is fetched for that, neighbours joined.
    fn read(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
        joined(&self.read_by(1, offset, len).fetch)
    }

    fn read_by(&mut self, handle: u64, offset: u64, len: u64) -> Decision {
        let decision = self.file.read(&mut self.mount, handle, offset..offset + len, self.size);
        self.arrive(decision)
    }

    /// The kernel fills the pages of a read by a handle.
    fn fill_by(&mut self, handle: u64, offset: u64, len: u64) -> Decision {
        let pages = offset / PAGE_BYTES * PAGE_BYTES..(offset + len).next_multiple_of(PAGE_BYTES);
        let decision = self.file.fill(&mut self.mount, handle, pages, self.size);
        self.arrive(decision)
    }

    fn arrive(&mut self, decision: Decision) -> Decision {
        for range in &decision.fetch {
            assert_eq!(self.file.arrived(range.clone()), std::slice::from_ref(range));
        }
        decision
    }

    fn count(&self, counter: Counter) -> u64 {
        self.mount.stats.get(counter).samples
    }

    /// Hits of 100 pages, since the counts were cleared.
    fn hits_percent(&self) -> u64 {
        let (hits, misses) = (self.count(Counter::Hits), self.count(Counter::Misses));
        100 * hits / (hits + misses)
    }
}

/// The one range that these are.
fn one(ranges: &[Range<u64>]) -> Range<u64> {
    let joined = joined(ranges);
    let [range] = &joined[..] else { panic!("{ranges:?} is not one range") };
    range.clone()
}

fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}
