//! How large, how many at a time, how slow and in how many pieces the reads and writes of a target's disk are: of objects and of the log.
//!
//! The engine's own files are not counted: they are written in the background, out of what the log has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::statistics::Histogram;
use rt::{Rt, Time};

use crate::object::Run;

/// One direction.
#[derive(Debug, Default)]
pub struct Side {
    /// Bytes, in powers of two.
    pub sizes: Histogram,
    /// How many were under way, each with itself.
    pub in_flight: Histogram,
    /// Milliseconds, in powers of two.
    pub times: Histogram,
    /// Reads or writes of the disk that one request took.
    pub pieces: Histogram,
    /// How often within one request the disk's blocks do not follow one another.
    pub jumps: Histogram,
    under_way: AtomicU64,
}

/// What a target's disk does.
#[derive(Debug, Default)]
pub struct DiskCounts {
    /// Reads of objects.
    pub reads: Side,
    /// Writes of objects and of the log.
    pub writes: Side,
}

/// A read or write under way. Dropped before its end it is not counted.
pub(crate) struct Under<'a> {
    side: &'a Side,
    began: Time,
    rank: u64,
}

impl Side {
    /// A read or write begins.
    pub(crate) fn begin(&self, rt: &Rt) -> Under<'_> {
        let rank = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        Under { side: self, began: rt.now(), rank }
    }

    /// A request for data takes these pieces of the disk, in the order of the data. One that takes none is not counted.
    pub(crate) fn note_pieces(&self, runs: impl Iterator<Item = Run>) {
        let (mut pieces, mut jumps) = (0, 0);
        let mut end = None;
        for run in runs {
            pieces += 1;
            jumps += u64::from(end.is_some_and(|end| end != (run.file, run.block)));
            end = Some((run.file, run.block.saturating_add(run.count)));
        }
        if pieces > 0 {
            self.pieces.note(pieces);
            self.jumps.note(jumps);
        }
    }

    fn clear(&self) {
        let all = [&self.sizes, &self.in_flight, &self.times, &self.pieces, &self.jumps];
        all.into_iter().for_each(Histogram::clear);
    }
}

impl Under<'_> {
    /// `bytes` are read or written.
    pub(crate) fn done(self, rt: &Rt, bytes: usize) {
        let took: Duration = rt.now() - self.began;
        self.side.sizes.note_log2(bytes as u64);
        self.side.in_flight.note(self.rank);
        self.side.times.note_log2(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.side.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskCounts {
    /// Counts anew.
    pub fn clear(&self) {
        self.reads.clear();
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::FileId;

    #[test]
    fn pieces_that_follow_one_another_are_no_jumps() {
        let side = Side::default();
        let file = |seq| FileId { boot: 1, seq };
        let run = |seq, block, count| Run { file: file(seq), block, count };
        side.note_pieces([run(1, 0, 4), run(1, 4, 4), run(1, 9, 1), run(2, 10, 1)].into_iter());
        side.note_pieces(std::iter::empty());
        assert_eq!((side.pieces.read()[4], side.jumps.read()[2]), (1, 1));
        assert_eq!(
            side.pieces.read().iter().sum::<u64>(),
            1,
            "what takes nothing of the disk is not counted"
        );
    }
}
