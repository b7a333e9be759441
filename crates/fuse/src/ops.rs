//! What each request of the kernel means to the client. Nothing here knows how requests arrive.
//!
//! What the kernel may keep of an answer the client says with it; the kernel checks permissions on that, and the MDT
//! checks every one again with the caller's ids.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use client::posix::{AccessTimes, Errno, Posix, Result};
use client::{Caller, Client, FlockRequest, FoundLock, Handle, PageEntry, Pages, Told};
use proto::acl::{XATTR_ACCESS, XATTR_DEFAULT};
use proto::types::XATTR_CAPABILITY;
use proto::wire::messages::Space;
use proto::{Fid, FileKind, Ino, JobId};
use rt::Rt;

use crate::control::Status;
use crate::engine::Kind;
use crate::find::Questions;
use crate::jobs::{Asker, Asks, Jobs};
use crate::kernel::request::Request;
use crate::moves::Moves;
use crate::stats::Stats;
use crate::virtuals::{self, Mount};

/// The node id that the kernel has for the root of a mount.
const ROOT_NODE: u64 = 1;

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
    posix: Posix,
    status: Status,
    /// What brings the kernel's requests; set once it does.
    engine: OnceLock<Kind>,
    stats: Arc<Stats>,
    jobs: Jobs,
    questions: Questions,
    moves: Moves,
}

impl Ops {
    /// The operations of a mount of `client`, which says `status` of itself.
    pub fn new(rt: Rt, client: Arc<Client>, status: Status, access_times: AccessTimes) -> Ops {
        let posix = Posix::new(client.clone(), access_times);
        Ops {
            client,
            posix,
            status,
            engine: OnceLock::new(),
            stats: Arc::new(Stats::new(rt.clone())),
            jobs: Jobs::new(rt),
            questions: Questions::default(),
            moves: Moves::default(),
        }
    }

    /// What programs do through descriptors, and directories.
    pub fn posix(&self) -> &Posix {
        &self.posix
    }

    /// The kernel keeps copies, and `copies` has it forget them.
    pub fn set_copies(&self, copies: Arc<dyn client::Copies>) {
        self.client.set_copies(copies);
    }

    /// What the mount offers to programs.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What the kernel asked for.
    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// To which job a request belongs.
    pub(crate) fn job_of(&self, request: &Request<'_>) -> JobId {
        let Request { uid, gid, pid, operation, .. } = request;
        let asker = Asker { thread: *pid, uid: *uid, gid: *gid };
        self.jobs.of(asker, Asks::of(operation), |handle| self.client.files().job_of(Handle(handle)))
    }

    /// Requests come from the kernel by `engine`.
    pub fn served_by(&self, engine: Kind) {
        // An engine is started once for each mount.
        let _ = self.engine.set(engine);
    }

    /// What the mount says of itself.
    pub(crate) fn status(&self) -> Status {
        let fuse_engine = self.engine.get().map(|engine| engine.name().to_owned());
        Status { fuse_engine, ..self.status.clone() }
    }

    /// What a name in a directory means.
    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> Result<Told> {
        Ok(self.client.names().lookup(caller, parent, name).await?)
    }

    /// Attributes.
    pub async fn getattr(&self, fid: Fid) -> Result<Told> {
        self.posix().getattr(fid).await
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> Result<Bytes> {
        Ok(self.client.names().readlink(fid).await?)
    }

    /// mknod, mkdir and symlink.
    pub async fn make(&self, caller: &Caller, new: NewFile<'_>) -> Result<Told> {
        Ok(self.client.names().make(caller, new.parent, new.name, new.mode, new.rdev, new.target).await?)
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

    /// fsync of a file.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        Ok(self.client.files().fsync(handle).await?)
    }

    /// The file of an entry, if it is known without asking anybody.
    pub fn entry(&self, dir: Fid, entry: &PageEntry) -> Option<Told> {
        self.client.names().entry(dir, entry)
    }

    /// Space of the file system, or of the project of a directory.
    pub async fn statfs(&self, fid: Fid) -> Result<Space> {
        let admin = self.client.admin();
        let all = admin.statfs().await?;
        let of_project = Box::pin(crate::projects::space(&self.client, fid, all));
        Ok(admin.glance(of_project).await.unwrap_or(all))
    }

    pub(crate) fn mount<'a>(&'a self, status: &'a Status) -> Mount<'a> {
        let Ops { client, stats, jobs, questions, moves, .. } = self;
        Mount { client, stats, jobs, status, questions, moves }
    }

    /// Value of an extended attribute.
    pub async fn get_xattr(&self, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Bytes> {
        if virtuals::is_virtual(name) {
            let status = self.status();
            let mount = self.mount(&status);
            return Ok(Box::pin(virtuals::get(mount, caller, fid, name)).await?.into());
        }
        supported(name)?;
        Ok(self.client.names().get_xattr(caller, fid, name).await?)
    }

    /// Has the data of a file moved, as [`Moves::wish`] was told under `word`.
    pub async fn carry_out_move(
        &self,
        caller: &Caller,
        (fid, word): (Fid, &[u8]),
        has_begun: &AtomicBool,
    ) -> Result<Vec<u8>> {
        let word = std::str::from_utf8(word).map_err(|_| Errno::NO_ATTRIBUTE)?;
        self.moves.carry_out(&self.client, caller, (fid, word), has_begun).await
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
        if virtuals::is_virtual(name) {
            let status = self.status();
            let mount = self.mount(&status);
            return Box::pin(virtuals::set(mount, caller, fid, name, &value)).await;
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
            return Box::pin(virtuals::remove(&self.client, caller, fid, name)).await;
        }
        supported(name)?;
        // The kernel asks for this when a write, a truncate or a change of owner takes capabilities away, as whoever made it. From
        // everybody else it demands the right to give them.
        let root = (name == XATTR_CAPABILITY).then(Caller::root);
        Ok(self.client.names().remove_xattr(root.as_ref().unwrap_or(caller), fid, name).await?)
    }
}

/// Of the names of the system there are those of ACLs.
fn supported(name: &[u8]) -> Result<()> {
    let acl = name == XATTR_ACCESS || name == XATTR_DEFAULT;
    if name.starts_with(b"system.") && !acl { Err(Errno::NOT_SUPPORTED) } else { Ok(()) }
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
    fn of_the_systems_attributes_there_are_acls() {
        assert_eq!(supported(b"system.posix_acl_access"), Ok(()));
        assert_eq!(supported(b"system.nfs4_acl"), Err(Errno::NOT_SUPPORTED));
        assert_eq!(supported(b"user.a"), Ok(()));
    }
}
