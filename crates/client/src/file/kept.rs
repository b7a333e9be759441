//! Files that stay open at the MDT after their last close here, so that the next open to read costs no request.
//!
//! The MDT permits it with [`LOCK_OPEN`], and calls that back when the file's last name goes.

use std::sync::Arc;

use proto::wire::messages::{Entry, LOCK_OPEN};
use proto::{Attr, Fid, Transno};

use super::open::Told;
use super::table::OpenFile;
use crate::cache::OpenKept;
use crate::{Caller, Handle, OpenFlags, Shared};

/// Permission to read and to execute, in each of the three classes.
const MODE_READ: u32 = 0o444;
const MODE_EXECUTE: u32 = 0o111;
/// The owner's part of them.
const MODE_OWNER: u32 = 0o700;

impl Shared {
    /// Opens a file that is open at the MDT anyway, if the caller certainly may.
    pub(crate) fn open_again(
        self: &Arc<Self>,
        caller: &Caller,
        fid: Fid,
        flags: OpenFlags,
    ) -> Option<Handle> {
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
        let told = Told {
            attr: entry.attr.clone(),
            layout: entry.layout.clone(),
            handle: open.handle,
            transno: Transno(0),
            xattrs: entry.xattrs,
            reopened: true,
        };
        Some(self.opened(caller, told, flags))
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
    pub(crate) fn stays_open(&self, open: &OpenFile, atime_due: bool) -> bool {
        if open.flags.write {
            return false;
        }
        let mut part = self.inodes.part(open.fid);
        let Some(inode) = part.inodes.get_mut(&open.fid) else { return false };
        let usable = inode.has(LOCK_OPEN);
        let Some(kept) = inode.open.as_mut().filter(|kept| kept.handle == open.mdt_handle) else {
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
fn may_open(caller: &Caller, entry: &Entry, flags: OpenFlags) -> bool {
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
