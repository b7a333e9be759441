//! Reading all keys of a range, from a store that is open or from what the checker has of one.

use bytes::Bytes;
use proto::Transno;

use crate::error::StoreError;
use crate::snapshot::Snapshot;
use crate::target::{Store, Value};
use crate::view::View;

/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;

/// Something with keys in order.
pub trait Scan: Sync {
    /// Up to `count_max` keys in `[from, until)` in order.
    ///
    /// # Errors
    /// They cannot be read.
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError>;

    /// The value of `key`.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError>;
}

impl Scan for Snapshot {
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError> {
        let mut found = Vec::new();
        Snapshot::scan(self, from, until, &mut |key, value, version| {
            let bytes = Bytes::copy_from_slice(value);
            found.push((Bytes::copy_from_slice(key), Value { bytes, version: Transno(version) }));
            found.len() < count_max
        })?;
        Ok(found)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Snapshot::get(self, key)
    }
}

impl Scan for Store {
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError> {
        Store::scan(self, from, until, count_max)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Store::get(self, key)
    }
}

impl Scan for View {
    fn scan(&self, from: &[u8], until: &[u8], count_max: usize) -> Result<Vec<(Bytes, Value)>, StoreError> {
        View::scan(self, from, until, count_max)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        View::get(self, key)
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
            Some((last, _)) if page.len() == SCAN_COUNT => from = after(last),
            _ => return Ok(()),
        }
    }
}

/// The key right behind `key`.
pub fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}
