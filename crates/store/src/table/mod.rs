//! Memory tables: every change that the engine has not got yet, and what was read or written lately.
//!
//! Keys are spread over shards by the hash of their first [`PREFIX_BYTES`] bytes (kind and FID), so the entries of
//! one directory lie in order in one shard, and operations on different inodes meet in none. Whether an entry may
//! be forgotten needs no mark: the engine has everything up to its position, so an entry is clean if its version
//! is not behind that position. A pinned key is not forgotten, however short memory is.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use rt::memory::User;
use smallvec::SmallVec;

/// Bytes of a key that choose its shard: one for the kind and 16 for a FID.
pub const PREFIX_BYTES: usize = 17;
const SHARD_COUNT: usize = 64;
/// Entries that a range over all shards takes from each of them at least, at a time.
const FROM_EACH_MIN: usize = 16;
/// Entries looked at under one guard while clean ones are forgotten.
const TRIM_ENTRIES: usize = 128;
/// Memory of an entry besides its key and its value, in bytes: the place in the tree, the value's bookkeeping.
const ENTRY_OVERHEAD_BYTES: usize = 176;

/// A key, inside the tree's node as long as it is short: a look-up follows no pointer per comparison.
type Key = SmallVec<[u8; 48]>;

struct Entry {
    /// `None`: the key is known not to exist.
    value: Option<Bytes>,
    /// Transno of the change that wrote the value or took it away; 0 if it never existed.
    version: u64,
    /// Looked up since the last trim passed by.
    used: AtomicBool,
}

#[derive(Default)]
struct Shard {
    entries: BTreeMap<Key, Entry>,
    /// How often an entry was forgotten: what was read from the engine before that may be old.
    forgotten: u64,
    /// Where the last trim stopped.
    trimmed_to: Key,
    /// Keys that are not forgotten, and how often each is pinned.
    pinned: BTreeMap<Key, u32>,
}

/// What the table knows of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The key's value and version.
    Value(Bytes, u64),
    /// The key does not exist.
    Absent,
    /// The engine has to be asked; the ticket says how old its answer is.
    Unknown(Ticket),
}

/// Shows that nothing was forgotten since it was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// Entries of a range.
pub struct Part {
    /// Entries in order; `None` for keys known not to exist.
    pub entries: Vec<(Bytes, Option<(Bytes, u64)>)>,
    /// The entries are all that the table has up to here; `None` if that is the whole range.
    pub complete_to: Option<Bytes>,
}

/// The memory tables of one store.
pub struct Table {
    shards: Vec<RwLock<Shard>>,
    bytes: AtomicU64,
    /// Accounts for them, if somebody does.
    user: Option<User>,
    next_trim: AtomicUsize,
}

impl Table {
    /// An empty table.
    pub fn new() -> Table {
        let shards = (0..SHARD_COUNT).map(|_| RwLock::new(Shard::default())).collect();
        Table { shards, user: None, bytes: AtomicU64::new(0), next_trim: AtomicUsize::new(0) }
    }

    /// The same; `user` accounts for what it takes.
    pub fn accounted(user: User) -> Table {
        Table { user: Some(user), ..Table::new() }
    }

    /// Memory of all entries, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What the table knows of `key`.
    pub fn get(&self, key: &[u8]) -> Found {
        let shard = self.shard(key).read();
        let Some(entry) = shard.entries.get(key) else { return Found::Unknown(Ticket(shard.forgotten)) };
        if !entry.used.load(Ordering::Relaxed) {
            entry.used.store(true, Ordering::Relaxed);
        }
        match &entry.value {
            Some(value) => Found::Value(value.clone(), entry.version),
            None => Found::Absent,
        }
    }

    /// The value and version of `key`, if the table knows them, for who reads much that nobody else does: that does not keep it here.
    pub fn peek(&self, key: &[u8]) -> Option<(Option<Bytes>, u64)> {
        let shard = self.shard(key).read();
        shard.entries.get(key).map(|entry| (entry.value.clone(), entry.version))
    }

    /// Sets `key`; `None` takes it away. Returns the version it had (0: it did not exist), or `None` if the table
    /// did not know.
    pub fn put(&self, key: &[u8], value: Option<Bytes>, version: u64) -> Option<u64> {
        let added = entry_bytes(key, value.as_ref());
        let mut shard = self.shard(key).write();
        let entry = Entry { value, version, used: AtomicBool::new(false) };
        let before = shard.entries.insert(Key::from_slice(key), entry);
        drop(shard);
        let removed = before.as_ref().map_or(0, |old| entry_bytes(key, old.value.as_ref()));
        self.account(added, removed);
        before.map(|old| if old.value.is_some() { old.version } else { 0 })
    }

    /// Forgets nothing of `key` until [`Table::unpin`]. What the table knows of it, and what it learns, stays.
    pub fn pin(&self, key: &[u8]) {
        *self.shard(key).write().pinned.entry(Key::from_slice(key)).or_default() += 1;
    }

    /// The end of one [`Table::pin`].
    pub fn unpin(&self, key: &[u8]) {
        let mut shard = self.shard(key).write();
        let Some(count) = shard.pinned.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            shard.pinned.remove(key);
        }
    }

    /// Keeps what the engine said of `key`, unless the table may have learned and forgotten something since then: since `ticket`, or
    /// never if the caller had pinned the key before it asked (`None`).
    pub fn remember(&self, key: &[u8], found: Option<(Bytes, u64)>, ticket: Option<Ticket>) {
        let (value, version) = found.map_or((None, 0), |(value, version)| (Some(value), version));
        let added = entry_bytes(key, value.as_ref());
        let mut shard = self.shard(key).write();
        let is_old = ticket.is_some_and(|ticket| Ticket(shard.forgotten) != ticket);
        if is_old || shard.entries.contains_key(key) {
            return;
        }
        shard.entries.insert(Key::from_slice(key), Entry { value, version, used: AtomicBool::new(false) });
        drop(shard);
        self.account(added, 0);
    }

    /// Forgets that `key` was taken away by the change `version`, which the engine has now.
    pub fn forget_absent(&self, key: &[u8], version: u64) {
        let mut shard = self.shard(key).write();
        let gone = shard.entries.get(key).is_some_and(|e| e.value.is_none() && e.version == version);
        if gone && !shard.is_pinned(key) {
            shard.entries.remove(key);
            shard.forgotten += 1;
            drop(shard);
            self.account(0, entry_bytes(key, None));
        }
    }

    /// Entries in `[from, until)`: all, or at least `count_max` that exist.
    pub fn range(&self, from: &[u8], until: &[u8], count_max: usize) -> Part {
        if from >= until {
            return Part { entries: Vec::new(), complete_to: None };
        }
        if within_one_prefix(from, until) {
            return self.shard(from).read().range(from, until, count_max);
        }
        // Of each shard its part and some more, again and again: with all that is wanted from each of them, most would be for
        // nothing.
        let from_each = (count_max / SHARD_COUNT).saturating_mul(2).max(FROM_EACH_MIN).min(count_max);
        let (mut entries, mut live, mut start) = (Vec::new(), 0, from.to_vec());
        loop {
            let part = self.range_of_all(&start, until, from_each);
            live += part.entries.iter().filter(|(_, value)| value.is_some()).count();
            entries.extend(part.entries);
            match part.complete_to {
                Some(end) if live < count_max => start = [&end[..], &[0]].concat(),
                complete_to => return Part { entries, complete_to },
            }
        }
    }

    /// Entries of all shards: all, or at least `from_each` that exist.
    fn range_of_all(&self, from: &[u8], until: &[u8], from_each: usize) -> Part {
        let mut entries = Vec::new();
        let mut complete_to: Option<Bytes> = None;
        for shard in &self.shards {
            let mut part = shard.read().range(from, until, from_each);
            entries.append(&mut part.entries);
            complete_to = match (complete_to, part.complete_to) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(end) = &complete_to {
            entries.truncate(entries.partition_point(|(key, _)| key <= end));
        }
        Part { entries, complete_to }
    }

    /// Forgets entries that the engine has (`version <= applied`) and nobody looked up lately, until the table
    /// takes at most `bytes_max` or all of it was passed twice.
    pub fn trim(&self, applied: u64, bytes_max: u64) {
        for _ in 0..2 * SHARD_COUNT {
            let index = self.next_trim.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT;
            loop {
                if self.bytes() <= bytes_max {
                    return;
                }
                let mut shard = self.shards[index].write();
                let freed = shard.trim(applied);
                let at_end = shard.trimmed_to.is_empty();
                drop(shard);
                self.account(0, freed);
                if at_end {
                    break;
                }
            }
        }
    }

    /// One small step of [`Table::trim`], for callers that must not be held up.
    pub fn trim_step(&self, applied: u64, bytes_max: u64) {
        if self.bytes() <= bytes_max {
            return;
        }
        let index = self.next_trim.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT;
        let Some(mut shard) = self.shards[index].try_write() else { return };
        let freed = shard.trim(applied);
        drop(shard);
        self.account(0, freed);
    }

    fn shard(&self, key: &[u8]) -> &RwLock<Shard> {
        let hash = xxhash_rust::xxh3::xxh3_64(&key[..key.len().min(PREFIX_BYTES)]);
        &self.shards[hash as usize % SHARD_COUNT]
    }

    fn account(&self, added: usize, removed: usize) {
        self.user.iter().for_each(|user| user.changed(removed as u64, added as u64));
        if added > removed {
            self.bytes.fetch_add((added - removed) as u64, Ordering::Relaxed);
        } else if removed > added {
            self.bytes.fetch_sub((removed - added) as u64, Ordering::Relaxed);
        }
    }
}

impl Shard {
    fn is_pinned(&self, key: &[u8]) -> bool {
        !self.pinned.is_empty() && self.pinned.contains_key(key)
    }

    fn range(&self, from: &[u8], until: &[u8], count_max: usize) -> Part {
        let mut entries = Vec::new();
        let mut live = 0;
        let bounds = (Bound::Included(from), Bound::Excluded(until));
        for (key, entry) in self.entries.range::<[u8], _>(bounds) {
            if live == count_max {
                let complete_to = entries.last().map(|(key, _): &(Bytes, _)| key.clone());
                return Part { entries, complete_to };
            }
            live += usize::from(entry.value.is_some());
            let value = entry.value.clone().map(|value| (value, entry.version));
            entries.push((Bytes::copy_from_slice(key), value));
        }
        Part { entries, complete_to: None }
    }

    /// Passes a few entries and forgets the clean ones that were not used; returns the freed bytes.
    fn trim(&mut self, applied: u64) -> usize {
        let from = std::mem::take(&mut self.trimmed_to);
        let mut passed = 0;
        let mut victims: Vec<Key> = Vec::new();
        for (key, entry) in self.entries.range::<[u8], _>((Bound::Excluded(&from[..]), Bound::Unbounded)) {
            passed += 1;
            if entry.version <= applied && !entry.used.swap(false, Ordering::Relaxed) && !self.is_pinned(key)
            {
                victims.push(key.clone());
            }
            if passed == TRIM_ENTRIES {
                self.trimmed_to = key.clone();
                break;
            }
        }
        let mut freed = 0;
        for key in &victims {
            if let Some(entry) = self.entries.remove(&key[..]) {
                freed += entry_bytes(key, entry.value.as_ref());
                self.forgotten += 1;
            }
        }
        freed
    }
}

fn entry_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
    ENTRY_OVERHEAD_BYTES + key.len() + value.map_or(0, Bytes::len)
}

/// Whether all keys in `[from, until)` begin with the same [`PREFIX_BYTES`] bytes and so lie in one shard.
fn within_one_prefix(from: &[u8], until: &[u8]) -> bool {
    let Some(prefix) = from.first_chunk::<PREFIX_BYTES>() else { return false };
    // The smallest key behind all that begin with the prefix: its last byte below 255 raised, the rest cut off.
    let mut behind = prefix.to_vec();
    while let Some(last) = behind.pop() {
        if last < u8::MAX {
            behind.push(last + 1);
            return until <= &behind[..];
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn put_tells_what_was_before() {
        let table = Table::new();
        assert_eq!(table.put(b"k", value("a"), 1), None);
        assert_eq!(table.put(b"k", None, 2), Some(1));
        assert_eq!(table.put(b"k", value("b"), 3), Some(0));
        assert_eq!(table.get(b"k"), Found::Value(Bytes::from("b"), 3));
    }

    #[test]
    fn an_old_answer_of_the_engine_is_not_remembered() {
        let table = Table::new();
        let Found::Unknown(ticket) = table.get(b"k") else { panic!("nothing was put yet") };
        table.put(b"k", value("new"), 5);
        table.trim(5, 0);
        assert_eq!(table.bytes(), 0);
        table.remember(b"k", Some((Bytes::from("old"), 1)), Some(ticket));
        assert!(matches!(table.get(b"k"), Found::Unknown(_)));
    }

    #[test]
    fn what_is_pinned_is_not_forgotten() {
        let table = Table::new();
        (0..2).for_each(|_| table.pin(b"k"));
        table.remember(b"k", Some((Bytes::from("v"), 1)), None);
        table.put(b"gone", None, 2);
        table.pin(b"gone");
        table.unpin(b"k");
        table.trim(2, 0);
        table.forget_absent(b"gone", 2);
        assert_eq!(table.get(b"k"), Found::Value(Bytes::from("v"), 1), "it is pinned once still");
        assert_eq!(table.get(b"gone"), Found::Absent);
        table.unpin(b"k");
        table.unpin(b"gone");
        table.trim(2, 0);
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn trim_keeps_what_the_engine_lacks() {
        let table = Table::new();
        for n in 0..1000u64 {
            table.put(&n.to_be_bytes(), value("v"), n + 1);
        }
        table.trim(600, 0);
        let kept = table.range(&[], &[0xff; 9], usize::MAX).entries;
        assert_eq!(kept.len(), 400);
        assert!(kept.iter().all(|(_, v)| v.as_ref().is_some_and(|(_, version)| *version > 600)));
        table.trim(1000, 0);
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn ranges_are_in_order_and_say_how_far_they_are_complete() {
        let table = Table::new();
        for n in 0..20_000u32 {
            table.put(&n.to_be_bytes(), if n % 3 == 0 { None } else { value("v") }, u64::from(n) + 1);
        }
        let part = table.range(&10u32.to_be_bytes(), &19_000u32.to_be_bytes(), 20);
        let end = part.complete_to.expect("there is more than 20");
        let live = part.entries.iter().filter(|(_, v)| v.is_some()).count();
        assert!(live >= 20);
        let want: Vec<Bytes> = (10..19_000u32)
            .map(|n| Bytes::copy_from_slice(&n.to_be_bytes()))
            .take_while(|key| *key <= end)
            .collect();
        let got: Vec<Bytes> = part.entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn a_directory_lies_in_one_shard() {
        let mut from = vec![b'e'; 17];
        let mut until = from.clone();
        from.push(1);
        until[16] += 1;
        assert!(within_one_prefix(&from, &until));
        assert!(within_one_prefix(&from, &[&from[..17], &[0xff; 9][..]].concat()));
        until.push(0);
        assert!(!within_one_prefix(&from, &until));
        assert!(!within_one_prefix(b"short", b"shorter"));
        assert!(within_one_prefix(&[0xff; 17], &[0xff; 30]));
    }
}
