//! Whether the objects of a target fit together. For a target that nobody writes to.

use std::collections::BTreeSet;

use proto::ObjectId;

use super::extent::{Extent, FileId, Run};
use super::keys::{self, Record};
use super::survey::scan_all;
use super::tomb::Tombs;
use super::{CHUNK_BYTES, Objects};
use crate::error::StoreError;

/// Problems that a report names.
const PROBLEMS_MAX: usize = 1000;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Records, extents, files.
    Structure,
    /// All data too, against its checksums.
    Data,
}

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Objects.
    pub objects: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes that extents hold.
    pub bytes: u64,
    /// What is wrong, in words; the first of it.
    pub problems: Vec<String>,
    /// What else is wrong, beyond those that are named.
    pub more: u64,
}

impl Report {
    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        } else {
            self.more += 1;
        }
    }
}

/// One extent's blocks, and whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owned {
    run: Run,
    object: ObjectId,
    /// Offset in the file less offset in the object: the same for all pieces of one write.
    shift: i64,
}

fn name(id: ObjectId) -> String {
    format!("object {}:{}", id.layout, id.stripe)
}

impl Objects {
    /// Compares records, extents and files with each other, and with `Depth::Data` all data with its checksums.
    pub async fn check(&self, depth: Depth) -> Result<Report, StoreError> {
        let mut report = Report::default();
        let mut owned: Vec<Owned> = Vec::new();
        let tombs = Tombs::default();
        let mut with_extents: BTreeSet<ObjectId> = BTreeSet::new();
        scan_all(&self.store, keys::records(), |key, value| {
            let Some((id, record)) = keys::parse_record_key(key).zip(Record::decode(&value.bytes)) else {
                report.problem(format!("the record with key {key:x} is damaged"));
                return Ok(());
            };
            report.objects += 1;
            if tombs.is_dead(&self.store, id.layout)? {
                report.problem(format!("{} was destroyed and is still there", name(id)));
            }
            with_extents.insert(id);
            self.check_object(id, record, &mut report, &mut owned)
        })?;
        scan_all(&self.store, keys::extents(), |key, _| {
            let known = keys::parse_extent_key(key).is_some_and(|(id, _)| with_extents.contains(&id));
            if !known {
                report.problem(format!("the extent with key {key:x} belongs to no object"));
            }
            Ok(())
        })?;
        owned.sort_unstable();
        self.check_blocks(&owned, &mut report);
        if depth == Depth::Data {
            for id in with_extents {
                self.check_data(id, &mut report).await;
            }
        }
        Ok(report)
    }

    fn check_object(
        &self,
        id: ObjectId,
        record: Record,
        report: &mut Report,
        owned: &mut Vec<Owned>,
    ) -> Result<(), StoreError> {
        let mut end = 0;
        let mut blocks: BTreeSet<(FileId, u64)> = BTreeSet::new();
        let range = (keys::extent_key(id, 0), keys::after(&keys::extent_key(id, u64::MAX)));
        scan_all(&self.store, range, |key, value| {
            let decoded = keys::parse_extent_key(key).zip(Extent::decode(&value.bytes));
            let Some(((_, start), extent)) = decoded else {
                report.problem(format!("the extent with key {key:x} is damaged"));
                return Ok(());
            };
            report.extents += 1;
            report.bytes += u64::from(extent.len);
            if start < end {
                report.problem(format!("extents of {} overlap at {start}", name(id)));
            }
            end = start.saturating_add(u64::from(extent.len));
            if start / CHUNK_BYTES != (end - 1) / CHUNK_BYTES {
                report.problem(format!("the extent at {start} of {} crosses a chunk", name(id)));
            }
            blocks.extend(extent.blocks().map(|block| (extent.file, block)));
            let touched = extent.blocks();
            let run = Run {
                file: extent.file,
                block: touched.start as u32,
                count: (touched.end - touched.start) as u32,
            };
            owned.push(Owned { run, object: id, shift: extent.at as i64 - start as i64 });
            Ok(())
        })?;
        if end > record.tail {
            report.problem(format!("{} has data at {end}, behind its end {}", name(id), record.tail));
        }
        if blocks.len() as u64 != record.blocks {
            let (have, want) = (blocks.len(), record.blocks);
            report.problem(format!("{} has {have} blocks, its record says {want}", name(id)));
        }
        Ok(())
    }

    /// `owned` is sorted by file and block.
    fn check_blocks(&self, owned: &[Owned], report: &mut Report) {
        let mut last: Option<Owned> = None;
        for one in owned {
            let run = one.run;
            let end = u64::from(run.block) + u64::from(run.count);
            match self.files.blocks(run.file) {
                None => report.problem(format!("data file {} of {} is missing", run.file, name(one.object))),
                Some(blocks) if end > u64::from(blocks) => {
                    report.problem(format!("{} lies behind the end of data file {}", name(one.object), run.file));
                }
                Some(_) if !self.files.is_used(run) => {
                    report.problem(format!("blocks of {} in data file {} are free", name(one.object), run.file));
                }
                Some(_) => {}
            }
            if let Some(before) = last.filter(|before| before.run.file == run.file) {
                let before_end = u64::from(before.run.block) + u64::from(before.run.count);
                let shared = before_end.saturating_sub(u64::from(run.block));
                let siblings = before.object == one.object && before.shift == one.shift;
                if shared > 1 || (shared == 1 && !siblings) {
                    let (a, b) = (name(before.object), name(one.object));
                    report.problem(format!("{a} and {b} share block {} of data file {}", run.block, run.file));
                }
                if before_end > end {
                    continue;
                }
            }
            last = Some(*one);
        }
    }

    /// Reads all of one object.
    async fn check_data(&self, id: ObjectId, report: &mut Report) {
        let mut at = 0;
        loop {
            match self.read(id, at, CHUNK_BYTES as u32).await {
                Err(StoreError::Corrupt { what }) => report.problem(format!("{what} does not match its checksum")),
                Err(error) => {
                    report.problem(format!("{} cannot be read: {error}", name(id)));
                    return;
                }
                Ok((_, size)) if at + CHUNK_BYTES >= size => return,
                Ok(_) => {}
            }
            at += CHUNK_BYTES;
            // A sparse object is read where it has data; a damaged chunk does not tell where the object ends.
            match super::cache::Object::next_extent(&self.store, id, at, u64::MAX) {
                Ok(Some(next)) => at = next / CHUNK_BYTES * CHUNK_BYTES,
                Ok(None) => return,
                Err(error) => {
                    report.problem(format!("{} cannot be read: {error}", name(id)));
                    return;
                }
            }
        }
    }
}
