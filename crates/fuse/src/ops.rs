//! What each request of the kernel means to the client. Nothing here knows how requests arrive.
//!
//! What the kernel may keep of an answer the client says with it; the kernel checks permissions on that, and the MDT
//! checks every one again with the caller's ids.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use client::{
    Allocation, AttrChange, Caller, Client, FlockRequest, FoundLock, Handle, OpenFlags, PageEntry, Pages,
    Seek, Told,
};
use proto::acl::{XATTR_ACCESS, XATTR_DEFAULT};
use proto::types::{MODE_SETGID, MODE_SETUID};
use proto::wire::messages::Space;
use proto::{Code, Fid, FileKind, Ino};

use crate::caller;
use crate::control::{self, Status};
use crate::dirs::{Dirs, Item, Page};
use crate::engine::Kind;
use crate::errno::{Errno, Result};
use crate::opens::{OpenFile, Opens};
use crate::stats::{self, Stats};
use crate::virtuals;

/// The node id that the kernel has for the root of a mount.
const ROOT_NODE: u64 = 1;

/// The handle of every directory that was opened after its removal. It has no entries; the client uses no such number.
const REMOVED_DIR: Handle = Handle(0);

/// Capabilities of a program.
const XATTR_CAPABILITY: &[u8] = b"security.capability";

/// The file that the kernel means with a node id.
pub fn fid_of(node: u64) -> Fid {
    if node == ROOT_NODE { Fid::ROOT } else { Ino(node).fid() }
}

/// The node id that the kernel has for a file.
pub fn node_of(fid: Fid) -> u64 {
    if fid == Fid::ROOT { ROOT_NODE } else { fid.ino().0 }
}

/// What a mount offers that not every file system does; the kernel is told at the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offers {
    /// Locks of flock(2) and fcntl(2) are those of the cluster. Without, the kernel keeps them for this mount alone.
    pub locks: bool,
    /// Access control lists. With them the kernel leaves the umask to the servers, and asks for the lists that it
    /// checks.
    pub acl: bool,
}

/// A write as the kernel asks for it.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest {
    /// The file.
    pub fid: Fid,
    /// The handle that the kernel names; a guess if `cached`.
    pub handle: Handle,
    /// Where, in bytes.
    pub offset: u64,
    /// The open flags at the time of the write.
    pub flags: i32,
    /// Whether the kernel writes back pages that applications changed through a mapping.
    pub cached: bool,
    /// Whether the set-user-id and set-group-id bits have to go.
    pub kill_privileges: bool,
}

/// A new name and what it is to be.
pub struct NewFile<'a> {
    /// The directory.
    pub parent: Fid,
    /// The name.
    pub name: &'a [u8],
    /// Kind and permissions.
    pub mode: u32,
    /// Device number.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Bytes,
}

/// An entry that moves.
pub struct Move<'a> {
    /// Directory of the old name.
    pub parent: Fid,
    /// The old name.
    pub name: &'a [u8],
    /// Directory of the new name.
    pub new_parent: Fid,
    /// The new name.
    pub new_name: &'a [u8],
    /// Flags of renameat2.
    pub flags: u32,
}

/// The operations of one mount.
pub struct Ops {
    client: Arc<Client>,
    status: Status,
    /// What brings the kernel's requests; set once it does.
    engine: OnceLock<Kind>,
    opens: Opens,
    dirs: Dirs,
    stats: Arc<Stats>,
    access_times: AccessTimes,
}

/// Whose access times are not kept, as mount options say. The kernel leaves access times to the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessTimes {
    /// Nobody's: `noatime`.
    pub none: bool,
    /// Not directories': `nodiratime`.
    pub no_directories: bool,
}

impl Ops {
    /// The operations of a mount of `client`, which says `status` of itself.
    pub fn new(client: Arc<Client>, status: Status, access_times: AccessTimes) -> Ops {
        let (opens, dirs, stats) = (Opens::default(), Dirs::default(), Arc::new(Stats::new()));
        Ops { client, status, engine: OnceLock::new(), opens, dirs, stats, access_times }
    }

    /// How a file is opened with these flags on this mount.
    fn open_flags(&self, flags: i32) -> OpenFlags {
        let open = open_flags(flags);
        OpenFlags { no_atime: open.no_atime || self.access_times.none, ..open }
    }

    /// The kernel keeps copies, and `copies` has it forget them.
    pub fn set_copies(&self, copies: Arc<dyn client::Copies>) {
        self.client.set_copies(copies);
    }

    /// What the kernel asked for.
    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Requests come from the kernel by `engine`.
    pub fn served_by(&self, engine: Kind) {
        // An engine is started once for each mount.
        let _ = self.engine.set(engine);
    }

    /// What the mount says of itself.
    fn status(&self) -> Status {
        let fuse_engine = self.engine.get().map(|engine| engine.name().to_owned());
        Status { fuse_engine, ..self.status.clone() }
    }

    /// What a name in a directory means.
    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<Told> {
        Ok(self.client.names().lookup(caller, parent, name).await?)
    }

    /// Attributes.
    pub async fn getattr(&self, fid: Fid) -> Result<Told> {
        Ok(self.client.names().getattr(fid).await?)
    }

    /// Changes attributes.
    pub async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        mut change: AttrChange,
        handle: Option<Handle>,
    ) -> Result<Told> {
        if change.mode.is_some_and(|mode| mode & (MODE_SETUID | MODE_SETGID) != 0) {
            self.opens.privileges_are_on(fid);
        }
        // No system call changes the mode together with something else. The kernel adds the mode to a change of size
        // or owner to take privilege bits away, which the caller need not be permitted to do by itself.
        let other_change = change.size.is_some() || change.uid.is_some() || change.gid.is_some();
        let killed = if other_change { change.mode.take() } else { None };
        let Some(mode) = killed else {
            return Ok(self.client.files().setattr(caller, fid, change, handle).await?);
        };
        {
            let told = self.client.files().setattr(caller, fid, change, handle).await?;
            if told.mode & 0o7777 == mode & 0o7777 {
                return Ok(told);
            }
        }
        let change = AttrChange { mode: Some(mode & 0o7777), ..AttrChange::default() };
        Ok(self.client.files().setattr(&caller::root(), fid, change, None).await?)
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        Ok(self.client.names().readlink(fid).await?)
    }

    /// mknod, mkdir and symlink.
    pub async fn make(&self, caller: &Caller, new: NewFile<'_>) -> Result<Told> {
        Ok(self.client.names().make(caller, new.parent, new.name, new.mode, new.rdev, new.target).await?)
    }

    /// Makes a regular file, or finds it, and opens it.
    pub async fn create(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Result<(Told, Handle)> {
        let open = self.open_flags(flags);
        let made = self.client.files().create(caller, parent, name, mode, open).await;
        let (attr, handle) = match made {
            // Somebody else made something that cannot be opened so, a symbolic link perhaps: the kernel looks again.
            Err(client::Error::Refused(Code::Exists)) if !open.exclusive => return Err(Code::Stale.into()),
            made => made?,
        };
        self.opens.insert(handle, OpenFile::new(attr.fid, open.write, open.append, open.sync));
        Ok((attr, handle))
    }

    /// Makes a regular file without a name and opens it (O_TMPFILE).
    pub async fn create_unnamed(
        &self,
        caller: &Caller,
        dir: Fid,
        mode: u32,
        flags: i32,
    ) -> Result<(Told, Handle)> {
        let open = open_flags(flags);
        let (attr, handle) = self.client.files().create_unnamed(caller, dir, mode, open).await?;
        self.opens.insert(handle, OpenFile::new(attr.fid, open.write, open.append, open.sync));
        Ok((attr, handle))
    }

    /// Takes the name of anything but a directory away.
    pub async fn unlink(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        Ok(self.client.names().unlink(caller, parent, name).await?)
    }

    /// Takes a directory away.
    pub async fn rmdir(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        Ok(self.client.names().rmdir(caller, parent, name).await?)
    }

    /// Moves an entry.
    pub async fn rename(&self, caller: &Caller, what: Move<'_>) -> Result<()> {
        let known = proto::wire::messages::RENAME_NOREPLACE | proto::wire::messages::RENAME_EXCHANGE;
        if what.flags & !known != 0 {
            return Err(Errno::INVALID);
        }
        let Move { parent, name, new_parent, new_name, flags } = what;
        Ok(self.client.names().rename(caller, parent, name, new_parent, new_name, flags).await?)
    }

    /// Gives a file one more name.
    pub async fn link(&self, caller: &Caller, fid: Fid, parent: Fid, name: &[u8]) -> Result<Told> {
        Ok(self.client.names().link(caller, fid, parent, name).await?)
    }

    /// Whether the caller may do what `mask` says.
    pub async fn access(&self, caller: &Caller, fid: Fid, mask: u32) -> Result<()> {
        Ok(self.client.names().access(caller, fid, mask & 7).await?)
    }

    /// Opens a regular file.
    pub async fn open(&self, caller: &Caller, fid: Fid, flags: i32) -> Result<Handle> {
        let open = self.open_flags(flags);
        let handle = self.client.files().open(caller, fid, open).await?;
        self.opens.insert(handle, OpenFile::new(fid, open.write, open.append, open.sync));
        Ok(handle)
    }

    /// Whether another client may be writing to the file.
    pub fn is_written_elsewhere(&self, handle: Handle) -> bool {
        self.client.files().is_written_elsewhere(handle)
    }

    /// Reads; short only at the end of the file. `fill`: the answer goes into the kernel's page cache, where it stays
    /// until the kernel is told to forget it.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        Ok(self.client.files().read(handle, offset, len).await?)
    }

    /// Reads for the kernel's page cache.
    pub async fn read_pages(&self, handle: Handle, offset: u64, len: u32) -> Result<Pages> {
        Ok(self.client.files().read_pages(handle, offset, len).await?)
    }

    /// Writes if there is nothing to wait for; `None`: nothing was done.
    pub fn write_at_once(&self, request: &WriteRequest, data: &[u8]) -> Result<Option<u32>> {
        let plain = !request.cached && request.flags & libc::O_DSYNC == 0;
        // F_SETFL changes what the request says, and not how the client writes through the handle.
        let appends = request.flags & libc::O_APPEND != 0;
        let open = self.opens.get(request.handle).filter(|open| {
            let privileged = request.kill_privileges && open.may_be_privileged();
            plain
                && open.fid == request.fid
                && open.write
                && open.append == appends
                && !open.sync
                && !privileged
        });
        if open.is_none() {
            return Ok(None);
        }
        Ok(self.client.files().write_at_once(request.handle, request.offset, data)?)
    }

    /// Writes.
    pub async fn write(&self, caller: &Caller, request: WriteRequest, data: &[u8]) -> Result<u32> {
        let open = self.opens.get(request.handle).filter(|open| open.write && open.fid == request.fid);
        // Write-back of a mapping goes where the page is, and F_SETFL can take O_APPEND from an open file: neither
        // may use a handle that writes at the end.
        let positional = request.cached || request.flags & libc::O_APPEND == 0;
        let Some(open) = open.filter(|open| !(positional && open.append)) else {
            return self.write_by_spare(request, data).await;
        };
        if request.kill_privileges {
            self.kill_privileges(caller, request.handle, &open).await?;
        }
        if request.cached {
            return Ok(self.client.files().write_pages(request.handle, request.offset, data).await?);
        }
        let written = self.client.files().write(request.handle, request.offset, data).await?;
        if request.flags & libc::O_DSYNC != 0 && !open.sync {
            self.client.files().fsync(request.handle).await?;
        }
        Ok(written)
    }

    /// Writes through some other handle of the same file: one that an application has, or one of our own. The right
    /// to write was checked when the file was opened.
    async fn write_by_spare(&self, request: WriteRequest, data: &[u8]) -> Result<u32> {
        if !request.cached && self.opens.get(request.handle).is_none_or(|open| !open.write) {
            return Err(client::Error::BadHandle.into());
        }
        if let Some(handle) = self.opens.positional_writer(request.fid) {
            return self.write_through(handle, &request, data).await;
        }
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let handle = self.client.files().open(&caller::root(), request.fid, flags).await?;
        let written = self.write_through(handle, &request, data).await;
        if let Some(unneeded) = self.opens.keep_spare(request.fid, handle) {
            let flushed = self.client.files().flush(unneeded).await;
            self.client.files().release(unneeded).await;
            flushed?;
        }
        written
    }

    async fn write_through(&self, handle: Handle, request: &WriteRequest, data: &[u8]) -> Result<u32> {
        Ok(match request.cached {
            true => self.client.files().write_pages(handle, request.offset, data).await?,
            false => self.client.files().write(handle, request.offset, data).await?,
        })
    }

    /// Takes set-user-id and set-group-id bits away that were given to an open file, as a change of its data by `caller` does.
    async fn kill_privileges(&self, caller: &Caller, handle: Handle, open: &OpenFile) -> Result<()> {
        if open.may_be_privileged() {
            if self.client.names().getattr(open.fid).await?.mode & (MODE_SETUID | MODE_SETGID) != 0 {
                self.client.files().drop_privileges(handle, caller).await?;
            }
            open.privileges_are_off();
        }
        Ok(())
    }

    /// The same for a call that the kernel does not mark: the superuser leaves these bits.
    async fn kill_unmarked(&self, caller: &Caller, handle: Handle) -> Result<()> {
        match self.opens.get(handle) {
            Some(open) if caller.uid != 0 => self.kill_privileges(caller, handle, &open).await,
            _ => Ok(()),
        }
    }

    /// What this mount offers.
    pub fn offers(&self) -> Offers {
        Offers { locks: true, acl: true }
    }

    /// The lock that is in the way of one that `owner` wants; `None` if there is none.
    pub async fn get_lock(
        &self,
        handle: Handle,
        owner: u64,
        request: FlockRequest,
    ) -> Result<Option<FoundLock>> {
        Ok(self.client.flocks().get_lock(handle, owner, request).await?)
    }

    /// Sets, changes or takes away a lock.
    pub async fn set_lock(&self, handle: Handle, owner: u64, request: FlockRequest) -> Result<()> {
        Ok(self.client.flocks().set_lock(handle, owner, request).await?)
    }

    /// Sets a lock, and waits for it. Dropped while it waits, it leaves the owner what it had.
    pub async fn set_lock_wait(&self, handle: Handle, owner: u64, request: FlockRequest) -> Result<()> {
        Ok(self.client.flocks().set_lock_wait(handle, owner, request).await?)
    }

    /// Waits until a lock request whose future was dropped is in nobody's way any more.
    pub async fn given_up(&self, handle: Handle, owner: u64, kind: proto::lock::flock::Kind) {
        self.client.flocks().given_up(handle, owner, kind).await;
    }

    /// Everything that this mount wrote becomes durable.
    pub async fn sync_all(&self) -> Result<()> {
        Ok(self.client.sync_all().await?)
    }

    /// close(2) of one file descriptor of process `owner`.
    pub async fn flush(&self, handle: Handle, owner: u64) -> Result<()> {
        let flushed = self.client.files().flush(handle).await;
        // Any close of a file takes the process's fcntl locks on it away, whatever became of its data.
        self.client.flocks().unlock_owner(handle, owner).await?;
        Ok(flushed?)
    }

    /// fsync of a file.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        Ok(self.client.files().fsync(handle).await?)
    }

    /// fsync of a directory.
    pub async fn fsync_dir(&self, fid: Fid) -> Result<()> {
        Ok(self.client.files().fsync_dir(fid).await?)
    }

    /// The last descriptor of an open file is closed.
    pub async fn release(&self, handle: Handle) {
        if let Some(spare) = self.opens.remove(handle) {
            if let Err(error) = self.client.files().flush(spare).await {
                tracing::warn!(%error, "changes through a mapping of a closed file are lost");
            }
            self.client.files().release(spare).await;
        }
        self.client.files().release(handle).await;
    }

    /// fallocate.
    pub async fn allocate(
        &self,
        caller: &Caller,
        handle: Handle,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocation::Reserve { keep_size },
            libc::FALLOC_FL_ZERO_RANGE => Allocation::Zero { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocation::PunchHole,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        self.kill_unmarked(caller, handle).await?;
        Ok(self.client.files().allocate(handle, offset, len, what).await?)
    }

    /// lseek with SEEK_DATA and SEEK_HOLE.
    pub async fn seek(&self, fid: Fid, offset: i64, whence: i32) -> Result<i64> {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVALID),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::NO_DATA_HERE)?;
        let found = self.client.files().seek(fid, offset, what).await?.ok_or(Errno::NO_DATA_HERE)?;
        i64::try_from(found).map_err(|_| Errno::INVALID)
    }

    /// copy_file_range: how many bytes were copied.
    pub async fn copy_range(
        &self,
        caller: &Caller,
        from: (Handle, u64),
        to: (Handle, u64),
        len: u64,
    ) -> Result<u64> {
        self.kill_unmarked(caller, to.0).await?;
        Ok(self.client.files().copy_range(from, to, len).await?)
    }

    /// Opens a directory.
    pub async fn open_dir(&self, caller: &Caller, fid: Fid) -> Result<Handle> {
        match self.client.files().open_dir(caller, fid).await {
            // The kernel knows the directory, so it was there: it was removed, and somebody still works in it.
            Err(client::Error::Refused(Code::Stale)) => Ok(REMOVED_DIR),
            opened => Ok(opened?),
        }
    }

    /// Gives the entries behind `offset` to `emit`, until it says that it is full.
    pub async fn read_dir(
        &self,
        fid: Fid,
        handle: Handle,
        (offset, plus): (u64, bool),
        emit: &mut (dyn FnMut(Item<'_>) -> bool + Send),
    ) -> Result<()> {
        if handle == REMOVED_DIR {
            return Ok(());
        }
        if !self.access_times.none && !self.access_times.no_directories {
            self.client.files().accessed(handle);
        }
        let (position, kept) = self.dirs.find(handle, offset);
        let mut page = match kept {
            Some(page) => page,
            None => self.page(fid, position.cookie, plus).await?,
        };
        while let Some(cookie) = page.next(&position) {
            page = self.page(fid, cookie, plus).await?;
        }
        self.dirs.keep(handle, &page);
        self.dirs.emit(handle, fid.ino(), offset, &position, &page, emit);
        Ok(())
    }

    /// The file of an entry, if it is known without asking anybody.
    pub fn entry(&self, dir: Fid, entry: &PageEntry) -> Option<Told> {
        self.client.names().entry(dir, entry)
    }

    async fn page(&self, fid: Fid, cookie: u64, plus: bool) -> Result<Arc<Page>> {
        Ok(Arc::new(Page::new(cookie, self.client.names().read_dir(fid, cookie, plus).await?)))
    }

    /// Closes a directory.
    pub async fn release_dir(&self, handle: Handle) {
        if handle != REMOVED_DIR {
            self.dirs.remove(handle);
            self.client.files().release(handle).await;
        }
    }

    /// Space of the file system.
    pub async fn statfs(&self) -> Result<Space> {
        Ok(self.client.admin().statfs().await?)
    }

    /// Value of an extended attribute.
    pub async fn get_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Bytes> {
        if name == stats::STATS.as_bytes() {
            return Ok(control::encode(&self.stats.told()).into());
        }
        if virtuals::is_virtual(name) {
            return Ok(virtuals::get(&self.client, caller, &self.status(), fid, name).await?.into());
        }
        supported(name)?;
        Ok(self.client.names().get_xattr(caller, fid, name).await?)
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(
        &self,
        caller: &Caller,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        if name == stats::CLEAR.as_bytes() {
            virtuals::may_administrate(caller)?;
            self.stats.clear();
            return Ok(());
        }
        if virtuals::is_virtual(name) {
            return virtuals::set(&self.client, caller, fid, name, &value).await;
        }
        supported(name)?;
        Ok(self.client.names().set_xattr(caller, fid, name, value, flags).await?)
    }

    /// Names of the extended attributes, each with a NUL behind it.
    pub async fn list_xattr(&self, fid: Fid) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.client.names().list_xattr(fid).await? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<()> {
        if virtuals::is_virtual(name) {
            return virtuals::remove(&self.client, caller, fid, name).await;
        }
        supported(name)?;
        // The kernel asks for this when a write, a truncate or a change of owner takes capabilities away, as whoever made it. From
        // everybody else it demands the right to give them.
        let root = (name == XATTR_CAPABILITY).then(caller::root);
        Ok(self.client.names().remove_xattr(root.as_ref().unwrap_or(caller), fid, name).await?)
    }
}

/// Of the names of the system there are those of ACLs.
fn supported(name: &[u8]) -> Result<()> {
    let acl = name == XATTR_ACCESS || name == XATTR_DEFAULT;
    if name.starts_with(b"system.") && !acl { Err(Errno::NOT_SUPPORTED) } else { Ok(()) }
}

/// The kernel's own flag for a file that is opened to be executed (FMODE_EXEC).
const KERNEL_OPEN_EXECUTE: i32 = 0x20;

fn open_flags(flags: i32) -> OpenFlags {
    let access = flags & libc::O_ACCMODE;
    OpenFlags {
        read: access == libc::O_RDONLY || access == libc::O_RDWR,
        write: access == libc::O_WRONLY || access == libc::O_RDWR,
        append: flags & libc::O_APPEND != 0,
        exclusive: flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        execute: flags & KERNEL_OPEN_EXECUTE != 0,
        sync: flags & libc::O_DSYNC != 0,
        no_atime: flags & libc::O_NOATIME != 0,
    }
}

/// The kinds of [`FileKind`] that `mode` of a new file can name; mkdir leaves its own out.
pub fn mode_with_kind(mode: u32, kind: FileKind) -> u32 {
    (mode & 0o7777) | kind.mode_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_two_numbers() {
        assert_eq!(fid_of(1), Fid::ROOT);
        assert_eq!(fid_of(Fid::ROOT.ino().0), Fid::ROOT);
    }

    #[test]
    fn open_flags_are_translated() {
        let flags = open_flags(libc::O_RDWR | libc::O_APPEND | libc::O_SYNC);
        assert!(flags.read && flags.write && flags.append && flags.sync);
        assert!(!flags.truncate && !flags.exclusive && !flags.execute);
        let flags = open_flags(libc::O_WRONLY | libc::O_TRUNC | libc::O_EXCL);
        assert!(!flags.read && flags.write && flags.truncate && flags.exclusive);
        assert!(open_flags(KERNEL_OPEN_EXECUTE).execute);
    }

    #[test]
    fn of_the_systems_attributes_there_are_acls() {
        assert_eq!(supported(b"system.posix_acl_access"), Ok(()));
        assert_eq!(supported(b"system.nfs4_acl"), Err(Errno::NOT_SUPPORTED));
        assert_eq!(supported(b"user.a"), Ok(()));
    }
}
