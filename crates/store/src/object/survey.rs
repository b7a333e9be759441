//! What is found out of all objects when a target is opened.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::ObjectId;

use super::extent::{Extent, FileId};
use super::keys::{self, Record};
use crate::error::StoreError;
use crate::target::{Store, Value};
use crate::view::View;

/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;

/// What is found.
#[derive(Default)]
pub struct Survey {
    /// Used blocks of each data file, in order: first block and count.
    pub used: BTreeMap<FileId, Vec<(u32, u32)>>,
    /// Number of objects.
    pub objects: u64,
    /// Objects with extents behind their end. What is left of a destroyed object is one of them.
    pub unfinished: Vec<ObjectId>,
}

/// Something with keys in order.
pub trait Scan: Sync {
    /// Up to `count_max` keys in `[from, until)` in order.
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError>;
}

impl Scan for Store {
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError> {
        Store::scan(self, from, until, count_max)
    }
}

impl Scan for View {
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError> {
        View::scan(self, from, until, count_max)
    }
}

/// Calls `each` with every key of `[from, until)`, in order, and its value.
pub fn scan_all(
    scan: &impl Scan,
    (from, until): (Bytes, Bytes),
    mut each: impl FnMut(&Bytes, &Bytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut from = from;
    loop {
        let page = scan.scan(&from, &until, SCAN_COUNT)?;
        for (key, value) in &page {
            each(key, &value.bytes)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == SCAN_COUNT => from = keys::after(last),
            _ => return Ok(()),
        }
    }
}

/// Reads every record and every extent.
pub fn survey(store: &Store) -> Result<Survey, StoreError> {
    let mut found = Survey::default();
    scan_all(store, keys::extents(), |key, value| {
        let extent = Extent::decode(value)
            .ok_or_else(|| StoreError::Corrupt { what: format!("the extent with key {key:x}") })?;
        let blocks = extent.blocks();
        let (first, count) = (blocks.start as u32, (blocks.end - blocks.start) as u32);
        let used = found.used.entry(extent.file).or_default();
        match used.last_mut() {
            Some((last, n)) if first >= *last && first <= *last + *n => *n = (*n).max(first + count - *last),
            _ => used.push((first, count)),
        }
        Ok(())
    })?;
    for used in found.used.values_mut() {
        merge(used);
    }
    scan_all(store, keys::records(), |key, value| {
        let damaged = || StoreError::Corrupt { what: format!("the record with key {key:x}") };
        let id = keys::parse_record_key(key).ok_or_else(damaged)?;
        let record = Record::decode(value).ok_or_else(damaged)?;
        found.objects += 1;
        if record.tail > record.size {
            found.unfinished.push(id);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Sorts runs and joins those that touch or overlap.
fn merge(runs: &mut Vec<(u32, u32)>) {
    runs.sort_unstable();
    runs.dedup_by(|next, last| {
        let joins = next.0 <= last.0 + last.1;
        if joins {
            last.1 = last.1.max(next.0 + next.1 - last.0);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined() {
        let mut runs = vec![(8, 2), (0, 3), (2, 1), (3, 1), (9, 4), (20, 1)];
        merge(&mut runs);
        assert_eq!(runs, [(0, 4), (8, 5), (20, 1)]);
    }
}
