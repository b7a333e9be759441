//! What an open has to know of all objects, and does not read them for: how many there are, which are unfinished, how many blocks
//! of each data file are used, and how many each owner has. It moves with every change, in the same batch. Format: `docs/disk.md#summary`.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::ObjectId;

use super::extent::{Extent, FileId, Run};
use super::keys::{self, Record};
use super::sweep::BlockSet;
use crate::error::StoreError;
use crate::scan::{Scan, scan_all};
use crate::sums::{self, Count, OwnerList, Owners, Sums, Wrong, owners};
use crate::target::{Batch, Change, Store};

/// The objects of an OST.
pub const OBJECTS: Count = Count { sum: b'N', of: b'O', what: "objects" };
/// The owners of a target's objects: how many blocks those of users (0), groups (1) and projects (2) occupy. There is no marker: of objects
/// of before that was counted nobody knows the owner.
pub const BLOCK_OWNERS: Owners =
    Owners { sum: b'Q', of: b'O', named: object_owners, weight: Some(keys::BLOCKS_AT), what: "blocks" };

/// What is stored.
#[derive(Default)]
pub struct Summary {
    /// Used blocks of each data file that has some.
    pub used: BTreeMap<FileId, u64>,
    /// Objects with extents behind their end. What is left of a destroyed object is one of them.
    pub unfinished: Vec<ObjectId>,
}

fn object_owners(record: &[u8]) -> OwnerList {
    let owner = keys::owner_in(record);
    if owner.version == 0 { OwnerList::new() } else { owners(owner) }
}

/// Adds to `batch` what changes when the record of `id` does.
pub fn changed(id: ObjectId, before: Option<Record>, after: Option<Record>, batch: &mut Batch) {
    let count = i64::from(after.is_some()) - i64::from(before.is_some());
    if count != 0 {
        batch.sums.add(&OBJECTS.key(), count);
    }
    for (record, sign) in [(before, -1), (after, 1)] {
        let Some(record) = record.filter(|record| record.owner.version != 0) else { continue };
        let blocks = sign * i64::try_from(record.blocks).unwrap_or(i64::MAX);
        for (kind, id) in owners(record.owner) {
            batch.sums.add(&BLOCK_OWNERS.key(kind, id), blocks);
        }
    }
    let is_unfinished = |record: Option<Record>| record.is_some_and(|record| record.is_unfinished());
    if is_unfinished(before) != is_unfinished(after) {
        let value = is_unfinished(after).then(Bytes::new);
        batch.changes.push(Change { key: keys::rest_key(id), value });
    }
}

/// Adds the blocks of `run`, `sign` times, to what is used of its file.
pub fn used(run: &Run, sign: i64, sums: &mut Sums) {
    sums.add(&keys::used_key(run.file), sign * i64::from(run.count));
}

/// Reads the summary: a key for each data file, and one for each unfinished object.
pub fn load(store: &Store) -> Result<Summary, StoreError> {
    let mut summary = Summary::default();
    let damaged = |key: &Bytes| StoreError::Corrupt { what: format!("the key {key:x} of the summary") };
    scan_all(store, keys::all_used(), |key, value| {
        let file = keys::parse_used_key(key).ok_or_else(|| damaged(key))?;
        summary.used.insert(file, sums::sum_of(Some(value))?);
        Ok(())
    })?;
    scan_all(store, keys::rests(), |key, _| {
        summary.unfinished.push(keys::parse_rest_key(key).ok_or_else(|| damaged(key))?);
        Ok(())
    })?;
    Ok(summary)
}

/// The keys of the summary as they should be, out of every record and every extent. What cannot be read counts for nothing: the
/// checker finds it elsewhere.
fn survey(scan: &impl Scan) -> Result<BTreeMap<Bytes, Bytes>, StoreError> {
    let mut used: BTreeMap<FileId, BlockSet> = BTreeMap::new();
    scan_all(scan, keys::extents(), |_, value| {
        if let Some(extent) = Extent::decode(value) {
            used.entry(extent.file).or_default().add(extent.run());
        }
        Ok(())
    })?;
    let sum = |(file, set): (FileId, BlockSet)| Some((keys::used_key(file), sums::encode(set.count())?));
    let mut all: BTreeMap<Bytes, Bytes> = used.into_iter().filter_map(sum).collect();
    scan_all(scan, keys::records(), |key, value| {
        let unfinished = Record::decode(value).is_some_and(|record| record.is_unfinished());
        if let Some(id) = keys::parse_record_key(key).filter(|_| unfinished) {
            all.insert(keys::rest_key(id), Bytes::new());
        }
        Ok(())
    })?;
    Ok(all)
}

/// What is wrong with the summary of the objects that `scan` has, but for their number.
pub fn wrong(scan: &impl Scan) -> Result<Vec<Wrong>, StoreError> {
    let mut should = survey(scan)?;
    let mut wrong = Vec::new();
    for range in [keys::all_used(), keys::rests()] {
        scan_all(scan, range, |key, value| {
            let right = should.remove(key);
            if right.as_ref() != Some(value) {
                wrong.push(wrong_key(key.clone(), Some(value), right));
            }
            Ok(())
        })?;
    }
    wrong.extend(should.into_iter().map(|(key, right)| wrong_key(key, None, Some(right))));
    Ok(wrong)
}

fn wrong_key(key: Bytes, is: Option<&Bytes>, right: Option<Bytes>) -> Wrong {
    let sentence = match (keys::parse_used_key(&key), keys::parse_rest_key(&key)) {
        (Some(file), _) => {
            let number = |value| sums::sum_of(value).map_or("nonsense".into(), |sum| sum.to_string());
            let (is, have) = (number(is), number(right.as_ref()));
            format!("The summary says that {is} blocks of data file {file} are used, and {have} are.")
        }
        (_, Some(id)) => {
            let says = if right.is_some() { "does not say" } else { "says" };
            let object = format!("object {}:{}", id.layout, id.stripe);
            format!("The summary {says} that {object} has data behind its end.")
        }
        _ => format!("The key {key:x} of the summary is damaged."),
    };
    Wrong { key, right, sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_keys_of_the_specification() {
        assert_eq!(&OBJECTS.key()[..], b"N");
        assert_eq!(BLOCK_OWNERS.key(0, 0x0102_0304), [b'Q', 0, 1, 2, 3, 4]);
    }
}
