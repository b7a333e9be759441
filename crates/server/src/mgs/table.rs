//! The table of targets. Keys: `docs/disk.md#mgs`.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::limits::TARGETS_MAX;
use proto::wire::messages::{
    CONFIG_PAGE_BYTES, ChangePool, ChangeSetting, Config, MarkTarget, PoolEntry, PoolsTold, ReadPools,
    TargetEntry,
};
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, Code, Nid, OstIndex, TargetId, TargetKind};
use service::keys;
use store::{Batch, Change, Store, StoreError};

use super::SERVER_BYTES_MAX;
use super::pools::{NewPool, PoolTable};
use super::settings::{NewSettings, SettingTable};

/// `[MGS][kind: 1][index: 4 BE]`: a target.
const TARGET: u8 = keys::MGS;
/// `[MGS + 1]`: version of the configuration.
const VERSION: u8 = keys::MGS + 1;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 4096;
/// What a page has of one target besides its entry and its owner's name, in bytes.
const LISTED_BYTES: usize = 32;
/// Targets that one batch gives their versions to.
const NUMBERED_COUNT: usize = 1024;

/// What is known of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    entry: TargetEntry,
    /// New files keep away from it.
    degraded: bool,
    /// It is no part of the file system any more.
    removed: bool,
}

/// Every target that has registered.
#[derive(Debug, Default)]
pub struct Table {
    /// What others see, with the version that it came with.
    seen: BTreeMap<TargetId, (Known, u64)>,
    /// The targets by that version: each is the newest change of one target.
    order: BTreeMap<u64, TargetId>,
    /// Version of what others see.
    version: u64,
    /// Changes that are not durable yet, by the version that they make.
    pending: BTreeMap<u64, Known>,
    /// The newest of these of each target.
    newest_pending: BTreeMap<TargetId, u64>,
    /// Newest version, durable or not.
    newest: u64,
    /// The pools.
    pools: PoolTable,
    /// The parameters that are kept.
    settings: SettingTable,
}

/// Something that has changed.
enum Changed<'a> {
    Target(&'a Known),
    Pool(PoolEntry),
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

/// What is stored is not what was written.
pub fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt { what: what.to_owned() }
}

impl Known {
    /// One that has just registered.
    pub fn new(entry: TargetEntry) -> Known {
        Known { entry, degraded: false, removed: false }
    }

    /// What is stored of it, if it is of `version`.
    fn value(&self, version: u64) -> Bytes {
        let mut value = Vec::new();
        self.entry.put(&mut value);
        self.degraded.put(&mut value);
        version.put(&mut value);
        self.removed.put(&mut value);
        value.into()
    }

    fn tell(&self, config: &mut Config) {
        if self.removed {
            config.removed.push(self.entry.target);
            return;
        }
        config.targets.push(self.entry.clone());
        if self.degraded {
            config.degraded.push(self.entry.target);
        }
    }

    /// At most so many bytes of a page.
    fn bytes(&self) -> usize {
        self.value(0).len() + SERVER_BYTES_MAX + LISTED_BYTES
    }

    /// What was stored, with its version; 0 if an MGS of before versions were kept stored it.
    fn of(value: Bytes) -> Result<(Known, u64), StoreError> {
        let mut from = Reader::new(value);
        let mut read = || {
            let (entry, degraded, version) = (from.take()?, from.take_or_default()?, from.take_or_default()?);
            Ok::<_, DecodeError>((Known { entry, degraded, removed: from.take_or_default()? }, version))
        };
        read().map_err(|_| damaged("a target of the configuration"))
    }
}

/// What makes `known` durable as the change of `version`.
fn change(known: &Known, version: u64) -> Change {
    Change { key: key(TARGET, known.entry.target), value: Some(known.value(version)) }
}

/// What makes durable that `version` is the newest.
fn version_change(version: u64) -> Change {
    Change { key: Bytes::from_static(&[VERSION]), value: Some(version.to_le_bytes().to_vec().into()) }
}

impl Table {
    /// Reads the table.
    pub async fn open(store: &Store) -> Result<Table, StoreError> {
        let (mut table, unnumbered) = Table::load(store)?;
        for some in unnumbered.chunks(NUMBERED_COUNT) {
            let mut batch = Batch::default();
            for known in some {
                table.newest += 1;
                batch.changes.push(change(known, table.newest));
                table.pending.insert(table.newest, known.clone());
            }
            batch.changes.push(version_change(table.newest));
            let transno = store.commit(batch)?;
            store.committed(transno).await?;
        }
        table.publish(table.newest);
        Ok(table)
    }

    /// Reads the table, and apart from it what has no version yet.
    fn load(store: &Store) -> Result<(Table, Vec<Known>), StoreError> {
        let (mut table, mut unnumbered) = (Table::default(), Vec::new());
        if let Some(value) = store.get(&[VERSION])? {
            let number =
                value.bytes.as_ref().try_into().map_err(|_| damaged("the version of the configuration"))?;
            table.version = u64::from_le_bytes(number);
            table.newest = table.version;
        }
        scan(store, TARGET, |_, value| {
            match Known::of(value)? {
                (known, 0) => unnumbered.push(known),
                (known, version) if version <= table.version => table.see(known, version),
                _ => return Err(damaged("a target is newer than the configuration")),
            }
            Ok(())
        })?;
        table.pools = PoolTable::load(store, table.version)?;
        table.settings = SettingTable::load(store, table.version)?;
        Ok((table, unnumbered))
    }

    /// Others see `known` from now on.
    fn see(&mut self, known: Known, version: u64) {
        let target = known.entry.target;
        self.order.insert(version, target);
        if let Some((_, before)) = self.seen.insert(target, (known, version)) {
            self.order.remove(&before);
        }
    }

    /// The server of `target`, as it is known.
    pub fn server(&self, target: TargetId) -> Option<String> {
        self.current(target).map(|known| known.entry.server.clone())
    }

    /// Where `target` is served, if it is the one with that name.
    pub fn nids(&self, target: TargetId, uuid: ClientId) -> Option<Vec<Nid>> {
        let known = self.current(target).filter(|known| known.entry.uuid == uuid);
        known.map(|known| known.entry.nids.clone())
    }

    /// Number of targets.
    pub fn count(&self) -> usize {
        let new = self.newest_pending.keys().filter(|target| !self.seen.contains_key(target));
        self.seen.len() + new.count()
    }

    /// Version of what others see.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Newest version, durable or not.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether a target with this name may be served as `target`: where the one before it was served, if it takes the place of one that
    /// was not removed. IndexUsed if it may not, Removed if it was removed itself.
    pub fn place_of(
        &self,
        target: TargetId,
        uuid: ClientId,
        replaces: bool,
    ) -> Result<Option<Vec<Nid>>, Code> {
        match self.current(target) {
            Some(known) if known.entry.uuid == uuid && known.removed => Err(Code::Removed),
            Some(known) if known.entry.uuid == uuid => Ok(None),
            Some(_) if !replaces => Err(Code::IndexUsed),
            Some(known) => Ok((!known.removed).then(|| known.entry.nids.clone())),
            None => Ok(None),
        }
    }

    /// Whether a target with this name has taken the place of another one.
    pub fn has_replaced(&self, target: TargetId, uuid: ClientId) -> bool {
        self.current(target).is_some_and(|known| known.entry.uuid == uuid && known.entry.replaces)
    }

    fn current(&self, target: TargetId) -> Option<&Known> {
        let pending = self.newest_pending.get(&target).and_then(|version| self.pending.get(version));
        pending.or_else(|| self.seen.get(&target).map(|(known, _)| known))
    }

    /// A target with a mark, or without it.
    pub fn marked(&self, mark: &MarkTarget) -> Result<Known, Code> {
        let is_meant = |known: &&Known| known.entry.uuid == mark.uuid && !known.removed;
        let known = self.current(mark.target).filter(is_meant).ok_or(Code::NotFound)?;
        Ok(Known { degraded: mark.degraded, ..known.clone() })
    }

    /// The target as it is when it was taken out, or came back.
    pub fn removed(&self, target: TargetId, removed: bool) -> Result<Known, Code> {
        let known = self.current(target).ok_or(Code::NotFound)?;
        Ok(Known { removed, degraded: false, ..known.clone() })
    }

    /// The pools that `ost` is in.
    pub fn pools_of(&self, ost: OstIndex) -> Vec<String> {
        self.pools.of(ost)
    }

    /// Whether `new` may be in the table: what to commit and the version that it makes, or `None` if it is there. IndexUsed if another
    /// one is, and `new` does not replace it; Removed if it was taken out; TooBig if there are [`TARGETS_MAX`] others.
    pub fn admit(&self, new: &Known) -> Result<Option<(Vec<Change>, u64)>, Code> {
        match self.current(new.entry.target) {
            Some(known) if known == new => return Ok(None),
            Some(known) if known.entry.uuid != new.entry.uuid && !new.entry.replaces => {
                return Err(Code::IndexUsed);
            }
            Some(known) if known.entry.uuid == new.entry.uuid && known.removed => return Err(Code::Removed),
            // What is not durable yet may be counted twice.
            None if self.seen.len() + self.newest_pending.len() >= TARGETS_MAX => return Err(Code::TooBig),
            _ => {}
        }
        let version = self.newest + 1;
        Ok(Some((vec![change(new, version), version_change(version)], version)))
    }

    /// The same for one that is taken out, or comes back ([`Table::removed`]).
    pub fn admit_removed(&self, known: &Known) -> Option<(Vec<Change>, u64)> {
        let version = self.newest + 1;
        let is_new = self.current(known.entry.target) != Some(known);
        is_new.then(|| (vec![change(known, version), version_change(version)], version))
    }

    /// What `change` makes of a pool, what to commit for that, and the version that it makes; `None` if that is so already.
    pub fn admit_pool(&self, change: &ChangePool) -> Result<Option<(NewPool, Vec<Change>, u64)>, Code> {
        let version = self.newest + 1;
        let new = self.pools.admit(change, |ost| self.knows(ost))?;
        Ok(new.map(|new| {
            let changes = vec![new.change(version), version_change(version)];
            (new, changes, version)
        }))
    }

    /// Takes over what was committed.
    pub fn put_pool(&mut self, new: NewPool, version: u64) {
        assert!(version == self.newest + 1, "versions follow one another");
        self.newest = version;
        self.pools.put(new, version);
    }

    /// What `change` makes of the parameters that are kept, what to commit for that, and the version that it makes.
    pub fn admit_setting(&self, change: &ChangeSetting) -> Result<(NewSettings, Vec<Change>, u64), Code> {
        let version = self.newest + 1;
        let new = self.settings.admit(change, version)?;
        let changes = vec![new.change(version), version_change(version)];
        Ok((new, changes, version))
    }

    /// Takes over what was committed.
    pub fn put_setting(&mut self, new: NewSettings, version: u64) {
        assert!(version == self.newest + 1, "versions follow one another");
        self.newest = version;
        self.settings.put(new, version);
    }

    /// The parameters that are kept.
    pub fn settings(&self) -> &SettingTable {
        &self.settings
    }

    /// Only the parameters that are kept, if there is something new behind `known`.
    pub fn settings_page(&self, fsname: &str, known: u64) -> Config {
        let version = self.settings.version();
        let settings = self.settings.behind(known);
        Config { version, newest: version, settings, ..Config::empty(fsname) }
    }

    /// What is asked of the pools.
    pub fn read_pools(&self, asked: &ReadPools) -> PoolsTold {
        self.pools.read(asked, |ost| self.knows(ost))
    }

    fn knows(&self, ost: OstIndex) -> bool {
        self.current(TargetId::ost(ost)).is_some_and(|known| !known.removed)
    }

    /// Takes over what was committed.
    pub fn put(&mut self, new: Known, version: u64) {
        assert!(version == self.newest + 1, "versions follow one another");
        self.newest = version;
        self.newest_pending.insert(new.entry.target, version);
        self.pending.insert(version, new);
    }

    /// Everything up to `version` is durable; says whether others see something new now.
    pub fn publish(&mut self, version: u64) -> bool {
        let later = self.pending.split_off(&(version + 1));
        let durable = std::mem::replace(&mut self.pending, later);
        let mut changed = !durable.is_empty();
        changed |= self.pools.publish(version);
        changed |= self.settings.publish(version);
        for (version, known) in durable {
            let target = known.entry.target;
            if self.newest_pending.get(&target) == Some(&version) {
                self.newest_pending.remove(&target);
            }
            self.see(known, version);
        }
        self.version = self.version.max(version);
        changed
    }

    /// What others see, but for the owners.
    pub fn config(&self, fsname: &str) -> Config {
        let mut config = Config { version: self.version, ..Config::empty(fsname) };
        for (known, _) in self.seen.values() {
            known.tell(&mut config);
        }
        config.pools = self.pools.behind(0).map(|(_, pool)| pool).collect();
        config.pool_names = Some(self.pools.names());
        config.settings = self.settings.behind(0);
        config
    }

    /// The first page of what others see behind `known`, but for the owners.
    pub fn page(&self, fsname: &str, known: u64) -> Config {
        let mut page = Config { version: self.version, newest: self.version, ..Config::empty(fsname) };
        page.pool_names = self.pools.names_behind(known);
        page.settings = self.settings.behind(known);
        let (mut bytes, mut told) = (0, known);
        for (version, changed) in self.behind(known) {
            bytes += changed.bytes();
            let is_empty = page.targets.is_empty() && page.pools.is_empty() && page.removed.is_empty();
            if bytes > CONFIG_PAGE_BYTES && !is_empty {
                page.version = told;
                break;
            }
            match changed {
                Changed::Target(known) => known.tell(&mut page),
                Changed::Pool(pool) => page.pools.push(pool),
            }
            told = version;
        }
        page
    }

    /// What changed behind `known`, in the order in which it did, with the version of each change.
    fn behind(&self, known: u64) -> impl Iterator<Item = (u64, Changed<'_>)> {
        let targets = self.order.range(known.saturating_add(1)..);
        let mut targets =
            targets.filter_map(|(version, target)| Some((*version, &self.seen.get(target)?.0))).peekable();
        let mut pools = self.pools.behind(known).peekable();
        std::iter::from_fn(move || {
            let next = targets.peek().map(|(version, _)| *version);
            let pool = pools.next_if(|(version, _)| next.is_none_or(|next| *version < next));
            match pool {
                Some((version, pool)) => Some((version, Changed::Pool(pool))),
                None => targets.next().map(|(version, known)| (version, Changed::Target(known))),
            }
        })
    }
}

impl Changed<'_> {
    /// At most so many bytes of a page.
    fn bytes(&self) -> usize {
        match self {
            Changed::Target(known) => known.bytes(),
            Changed::Pool(pool) => LISTED_BYTES + pool.name.len() + 4 * pool.osts.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::TargetOwner;
    use proto::{ClientId, ConfigCopy, Nid};

    use super::*;

    /// An OST with so many addresses, at a server whose name is as long as it may be.
    fn ost(index: u32, nids: usize) -> Known {
        let nid = |n: usize| format!("10.{n}.{}.{}@tcp", index >> 8 & 255, index & 255);
        let nids: Vec<Nid> = (0..nids).map(|n| nid(n).parse().expect("an address")).collect();
        let server = "s".repeat(SERVER_BYTES_MAX);
        Known::new(TargetEntry {
            target: TargetId::ost(index),
            uuid: ClientId(u128::from(index)),
            nids,
            server,
            replaces: false,
        })
    }

    fn add(table: &mut Table, known: Known) {
        let (_, version) = table.admit(&known).expect("there is room").expect("it is new");
        table.put(known, version);
    }

    /// Reads on until nothing is left; gives the number of pages and of targets that they told, and the largest page.
    fn read(table: &Table, copy: &mut ConfigCopy) -> (usize, usize, usize) {
        let (mut pages, mut targets, mut largest) = (0, 0, 0);
        loop {
            let mut page = table.page("weft", copy.question(0).known);
            let owner = |entry: &TargetEntry| TargetOwner {
                target: entry.target,
                server: entry.server.clone(),
                epoch: 1,
            };
            page.owners = page.targets.iter().map(owner).collect();
            let mut body = Vec::new();
            page.put(&mut body);
            (pages, targets, largest) = (pages + 1, targets + page.targets.len(), largest.max(body.len()));
            assert!(copy.take(page));
            if copy.is_whole() {
                return (pages, targets, largest);
            }
        }
    }

    #[test]
    fn a_full_table_is_told_in_pages_and_a_change_alone() {
        let mut table = Table::default();
        for index in 0..TARGETS_MAX as u32 {
            add(&mut table, ost(index, if index % 1000 == 0 { 32 } else { 1 }));
        }
        table.publish(table.newest());
        assert_eq!(table.admit(&ost(TARGETS_MAX as u32, 1)), Err(Code::TooBig));
        assert_eq!(table.admit(&ost(7, 1)), Ok(None), "who is there may register again");
        let mut copy = ConfigCopy::new("weft");
        let (pages, targets, largest) = read(&table, &mut copy);
        assert_eq!(
            (targets, copy.targets().count(), copy.version()),
            (TARGETS_MAX, TARGETS_MAX, table.version())
        );
        assert!(largest <= CONFIG_PAGE_BYTES + 1024, "{largest}");
        assert!(pages > 100, "{pages}");
        add(&mut table, ost(9, 2));
        table.publish(table.newest());
        assert_eq!(read(&table, &mut copy).1, 1, "only what changed");
        assert_eq!(copy.target(TargetId::ost(9)).map(|entry| entry.nids.len()), Some(2));
        assert_eq!(read(&table, &mut copy).1, 0);
    }

    #[test]
    fn who_reads_while_it_changes_has_everything_in_the_end() {
        let mut table = Table::default();
        let osts = 3 * (CONFIG_PAGE_BYTES / ost(0, 1).bytes()) as u32;
        (0..osts).for_each(|index| add(&mut table, ost(index, 1)));
        table.publish(table.newest());
        let mut copy = ConfigCopy::new("weft");
        assert!(copy.take(table.page("weft", 0)) && !copy.is_whole());
        // One that was told, one that was not, and a new one; of another change it is not known yet whether it is durable.
        for known in [ost(0, 2), ost(osts - 1, 2), ost(osts, 1)] {
            add(&mut table, known);
        }
        table.publish(table.newest());
        add(&mut table, ost(1, 2));
        assert_eq!(table.count(), osts as usize + 1);
        read(&table, &mut copy);
        let nids = |index| copy.target(TargetId::ost(index)).map_or(0, |entry| entry.nids.len());
        assert_eq!((nids(0), nids(1), nids(osts - 1), nids(osts)), (2, 1, 2, 1));
        assert_eq!(copy.targets().count(), osts as usize + 1);
        assert_eq!(
            table.config("weft").targets,
            copy.targets().cloned().collect::<Vec<_>>(),
            "as it is told at once"
        );
    }

    #[test]
    fn what_an_older_mgs_stored_is_read() {
        let known = ost(3, 1);
        assert_eq!(Known::of(known.value(9)).expect("its own"), (known.clone(), 9));
        let mut old = Vec::new();
        known.entry.put(&mut old);
        assert_eq!(Known::of(old.clone().into()).expect("of an older one"), (known.clone(), 0));
        true.put(&mut old);
        assert_eq!(Known::of(old.into()).expect("with a mark"), (Known { degraded: true, ..known }, 0));
    }
}
