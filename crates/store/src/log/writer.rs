//! Appends records to segment files of this boot. One group commit is one write.

use bytes::Bytes;
use rt::buf::AlignedBuf;
use rt::{Dir, File};

use crate::limits::{BLOCK_BYTES, Limits};
use crate::log::record::{Body, HEADER_BYTES, stride};
use crate::log::scan::Closed;
use crate::log::segment::{Record, SegmentId, encode_start};

/// Smallest growth of a segment file, in bytes.
const ALLOCATE_BYTES_MIN: u64 = 1 << 20;

/// The open end of the log on disk.
pub struct Writer {
    dir: Dir,
    limits: Limits,
    segment: Segment,
    /// Last transno written.
    prev: u64,
    /// Whether space for further records could not be reserved.
    short_of_space: bool,
    /// The first segment, as long as its first block is held back, and the last transno before it.
    held_back: Option<(File, SegmentId, u64)>,
}

struct Segment {
    file: File,
    id: SegmentId,
    /// Bytes written; 0 until the first group, which writes the first block too.
    used: u64,
    allocated: u64,
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

impl Writer {
    /// Makes the first segment of `boot`; records continue behind `prev`.
    pub async fn create(dir: Dir, boot: u64, prev: u64, limits: Limits) -> std::io::Result<Writer> {
        let segment = Segment::create(&dir, SegmentId { boot, number: 0 }, limits).await?;
        Ok(Writer { dir, limits, segment, prev, short_of_space: false, held_back: None })
    }

    /// What is appended from now on does not count until [`Writer::release`]: the block that says how much of the log before
    /// it was taken over is not written yet.
    pub fn hold_back(&mut self) {
        self.held_back = Some((self.segment.file.clone(), self.segment.id, self.prev));
    }

    /// Everything that was appended since [`Writer::hold_back`] counts, and nothing of former boots behind where it begins.
    pub async fn release(&mut self) -> std::io::Result<()> {
        let Some((file, id, prev)) = self.held_back.take() else { return Ok(()) };
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
        block.as_mut().copy_from_slice(&encode_start(id, prev));
        file.write_at(0, vec![block.freeze()]).await?;
        file.sync().await?;
        if id == self.segment.id {
            self.segment.used = self.segment.used.max(BLOCK_BYTES as u64);
        }
        Ok(())
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

    /// Writes `bodies` as records and makes them durable.
    pub async fn append(&mut self, bodies: &[Body]) -> std::io::Result<Appended> {
        let closed = self.next_segment().await?;
        let start_bytes = if self.segment.used == 0 { BLOCK_BYTES } else { 0 };
        let len = bodies.iter().fold(start_bytes, |len, body| len + stride(body.bytes.len()));
        self.reserve(len as u64).await?;
        let mut buf = AlignedBuf::zeroed(len);
        if start_bytes > 0 {
            buf.as_mut()[..BLOCK_BYTES].copy_from_slice(&encode_start(self.segment.id, self.prev));
        }
        let mut at = start_bytes;
        let mut headers = Vec::with_capacity(bodies.len());
        for body in bodies {
            let header = body.header(self.segment.id.boot, self.prev);
            self.prev = header.last;
            let body_at = at + HEADER_BYTES;
            buf.as_mut()[at..body_at].copy_from_slice(&header.encode());
            buf.as_mut()[body_at..body_at + body.bytes.len()].copy_from_slice(&body.bytes);
            headers.push((header, body_at));
            at += header.stride();
        }
        let bytes = buf.freeze();
        let is_held_back = self.held_back.as_ref().is_some_and(|(_, id, _)| *id == self.segment.id);
        let skipped = if is_held_back { start_bytes } else { 0 };
        if skipped < len {
            let at = self.segment.used + skipped as u64;
            self.segment.file.write_at(at, vec![bytes.slice(skipped..)]).await?;
            self.segment.file.sync().await?;
        }
        self.segment.used += len as u64;
        let body = |at: usize, len: u32| -> Bytes { bytes.slice(at..at + len as usize) };
        let records = headers
            .into_iter()
            .map(|(header, at)| Record { header, body: body(at, header.body_bytes) })
            .collect();
        Ok(Appended { records, bytes: len, closed })
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
        Ok(Segment { file, id, used: 0, allocated })
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
