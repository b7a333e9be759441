//! The disk of a simulated machine.
//!
//! Small writes go to memory and are done at once; large ones take time and go on when their future is dropped, as
//! syncs do. What a crash leaves: of each sector written since the last sync any state since
//! then, and of each name changed since the last sync of its directory the change or not.

mod heads;
mod image;
mod names;
pub(super) mod state;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use self::state::Request;
use super::node::Node;
use super::slab::Key;
use super::world::World;
use crate::disk::Space;

/// From here on a write takes time.
const LARGE_BYTES: u64 = 64 << 10;

/// A node's disk.
#[derive(Clone)]
pub struct Disk {
    node: Node,
}

/// A directory that the caller owns.
#[derive(Clone)]
pub struct Dir {
    node: Node,
    number: u64,
}

/// An open file.
#[derive(Clone)]
pub struct File {
    open: Arc<Open>,
}

/// Keeps a file without a name alive.
struct Open {
    node: Node,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let node = &self.node;
        node.shared.with(|world| world.close_file(node.id, node.incarnation, self.number));
    }
}

/// Gives up waiting for an operation when it is dropped.
struct Waiting<'a> {
    node: &'a Node,
    operation: Key,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.node.shared.with(|world| world.abandon_disk(self.operation));
    }
}

/// Changes or asks the disk here and now, then waits for as long as that takes.
async fn name_operation<R>(
    node: &Node,
    operation: impl FnOnce(&mut state::Disk) -> io::Result<R>,
) -> io::Result<R> {
    let (result, done_at) = node.shared.with(|world| {
        let result = operation(world.disk(node.id, node.incarnation)?)?;
        Ok::<_, io::Error>((result, world.name_done_at(node.id)))
    })?;
    node.sleep_until_ns(done_at).await;
    Ok(result)
}

/// Begins work that goes on by itself, and waits for it.
async fn work(node: &Node, request: Request) -> io::Result<()> {
    let operation = node.shared.with(|world| world.begin_disk(node.id, node.incarnation, request))?;
    let waiting = Waiting { node, operation };
    poll_fn(|cx| node.shared.with(|world| world.poll_disk(waiting.operation, cx.waker()))).await
}

impl Disk {
    pub(super) fn new(node: Node) -> Disk {
        Disk { node }
    }

    /// Opens the directory at `path`.
    pub async fn open_dir(&self, path: &str) -> io::Result<Dir> {
        let number = name_operation(&self.node, |disk| disk.find_dir(path)).await?;
        Ok(Dir { node: self.node.clone(), number })
    }

    /// Makes the directory at `path` and those above it, durably, and opens it.
    pub async fn create_dir(&self, path: &str) -> io::Result<Dir> {
        let number = name_operation(&self.node, |disk| disk.make_dirs(self.node.id, path)).await?;
        Ok(Dir { node: self.node.clone(), number })
    }
}

impl Dir {
    /// Makes a file that must not exist.
    pub async fn create(&self, name: &str) -> io::Result<File> {
        let open = |number| File { open: Arc::new(Open { node: self.node.clone(), number }) };
        name_operation(&self.node, |disk| disk.create(self.node.id, self.number, name).map(open)).await
    }

    /// Opens an existing file.
    pub async fn open(&self, name: &str) -> io::Result<File> {
        let open = |number| File { open: Arc::new(Open { node: self.node.clone(), number }) };
        name_operation(&self.node, |disk| disk.open(self.node.id, self.number, name).map(open)).await
    }

    /// Waits for as long as a look-up takes; whether what was looked up before is to be forgotten.
    pub async fn look_up_time(&self) -> bool {
        let node = &self.node;
        let Some(done_at) = node.shared.with(|world| world.look_up_done_at(node.id)) else { return false };
        node.sleep_until_ns(done_at).await;
        node.shared.with(|world| world.forgets(node.id))
    }

    /// Whether a look-up fails.
    pub fn look_up_result(&self) -> io::Result<()> {
        self.node.shared.with(|world| world.look_up(self.node.id))
    }

    /// Names of all files and directories, sorted.
    pub async fn list(&self) -> io::Result<Vec<String>> {
        name_operation(&self.node, |disk| disk.list(self.node.id, self.number)).await
    }

    /// Takes a file's name away.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        name_operation(&self.node, |disk| disk.remove(self.node.id, self.number, name)).await
    }

    /// Renames a file over another.
    pub async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        name_operation(&self.node, |disk| disk.rename(self.node.id, self.number, from, to)).await
    }

    /// Makes the names in the directory durable.
    pub async fn sync(&self) -> io::Result<()> {
        work(&self.node, Request::SyncDir { dir: self.number }).await
    }

    /// Makes a directory inside this one, if it is not there, and opens it.
    pub async fn subdir(&self, name: &str) -> io::Result<Dir> {
        let number = name_operation(&self.node, |disk| disk.subdir(self.node.id, self.number, name)).await?;
        Ok(Dir { node: self.node.clone(), number })
    }

    /// Takes the directory for this incarnation of the node.
    pub async fn lock(&self) -> io::Result<()> {
        let by = (self.node.id, self.node.incarnation);
        name_operation(&self.node, |disk| disk.lock(self.number, by)).await
    }

    /// Gives the directory back.
    pub async fn unlock(&self) -> io::Result<()> {
        let by = (self.node.id, self.node.incarnation);
        name_operation(&self.node, |disk| disk.unlock(self.number, by)).await
    }

    /// Space of the disk.
    pub async fn space(&self) -> io::Result<Space> {
        name_operation(&self.node, |disk| Ok(disk.space())).await
    }
}

impl File {
    fn node(&self) -> &Node {
        &self.open.node
    }

    /// Does something with the world here and now, if the incarnation lives.
    fn at_once<R>(&self, action: impl FnOnce(&mut World) -> io::Result<R>) -> io::Result<R> {
        let node = self.node();
        node.shared.with(|world| {
            world.disk(node.id, node.incarnation)?;
            action(world)
        })
    }

    /// Whether `other` is a clone of this one.
    pub fn is_same(&self, other: &File) -> bool {
        Arc::ptr_eq(&self.open, &other.open)
    }

    /// Reads up to `len` bytes at `offset`; short only at the end of the file.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        check_range(offset, len as u64)?;
        let node = self.node();
        let done_at = self.at_once(|world| Ok(world.read_done_at(node.id, offset, len)))?;
        node.sleep_until_ns(done_at).await;
        self.at_once(|world| {
            world.disk(node.id, node.incarnation)?.read(node.id, self.open.number, offset, len)
        })
    }

    /// Writes all of `slices`, one behind the other, at `offset`.
    pub async fn write_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        let len: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        check_range(offset, len)?;
        let (node, file) = (self.node(), self.open.number);
        // What others could see late, does.
        let is_shared = || node.shared.with(|world| world.disk_of(node.id).is_shared);
        if len >= LARGE_BYTES || is_shared() {
            return work(node, Request::Write { file, offset, slices }).await;
        }
        self.at_once(|world| world.write(node.id, file, offset, &slices))
    }

    /// Makes everything written before the call durable.
    pub async fn sync(&self) -> io::Result<()> {
        work(self.node(), Request::SyncFile { file: self.open.number }).await
    }

    /// Reserves `[offset, offset + len)`; grows the file.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        let node = self.node();
        let done_at = self.at_once(|world| {
            world.allocate(node.id, self.open.number, offset, len)?;
            Ok(world.name_done_at(node.id))
        })?;
        node.sleep_until_ns(done_at).await;
        Ok(())
    }

    /// Gives the space of `[offset, offset + len)` back; it reads as zeros.
    pub async fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        let node = self.node();
        name_operation(node, |disk| disk.punch(node.id, self.open.number, offset, len)).await
    }

    /// Bytes of the disk that the file takes.
    pub async fn space(&self) -> io::Result<u64> {
        let node = self.node();
        self.at_once(|world| world.disk(node.id, node.incarnation)?.space_of(self.open.number))
    }

    /// Bytes of the file.
    pub async fn len(&self) -> io::Result<u64> {
        let node = self.node();
        self.at_once(|world| world.disk(node.id, node.incarnation)?.len(self.open.number))
    }
}

fn check_range(offset: u64, len: u64) -> io::Result<()> {
    if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}
