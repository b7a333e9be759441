//! Reading the log of former boots: from the engine's position to the end of what was durable.
//!
//! Writes are sequential with one sync in flight, so the prefix that holds together is the truth; what lies behind
//! the first bad record was never announced as committed. A boot's first segment says how much of the log before
//! it that boot took over; whatever an older owner wrote beyond that is void.

use std::collections::{BTreeMap, BTreeSet};

use rt::{Dir, File};

use crate::error::StoreError;
use crate::limits::BLOCK_BYTES;
use crate::log::segment::{Record, SegmentId, SegmentReader, decode_start};

/// What a disk writes as a whole, in bytes.
const SECTOR_BYTES: usize = 512;

/// A segment file that gets no further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Which.
    pub id: SegmentId,
    /// No record in it is behind this transno.
    pub last: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// What the log of former boots holds.
#[derive(Debug)]
pub struct Scanned {
    /// Last transno of the log, or the engine's position if that is behind it.
    pub last: u64,
    /// All segment files, in order.
    pub segments: Vec<Closed>,
}

struct Segment {
    id: SegmentId,
    file: File,
    file_bytes: u64,
    /// Last transno before the segment; `None` if its first block was never written whole.
    prev: Option<u64>,
    /// Its boot did not get to the end of taking the log over: nothing of it counts.
    void: bool,
}

/// The ids of all segment files in `dir`, in order.
pub async fn list(dir: &Dir) -> Result<Vec<SegmentId>, StoreError> {
    let mut ids: Vec<SegmentId> =
        dir.list().await?.iter().filter_map(|name| SegmentId::parse(name)).collect();
    ids.sort();
    Ok(ids)
}

/// Reads all records behind `position` in order. Boots up to `taken` are known to have written the first block of their log.
pub async fn scan(
    dir: &Dir,
    position: u64,
    taken: u64,
    mut each: impl FnMut(Record) -> Result<(), StoreError>,
) -> Result<Scanned, StoreError> {
    let segments = open_all(dir, taken).await?;
    let cutoffs = cutoffs(&segments);
    let Some(start) = segments.iter().rposition(|s| s.prev.is_some_and(|prev| prev <= position)) else {
        if let Some(prev) = segments.iter().find_map(|s| s.prev) {
            return Err(missing(position, prev));
        }
        return Ok(Scanned { last: position, segments: all_closed(&segments, position) });
    };
    let mut closed = all_closed(&segments[..start], position);
    let mut last = segments[start].prev.unwrap_or(position);
    for (index, segment) in segments.iter().enumerate().skip(start) {
        match segment.prev {
            Some(prev) if prev == last => {
                let cutoff = cutoffs.get(&segment.id.boot).copied().unwrap_or(u64::MAX);
                last = read_segment(segment, last, cutoff, position, &mut each).await?;
            }
            Some(prev) => return Err(missing(last, prev)),
            None if segment.void => {}
            None => {
                // Made, but no group commit into it finished; a later one of the same boot shows the contrary.
                let continued = segments[index + 1..].iter().any(|s| s.id.boot == segment.id.boot);
                if continued {
                    return Err(StoreError::Corrupt { what: format!("log segment {}", segment.id.name()) });
                }
            }
        }
        closed.push(Closed { id: segment.id, last, file_bytes: segment.file_bytes });
    }
    Ok(Scanned { last: last.max(position), segments: closed })
}

async fn open_all(dir: &Dir, taken: u64) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for id in list(dir).await? {
        let file = dir.open(&id.name()).await?;
        // What is read from here on counts as committed, so it has to survive the machine too.
        file.sync().await?;
        let block = file.read_at(0, BLOCK_BYTES).await?;
        let prev = decode_start(id, &block);
        let file_bytes = file.len().await?;
        let void = prev.is_none() && is_unwritten(&block);
        segments.push(Segment { id, file, file_bytes, prev, void });
    }
    let is_void = |segment: &Segment| segment.void && segment.id.number == 0 && segment.id.boot > taken;
    let void: BTreeSet<u64> = segments.iter().filter(|s| is_void(s)).map(|s| s.id.boot).collect();
    for segment in &mut segments {
        segment.void = void.contains(&segment.id.boot);
        segment.prev = segment.prev.filter(|_| !segment.void);
    }
    Ok(segments)
}

/// Whether a first block was not written, or only in part.
fn is_unwritten(block: &[u8]) -> bool {
    let is_zero = |sector: Option<&[u8]>| sector.is_none_or(|sector| sector.iter().all(|byte| *byte == 0));
    is_zero(block.get(..SECTOR_BYTES)) || is_zero(block.get(BLOCK_BYTES - SECTOR_BYTES..))
}

/// The newest boot that has taken the log before it over; 0 if there was none.
pub async fn newest(dir: &Dir) -> Result<u64, StoreError> {
    let mut ids = list(dir).await?;
    while let Some(SegmentId { boot, .. }) = ids.last().copied() {
        let first = SegmentId { boot, number: 0 };
        let was_cut = !ids.contains(&first);
        if was_cut
            || decode_start(first, &dir.open(&first.name()).await?.read_at(0, BLOCK_BYTES).await?).is_some()
        {
            return Ok(boot);
        }
        ids.retain(|id| id.boot != boot);
    }
    Ok(0)
}

/// For each boot, the last transno that the next boot took over.
fn cutoffs(segments: &[Segment]) -> BTreeMap<u64, u64> {
    let mut cutoffs = BTreeMap::new();
    let mut taken_over: Option<(u64, u64)> = None;
    for segment in segments.iter().rev() {
        if let Some((boot, prev)) = taken_over
            && boot != segment.id.boot
        {
            cutoffs.entry(segment.id.boot).or_insert(prev);
        }
        if let Some(prev) = segment.prev {
            taken_over = Some((segment.id.boot, prev));
        }
    }
    cutoffs
}

/// Reads the records of one segment up to `cutoff`; returns the last transno.
async fn read_segment(
    segment: &Segment,
    mut last: u64,
    cutoff: u64,
    position: u64,
    each: &mut impl FnMut(Record) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let (mut reader, _) = SegmentReader::open(segment.file.clone(), segment.id).await?;
    while let Some(record) = reader.next().await? {
        let header = record.header;
        if header.boot != segment.id.boot || header.prev != last || header.last > cutoff {
            break;
        }
        last = header.last;
        if last > position {
            each(record)?;
        }
    }
    Ok(last)
}

fn all_closed(segments: &[Segment], last: u64) -> Vec<Closed> {
    segments.iter().map(|s| Closed { id: s.id, last, file_bytes: s.file_bytes }).collect()
}

fn missing(from: u64, to: u64) -> StoreError {
    StoreError::Corrupt { what: format!("the log (changes {} to {to} are missing)", from + 1) }
}
