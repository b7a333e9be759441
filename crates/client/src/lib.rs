//! The file system as a library: name space, data, layouts. FUSE, tests and later bindings are its users.
//! Stub: signatures only.
#![allow(unused_variables, clippy::unused_async, missing_docs)]

use std::sync::Arc;

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::wire::messages::{Config, DefaultLayout, DirPage, Space};
use proto::{Attr, Code, Cred, Fid, Layout, Name, Nid, TargetId, Timestamp};
use rpc::Hub;

/// Why an operation failed. A refusal is the server's answer; everything else is the client's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(#[from] Code),
    /// The handle names no open file, or not one open for this.
    #[error("bad file handle")]
    BadHandle,
    /// The client is being unmounted.
    #[error("the file system is being unmounted")]
    Closed,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Limits of a mount.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes written by applications and not yet taken by an OST, of all files together.
    pub dirty_bytes_max: u64,
    /// Bytes of one write request.
    pub rpc_bytes_max: u32,
    /// Write and read requests in flight per OST.
    pub rpcs_in_flight_max: u32,
}

/// Names an open file of this client; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub execute: bool,
    /// O_SYNC or O_DSYNC: every write is durable before it returns.
    pub sync: bool,
}

/// Attributes to change; `None` stays.
#[derive(Debug, Clone, Default)]
pub struct AttrChange {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    /// `Err(())`-free: `TimeSet::Now` or a given time.
    pub atime: Option<TimeSet>,
    pub mtime: Option<TimeSet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    Now,
    At(Timestamp),
}

/// The caller: who, and how to learn its supplementary groups if the answer depends on them (the MDT then refuses
/// with NeedGroups and the client asks `groups` once and repeats).
#[derive(Clone)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub groups: Arc<dyn Fn() -> Vec<u32> + Send + Sync>,
}

/// A mounted file system.
pub struct Client {}

impl Client {
    /// Fetches the configuration from the MGS at `mgs` (waits for it and for the first MDT) and opens the root.
    pub async fn mount(hub: &Hub, mgs: Vec<Nid>, limits: Limits) -> Result<Arc<Client>> {
        unimplemented!()
    }
    /// Flushes everything, closes every session.
    pub async fn unmount(&self) -> Result<()> {
        unimplemented!()
    }

    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }
    /// Attributes with the true size and times, own unflushed writes included.
    pub async fn getattr(&self, fid: Fid) -> Result<Attr> {
        unimplemented!()
    }
    pub async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        change: AttrChange,
        handle: Option<Handle>,
    ) -> Result<Attr> {
        unimplemented!()
    }
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        unimplemented!()
    }
    /// mknod, mkdir, symlink (`target`), and a plain file that is not opened.
    pub async fn make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: Bytes,
    ) -> Result<Attr> {
        unimplemented!()
    }
    pub async fn create(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Handle)> {
        unimplemented!()
    }
    pub async fn unlink(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
    pub async fn rmdir(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
    pub async fn rename(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        new_parent: Fid,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        unimplemented!()
    }
    pub async fn link(&self, caller: &Caller, fid: Fid, parent: Fid, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }
    pub async fn access(&self, caller: &Caller, fid: Fid, mask: u32) -> Result<()> {
        unimplemented!()
    }

    pub async fn open(&self, caller: &Caller, fid: Fid, flags: OpenFlags) -> Result<Handle> {
        unimplemented!()
    }
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        unimplemented!()
    }
    /// Takes a copy of `data`; returns when it is in the write-behind cache (or durable, for a `sync` handle). An
    /// append handle writes at the end whatever `offset` says.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32> {
        unimplemented!()
    }
    /// close(2): errors of earlier writes, once for each handle; data is on its way to the OSTs and readable by
    /// others when it returns.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        unimplemented!()
    }
    /// Durable on OSTs and MDT when it returns.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        unimplemented!()
    }
    /// fsync of a directory: everything this client changed in the name space is durable.
    pub async fn fsync_dir(&self, fid: Fid) -> Result<()> {
        unimplemented!()
    }
    pub async fn release(&self, handle: Handle) {
        unimplemented!()
    }
    /// fallocate: mode 0 (`keep_size` or not) and punch hole.
    pub async fn allocate(
        &self,
        handle: Handle,
        offset: u64,
        len: u64,
        keep_size: bool,
        punch: bool,
    ) -> Result<()> {
        unimplemented!()
    }

    pub async fn open_dir(&self, caller: &Caller, fid: Fid) -> Result<Handle> {
        unimplemented!()
    }
    pub async fn read_dir(&self, fid: Fid, cookie: u64, plus: bool) -> Result<DirPage> {
        unimplemented!()
    }

    pub async fn get_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Bytes> {
        unimplemented!()
    }
    pub async fn set_xattr(
        &self,
        caller: &Caller,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        flags: u32,
    ) -> Result<()> {
        unimplemented!()
    }
    pub async fn list_xattr(&self, fid: Fid) -> Result<Vec<Bytes>> {
        unimplemented!()
    }
    pub async fn remove_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// Space of all OSTs together, files of the MDT.
    pub async fn statfs(&self) -> Result<Space> {
        unimplemented!()
    }
    /// Everything this client wrote, data and names, is durable when it returns.
    pub async fn sync_all(&self) -> Result<()> {
        unimplemented!()
    }

    pub async fn layout(&self, fid: Fid) -> Result<Option<Layout>> {
        unimplemented!()
    }
    pub async fn default_layout(&self, fid: Fid) -> Result<DefaultLayout> {
        unimplemented!()
    }
    /// `lfs setstripe` on a directory or on a file without objects.
    pub async fn set_layout(&self, caller: &Caller, fid: Fid, hint: Option<LayoutHint>) -> Result<()> {
        unimplemented!()
    }
    /// `lfs setstripe` on a new name.
    pub async fn create_with_layout(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        hint: LayoutHint,
    ) -> Result<Attr> {
        unimplemented!()
    }
    pub async fn fid_to_path(&self, fid: Fid) -> Result<Vec<Bytes>> {
        unimplemented!()
    }
    /// The configuration as the client knows it.
    pub fn config(&self) -> Arc<Config> {
        unimplemented!()
    }
    /// Space of one target, or why it does not answer within `wait`.
    pub async fn target_space(&self, target: TargetId, wait: std::time::Duration) -> Result<Option<Space>> {
        unimplemented!()
    }
}

/// Makes a name out of bytes that came from a caller.
pub fn name(bytes: &[u8]) -> Result<Name> {
    Name::new(Bytes::copy_from_slice(bytes)).map_err(|error| match error {
        proto::name::NameError::TooLong => Error::Refused(Code::NameTooLong),
        proto::name::NameError::Illegal => Error::Refused(Code::Invalid),
    })
}
