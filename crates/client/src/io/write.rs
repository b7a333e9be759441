//! write(2): into the write-behind cache.

use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::layout::Place;
use proto::limits::FILE_BYTES_MAX;
use proto::types::{MODE_SETGID, MODE_SETUID};
use proto::wire::messages::SetAttr;
use proto::{Code, DataTarget, Layout, Timestamp};
use smallvec::SmallVec;

use super::Call;
use super::cache::{Cache, Piece};
use super::memory::Buffer;
use super::room::OstRoom;
use crate::file::{FileState, OpenFile, Relaying};
use crate::lock::{Pages as Locking, Pins, needs_of, whole};
use crate::namespace::no_change;
use crate::{Caller, Client, Error, Handle, Result, Shared};

/// Whole pages of this size are copied before the file's state is locked; other writes are merged under it.
const COPY_AHEAD_MIN: usize = 64 << 10;
/// With less than this part of the bound on its way, a writer without room sends what is not full.
const IN_FLIGHT_PART: u64 = 8;
/// How often a writer without room looks again.
const PRESSURE_TICK: Duration = Duration::from_millis(20);

impl Client {
    /// Takes privileges away as a write of `caller` does, which were given after the file was opened.
    pub async fn drop_privileges(&self, handle: Handle, caller: &Caller) -> Result<()> {
        let open = self.shared.handles.get(handle)?;
        self.shared.drop_privileges_of(&open, caller, self.shared.time()).await
    }

    /// Writes if there is nothing to wait for; `None`: nothing was done. For callers who have `data` for a moment only.
    pub fn write_at_once(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<Option<u32>> {
        let open = self.shared.handles.get(handle)?;
        let file = open.writable()?;
        let len = u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        file.take_full(&open.failure_seen)?;
        let waits = open.flags.sync || open.drops_privileges();
        if waits || len == 0 || file.inner.lock().write_through {
            return Ok(None);
        }
        let layout = file.layout()?;
        if self.shared.lacks_room(file, &layout, u64::from(len)) {
            return Ok(None);
        }
        let stored = match open.flags.append {
            true => self.shared.append_at_once(file, &layout, data)?,
            false => self.shared.write_there_at_once(file, &layout, (offset, data))?,
        };
        if !stored {
            return Ok(None);
        }
        open.wrote.store(true, Ordering::Relaxed);
        Ok(Some(len))
    }

    /// Takes a copy of `data`; returns when it is in the write-behind cache (or durable, for a `sync` handle). An
    /// append handle writes at the end whatever `offset` says.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32> {
        let open = self.shared.handles.get(handle)?;
        let file = open.writable()?;
        u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        file.take_full(&open.failure_seen)?;
        if data.is_empty() {
            return Ok(0);
        }
        let time = self.shared.time();
        self.shared.drop_privileges(&open, time).await?;
        let call = Call { time, sync: open.flags.sync };
        let mut relaying = Relaying::default();
        let mut stored = 0;
        while stored < data.len() as u64 {
            let layout = file.layout()?;
            let (at, rest) = (offset + stored, &data[stored as usize..]);
            self.shared.lacks_room(file, &layout, rest.len() as u64);
            let done = match open.flags.append {
                true => self.append(file, &layout, rest, call).await,
                false => self.write_at(file, &layout, (at, rest), call).await,
            };
            match done {
                Ok(done) => stored += done,
                Err(error) if self.shared.relaid(file, &layout, error, &mut relaying).await? => {}
                Err(error) if stored == 0 => return Err(error),
                Err(_) => break,
            }
            // What follows at the end may not be the end any more.
            if open.flags.append && stored > 0 {
                break;
            }
        }
        if open.flags.sync {
            self.shared.sync_file(file, &open.failure_seen).await?;
        } else if file.inner.lock().write_through {
            self.shared.flush_file(file).await;
            file.take_failure(&open.failure_seen)?;
            file.inner.lock().write_through = false;
        }
        Ok(stored as u32)
    }

    /// Bytes written at the end. What was locked may be lost while there is no room: then it is locked anew.
    async fn append(
        &self,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        data: &[u8],
        call: Call,
    ) -> Result<u64> {
        let _alone = file.alone().await?;
        loop {
            let pins = self.shared.pin(file.fid, layout, &whole(layout), true, Locking::No).await?;
            let end = self.shared.end_under(file, layout, &pins).await?;
            let stored = self.shared.store_direct(file, layout, (end, data), call, &pins).await?;
            if stored > 0 {
                return Ok(stored);
            }
        }
    }

    /// The same at `offset`.
    async fn write_at(
        &self,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, data): (u64, &[u8]),
        call: Call,
    ) -> Result<u64> {
        let _shared = file.shared().await?;
        let needs = needs_of(layout, offset, data.len() as u64);
        loop {
            let pins = self.shared.pin(file.fid, layout, &needs, true, Locking::No).await?;
            let stored = self.shared.store_direct(file, layout, (offset, data), call, &pins).await?;
            if stored > 0 {
                return Ok(stored);
            }
        }
    }

    /// The kernel writes pages back that were changed through a mapping. It holds them locked, and a truncate or a
    /// callback may be waiting for just that: this waits for neither.
    pub async fn write_pages(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32> {
        let open = self.shared.handles.get(handle)?;
        let file = open.writable()?;
        let len = u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        let call = Call { time: self.shared.time(), sync: false };
        let mut relaying = Relaying::default();
        loop {
            let layout = file.layout()?;
            match self.shared.write_pages_back(file, &layout, (offset, data), call).await {
                Err(error) if self.shared.relaid(file, &layout, error, &mut relaying).await? => {}
                written => return written.map(|()| len),
            }
        }
    }
}

impl Shared {
    async fn write_pages_back(
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
            let pins = self.pin(file.fid, layout, &needs, true, Locking::WriteBack).await?;
            if pins.unlocked && self.is_lost(&needs) {
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
                self.write_unlocked(file, layout, (offset, data), call).await?;
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

impl OpenFile {
    /// Whether the next write is the first one, and has privileges of the file to take away.
    fn drops_privileges(&self) -> bool {
        let bits = self.attr.mode & (MODE_SETUID | MODE_SETGID);
        // Capabilities go with the superuser's writes too.
        let privileged = self.xattrs || self.opener.uid != 0 && bits != 0;
        privileged && !self.wrote.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// A write past the kernel's page cache. What that has of the range is written back and forgotten first: it may have been changed
    /// through a mapping, beside the bytes of before. As [`Shared::store`].
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
        if self.kernel_has(&needs_of(layout, offset, data.len() as u64)) {
            self.forget_data(file.fid, once(range)).await;
        }
        self.store(file, layout, (offset, data), call, pins).await
    }

    /// Whether an OST of a file may have too little space for what is unsent and `len` bytes more. Then the write is sent before it
    /// is answered, and says so itself if there is no space.
    fn lacks_room(&self, file: &FileState, layout: &Layout, len: u64) -> bool {
        if !self.targets.any_short() {
            return false;
        }
        let fits = |place: Place| {
            let room = self.targets.made(place.target.into()).and_then(|target| target.room());
            room.is_none_or(|room| self.rooms.of(place.target).dirty.used() + len <= room)
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
            self.write_now(file, place, piece, (call, false)).await?;
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
                match self.write_now(file, (place, at), piece, (alone, true)).await {
                    Err(_) if stored > 0 => break,
                    written => written?,
                }
            } else {
                let reserved = reserved_for(piece);
                self.reserve(place.target, reserved as u32).await?;
                if !self.store_piece(file, (place, at), piece, (call, reserved), pins) {
                    break;
                }
            }
            stored += piece.len() as u64;
        }
        Ok(stored)
    }

    /// As [`Shared::store_direct`] if there is room at once, the kernel has no page of the range, and nothing is lost; false: it is to
    /// be stored again.
    fn store_at_once(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
        pins: &Pins,
    ) -> Result<bool> {
        let _passing = file.write_past(&(offset..offset.saturating_add(data.len() as u64)));
        if self.kernel_has(&needs_of(layout, offset, data.len() as u64)) {
            return Ok(false);
        }
        let pieces = self.pieces(layout, offset, data)?;
        for (taken, (place, _, piece)) in pieces.iter().enumerate() {
            if !self.rooms.try_take(&self.rooms.of(place.target), reserved_for(piece) as u32) {
                let back = pieces.iter().take(taken);
                self.refund(back.map(|(place, _, piece)| (place.target, reserved_for(piece))).collect());
                return Ok(false);
            }
        }
        let call = Call { time: self.time(), sync: false };
        let mut all = true;
        for (place, at, piece) in pieces {
            all &= self.store_piece(file, (place, at), piece, (call, reserved_for(piece)), pins);
        }
        Ok(all)
    }

    /// Writes at `offset` if there is nothing to wait for; says whether it has.
    fn write_there_at_once(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Layout,
        (offset, data): (u64, &[u8]),
    ) -> Result<bool> {
        let needs = needs_of(layout, offset, data.len() as u64);
        let Some(_shared) = file.shared_at_once() else { return Ok(false) };
        let Some(pins) = self.pin_at_once(file.fid, &needs, true) else { return Ok(false) };
        self.store_at_once(file, layout, (offset, data), &pins)
    }

    /// The same at the end, if that is known.
    fn append_at_once(self: &Arc<Self>, file: &Arc<FileState>, layout: &Layout, data: &[u8]) -> Result<bool> {
        let Some(_alone) = file.alone_at_once() else { return Ok(false) };
        let Some(pins) = self.pin_at_once(file.fid, &whole(layout), true) else { return Ok(false) };
        let grants = pins.grants(layout);
        let known = grants.and_then(|grants| file.inner.lock().end.under(&grants));
        let Some(end) = known else { return Ok(false) };
        self.store_at_once(file, layout, (end, data), &pins)
    }

    /// Where a file ends, all of which is pinned to be changed. The objects are asked once, as long as nobody else can change
    /// it.
    async fn end_under(&self, file: &FileState, layout: &Layout, pins: &Pins) -> Result<u64> {
        let grants = pins.grants(layout);
        let mark = {
            let inner = file.inner.lock();
            if let Some(end) = grants.as_ref().and_then(|grants| inner.end.under(grants)) {
                return Ok(end);
            }
            inner.end.mark()
        };
        let end = self.true_size(file, layout).await?;
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
        let mut pieces = Pieces::new();
        let mut rest = data;
        for run in layout.runs(offset, data.len() as u64) {
            let (mut at, mut left) = (run.object_offset, run.len);
            while left > 0 {
                let len = left.min(self.chunk_bytes - at % self.chunk_bytes);
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
        (Call { time, sync }, reserved): (Call, u64),
        pins: &Pins,
    ) -> bool {
        let whole_pages = (offset | data.len() as u64).is_multiple_of(rt::buf::ALIGN as u64);
        let ready = (whole_pages && data.len() >= COPY_AHEAD_MIN).then(|| self.copy(offset, data));
        let now = self.rt.now();
        let stored = {
            let mut inner = file.inner.lock();
            // Under this lock: what is lost from now on is taken out of the cache again (`drop_ranges`).
            if !self.locks.still_counts(pins) {
                self.rooms.give(place.target, reserved);
                return false;
            }
            inner.untold = true;
            let end = offset + data.len() as u64;
            self.clean.drop_range(place.object, offset, end);
            if let Some(layout) = inner.layout.clone() {
                inner.end.wrote(layout.file_size_from(place.object, end));
            }
            let stored = inner.cache.write(Piece { place, offset, data, ready, time, hold: sync }, now);
            if !inner.listed {
                inner.listed = true;
                self.keeper.dirty(file);
            }
            stored
        };
        self.rooms.give(place.target, reserved - stored.charge);
        self.clean.fit();
        self.send(file, stored.job);
        true
    }

    fn copy(&self, offset: u64, data: &[u8]) -> Buffer {
        let mut buffer = self.memory.buffer(offset, data.len());
        buffer.bytes_mut().copy_from_slice(data);
        buffer
    }

    /// Takes `bytes` from the bounds of dirty data for an OST; waits while there is no room.
    async fn reserve(self: &Arc<Self>, target: DataTarget, bytes: u32) -> Result<()> {
        let room = self.rooms.of(target);
        if self.rooms.try_take(&room, bytes) {
            return Ok(());
        }
        let mut taking = std::pin::pin!(self.rooms.take(&room, bytes));
        loop {
            self.press(target, &room, u64::from(bytes));
            if let Some(taken) = self.rt.timeout(PRESSURE_TICK, taking.as_mut()).await {
                return taken;
            }
        }
    }

    /// Somebody waits to write `bytes` to an OST. Chunks that are not full are sent only if too little is on its way: small
    /// writes would otherwise never be merged once a bound is reached. What is not durable is made so.
    fn press(self: &Arc<Self>, target: DataTarget, room: &OstRoom, bytes: u64) {
        let (all, kept) = (self.rooms.dirty(), self.rooms.kept());
        if kept.used + bytes > kept.max {
            for (_, ost) in self.targets.osts() {
                ost.commit_soon();
            }
        }
        let max = all.max.min(kept.max);
        let is_full = all.used.max(kept.used) + bytes > max;
        if is_full && self.rooms.in_flight() < max / IN_FLIGHT_PART {
            for file in self.keeper.files() {
                self.send_older(&file, rt::Time(u64::MAX));
            }
        } else if room.in_flight.load(Ordering::Relaxed) < room.dirty.max() / IN_FLIGHT_PART {
            for file in self.keeper.files() {
                self.send_to(&file, target);
            }
        }
    }

    /// The first write through a handle takes setuid and setgid away, unless the superuser writes, and capabilities.
    pub(crate) async fn drop_privileges(self: &Arc<Self>, open: &OpenFile, time: Timestamp) -> Result<()> {
        if open.drops_privileges() {
            self.drop_privileges_of(open, &open.opener, time).await?;
        }
        open.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn drop_privileges_of(
        self: &Arc<Self>,
        open: &OpenFile,
        caller: &Caller,
        time: Timestamp,
    ) -> Result<()> {
        let change =
            SetAttr { handle: Some(open.mdt_handle), kill_privileges: true, ..no_change(open.fid, time) };
        let changing = self.inodes.change(&[open.fid], &[]);
        let answered = self.ask(caller, |cred| SetAttr { cred, ..change.clone() }).await?;
        self.not_kept(&changing, &answered.reply);
        Ok(())
    }
}
