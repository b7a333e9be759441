//! The last requests of a session, for the day on which it is evicted.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::Xid;
use rt::Time;

/// Requests that are remembered of each session: 16 bytes each.
pub(crate) const RECENT_MAX: usize = 16;

/// Bits of a word that hold the operation; the rest is the request's number.
const OPCODE_BITS: u32 = 16;

/// The newest requests. Written without a lock on the way of every request: while one is written a reader may see its
/// time with the number of the one before it, which no decision rests on.
#[derive(Default)]
pub(crate) struct Recent {
    count: AtomicU64,
    entries: [Entry; RECENT_MAX],
}

#[derive(Default)]
struct Entry {
    time: AtomicU64,
    what: AtomicU64,
}

/// A request of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past {
    pub time: Time,
    pub xid: Xid,
    pub opcode: u16,
}

impl Recent {
    /// Notes a request.
    pub fn note(&self, time: Time, xid: Xid, opcode: u16) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = self.entries.get(number as usize % RECENT_MAX) else { return };
        entry.time.store(time.0, Ordering::Relaxed);
        entry.what.store(xid.0 << OPCODE_BITS | u64::from(opcode), Ordering::Relaxed);
    }

    /// Requests so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// When the newest one came.
    pub fn last(&self) -> Option<Time> {
        self.list().last().map(|past| past.time)
    }

    /// The newest ones, oldest first.
    pub fn list(&self) -> Vec<Past> {
        let count = self.count();
        let first = count.saturating_sub(RECENT_MAX as u64);
        let entry = |number: u64| self.entries.get(number as usize % RECENT_MAX);
        let past = |entry: &Entry| {
            let what = entry.what.load(Ordering::Relaxed);
            Past {
                time: Time(entry.time.load(Ordering::Relaxed)),
                xid: Xid(what >> OPCODE_BITS),
                opcode: what as u16,
            }
        };
        (first..count).filter_map(entry).map(past).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_in_order() {
        let recent = Recent::default();
        assert!(recent.list().is_empty());
        for n in 1..=20 {
            recent.note(Time(n * 10), Xid(n), 60);
        }
        let list = recent.list();
        assert_eq!((list.len(), recent.count()), (RECENT_MAX, 20));
        assert_eq!(list.first(), Some(&Past { time: Time(50), xid: Xid(5), opcode: 60 }));
        assert_eq!(list.last(), Some(&Past { time: Time(200), xid: Xid(20), opcode: 60 }));
    }
}
