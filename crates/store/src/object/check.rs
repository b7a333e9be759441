//! Whether the objects of a target fit together. For a target that nobody writes to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto::ObjectId;
use rt::{Dir, File};

use super::CHUNK_BYTES;
use super::block::first_damaged;
use super::extent::{BLOCK, Extent, FileId, Run};
use super::files;
use super::keys::{self, Record};
use super::logged::Kept;
use super::{seal, tomb};
use crate::check::Report;
use crate::error::StoreError;
use crate::scan::{Scan, scan_all};

/// Blocks that are read at once.
const READ_BLOCKS_MAX: u32 = 1024;

/// One extent's blocks, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Owned {
    run: Run,
    object: ObjectId,
    /// Offset in the file less offset in the object: the same for all pieces of one write.
    shift: i64,
    /// Empty for reserved space.
    sums: Bytes,
}

fn name(id: ObjectId) -> String {
    format!("object {}:{}", id.layout, id.stripe)
}

/// Compares records, extents and data files with each other.
pub(crate) async fn structure_of(dir: &Dir, scan: &impl Scan, report: &mut Report) -> Result<(), StoreError> {
    let owned = check_keys(scan, report)?;
    if !owned.is_empty() {
        check_files(dir, &owned, report).await?;
    }
    Ok(())
}

/// Reads all data and compares it with its checksums; what the log has in `kept` goes for what is on the disk.
pub(crate) async fn data_of(
    dir: &Dir,
    scan: &impl Scan,
    kept: &Kept,
    report: &mut Report,
) -> Result<(), StoreError> {
    // What does not fit otherwise is found by the other check.
    let owned = check_keys(scan, &mut Report::default())?;
    if !owned.is_empty() {
        check_data(dir, &owned, kept, report).await?;
    }
    Ok(())
}

/// Checks records and extents; the blocks of all extents, sorted.
fn check_keys(scan: &impl Scan, report: &mut Report) -> Result<Vec<Owned>, StoreError> {
    let mut owned: Vec<Owned> = Vec::new();
    let mut objects: BTreeSet<ObjectId> = BTreeSet::new();
    scan_all(scan, keys::records(), |key, value| {
        let Some((id, record)) = keys::parse_record_key(key).zip(Record::decode(value)) else {
            report.find(format!("The record with key {key:x} is damaged."));
            return Ok(());
        };
        // What is left of a destroyed object goes when the target starts: it has no data in sight.
        if tomb::is_dead(scan, id.layout)? && record.size > 0 {
            report.find(format!("The {} was destroyed and has data.", name(id)));
        }
        objects.insert(id);
        check_object(scan, id, record, report, &mut owned)
    })?;
    scan_all(scan, keys::extents(), |key, _| {
        let known = keys::parse_extent_key(key).is_some_and(|(id, _)| objects.contains(&id));
        if !known {
            report.find(format!("The extent with key {key:x} belongs to no object."));
        }
        Ok(())
    })?;
    tomb::check(scan, report)?;
    seal::check(scan, report)?;
    owned.sort_unstable();
    Ok(owned)
}

fn check_object(
    scan: &impl Scan,
    id: ObjectId,
    record: Record,
    report: &mut Report,
    owned: &mut Vec<Owned>,
) -> Result<(), StoreError> {
    let mut end = 0;
    let mut blocks: BTreeSet<(FileId, u64)> = BTreeSet::new();
    let range = (keys::extent_key(id, 0), keys::after(&keys::extent_key(id, u64::MAX)));
    scan_all(scan, range, |key, value| {
        let decoded = keys::parse_extent_key(key).zip(Extent::decode(value));
        let Some(((_, start), extent)) = decoded else {
            report.find(format!("The extent with key {key:x} is damaged."));
            return Ok(());
        };
        if start < end {
            report.find(format!("Extents of {} overlap at {start}.", name(id)));
        }
        end = start.saturating_add(u64::from(extent.len));
        if start / CHUNK_BYTES != (end - 1) / CHUNK_BYTES {
            report.find(format!("The extent at {start} of {} crosses a chunk.", name(id)));
        }
        blocks.extend(extent.blocks().map(|block| (extent.file, block)));
        let shift = extent.at as i64 - start as i64;
        owned.push(Owned { run: extent.run(), object: id, shift, sums: extent.sums });
        Ok(())
    })?;
    if end > record.tail {
        report.find(format!("The {} has data at {end}, behind its end {}.", name(id), record.tail));
    }
    if blocks.len() as u64 != record.blocks {
        let (have, want) = (blocks.len(), record.blocks);
        report.find(format!("The {} has {have} blocks, its record says {want}.", name(id)));
    }
    Ok(())
}

/// Checks that extents lie in files and share no blocks. `owned` is sorted.
async fn check_files(dir: &Dir, owned: &[Owned], report: &mut Report) -> Result<(), StoreError> {
    let dir = dir.subdir(files::DIR).await?;
    let mut blocks: BTreeMap<FileId, u64> = BTreeMap::new();
    for name in dir.list().await? {
        let Some(id) = FileId::parse(&name) else { continue };
        match dir.open(&name).await {
            // An open target takes files away that nothing refers to.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            file => _ = blocks.insert(id, file?.len().await? / BLOCK),
        }
    }
    let mut last: Option<&Owned> = None;
    for one in owned {
        let run = one.run;
        let end = run.block + run.count;
        match blocks.get(&run.file) {
            None => report.find(format!("Data file {} of {} is missing.", run.file, name(one.object))),
            Some(blocks) if u64::from(end) > *blocks => {
                report.find(format!(
                    "The {} lies behind the end of data file {}.",
                    name(one.object),
                    run.file
                ));
            }
            Some(_) => {}
        }
        if let Some(before) = last.filter(|before| before.run.file == run.file) {
            let before_end = before.run.block + before.run.count;
            let shared = before_end.saturating_sub(run.block);
            let siblings = before.object == one.object && before.shift == one.shift;
            if shared > 1 || (shared == 1 && !siblings) {
                let (a, b) = (name(before.object), name(one.object));
                report.find(format!("The {a} and {b} share block {} of data file {}.", run.block, run.file));
            }
            if before_end > end {
                continue;
            }
        }
        last = Some(one);
    }
    Ok(())
}

async fn check_data(dir: &Dir, owned: &[Owned], kept: &Kept, report: &mut Report) -> Result<(), StoreError> {
    let dir = dir.subdir(files::DIR).await?;
    let mut open: Option<(FileId, File)> = None;
    for one in owned.iter().filter(|one| !one.sums.is_empty()) {
        let run = one.run;
        let file = match &open {
            Some((id, file)) if *id == run.file => file,
            _ => match dir.open(&run.file.to_string()).await {
                Ok(file) => &open.insert((run.file, file)).1,
                // That it is missing has been found before.
                Err(_) => continue,
            },
        };
        let mut at = 0;
        while at < run.count {
            let count = (run.count - at).min(READ_BLOCKS_MAX);
            let (first, len) = (u64::from(run.block + at) * BLOCK, count as usize * BLOCK as usize);
            let bytes = match file.read_at(first, len).await {
                Ok(bytes) if bytes.len() == len => bytes,
                Ok(_) => Bytes::new(),
                Err(error) => {
                    report.find(format!("Data file {} cannot be read at {first}: {error}.", run.file));
                    break;
                }
            };
            let bytes = laid_over(bytes, run.file, run.block + at, kept);
            let sums = one.sums.slice(at as usize * 4..);
            let sum = |n: usize| Some(u32::from_le_bytes(sums.get(n * 4..n * 4 + 4)?.try_into().ok()?));
            let damaged = if bytes.is_empty() { Some(0) } else { first_damaged(&bytes, sum) };
            if let Some(n) = damaged {
                let block = (run.block + at) as usize + n;
                let object = name(one.object);
                report.find(format!("Block {block:#x} of data file {} ({object}) is damaged.", run.file));
            }
            at += count;
        }
    }
    Ok(())
}

/// Whole blocks from `first` on, with those of `kept` in the place of what was read.
fn laid_over(bytes: Bytes, file: FileId, first: u32, kept: &Kept) -> Bytes {
    let count = (bytes.len() as u64 / BLOCK) as u32;
    let mut over = kept.blocks(Run { file, block: first, count }).peekable();
    if over.peek().is_none() {
        return bytes;
    }
    let mut bytes = bytes.to_vec();
    for (block, data) in over {
        let at = (block - first) as usize * BLOCK as usize;
        bytes[at..at + BLOCK as usize].fill(0);
        bytes[at..at + data.len()].copy_from_slice(data);
    }
    bytes.into()
}
