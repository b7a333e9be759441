//! Appends records to segment files of this boot. One group commit is one write.

use bytes::Bytes;
use rt::buf::AlignedBuf;
use rt::{Dir, File};

use crate::limits::{BLOCK_BYTES, Limits};
use crate::log::record::{Body, HEADER_BYTES, Place, put, stride};
use crate::log::scan::Closed;
use crate::log::segment::{Record, SegmentId, Start, encode_start};
use crate::reserve::is_full;

/// Smallest growth of a segment file, in bytes.
const ALLOCATE_BYTES_MIN: u64 = 1 << 20;
/// A group of at most so many bytes goes where zeros were written before.
const SMALL_GROUP_BYTES: u64 = 64 << 10;
/// Zeros that are written ahead at a time, in bytes.
const AHEAD_BYTES: u64 = 512 << 10;

/// The open end of the log on disk.
pub struct Writer {
    dir: Dir,
    limits: Limits,
    segment: Segment,
    /// Last transno written.
    prev: u64,
    /// Of all segments of this boot.
    salt: u64,
    /// Whether space for further records could not be reserved.
    short_of_space: bool,
    /// A segment that is full, until the next one has something.
    closed_before: Option<Closed>,
    /// The first segment, as long as its first block is held back, and the last transno before it.
    held_back: Option<(File, SegmentId, u64)>,
}

struct Segment {
    file: File,
    id: SegmentId,
    /// Bytes written, the first block among them.
    used: u64,
    allocated: u64,
    /// Up to here something was written, if only zeros.
    filled: u64,
}

/// What a group commit wrote.
pub struct Appended {
    /// The records as they lie on disk.
    pub records: Vec<Record>,
    /// Bytes that were written.
    pub bytes: usize,
    /// The segment that was full before.
    pub closed: Option<Closed>,
}

/// What a boot's log begins with.
#[derive(Debug, Clone, Copy)]
pub struct Begin {
    /// The boot.
    pub boot: u64,
    /// Last transno of the log before.
    pub prev: u64,
    /// A random number.
    pub salt: u64,
}

impl Writer {
    /// Makes the first segment of a boot; that it continues the log behind `prev` is durable when this returns.
    pub async fn create(dir: Dir, begin: Begin, limits: Limits) -> std::io::Result<Writer> {
        let mut writer = Writer::create_held_back(dir, begin, limits).await?;
        writer.release().await?;
        Ok(writer)
    }

    /// The same, but what is appended does not count until [`Writer::release`]: the block that says how much of the log before
    /// it was taken over is not written yet.
    pub async fn create_held_back(dir: Dir, begin: Begin, limits: Limits) -> std::io::Result<Writer> {
        let Begin { boot, prev, salt } = begin;
        let segment = Segment::create(&dir, SegmentId { boot, number: 0 }, limits).await?;
        let held_back = Some((segment.file.clone(), segment.id, prev));
        Ok(Writer { dir, limits, segment, prev, salt, short_of_space: false, closed_before: None, held_back })
    }

    /// Everything that was appended since [`Writer::create_held_back`] counts, and nothing of former boots behind where it begins.
    pub async fn release(&mut self) -> std::io::Result<()> {
        let Some((file, id, prev)) = self.held_back.take() else { return Ok(()) };
        write_start(&file, id, Start { prev, salt: self.salt }).await
    }

    /// Whether space for further records could not be reserved.
    pub fn short_of_space(&self) -> bool {
        self.short_of_space
    }

    /// Bytes of the open segment's file.
    pub fn allocated(&self) -> u64 {
        self.segment.allocated
    }

    /// The open segment, as one that gets no further record.
    pub fn closed(&self) -> Closed {
        Closed { id: self.segment.id, last: self.prev, file_bytes: self.segment.allocated }
    }

    /// Makes space for `bodies`. An error means that there is none for them, and that nothing was written.
    pub async fn prepare(&mut self, bodies: &[Body]) -> std::io::Result<()> {
        if let Some(closed) = self.next_segment().await? {
            self.closed_before = Some(closed);
        }
        self.reserve(Writer::len_of(bodies) as u64).await
    }

    /// Bytes that are given up for `bodies` if there is no space.
    pub fn wanted(&self, bodies: &[Body]) -> u64 {
        Writer::len_of(bodies) as u64 + self.limits.allocate_bytes
    }

    /// Bytes that `bodies` take in a segment.
    pub fn len_of(bodies: &[Body]) -> usize {
        bodies.iter().map(|body| stride(body.bytes.len())).sum()
    }

    /// Writes `bodies` as records and makes them durable.
    pub async fn append(&mut self, bodies: &[Body]) -> std::io::Result<Appended> {
        self.prepare(bodies).await?;
        let len = Writer::len_of(bodies);
        let mut buf = AlignedBuf::zeroed(len);
        let Segment { id: SegmentId { boot, .. }, used: synced, .. } = self.segment;
        let place = Place { boot, salt: self.salt, synced };
        let mut at = 0;
        let mut headers = Vec::with_capacity(bodies.len());
        for body in bodies {
            let header = body.header(place, self.prev);
            self.prev = header.last;
            put(&mut buf.as_mut()[at..at + header.stride()], &header, &body.bytes);
            headers.push((header, at + HEADER_BYTES));
            at += header.stride();
        }
        let bytes = buf.freeze();
        if len > 0 {
            self.fill_ahead(len as u64).await?;
            self.segment.file.write_at(synced, vec![bytes.clone()]).await?;
            self.segment.file.sync().await?;
        }
        self.segment.used += len as u64;
        self.segment.filled = self.segment.filled.max(self.segment.used);
        let body = |at: usize, len: u32| -> Bytes { bytes.slice(at..at + len as usize) };
        let records = headers
            .into_iter()
            .map(|(header, at)| Record { header, body: body(at, header.body_bytes) })
            .collect();
        Ok(Appended { records, bytes: len, closed: self.closed_before.take() })
    }

    /// Writes zeros where a small group of `len` bytes will lie, and ahead of it. Of space that was only reserved, a file system notes what
    /// is written for the first time, and each sync would write such a note, too.
    async fn fill_ahead(&mut self, len: u64) -> std::io::Result<()> {
        let Segment { file, used, allocated, filled, .. } = &mut self.segment;
        let end = *used + len;
        if len > SMALL_GROUP_BYTES || end <= *filled {
            return Ok(());
        }
        let until = (end + AHEAD_BYTES).min(*allocated);
        let zeros = AlignedBuf::zeroed(until.saturating_sub(*filled) as usize).freeze();
        match file.write_at(*filled, vec![zeros]).await {
            Ok(()) => *filled = until,
            // The records may find a place all the same.
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Tries to have space for `len` bytes and some more. An error means that `len` bytes do not fit.
    pub async fn reserve(&mut self, len: u64) -> std::io::Result<()> {
        let needed = self.segment.used + len;
        let step = self.segment.used.max(ALLOCATE_BYTES_MIN).min(self.limits.allocate_bytes);
        if needed + step / 2 <= self.segment.allocated {
            self.short_of_space = false;
            return Ok(());
        }
        let grown = (needed + step).next_multiple_of(BLOCK_BYTES as u64);
        let more = grown - self.segment.allocated;
        match self.segment.file.allocate(self.segment.allocated, more).await {
            Ok(()) => {
                self.segment.allocated = grown;
                self.short_of_space = false;
                Ok(())
            }
            Err(error) if is_full(&error) && needed <= self.segment.allocated => {
                self.short_of_space = true;
                Ok(())
            }
            // There may be enough for this, and not for what comes.
            Err(error) if is_full(&error) => {
                let needed = needed.next_multiple_of(BLOCK_BYTES as u64);
                let more = needed - self.segment.allocated;
                self.segment.file.allocate(self.segment.allocated, more).await?;
                self.segment.allocated = needed;
                self.short_of_space = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Goes on to a fresh segment if the open one is full. Without space for one the open one just grows.
    async fn next_segment(&mut self) -> std::io::Result<Option<Closed>> {
        if self.segment.used < self.limits.segment_bytes {
            return Ok(None);
        }
        let SegmentId { boot, number } = self.segment.id;
        let id = SegmentId { boot, number: number + 1 };
        match Segment::create(&self.dir, id, self.limits).await {
            Ok(segment) => {
                // Before any record, so that one behind a first block that is not there shows that it was lost.
                write_start(&segment.file, id, Start { prev: self.prev, salt: self.salt }).await?;
                let closed = self.closed();
                self.segment = segment;
                Ok(Some(closed))
            }
            Err(error) if is_full(&error) => match self.dir.remove(&id.name()).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(None),
            },
            Err(error) => Err(error),
        }
    }
}

impl Segment {
    /// Makes the file of `id`; its name is durable when this returns.
    async fn create(dir: &Dir, id: SegmentId, limits: Limits) -> std::io::Result<Segment> {
        let file = dir.create(&id.name()).await?;
        let allocated = ALLOCATE_BYTES_MIN.min(limits.allocate_bytes);
        file.allocate(0, allocated).await?;
        dir.sync().await?;
        Ok(Segment { file, id, used: BLOCK_BYTES as u64, allocated, filled: BLOCK_BYTES as u64 })
    }
}

/// Writes the first block of a segment; it is durable when this returns.
async fn write_start(file: &File, id: SegmentId, start: Start) -> std::io::Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    block.as_mut().copy_from_slice(&encode_start(id, start));
    file.write_at(0, vec![block.freeze()]).await?;
    file.sync().await
}
