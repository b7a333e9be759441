//! Objects of an OST, or of an MDT: byte ranges that lie as extents in large preallocated files. Format: `docs/disk.md#objects`.
//!
//! Data never goes where committed data is: a write takes new blocks, and the commit of its extents switches.
//! Data is written before any lock is taken; the change itself is one synchronous step under the layout's lock,
//! so the order of two writes is the order of their commits. Freed blocks are used again only after the commit
//! that freed them is durable and every read that began before it is over.
//!
//! - [`write`], [`read`], [`seek`], [`punch`], [`allocate`], [`owners`], [`destroy`]: the operations; [`trim`] takes away what they leave; [`compact`] merges small
//!   extents;
//! - [`cache`]: what is in memory, and the locks; [`tomb`]: what was destroyed; [`seal`]: what nobody
//!   may use for the time being;
//! - [`files`]: the data files, and the task that makes them ahead of need; [`placed`]: data that lies there, and that nothing refers to yet; [`space`]: which blocks are free;
//! - [`page_cache`]: what the machine's memory keeps of them;
//! - [`extent`], [`block`], [`keys`]: the pure parts; [`logged`]: small data that the log carries;
//! - [`summary`]: what an open has to know of all of them; [`sweep`]: what former boots left allocated;
//! - [`check`]: whether all of it fits together; [`inspect`]: whether the data of a target that is in use is as it was written.

mod allocate;
mod block;
mod cache;
pub mod check;
mod compact;
mod destroy;
mod extent;
mod files;
mod handles;
pub mod inspect;
pub(crate) mod keys;
pub(crate) mod logged;
mod owners;
mod page_cache;
mod parts;
mod placed;
mod plan;
mod punch;
mod read;
mod seal;
mod seek;
mod space;
pub(crate) mod summary;
mod supply;
mod sweep;
mod taker;
#[cfg(test)]
mod tests;
mod tomb;
mod trim;
mod write;

use std::sync::Arc;

use proto::wire::messages::{ObjectAttr, Space};
use proto::{Fid, ObjectId, Timestamp};
use rt::Rt;

use crate::error::StoreError;
use crate::target::{Author, Batch, Change, Store};
use cache::{Cache, State};
use extent::BLOCK;
#[cfg(test)]
pub(crate) use extent::FileId;
pub(crate) use extent::Run;
use files::Files;
pub use keys::By;
pub use page_cache::{PageCache, Via};
use read::Reader;
pub use seal::Sealing;
use seal::Seals;
pub use seek::Seek;
pub use summary::{BLOCK_OWNERS, OBJECTS};
use supply::Ready;
use tomb::Tombs;
use trim::Unfinished;

/// Extents are kept in memory by chunks of this many bytes of an object; none crosses a border between chunks.
const CHUNK_BYTES: u64 = 16 << 20;
/// The part of a target's share of the process's memory that is for objects that are not in use.
const CACHE_PART: u64 = 16;

/// Limits that tests make smaller.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Changed keys after which what lies behind an object's end goes in a further commit.
    tail_changes_max: usize,
    /// Changed keys after which a hole is cut in a further commit.
    hole_changes_max: usize,
    /// Holes that are filled by one commit when space is reserved.
    reserved_max: usize,
    /// Small extents that may follow a small neighbour within a window before they are merged.
    neighbours_max: usize,
    /// Memory for extents that are not in use, about, in bytes.
    cache_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            tail_changes_max: 2048,
            hole_changes_max: 2048,
            reserved_max: 1024,
            neighbours_max: 64,
            cache_bytes_max: 64 << 20,
        }
    }
}

/// First byte behind the chunk of byte `offset`.
fn chunk_end(offset: u64) -> u64 {
    (offset / CHUNK_BYTES + 1) * CHUNK_BYTES
}

/// The objects of one target.
pub struct Objects {
    store: Arc<Store>,
    files: Arc<Files>,
    cache: Cache,
    tombs: Tombs,
    seals: Seals,
    limits: Limits,
    reader: Reader,
    unfinished: Unfinished,
}

/// What comes with a change of an object.
#[derive(Default)]
pub struct Extra {
    /// Whom it is made for: none of its steps is committed once that is over.
    pub author: Option<Arc<Author>>,
    /// Keys that go into the same batch (reply slots), made once its result is known.
    pub keys: Option<Keys>,
}

/// See [`Extra::keys`].
pub type Keys = Box<dyn FnOnce(&ObjectAttr) -> Vec<Change> + Send>;

impl Extra {
    /// Puts it into the batch of a change with this result.
    fn put(self, attr: &ObjectAttr, batch: &mut Batch) {
        batch.author = self.author;
        batch.changes.extend(self.keys.into_iter().flat_map(|keys| keys(attr)));
    }
}

impl Objects {
    /// Opens the objects of `store`, of which many will be written: space is made ready at once. It reads a key for each data file and lists their names; what it reads of objects does not depend
    /// on their number. What former boots left allocated is looked for afterwards, in the background.
    pub async fn open(rt: &Rt, store: Arc<Store>) -> Result<Arc<Objects>, StoreError> {
        Objects::open_with(rt, store, Limits::default(), Ready::AtOnce).await
    }

    /// The same of a target that may never have any: space is made ready with the first write.
    pub async fn open_few(rt: &Rt, store: Arc<Store>) -> Result<Arc<Objects>, StoreError> {
        Objects::open_with(rt, store, Limits::default(), Ready::WithTheFirstWrite).await
    }

    async fn open_with(
        rt: &Rt,
        store: Arc<Store>,
        limits: Limits,
        ready: Ready,
    ) -> Result<Arc<Objects>, StoreError> {
        let files = Arc::new(Files::open(rt, &store, ready).await?);
        let summarized = store.clone();
        let mut found = rt.offload(move || summary::load(&summarized)).await?;
        for id in files.list().await? {
            files.adopt(id, found.used.remove(&id).unwrap_or(0));
        }
        for file in found.used.keys() {
            tracing::error!(%file, "a data file is missing: reads of what it held will fail");
        }
        files.start();
        rt.spawn(sweep::sweep(rt.clone(), store.clone(), files.clone()));
        let seals = Seals::load(&store)?;
        let objects = Arc::new(Objects {
            store,
            reader: Reader::new(files.clone()),
            files,
            cache: Cache::new(limits.cache_bytes_max),
            tombs: Tombs::default(),
            seals,
            limits,
            unfinished: Unfinished::new(found.unfinished),
        });
        Ok(objects)
    }

    /// Size 0 and times 0 for an object that is not there; `Gone` for one that was destroyed.
    pub fn attr(&self, id: ObjectId) -> Result<ObjectAttr, StoreError> {
        self.with(id.layout, |state| {
            refuse_dead(state)?;
            Ok(state.object(&self.store, id)?.record().attr())
        })
    }

    /// What the page cache keeps of objects.
    pub fn page_cache(&self) -> &PageCache {
        self.files.page_cache()
    }

    /// Space: what the disk has free and what is free in data files that exist.
    pub async fn space(&self) -> Result<Space, StoreError> {
        let disk = self.files.disk_space().await?;
        let free = self.files.free_bytes();
        let objects = self.store.sum(&OBJECTS.key())?;
        let files_free = (disk.available + free) / BLOCK;
        Ok(Space {
            bytes_total: disk.total,
            bytes_free: (disk.free + free).min(disk.total),
            bytes_available: (disk.available + free).min(disk.total),
            files_total: files_free + objects,
            files_free,
            state: 0,
            disk: disk.identity,
            bytes_own: free,
        })
    }

    /// Makes everything durable and ends the background work. The store stays open.
    pub async fn close(&self) -> Result<(), StoreError> {
        let result = self.store.committed(self.store.last_transno()).await;
        self.files.close().await;
        result
    }

    /// Runs `step` under the lock of `layout`, knowing whether it is dead.
    fn with<T>(
        &self,
        layout: Fid,
        step: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let shared = self.cache.layout(layout);
        self.cache.set_bytes_max(self.cache_bytes_max());
        let (result, cost) = {
            let mut state = shared.state.lock();
            let result = self.look(&mut state, layout).and_then(|()| step(&mut state));
            (result, state.cost())
        };
        self.cache.account(layout, &shared, cost);
        result
    }

    /// What may be kept of objects that are not in use, in bytes: a part of the target's share of the process's memory.
    fn cache_bytes_max(&self) -> usize {
        let share = usize::try_from(self.store.shared.view.share_bytes() / CACHE_PART).unwrap_or(usize::MAX);
        self.limits.cache_bytes_max.min(share)
    }

    /// Learns whether `layout` is dead.
    fn look(&self, state: &mut State, layout: Fid) -> Result<(), StoreError> {
        if state.dead.is_none() {
            state.dead = Some(self.tombs.is_dead(&self.store, layout)?);
        }
        Ok(())
    }
}

/// What is told of an object that is not there.
fn nothing() -> ObjectAttr {
    ObjectAttr { size: 0, blocks: 0, mtime: Timestamp::default(), ctime: Timestamp::default() }
}

/// Refuses what comes for destroyed objects.
fn refuse_dead(state: &State) -> Result<(), StoreError> {
    if state.dead == Some(true) { Err(StoreError::Gone) } else { Ok(()) }
}
