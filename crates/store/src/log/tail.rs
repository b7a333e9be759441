//! The end of the log in memory: what the next group commit will take.

use std::time::Duration;

use rt::{File, Time};

use crate::limits::RECORD_BYTES_TARGET;
use crate::log::record::Body;

/// When the next group commit is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing is pending.
    Never,
    /// At this time, unless something makes it urgent.
    At(Time),
    /// At once.
    Now,
    /// Nothing is pending and nothing will come.
    Closed,
}

/// What one group commit makes durable.
pub struct Group {
    /// The records' bodies, in order.
    pub bodies: Vec<Body>,
    /// Files to sync first.
    pub data: Vec<File>,
    /// Files to sync before the engine gets the group.
    pub behind: Vec<File>,
    /// Last transno of the group.
    pub last: u64,
    /// Bytes that were counted as pending.
    pub bytes: u64,
}

/// Changes that no group commit has taken yet.
#[derive(Default)]
pub struct Tail {
    /// The newest transno.
    pub last: u64,
    /// Transnos that are drawn are not smaller.
    pub floor: u64,
    /// Last transno that a group commit has taken.
    pub taken: u64,
    /// Somebody waits.
    pub urgent: bool,
    /// No further changes are accepted.
    pub closing: bool,
    /// The task ends without another commit.
    pub abandoned: bool,
    /// Space for the log was short: try again to reserve some.
    pub reserve: bool,
    body: Body,
    full: Vec<Body>,
    data: Vec<File>,
    behind: Vec<File>,
    bytes: u64,
    since: Option<Time>,
}

impl Tail {
    /// A tail behind `last`.
    pub fn new(last: u64) -> Tail {
        Tail { last, taken: last, ..Tail::default() }
    }

    /// Bytes that wait for the next group commit.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// Starts a batch of `count` changes that take `bytes` in all. Draws its transno, or keeps `wanted` if that is
    /// behind all others: what is to have one of before does not go behind the floor.
    pub fn begin(
        &mut self,
        wanted: Option<u64>,
        count: usize,
        bytes: usize,
        now: impl FnOnce() -> Time,
    ) -> (u64, &mut Body) {
        let least = if wanted.is_some() { 0 } else { self.floor };
        let transno = wanted.unwrap_or(0).max(self.last + 1).max(least);
        self.last = transno;
        self.since.get_or_insert_with(now);
        self.bytes += bytes as u64;
        if self.body.bytes.len() >= RECORD_BYTES_TARGET {
            let fresh = Body { bytes: Vec::with_capacity(RECORD_BYTES_TARGET), ..Body::default() };
            self.full.push(std::mem::replace(&mut self.body, fresh));
        }
        // A body continues a record of this boot only if its transnos do: they do, as `last` only grows.
        self.body.begin_batch(transno, count as u32);
        (transno, &mut self.body)
    }

    /// Adds files to sync before the record of the batch just made, each once however many batches name it. There
    /// are few: a store writes to a handful of data files at a time.
    pub fn sync_first(&mut self, files: Vec<File>) {
        add_each_once(&mut self.data, files);
    }

    /// Adds files to sync before the engine gets the batch just made.
    pub fn sync_later(&mut self, files: Vec<File>) {
        add_each_once(&mut self.behind, files);
    }

    /// When the next group commit is due.
    pub fn due(&self, after: Duration, bytes_max: u64) -> Due {
        if self.abandoned {
            return Due::Closed;
        }
        match self.since {
            None if self.closing => Due::Closed,
            None => Due::Never,
            Some(_) if self.urgent || self.closing || self.bytes >= bytes_max => Due::Now,
            Some(since) => Due::At(since + after),
        }
    }

    /// Takes all that is pending.
    pub fn take(&mut self) -> Group {
        let mut bodies = std::mem::take(&mut self.full);
        bodies.push(std::mem::take(&mut self.body));
        self.urgent = false;
        self.since = None;
        self.taken = self.last;
        Group {
            bodies,
            data: std::mem::take(&mut self.data),
            behind: std::mem::take(&mut self.behind),
            last: self.last,
            bytes: std::mem::take(&mut self.bytes),
        }
    }
}

/// Adds to `files` what is not among them.
pub fn add_each_once(files: &mut Vec<File>, more: Vec<File>) {
    for file in more {
        if !files.iter().any(|known| known.is_same(&file)) {
            files.push(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(200);

    #[test]
    fn a_replayed_transno_is_kept_only_in_front() {
        let mut tail = Tail::new(10);
        let mut draw = |wanted| tail.begin(wanted, 0, 16, Time::default).0;
        assert_eq!(draw(None), 11);
        assert_eq!(draw(Some(20)), 20);
        assert_eq!(draw(Some(15)), 21);
        assert_eq!(draw(Some(21)), 22);
    }

    #[test]
    fn due_after_a_while_or_at_once() {
        let mut tail = Tail::new(0);
        assert_eq!(tail.due(AFTER, 100), Due::Never);
        tail.begin(None, 0, 16, || Time(5));
        tail.begin(None, 0, 16, || Time(7));
        assert_eq!(tail.due(AFTER, 100), Due::At(Time(5) + AFTER));
        assert_eq!(tail.due(AFTER, 32), Due::Now);
        tail.urgent = true;
        assert_eq!(tail.due(AFTER, 100), Due::Now);
        let group = tail.take();
        assert_eq!((group.last, group.bytes, group.bodies.len()), (2, 32, 1));
        assert_eq!(tail.due(AFTER, 100), Due::Never);
        tail.closing = true;
        assert_eq!(tail.due(AFTER, 100), Due::Closed);
    }
}
