//! Every file with state on a client.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use proto::{Fid, Shards};

use super::cache::Cache;
use super::memory::Memory;
use super::state::FileState;
use crate::order::{FILES, Mutex};

const SHARDS: usize = 16;

struct Held {
    state: Arc<FileState>,
    users: usize,
}

/// Every file with state on this client.
pub(crate) struct Files {
    shards: Shards<Mutex<FILES, BTreeMap<Fid, Held>>, SHARDS>,
    /// What their caches are made of.
    pub(crate) memory: Memory,
    /// Bytes of a chunk of the write-behind cache, which are the most of one write request.
    pub(crate) chunk_bytes: u64,
}

/// Keeps a file's state; the last one to go takes it along.
pub(crate) struct FileRef {
    state: Arc<FileState>,
    files: Arc<Files>,
}

impl Deref for FileRef {
    type Target = Arc<FileState>;
    fn deref(&self) -> &Arc<FileState> {
        &self.state
    }
}

impl Drop for FileRef {
    fn drop(&mut self) {
        let mut shard = self.files.shards.of(&self.state.fid).lock();
        let Some(held) = shard.get_mut(&self.state.fid) else { return };
        held.users -= 1;
        if held.users == 0 {
            shard.remove(&self.state.fid);
        }
    }
}

impl Files {
    /// Chunks of `chunk_bytes` are taken from `memory`.
    pub(crate) fn new(memory: Memory, chunk_bytes: u64) -> Arc<Files> {
        Arc::new(Files { shards: Shards::default(), memory, chunk_bytes })
    }

    /// The file's state, made if there is none.
    pub(crate) fn get(self: &Arc<Self>, fid: Fid) -> FileRef {
        let make = || FileState::new(fid, Cache::new(self.memory.clone(), self.chunk_bytes));
        let mut shard = self.shards.of(&fid).lock();
        let held = shard.entry(fid).or_insert_with(|| Held { state: Arc::new(make()), users: 0 });
        held.users += 1;
        FileRef { state: held.state.clone(), files: self.clone() }
    }

    /// The file's state, if there is one.
    pub(crate) fn find(self: &Arc<Self>, fid: Fid) -> Option<FileRef> {
        let mut shard = self.shards.of(&fid).lock();
        let held = shard.get_mut(&fid)?;
        held.users += 1;
        Some(FileRef { state: held.state.clone(), files: self.clone() })
    }

    /// Whether this client has data of the file that the servers may not know.
    pub(crate) fn is_being_written(self: &Arc<Self>, fid: Fid) -> bool {
        self.find(fid).is_some_and(|file| {
            let inner = file.inner.lock();
            inner.writers > 0 || inner.untold || !inner.cache.is_empty()
        })
    }

    /// Whether this client has made the file, has it open since, and has not changed its data.
    pub(crate) fn is_untouched(self: &Arc<Self>, fid: Fid) -> bool {
        self.find(fid).is_some_and(|file| file.inner.lock().end.is_untouched())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lives_as_long_as_its_users() {
        let files = Files::new(Memory::of_test(1 << 20), 1 << 20);
        let fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
        assert!(files.find(fid).is_none());
        let first = files.get(fid);
        let second = files.find(fid).expect("the file has a user");
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert!(!files.is_empty());
        drop(second);
        assert!(files.is_empty());
    }
}
