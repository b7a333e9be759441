//! Dirty bytes of one chunk in memory for all of it, each at its place: writes in any order become one slice when the chunk is full, which a
//! disk takes without a copy.

use std::ops::Range;

use bytes::Bytes;
use proto::intervals::Intervals;

use super::memory::{Buffer, Memory};

pub(crate) struct Whole {
    /// Where the chunk begins in the object.
    start: u64,
    buffer: Buffer,
    /// What of it was written, in bytes of the object. The rest of the buffer may hold anything.
    written: Intervals<()>,
}

impl Whole {
    /// Nothing is written yet of the chunk that `offset` lies in.
    pub(crate) fn new(memory: &Memory, offset: u64) -> Whole {
        let chunk = memory.chunk_bytes();
        let start = offset - offset % chunk;
        Whole { start, buffer: memory.buffer(start, chunk as usize), written: Intervals::default() }
    }

    /// Puts `data` at `offset`; returns how many bytes are dirty now that were not.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let range = offset..offset + data.len() as u64;
        let at = self.at(&range);
        self.buffer.bytes_mut()[at].copy_from_slice(data);
        let new = self.written.missing(range.clone()).iter().map(|part| part.end - part.start).sum();
        self.written.add(range);
        new
    }

    /// Takes a range out; returns how many dirty bytes that were.
    pub(crate) fn cut(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        self.written.cut(range, |()| true).iter().map(|(part, ())| part.end - part.start).sum()
    }

    /// Offset behind the last dirty byte.
    pub(crate) fn end(&self) -> Option<u64> {
        self.written.end()
    }

    /// Runs of dirty bytes, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.written.iter().map(|(run, ())| run)
    }

    /// How many there are.
    pub(crate) fn run_count(&self) -> usize {
        self.written.len()
    }

    /// Copies of the dirty bytes in a range, in order.
    pub(crate) fn copy(&self, range: Range<u64>) -> Vec<(u64, Bytes)> {
        let copy = |(run, ()): (Range<u64>, ())| {
            let part = run.start.max(range.start)..run.end.min(range.end);
            (part.start, Bytes::copy_from_slice(&self.buffer.bytes()[self.at(&part)]))
        };
        self.written.touching(range.clone()).map(copy).collect()
    }

    /// Its memory, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.buffer.bytes().len()
    }

    /// All dirty bytes as slices of one buffer that nobody changes any more, in order.
    pub(crate) fn freeze(self) -> Vec<(u64, Bytes)> {
        let Whole { start, buffer, written } = self;
        let all = buffer.freeze();
        written
            .iter()
            .map(|(run, ())| (run.start, all.slice((run.start - start) as usize..(run.end - start) as usize)))
            .collect()
    }

    fn at(&self, range: &Range<u64>) -> Range<usize> {
        (range.start - self.start) as usize..(range.end - self.start) as usize
    }
}
