//! Memory in huge pages: pieces of a slab that the kernel is asked to map with one page.
//!
//! A disk gets a buffer as a list of runs of physical memory. A MiB of single pages is up to 256 runs, more than one command of a disk takes
//! (virtio takes 254), so it is split, and building the list costs more than the disk's own work: with eight reads of a MiB in flight a disk
//! that gives 3.0 GB/s into huge pages gave 1.5 GB/s into single ones (`bench/results/2026-12-01-pages.txt`).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::Advice;

/// A huge page, in bytes: the least that a slab has, and its alignment. Where huge pages have another size this is alignment alone.
const PAGE_BYTES: usize = 2 << 20;

/// Memory that goes back to the allocator when its last piece is dropped.
struct Slab {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a slab is memory alone, which belongs to no thread. Only its pieces reach it, and no two of them the same byte.
#[allow(unsafe_code)]
unsafe impl Send for Slab {}
// SAFETY: as above; a shared slab gives no access at all.
#[allow(unsafe_code)]
unsafe impl Sync for Slab {}

impl Slab {
    #[allow(unsafe_code)]
    fn new(bytes: usize) -> Slab {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE_BYTES), PAGE_BYTES)
            .expect("buffers are far below isize::MAX");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let slab = Slab { start, layout };
        slab.advise(Advice::LinuxHugepage);
        // Behind the advice: what is touched before it is in single pages already.
        // SAFETY: the range is ours, all of it.
        unsafe { slab.start.as_ptr().write_bytes(0, layout.size()) };
        slab
    }

    /// A kernel without huge pages refuses, which costs speed alone.
    #[allow(unsafe_code)]
    fn advise(&self, advice: Advice) {
        // SAFETY: the range is ours, and advice on huge pages changes nothing of what it holds.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.layout.size(), advice) };
    }
}

impl Drop for Slab {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // The allocator gives it out for other things, which would have a huge page for each byte that they touch.
        self.advise(Advice::LinuxNoHugepage);
        // SAFETY: it was allocated with this layout, and nobody has a piece of it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A part of a slab that nobody else has. It begins at a multiple of its length.
pub(crate) struct Piece {
    slab: Arc<Slab>,
    at: usize,
    len: usize,
}

impl Piece {
    /// Fresh zeroed pieces of `len` bytes each, a power of two and at least a page of memory: as many as fill a slab.
    pub(crate) fn fresh(len: usize) -> impl Iterator<Item = Piece> {
        assert!(len.is_power_of_two(), "pieces of a slab are powers of two");
        let slab = Arc::new(Slab::new(len));
        (0..slab.layout.size() / len).map(move |index| Piece {
            slab: Arc::clone(&slab),
            at: index * len,
            len,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a slab beside the first of its pieces of `len` bytes.
    pub(crate) fn rest_of_slab(len: usize) -> usize {
        len.next_multiple_of(PAGE_BYTES) - len
    }
}

impl AsRef<[u8]> for Piece {
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range lies within the slab, which lives as long as this, is initialized, and no other piece has any of it.
        unsafe { std::slice::from_raw_parts(self.slab.start.as_ptr().add(self.at), self.len) }
    }
}

impl AsMut<[u8]> for Piece {
    #[allow(unsafe_code)]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and whoever has `&mut self` is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.slab.start.as_ptr().add(self.at), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_slab_share_nothing() {
        let mut pieces: Vec<Piece> = Piece::fresh(512 << 10).collect();
        assert_eq!(pieces.len(), 4);
        for (mark, piece) in (1..).zip(&mut pieces) {
            assert_eq!((piece.len(), piece.as_ref().len()), (512 << 10, 512 << 10));
            assert!(piece.as_ref().as_ptr().addr().is_multiple_of(512 << 10));
            assert!(piece.as_ref().iter().all(|&byte| byte == 0));
            piece.as_mut().fill(mark);
        }
        let last = pieces.pop().expect("four pieces");
        for (mark, piece) in (1..).zip(&pieces) {
            assert!(piece.as_ref().iter().all(|&byte| byte == mark));
        }
        drop(pieces);
        assert!(last.as_ref().iter().all(|&byte| byte == 4), "a piece keeps the memory of its slab");
    }

    #[test]
    fn a_large_piece_has_a_slab_of_its_own() {
        let pieces: Vec<Piece> = Piece::fresh(4 << 20).collect();
        assert_eq!(pieces.len(), 1);
        assert!(pieces[0].as_ref().as_ptr().addr().is_multiple_of(PAGE_BYTES));
    }
}
