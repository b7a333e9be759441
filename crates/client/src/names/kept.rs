//! Files that stay open at the MDT after their last close here, so that the next open to read costs no request.
//!
//! The MDT permits it with [`LOCK_OPEN`], and calls that back when the file's last name goes.

use std::sync::Arc;

use proto::wire::messages::{Close, Entry, LOCK_OPEN};
use proto::{Attr, Fid, Transno};

use super::Ended;
use super::cache::{MetadataCache, OpenKept};
use crate::{Caller, OpenFlags};

/// Permission to read and to execute, in each of the three classes.
const MODE_READ: u32 = 0o444;
const MODE_EXECUTE: u32 = 0o111;
/// The owner's part of them.
const MODE_OWNER: u32 = 0o700;

impl MetadataCache {
    /// Opens a file that is open at the MDT anyway, if the caller certainly may: its entry, and the MDT's name for it.
    pub(crate) fn open_again(
        &self,
        caller: &Caller,
        fid: Fid,
        flags: OpenFlags,
    ) -> Option<(Arc<Entry>, u64)> {
        if flags.write || flags.truncate {
            return None;
        }
        let entry = self.known_entry(fid)?;
        if !may_open(caller, &entry, flags) {
            return None;
        }
        let open = {
            let mut part = self.inodes.part(fid);
            let inode = part.inodes.get_mut(&fid)?;
            let usable = inode.has(LOCK_OPEN);
            let open = inode.open.as_mut().filter(|_| usable)?;
            open.users += 1;
            *open
        };
        Some((entry, open.handle))
    }

    /// Remembers that a file was opened to read, if the MDT lets it stay open.
    pub(crate) fn keep_open(&self, fid: Fid, handle: u64) {
        let mut part = self.inodes.part(fid);
        let Some(inode) = part.inodes.get_mut(&fid) else { return };
        if inode.has(LOCK_OPEN) && inode.open.is_none() {
            inode.open = Some(OpenKept { handle, users: 1 });
        }
    }

    /// A handle is not used any more. Whether the file stays open at the MDT: then there is nothing to tell. An access
    /// time that is due is told, with the close, by the last user.
    pub(crate) fn stays_open(&self, open: &Ended, atime_due: bool) -> bool {
        if open.flags.write {
            return false;
        }
        let mut part = self.inodes.part(open.fid);
        let Some(inode) = part.inodes.get_mut(&open.fid) else { return false };
        let usable = inode.has(LOCK_OPEN);
        let Some(kept) = inode.open.as_mut().filter(|kept| kept.handle == open.handle) else {
            return false;
        };
        kept.users = kept.users.saturating_sub(1);
        if kept.users > 0 {
            return true;
        }
        if !usable || atime_due {
            inode.open = None;
            return false;
        }
        true
    }
}

/// Whether the mode alone permits it, whatever the caller's groups are.
pub(super) fn may_open(caller: &Caller, entry: &Entry, flags: OpenFlags) -> bool {
    let Attr { mode, uid, .. } = entry.attr;
    let wanted = if flags.execute { MODE_EXECUTE } else { MODE_READ };
    if caller.uid == 0 {
        return !flags.execute || mode & MODE_EXECUTE != 0;
    }
    if entry.xattrs {
        return false;
    }
    let wanted = if caller.uid == uid { wanted & MODE_OWNER } else { wanted };
    mode & wanted == wanted
}

impl MetadataCache {
    /// Tells the MDT that a handle is not used any more; a refusal has no one to tell it to.
    pub(crate) async fn send_close(self: &Arc<Self>, close: Close) -> Option<Transno> {
        let (fid, atime) = (close.fid, close.atime);
        // A writer that has written nothing lets the MDT know the size again, too.
        let unknown = self.known_entry(fid).is_some_and(|entry| !entry.attr.size_known);
        let changes = close.size.is_some() || close.wrote || close.atime.is_some() || unknown;
        let changing = changes.then(|| self.inodes.change(&[fid], &[]));
        let asked = self.inodes.ask();
        tracing::debug!(%fid, handle = close.handle, size = close.size.as_ref().map(|size| size.size), "close");
        let result = match self.targets.settled_mdt_of(fid).await {
            Ok(mdt) => mdt.call(close).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(answered) => {
                // First this: what is kept from now on has the new time of access.
                let asked = changing.map_or(asked, |changing| changing.done(&[]));
                if let Some(entry) = &answered.reply.entry {
                    self.learn(&asked, entry);
                }
                self.changes.changed(fid, answered.transno);
                if let Some(atime) = atime {
                    self.accesses.told(fid, atime);
                }
                Some(answered.transno)
            }
            Err(error) => {
                tracing::debug!(%fid, %error, "the MDT did not take a close");
                None
            }
        }
    }
}
