//! A file system that keeps names and sizes in a hash table, data nowhere, and lists nothing, on the engines of this crate: what FUSE itself takes of each
//! operation on a machine (`tools/bench-null.sh`). `null DIRECTORY [uring|dev]` serves until it is unmounted.

// A measuring program is an edge.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

extern crate weft_fuse as fuse;

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use client::posix::Errno;
use fuse::engine::{self, Choice, Ends, Reply, Serve, Wanted, dev};
use fuse::kernel::abi::{AttrOut, EntryOut, FileAttr, OpenOut, StatfsOut};
use fuse::kernel::init::Wish;
use fuse::kernel::reply::{Answer, Entries};
use fuse::kernel::request::{Operation, Request};
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags};

/// The node of the root.
const ROOT: u64 = 1;
/// Seconds for which the kernel may believe an answer.
const VALID: u64 = 3600;
/// As a weft mount opens what is written to: past the kernel's page cache (`FOPEN_DIRECT_IO`, `FOPEN_PARALLEL_DIRECT_WRITES`).
const PAST_THE_CACHE: u32 = 1 | 1 << 6;

/// Parts of the table, each behind a lock of its own.
const PARTS: usize = 64;

/// What is known of a node.
#[derive(Clone, Copy)]
struct Node {
    mode: u32,
    size: u64,
}

/// What each name in a directory means.
type Names = HashMap<(u64, Vec<u8>), u64>;

/// Names and nodes.
struct Null {
    next: AtomicU64,
    names: Vec<Mutex<Names>>,
    nodes: Vec<Mutex<HashMap<u64, Node>>>,
}

impl Null {
    fn new() -> Null {
        let names = (0..PARTS).map(|_| Mutex::default()).collect();
        let nodes: Vec<Mutex<HashMap<u64, Node>>> = (0..PARTS).map(|_| Mutex::default()).collect();
        nodes[ROOT as usize % PARTS].lock().insert(ROOT, Node { mode: 0o40_777, size: 0 });
        Null { next: AtomicU64::new(ROOT + 1), names, nodes }
    }

    fn names(&self, parent: u64) -> &Mutex<Names> {
        &self.names[parent as usize % PARTS]
    }

    fn nodes(&self, node: u64) -> &Mutex<HashMap<u64, Node>> {
        &self.nodes[node as usize % PARTS]
    }

    fn attr(&self, node: u64) -> Result<FileAttr, Errno> {
        let Some(Node { mode, size }) = self.nodes(node).lock().get(&node).copied() else {
            return Err(Errno(libc::ESTALE));
        };
        Ok(FileAttr {
            ino: node,
            size,
            blocks: size.div_ceil(512),
            mode,
            nlink: 1,
            blksize: 4096,
            ..FileAttr::default()
        })
    }

    fn entry(&self, node: u64) -> Result<EntryOut, Errno> {
        let attr = self.attr(node)?;
        Ok(EntryOut { nodeid: node, entry_valid: VALID, attr_valid: VALID, attr, ..EntryOut::default() })
    }

    fn make(&self, parent: u64, name: &[u8], mode: u32) -> Result<EntryOut, Errno> {
        let node = self.next.fetch_add(1, Ordering::Relaxed);
        self.nodes(node).lock().insert(node, Node { mode, size: 0 });
        self.names(parent).lock().insert((parent, name.to_vec()), node);
        self.entry(node)
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<EntryOut, Errno> {
        let node = self.names(parent).lock().get(&(parent, name.to_vec())).copied();
        node.ok_or(Errno(libc::ENOENT)).and_then(|node| self.entry(node))
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<Answer, Errno> {
        let node = self.names(parent).lock().remove(&(parent, name.to_vec()));
        let node = node.ok_or(Errno(libc::ENOENT))?;
        self.nodes(node).lock().remove(&node);
        Ok(Answer::Done)
    }

    fn answer(&self, request: Request<'_>) -> Result<Answer, Errno> {
        let node = request.node;
        let attr = |node| {
            self.attr(node)
                .map(|attr| Answer::Attr(AttrOut { attr_valid: VALID, attr, ..AttrOut::default() }))
        };
        match request.operation {
            Operation::Lookup { name } => self.lookup(node, name).map(Answer::Entry),
            Operation::GetAttr { .. } | Operation::SetAttr(_) => attr(node),
            Operation::MkDir { name, mode, .. } => {
                self.make(node, name, mode | libc::S_IFDIR).map(Answer::Entry)
            }
            Operation::Create { name, mode, .. } => {
                let entry = self.make(node, name, mode | libc::S_IFREG)?;
                Ok(Answer::Created(entry, OpenOut { open_flags: PAST_THE_CACHE, ..OpenOut::default() }))
            }
            Operation::Unlink { name } | Operation::RmDir { name } => self.remove(node, name),
            Operation::Open { flags, .. } if flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY => {
                Ok(Answer::Opened(OpenOut { open_flags: PAST_THE_CACHE, ..OpenOut::default() }))
            }
            Operation::Open { .. } | Operation::OpenDir { .. } => Ok(Answer::Opened(OpenOut::default())),
            Operation::Write(write) => {
                let len = write.data.len() as u64;
                if let Some(node) = self.nodes(node).lock().get_mut(&node) {
                    node.size = node.size.max(write.offset + len);
                }
                Ok(Answer::Written(len as u32))
            }
            Operation::Read(read) => Ok(Answer::Slices(vec![vec![0; read.size as usize].into()])),
            Operation::ReadDir { size, .. } => Ok(Entries::new(size).finish()),
            Operation::GetXattr { .. } => Err(Errno(libc::ENODATA)),
            Operation::StatFs => Ok(Answer::Statfs(StatfsOut::default())),
            Operation::Statx { .. }
            | Operation::Ioctl
            | Operation::Poll
            | Operation::Init(_)
            | Operation::Unknown(_) => Err(Errno(libc::ENOSYS)),
            _ => Ok(Answer::Done),
        }
    }
}

impl Serve for Null {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        match request.operation {
            Operation::Forget { .. } | Operation::BatchForget { .. } | Operation::NotifyReply => reply.none(),
            Operation::Interrupt { .. } => reply.none(),
            _ => reply.send(self.answer(request)),
        }
    }

    fn gone(&self) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the directory to mount on");
    let choice: Choice = arguments.next().map_or(Ok(Choice::Auto), |name| name.parse()).expect("an engine");
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let node = rt::os::Node::start(cores).expect("a runtime starts");
    let rt = rt::Rt::os(node.clone());
    let device = dev::open().expect("/dev/fuse opens");
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let data = CString::new(data).expect("the text has no NUL");
    rustix::mount::mount("null", Path::new(&path), "fuse.null", MountFlags::empty(), Some(data.as_c_str()))
        .expect("it is mounted");
    let (ended, end) = mpsc::channel();
    let broken = path.clone();
    let abort = move || {
        let _ = rustix::mount::unmount(&broken, UnmountFlags::FORCE | UnmountFlags::DETACH);
    };
    let on_end = move |result| {
        let _ = ended.send(result);
    };
    let wish = Wish { locks: true, acl: true, readdirplus: true, ..Wish::default() };
    let wanted = Wanted { choice, wish, reactors: rt.reactors() };
    let ends = Ends { abort: Box::new(abort), on_end: Box::new(on_end) };
    let (kind, _) =
        engine::start(&Arc::new(device), wanted, Arc::new(Null::new()), ends).expect("the engine starts");
    println!("{}", kind.name());
    let _ = end.recv();
    node.stop(Duration::from_secs(1));
}
