//! What was written stays when the OST has it: who reads it again asks nobody.
//!
//! It is kept as what was read is ([`super::clean`]), under the lock that it was written under. What is small is kept: larger chunks
//! are of streams, which are read by somebody else, or much later.

use std::sync::Arc;

use bytes::Bytes;

use super::cache::{Answered, Job};
use super::clean::{KEPT_READ_BYTES_MAX, Reader, Reading};
use crate::data::{FileState, WriteBack};
use crate::lock::Writing;

/// A small chunk that is being sent.
pub(super) struct Sent<'a> {
    /// Knows of whatever is written over it, or taken away, from now on.
    reading: Reading<'a>,
    writing: Writing,
    /// It is all that is not sent of its object.
    is_all: bool,
}

impl WriteBack {
    /// Before a chunk is sent; `None` for one that is not kept.
    pub(super) fn before_sent(&self, file: &FileState, job: &Job) -> Option<Sent<'_>> {
        let object = job.chunk.object;
        let bytes: usize = job.writes.iter().flat_map(|(_, slices)| slices).map(Bytes::len).sum();
        if bytes as u64 > KEPT_READ_BYTES_MAX {
            return None;
        }
        let reading = self.clean.reading(object, Reader::Small);
        // In this order: who is about to write more is known to the locks first.
        let writing = self.locks.writing(object)?;
        let is_all = file.inner.lock().cache.is_all_sent(job.chunk);
        Some(Sent { reading, writing, is_all })
    }
}

impl Sent<'_> {
    /// The OST has the chunk, its object ends at `end`, and nobody here has written to the chunk since it was handed out. The caller
    /// holds the lock of the file: who gives the range up waits until the chunk is answered, and drops what is kept of it afterwards.
    pub(super) fn keep(self, locks: &Arc<crate::lock::RangeLocks>, answered: &Answered, end: u64) {
        let Sent { reading, writing, is_all } = self;
        let (Some((first, _)), Some((last, bytes))) = (answered.slices.first(), answered.slices.last())
        else {
            return;
        };
        // In this order: whatever takes the range away drops what is being read of it afterwards.
        if !locks.has_held(&writing, *first..last + bytes.len() as u64, is_all.then_some(end)) {
            return;
        }
        let is_next =
            |(start, bytes): &(u64, Bytes), (next, _): &(u64, Bytes)| start + bytes.len() as u64 == *next;
        for run in answered.slices.chunk_by(is_next) {
            match run {
                [(start, bytes)] if answered.is_lean => reading.share(*start, bytes.clone()),
                [(start, _), ..] => {
                    let run: Vec<Bytes> = run.iter().map(|(_, bytes)| bytes.clone()).collect();
                    reading.keep(*start, &run);
                }
                [] => {}
            }
        }
    }
}
