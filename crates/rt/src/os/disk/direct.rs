//! The synchronous half of file I/O: whole reads and writes on a pair of descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::buf::{ALIGN, AlignedBuf, is_aligned};

/// Most slices that one system call takes (Linux IOV_MAX).
const SLICES_MAX: usize = 1024;
/// Largest unaligned write that is copied to aligned memory, in bytes; the page cache takes longer ones.
const COPY_BYTES_MAX: usize = 4 << 20;
/// Zeros written at once where a file system cannot make them by itself, in bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// One file, opened twice.
pub(super) struct Pair {
    buffered: Arc<OwnedFd>,
    direct: Option<Arc<OwnedFd>>,
    /// The file system took the open and refused an operation, for an alignment that we do not know.
    refused: AtomicBool,
}

impl Pair {
    pub(super) fn new(buffered: OwnedFd, direct: Option<OwnedFd>) -> Pair {
        Pair { buffered: Arc::new(buffered), direct: direct.map(Arc::new), refused: AtomicBool::new(false) }
    }

    /// The file through the page cache.
    pub(super) fn buffered(&self) -> &Arc<OwnedFd> {
        &self.buffered
    }

    /// The file past the page cache, if its file system can do that.
    pub(super) fn direct(&self) -> Option<&Arc<OwnedFd>> {
        self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    /// Writes all of `slices`, past the page cache if offset and length allow it.
    pub(super) fn write_large(&self, offset: u64, slices: &[Bytes], total: usize) -> io::Result<()> {
        let Some(fd) = self.direct() else { return self.write(offset, slices) };
        if !offset.is_multiple_of(ALIGN as u64) || !total.is_multiple_of(ALIGN) {
            return self.write(offset, slices);
        }
        let done = if slices.iter().all(|slice| is_aligned(slice, 0)) {
            write_some(fd, offset, slices)
        } else if total <= COPY_BYTES_MAX {
            write_some(fd, offset, &[gather(slices, total)])
        } else {
            Ok(0)
        };
        match done {
            Ok(done) => write_rest(&self.buffered, offset, slices, done),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.refused.store(true, Ordering::Relaxed);
                self.write(offset, slices)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes all of `slices` through the page cache.
    pub(super) fn write(&self, offset: u64, slices: &[Bytes]) -> io::Result<()> {
        write_rest(&self.buffered, offset, slices, 0)
    }

    /// Reads up to `len` bytes, past the page cache if the offset allows it.
    pub(super) fn read_large(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut buf = AlignedBuf::for_overwrite(len.next_multiple_of(ALIGN));
        let mut filled = 0;
        if let Some(fd) = self.direct().filter(|_| offset.is_multiple_of(ALIGN as u64)) {
            filled = match read_direct(fd, offset, buf.as_mut()) {
                Ok(filled) => filled,
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    self.refused.store(true, Ordering::Relaxed);
                    0
                }
                Err(error) => return Err(error.into()),
            };
        }
        buf.truncate(len);
        // The end of a file need not be aligned, and only a buffered read can say that nothing follows.
        let filled = filled.min(len);
        let filled = filled + self.fill(offset + filled as u64, &mut buf.as_mut()[filled..])?;
        buf.truncate(filled);
        Ok(buf.freeze())
    }

    /// Reads up to `len` bytes through the page cache.
    pub(super) fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut buf = vec![0; len];
        let filled = self.fill(offset, &mut buf)?;
        buf.truncate(filled);
        Ok(Bytes::from(buf))
    }

    /// What [`Pair::read`] gives, if the page cache has all of it.
    pub(super) fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut buf = vec![0; len];
        let slices = &mut [IoSliceMut::new(&mut buf)];
        let filled = rustix::io::preadv2(&self.buffered, slices, offset, ReadWriteFlags::NOWAIT).ok()?;
        // Less may mean the end of the file or of what is cached.
        (filled == len).then(|| Bytes::from(buf))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(retry(|| rustix::fs::fdatasync(&self.buffered))?)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.buffered)?.st_size).unwrap_or(0))
    }

    pub(super) fn space(&self) -> io::Result<u64> {
        // In units of 512 bytes, whatever the size of the file system's blocks.
        Ok(u64::try_from(rustix::fs::fstat(&self.buffered)?.st_blocks).unwrap_or(0) * 512)
    }

    pub(super) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match retry(|| rustix::fs::fallocate(&self.buffered, FallocateFlags::empty(), offset, len)) {
            Err(Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(len);
                self.write_zeros(offset.max(self.len()?), end)
            }
            result => Ok(result?),
        }
    }

    pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry(|| rustix::fs::fallocate(&self.buffered, flags, offset, len)) {
            Err(Errno::OPNOTSUPP) => {
                let end = offset.saturating_add(len).min(self.len()?);
                self.write_zeros(offset, end)
            }
            result => Ok(result?),
        }
    }

    pub(super) fn empty(&self) -> io::Result<()> {
        Ok(retry(|| rustix::fs::ftruncate(&self.buffered, 0))?)
    }

    fn write_zeros(&self, mut offset: u64, end: u64) -> io::Result<()> {
        let zeros = Bytes::from(vec![0; ZEROS_BYTES]);
        while offset < end {
            let len = usize::try_from(end - offset).unwrap_or(usize::MAX).min(ZEROS_BYTES);
            self.write(offset, &[zeros.slice(..len)])?;
            offset += len as u64;
        }
        Ok(())
    }

    /// Reads until `buf` is full or the file ends.
    fn fill(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match retry(|| rustix::io::pread(&self.buffered, &mut buf[filled..], offset + filled as u64))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Reads aligned blocks into `buf` until it is full, or until a read is short: that is the end of the file, or
/// leaves a place where an aligned read cannot go on.
fn read_direct(fd: &OwnedFd, offset: u64, buf: &mut [u8]) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() && filled.is_multiple_of(ALIGN) {
        match retry(|| rustix::io::pread(fd, &mut buf[filled..], offset + filled as u64))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Writes aligned slices until all is written or a write ends where an aligned one cannot go on.
fn write_some(fd: &OwnedFd, offset: u64, slices: &[Bytes]) -> rustix::io::Result<usize> {
    let mut vectors: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let mut rest = vectors.as_mut_slice();
    let mut done = 0;
    while !rest.is_empty() && done % ALIGN == 0 {
        let now = &rest[..rest.len().min(SLICES_MAX)];
        let count = retry(|| rustix::io::pwritev(fd, now, offset + done as u64))?;
        if count == 0 {
            break;
        }
        IoSlice::advance_slices(&mut rest, count);
        done += count;
    }
    Ok(done)
}

/// Writes what is behind the first `done` bytes of `slices` through the page cache.
fn write_rest(fd: &OwnedFd, offset: u64, slices: &[Bytes], mut done: usize) -> io::Result<()> {
    let mut vectors: Vec<IoSlice<'_>> =
        slices.iter().filter(|slice| !slice.is_empty()).map(|slice| IoSlice::new(slice)).collect();
    let mut rest = vectors.as_mut_slice();
    IoSlice::advance_slices(&mut rest, done);
    while !rest.is_empty() {
        let now = &rest[..rest.len().min(SLICES_MAX)];
        let count = retry(|| rustix::io::pwritev(fd, now, offset + done as u64))?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, count);
        done += count;
    }
    Ok(())
}

fn gather(slices: &[Bytes], total: usize) -> Bytes {
    let mut buf = AlignedBuf::for_overwrite(total);
    let mut at = 0;
    for slice in slices {
        buf.as_mut()[at..at + slice.len()].copy_from_slice(slice);
        at += slice.len();
    }
    buf.freeze()
}
