//! The allocator of the program, which counts what it gave: the one number that is true whoever took the memory. There is one
//! allocator in a process, so this is one of the few things that are global.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use tikv_jemallocator::Jemalloc;

/// Counters, so that threads do not all write to one.
const SHARDS: usize = 16;
/// A counter is added to the sum when it is so far away from zero, in bytes: the most that the sum lacks is this for each counter.
const FOLD_BYTES: i64 = 64 << 10;

/// jemalloc, counted: what metadata does takes less of a processor with it than with the allocator of the C library, and a process in a
/// small memory group holds less (`bench/results/2026-11-28-allocator.txt`).
#[derive(Debug)]
pub struct Heap;

/// jemalloc's settings: what is freed goes back to the machine after a second, for the process may be in a small memory group. It has to be
/// called so.
#[allow(unsafe_code)]
// SAFETY: jemalloc reads the pointer to a text with a zero at its end, and nothing else is called so.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: Option<&'static std::ffi::c_char> = Some({
    const TEXT: &std::ffi::CStr = c"dirty_decay_ms:1000,muzzy_decay_ms:0";
    // SAFETY: it points to the first byte of a text that is never changed.
    unsafe { &*TEXT.as_ptr() }
});

/// Gives memory that was freed back to the machine, if this is the allocator. Takes some milliseconds for each GiB.
#[allow(unsafe_code)]
pub(crate) fn release() {
    // What jemalloc calls all arenas (MALLCTL_ARENAS_ALL).
    const PURGE_ALL: &std::ffi::CStr = c"arena.4096.purge";
    let nothing = std::ptr::null_mut();
    // SAFETY: the name ends with a zero, and nothing is read or written. An error means that nothing was given back.
    unsafe { tikv_jemalloc_sys::mallctl(PURGE_ALL.as_ptr(), nothing, nothing.cast(), nothing, 0) };
}

#[repr(align(128))]
struct Shard(AtomicI64);

static PENDING: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];
static HELD: AtomicI64 = AtomicI64::new(0);
static HELD_MAX: AtomicI64 = AtomicI64::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread; it has nothing to drop, so it can be had as long as the thread lives.
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn shard() -> &'static AtomicI64 {
    let own = OWN.try_with(|own| match own.get() {
        usize::MAX => {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            own.set(next);
            next
        }
        known => known,
    });
    &PENDING[own.unwrap_or(0) % SHARDS].0
}

fn count(bytes: i64) {
    let shard = shard();
    let pending = shard.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if pending.abs() >= FOLD_BYTES {
        let all = shard.swap(0, Ordering::Relaxed);
        let held = HELD.fetch_add(all, Ordering::Relaxed) + all;
        if held > HELD_MAX.load(Ordering::Relaxed) {
            HELD_MAX.fetch_max(held, Ordering::Relaxed);
        }
    }
}

/// What is allocated now and the most that was, in bytes, but for [`FOLD_BYTES`] of each counter; zero where another allocator is.
pub(crate) fn held() -> (u64, u64) {
    [&HELD, &HELD_MAX].map(|sum| u64::try_from(sum.load(Ordering::Relaxed)).unwrap_or(0)).into()
}

fn bytes(size: usize) -> i64 {
    // A layout is never larger than isize::MAX.
    size as i64
}

// SAFETY: every call goes to jemalloc as it came, whose contract is the same; counting touches only atomics and a
// thread's own cell, and allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this function, which is jemalloc's.
        let memory = unsafe { Jemalloc.alloc(layout) };
        if !memory.is_null() {
            count(bytes(layout.size()));
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let memory = unsafe { Jemalloc.alloc_zeroed(layout) };
        if !memory.is_null() {
            count(bytes(layout.size()));
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { Jemalloc.dealloc(memory, layout) };
        count(-bytes(layout.size()));
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { Jemalloc.realloc(memory, layout, size) };
        if !moved.is_null() {
            count(bytes(size) - bytes(layout.size()));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Called by hand: the tests have the allocator of the C library.
    #[test]
    #[allow(unsafe_code)]
    fn what_was_given_and_not_taken_back_is_counted() {
        const BYTES: usize = 1 << 20;
        let layout = Layout::from_size_align(BYTES, 64).expect("a layout");
        let twice = Layout::from_size_align(2 * BYTES, 64).expect("a layout");
        let (before, _) = held();
        // SAFETY: the layouts are not empty, and each block is given back with the layout that it has.
        unsafe {
            let one = Heap.alloc(layout);
            let two = Heap.alloc_zeroed(layout);
            let one = Heap.realloc(one, layout, 2 * BYTES);
            assert_eq!(held().0 - before, 3 * BYTES as u64);
            assert!(held().1 >= held().0);
            Heap.dealloc(two, layout);
            Heap.dealloc(one, twice);
        }
        release();
        assert_eq!(held().0, before);
        assert!(held().1 >= before + 3 * BYTES as u64);
    }

    #[test]
    #[allow(unsafe_code)]
    fn what_is_freed_goes_back_soon() {
        let mut value = 0isize;
        let mut len = size_of::<isize>();
        let name = c"opt.dirty_decay_ms";
        // SAFETY: the name ends with a zero, and the value has room for what jemalloc says of it.
        let status = unsafe {
            let (value, len) = ((&raw mut value).cast(), &raw mut len);
            tikv_jemalloc_sys::mallctl(name.as_ptr(), value, len, std::ptr::null_mut(), 0)
        };
        assert_eq!((status, value), (0, 1000), "jemalloc has found its settings");
    }
}
