//! Memory for I/O: aligned so that a disk can take it without a copy.
//!
//! Large buffers are recycled through a bounded free list of the process. Fresh memory costs a page fault every
//! 4 KiB, which at the speed of a disk is more than the I/O itself. The largest ones lie in [huge pages](crate::huge).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::huge::Piece;

/// Alignment of the memory, offsets and lengths that a disk can take without a copy, in bytes.
pub const ALIGN: usize = 4096;
/// Smallest buffer that is recycled, in bytes.
const RECYCLED_BYTES_MIN: usize = 16 << 10;
/// Largest buffer that is recycled, in bytes.
const RECYCLED_BYTES_MAX: usize = 4 << 20;
/// Smallest buffer that lies in huge pages, in bytes. Smaller ones are copied more often than a disk sees them, and a slab that stays for one
/// of them would waste more.
const HUGE_BYTES_MIN: usize = 512 << 10;
/// Least that a process may hold for huge pages, in bytes: with less, the slabs of which one piece is in use are too much of it.
const HUGE_LIMIT_MIN: u64 = 4 << 30;
/// Sizes of recycled buffers: the powers of two from the smallest to the largest.
const CLASSES: usize = (RECYCLED_BYTES_MAX / RECYCLED_BYTES_MIN).ilog2() as usize + 1;
/// Most memory that waits in the free list of one size, in bytes.
const FREE_BYTES_MAX: usize = 64 << 20;
/// Most that waits in all of them, as a part of what the process may hold.
const FREE_PART: u64 = 16;

/// Free memory by size. It is part of the allocator, and like it has no owner within the process; what a buffer
/// holds never depends on it.
static FREE: [Mutex<Vec<Memory>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];
/// What is in the lists, and the most that may be, in bytes.
static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);
static FREE_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether large buffers lie in huge pages from now on.
static HUGE: AtomicBool = AtomicBool::new(false);

/// The process may hold `limit` bytes: free lists keep a part of that. What is too much goes now.
pub(crate) fn set_limit(limit: u64) {
    HUGE.store(limit >= HUGE_LIMIT_MIN, Ordering::Relaxed);
    let max = usize::try_from(limit / FREE_PART).unwrap_or(usize::MAX);
    FREE_MAX.store(max, Ordering::Relaxed);
    for (class, free) in FREE.iter().enumerate() {
        let mut free = free.lock();
        while FREE_BYTES.load(Ordering::Relaxed) > max && free.pop().is_some() {
            FREE_BYTES.fetch_sub(class_bytes(class), Ordering::Relaxed);
        }
        free.shrink_to_fit();
    }
}

/// What a buffer lies in.
enum Memory {
    /// It has [`ALIGN`] bytes more than the buffer may take, so that there is an aligned start.
    Plain(Vec<u8>),
    Huge(Piece),
}

impl Memory {
    /// Zeroed, for a buffer of `bytes`. Pieces that came with it go to the free list.
    fn fresh(bytes: usize) -> Memory {
        let is_large = (HUGE_BYTES_MIN..=RECYCLED_BYTES_MAX).contains(&bytes);
        // Pieces that find no room in the list would be memory of the slab that nobody can use.
        let with_rest = FREE_BYTES.load(Ordering::Relaxed).saturating_add(Piece::rest_of_slab(bytes));
        if !is_large || !HUGE.load(Ordering::Relaxed) || with_rest > FREE_MAX.load(Ordering::Relaxed) {
            return Memory::Plain(vec![0u8; bytes + ALIGN]);
        }
        let mut pieces = Piece::fresh(bytes).map(Memory::Huge);
        let first = pieces.next().expect("a slab has a piece");
        pieces.for_each(Memory::give_back);
        first
    }

    /// The most that a buffer in it may have, in bytes.
    fn capacity(&self) -> usize {
        match self {
            Memory::Plain(memory) => memory.len().saturating_sub(ALIGN),
            Memory::Huge(piece) => piece.len(),
        }
    }

    /// To the free list, or to the allocator if that is full.
    fn give_back(self) {
        let bytes = self.capacity();
        let Some(class) = class_of(bytes) else { return };
        let all = FREE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all <= FREE_MAX.load(Ordering::Relaxed) {
            let mut free = FREE[class].lock();
            if (free.len() + 1) * bytes <= FREE_BYTES_MAX {
                free.push(self);
                return;
            }
        }
        FREE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        match self {
            Memory::Plain(memory) => memory,
            Memory::Huge(piece) => piece.as_ref(),
        }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Plain(memory) => memory,
            Memory::Huge(piece) => piece.as_mut(),
        }
    }
}

/// An exclusively owned buffer whose start is aligned to [`ALIGN`].
pub struct AlignedBuf {
    memory: Memory,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        if let Some(mut buf) = AlignedBuf::recycled(len) {
            buf.as_mut().fill(0);
            return buf;
        }
        AlignedBuf::fresh(len)
    }

    /// A buffer of `len` bytes that may hold anything, data of others too: for callers that write all of it, or
    /// [cut](AlignedBuf::truncate) what they did not write, before they share it.
    pub fn for_overwrite(len: usize) -> AlignedBuf {
        AlignedBuf::recycled(len).unwrap_or_else(|| AlignedBuf::fresh(len))
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::for_overwrite(bytes.len());
        buf.as_mut().copy_from_slice(bytes);
        buf
    }

    /// Cuts the buffer to its first `len` bytes; does nothing if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Shares the buffer; from now on nobody changes it.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    fn fresh(len: usize) -> AlignedBuf {
        let size = class_of(len).map_or(len, class_bytes);
        AlignedBuf::of_memory(Memory::fresh(size), len)
    }

    fn recycled(len: usize) -> Option<AlignedBuf> {
        let class = class_of(len)?;
        let memory = FREE[class].lock().pop()?;
        FREE_BYTES.fetch_sub(class_bytes(class), Ordering::Relaxed);
        Some(AlignedBuf::of_memory(memory, len))
    }

    fn of_memory(memory: Memory, len: usize) -> AlignedBuf {
        let start = memory.as_ref().as_ptr().align_offset(ALIGN);
        assert!(start <= ALIGN, "a byte pointer can always be aligned");
        AlignedBuf { memory, start, len }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        std::mem::replace(&mut self.memory, Memory::Plain(Vec::new())).give_back();
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        &self.memory.as_ref()[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut()[self.start..self.start + self.len]
    }
}

/// Whether a disk can take `bytes` at `offset` without a copy.
pub fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN)
        && bytes.len().is_multiple_of(ALIGN)
        && offset.is_multiple_of(ALIGN as u64)
}

/// The size class that holds `len` bytes, if buffers of that length are recycled.
fn class_of(len: usize) -> Option<usize> {
    // A buffer of less than half the smallest class would waste most of its memory.
    if len <= RECYCLED_BYTES_MIN / 2 || len > RECYCLED_BYTES_MAX {
        return None;
    }
    let size = len.next_power_of_two().max(RECYCLED_BYTES_MIN);
    Some((size / RECYCLED_BYTES_MIN).ilog2() as usize)
}

fn class_bytes(class: usize) -> usize {
    RECYCLED_BYTES_MIN << class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_aligned_and_zero() {
        for len in [0, 1, 4095, 4096, 40_000, 65_536, 65_537, 1 << 20, (4 << 20) + 1] {
            for _ in 0..3 {
                let mut buf = AlignedBuf::zeroed(len);
                assert_eq!(buf.as_ref().len(), len);
                assert!(buf.as_ref().as_ptr().addr().is_multiple_of(ALIGN));
                assert!(buf.as_ref().iter().all(|&byte| byte == 0), "{len} bytes are zero");
                buf.as_mut().fill(0xaa);
            }
        }
    }

    #[test]
    fn large_memory_comes_back() {
        // Other tests share the list, so look for our memory among several of this size.
        let first = AlignedBuf::zeroed(2 << 20);
        let address = first.as_ref().as_ptr().addr();
        drop(first.freeze());
        let held: Vec<AlignedBuf> = (0..64).map(|_| AlignedBuf::for_overwrite((1 << 20) + 5)).collect();
        assert!(held.iter().any(|buf| buf.as_ref().as_ptr().addr() == address));
    }

    #[test]
    fn large_memory_of_a_large_process_lies_in_huge_pages() {
        let is_huge = |buf: &AlignedBuf| matches!(buf.memory, Memory::Huge(_));
        // Other tests share the switch, which changes nothing that they look at.
        HUGE.store(true, Ordering::Relaxed);
        let mut held: Vec<AlignedBuf> = (0..200).map(|_| AlignedBuf::for_overwrite(700_000)).collect();
        assert!(held.iter().any(is_huge), "free memory of before is used up");
        for (mark, buf) in (0..).zip(&mut held) {
            assert!(buf.as_ref().as_ptr().addr().is_multiple_of(ALIGN));
            buf.as_mut().fill(mark);
        }
        for (mark, buf) in (0..).zip(&held) {
            assert!(buf.as_ref().iter().all(|&byte| byte == mark), "no two have the same memory");
        }
        held.retain(is_huge);
        let address = held.pop().expect("just seen").freeze().as_ptr().addr();
        let again: Vec<AlignedBuf> = (0..64).map(|_| AlignedBuf::for_overwrite(1 << 20)).collect();
        assert!(again.iter().any(|buf| buf.as_ref().as_ptr().addr() == address), "its piece comes back");
        assert!(!is_huge(&AlignedBuf::for_overwrite(100_000)), "smaller ones do not");
    }

    #[test]
    fn the_free_list_is_bounded() {
        let held: Vec<AlignedBuf> = (0..20).map(|_| AlignedBuf::for_overwrite(4 << 20)).collect();
        drop(held);
        let class = class_of(4 << 20).expect("4 MiB are recycled");
        assert!(FREE[class].lock().len() * (4 << 20) <= FREE_BYTES_MAX);
    }

    #[test]
    fn copies_and_cuts() {
        let mut buf = AlignedBuf::copy_of(&[7; 100_000]);
        buf.truncate(200_000);
        buf.truncate(99_999);
        assert_eq!(buf.freeze().as_ref(), &[7; 99_999][..]);
    }

    #[test]
    fn every_class_holds_its_lengths() {
        for len in [8193, 32_769, 65_536, 65_537, 131_072, 1 << 20, (1 << 20) + 1, 4 << 20] {
            let class = class_of(len).expect("it is recycled");
            assert!(class < CLASSES && class_bytes(class) >= len);
            assert_eq!(class_of(class_bytes(class)), Some(class));
        }
        assert_eq!(class_of(8192), None);
        assert_eq!(class_of((4 << 20) + 1), None);
    }
}
