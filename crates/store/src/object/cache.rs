//! Objects in memory, and the lock that orders their changes.
//!
//! All objects of one layout id live and die together, so they share a lock and the sign that they are dead. The
//! lock is held only in synchronous steps: look, commit, apply. What is in memory is a copy of what the store has;
//! dropping it is always safe when nobody uses it.
//!
//! Lock order: layouts by id, then [`super::tomb::Tombs`], then the store's and the files' own locks. A shard's
//! lock is never held together with a layout's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
#[cfg(test)]
use proto::second_chance::GONE_MAX;
use proto::second_chance::{Look, Round};
use proto::{Fid, ObjectId, Shards};
use rt::Time;

use super::extent::{Edit, Extents};
use super::keys::{self, Record};
use super::{CHUNK_BYTES, chunk_end};
use crate::error::StoreError;
use crate::target::{Change, Store};

const SHARDS: usize = 16;
/// Chunks that one object keeps in memory while it is in use.
const OBJECT_CHUNKS_MAX: usize = 256;
/// Keys that one scan brings.
const SCAN_COUNT: usize = 1024;
/// Memory of a layout, of its first object (trees take room for eleven entries at once), of a chunk and of an extent without its
/// checksums, about, in bytes.
const LAYOUT_COST: usize = 256;
const OBJECT_COST: usize = 11 * size_of::<(u32, Object)>() + 64;
const CHUNK_COST: usize = 1536;
const EXTENT_COST: usize = 128;

/// Layouts with objects on this target, those used last.
pub struct Cache {
    shards: Shards<Mutex<Shard>, SHARDS>,
    bytes_max: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    layouts: BTreeMap<Fid, Arc<Layout>>,
    /// Layouts in the order in which they are looked at for being dropped.
    order: Round<Fid>,
    /// Memory of the layouts, as far as told.
    cost: usize,
}

/// The objects of one layout id.
pub struct Layout {
    /// Its state; see the module's lock order.
    pub state: Mutex<State>,
    used: AtomicBool,
    /// What its state costs, as last told to the shard.
    cost: AtomicUsize,
}

/// What is known of the objects of one layout id.
#[derive(Default)]
pub struct State {
    /// Whether there is a tombstone; `None` before anybody looked.
    pub dead: Option<bool>,
    objects: BTreeMap<u32, Object>,
}

/// What is known of one object.
#[derive(Default)]
pub struct Object {
    /// `None` if there is no such object.
    pub record: Option<Record>,
    /// Its small extents are left alone until then.
    pub merged_from: Time,
    /// So many bytes were read of it since its data was changed, or it came here.
    read_bytes: u64,
    chunks: BTreeMap<u64, Chunk>,
    clock: u64,
    cost: usize,
}

#[derive(Default)]
struct Chunk {
    extents: Extents,
    used: u64,
}

impl Cache {
    /// An empty cache that keeps about `bytes_max` bytes besides what is in use.
    pub fn new(bytes_max: usize) -> Cache {
        Cache { shards: Shards::default(), bytes_max: AtomicUsize::new(bytes_max) }
    }

    /// From now on it keeps about `bytes_max` bytes.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// What it keeps: layouts, and their memory, about, in bytes.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(count, cost), shard| {
            let shard = shard.lock();
            assert!(
                shard.order.len() <= 2 * shard.layouts.len() + GONE_MAX,
                "the order has what the map has"
            );
            (count + shard.layouts.len(), cost + shard.cost)
        })
    }

    /// The layout `id`, whether or not it has objects.
    pub fn layout(&self, id: Fid) -> Arc<Layout> {
        let mut shard = self.shards.of(&id).lock();
        shard.shrink(self.bytes_max.load(Ordering::Relaxed) / SHARDS);
        if let Some(layout) = shard.layouts.get(&id) {
            layout.used.store(true, Ordering::Relaxed);
            return layout.clone();
        }
        let layout = Arc::new(Layout {
            state: Mutex::default(),
            used: AtomicBool::new(true),
            cost: AtomicUsize::new(LAYOUT_COST),
        });
        shard.layouts.insert(id, layout.clone());
        shard.order.push(id);
        shard.cost += LAYOUT_COST;
        layout
    }

    /// Tells what the layout costs after it was used.
    pub fn account(&self, id: Fid, layout: &Layout, cost: usize) {
        if layout.cost.load(Ordering::Relaxed) == cost {
            return;
        }
        let mut shard = self.shards.of(&id).lock();
        let before = layout.cost.swap(cost, Ordering::Relaxed);
        shard.cost = (shard.cost + cost).saturating_sub(before);
    }

    /// Drops a layout that was destroyed, unless somebody else is about to use it: the next one who asks for it finds its
    /// tombstone.
    pub fn forget(&self, id: Fid, layout: Arc<Layout>) {
        let mut shard = self.shards.of(&id).lock();
        // Ours and the shard's.
        if Arc::strong_count(&layout) > 2 || shard.layouts.remove(&id).is_none() {
            return;
        }
        shard.cost = shard.cost.saturating_sub(layout.cost.load(Ordering::Relaxed));
        let Shard { layouts, order, .. } = &mut *shard;
        order.tidy(layouts.len(), |id| layouts.contains_key(id));
    }
}

impl Shard {
    /// Drops layouts that nobody uses until the rest fits.
    fn shrink(&mut self, bytes_max: usize) {
        // A first look may only note what was used since the last.
        let mut looks = 2 * self.order.len();
        while self.cost > bytes_max && looks > 0 {
            let unused = self.order.find(looks, |id| {
                looks -= 1;
                let Some(layout) = self.layouts.get(&id) else { return Look::Gone };
                // Others get their reference under this lock: with one reference nobody can use the layout.
                let stays = Arc::strong_count(layout) > 1 || layout.used.swap(false, Ordering::Relaxed);
                if stays { Look::Stays } else { Look::Found }
            });
            let Some(layout) = unused.and_then(|id| self.layouts.remove(&id)) else { continue };
            self.cost = self.cost.saturating_sub(layout.cost.load(Ordering::Relaxed));
        }
    }
}

impl State {
    /// The object of `id`, read from the store at first use.
    pub fn object(&mut self, store: &Store, id: ObjectId) -> Result<&mut Object, StoreError> {
        use std::collections::btree_map::Entry;
        match self.objects.entry(id.stripe) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(Object::load(store, id)?)),
        }
    }

    /// Forgets the objects of which nothing is left.
    pub fn drop_empty(&mut self) {
        self.objects.retain(|_, object| object.record.is_some());
    }

    /// Memory that the state takes, about.
    pub fn cost(&self) -> usize {
        let of_objects = self.objects.len().div_ceil(11) * OBJECT_COST;
        LAYOUT_COST + of_objects + self.objects.values().map(|object| object.cost).sum::<usize>()
    }
}

fn corrupt(id: ObjectId, what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("{what} of object {}:{}", id.layout, id.stripe) }
}

impl Object {
    fn load(store: &Store, id: ObjectId) -> Result<Object, StoreError> {
        let value = store.get(&keys::record_key(id))?;
        let record = value
            .map(|value| Record::decode(&value.bytes).ok_or_else(|| corrupt(id, "the record")))
            .transpose()?;
        Ok(Object { record, ..Object::default() })
    }

    /// The record, or that of an object that is not there.
    pub fn record(&self) -> Record {
        self.record.unwrap_or_default()
    }

    /// The extents of chunk `index`, read from the store at first use.
    pub fn chunk(&mut self, store: &Store, id: ObjectId, index: u64) -> Result<&Extents, StoreError> {
        if !self.chunks.contains_key(&index) {
            let extents = if self.record.is_some() { load_chunk(store, id, index)? } else { Extents::new() };
            self.cost += CHUNK_COST + extents.values().map(cost_of).sum::<usize>();
            self.chunks.insert(index, Chunk { extents, used: 0 });
        }
        self.clock += 1;
        let chunk = self.chunks.get_mut(&index).expect("it was put in if it was not there");
        chunk.used = self.clock;
        Ok(&chunk.extents)
    }

    /// Notes that so many bytes are read. Gives how many were read before.
    pub fn note_read(&mut self, bytes: u64) -> u64 {
        let before = self.read_bytes;
        self.read_bytes = before.saturating_add(bytes);
        before
    }

    /// How often chunks were looked up.
    #[cfg(test)]
    pub fn looks(&self) -> u64 {
        self.clock
    }

    /// Carries out a committed edit of chunk `index`, which is in memory.
    pub fn apply(&mut self, index: u64, edit: &Edit) {
        self.read_bytes = 0;
        let chunk = self.chunks.get_mut(&index).expect("an edit is made from the chunk");
        for (start, slot) in &edit.slots {
            let old = match slot {
                Some(extent) => {
                    self.cost += cost_of(extent);
                    chunk.extents.insert(*start, extent.clone())
                }
                None => chunk.extents.remove(start),
            };
            self.cost -= old.as_ref().map_or(0, cost_of);
        }
    }

    /// Forgets everything; nothing is left of the object.
    pub fn clear(&mut self) {
        *self = Object::default();
    }

    /// Drops the chunks that were not used for longest, if there are many.
    pub fn shrink(&mut self) {
        if self.chunks.len() <= OBJECT_CHUNKS_MAX {
            return;
        }
        let mut by_use: Vec<(u64, u64)> = self.chunks.iter().map(|(index, c)| (c.used, *index)).collect();
        by_use.sort_unstable();
        by_use.truncate(self.chunks.len() - OBJECT_CHUNKS_MAX / 2);
        for (_, index) in by_use {
            if let Some(chunk) = self.chunks.remove(&index) {
                self.cost -= CHUNK_COST + chunk.extents.values().map(cost_of).sum::<usize>();
            }
        }
    }

    /// The first extent at or behind `from` and before `until`.
    pub fn next_extent(
        store: &Store,
        id: ObjectId,
        from: u64,
        until: u64,
    ) -> Result<Option<u64>, StoreError> {
        let found = store.scan(&keys::extent_key(id, from), &keys::extent_key(id, until), 1)?;
        let Some((key, _)) = found.first() else { return Ok(None) };
        keys::parse_extent_key(key).map(|(_, start)| Some(start)).ok_or_else(|| corrupt(id, "a key"))
    }
}

fn cost_of(extent: &super::extent::Extent) -> usize {
    EXTENT_COST + extent.sums.len()
}

fn load_chunk(store: &Store, id: ObjectId, index: u64) -> Result<Extents, StoreError> {
    let first = index * CHUNK_BYTES;
    let until = keys::extent_key(id, chunk_end(first));
    let mut extents = Extents::new();
    let mut from = keys::extent_key(id, first);
    loop {
        let page = store.scan(&from, &until, SCAN_COUNT)?;
        for (key, value) in &page {
            let start = keys::parse_extent_key(key).ok_or_else(|| corrupt(id, "a key"))?.1;
            let extent =
                super::extent::Extent::decode(&value.bytes).ok_or_else(|| corrupt(id, "an extent"))?;
            extents.insert(start, extent);
        }
        match page.last() {
            Some((last, _)) if page.len() == SCAN_COUNT => from = keys::after(last),
            _ => return Ok(extents),
        }
    }
}

/// The changes of the store that `edit` of an object comes to.
pub fn changes_of(id: ObjectId, edit: &Edit, changes: &mut Vec<Change>) {
    for (start, slot) in &edit.slots {
        changes.push(Change {
            key: keys::extent_key(id, *start),
            value: slot.as_ref().map(super::extent::Extent::encode),
        });
    }
}
