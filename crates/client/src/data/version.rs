//! Dirty bytes of one chunk that nobody has sent yet: disjoint pieces, exact to the byte.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::{JobId, Timestamp};
use rt::Time;
use rt::buf::ALIGN;

use super::memory::{Buffer, Memory};
use super::whole::Whole;

/// A piece up to this size grows by itself when a write continues it; what is larger goes into memory for the whole chunk.
const GROW_BYTES_MAX: usize = 64 << 10;
/// So does what is more than this part of a chunk, in pieces of any size.
const WHOLE_PART: u64 = 4;
/// Bytes that a piece costs besides its data, as counted against the bound of dirty data.
pub(crate) const PIECE_COST: u64 = 512;

/// Bytes of a block of a target.
const BLOCK: u64 = 4096;

/// The space that a target needs for `len` bytes at `offset`, whatever is there: whole blocks, in bytes.
pub(crate) fn space_of(offset: u64, len: u64) -> u64 {
    (offset % BLOCK).saturating_add(len).div_ceil(BLOCK).saturating_mul(BLOCK)
}

struct Piece {
    len: usize,
    buffer: Buffer,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[..self.len]
    }

    /// Where the memory of a piece ends that begins at `start` and was continued.
    fn grown_end(start: u64, limit: u64) -> u64 {
        (start - start % ALIGN as u64 + GROW_BYTES_MAX as u64).min(limit)
    }

    /// A copy with room for what may follow.
    fn grow(&mut self, memory: &Memory, start: u64, limit: u64) {
        let mut buffer = memory.buffer(start, (Piece::grown_end(start, limit) - start) as usize);
        buffer.bytes_mut()[..self.len].copy_from_slice(self.bytes());
        self.buffer = buffer;
    }
}

/// What is being filled.
pub(crate) struct Version {
    /// By their offset in the object, as long as there is no `whole`.
    pieces: BTreeMap<u64, Piece>,
    /// Memory for all of the chunk, once enough of it was written in small pieces.
    whole: Option<Whole>,
    /// Bytes of all pieces.
    pub(crate) bytes: u64,
    /// What the writers took from the bound of dirty data for this version.
    pub(crate) charge: u64,
    /// Number of the first write that is in it.
    pub(crate) first_write: u64,
    /// When that was.
    pub(crate) since: Time,
    /// Time of the newest application call.
    pub(crate) time: Timestamp,
    /// The job of the newest one.
    pub(crate) owner: JobId,
}

impl Version {
    pub(crate) fn new(first_write: u64, since: Time, time: Timestamp) -> Version {
        let owner = JobId::NONE;
        Version { pieces: BTreeMap::new(), whole: None, bytes: 0, charge: 0, first_write, since, time, owner }
    }

    pub(crate) fn pieces(&self) -> usize {
        self.whole.as_ref().map_or(self.pieces.len(), Whole::run_count)
    }

    /// The space that a target needs for it, in bytes: each piece begins a block there.
    pub(crate) fn space(&self) -> u64 {
        let pieces: u64 = self.pieces.values().map(|piece| space_of(0, piece.len as u64)).sum();
        let runs = self.whole.iter().flat_map(Whole::runs);
        pieces + runs.map(|run| space_of(0, run.end - run.start)).sum::<u64>()
    }

    /// Offset behind the last dirty byte.
    pub(crate) fn end(&self) -> Option<u64> {
        match &self.whole {
            Some(whole) => whole.end(),
            None => self.pieces.last_key_value().map(|(start, piece)| start + piece.len as u64),
        }
    }

    /// Puts `data` at `offset`; returns what it adds to the charge. `ready` is a buffer that holds `data` already.
    /// `limit` is the end of the chunk.
    pub(crate) fn write(
        &mut self,
        memory: &Memory,
        offset: u64,
        data: &[u8],
        ready: Option<Buffer>,
        limit: u64,
    ) -> u64 {
        let end = offset + data.len() as u64;
        let replaces_all = ready.is_some() && data.len() as u64 == memory.chunk_bytes();
        let added = if let Some(whole) = self.whole.as_mut().filter(|_| !replaces_all) {
            Self::write_whole(whole, &mut self.bytes, offset, data)
        } else if let Some(added) = self.write_in_place(memory, offset, data, ready.is_some(), limit) {
            added
        } else if ready.is_none() && self.outgrows_pieces(memory, offset, data) {
            let mut whole = self.gather(memory, offset);
            let added = Self::write_whole(&mut whole, &mut self.bytes, offset, data);
            self.whole = Some(whole);
            added
        } else {
            let removed = self.cut(memory, offset, end);
            let buffer = ready.unwrap_or_else(|| {
                let mut buffer = memory.buffer(offset, data.len());
                buffer.bytes_mut().copy_from_slice(data);
                buffer
            });
            self.pieces.insert(offset, Piece { len: data.len(), buffer });
            self.bytes += data.len() as u64;
            data.len() as u64 - removed + PIECE_COST
        };
        self.charge += added;
        added
    }

    fn write_whole(whole: &mut Whole, bytes: &mut u64, offset: u64, data: &[u8]) -> u64 {
        let runs = whole.run_count();
        let new = whole.write(offset, data);
        *bytes += new;
        new + if whole.run_count() > runs { PIECE_COST } else { 0 }
    }

    /// Whether a write that fits into no piece is to go into memory for all of its chunk: much of that is dirty, or the write goes on where a
    /// piece ended, or will be gone on with, for it is large and ends within a page.
    fn outgrows_pieces(&self, memory: &Memory, offset: u64, data: &[u8]) -> bool {
        let end = offset + data.len() as u64;
        let goes_on = || {
            let before = self.pieces.range(..offset).next_back();
            before.is_some_and(|(start, piece)| start + piece.len as u64 >= offset)
        };
        let is_begun = data.len() > GROW_BYTES_MAX && !end.is_multiple_of(ALIGN as u64);
        self.bytes + data.len() as u64 >= memory.chunk_bytes() / WHOLE_PART || is_begun || goes_on()
    }

    /// Memory for the whole chunk with all pieces in it; there are none any more.
    fn gather(&mut self, memory: &Memory, offset: u64) -> Whole {
        let mut whole = Whole::new(memory, offset);
        for (start, piece) in std::mem::take(&mut self.pieces) {
            whole.write(start, piece.bytes());
        }
        whole
    }

    /// Writes into or behind an existing piece, if there is a fit one.
    fn write_in_place(
        &mut self,
        memory: &Memory,
        offset: u64,
        data: &[u8],
        ready: bool,
        limit: u64,
    ) -> Option<u64> {
        let end = offset + data.len() as u64;
        let (&start, piece) = self.pieces.range_mut(..=offset).next_back()?;
        let at = (offset - start) as usize;
        let piece_end = start + piece.len as u64;
        if end <= piece_end {
            piece.buffer.bytes_mut()[at..at + data.len()].copy_from_slice(data);
            return Some(0);
        }
        let fits = at + data.len() <= piece.buffer.bytes().len();
        if offset > piece_end || ready || !(fits || end <= Piece::grown_end(start, limit)) {
            return None;
        }
        if !fits {
            piece.grow(memory, start, limit);
        }
        piece.buffer.bytes_mut()[at..at + data.len()].copy_from_slice(data);
        // What lay behind is cut before the piece gets its new length, so that it is not cut itself.
        let removed = self.cut(memory, piece_end, end);
        let grown = end - piece_end;
        if let Some(piece) = self.pieces.get_mut(&start) {
            piece.len += grown as usize;
        }
        self.bytes += grown;
        Some(grown - removed)
    }

    /// Takes `[from, to)` out; returns how many dirty bytes that were.
    pub(crate) fn cut(&mut self, memory: &Memory, from: u64, to: u64) -> u64 {
        if let Some(whole) = &mut self.whole {
            let removed = whole.cut(from..to);
            self.bytes -= removed;
            if self.bytes == 0 {
                self.whole = None;
            }
            return removed;
        }
        let mut removed = 0;
        if let Some((&start, piece)) = self.pieces.range_mut(..from).next_back() {
            let end = start + piece.len as u64;
            if end > from {
                let behind = (end > to).then(|| {
                    let bytes = &piece.bytes()[(to - start) as usize..];
                    let mut buffer = memory.buffer(to, bytes.len());
                    buffer.bytes_mut().copy_from_slice(bytes);
                    Piece { len: bytes.len(), buffer }
                });
                piece.len = (from - start) as usize;
                removed += end.min(to) - from;
                if let Some(behind) = behind {
                    self.pieces.insert(to, behind);
                }
            }
        }
        while let Some((&start, _)) = self.pieces.range(from..to).next() {
            let Some(mut piece) = self.pieces.remove(&start) else { break };
            let end = start + piece.len as u64;
            removed += end.min(to) - start;
            if end > to {
                piece.buffer.advance((to - start) as usize);
                piece.len = (end - to) as usize;
                self.pieces.insert(to, piece);
            }
        }
        self.bytes -= removed;
        removed
    }

    /// Copies of the dirty bytes in `[from, to)`, in order.
    pub(crate) fn copy(&self, from: u64, to: u64) -> Vec<(u64, Bytes)> {
        if let Some(whole) = &self.whole {
            return whole.copy(from..to);
        }
        let before = self.pieces.range(..from).next_back().into_iter();
        let mut found = Vec::new();
        for (&start, piece) in before.chain(self.pieces.range(from..to)) {
            let (low, high) = (start.max(from), (start + piece.len as u64).min(to));
            if low < high {
                let bytes = &piece.bytes()[(low - start) as usize..(high - start) as usize];
                found.push((low, Bytes::copy_from_slice(bytes)));
            }
        }
        found
    }

    /// Whether the bytes are at least half of the memory that they are in.
    pub(crate) fn is_lean(&self) -> bool {
        let pieces: usize = self.pieces.values().map(|piece| piece.buffer.bytes().len()).sum();
        let held = pieces + self.whole.as_ref().map_or(0, Whole::held);
        held as u64 <= 2 * self.bytes
    }

    /// All dirty bytes as slices that nobody changes any more, in order.
    pub(crate) fn freeze(self) -> Vec<(u64, Bytes)> {
        if let Some(whole) = self.whole {
            return whole.freeze();
        }
        let share = |(start, piece): (u64, Piece)| {
            let len = piece.len;
            (start, piece.buffer.freeze().slice(..len))
        };
        self.pieces.into_iter().map(share).collect()
    }
}
