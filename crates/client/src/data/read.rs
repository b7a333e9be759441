//! read(2): the own unsent data on top of what was read before, and that on top of what the OSTs give.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::layout::Place;
use proto::wire::messages::{ObjectAttr, Read};
use proto::{Code, Layout, ObjectId};
use rt::wait::join_all;

use super::clean::{KEPT_READ_BYTES_MAX, Reader, Reading};
use super::objects::NO_OBJECT;
use crate::data::{Clean, Data, FileState, Sum};
use crate::lock::{Pages as Locking, Pins, needs_of, surely};
use crate::targets::Way;
use crate::{Error, Result};

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A part of the wanted range, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// It is here: not sent yet, or read before.
    Own(Bytes),
    /// `len` bytes of request number `request`.
    Asked { request: usize, len: u64 },
    /// There are no objects for it.
    Hole,
}

/// What is asked of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    place: Place,
    offset: u64,
    len: u64,
}

/// How a range of a file is put together.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// File offset at which each part ends, and the part.
    parts: Vec<(u64, Part)>,
    pub(super) asks: Vec<Ask>,
    /// File offset behind the last byte that the cache had when the plan was made.
    own_end: u64,
}

/// What an OST gave for one [`Ask`].
pub(super) struct Given {
    slices: VecDeque<Bytes>,
    object_size: u64,
}

impl Data {
    pub(crate) async fn read_locked(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, len): (u64, u64),
    ) -> Result<Vec<Bytes>> {
        let needs = needs_of(layout, offset, len);
        loop {
            let pins = self.locks.pin(file.fid, layout, &needs, false, Locking::No).await?;
            let reader = if len <= KEPT_READ_BYTES_MAX { Reader::Small } else { Reader::Stream };
            // Only what is held stays true.
            let over = pins.is_complete().then_some((&*self.clean, reader));
            let read = self.read_over(over, file, layout, (offset, len), &pins).await;
            // What was lost meanwhile others may have changed, so that one part of the bytes is older than another one.
            if read.is_err() || self.locks.table.still_counts(&pins) {
                return read;
            }
        }
    }

    pub(crate) async fn fill_pages(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        layout: &Arc<Layout>,
        (offset, len): (u64, u32),
    ) -> Result<Pages> {
        // What the kernel keeps has to be protected: so it asks for more than an OST would leave without a lock.
        let needs = surely(needs_of(layout, offset, u64::from(len)));
        let range = offset..offset.saturating_add(u64::from(len));
        // A write to a mapped page makes no call: where one may come, the page is filled to be written. Who opens the
        // file for that has the kernel forget what was filled before, but not what waits to be filled.
        loop {
            if file.is_written_past(&range) {
                let _waits = self.locks.filling.fill_waits(file.fid, &range);
                file.until_passed(&range).await;
            }
            let write = file.inner.lock().mapped_writers > 0;
            let pins = self.locks.pin_fill((file.fid, range.clone()), layout, &needs, write).await?;
            if !write && file.inner.lock().mapped_writers > 0 || file.is_written_past(&range) {
                continue;
            }
            let over = Some((&*self.clean, Reader::Stream));
            let slices = self.read_over(over, file, layout, (offset, u64::from(len)), &pins).await?;
            if self.locks.table.still_counts(&pins) {
                return Ok(Pages { slices, _pins: pins });
            }
        }
    }
}

/// What the kernel's page cache is filled with. To be held until the kernel has it.
#[derive(Default)]
pub struct Pages {
    /// The bytes; short only at the end of the file.
    pub slices: Vec<Bytes>,
    // The lock may go as soon as the kernel has the pages.
    _pins: Pins,
}

impl Plan {
    /// With a reading for each request, if what comes may be kept. Both are made in one step: whatever is written later
    /// than the plan is known to the readings. `own` says of an object whether unsent data counts.
    pub(super) fn new<'a>(
        file: &FileState,
        over: Option<(&'a Clean, Reader)>,
        layout: &Layout,
        (offset, len): (u64, u64),
        (ask_bytes_max, own): (u64, impl Fn(ObjectId) -> bool),
    ) -> (Plan, Vec<Option<Reading<'a>>>) {
        let mut plan = Plan::default();
        let inner = file.inner.lock();
        plan.own_end = inner.cache.file_end(layout);
        for run in layout.runs(offset, len) {
            plan.hole(offset, run.file_offset);
            let mut at = run.object_offset;
            let end = run.object_offset + run.len;
            let to_file = |object_offset: u64| run.file_offset + (object_offset - run.object_offset);
            let nothing = (end, Bytes::new());
            let unsent = if own(run.place.object) {
                inner.cache.overlay(run.place.object, at, end)
            } else {
                Vec::new()
            };
            for (start, bytes) in unsent.into_iter().chain([nothing]) {
                let known = over.map(|(clean, reader)| clean.get(run.place.object, (at, start), reader));
                for (from, read) in known.into_iter().flatten() {
                    plan.ask(run.place, at, from, to_file(from), ask_bytes_max);
                    at = from + read.len() as u64;
                    plan.parts.push((to_file(at), Part::Own(read)));
                }
                plan.ask(run.place, at, start, to_file(start), ask_bytes_max);
                at = start + bytes.len() as u64;
                if !bytes.is_empty() {
                    plan.parts.push((to_file(at), Part::Own(bytes)));
                }
            }
        }
        plan.hole(offset, offset.saturating_add(len));
        // Of what a stream brings nothing is kept.
        let kept = over.filter(|(_, reader)| *reader != Reader::Stream);
        let reading = |ask: &Ask| kept.map(|(clean, reader)| clean.reading(ask.place.object, reader));
        let readings = plan.asks.iter().map(reading).collect();
        (plan, readings)
    }

    /// What lies before `end` of a range that begins at `start`, and was not planned, is a hole.
    fn hole(&mut self, start: u64, end: u64) {
        if self.parts.last().map_or(start, |(at, _)| *at) < end {
            self.parts.push((end, Part::Hole));
        }
    }

    /// Asks for `[from, to)` of an object; joined to the last request to the same object if that ends there.
    fn ask(&mut self, place: Place, from: u64, to: u64, file_end: u64, len_max: u64) {
        let mut at = from;
        while at < to {
            let last = self.asks.iter().rposition(|ask| ask.place == place);
            let open =
                last.filter(|&i| self.asks[i].offset + self.asks[i].len == at && self.asks[i].len < len_max);
            let request = open.unwrap_or_else(|| {
                self.asks.push(Ask { place, offset: at, len: 0 });
                self.asks.len() - 1
            });
            let len = (to - at).min(len_max - self.asks[request].len);
            self.asks[request].len += len;
            at += len;
            self.parts.push((file_end - (to - at), Part::Asked { request, len }));
        }
    }
}

impl Data {
    /// What the file has in a range that is held: the bytes, short only at the end of the file.
    pub(crate) async fn read_file(
        self: &Arc<Self>,
        file: &FileState,
        layout: &Layout,
        (offset, len): (u64, u64),
        pins: &Pins,
    ) -> Result<Vec<Bytes>> {
        self.read_over(None, file, layout, (offset, len), pins).await
    }

    /// The same on top of what was read before, which may keep what is read now.
    async fn read_over(
        self: &Arc<Self>,
        over: Option<(&Clean, Reader)>,
        file: &FileState,
        layout: &Layout,
        (offset, len): (u64, u64),
        pins: &Pins,
    ) -> Result<Vec<Bytes>> {
        // What the OST locks for this is seen in one moment there. Own data on top of it would be of another one.
        for need in needs_of(layout, offset, len).iter().filter(|need| pins.is_contended(need.place.object)) {
            self.back.flush_range(file.fid, need.place.object, need.start, need.end).await;
        }
        let own = |object| !pins.is_contended(object);
        let (plan, mut readings) =
            Plan::new(file, over, layout, (offset, len), (self.files.chunk_bytes, own));
        // What an OST forgets from now on, the readings know of.
        if !self.locks.table.still_counts(pins) {
            readings.fill_with(|| None);
        }
        let given = join_all(plan.asks.clone().into_iter().zip(readings).map(|(ask, reading)| async move {
            let object = ask.place.object;
            // Behind the end of an object there is nothing to ask for.
            match self.locks.known_end(object).filter(|end| *end <= ask.offset) {
                Some(object_size) => Ok(Given { slices: VecDeque::new(), object_size }),
                None => self.read_object(ask, pins.is_contended(object), reading).await,
            }
        }))
        .await;
        let mut given = given.into_iter().collect::<Result<Vec<Given>>>()?;
        let ends = plan.asks.iter().zip(&given);
        let reached =
            ends.map(|(ask, given)| layout.file_size_from(ask.place.object, given.object_size)).max();
        if let Some(reached) = reached {
            file.inner.lock().ahead.reaches(reached);
        }
        let mut ends = plan.asks.iter().zip(&given);
        let short = ends.any(|(ask, given)| given.object_size < ask.offset + ask.len)
            || plan.parts.iter().any(|(_, part)| *part == Part::Hole);
        let size = if short { self.size_after(layout, &plan, &given, offset + len).await? } else { u64::MAX };
        Ok(assemble(plan, &mut given, offset, size))
    }

    /// Whether the object may have something of what is to be asked.
    pub(super) fn is_before_end(&self, ask: &Ask) -> bool {
        self.locks.known_end(ask.place.object).is_none_or(|end| end > ask.offset)
    }

    /// Keeps the first bytes of an object for whoever is about to read them, if they are still true when they are in the cache.
    pub(crate) fn keep_head(&self, object: ObjectId, bytes: &[Bytes], is_true: impl FnOnce() -> bool) {
        // In this order: whatever takes the object's range away drops what is being read of it.
        let reading = self.clean.reading(object, Reader::Ahead);
        if is_true() {
            reading.keep(0, bytes);
        }
    }

    pub(super) async fn read_object(
        &self,
        ask: Ask,
        locked: bool,
        reading: Option<Reading<'_>>,
    ) -> Result<Given> {
        let target = self.targets.data(ask.place.target).await?;
        let rpcs = target.counters.rpcs();
        let waits = rpcs.wait(ask.len);
        let _ahead = match reading.as_ref().is_some_and(Reading::is_ahead) {
            true => Some(target.in_flight.reads_ahead.acquire().await?),
            false => None,
        };
        // What the OST locks waits for others, and must not keep out what does not.
        let _permit = match locked {
            true => None,
            false => Some(target.in_flight.reads.acquire().await?),
        };
        drop(waits);
        let object = ask.place.object;
        tracing::trace!(?object, ask.offset, ask.len, locked, "read");
        let len = u32::try_from(ask.len).map_err(|_| Error::Refused(Code::Invalid))?;
        let under = rpcs.begin(Way::Read, (ask.offset, ask.len), self.rt.now());
        let answered = target.call(Read { object, offset: ask.offset, len, locked }).await;
        under.done(self.rt.now());
        match answered {
            Ok(answered) => {
                let given: u64 = answered.bulk.iter().map(|slice| slice.len() as u64).sum();
                // A reply is short only at the end of the object.
                let reached = if given < ask.len { ask.offset.saturating_add(given) } else { u64::MAX };
                let object_size = answered.reply.size.min(reached);
                if let Some(reading) = reading {
                    reading.keep(ask.offset, &answered.bulk);
                }
                Ok(Given { slices: answered.bulk.into(), object_size })
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }

    /// Size of the file, as far as it matters for a read that ends at `end` and met a short object. Objects are asked
    /// only if those that were read and the own cache do not reach so far, and if their ends are not held.
    async fn size_after(&self, layout: &Layout, plan: &Plan, given: &[Given], end: u64) -> Result<u64> {
        // What an object says of its size while it is read is true only if nobody else can have more for it.
        let mut sizes: Vec<(Place, Option<u64>)> = layout.places().map(|place| (place, None)).collect();
        let mut known = plan.own_end;
        for (ask, given) in plan.asks.iter().zip(given) {
            known = known.max(layout.file_size_from(ask.place.object, given.object_size));
            if self.lease.may_use(ask.place.target)
                && self.locks.table.has_rest(ask.place.object, ask.offset)
                && let Some((_, size)) = sizes.iter_mut().find(|(place, _)| *place == ask.place)
            {
                *size = Some(size.map_or(given.object_size, |size| size.max(given.object_size)));
            }
        }
        if known >= end {
            return Ok(known);
        }
        // Behind what was read others may have written, and not sent it yet: only who asks for the size hears of it.
        for (place, size) in &mut sizes {
            *size = size.filter(|size| self.locks.holds_end(place.object, *size));
        }
        if sizes.iter().all(|(_, size)| size.is_some()) {
            return Ok(known);
        }
        let others = sizes.into_iter().map(|(place, size)| async move {
            match size {
                Some(size) => Ok(ObjectAttr { size, ..NO_OBJECT }),
                None => self.objects.object_attr(place).await,
            }
        });
        let objects = join_all(others).await.into_iter().collect::<Result<Vec<ObjectAttr>>>()?;
        Ok(Sum::of(layout, &objects).size.max(known))
    }
}

/// Puts the parts behind each other; what is missing within the file's `size` is a hole and reads as zeros.
fn assemble(plan: Plan, given: &mut [Given], offset: u64, size: u64) -> Vec<Bytes> {
    let mut out = Vec::new();
    let mut at = offset;
    for (end, part) in plan.parts {
        let end = end.min(size);
        if at >= end {
            break;
        }
        match part {
            Part::Own(mut bytes) => {
                bytes.truncate((end - at) as usize);
                out.push(bytes);
            }
            Part::Hole => zeros(end - at, &mut out),
            Part::Asked { request, len } => {
                let got = take(&mut given[request].slices, len.min(end - at), &mut out);
                zeros(end - at - got, &mut out);
            }
        }
        at = end;
    }
    out
}

/// Moves up to `len` bytes from the front of `slices` to `out`; returns how many there were.
fn take(slices: &mut VecDeque<Bytes>, len: u64, out: &mut Vec<Bytes>) -> u64 {
    let mut left = len as usize;
    while left > 0 {
        let Some(mut slice) = slices.pop_front() else { break };
        if slice.len() > left {
            let rest = slice.split_off(left);
            slices.push_front(rest);
        }
        left -= slice.len();
        if !slice.is_empty() {
            out.push(slice);
        }
    }
    len - left as u64
}

fn zeros(len: u64, out: &mut Vec<Bytes>) {
    let mut left = len as usize;
    while left > 0 {
        let len = left.min(ZEROS.len());
        out.push(Bytes::from_static(&ZEROS[..len]));
        left -= len;
    }
}
