//! Sums: numbers that changes add to. Format: `docs/disk.md#sums`.
//!
//! A sum is a key like any other, and its value is what all changes up to its version come to. A change names what it adds; what that
//! comes to is settled under the lock that gives out transnos, and goes into the log and the engine with the change. So a sum is exact at
//! every change, whatever crash comes in between, and an open reads it instead of everything that it sums.

use std::sync::Arc;

use bytes::Bytes;
use rt::Rt;
use smallvec::SmallVec;

use crate::check::Report;
use crate::engine::Item;
use crate::error::StoreError;
use crate::object::summary;
use crate::scan::{Scan, scan_all};
use crate::target::{Change, Store};
use crate::view::View;

/// A sum that counts keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Key of the sum: this byte.
    pub sum: u8,
    /// First byte of the keys that are counted.
    pub of: u8,
    /// What they are, in the plural.
    pub what: &'static str,
}

impl Count {
    /// Key of the sum.
    pub fn key(&self) -> Bytes {
        Bytes::copy_from_slice(&[self.sum])
    }
}

/// The objects of an OST.
pub const OBJECTS: Count = Count { sum: b'N', of: b'O', what: "objects" };
/// The inodes of an MDT.
pub const INODES: Count = Count { sum: 0x1a, of: 0x10, what: "inodes" };
/// All sums that count keys.
pub(crate) const COUNTS: &[Count] = &[OBJECTS, INODES];

/// What a change adds to sums, each once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sums(SmallVec<[(Bytes, i64); 2]>);

impl Sums {
    /// Adds `by` to the sum `key`.
    pub fn add(&mut self, key: Bytes, by: i64) {
        match self.0.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, sum)) => *sum += by,
            None => self.0.push((key, by)),
        }
    }

    /// Reads the sums, so that they are in memory when they are settled.
    pub(crate) fn fetch(&self, view: &View) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|(key, _)| view.get(key).map(drop))
    }

    /// What the sums come to. The caller holds the lock that orders changes.
    ///
    /// # Errors
    /// One of them would be below 0: it is wrong. Nothing may be committed on top of that.
    pub(crate) fn settle(&self, view: &View) -> Result<SmallVec<[Change; 2]>, StoreError> {
        let mut changes = SmallVec::new();
        for (key, by) in self.0.iter().filter(|(_, by)| *by != 0) {
            let before = sum_of(view.get(key)?.map(|value| value.bytes).as_ref())?;
            let sum = before.checked_add_signed(*by).ok_or_else(|| too_small(key))?;
            changes.push(Change { key: key.clone(), value: encode(sum) });
        }
        Ok(changes)
    }
}

fn too_small(key: &[u8]) -> StoreError {
    let key = key.escape_ascii();
    StoreError::Damaged(format!("the sum with key \"{key}\" is less than what goes: docs/operations.md#sums"))
}

/// The value of a sum; a sum of 0 has no key.
pub(crate) fn encode(sum: u64) -> Option<Bytes> {
    (sum != 0).then(|| Bytes::copy_from_slice(&sum.to_le_bytes()))
}

/// The inverse of [`encode`].
pub(crate) fn sum_of(value: Option<&Bytes>) -> Result<u64, StoreError> {
    let Some(value) = value else { return Ok(0) };
    let bytes = value.as_ref().try_into().map_err(|_| StoreError::Corrupt { what: "a sum".into() })?;
    Ok(u64::from_le_bytes(bytes))
}

/// A key that does not say what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The key.
    pub key: Bytes,
    /// Its value as it should be.
    pub right: Option<Bytes>,
    /// What is wrong.
    pub sentence: String,
}

/// Every sum of what `scan` has, and every other key of the objects' summary, that is not what everything read once comes to.
fn wrong(scan: &impl Scan) -> Result<Vec<Wrong>, StoreError> {
    let mut all = summary::wrong(scan)?;
    for count in COUNTS {
        let mut there = 0;
        let range = (Bytes::copy_from_slice(&[count.of]), Bytes::copy_from_slice(&[count.of + 1]));
        scan_all(scan, range, |_, _| {
            there += 1;
            Ok(())
        })?;
        let key = count.key();
        let found = scan.scan(&key, &[&key[..], &[0]].concat(), 1)?;
        let right = encode(there);
        let stored = found.first().map(|(_, value)| &value.bytes);
        if stored != right.as_ref() {
            let says = sum_of(stored).map_or("nonsense".into(), |sum| sum.to_string());
            let sentence =
                format!("The summary says that there are {says} {}, and there are {there}.", count.what);
            all.push(Wrong { key, right, sentence });
        }
    }
    Ok(all)
}

/// The same for anything with keys.
pub(crate) fn check_of(scan: &impl Scan, report: &mut Report) -> Result<(), StoreError> {
    wrong(scan)?.into_iter().for_each(|wrong| report.find(wrong.sentence));
    Ok(())
}

/// Sums everything again in the target in `path`, which nobody may serve meanwhile. Tells in sentences what was wrong.
///
/// No transno is drawn, as clients may have changes to replay: what is right goes into the engine beside the last change.
///
/// # Errors
/// The target cannot be opened, or has service nodes: their starts are numbered elsewhere.
pub async fn sum_again(rt: &Rt, path: &str) -> Result<Vec<String>, StoreError> {
    if !Store::read_label(rt, path).await?.service.is_empty() {
        let why = "sums of a target with service nodes cannot be put right: restore all targets together";
        return Err(StoreError::NotATarget(why.into()));
    }
    let store = Store::open(rt, path).await?;
    let found = put_right(rt, &store).await;
    store.close().await?;
    found
}

async fn put_right(rt: &Rt, store: &Arc<Store>) -> Result<Vec<String>, StoreError> {
    let last = store.last_transno();
    store.applied(last).await?;
    let engine = store.shared.view.engine()?;
    let store = store.clone();
    rt.offload(move || {
        let found = wrong(&*store)?;
        let item =
            |wrong: &Wrong| Item { key: wrong.key.clone(), value: wrong.right.clone(), version: last.0 };
        let mut items: Vec<Item> = found.iter().map(item).collect();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        if !items.is_empty() {
            engine.apply(items, last.0)?;
            engine.persist()?;
        }
        Ok(found.into_iter().map(|wrong| wrong.sentence).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_the_bytes_of_the_specification() {
        assert_eq!(encode(0x0102), Some(Bytes::from_static(&[2, 1, 0, 0, 0, 0, 0, 0])));
        assert_eq!(encode(0), None);
        assert_eq!(sum_of(encode(u64::MAX).as_ref()).ok(), Some(u64::MAX));
        assert_eq!(sum_of(None).ok(), Some(0));
        assert!(sum_of(Some(&Bytes::from_static(b"short"))).is_err());
        assert_eq!((&OBJECTS.key()[..], &INODES.key()[..]), (&b"N"[..], &[0x1a][..]));
    }

    #[test]
    fn what_is_added_twice_is_one_sum() {
        let mut sums = Sums::default();
        for (key, by) in [("a", 1), ("b", 2), ("a", -3)] {
            sums.add(Bytes::from(key), by);
        }
        assert_eq!(sums.0.as_slice(), [(Bytes::from("a"), -2), (Bytes::from("b"), 2)]);
    }
}
