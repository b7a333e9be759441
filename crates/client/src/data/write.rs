//! write(2): into the write-behind cache.

use std::iter::once;
use std::sync::Arc;

use proto::layout::Place;
use proto::limits::FILE_BYTES_MAX;
use proto::{Code, Layout};
use smallvec::SmallVec;

use super::cache::{Cache, Piece};
use super::memory::Buffer;
use crate::data::{Call, Data, FileState};
use crate::lock::{Pages as Locking, Pins, needs_of, whole};
use crate::{Error, Result};

/// Whole pages of this size are copied before the file's state is locked; other writes are merged under it.
const COPY_AHEAD_MIN: usize = 64 << 10;

impl Data {
    /// Locks all of a file to be changed.
    pub(crate) async fn pin_whole(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
    ) -> Result<Pins> {
        self.locks.pin(file.fid, layout, &whole(layout), true, Locking::No).await
    }

    /// Writes at the end, which `pins` have told; says how many bytes. None if what was locked was lost while there was no room:
    /// then it is to be locked anew.
    pub(crate) async fn append_under(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (end, data): (u64, &[u8]),
        call: Call,
        pins: &Pins,
    ) -> Result<u64> {
        self.store_direct(file, layout, (end, data), call, pins).await
    }

    /// Bytes written at `offset`, for which there are objects. What was locked may be lost while there is no room: then it is locked anew.
    pub(crate) async fn write_at(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, data): (u64, &[u8]),
        call: Call,
    ) -> Result<u64> {
        let _shared = file.shared().await?;
        let needs = needs_of(layout, offset, data.len() as u64);
        loop {
            let pins = self.locks.pin(file.fid, layout, &needs, true, Locking::No).await?;
            file.check_fence(call.fences)?;
            let stored = self.store_direct(file, layout, (offset, data), call, &pins).await?;
            if stored > 0 {
                return Ok(stored);
            }
        }
    }
}

impl Data {
    pub(crate) async fn write_pages_back(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, data): (u64, &[u8]),
        call: Call,
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() as u64 {
            let (offset, data) = (offset + done, &data[done as usize..]);
            let needs = needs_of(layout, offset, data.len() as u64);
            let pins = self.locks.pin(file.fid, layout, &needs, true, Locking::WriteBack).await?;
            file.check_fence(call.fences)?;
            // What they lie under may have been granted anew since.
            if self.locks.pages.is_lost(&needs) {
                tracing::error!(
                    fid = %file.fid, offset, bytes = data.len(),
                    "an OST has given this client up: what was changed in a mapping is lost, and msync, fsync or close \
                     of the file says so"
                );
                return Err(Error::Refused(Code::Evicted));
            }
            if pins.unlocked {
                // Never, but for a mapping that outlived what its pages were filled under: it must not be lost.
                tracing::debug!(fid = %file.fid, offset, "pages are written back without a lock");
                Box::pin(self.write_unlocked(file, layout, (offset, data), call)).await?;
                break;
            }
            done += self.store(file, layout, (offset, data), call, &pins).await?;
        }
        Ok(())
    }
}

/// A part of a write: object, offset in it, bytes.
type Part<'a> = (Place, u64, &'a [u8]);
/// Parts of a write.
type Pieces<'a> = SmallVec<[Part<'a>; 4]>;

/// What a part of a write takes from the bounds of dirty data until it is known what it costs.
fn reserved_for(piece: &[u8]) -> u64 {
    piece.len() as u64 + Cache::COST_MAX
}

/// Whether no object gets more than one part: each of them can then be one request that is answered when it is durable.
fn is_one_each(pieces: &Pieces<'_>) -> bool {
    let mut places: SmallVec<[Place; 4]> = pieces.iter().map(|(place, _, _)| *place).collect();
    places.sort_unstable();
    places.windows(2).all(|pair| pair.first() != pair.last())
}

impl Data {
    /// A write past the kernel's page cache. What that has of the range is written back and forgotten first: it may have been changed
    /// through a mapping, beside the bytes of before. As [`Data::store`].
    async fn store_direct(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, data): (u64, &[u8]),
        call: Call,
        pins: &Pins,
    ) -> Result<u64> {
        let range = offset..offset.saturating_add(data.len() as u64);
        let _passing = file.write_past(&range);
        if self.locks.pages.kernel_has(&needs_of(layout, offset, data.len() as u64)) {
            self.locks.filling.forget_data(file.fid, once(range)).await;
        }
        self.store(file, layout, (offset, data), call, pins).await
    }

    /// Whether an OST of a file may have too little space for what is unsent and `len` bytes more. Then the write is sent before it
    /// is answered, and says so itself if there is no space.
    pub(crate) fn lacks_room(&self, file: &FileState, layout: &Layout, len: u64) -> bool {
        if !self.targets.any_short() {
            return false;
        }
        let fits = |place: Place| {
            let room = self.targets.made(place.target.into()).and_then(|target| target.room());
            room.is_none_or(|room| self.back.rooms.of(place.target).dirty.used() + len <= room)
        };
        let lacks = !layout.places().all(fits);
        if lacks {
            file.inner.lock().write_through = true;
        }
        lacks
    }

    /// Writes pages that no lock covers any more, at once and past the cache.
    async fn write_unlocked(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
        call: Call,
    ) -> Result<()> {
        let mut rest = data;
        for run in layout.runs(offset, data.len() as u64) {
            let (piece, behind) = rest.split_at(run.len as usize);
            let place = (run.place, run.object_offset);
            Box::pin(self.back.write_now(file, place, piece, (call, false))).await?;
            rest = behind;
        }
        Ok(())
    }

    /// Puts `data` into the cache of `file` at `offset`, and sends the chunks that it fills; says how many bytes of it. It is
    /// fewer if what `pins` stand for was lost meanwhile: what is stored then would be sent over what others have written; or if
    /// an OST refused the rest.
    pub(crate) async fn store(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
        call: Call,
        pins: &Pins,
    ) -> Result<u64> {
        let mut stored = 0;
        let pieces = self.pieces(layout, offset, data)?;
        // Several would wait for a commit one after the other.
        let alone = Call { sync: call.sync && pieces.len() == 1, ..call };
        let call = Call { sync: call.sync && is_one_each(&pieces), ..call };
        for (place, at, piece) in pieces {
            if pins.is_contended(place.object) {
                match Box::pin(self.back.write_now(file, (place, at), piece, (alone, true))).await {
                    Err(_) if stored > 0 => break,
                    written => written?,
                }
            } else {
                let reserved = reserved_for(piece);
                self.back.reserve(place.target, reserved as u32).await?;
                // Whoever had to wait for room may have lost a lock of the file meanwhile.
                if let Err(error) = file.check_fence(call.fences) {
                    self.back.rooms.give(place.target, reserved);
                    if stored == 0 {
                        return Err(error);
                    }
                    break;
                }
                if !self.store_piece(file, (place, at), piece, (call, reserved), pins) {
                    break;
                }
            }
            stored += piece.len() as u64;
        }
        Ok(stored)
    }

    /// As [`Data::store_direct`] if there is room at once, and the kernel has no page of the range; says how many bytes of it. It is fewer
    /// if something was lost meanwhile.
    fn store_at_once(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
        pins: &Pins,
    ) -> Result<u64> {
        let _passing = file.write_past(&(offset..offset.saturating_add(data.len() as u64)));
        if self.locks.pages.kernel_has(&needs_of(layout, offset, data.len() as u64)) {
            return Ok(0);
        }
        let pieces = self.pieces(layout, offset, data)?;
        for (taken, (place, _, piece)) in pieces.iter().enumerate() {
            if !self.back.rooms.try_take(&self.back.rooms.of(place.target), reserved_for(piece) as u32) {
                self.give_back_room(pieces.iter().take(taken));
                return Ok(0);
            }
        }
        let call = Call { time: self.clock.time(), sync: false, fences: None };
        let (mut stored, mut rest) = (0, pieces.iter());
        while let Some((place, at, piece)) = rest.next() {
            if !self.store_piece(file, (*place, *at), piece, (call, reserved_for(piece)), pins) {
                self.give_back_room(rest);
                break;
            }
            stored += piece.len() as u64;
        }
        Ok(stored)
    }

    fn give_back_room<'a>(&self, parts: impl Iterator<Item = &'a Part<'a>>) {
        self.back.refund(parts.map(|(place, _, piece)| (place.target, reserved_for(piece))).collect());
    }

    /// Writes at `offset` if there is nothing to wait for; says whether it has.
    pub(crate) fn write_there_at_once(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
    ) -> Result<bool> {
        let needs = needs_of(layout, offset, data.len() as u64);
        let Some(_shared) = file.shared_at_once() else { return Ok(false) };
        let Some(pins) = self.locks.pin_at_once(file.fid, &needs, true) else { return Ok(false) };
        // If it is not all of it, all of it is written again.
        let stored = self.store_at_once(file, layout, (offset, data), &pins)?;
        Ok(stored == data.len() as u64)
    }

    /// The same at the end, if that is known; says how many bytes were written. The rest is not to be written with them again: it would
    /// be there twice.
    pub(crate) fn append_at_once(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        data: &[u8],
    ) -> Result<u64> {
        let Some(_alone) = file.alone_at_once() else { return Ok(0) };
        let Some(pins) = self.locks.pin_at_once(file.fid, &whole(layout), true) else { return Ok(0) };
        let grants = pins.grants(layout);
        let known = grants.and_then(|grants| file.inner.lock().end.under(&grants));
        let Some(end) = known else { return Ok(0) };
        if layout.is_growing() || !layout.is_placed(end, data.len() as u64) {
            return Ok(0);
        }
        self.store_at_once(file, layout, (end, data), &pins)
    }

    /// Where a file ends, all of which is pinned to be changed. The objects are asked once, as long as nobody else can change
    /// it.
    pub(crate) async fn end_under(&self, file: &FileState, layout: &Layout, pins: &Pins) -> Result<u64> {
        // Nobody is kept from giving the file more objects.
        let grants = pins.grants(layout).filter(|_| !layout.is_growing());
        let mark = {
            let inner = file.inner.lock();
            if let Some(end) = grants.as_ref().and_then(|grants| inner.end.under(grants)) {
                return Ok(end);
            }
            inner.end.mark()
        };
        let end = self.objects.true_size(file, layout).await?;
        if let Some(grants) = grants {
            file.inner.lock().end.learn(grants, mark, end);
        }
        Ok(end)
    }

    /// `data` cut at the borders of chunks: object, offset in it, bytes.
    fn pieces<'a>(&self, layout: &Layout, offset: u64, data: &'a [u8]) -> Result<Pieces<'a>> {
        if offset.saturating_add(data.len() as u64) > FILE_BYTES_MAX {
            return Err(Error::Refused(Code::TooLarge));
        }
        if !layout.is_placed(offset, data.len() as u64) {
            return Err(Error::Refused(Code::NoComponent));
        }
        let mut pieces = Pieces::new();
        let mut rest = data;
        for run in layout.runs(offset, data.len() as u64) {
            let (mut at, mut left) = (run.object_offset, run.len);
            while left > 0 {
                let len = left.min(self.files.chunk_bytes - at % self.files.chunk_bytes);
                let (piece, behind) = rest.split_at(len as usize);
                pieces.push((run.place, at, piece));
                (at, left, rest) = (at + len, left - len, behind);
            }
        }
        Ok(pieces)
    }

    /// Puts one part of a write into its chunk; `reserved` bytes of the bounds of dirty data were taken for it. Not if what
    /// `pins` stand for is lost.
    fn store_piece(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        (place, offset): (Place, u64),
        data: &[u8],
        (Call { time, sync, .. }, reserved): (Call, u64),
        pins: &Pins,
    ) -> bool {
        let whole_pages = (offset | data.len() as u64).is_multiple_of(rt::buf::ALIGN as u64);
        let ready = (whole_pages && data.len() >= COPY_AHEAD_MIN).then(|| self.copy(offset, data));
        let (now, owner) = (self.rt.now(), rpc::job::current());
        let stored = {
            let mut inner = file.inner.lock();
            // Under this lock: what is lost from now on is taken out of the cache again (`drop_ranges`).
            if !self.locks.table.still_counts(pins) {
                self.back.rooms.give(place.target, reserved);
                return false;
            }
            inner.untold = true;
            let end = offset + data.len() as u64;
            self.clean.drop_range(place.object, offset, end);
            if let Some(layout) = inner.layout.clone() {
                inner.end.wrote(layout.file_size_from(place.object, end));
            }
            let piece = Piece { place, offset, data, ready, time, owner, hold: sync };
            let stored = inner.cache.write(piece, now);
            if !inner.listed {
                inner.listed = true;
                self.back.dirty.dirty(file);
            }
            stored
        };
        self.back.rooms.give(place.target, reserved - stored.charge);
        self.clean.fit();
        self.back.send(file, stored.job);
        true
    }

    fn copy(&self, offset: u64, data: &[u8]) -> Buffer {
        let mut buffer = self.files.memory.buffer(offset, data.len());
        buffer.bytes_mut().copy_from_slice(data);
        buffer
    }
}
