//! copy_file_range: what lies on one OST is copied there, the rest passes through this client.
//!
//! The source is sent to the OSTs first. A copy on an OST is durable when it is answered, so nothing has to be repeated
//! after a restart of that OST; what passes through the client is a write like any other.

use std::sync::Arc;

use proto::layout::Place;
use proto::limits::BULK_BYTES_MAX;
use proto::wire::messages::CopyObject;
use proto::{Code, Layout, Timestamp};
use rt::wait::join_all;

use crate::data::{Call, Data, FileState};
use crate::lock::{Eras, Pages as Locking, Pins, needs_of, surely};
use crate::{Error, Result};

/// Pieces that are copied at the same time.
const PIECES_MAX: usize = 16;

/// A part of a copy that lies in one object of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Where in the source file.
    offset: u64,
    /// Where in the target file.
    to_offset: u64,
    len: u64,
    /// Object of the source, and where in it.
    from: (Place, u64),
    /// The same of the target.
    to: (Place, u64),
}

/// What was copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    /// Whether that is all that was asked for and is there.
    pub(crate) is_all: bool,
}

/// One file of a copy.
pub(crate) struct Side<'a> {
    pub(crate) file: &'a Arc<FileState>,
    pub(crate) layout: &'a Arc<Layout>,
}

impl Data {
    /// Locks both ranges, that with the smaller id of its first objects first: everybody does it in this order.
    async fn pin_copy(
        self: &Arc<Self>,
        (from, to): &(Side<'_>, Side<'_>),
        (from_offset, to_offset): (u64, u64),
        len: u64,
    ) -> Result<[Pins; 2]> {
        if from.file.fid == to.file.fid {
            let start = from_offset.min(to_offset);
            let end = from_offset.max(to_offset).saturating_add(len);
            let needs = surely(needs_of(to.layout, start, end - start));
            let pins = self.locks.pin(to.file.fid, to.layout, &needs, true, Locking::No).await?;
            return Ok([pins, Pins::default()]);
        }
        let source = surely(needs_of(from.layout, from_offset, len));
        let target = surely(needs_of(to.layout, to_offset, len));
        let read = || self.locks.pin(from.file.fid, from.layout, &source, false, Locking::No);
        let write = || self.locks.pin(to.file.fid, to.layout, &target, true, Locking::No);
        if from.layout.ids().min() < to.layout.ids().min() {
            let first = read().await?;
            return Ok([first, write().await?]);
        }
        let first = write().await?;
        Ok([first, read().await?])
    }

    /// Copies up to `len` bytes under locks; [`Code::TryAgain`] if these are lost before anything is copied. If something fails behind
    /// what was copied, the rest is not.
    pub(crate) async fn copy_locked(
        self: &Arc<Self>,
        sides: &(Side<'_>, Side<'_>),
        (from_offset, to_offset): (u64, u64),
        len: u64,
        call: Call,
    ) -> Result<Copied> {
        let (from, to) = sides;
        let eras = self.locks.eras(to.layout).await?;
        let pins = self.pin_copy(sides, (from_offset, to_offset), len).await?;
        // Whatever was locked is lost before the era changes.
        if self.locks.eras(to.layout).await? != eras {
            return Err(Error::Refused(Code::TryAgain));
        }
        to.file.check_fence(call.fences)?;
        self.back.flush_file(from.file).await;
        // What was written to the range before must not arrive after the copy.
        self.back.flush_file(to.file).await;
        let size = self.objects.true_size(from.file, from.layout).await?;
        let len = len.min(size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(Copied { bytes: 0, is_all: true });
        }
        if !to.layout.is_placed(to_offset, len) {
            return Err(Error::Refused(Code::TryAgain));
        }
        // Holes for which there are no objects: who asked reads and writes.
        if !from.layout.is_placed(from_offset, len) {
            return Err(Error::Refused(Code::NotSupported));
        }
        to.file.inner.lock().untold = true;
        let pieces = pieces(from.layout, to.layout, from_offset, to_offset, len);
        let bytes = self.copy_pieces(sides, pieces, (call.time, &eras), &pins[0]).await?;
        Ok(Copied { bytes, is_all: bytes == len })
    }

    /// Bytes that were copied in a row from the first; an error only if there are none.
    async fn copy_pieces(
        self: &Arc<Self>,
        (from, to): &(Side<'_>, Side<'_>),
        pieces: Vec<Piece>,
        (time, eras): (Timestamp, &Eras),
        pins: &Pins,
    ) -> Result<u64> {
        let mut copied = 0;
        for group in pieces.chunks(PIECES_MAX) {
            let done =
                join_all(group.iter().map(|piece| self.copy_piece(from, to, *piece, (time, eras, pins))))
                    .await;
            for (piece, done) in group.iter().zip(done) {
                match done {
                    Ok(()) => copied += piece.len,
                    Err(_) if copied > 0 => return Ok(copied),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(copied)
    }

    async fn copy_piece(
        self: &Arc<Self>,
        from: &Side<'_>,
        to: &Side<'_>,
        piece: Piece,
        (time, eras, pins): (Timestamp, &Eras, &Pins),
    ) -> Result<()> {
        let ((from_place, from_offset), (to_place, to_offset)) = (piece.from, piece.to);
        if from_place.target != to_place.target {
            let (mut at, call) = (piece.to_offset, Call { time, sync: false, fences: None });
            let range = (piece.offset, piece.len);
            for slice in self.read_file(from.file, from.layout, range, pins).await? {
                let len = slice.len() as u64;
                if self.store(to.file, to.layout, (at, &slice), call, pins).await? < len {
                    return Err(Error::Refused(Code::TryAgain));
                }
                at += len;
            }
            return Ok(());
        }
        let target = self.targets.data(to_place.target).await?;
        let _permit = target.in_flight.writes.acquire().await?;
        let copy = CopyObject {
            source: from_place.object,
            source_offset: from_offset,
            target: to_place.object,
            target_offset: to_offset,
            len: piece.len as u32,
            time,
            owner: to.file.owner(),
        };
        let drop_target = || {
            self.clean.drop_range(to_place.object, to_offset, to_offset + piece.len);
            let mut inner = to.file.inner.lock();
            inner.end.forget();
            inner.own.forget();
        };
        drop_target();
        let answered = target.call_locked(eras.of(to_place.target), copy, Vec::new()).await;
        // Who read meanwhile may have the bytes of before.
        drop_target();
        match answered {
            Ok(answered) => {
                to.file.inner.lock().note(to_place.target, answered.transno);
                Ok(())
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }
}

/// Cuts a copy where either file goes on in another object, and where a request has enough.
fn pieces(from: &Layout, to: &Layout, from_offset: u64, to_offset: u64, len: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len {
        let left = (len - done).min(BULK_BYTES_MAX as u64);
        let run = |layout: &Layout, offset| layout.runs(offset, left).next();
        let (Some(source), Some(target)) = (run(from, from_offset + done), run(to, to_offset + done)) else {
            break;
        };
        let len = source.len.min(target.len);
        pieces.push(Piece {
            offset: source.file_offset,
            to_offset: target.file_offset,
            len,
            from: (source.place, source.object_offset),
            to: (target.place, target.object_offset),
        });
        done += len;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::layout::Component;
    use proto::{Fid, OstIndex};

    fn layout(stripe_size: u32, count: u32) -> Layout {
        let id = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        Component::striped(id, stripe_size, (0..count).map(OstIndex)).into()
    }

    #[test]
    fn pieces_lie_in_one_object_of_each_file() {
        for (from, to) in [(layout(65_536, 3), layout(131_072, 2)), (layout(65_536, 1), layout(65_536, 4))] {
            let (from_offset, to_offset, len) = (1000, 70_000, 1_000_000);
            let mut at = 0;
            for piece in pieces(&from, &to, from_offset, to_offset, len) {
                assert_eq!((piece.offset, piece.to_offset), (from_offset + at, to_offset + at));
                for (layout, offset, (place, inside)) in
                    [(&from, piece.offset, piece.from), (&to, piece.to_offset, piece.to)]
                {
                    assert_eq!(layout.locate(offset), Some((place, inside)));
                    assert_eq!(layout.locate(offset + piece.len - 1), Some((place, inside + piece.len - 1)));
                }
                at += piece.len;
            }
            assert_eq!(at, len);
        }
        let one = layout(65_536, 1);
        let long = pieces(&one, &one, 0, 1 << 30, 9 << 20);
        assert_eq!(long.iter().map(|piece| piece.len).collect::<Vec<_>>(), [4 << 20, 4 << 20, 1 << 20]);
    }
}
