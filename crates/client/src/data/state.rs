//! What this client knows of a file that it has open, or whose data it has not got rid of yet.
//!
//! What the MDT lets a client keep of other files is [`crate::cache`]'s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::wire::messages::Entry;
use proto::{Attr, Code, DataTarget, Fid, FileOwner, Layout, Timestamp, Transno};
use rt::sync::{Notify, Semaphore};

use super::end::End;
use super::own::Own;
use super::past::Past;
use super::readahead::Ahead;
use crate::data::Sum;
use crate::data::cache::Cache;
use crate::order::{FILE, Mutex};
use crate::{Error, OpenFlags, Result};

/// Permits of [`FileState::order`]: a write takes one, what has to be alone takes all.
const ORDER_ALL: u32 = 1 << 16;

/// A file of this client.
pub(crate) struct FileState {
    pub(crate) fid: Fid,
    pub(crate) inner: Mutex<FILE, Inner>,
    /// Told whenever an OST has answered.
    pub(crate) answered: Notify,
    /// Held from the question for the size until the MDT has answered.
    pub(crate) telling: Semaphore,
    /// Told whenever something that was fetched ahead has come, or will not.
    pub(super) arrived: Notify,
    /// Told whenever a write past the kernel's pages is over.
    pub(super) passed: Notify,
    order: Semaphore,
    /// How often locks of the file (flock, fcntl) were lost that somebody here wrote under.
    fences: AtomicU64,
}

/// The part that changes.
pub(crate) struct Inner {
    pub(crate) layout: Option<Arc<Layout>>,
    /// Whose it is, as a server told last.
    pub(crate) owner: FileOwner,
    pub(crate) cache: Cache,
    /// Whether the client's table of dirty files has this one.
    pub(crate) listed: bool,
    /// Handles of this client that are open for writing.
    pub(crate) writers: u32,
    /// Those of them that are open for reading too: through them pages can be mapped and changed unseen.
    pub(crate) mapped_writers: u32,
    /// Handles of any kind that are open.
    pub(crate) handles: u32,
    /// Truncates that applications wait for.
    pub(crate) cuts: u32,
    /// Whether this client changed data and has not told the MDT the size since.
    pub(crate) untold: bool,
    /// Whether the last link is gone: nobody asks for its size any more.
    pub(crate) gone: bool,
    /// Nobody but this client can know of the file.
    pub(crate) is_unknown: bool,
    /// Writes wait for the OST's answer: an OST was full the last time.
    pub(crate) write_through: bool,
    /// Newest change of this client by target, for those that may not be durable yet.
    pub(crate) changes: BTreeMap<DataTarget, Transno>,
    /// The change of the MDT that cleared the size of a file that had one, if it may not be durable yet.
    pub(crate) reopened: Transno,
    /// Where it ends.
    pub(crate) end: End,
    /// What the objects say, as long as nobody else changes them.
    pub(crate) own: Own,
    /// Writes past the kernel's pages.
    pub(super) past: Past,
    /// What is ahead of readers.
    pub(crate) ahead: Ahead,
    /// Last failure of a write that nobody waited for, and its number.
    error: (u64, Option<Error>),
}

/// What the cache adds to the attributes that servers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// File offset behind the last byte.
    pub(crate) end: u64,
    /// How many.
    pub(crate) bytes: u64,
    /// Time of the newest write.
    pub(crate) time: Timestamp,
}

impl FileState {
    pub(crate) fn new(fid: Fid, cache: Cache) -> FileState {
        FileState {
            fences: AtomicU64::new(0),
            fid,
            inner: Mutex::new(Inner {
                layout: None,
                owner: FileOwner::default(),
                cache,
                listed: false,
                writers: 0,
                mapped_writers: 0,
                handles: 0,
                cuts: 0,
                untold: false,
                gone: false,
                is_unknown: false,
                write_through: false,
                changes: BTreeMap::new(),
                reopened: Transno(0),
                end: End::default(),
                own: Own::default(),
                past: Past::default(),
                ahead: Ahead::default(),
                error: (0, None),
            }),
            answered: Notify::new(),
            telling: Semaphore::new(1),
            arrived: Notify::new(),
            passed: Notify::new(),
            order: Semaphore::new(ORDER_ALL as usize),
        }
    }

    /// Right to write: many at a time, none while a truncate or an append is under way.
    pub(crate) async fn shared(&self) -> Result<impl Sized + '_> {
        self.order.acquire().await.map_err(|_| Error::Closed)
    }

    /// The same, if there is nothing to wait for.
    pub(crate) fn shared_at_once(&self) -> Option<impl Sized + '_> {
        self.order.try_acquire().ok()
    }

    /// Right to truncate or append.
    pub(crate) async fn alone(&self) -> Result<impl Sized + '_> {
        self.order.acquire_many(ORDER_ALL).await.map_err(|_| Error::Closed)
    }

    /// The same, if there is nothing to wait for.
    pub(crate) fn alone_at_once(&self) -> Option<impl Sized + '_> {
        self.order.try_acquire_many(ORDER_ALL).ok()
    }

    /// Where the data lies. A file without a layout has no place for data, and one of a newer version is left alone.
    pub(crate) fn layout(&self) -> Result<Arc<Layout>> {
        let layout = self.inner.lock().layout.clone().ok_or(Error::Refused(Code::Io))?;
        if layout.is_usable() { Ok(layout) } else { Err(Error::Refused(Code::NotSupported)) }
    }

    /// Takes over the layout that a server told, unless it is older. Data that was not sent yet goes to the objects that it was
    /// written for: whoever moves a file has all of it sent first.
    pub(crate) fn set_layout(&self, layout: Option<Layout>) {
        let mut inner = self.inner.lock();
        let Some(layout) = layout else { return };
        let newer = inner.layout.as_ref().is_none_or(|known| layout.generation > known.generation);
        if newer {
            if inner.layout.is_some() {
                inner.own.forget();
            }
            inner.layout = Some(Arc::new(layout));
        }
    }

    /// How often locks of the file were lost.
    pub(crate) fn fences(&self) -> u64 {
        self.fences.load(Ordering::Acquire)
    }

    /// A lock of the file is lost: nobody writes any more who did so under it.
    pub(crate) fn fence(&self) {
        self.fences.fetch_add(1, Ordering::AcqRel);
    }

    /// Asked once the range to be written is held: whoever waited for that may have lost the file's lock meanwhile, and another client may
    /// have it.
    pub(crate) fn check_fence(&self, fences: Option<u64>) -> Result<()> {
        match fences {
            Some(fences) if fences != self.fences() => Err(Error::Refused(Code::Evicted)),
            _ => Ok(()),
        }
    }

    /// Takes over whose file it is, unless something newer is known. What this client tells ahead of the MDT has no version yet, and is newer
    /// than all that it knows.
    pub(crate) fn set_owner(&self, attr: &Attr) {
        let mut inner = self.inner.lock();
        let (known, told) = (inner.owner, FileOwner::of(attr));
        inner.owner = match told.version {
            0 => FileOwner { version: known.version, ..told },
            _ => known.newer(told),
        };
    }

    /// The MDT has done what this client told ahead of it: that is of this version. Nothing was sent in between.
    pub(crate) fn owner_is_of(&self, version: u64) {
        let mut inner = self.inner.lock();
        inner.owner.version = inner.owner.version.max(version);
    }

    /// Takes over what the MDT says of the file's data: where it lies, and whose it is.
    pub(crate) fn set_entry(&self, entry: Entry) {
        self.set_owner(&entry.attr);
        self.set_layout(entry.layout);
    }

    /// Whose file it is. The OSTs know better if somebody has changed it since.
    pub(crate) fn owner(&self) -> FileOwner {
        self.inner.lock().owner
    }

    /// What the servers cannot know yet.
    pub(crate) fn unsent(&self) -> Option<Unsent> {
        self.inner.lock().unsent()
    }

    /// What its objects say, if nobody but this client has changed them, and what they cannot know yet.
    pub(crate) fn own(&self, layout: &Layout) -> Option<(Sum, Option<Unsent>)> {
        let inner = self.inner.lock();
        let objects = inner.own.of(layout)?;
        Some((Sum::of(layout, &objects), inner.unsent()))
    }

    /// Whether data of this client may be lost while its name is not: not answered, or not known to be durable on an OST.
    pub(crate) fn is_fresh(&self) -> bool {
        let inner = self.inner.lock();
        !inner.cache.is_empty() || inner.has_changes_on_osts()
    }

    /// Number of the last failure; a handle that is opened now has seen it.
    pub(crate) fn failures(&self) -> u64 {
        self.inner.lock().error.0
    }

    /// The last handle ends through which the file could be written, and this client has made the file and never wrote to it: whether that is so,
    /// and then it is done.
    pub(crate) fn ends_untouched(&self, flags: OpenFlags) -> bool {
        let mut inner = self.inner.lock();
        let untouched = inner.writers == 1 && inner.end.is_untouched() && !inner.untold && !inner.gone;
        if untouched {
            inner.writers = 0;
            inner.mapped_writers -= u32::from(flags.read);
        }
        untouched
    }

    /// The failure that a handle has not reported yet; `seen` is the handle's mark.
    pub(crate) fn take_failure(&self, seen: &AtomicU64) -> Result<()> {
        let (number, error) = self.inner.lock().error;
        match error {
            Some(error) if seen.fetch_max(number, Ordering::Relaxed) < number => Err(error),
            _ => Ok(()),
        }
    }

    /// The same, but only what the next write has to report: an OST that is full.
    pub(crate) fn take_full(&self, seen: &AtomicU64) -> Result<()> {
        match self.inner.lock().error.1 {
            Some(Error::Refused(Code::NoSpace | Code::Quota)) => {}
            _ => return Ok(()),
        }
        self.take_failure(seen)
    }
}

impl Inner {
    /// Whether nobody can look at it any more: it has no name, no handle, and nobody else knows of it.
    pub(super) fn is_out_of_sight(&self) -> bool {
        self.gone && self.is_unknown && self.handles == 0
    }

    fn unsent(&self) -> Option<Unsent> {
        let (layout, time) = (self.layout.as_ref()?, self.cache.newest_time()?);
        Some(Unsent { end: self.cache.file_end(layout), bytes: self.cache.bytes(), time })
    }

    /// Keeps a failure for those who ask later.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error = (self.error.0 + 1, Some(error));
        self.end.forget();
        self.own.forget();
        if matches!(error, Error::Refused(Code::NoSpace | Code::Quota)) {
            self.write_through = true;
        }
    }

    /// Whether an OST has changes that are not known to be durable. Those of the MDT are in one log with the names.
    pub(crate) fn has_changes_on_osts(&self) -> bool {
        self.changes.keys().any(|target| target.ost().is_some())
    }

    /// The MDT was told of the file's end behind what it has of the file's data: whoever makes the file durable asks for that.
    pub(crate) fn told(&mut self, told: Transno) {
        self.changes.retain(|target, transno| target.ost().is_some() || *transno > told);
    }

    /// Notes a change that `target` numbered.
    pub(crate) fn note(&mut self, target: DataTarget, transno: Transno) {
        if transno != Transno(0) {
            let newest = self.changes.entry(target).or_default();
            *newest = transno.max(*newest);
        }
    }
}
