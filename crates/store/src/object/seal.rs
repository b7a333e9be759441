//! Sealed layouts: their data is being moved elsewhere, and nobody may use their objects meanwhile.
//!
//! There are as many as files that are being moved at this moment, so all of them are kept in memory. Rules: `docs/locks.md#layouts`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use proto::{Fid, Transno};

use super::{Extra, Objects, keys};
use crate::check::Report;
use crate::error::StoreError;
use crate::scan::{Scan, scan_all};
use crate::target::{Batch, Change, Store};

/// Layouts that are sealed at the same time.
const SEALS_MAX: usize = 65_536;

/// Every sealed layout, and the generation with which it was sealed.
pub struct Seals {
    sealed: Mutex<BTreeMap<Fid, u32>>,
    /// How many; most of the time nobody has to look further.
    count: AtomicUsize,
}

/// What became of a request to seal or to unseal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    /// Done, with this transno.
    Done(Transno),
    /// There are too many, or the seal was made with the same generation or a newer one.
    Refused,
}

fn damaged() -> StoreError {
    StoreError::Corrupt { what: "a seal".into() }
}

fn decode(key: &[u8], value: &[u8]) -> Result<(Fid, u32), StoreError> {
    let layout = keys::parse_seal_key(key).ok_or_else(damaged)?;
    Ok((layout, u32::from_le_bytes(value.try_into().map_err(|_| damaged())?)))
}

/// Checks that every seal can be read.
pub fn check(scan: &impl Scan, report: &mut Report) -> Result<(), StoreError> {
    scan_all(scan, keys::seals(), |key, value| {
        if decode(key, value).is_err() {
            report.find(format!("The seal with key {key:x} is damaged."));
        }
        Ok(())
    })
}

impl Seals {
    /// Those that are stored.
    pub fn load(store: &Store) -> Result<Seals, StoreError> {
        let mut sealed = BTreeMap::new();
        scan_all(store, keys::seals(), |key, value| {
            let (layout, generation) = decode(key, value)?;
            sealed.insert(layout, generation);
            Ok(())
        })?;
        Ok(Seals { count: AtomicUsize::new(sealed.len()), sealed: Mutex::new(sealed) })
    }

    fn changed(&self, sealed: &MutexGuard<'_, BTreeMap<Fid, u32>>) {
        self.count.store(sealed.len(), Ordering::Release);
    }

    /// Whether `layout` is sealed.
    fn contains(&self, layout: Fid) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.sealed.lock().contains_key(&layout)
    }

    /// With which generation `layout` is sealed.
    fn generation(&self, layout: Fid) -> Option<u32> {
        self.sealed.lock().get(&layout).copied()
    }

    /// Seals `layout` in memory; false if it is sealed already, or there are too many.
    fn insert(&self, layout: Fid, generation: u32) -> bool {
        let mut sealed = self.sealed.lock();
        if sealed.len() >= SEALS_MAX || sealed.contains_key(&layout) {
            return false;
        }
        sealed.insert(layout, generation);
        self.changed(&sealed);
        true
    }

    /// Takes a seal away in memory, if it is still the one that was made with this generation.
    fn remove(&self, layout: Fid, generation: u32) {
        let mut sealed = self.sealed.lock();
        if sealed.get(&layout) == Some(&generation) {
            sealed.remove(&layout);
            self.changed(&sealed);
        }
    }

    /// Commits a seal, or that there is none.
    fn commit(
        &self,
        store: &Store,
        layout: Fid,
        value: Option<Bytes>,
        extra: Extra,
    ) -> Result<Transno, StoreError> {
        let changes = vec![Change { key: keys::seal_key(layout), value }];
        let mut batch = Batch { changes, ..Batch::default() };
        extra.put(&super::nothing(), &mut batch);
        store.commit(batch)
    }

    /// The changes that take the seals of destroyed layouts away.
    pub fn buried(&self, layouts: &[Fid]) -> Vec<Change> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let sealed = self.sealed.lock();
        let gone = layouts.iter().filter(|layout| sealed.contains_key(layout));
        gone.map(|layout| Change { key: keys::seal_key(*layout), value: None }).collect()
    }

    /// Those changes are committed.
    pub fn forget(&self, layouts: &[Fid]) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut sealed = self.sealed.lock();
        sealed.retain(|layout, _| !layouts.contains(layout));
        self.changed(&sealed);
    }
}

impl Objects {
    /// Whether nobody may use the objects of `layout`. `Gone` if they were destroyed.
    pub fn is_sealed(&self, layout: Fid) -> Result<bool, StoreError> {
        if self.is_sealed_now(layout) {
            return Ok(true);
        }
        self.with(layout, |state| super::refuse_dead(state))?;
        Ok(false)
    }

    /// The same, of a layout that is known not to be destroyed.
    pub fn is_sealed_now(&self, layout: Fid) -> bool {
        self.seals.contains(layout)
    }

    /// Seals `layout` in memory, if it is not sealed yet and `may` says so afterwards, and then on disk. What comes from then on for its
    /// objects is refused; `may` looks at what came before.
    pub fn seal(
        &self,
        layout: Fid,
        generation: u32,
        may: impl FnOnce() -> bool,
        extra: Extra,
    ) -> Result<Sealing, StoreError> {
        if !self.seals.insert(layout, generation) {
            return Ok(Sealing::Refused);
        }
        if !may() {
            self.seals.remove(layout, generation);
            return Ok(Sealing::Refused);
        }
        let value = Bytes::copy_from_slice(&generation.to_le_bytes());
        let committed = self.with(layout, |state| {
            super::refuse_dead(state)?;
            // Who has taken it away meanwhile comes behind it.
            if self.seals.generation(layout) != Some(generation) {
                return Ok(Sealing::Refused);
            }
            self.seals.commit(&self.store, layout, Some(value), extra).map(Sealing::Done)
        });
        if committed.is_err() {
            self.seals.remove(layout, generation);
        }
        committed
    }

    /// Takes a seal away that was made with a generation before this one.
    pub fn unseal(&self, layout: Fid, generation: u32, extra: Extra) -> Result<Sealing, StoreError> {
        // As one step: what is in memory is what the last commit says.
        self.with(layout, |_| {
            let before = self.seals.generation(layout);
            if before.is_some_and(|before| before >= generation) {
                return Ok(Sealing::Refused);
            }
            // Without a seal too: the reply has to be recorded.
            let transno = self.seals.commit(&self.store, layout, None, extra)?;
            if let Some(before) = before {
                self.seals.remove(layout, before);
            }
            Ok(Sealing::Done(transno))
        })
    }
}
