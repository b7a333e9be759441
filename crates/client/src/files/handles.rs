//! The open files and directories of a client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proto::{Attr, Fid, JobId, Shards, Timestamp};

use crate::data::{Call, FileRef, Span};
use crate::names::Through;
use crate::order::{HANDLES, Mutex};
use crate::{Caller, Error, Handle, OpenFlags, Result};

const SHARDS: usize = 16;

/// An open file or directory.
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    /// The MDT's name for it.
    pub(crate) mdt_handle: AtomicU64,
    /// How often the MDT has closed it with a session, and of that, how often until it was opened last.
    pub(crate) losses: AtomicU64,
    pub(crate) opened: AtomicU64,
    /// Its handle has ended.
    pub(crate) closed: AtomicBool,
    /// How often locks of the file had been lost when it was opened ([`crate::data::FileState::check_fence`]).
    pub(crate) fences: u64,
    pub(crate) flags: OpenFlags,
    /// For regular files.
    pub(crate) file: Option<FileRef>,
    /// Attributes as they were at open: for access times and privilege bits.
    pub(crate) attr: Attr,
    /// Whether there were extended attributes at open: one may hold capabilities.
    pub(crate) xattrs: bool,
    /// Whoever opened it.
    pub(crate) opener: Caller,
    /// The job for which it was opened.
    pub(crate) job: JobId,
    pub(crate) read: AtomicBool,
    pub(crate) wrote: AtomicBool,
    /// Number of the last failure of the file that this handle has reported.
    pub(crate) failure_seen: AtomicU64,
}

impl OpenFile {
    /// Whether the MDT takes it for closed.
    pub(crate) fn is_lost(&self) -> bool {
        self.losses.load(Ordering::Acquire) != self.opened.load(Ordering::Acquire)
    }

    /// For a change of attributes through this.
    pub(crate) fn through(&self) -> Through {
        Through { handle: self.mdt_handle(), fences: self.fences }
    }

    /// A call through this that writes.
    pub(crate) fn call(&self, time: Timestamp) -> Call {
        Call { time, sync: false, fences: Some(self.fences) }
    }

    /// A lock of the file is lost since it was opened: nothing is written through it any more.
    pub(crate) fn is_fenced(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.fences() != self.fences)
    }

    /// The MDT's name for it.
    pub(crate) fn mdt_handle(&self) -> u64 {
        self.mdt_handle.load(Ordering::Acquire)
    }

    /// The state of a regular file.
    pub(crate) fn file(&self) -> Result<&FileRef> {
        self.file.as_ref().ok_or(Error::BadHandle)
    }

    /// The state of a regular file that is open for writing.
    pub(crate) fn writable(&self) -> Result<&FileRef> {
        if self.flags.write { self.file() } else { Err(Error::BadHandle) }
    }

    /// Where a write through it goes.
    pub(crate) fn span(&self, offset: u64, len: usize) -> Span {
        Span { offset: (!self.flags.append).then_some(offset), len: len as u64 }
    }

    /// Whether quotas limit what is written: root has none.
    pub(crate) fn is_limited(&self) -> bool {
        self.opener.uid != 0
    }

    /// The state of a regular file that is open for reading.
    pub(crate) fn readable(&self) -> Result<&FileRef> {
        if self.flags.read || self.flags.execute { self.file() } else { Err(Error::BadHandle) }
    }
}

/// Every open file and directory of this client.
pub(crate) struct Handles {
    next: AtomicU64,
    shards: Shards<Mutex<HANDLES, BTreeMap<u64, Arc<OpenFile>>>, SHARDS>,
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles { next: AtomicU64::new(1), shards: Shards::default() }
    }

    pub(crate) fn put(&self, open: OpenFile) -> Handle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shards.of(&number).lock().insert(number, Arc::new(open));
        Handle(number)
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.shards.of(&handle.0).lock().get(&handle.0).cloned().ok_or(Error::BadHandle)
    }

    pub(crate) fn take(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.shards.of(&handle.0).lock().remove(&handle.0)
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

    /// The same, as they are.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = Arc<OpenFile>> {
        self.shards.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>())
    }
}
