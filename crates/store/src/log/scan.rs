//! Reading the log of former boots: from the engine's position to the end of what was durable.
//!
//! Writes are sequential with one sync in flight, so only the last group of records can be torn: what was not durable when the
//! power failed was never announced as committed. Anything else that does not hold together was changed since, or is gone
//! (`docs/disk.md#torn`), and then nothing is given: what follows rests on it. A boot's first segment says how much of the log
//! before it that boot took over; whatever an older owner wrote beyond that is void.

use std::collections::{BTreeMap, BTreeSet};

use rt::{Dir, File};

use crate::error::StoreError;
use crate::limits::BLOCK_BYTES;
use crate::log::sectors::{SECTOR_BYTES, is_blank};
use crate::log::segment::{Next, Record, SegmentId, SegmentReader, Start, decode_start, is_other_format};

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
    /// What its first block says; `None` if that was never written whole, or is gone.
    start: Option<Start>,
    /// The first block was not written, or only in part.
    is_unwritten: bool,
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

/// Reads all records behind `position` in order. The boot `taken` is known to have made the first block of its log durable.
///
/// # Errors
/// The log is damaged: a sentence says what is affected.
pub async fn scan(
    dir: &Dir,
    position: u64,
    taken: u64,
    mut each: impl FnMut(Record) -> Result<(), StoreError>,
) -> Result<Scanned, StoreError> {
    let segments = open_all(dir, taken).await?;
    check_ends(&segments, taken).await?;
    let cutoffs = cutoffs(&segments);
    let prev_of = |segment: &Segment| segment.start.map(|start| start.prev);
    let Some(first) = segments.iter().rposition(|s| prev_of(s).is_some_and(|prev| prev <= position)) else {
        if let Some(prev) = segments.iter().find_map(prev_of) {
            return Err(missing(position, prev));
        }
        return Ok(Scanned { last: position, segments: all_closed(&segments, position) });
    };
    let mut closed = all_closed(&segments[..first], position);
    let mut last = prev_of(&segments[first]).unwrap_or(position);
    for (index, segment) in segments.iter().enumerate().skip(first) {
        // One without a first block has nothing in it, if those behind it continue what was before.
        if let Some(start) = segment.start {
            if start.prev != last {
                return Err(missing(last, start.prev));
            }
            let cutoff = cutoffs.get(&segment.id.boot).copied().unwrap_or(u64::MAX);
            let end = read_segment(segment, start, cutoff, position, &mut each).await?;
            if let Some(damage) = end.damage {
                let known = segments[index + 1..].iter().filter_map(prev_of).max();
                return Err(damaged(segment.id, end.at, end.last, damage.max(known)));
            }
            last = end.last;
        }
        closed.push(Closed { id: segment.id, last, file_bytes: segment.file_bytes });
    }
    Ok(Scanned { last: last.max(position), segments: closed })
}

/// Checks that no segment lost its first block behind which no other one shows it: it is durable before there are records, but
/// for an owner that takes the log over.
async fn check_ends(segments: &[Segment], taken: u64) -> Result<(), StoreError> {
    let newest = segments.iter().rposition(|segment| segment.start.is_some());
    let boot = newest.and_then(|index| segments.get(index)).map_or(0, |segment| segment.id.boot);
    if boot < taken {
        return Err(StoreError::Damaged(format!(
            "the log is damaged: the beginning of what was written since the target was opened for the time {taken} is gone, \
             and with it changes that were durable; {HELP}"
        )));
    }
    for segment in segments.iter().skip(newest.map_or(0, |index| index + 1)).filter(|s| !s.void) {
        let reader = SegmentReader::new(segment.file.clone(), segment.id, 0);
        if !segment.is_unwritten || !reader.rest_is_blank().await? {
            return Err(StoreError::Damaged(format!(
                "the log is damaged: the first block of its file {} is gone, and with it changes that were durable; {HELP}",
                segment.id.name()
            )));
        }
    }
    Ok(())
}

async fn open_all(dir: &Dir, taken: u64) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for id in list(dir).await? {
        let Some(file) = open_if_there(dir, id).await? else { continue };
        // What is read from here on counts as committed, so it has to survive the machine too.
        file.sync().await?;
        let block = file.read_at(0, BLOCK_BYTES).await?;
        if is_other_format(&block) {
            return Err(StoreError::NotATarget(format!(
                "the file {} of its log is of a format that this program does not read",
                id.name()
            )));
        }
        let start = decode_start(id, &block);
        let file_bytes = file.len().await?;
        let is_unwritten = start.is_none() && is_unwritten(&block);
        segments.push(Segment { id, file, file_bytes, start, is_unwritten, void: false });
    }
    let is_void =
        |segment: &Segment| segment.is_unwritten && segment.id.number == 0 && segment.id.boot > taken;
    let void: BTreeSet<u64> = segments.iter().filter(|s| is_void(s)).map(|s| s.id.boot).collect();
    for segment in &mut segments {
        segment.void = void.contains(&segment.id.boot);
        segment.start = segment.start.filter(|_| !segment.void);
    }
    Ok(segments)
}

/// Opens a segment, unless it was deleted since it was listed: an owner before, which may still be at it, believes that nobody needs it. If
/// somebody does, what is missing is seen.
async fn open_if_there(dir: &Dir, id: SegmentId) -> Result<Option<File>, StoreError> {
    match dir.open(&id.name()).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

/// Whether a first block was not written, or only in part.
fn is_unwritten(block: &[u8]) -> bool {
    let is_missing = |sector: Option<&[u8]>| sector.is_none_or(is_blank);
    is_missing(block.get(..SECTOR_BYTES)) || is_missing(block.get(BLOCK_BYTES - SECTOR_BYTES..))
}

/// The newest boot that has taken the log before it over; 0 if there was none.
pub async fn newest(dir: &Dir) -> Result<u64, StoreError> {
    let mut ids = list(dir).await?;
    while let Some(SegmentId { boot, .. }) = ids.last().copied() {
        let first = SegmentId { boot, number: 0 };
        let was_cut = !ids.contains(&first);
        if was_cut {
            return Ok(boot);
        }
        let Some(file) = open_if_there(dir, first).await? else {
            // Whether its log was cut, or all of it went, the names tell.
            ids = list(dir).await?;
            continue;
        };
        if decode_start(first, &file.read_at(0, BLOCK_BYTES).await?).is_some() {
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
        if let Some(start) = segment.start {
            taken_over = Some((segment.id.boot, start.prev));
        }
    }
    cutoffs
}

/// Where reading a segment ended.
struct End {
    /// The last transno.
    last: u64,
    /// The place in the file, in bytes.
    at: u64,
    /// There is damage, and in the same file records up to this transno behind it, if any.
    damage: Option<Option<u64>>,
}

/// Reads the records of one segment up to `cutoff`.
async fn read_segment(
    segment: &Segment,
    start: Start,
    cutoff: u64,
    position: u64,
    each: &mut impl FnMut(Record) -> Result<(), StoreError>,
) -> Result<End, StoreError> {
    let mut reader = SegmentReader::new(segment.file.clone(), segment.id, start.salt);
    let mut last = start.prev;
    while last < cutoff {
        let at = reader.at();
        let is_end = match reader.next().await? {
            Next::Record(record) if record.header.prev == last => {
                if record.header.last > cutoff {
                    break;
                }
                last = record.header.last;
                if last > position {
                    each(record)?;
                }
                continue;
            }
            Next::Record(_) | Next::Damaged => false,
            Next::End => true,
        };
        let beyond = reader.beyond().await?;
        let damage = (!is_end || beyond.is_some()).then_some(beyond);
        return Ok(End { last, at, damage });
    }
    Ok(End { last, at: reader.at(), damage: None })
}

fn all_closed(segments: &[Segment], last: u64) -> Vec<Closed> {
    segments.iter().map(|s| Closed { id: s.id, last, file_bytes: s.file_bytes }).collect()
}

/// What a sentence about damage ends with.
const HELP: &str = "docs/operations.md#damaged says what can be done";

fn missing(from: u64, to: u64) -> StoreError {
    StoreError::Damaged(format!(
        "the log is damaged: the changes {} to {to} were durable and are missing; {HELP}",
        from + 1
    ))
}

/// The segment `id` was changed at the byte `at`, and nothing behind the transno `last` can be read; changes up to `known` are
/// known to have been durable.
fn damaged(id: SegmentId, at: u64, last: u64, known: Option<u64>) -> StoreError {
    let affected = match known.filter(|known| *known > last) {
        Some(known) => format!("of the changes {} to {known}, which were durable, some", last + 1),
        None => format!("the changes from {} on, some of which may have been durable,", last + 1),
    };
    StoreError::Damaged(format!(
        "the log is damaged: its file {} is not what was written from byte {at} on; {affected} cannot be read; {HELP}",
        id.name()
    ))
}
