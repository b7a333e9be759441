//! Tombstones: layout ids whose objects were destroyed and never come back.
//!
//! A tombstone is a range of oids of one sequence; neighbours are merged, so that a client's files that come and
//! go cost nothing in the end. Its key holds the range's last id: the first key at or behind an id is the only
//! range that can hold it.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::Fid;

use super::keys;
use super::survey::{Scan, scan_all};
use crate::check::Report;
use crate::error::StoreError;
use crate::target::{Change, Store};

/// Orders those who look at tombstones and those who merge them.
#[derive(Default)]
pub struct Tombs {
    lock: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
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
        let _lock = self.lock.lock();
        is_dead(store, layout)
    }

    /// Commits, together with what `commit` adds, the changes that mark `layouts` (sorted) as dead.
    pub fn bury<T>(
        &self,
        store: &Store,
        layouts: &[Fid],
        commit: impl FnOnce(Vec<Change>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _lock = self.lock.lock();
        let mut slots: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        let mut merged: Vec<(Fid, Range)> = Vec::new();
        for layout in layouts {
            let mut range = Range { first: layout.oid, last: layout.oid };
            absorb(store, *layout, &mut range, &mut slots)?;
            // What an earlier layout of this batch made is not in the store yet.
            if let Some((fid, before)) = merged.last().copied()
                && (fid.seq, fid.ver) == (layout.seq, layout.ver)
                && u64::from(before.last) + 1 >= u64::from(range.first)
            {
                merged.pop();
                range = Range { first: range.first.min(before.first), last: range.last.max(before.last) };
            }
            merged.push((*layout, range));
        }
        for (fid, range) in merged {
            let key = keys::tomb_key(Fid { oid: range.last, ..fid });
            slots.insert(key, Some(Bytes::copy_from_slice(&range.first.to_le_bytes())));
        }
        commit(slots.into_iter().map(|(key, value)| Change { key, value }).collect())
    }
}

/// Grows `range` by the stored ranges that it overlaps or touches; they are to be taken away.
fn absorb(
    store: &Store,
    layout: Fid,
    range: &mut Range,
    slots: &mut BTreeMap<Bytes, Option<Bytes>>,
) -> Result<(), StoreError> {
    let from = keys::tomb_key(Fid { oid: layout.oid.saturating_sub(1), ..layout });
    // At most the range before, one that holds the id, and the range behind.
    let found = store.scan(&from, &keys::tombs_end(layout), 3)?;
    for (key, value) in found {
        let stored = decode(&key, &value.bytes)?;
        if u64::from(stored.first) > u64::from(range.last) + 1 {
            break;
        }
        *range = Range { first: range.first.min(stored.first), last: range.last.max(stored.last) };
        slots.insert(key, None);
    }
    Ok(())
}
