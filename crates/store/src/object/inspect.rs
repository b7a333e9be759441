//! Looking at all objects one after the other, and reading what they have against its checksums. Holes cost nothing, however large they are.

use std::ops::Range;

use proto::wire::messages::Sought;
use proto::{Fid, ObjectId};

use super::extent::{BLOCK, Extent};
use super::keys::{self, Record};
use super::parts::extents_in;
use super::seek::Seek;
use super::{Objects, refuse_dead, tomb};
use crate::error::StoreError;

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// Damaged ranges of one page; it ends when it has so many.
const DAMAGED_MAX: usize = 256;

/// Where an inspection is: at a byte of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The object; it need not be there.
    pub object: ObjectId,
    /// What lies before it in the object was read.
    pub offset: u64,
}

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Inspection {
    /// Where it begins.
    pub from: Position,
    /// Objects of this layout and of those behind it are left out.
    pub until: Fid,
    /// How many objects at most; at least 1.
    pub objects_max: usize,
    /// How many bytes are read and compared with their checksums, about; `None` to read nothing.
    pub bytes_max: Option<u64>,
}

/// An object that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The object.
    pub object: ObjectId,
    /// Bytes up to the last one written.
    pub size: u64,
    /// Ranges that cannot be read, or do not match their checksums, among those that were read.
    pub damaged: Vec<Range<u64>>,
}

/// What was found, and where the rest begins; `None` if that was all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In order.
    pub objects: Vec<Inspected>,
    /// Where to go on: in the last one of `objects`, if it was not read to its end.
    pub next: Option<Position>,
    /// Bytes that were read; holes have none.
    pub bytes: u64,
}

/// A range of an object that is read at once.
struct Stretch {
    range: Range<u64>,
    /// Bytes in it that are no hole.
    data: u64,
}

/// Reads objects against their checksums, as far as a page has room.
struct Verification<'a> {
    objects: &'a Objects,
    read: u64,
    /// What may still be read, and found.
    bytes: u64,
    ranges: usize,
}

impl Objects {
    /// Looks at objects in the order of their ids. What is made or destroyed meanwhile is seen or is not.
    ///
    /// # Errors
    /// The store cannot be read. Data that cannot be read is what is looked for, and no error.
    pub async fn inspect(&self, inspection: Inspection) -> Result<Page, StoreError> {
        let Inspection { from, until, objects_max, bytes_max } = inspection;
        let first = keys::record_key(from.object);
        let end = keys::record_key(ObjectId { layout: until, stripe: 0 });
        let found = self.store.scan(&first, &end, objects_max.max(1))?;
        let mut next = match found.last() {
            Some((key, _)) if found.len() == objects_max.max(1) => behind(key),
            _ => None,
        };
        let mut verification = Verification {
            objects: self,
            read: 0,
            bytes: bytes_max.unwrap_or(u64::MAX),
            ranges: DAMAGED_MAX,
        };
        let mut objects = Vec::with_capacity(found.len());
        for (key, value) in found {
            let damaged = || StoreError::Corrupt { what: format!("the record with key {key:x}") };
            let named = keys::parse_record_key(&key).zip(Record::decode(&value.bytes));
            let (object, Record { size, .. }) = named.ok_or_else(damaged)?;
            if tomb::is_dead(&*self.store, object.layout)? {
                continue;
            }
            let mut seen = Inspected { object, size, damaged: Vec::new() };
            if bytes_max.is_some() {
                let begin = if object == from.object { from.offset } else { 0 };
                let offset = verification.verify(&mut seen, begin).await?;
                if offset < size {
                    next = Some(Position { object, offset });
                    objects.push(seen);
                    break;
                }
            }
            objects.push(seen);
        }
        Ok(Page { objects, next, bytes: verification.read })
    }
}

impl Verification<'_> {
    fn is_used_up(&self) -> bool {
        self.bytes == 0 || self.ranges == 0
    }

    /// Reads an object from `at` on as far as there is room, and notes what of it is not as it was written. How far it came; its end, if it
    /// was destroyed meanwhile.
    async fn verify(&mut self, seen: &mut Inspected, mut at: u64) -> Result<u64, StoreError> {
        while at < seen.size && !self.is_used_up() {
            let stretch = match self.next_stretch(seen, at) {
                // Which extents there are cannot be read: that is seen of each part of it.
                Err(StoreError::Corrupt { .. } | StoreError::Io(_)) => {
                    let range = at..at.saturating_add(READ_BYTES).min(seen.size);
                    Some(Stretch { data: range.end - range.start, range })
                }
                Err(StoreError::Gone) => None,
                found => found?,
            };
            let Some(Stretch { range, data }) = stretch else { return Ok(seen.size) };
            at = range.end;
            if range.is_empty() {
                // There is much reserved space: others of the same core have their turn.
                self.objects.files.pause().await;
                continue;
            }
            let before = seen.damaged.len();
            if !self.verify_part(seen, range).await? {
                return Ok(seen.size);
            }
            self.read += data;
            self.bytes = self.bytes.saturating_sub(data);
            self.ranges = self.ranges.saturating_sub(seen.damaged.len() - before);
        }
        Ok(at)
    }

    /// What is to be read next of an object, from `at` on; `None` if there is nothing but a hole. Nothing is to be read of an empty range, where it
    /// has to be looked again.
    fn next_stretch(&self, seen: &Inspected, at: u64) -> Result<Option<Stretch>, StoreError> {
        let Sought { offset, more } = self.objects.seek(seen.object, at, Seek::Data)?;
        let Some(start) = offset.filter(|start| *start < seen.size) else { return Ok(None) };
        if more {
            return Ok(Some(Stretch { range: start..start, data: 0 }));
        }
        let range = start..start.saturating_add(READ_BYTES).min(seen.size);
        let extents = self.objects.with(seen.object.layout, |state| {
            let object = state.object(&self.objects.store, seen.object)?;
            extents_in(object, &self.objects.store, seen.object, &range)
        })?;
        let within = |(start, extent): &(u64, Extent)| {
            (start + u64::from(extent.len)).min(range.end).saturating_sub(range.start.max(*start))
        };
        let data = extents.iter().filter(|(_, extent)| extent.is_written()).map(within).sum();
        Ok(Some(Stretch { range, data }))
    }

    /// Reads a range, and notes what of it is not as it was written. False if the object was destroyed.
    async fn verify_part(&self, seen: &mut Inspected, range: Range<u64>) -> Result<bool, StoreError> {
        match self.read_whole(seen.object, range.clone()).await {
            Err(StoreError::Corrupt { .. } | StoreError::Io(_)) => {}
            Err(StoreError::Gone) => return Ok(false),
            read => return read.map(|()| true),
        }
        // Which of its blocks: each by itself. Those of the data files need not begin where those of the object do.
        let mut at = range.start;
        while at < range.end {
            let part = at..(at / BLOCK + 1).saturating_mul(BLOCK).min(range.end);
            at = part.end;
            match self.read_whole(seen.object, part.clone()).await {
                Err(StoreError::Corrupt { .. } | StoreError::Io(_)) => match seen.damaged.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => seen.damaged.push(part),
                },
                Err(StoreError::Gone) => return Ok(false),
                read => read?,
            }
        }
        Ok(true)
    }

    async fn read_whole(&self, object: ObjectId, range: Range<u64>) -> Result<(), StoreError> {
        let _reading = self.objects.files.reading();
        self.objects.with(object.layout, |state| refuse_dead(state))?;
        self.objects.read_range(object, range).await.map(drop)
    }
}

/// The beginning of what comes behind the object whose record has `key`.
fn behind(key: &[u8]) -> Option<Position> {
    let ObjectId { layout, stripe } = keys::parse_record_key(key)?;
    // There are fewer stripes than numbers.
    Some(Position { object: ObjectId { layout, stripe: stripe.checked_add(1)? }, offset: 0 })
}
