//! Reading from an object.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use proto::ObjectId;
use rt::buf::AlignedBuf;
use rt::wait::join_all;

use super::block::first_damaged;
use super::cache::Object;
use super::extent::{BLOCK, Extent, Run, overlapping};
use super::files::Files;
use super::page_cache::Via;
use super::{CHUNK_BYTES, Objects, chunk_end, refuse_dead};
use crate::error::StoreError;
use crate::target::Store;

/// Reads from the disk that are under way at once for one request.
const READS_MAX: usize = 16;
/// Zeros that holes are made of, in bytes.
const ZEROS_BYTES: usize = 1 << 20;
/// Blocks that are read at once.
const READ_BLOCKS_MAX: u32 = 2048;

/// A part of what is wanted: in one extent, or in none.
pub(super) struct Segment {
    len: u64,
    extent: Option<Extent>,
}

/// One read from the disk.
struct DiskRead {
    run: Run,
    bytes: Bytes,
}

impl Objects {
    /// Slices that together are `[offset, offset+len)` cut at the object's end, holes as zeros; and the size.
    pub async fn read(&self, id: ObjectId, offset: u64, len: u32) -> Result<(Vec<Bytes>, u64), StoreError> {
        let _reading = self.files.reading();
        let (segments, size, before) = self.with(id.layout, |state| {
            refuse_dead(state)?;
            let object = state.object(&self.store, id)?;
            let size = object.record().size;
            let end = offset.saturating_add(u64::from(len)).min(size);
            let segments = object.segments(&self.store, id, offset..end)?;
            object.shrink();
            Ok((segments, size, object.note_read(end.saturating_sub(offset))))
        })?;
        let reads = disk_reads(&segments);
        self.store.counts().reads.note_pieces(reads.iter().map(|read| read.run));
        let via = self.page_cache().of_read(size, before);
        Ok((self.reader.fetch(id, segments, reads, via).await?, size))
    }

    /// The bytes of `range`, holes as zeros. The caller has told that it reads before it looked at the extents.
    pub(super) async fn read_range(&self, id: ObjectId, range: Range<u64>) -> Result<Vec<Bytes>, StoreError> {
        let segments = self.with(id.layout, |state| {
            let object = state.object(&self.store, id)?;
            object.segments(&self.store, id, range)
        })?;
        self.reader.read_segments(id, segments).await
    }
}

impl Object {
    /// What lies in `range` now.
    pub(super) fn segments(
        &mut self,
        store: &Store,
        id: ObjectId,
        range: Range<u64>,
    ) -> Result<Vec<Segment>, StoreError> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = chunk_end(at).min(range.end);
            let extents = self.chunk(store, id, at / CHUNK_BYTES)?;
            for (start, extent) in overlapping(extents, at..end) {
                let from = start.max(at);
                let to = (start + u64::from(extent.len)).min(end);
                if from > at {
                    segments.push(Segment { len: from - at, extent: None });
                }
                let data = extent.is_written().then(|| extent.slice(from - start, to - start));
                segments.push(Segment { len: to - from, extent: data });
                at = to;
            }
            if at < end {
                segments.push(Segment { len: end - at, extent: None });
                at = end;
            }
        }
        Ok(segments)
    }
}

/// Reads what lies in extents from the data files, and checks it.
pub(super) struct Reader {
    files: Arc<Files>,
    zeros: Bytes,
}

impl Reader {
    /// A reader of `files`.
    pub fn new(files: Arc<Files>) -> Reader {
        Reader { files, zeros: AlignedBuf::zeroed(ZEROS_BYTES).freeze() }
    }

    /// The bytes of `segments`, which were looked up since the caller is a reader, whatever the object has become meanwhile.
    pub(super) async fn read_segments(
        &self,
        id: ObjectId,
        segments: Vec<Segment>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let reads = disk_reads(&segments);
        // By nobody who comes back for it.
        self.fetch(id, segments, reads, Via::Disk).await
    }

    /// The bytes of extents that were looked up since the caller is a reader, whatever the object has become meanwhile, and zeros between
    /// them.
    pub(super) async fn read_extents(
        &self,
        id: ObjectId,
        extents: &[(u64, Extent)],
    ) -> Result<Vec<Bytes>, StoreError> {
        let mut segments = Vec::with_capacity(extents.len());
        let mut at = extents.first().map_or(0, |(start, _)| *start);
        for (start, extent) in extents {
            if at < *start {
                segments.push(Segment { len: start - at, extent: None });
            }
            let data = extent.is_written().then(|| extent.clone());
            segments.push(Segment { len: extent.len.into(), extent: data });
            at = start + u64::from(extent.len);
        }
        self.read_segments(id, segments).await
    }

    async fn fetch(
        &self,
        id: ObjectId,
        segments: Vec<Segment>,
        mut reads: Vec<DiskRead>,
        via: Via,
    ) -> Result<Vec<Bytes>, StoreError> {
        for group in reads.chunks_mut(READS_MAX) {
            self.read_group(group, via).await?;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut index = 0;
        for segment in segments {
            let Some(extent) = segment.extent else {
                pieces.push(Piece::Zeros(segment.len));
                continue;
            };
            let run = extent.run();
            // Reads are in the order of the extents.
            while !holds(reads[index].run, run) {
                index += 1;
            }
            check_sums(id, &extent, &reads[index])?;
            let from = (extent.at - u64::from(reads[index].run.block) * BLOCK) as usize;
            let range = from..from + extent.len as usize;
            match pieces.last_mut() {
                Some(Piece::Read(last, before)) if *last == index && before.end == range.start => {
                    before.end = range.end;
                }
                _ => pieces.push(Piece::Read(index, range)),
            }
        }
        let mut slices = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match piece {
                Piece::Zeros(len) => push_zeros(&self.zeros, len, &mut slices),
                Piece::Read(index, range) => slices.push(reads[index].bytes.slice(range)),
            }
        }
        Ok(slices)
    }

    async fn read_group(&self, group: &mut [DiskRead], via: Via) -> Result<(), StoreError> {
        if let [read] = group {
            read.bytes = self.files.read(read.run, via).await?;
            return Ok(());
        }
        let came = join_all(group.iter().map(|read| self.files.read(read.run, via))).await;
        for (read, bytes) in group.iter_mut().zip(came) {
            read.bytes = bytes?;
        }
        Ok(())
    }
}

/// A part of an answer.
enum Piece {
    Zeros(u64),
    /// Which read, and which of its bytes.
    Read(usize, Range<usize>),
}

fn push_zeros(zeros: &Bytes, len: u64, slices: &mut Vec<Bytes>) {
    let mut left = len;
    while left > 0 {
        let part = left.min(zeros.len() as u64);
        slices.push(zeros.slice(..part as usize));
        left -= part;
    }
}

/// Checks every block that `extent` touches.
fn check_sums(id: ObjectId, extent: &Extent, read: &DiskRead) -> Result<(), StoreError> {
    let run = extent.run();
    let first = (run.block - read.run.block) as usize * BLOCK as usize;
    let blocks = read.bytes.get(first..first + run.count as usize * BLOCK as usize);
    let Some(n) = blocks.map_or(Some(0), |blocks| first_damaged(blocks, |n| extent.sum(n))) else {
        return Ok(());
    };
    let block = run.block as usize + n;
    let what = format!("block {block:#x} of data file {} (object {}:{})", run.file, id.layout, id.stripe);
    tracing::error!("{what} does not match its checksum");
    Err(StoreError::Corrupt { what })
}

/// Whether `inner` lies in `outer`.
fn holds(outer: Run, inner: Run) -> bool {
    outer.file == inner.file
        && outer.block <= inner.block
        && inner.block + inner.count <= outer.block + outer.count
}

/// What has to be read for `segments`, in their order.
fn disk_reads(segments: &[Segment]) -> Vec<DiskRead> {
    let mut reads = Vec::new();
    for extent in segments.iter().filter_map(|segment| segment.extent.as_ref()) {
        add_read(&mut reads, extent);
    }
    reads
}

/// Adds what has to be read for `extent`: to the read before if it continues that.
fn add_read(reads: &mut Vec<DiskRead>, extent: &Extent) {
    let run = extent.run();
    if let Some(last) = reads.last_mut() {
        let end = last.run.block + last.run.count;
        // Two pieces of one write may share a block.
        let continues = last.run.file == run.file && (run.block == end || run.block + 1 == end);
        let count = run.block + run.count - last.run.block.min(run.block);
        if continues && run.block >= last.run.block && count <= READ_BLOCKS_MAX {
            last.run.count = count;
            return;
        }
    }
    reads.push(DiskRead { run, bytes: Bytes::new() });
}
