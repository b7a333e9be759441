//! Sums: numbers that changes add to. Format: `docs/disk.md#sums`.
//!
//! A sum is a key like any other, and its value is what all changes up to its version come to. A change names what it adds; what that
//! comes to is settled under the lock that gives out transnos, and goes into the log and the engine with the change. So a sum is exact at
//! every change, whatever crash comes in between, and an open reads it instead of everything that it sums.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::FileOwner;
use smallvec::SmallVec;

use crate::error::StoreError;
use crate::scan::{Scan, scan_all};
use crate::target::Change;
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
    pub fn key(&self) -> [u8; 1] {
        [self.sum]
    }
}

/// The inodes of an MDT.
pub const INODES: Count = Count { sum: 0x1a, of: 0x10, what: "inodes" };

/// Kinds and numbers of owners.
pub type OwnerList = SmallVec<[(u8, u32); 3]>;

/// Keys that are counted for each of their owners, whom their values name.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    /// First byte of the sums' keys. This byte alone is a key, too, if each value counts as 1: it is there if the sums are.
    pub sum: u8,
    /// First byte of the keys that are counted.
    pub of: u8,
    /// The owners that a value names.
    pub named: fn(&[u8]) -> OwnerList,
    /// Where in a value the number is that is added, as 8 bytes LE; each value counts as 1 if there is none.
    pub weight: Option<usize>,
    /// What they are, in the plural.
    pub what: &'static str,
}

/// The owners of an MDT's inodes: users (0), groups (1), and projects (2) if they have one.
pub const INODE_OWNERS: Owners =
    Owners { sum: 0x1e, of: 0x10, named: inode_owners, weight: None, what: "inodes" };
/// Format of inodes that have a project (`docs/disk-mdt.md#inode`).
pub const INODE_FORMAT_OF_PROJECTS: u8 = 3;
/// Where in an inode its user, its group and its project are, as 4 bytes LE.
pub const INODE_OWNERS_AT: [usize; 3] = [12, 16, 116];

fn inode_owners(inode: &[u8]) -> OwnerList {
    let with_project = inode.first() == Some(&INODE_FORMAT_OF_PROJECTS);
    let at = |(kind, at): (u8, usize)| {
        let id = inode.get(at..)?.first_chunk::<4>()?;
        Some((kind, u32::from_le_bytes(*id)))
    };
    let known = (0..).zip(INODE_OWNERS_AT).take(if with_project { 3 } else { 2 });
    known.filter_map(at).filter(|owner| *owner != (2, 0)).collect()
}

/// For whom something counts that is `owner`'s.
pub fn owners(owner: FileOwner) -> OwnerList {
    let FileOwner { uid, gid, project, .. } = owner;
    let all = [(0, uid), (1, gid), (2, project)];
    all.into_iter().filter(|owner| *owner != (2, 0)).collect()
}

impl Owners {
    /// The key that says that the sums are there.
    pub fn marker(&self) -> Bytes {
        Bytes::copy_from_slice(&[self.sum])
    }

    /// Key of the sum of what the owner `id` of a kind has.
    pub fn key(&self, kind: u8, id: u32) -> [u8; 6] {
        let [a, b, c, d] = id.to_be_bytes();
        [self.sum, kind, a, b, c, d]
    }

    /// What the owners of a kind have, in the order of their numbers: of the first `count_max` of them.
    ///
    /// # Errors
    /// The sums cannot be read.
    pub fn of_kind(
        &self,
        scan: &impl Scan,
        kind: u8,
        count_max: usize,
    ) -> Result<Vec<(u32, u64)>, StoreError> {
        let found = scan.scan(&[self.sum, kind], &[self.sum, kind + 1], count_max)?;
        let owner = |key: &Bytes| Some(u32::from_be_bytes(*key.get(2..)?.first_chunk()?));
        let known = found.iter().filter_map(|(key, value)| owner(key).map(|id| (id, value)));
        known.map(|(id, value)| Ok((id, sum_of(Some(&value.bytes))?))).collect()
    }

    /// Every sum as it should be; `None` if there is nothing to be counted, and no marker either.
    fn sum_up(&self, scan: &impl Scan) -> Result<Option<BTreeMap<Bytes, u64>>, StoreError> {
        let (mut sums, mut is_empty) = (BTreeMap::new(), true);
        let range = (Bytes::copy_from_slice(&[self.of]), Bytes::copy_from_slice(&[self.of + 1]));
        scan_all(scan, range, |_, value| {
            is_empty = false;
            let weight = self.weight.map_or(Some(1), |at| number_at(value, at)).unwrap_or(0);
            for (kind, id) in (self.named)(value) {
                let key = self.key(kind, id);
                if weight != 0 {
                    let sum = sums.entry(Bytes::copy_from_slice(&key)).or_insert(0u64);
                    *sum = sum.saturating_add(weight);
                }
            }
            Ok(())
        })?;
        Ok((!is_empty || self.weight.is_some()).then_some(sums))
    }

    /// Every key of these sums that is not as it should be.
    pub(crate) fn wrong(&self, scan: &impl Scan) -> Result<Vec<Wrong>, StoreError> {
        let Some(right) = self.sum_up(scan)? else { return Ok(Vec::new()) };
        let (marker, what) = (self.marker(), self.what);
        let mut all = Vec::new();
        let mut wrong = |key: &Bytes, right: Option<Bytes>, sentence| {
            all.push(Wrong { key: key.clone(), right, sentence });
        };
        let mut stored = BTreeMap::new();
        let until = Bytes::copy_from_slice(&[self.sum + 1]);
        scan_all(scan, (marker.clone(), until), |key, value| {
            stored.insert(key.clone(), value.clone());
            Ok(())
        })?;
        if stored.remove(&marker).is_none() && self.weight.is_none() {
            let sentence = format!("The {what} of each owner have not been summed up.");
            wrong(&marker, Some(Bytes::new()), sentence);
        }
        for (key, sum) in &right {
            let found = stored.remove(key);
            if found != encode(*sum) {
                let says = sum_of(found.as_ref()).map_or("nonsense".into(), |sum| sum.to_string());
                let owner = key.escape_ascii();
                let sentence = format!(
                    "The summary says that the owner \"{owner}\" has {says} {what}, and there are {sum}."
                );
                wrong(key, encode(*sum), sentence);
            }
        }
        for key in stored.keys() {
            let owner = key.escape_ascii();
            wrong(
                key,
                None,
                format!("The summary says that the owner \"{owner}\" has {what}, and there are none."),
            );
        }
        Ok(all)
    }
}

/// What a change adds to one sum.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Added {
    key: Bytes,
    by: i64,
    /// What it may come to at most by something that is added.
    most: u64,
}

/// What a change adds to sums, each once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sums(SmallVec<[Added; 4]>);

impl Sums {
    /// Adds `by` to the sum `key`.
    pub fn add(&mut self, key: &[u8], by: i64) {
        match self.0.iter_mut().rev().find(|added| added.key == key) {
            Some(added) => added.by += by,
            None => self.0.push(Added { key: Bytes::copy_from_slice(key), by, most: u64::MAX }),
        }
    }

    /// Has the change fail with [`StoreError::OverLimit`] if it adds to the sum `key`, and that comes to more than `most`.
    pub fn limit(&mut self, key: &[u8], most: u64) {
        match self.0.iter_mut().rev().find(|added| added.key == key) {
            Some(added) => added.most = added.most.min(most),
            None => self.0.push(Added { key: Bytes::copy_from_slice(key), by: 0, most }),
        }
    }

    /// Adds what `later` adds, with its limits.
    pub fn join(&mut self, later: Sums) {
        for Added { key, by, most } in later.0 {
            self.add(&key, by);
            self.limit(&key, most);
        }
    }

    /// Reads the sums, so that they are in memory when they are settled.
    pub(crate) fn fetch(&self, view: &View) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|added| view.get(&added.key).map(drop))
    }

    /// What the sums come to. The caller holds the lock that orders changes.
    ///
    /// # Errors
    /// One of them would be below 0: it is wrong. Nothing may be committed on top of that. Or one would be above its limit.
    pub(crate) fn settle(&self, view: &View) -> Result<SmallVec<[Change; 4]>, StoreError> {
        let mut changes = SmallVec::new();
        for Added { key, by, most } in self.0.iter().filter(|added| added.by != 0) {
            let before = sum_of(view.get(key)?.map(|value| value.bytes).as_ref())?;
            let sum = before.checked_add_signed(*by).ok_or_else(|| too_small(key))?;
            if *by > 0 && sum > *most {
                return Err(StoreError::OverLimit);
            }
            changes.push(Change { key: key.clone(), value: encode(sum) });
        }
        Ok(changes)
    }
}

/// 8 bytes of a value, LE.
fn number_at(value: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*value.get(at..)?.first_chunk()?))
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
///
/// # Errors
/// It is no number.
pub fn sum_of(value: Option<&Bytes>) -> Result<u64, StoreError> {
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
        assert_eq!(INODES.key(), [0x1a]);
    }

    #[test]
    fn what_is_added_twice_is_one_sum() {
        let mut sums = Sums::default();
        for (key, by) in [("a", 1), ("b", 2), ("a", -3)] {
            sums.add(key.as_bytes(), by);
        }
        let added = |key, by| Added { key: Bytes::from(key), by, most: u64::MAX };
        assert_eq!(sums.0.as_slice(), [added("a", -2), added("b", 2)]);
        sums.limit(b"b", 7);
        sums.limit(b"b", 9);
        assert_eq!(sums.0[1].most, 7);
    }

    #[test]
    fn the_sum_of_an_owner_has_the_key_of_the_specification() {
        assert_eq!(INODE_OWNERS.key(1, 0x0102_0304), [0x1e, 1, 1, 2, 3, 4]);
        assert_eq!(&INODE_OWNERS.marker()[..], [0x1e]);
    }
}
