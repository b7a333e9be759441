//! An image behind the kernel's page cache, as a file that this process serves to itself and to what it starts.
//!
//! A program that works on an image block by block would send each block of 4 KiB to the shared file system. Nobody else has the image, so
//! the kernel may keep what is written: it sends large pieces, at fsync or after a while.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};

use client::posix::Errno;
use fuse::engine::{self, Choice, Ends, Reply, Serve, Wanted, dev};
use fuse::kernel::abi::{AttrOut, EntryOut, FileAttr, OpenOut, StatfsOut, fopen};
use fuse::kernel::init::Wish;
use fuse::kernel::reply::Answer;
use fuse::kernel::request::{Operation, Request};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::record::own_ids;

/// Nodes: the directory, and the one file in it.
const ROOT: u64 = 1;
const IMAGE: u64 = 2;
/// The name of that file.
const NAME: &str = "image";
/// Seconds for which the kernel may believe an answer: nothing changes but by itself.
const VALID: u64 = 1 << 30;

/// The file is mounted, and served.
pub struct Paged {
    at: PathBuf,
    ended: mpsc::Receiver<io::Result<()>>,
    lost: Arc<Lost>,
}

/// The first failure of a write, as an error number; 0 for none. The kernel writes when nobody waits, and the program that is told
/// of it says nothing.
#[derive(Default)]
struct Lost(AtomicI32);

impl Lost {
    fn note(&self, error: io::Error) -> Errno {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        // Only the first one counts.
        let _ = self.0.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        Errno(number)
    }

    fn get(&self) -> io::Result<()> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl Paged {
    /// Serves `file` in the directory `at`. This process has a table of mounts of its own, and may mount.
    pub fn begin(file: &File, at: &Path) -> io::Result<Paged> {
        let file = file.try_clone()?;
        let lost = Arc::new(Lost::default());
        let serve = Image { size: file.metadata()?.len(), file, lost: lost.clone() };
        let device = dev::open()?;
        let (uid, gid) = own_ids();
        let data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
        let data = CString::new(data).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        mount("weft-rankfs", at, "fuse.weft-rankfs", flags, data.as_c_str())?;
        let (tell, ended) = mpsc::channel();
        let place = at.to_owned();
        let abort = move || {
            // If it is not mounted any more, nothing waits.
            let _ = unmount(&place, UnmountFlags::FORCE | UnmountFlags::DETACH);
        };
        let on_end = move |result| {
            // Nobody may wait any more.
            let _ = tell.send(result);
        };
        let wish = Wish { writeback: true, ..Wish::default() };
        let wanted = Wanted { choice: Choice::Dev, wish, reactors: None };
        let ends = Ends { abort: Box::new(abort), on_end: Box::new(on_end) };
        engine::start(&Arc::new(device), wanted, Arc::new(serve), ends)?;
        Ok(Paged { at: at.to_owned(), ended, lost })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.at.join(NAME)
    }

    /// Nobody uses the file any more: has all of it reach the shared file system, and ends.
    ///
    /// # Errors
    /// Something that was written did not reach it.
    pub fn end(self) -> io::Result<()> {
        let synced = File::open(self.path()).and_then(|file| file.sync_all());
        unmount(&self.at, UnmountFlags::NOFOLLOW)?;
        let ended = self.ended.recv().map_err(io::Error::other)?;
        self.lost.get().and(synced).and(ended)
    }
}

/// A directory with one file, which has one size.
struct Image {
    file: File,
    size: u64,
    lost: Arc<Lost>,
}

impl Image {
    fn attr(&self, node: u64) -> FileAttr {
        let (mode, size) =
            if node == ROOT { (libc::S_IFDIR | 0o500, 0) } else { (libc::S_IFREG | 0o600, self.size) };
        let (uid, gid) = own_ids();
        let blocks = size.div_ceil(512);
        FileAttr { ino: node, size, blocks, mode, nlink: 1, uid, gid, blksize: 4096, ..FileAttr::default() }
    }

    fn answer(&self, request: &Request<'_>) -> Result<Answer, Errno> {
        let failed = |error: io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
        match &request.operation {
            Operation::Lookup { name } if *name == NAME.as_bytes() => Ok(Answer::Entry(EntryOut {
                nodeid: IMAGE,
                entry_valid: VALID,
                attr_valid: VALID,
                attr: self.attr(IMAGE),
                ..EntryOut::default()
            })),
            Operation::Lookup { .. } => Err(Errno(libc::ENOENT)),
            // Times are the kernel's, and nobody asks for them later.
            Operation::GetAttr { .. } | Operation::SetAttr(_) => Ok(Answer::Attr(AttrOut {
                attr_valid: VALID,
                attr: self.attr(request.node),
                ..AttrOut::default()
            })),
            Operation::Open { .. } => {
                Ok(Answer::Opened(OpenOut { open_flags: fopen::KEEP_CACHE, ..OpenOut::default() }))
            }
            Operation::Read(read) => {
                let left = self.size.saturating_sub(read.offset).min(u64::from(read.size));
                let mut bytes = vec![0; left as usize];
                self.file.read_exact_at(&mut bytes, read.offset).map_err(failed)?;
                Ok(Answer::Slices(vec![bytes.into()]))
            }
            Operation::Write(write) => {
                let end = write.offset.saturating_add(write.data.len() as u64);
                if end > self.size {
                    return Err(Errno(libc::EFBIG));
                }
                let written = self.file.write_all_at(write.data, write.offset);
                written.map_err(|error| self.lost.note(error))?;
                Ok(Answer::Written(write.data.len() as u32))
            }
            Operation::Fsync { .. } => {
                let synced = self.file.sync_data();
                synced.map(|()| Answer::Done).map_err(|error| self.lost.note(error))
            }
            Operation::StatFs => Ok(Answer::Statfs(StatfsOut::default())),
            Operation::Flush { .. } | Operation::Release { .. } => Ok(Answer::Done),
            _ => Err(Errno(libc::ENOSYS)),
        }
    }
}

impl Serve for Image {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        match request.operation {
            Operation::Forget { .. }
            | Operation::BatchForget { .. }
            | Operation::NotifyReply
            | Operation::Interrupt { .. } => reply.none(),
            _ => reply.send(self.answer(&request)),
        }
    }

    fn gone(&self) {}
}
