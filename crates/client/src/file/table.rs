//! The files and handles of a client.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use proto::{Attr, Fid};

use super::state::FileState;
use crate::{Caller, Error, Handle, OpenFlags, Result};

const SHARDS: usize = 16;

struct Held {
    state: Arc<FileState>,
    users: usize,
}

/// Every file with state on this client.
pub(crate) struct Files {
    shards: [Mutex<BTreeMap<Fid, Held>>; SHARDS],
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
        let mut shard = self.files.shard(self.state.fid).lock();
        let Some(held) = shard.get_mut(&self.state.fid) else { return };
        held.users -= 1;
        if held.users == 0 {
            shard.remove(&self.state.fid);
        }
    }
}

impl Files {
    pub(crate) fn new() -> Arc<Files> {
        Arc::new(Files { shards: std::array::from_fn(|_| Mutex::new(BTreeMap::new())) })
    }

    fn shard(&self, fid: Fid) -> &Mutex<BTreeMap<Fid, Held>> {
        &self.shards[(fid.seq ^ u64::from(fid.oid)) as usize % SHARDS]
    }

    /// The file's state, made by `make` if there is none.
    pub(crate) fn get(self: &Arc<Self>, fid: Fid, make: impl FnOnce() -> FileState) -> FileRef {
        let mut shard = self.shard(fid).lock();
        let held = shard.entry(fid).or_insert_with(|| Held { state: Arc::new(make()), users: 0 });
        held.users += 1;
        FileRef { state: held.state.clone(), files: self.clone() }
    }

    /// The file's state, if there is one.
    pub(crate) fn find(self: &Arc<Self>, fid: Fid) -> Option<FileRef> {
        let mut shard = self.shard(fid).lock();
        let held = shard.get_mut(&fid)?;
        held.users += 1;
        Some(FileRef { state: held.state.clone(), files: self.clone() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }
}

/// An open file or directory.
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    /// The MDT's name for it.
    pub(crate) mdt_handle: u64,
    pub(crate) flags: OpenFlags,
    /// For regular files.
    pub(crate) file: Option<FileRef>,
    /// Attributes as they were at open: for access times and privilege bits.
    pub(crate) attr: Attr,
    /// Whether there were extended attributes at open: one may hold capabilities.
    pub(crate) xattrs: bool,
    /// Whoever opened it.
    pub(crate) opener: Caller,
    pub(crate) read: AtomicBool,
    pub(crate) wrote: AtomicBool,
    /// Number of the last failure of the file that this handle has reported.
    pub(crate) failure_seen: AtomicU64,
}

impl OpenFile {
    /// The state of a regular file.
    pub(crate) fn file(&self) -> Result<&FileRef> {
        self.file.as_ref().ok_or(Error::BadHandle)
    }

    /// The state of a regular file that is open for writing.
    pub(crate) fn writable(&self) -> Result<&FileRef> {
        if self.flags.write { self.file() } else { Err(Error::BadHandle) }
    }

    /// The state of a regular file that is open for reading.
    pub(crate) fn readable(&self) -> Result<&FileRef> {
        if self.flags.read || self.flags.execute { self.file() } else { Err(Error::BadHandle) }
    }
}

/// Every open file and directory of this client.
pub(crate) struct Handles {
    next: AtomicU64,
    shards: [Mutex<BTreeMap<u64, Arc<OpenFile>>>; SHARDS],
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles { next: AtomicU64::new(1), shards: std::array::from_fn(|_| Mutex::new(BTreeMap::new())) }
    }

    fn shard(&self, handle: u64) -> &Mutex<BTreeMap<u64, Arc<OpenFile>>> {
        &self.shards[handle as usize % SHARDS]
    }

    pub(crate) fn put(&self, open: OpenFile) -> Handle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(number).lock().insert(number, Arc::new(open));
        Handle(number)
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.shard(handle.0).lock().get(&handle.0).cloned().ok_or(Error::BadHandle)
    }

    pub(crate) fn take(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.shard(handle.0).lock().remove(&handle.0)
    }

    /// Whether none is open now.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Every handle that is open now.
    pub(crate) fn all(&self) -> Vec<Handle> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().keys().copied().map(Handle).collect::<Vec<_>>())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Memory;
    use crate::io::cache::Cache;

    #[test]
    fn a_file_lives_as_long_as_its_users() {
        let files = Files::new();
        let fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
        let make = || FileState::new(fid, Cache::new(Memory::new(1 << 20, 1 << 30), 1 << 20));
        assert!(files.find(fid).is_none());
        let first = files.get(fid, make);
        let second = files.find(fid).expect("the file has a user");
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert!(!files.is_empty());
        drop(second);
        assert!(files.is_empty());
    }
}
