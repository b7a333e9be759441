//! The table of targets. Keys: `docs/disk.md#mgs`.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::limits::BODY_BYTES_MAX;
use proto::wire::messages::{Config, MarkTarget, TargetEntry, TargetOwner};
use proto::wire::{DecodeError, Reader, Wire};
use proto::{Code, TargetId, TargetKind};
use store::{Change, Store, StoreError};

use crate::target::keys;

/// `[MGS][kind: 1][index: 4 BE]`: a target.
const TARGET: u8 = keys::MGS;
/// `[MGS + 1]`: version of the configuration.
const VERSION: u8 = keys::MGS + 1;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;
/// What the list of owners and that of marks have of one target besides its server's name, in bytes.
const LISTED_BYTES: usize = 32;
/// A configuration travels in one message. An eighth is left for owners whose names are longer than those of the servers.
const BYTES_MAX: usize = BODY_BYTES_MAX / 8 * 7;

/// What is known of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    entry: TargetEntry,
    /// New files keep away from it.
    degraded: bool,
}

/// Every target that has registered.
#[derive(Debug, Default)]
pub struct Table {
    /// What others see.
    seen: BTreeMap<TargetId, Known>,
    /// Version of what others see.
    version: u64,
    /// Changes that are not durable yet, by the version that they make.
    pending: BTreeMap<u64, Known>,
    /// Newest version, durable or not.
    newest: u64,
    /// What a configuration with all of them takes on the wire, in bytes.
    bytes: usize,
}

/// The key of something of a target.
pub fn key(prefix: u8, target: TargetId) -> Bytes {
    let mut key = vec![prefix, target.kind.to_u8()];
    key.extend_from_slice(&target.index.to_be_bytes());
    key.into()
}

/// The target that a [`key`] names.
pub fn target_of(key: &[u8]) -> Option<TargetId> {
    let [_, kind, index @ ..] = key else { return None };
    let index = u32::from_be_bytes(index.try_into().ok()?);
    Some(TargetId { kind: TargetKind::from_u8(*kind)?, index })
}

/// Calls `each` with every key that begins with `prefix`, and its value.
pub fn scan(
    store: &Store,
    prefix: u8,
    mut each: impl FnMut(&[u8], Bytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (mut from, until) = (vec![prefix], [prefix + 1]);
    loop {
        let page = store.scan(&from, &until, SCAN_COUNT)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = [last, &[0][..]].concat();
        for (key, value) in page {
            each(&key, value.bytes)?;
        }
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt { what: what.to_owned() }
}

impl Known {
    /// One that has just registered.
    pub fn new(entry: TargetEntry) -> Known {
        Known { entry, degraded: false }
    }

    fn value(&self) -> Bytes {
        let mut value = Vec::new();
        self.entry.put(&mut value);
        if self.degraded {
            self.degraded.put(&mut value);
        }
        value.into()
    }

    fn bytes(&self) -> usize {
        self.value().len() + self.entry.server.len() + LISTED_BYTES
    }

    fn of(value: Bytes) -> Result<Known, StoreError> {
        let mut from = Reader::new(value);
        let mut read =
            || Ok::<_, DecodeError>(Known { entry: from.take()?, degraded: from.take_or_default()? });
        read().map_err(|_| damaged("a target of the configuration"))
    }
}

impl Table {
    /// Reads the table.
    pub fn load(store: &Store) -> Result<Table, StoreError> {
        let mut table = Table::default();
        if let Some(value) = store.get(&[VERSION])? {
            let number =
                value.bytes.as_ref().try_into().map_err(|_| damaged("the version of the configuration"))?;
            table.version = u64::from_le_bytes(number);
            table.newest = table.version;
        }
        scan(store, TARGET, |_, value| {
            let known = Known::of(value)?;
            table.bytes += known.bytes();
            table.seen.insert(known.entry.target, known);
            Ok(())
        })?;
        Ok(table)
    }

    /// The server of `target`, as it is known.
    pub fn server(&self, target: TargetId) -> Option<String> {
        self.current(target).map(|known| known.entry.server.clone())
    }

    /// Number of targets.
    pub fn count(&self) -> usize {
        self.seen.len() + self.pending.len()
    }

    /// Version of what others see.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Newest version, durable or not.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    fn current(&self, target: TargetId) -> Option<&Known> {
        let pending = self.pending.values().rev().find(|known| known.entry.target == target);
        pending.or_else(|| self.seen.get(&target))
    }

    /// A target with a mark, or without it.
    pub fn marked(&self, mark: &MarkTarget) -> Result<Known, Code> {
        let known = self.current(mark.target).filter(|known| known.entry.uuid == mark.uuid);
        let known = known.ok_or(Code::NotFound)?;
        Ok(Known { degraded: mark.degraded, ..known.clone() })
    }

    /// Whether `new` may be in the table: what to commit and the version that it makes, or `None` if it is there. TooBig if the
    /// configuration would not fit in a message any more.
    pub fn admit(&self, new: &Known) -> Result<Option<(Vec<Change>, u64)>, Code> {
        if let Some(known) = self.current(new.entry.target) {
            if known.entry.uuid != new.entry.uuid {
                return Err(Code::IndexUsed);
            }
            if known == new {
                return Ok(None);
            }
        }
        if self.bytes_with(new) > BYTES_MAX {
            return Err(Code::TooBig);
        }
        let version = self.newest + 1;
        let changes = vec![
            Change { key: key(TARGET, new.entry.target), value: Some(new.value()) },
            Change {
                key: Bytes::from_static(&[VERSION]),
                value: Some(version.to_le_bytes().to_vec().into()),
            },
        ];
        Ok(Some((changes, version)))
    }

    fn bytes_with(&self, new: &Known) -> usize {
        let before = self.current(new.entry.target).map_or(0, Known::bytes);
        self.bytes - before + new.bytes()
    }

    /// Takes over what was committed.
    pub fn put(&mut self, new: Known, version: u64) {
        assert!(version == self.newest + 1, "versions follow one another");
        self.newest = version;
        self.bytes = self.bytes_with(&new);
        self.pending.insert(version, new);
    }

    /// Everything up to `version` is durable; says whether others see something new now.
    pub fn publish(&mut self, version: u64) -> bool {
        let later = self.pending.split_off(&(version + 1));
        let durable = std::mem::replace(&mut self.pending, later);
        let changed = !durable.is_empty();
        self.seen.extend(durable.into_values().map(|known| (known.entry.target, known)));
        self.version = self.version.max(version);
        changed
    }

    /// What others see.
    pub fn config(&self, fsname: &str, owners: Vec<TargetOwner>) -> Config {
        Config {
            version: self.version,
            fsname: fsname.to_owned(),
            targets: self.seen.values().map(|known| known.entry.clone()).collect(),
            owners,
            degraded: self
                .seen
                .iter()
                .filter(|(_, known)| known.degraded)
                .map(|(target, _)| *target)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::{ClientId, Nid};

    use super::*;

    #[test]
    fn what_fills_the_table_still_fits_in_a_message() {
        let mut table = Table::default();
        let target = |index: u32, nids: usize| {
            let nid = |n: usize| format!("10.{}.{}.{}@tcp", n, index >> 8 & 255, index & 255);
            let nids: Vec<Nid> = (0..nids).map(|n| nid(n).parse().expect("an address")).collect();
            let uuid = ClientId(u128::from(index));
            Known::new(TargetEntry {
                target: TargetId::ost(index),
                uuid,
                nids,
                server: format!("oss{index}"),
            })
        };
        let mut refused = None;
        for index in 0..65_536 {
            match table.admit(&target(index, 1)) {
                Ok(admitted) => table.put(target(index, 1), admitted.expect("it is new").1),
                Err(code) => {
                    refused = Some((index, code));
                    break;
                }
            }
            table.publish(table.newest());
        }
        let (count, code) = refused.expect("there is a limit");
        assert!(code == Code::TooBig && count > 8_000, "{count} {code}");
        assert_eq!(
            table.admit(&target(7, 32)),
            Err(Code::TooBig),
            "a target that is known may not grow either"
        );
        assert_eq!(table.admit(&target(7, 1)), Ok(None));
        let owner = |target| TargetOwner { target, server: format!("oss{count}"), epoch: u64::MAX };
        let mut body = Vec::new();
        table.config("weft", table.seen.keys().copied().map(owner).collect()).put(&mut body);
        assert!(body.len() < BODY_BYTES_MAX, "{}", body.len());
    }
}
