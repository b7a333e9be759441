//! Tombstones: layout ids whose objects were destroyed and never come back.
//!
//! A tombstone is a range of oids of one sequence; neighbours are merged, so that a client's files that come and
//! go cost nothing in the end. The MDT names neighbours whose objects, if any, lay on other OSTs. Its key holds the range's last id: the first key at or behind an id is the only
//! range that can hold it.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::RwLock;
use proto::Fid;
use proto::wire::messages::DeadRange;

use super::keys;
use crate::check::Report;
use crate::error::StoreError;
use crate::scan::{Scan, scan_all};
use crate::target::{Change, Store};

/// Orders those who look at tombstones and those who merge them.
#[derive(Default)]
pub struct Tombs {
    lock: RwLock<()>,
}

/// Tombstones that one commit merges, besides those that touch what it destroys itself.
const ABSORBED_MAX: usize = 16_384;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
}

impl Range {
    fn hull(self, other: Range) -> Range {
        Range { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// What is marked as dead together.
#[derive(Clone, Copy)]
pub struct Buried<'a> {
    /// What is destroyed.
    pub layouts: &'a [Fid],
    /// What is known to be dead besides.
    pub dead: &'a [DeadRange],
}

impl Buried<'_> {
    /// As ranges in order: of which sequence and version, which oids, and whether it may be less.
    fn ranges(self) -> Vec<(Fid, Range, bool)> {
        let layouts = self.layouts.iter().map(|fid| (*fid, Range { first: fid.oid, last: fid.oid }, false));
        let dead = self.dead.iter().filter(|dead| dead.first <= dead.last).map(|dead| {
            let fid = Fid { seq: dead.seq, oid: dead.first, ver: 0 };
            (fid, Range { first: dead.first, last: dead.last }, true)
        });
        let mut ranges: Vec<(Fid, Range, bool)> = layouts.chain(dead).collect();
        ranges.sort_by_key(|(fid, range, _)| (fid.seq, fid.ver, range.first, range.last));
        ranges
    }
}

fn damaged() -> StoreError {
    StoreError::Corrupt { what: "a tombstone".into() }
}

fn decode(key: &[u8], value: &[u8]) -> Result<Range, StoreError> {
    let last = keys::parse_tomb_key(key).ok_or_else(damaged)?.oid;
    let first = u32::from_le_bytes(value.try_into().map_err(|_| damaged())?);
    if first <= last { Ok(Range { first, last }) } else { Err(damaged()) }
}

/// Whether `layout` has a tombstone.
pub fn is_dead(scan: &impl Scan, layout: Fid) -> Result<bool, StoreError> {
    let found = scan.scan(&keys::tomb_key(layout), &keys::tombs_end(layout), 1)?;
    let Some((key, value)) = found.first() else { return Ok(false) };
    Ok(decode(key, &value.bytes)?.first <= layout.oid)
}

/// Checks that tombstones are ranges that neither overlap nor touch.
pub fn check(scan: &impl Scan, report: &mut Report) -> Result<(), StoreError> {
    let mut before: Option<Fid> = None;
    scan_all(scan, keys::tombs(), |key, value| {
        let Some((fid, range)) = keys::parse_tomb_key(key).zip(decode(key, value).ok()) else {
            report.find(format!("The tombstone with key {key:x} is damaged."));
            return Ok(());
        };
        let near = before.is_some_and(|b| {
            (b.seq, b.ver) == (fid.seq, fid.ver) && u64::from(b.oid) + 1 >= u64::from(range.first)
        });
        if near {
            report.find(format!("The tombstone with key {key:x} meets the one before it."));
        }
        before = Some(fid);
        Ok(())
    })
}

impl Tombs {
    /// Whether the objects of `layout` were destroyed.
    pub fn is_dead(&self, store: &Store, layout: Fid) -> Result<bool, StoreError> {
        let _lock = self.lock.read();
        is_dead(store, layout)
    }

    /// Commits, together with what `commit` adds, the changes that mark what is buried as dead.
    pub fn bury<T>(
        &self,
        store: &Store,
        buried: Buried<'_>,
        commit: impl FnOnce(Vec<Change>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _lock = self.lock.write();
        let mut slots: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        let mut merged: Vec<(Fid, Range)> = Vec::new();
        for (fid, mut range, may_be_less) in buried.ranges() {
            if may_be_less && slots.len() >= ABSORBED_MAX {
                continue;
            }
            absorb(store, fid, &mut range, &mut slots, may_be_less)?;
            // What an earlier one of this batch made is not in the store yet.
            while let Some((_, before)) = merged.pop_if(|(of, before)| {
                (of.seq, of.ver) == (fid.seq, fid.ver) && u64::from(before.last) + 1 >= u64::from(range.first)
            }) {
                range = range.hull(before);
            }
            merged.push((fid, range));
        }
        for (fid, range) in merged {
            let key = keys::tomb_key(Fid { oid: range.last, ..fid });
            slots.insert(key, Some(Bytes::copy_from_slice(&range.first.to_le_bytes())));
        }
        commit(slots.into_iter().map(|(key, value)| Change { key, value }).collect())
    }
}

/// Grows `range` by the stored ranges that it overlaps or touches; they are to be taken away. If these are too many, and it may be
/// less than was asked for, it ends behind the last of those that fit.
fn absorb(
    store: &Store,
    fid: Fid,
    range: &mut Range,
    slots: &mut BTreeMap<Bytes, Option<Bytes>>,
    may_be_less: bool,
) -> Result<(), StoreError> {
    let mut from = keys::tomb_key(Fid { oid: range.first.saturating_sub(1), ..fid });
    loop {
        let found = store.scan(&from, &keys::tombs_end(fid), SCAN_COUNT)?;
        for (key, value) in &found {
            let stored = decode(key, &value.bytes)?;
            if u64::from(stored.first) > u64::from(range.last) + 1 {
                return Ok(());
            }
            let last = keys::parse_tomb_key(key).ok_or_else(damaged)?.oid;
            *range = range.hull(stored);
            slots.insert(key.clone(), None);
            if may_be_less && slots.len() >= ABSORBED_MAX {
                range.last = last;
                return Ok(());
            }
        }
        match found.last() {
            Some((last, _)) if found.len() == SCAN_COUNT => from = keys::after(last),
            _ => return Ok(()),
        }
    }
}
