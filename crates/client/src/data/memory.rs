//! Memory of the write-behind cache: aligned like the object it goes to, recycled when it has the size of a chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rt::buf::{ALIGN, AlignedBuf};
use rt::memory::User;

use crate::order::{LEAF, Mutex};

/// Free chunk buffers kept for the next write, in bytes. A fresh buffer costs a page fault every 4 KiB.
const FREE_BYTES_MAX: u64 = 64 << 20;
/// The same as a part of what may be cached.
const FREE_PART: u64 = 8;

/// Hands out buffers.
#[derive(Clone)]
pub(crate) struct Memory {
    chunk_bytes: usize,
    free: Arc<Mutex<LEAF, Vec<AlignedBuf>>>,
    /// Most free buffers that are kept.
    free_max: Arc<AtomicUsize>,
    /// Accounts for those that are free.
    user: Arc<User>,
}

impl Memory {
    /// For a client that may cache `cached_max` bytes.
    pub(crate) fn new(chunk_bytes: usize, cached_max: u64, user: User) -> Memory {
        let memory =
            Memory { chunk_bytes, free: Arc::default(), free_max: Arc::default(), user: Arc::new(user) };
        memory.set_cached_max(cached_max);
        memory
    }

    /// From now on `cached_max` bytes may be cached: free buffers that are too many for that go.
    pub(crate) fn set_cached_max(&self, cached_max: u64) {
        let bytes = (cached_max / FREE_PART).min(FREE_BYTES_MAX);
        let max = bytes as usize / self.chunk_bytes;
        self.free_max.store(max, Ordering::Relaxed);
        self.keep(max);
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes as u64
    }

    /// Gives all free buffers back.
    pub(crate) fn give_back(&self) {
        self.keep(0);
    }

    fn keep(&self, max: usize) {
        let mut free = self.free.lock();
        let before = free.len();
        free.truncate(max);
        free.shrink_to_fit();
        self.user.sub(((before - free.len()) * self.chunk_bytes) as u64);
    }

    /// A buffer for `len` bytes that begin at `offset` in the object. Where a disk could take them directly, they
    /// lie in memory as in the object. The contents are whatever a former user left: only what was written since
    /// may be looked at.
    pub(crate) fn buffer(&self, offset: u64, len: usize) -> Buffer {
        if len < ALIGN {
            return Buffer { head: 0, kind: Kind::Small(vec![0; len]) };
        }
        let head = (offset % ALIGN as u64) as usize;
        let size = head + len;
        if size != self.chunk_bytes {
            return Buffer { head, kind: Kind::Own(AlignedBuf::for_overwrite(size)) };
        }
        let recycled = self.free.lock().pop();
        recycled.iter().for_each(|_| self.user.sub(self.chunk_bytes as u64));
        let buf = recycled.unwrap_or_else(|| AlignedBuf::for_overwrite(size));
        Buffer { head, kind: Kind::Chunk(Recycled { buf: Some(buf), home: self.clone() }) }
    }
}

/// A buffer that one writer fills.
pub(crate) struct Buffer {
    /// Bytes in front that only align the rest.
    head: usize,
    kind: Kind,
}

enum Kind {
    Small(Vec<u8>),
    Own(AlignedBuf),
    Chunk(Recycled),
}

struct Recycled {
    buf: Option<AlignedBuf>,
    home: Memory,
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |buf| buf.as_ref())
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let Some(buf) = self.buf.take() else { return };
        if self.home.user.memory().is_short() {
            return;
        }
        let mut free = self.home.free.lock();
        if free.len() < self.home.free_max.load(Ordering::Relaxed) {
            free.push(buf);
            self.home.user.add(self.home.chunk_bytes as u64);
        }
    }
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        let all = match &self.kind {
            Kind::Small(vec) => vec,
            Kind::Own(buf) => buf.as_ref(),
            Kind::Chunk(recycled) => recycled.as_ref(),
        };
        &all[self.head..]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.kind {
            Kind::Small(vec) => vec,
            Kind::Own(buf) => buf.as_mut(),
            Kind::Chunk(recycled) => recycled.buf.as_mut().map_or(&mut [][..], |buf| buf.as_mut()),
        };
        &mut all[self.head..]
    }

    /// Gives up the first `len` bytes.
    pub(crate) fn advance(&mut self, len: usize) {
        self.head += len;
    }

    /// Shares the buffer; from now on nobody changes it.
    pub(crate) fn freeze(self) -> Bytes {
        let all = match self.kind {
            Kind::Small(vec) => Bytes::from(vec),
            Kind::Own(buf) => buf.freeze(),
            Kind::Chunk(recycled) => Bytes::from_owner(recycled),
        };
        all.slice(self.head..)
    }
}

#[cfg(test)]
impl Memory {
    /// For tests: of a process with much memory.
    pub(crate) fn of_test(chunk_bytes: usize) -> Memory {
        let memory = rt::memory::Share::of(1 << 40).memory().clone();
        Memory::new(chunk_bytes, 1 << 30, memory.user("buffers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_goes_to_disk_without_a_copy_and_comes_back() {
        let memory = Memory::of_test(1 << 20);
        let bytes = memory.buffer(3 << 20, 1 << 20).freeze();
        assert!(rt::buf::is_aligned(&bytes, 3 << 20));
        let address = bytes.as_ptr();
        drop(bytes.clone());
        assert!(memory.free.lock().is_empty());
        drop(bytes);
        assert_eq!(memory.buffer(0, 1 << 20).bytes().as_ptr(), address);
        assert_eq!(memory.free.lock().len(), 1);
        assert_eq!(memory.user.held(), 1 << 20);
        memory.set_cached_max(4 << 20);
        assert!(memory.free.lock().is_empty());
        assert_eq!(memory.user.held(), 0);
        memory.set_cached_max(1 << 30);
        let others = memory.user.memory().user("others");
        others.add(1 << 40);
        drop(memory.buffer(0, 1 << 20));
        assert!(memory.free.lock().is_empty(), "nothing is kept for later when memory is short");
    }

    #[test]
    fn memory_is_aligned_like_the_object() {
        let memory = Memory::of_test(1 << 20);
        let buffer = memory.buffer(4096 + 100, 8192);
        assert_eq!(buffer.bytes().as_ptr().addr() % ALIGN, 100);
        assert_eq!(buffer.bytes().len(), 8192);
        assert_eq!(memory.buffer(77, 5).freeze().len(), 5);
    }
}
