//! What is open on a mount: needed where the kernel's handle alone does not say what a write means.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use proto::{Fid, Shards};

use crate::{Handle, OpenFlags};

/// Number of tables over which handles are spread so that writers on different cores do not share a lock.
const SHARDS: usize = 16;

/// One open file.
pub struct OpenFile {
    /// The file.
    pub fid: Fid,
    /// Whether it is open for writing.
    pub write: bool,
    /// Whether the client writes at the end, whatever the offset.
    pub append: bool,
    /// Whether each write is durable before it returns.
    pub sync: bool,
    /// Whether it had privilege bits when it was opened, or a chmod of this mount has set them since: until they are taken away.
    privileged: AtomicBool,
}

impl OpenFile {
    /// A file that was just opened.
    pub fn new(fid: Fid, flags: OpenFlags, privileged: bool) -> OpenFile {
        let OpenFlags { write, append, sync, .. } = flags;
        OpenFile { fid, write, append, sync, privileged: AtomicBool::new(privileged) }
    }

    /// Whether a write still has to look at the privilege bits.
    pub fn may_be_privileged(&self) -> bool {
        self.privileged.load(Ordering::Relaxed)
    }

    /// The privilege bits are off.
    pub fn privileges_are_off(&self) {
        self.privileged.store(false, Ordering::Relaxed);
    }
}

/// All open files of one inode.
#[derive(Default)]
struct Inode {
    files: BTreeMap<u64, Arc<OpenFile>>,
    /// Opened by the file system itself for writes that none of `files` can take.
    spare: Option<Handle>,
}

/// All open files of a mount.
#[derive(Default)]
pub struct Opens {
    by_handle: Shards<RwLock<HashMap<u64, Arc<OpenFile>>>, SHARDS>,
    by_fid: Mutex<HashMap<Fid, Inode>>,
}

impl Opens {
    /// Remembers an open file.
    pub fn insert(&self, handle: Handle, file: OpenFile) {
        let file = Arc::new(file);
        self.by_handle.of(&handle.0).write().insert(handle.0, file.clone());
        self.by_fid.lock().entry(file.fid).or_default().files.insert(handle.0, file);
    }

    /// The open file that `handle` names.
    pub fn get(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.by_handle.of(&handle.0).read().get(&handle.0).cloned()
    }

    /// Forgets an open file. Gives the spare handle of its inode if that is not needed any more; the caller
    /// releases it.
    pub fn remove(&self, handle: Handle) -> Option<Handle> {
        let file = self.by_handle.of(&handle.0).write().remove(&handle.0)?;
        let mut by_fid = self.by_fid.lock();
        let inode = by_fid.get_mut(&file.fid)?;
        inode.files.remove(&handle.0);
        if !inode.files.is_empty() {
            return None;
        }
        by_fid.remove(&file.fid).and_then(|inode| inode.spare)
    }

    /// A handle of the inode that writes where it is told to.
    pub fn positional_writer(&self, fid: Fid) -> Option<Handle> {
        let by_fid = self.by_fid.lock();
        let inode = by_fid.get(&fid)?;
        let opened = inode.files.iter().find(|(_, file)| file.write && !file.append);
        opened.map(|(handle, _)| Handle(*handle)).or(inode.spare)
    }

    /// Keeps `handle` for writes that no open file of the inode can take. Gives it back if it cannot be kept: there
    /// is one already, or the inode is not open any more.
    pub fn keep_spare(&self, fid: Fid, handle: Handle) -> Option<Handle> {
        match self.by_fid.lock().get_mut(&fid) {
            Some(inode) if inode.spare.is_none() => {
                inode.spare = Some(handle);
                None
            }
            _ => Some(handle),
        }
    }

    /// Privilege bits of the inode were set: writers have to look at them.
    pub fn privileges_are_on(&self, fid: Fid) {
        if let Some(inode) = self.by_fid.lock().get(&fid) {
            for file in inode.files.values() {
                file.privileged.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    fn opened(write: bool, append: bool) -> OpenFile {
        OpenFile::new(FID, OpenFlags { write, append, ..OpenFlags::default() }, false)
    }

    #[test]
    fn a_positional_writer_is_never_an_appender() {
        let opens = Opens::default();
        opens.insert(Handle(1), opened(false, false));
        opens.insert(Handle(2), opened(true, true));
        assert_eq!(opens.positional_writer(FID), None);
        assert_eq!(opens.keep_spare(FID, Handle(9)), None);
        assert_eq!(opens.positional_writer(FID), Some(Handle(9)));
        assert_eq!(opens.keep_spare(FID, Handle(10)), Some(Handle(10)), "one spare is enough");
        opens.insert(Handle(3), opened(true, false));
        assert_eq!(opens.positional_writer(FID), Some(Handle(3)));
        assert_eq!(opens.remove(Handle(3)), None);
        assert_eq!(opens.remove(Handle(2)), None);
        assert_eq!(opens.remove(Handle(1)), Some(Handle(9)), "the last one to go gives the spare back");
        assert_eq!(opens.keep_spare(FID, Handle(11)), Some(Handle(11)), "nothing is open");
    }
}
