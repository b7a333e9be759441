//! The parameters that are kept, a part of the table. Keys: `docs/disk.md#mgs`.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::settings::SETTINGS_MAX;
use proto::wire::messages::{ChangeSetting, Setting};
use proto::wire::{DecodeError, Reader, Wire};
use proto::{Code, Settings};
use service::keys;
use store::{Change, Store, StoreError};

use super::table::damaged;

/// `[MGS + 7]`: all of them.
const SETTINGS: u8 = keys::MGS + 7;

/// Every setting.
#[derive(Debug, Default)]
pub struct SettingTable {
    /// What others see.
    seen: Settings,
    /// Version of the newest change that others see, of settings that were deleted, too.
    version: u64,
    /// Changes that are not durable yet, by the version that they make.
    pending: BTreeMap<u64, Settings>,
}

/// The settings as they are from some version on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSettings(Settings);

impl NewSettings {
    /// What makes them durable as the change of `version`.
    pub fn change(&self, version: u64) -> Change {
        let NewSettings(settings) = self;
        let mut value = Vec::new();
        version.put(&mut value);
        settings.all().to_vec().put(&mut value);
        Change { key: Bytes::from_static(&[SETTINGS]), value: Some(value.into()) }
    }
}

fn stored(value: Bytes) -> Result<(u64, Vec<Setting>), DecodeError> {
    let mut from = Reader::new(value);
    Ok((from.take()?, from.take()?))
}

impl SettingTable {
    /// Reads the settings of a configuration of `version`.
    pub fn load(store: &Store, version: u64) -> Result<SettingTable, StoreError> {
        let Some(value) = store.get(&[SETTINGS])? else { return Ok(SettingTable::default()) };
        let (of, list) = stored(value.bytes).map_err(|_| damaged("the parameters of the configuration"))?;
        if of > version || list.len() > SETTINGS_MAX || list.iter().any(|setting| setting.version > of) {
            return Err(damaged("the parameters do not belong to the configuration"));
        }
        Ok(SettingTable { seen: Settings::new(list), version: of, pending: BTreeMap::new() })
    }

    /// What `change` makes of them as the change of `version`.
    pub fn admit(&self, change: &ChangeSetting, version: u64) -> Result<NewSettings, Code> {
        let current = self.pending.last_key_value().map_or(&self.seen, |(_, settings)| settings);
        current.changed(change, version).map(NewSettings)
    }

    /// Takes over what was committed.
    pub fn put(&mut self, NewSettings(settings): NewSettings, version: u64) {
        self.pending.insert(version, settings);
    }

    /// Everything up to `version` is durable; says whether others see something new now.
    pub fn publish(&mut self, version: u64) -> bool {
        let later = self.pending.split_off(&(version + 1));
        let newest = std::mem::replace(&mut self.pending, later).pop_last();
        let changed = newest.is_some();
        if let Some((version, settings)) = newest {
            (self.seen, self.version) = (settings, version);
        }
        changed
    }

    /// Version of the newest change that others see.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What others see.
    pub fn seen(&self) -> &Settings {
        &self.seen
    }

    /// All of them, if there is something new behind `known`.
    pub fn behind(&self, known: u64) -> Option<Vec<Setting>> {
        (self.version > known).then(|| self.seen.all().to_vec())
    }
}
