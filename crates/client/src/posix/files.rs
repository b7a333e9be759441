//! What programs do through descriptors.

use proto::types::{MODE_SETGID, MODE_SETUID, XATTR_CAPABILITY};
use proto::{Attr, Code, Fid, FileKind};

use super::opens::OpenFile;
use super::{Errno, Posix, Result};
use crate::{Allocation, Caller, Handle, OpenFlags, Seek, Told};

/// How often a name is looked up again because what it meant was gone.
const HOLDS_MAX: usize = 1000;

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

impl Posix {
    /// How a file is opened with these flags on this mount.
    fn open_flags(&self, flags: i32) -> OpenFlags {
        let open = open_flags(flags);
        OpenFlags { no_atime: open.no_atime || self.access_times.none, ..open }
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
            Err(crate::Error::Refused(Code::Exists)) if !open.exclusive => return Err(Code::Stale.into()),
            made => made?,
        };
        self.opened(attr.fid, handle, open);
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
        self.opened(attr.fid, handle, open);
        Ok((attr, handle))
    }

    /// Opens a regular file.
    pub async fn open(&self, caller: &Caller, fid: Fid, flags: i32) -> Result<Handle> {
        let open = self.open_flags(flags);
        let handle = self.client.files().open(caller, fid, open).await?;
        self.opened(fid, handle, open);
        Ok(handle)
    }

    /// What a name means; if that is a regular file, it is held, as an open file is, until [`Posix::release_held`]. A name that others
    /// replace all the time is looked up until what it means can be held.
    pub async fn hold_name(&self, caller: &Caller, dir: Fid, name: &[u8]) -> Result<(Fid, Option<Handle>)> {
        let mut tries = HOLDS_MAX;
        loop {
            let found: Attr = self.client.names().lookup(caller, dir, name).await?.into();
            if found.kind() != FileKind::File {
                return Ok((found.fid, None));
            }
            tries -= 1;
            // Whoever opens it then is asked for its own rights.
            match self.client.files().open(&Caller::root(), found.fid, OpenFlags::default()).await {
                Err(crate::Error::Refused(Code::Stale)) if tries > 0 => {}
                held => return Ok((found.fid, Some(held?))),
            }
        }
    }

    /// Lets go of what [`Posix::hold_name`] holds.
    pub async fn release_held(&self, handle: Handle) {
        self.client.files().release(handle).await;
    }

    /// Writes if there is nothing to wait for; `None`: nothing was done.
    pub fn write_at_once(&self, request: &WriteRequest, data: &[u8]) -> Result<Option<u32>> {
        let plain = !request.cached && request.flags & libc::O_DSYNC == 0;
        // F_SETFL changes what the request says, and not how the client writes through the handle.
        let appends = request.flags & libc::O_APPEND != 0;
        let open = self.opens.get(request.handle).filter(|open| {
            let privileged = request.kill_privileges && self.may_be_privileged(open);
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
        let appends = !request.cached && request.flags & libc::O_APPEND != 0;
        // Whoever writes decides, and not whoever opened the file: the kernel says whether the writer may leave these bits.
        if let Some(open) = open.as_ref().filter(|_| request.kill_privileges) {
            self.kill_privileges(caller, request.handle, open).await?;
        }
        let Some(open) = open.filter(|open| appends || !open.append) else {
            return self.write_by_spare(request, data).await;
        };
        if request.cached {
            return Ok(self.client.files().write_pages(request.handle, request.offset, data).await?);
        }
        // Where a file ends that others write to, this mount's kernel does not know.
        let written = match appends {
            true => self.client.files().append(request.handle, data).await?,
            false => self.client.files().write(request.handle, request.offset, data).await?,
        };
        if request.flags & libc::O_DSYNC != 0 && !open.sync {
            self.client.files().fsync(request.handle).await?;
        }
        Ok(written)
    }

    /// Writes through some other handle of the same file: one that an application has, or one of our own. The right
    /// to write was checked when the file was opened.
    async fn write_by_spare(&self, request: WriteRequest, data: &[u8]) -> Result<u32> {
        if !request.cached && self.opens.get(request.handle).is_none_or(|open| !open.write) {
            return Err(crate::Error::BadHandle.into());
        }
        if let Some(handle) = self.opens.positional_writer(request.fid) {
            return self.write_through(handle, &request, data).await;
        }
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let handle = self.client.files().open(&Caller::root(), request.fid, flags).await?;
        let written = self.write_through(handle, &request, data).await;
        if let Some(unneeded) = self.opens.keep_spare(request.fid, handle) {
            let flushed = self.client.files().flush(unneeded).await;
            self.client.files().release(unneeded).await;
            flushed?;
        }
        written
    }

    async fn write_through(&self, handle: Handle, request: &WriteRequest, data: &[u8]) -> Result<u32> {
        if request.cached {
            return Ok(self.client.files().write_pages(handle, request.offset, data).await?);
        }
        let written = self.client.files().write(handle, request.offset, data).await?;
        if request.flags & libc::O_DSYNC != 0 {
            self.client.files().fsync(handle).await?;
        }
        Ok(written)
    }

    /// Whether a write through an open file has to look at the privilege bits.
    fn may_be_privileged(&self, open: &OpenFile) -> bool {
        open.may_be_privileged() || self.client.files().is_privileged_now(open.fid) != Some(false)
    }

    /// A file was opened.
    fn opened(&self, fid: Fid, handle: Handle, flags: OpenFlags) {
        let privileged = self.client.files().is_privileged(handle);
        self.opens.insert(handle, OpenFile::new(fid, flags, privileged));
    }

    /// Takes set-user-id and set-group-id bits of an open file away, as a change of its data by `caller` does.
    async fn kill_privileges(&self, caller: &Caller, handle: Handle, open: &OpenFile) -> Result<()> {
        if !self.may_be_privileged(open) {
            return Ok(());
        }
        let files = self.client.files();
        // Another mount may have set capabilities, too.
        let is_unknown = files.is_privileged_now(open.fid).is_none();
        let mode = self.client.names().getattr(open.fid).await?.mode;
        let is_by_mode = mode & (MODE_SETUID | MODE_SETGID) != 0;
        if is_by_mode
            || is_unknown && files.may_have_xattrs(open.fid) && self.has_capability(open.fid).await?
        {
            files.drop_privileges(handle, caller).await?;
        }
        open.privileges_are_off();
        Ok(())
    }

    /// Whether the file has capabilities; that it has none is kept, so not every write of one with other attributes asks.
    async fn has_capability(&self, fid: Fid) -> Result<bool> {
        let names = self.client.names().list_xattr(fid).await?;
        Ok(names.iter().any(|name| name == XATTR_CAPABILITY))
    }

    /// The same for a call that the kernel does not mark: the superuser leaves these bits.
    async fn kill_unmarked(&self, caller: &Caller, handle: Handle) -> Result<()> {
        match self.opens.get(handle) {
            Some(open) if caller.uid != 0 => self.kill_privileges(caller, handle, &open).await,
            _ => Ok(()),
        }
    }

    /// close(2) of one file descriptor of process `owner`.
    pub async fn flush(&self, handle: Handle, owner: u64) -> Result<()> {
        let flushed = self.client.files().flush(handle).await;
        // Any close of a file takes the process's fcntl locks on it away, whatever became of its data.
        self.client.flocks().unlock_owner(handle, owner).await?;
        Ok(flushed?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_are_translated() {
        let flags = open_flags(libc::O_RDWR | libc::O_APPEND | libc::O_SYNC);
        assert!(flags.read && flags.write && flags.append && flags.sync);
        assert!(!flags.truncate && !flags.exclusive && !flags.execute);
        let flags = open_flags(libc::O_WRONLY | libc::O_TRUNC | libc::O_EXCL);
        assert!(!flags.read && flags.write && flags.truncate && flags.exclusive);
        assert!(open_flags(KERNEL_OPEN_EXECUTE).execute);
    }
}
