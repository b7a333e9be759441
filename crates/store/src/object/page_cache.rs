//! What the page cache of the server's machine keeps of objects: Lustre's `read_cache_enable`, `writethrough_cache_enable` and
//! `readcache_max_filesize` (docs/operations.md#read-cache).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The way that data takes between memory and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Through the page cache, which keeps it.
    PageCache,
    /// Past it where that is cheaper: large aligned pieces.
    Disk,
}

/// An object is hot once it was read so many times over since it was changed, as programs are that all ranks of a job start: those that
/// read it first go to the disk, and everybody behind them finds it in memory.
const HOT_READS: u64 = 2;
/// Size of the largest object that can be hot, at first, in bytes.
const HOT_BYTES_MAX: u64 = 32 << 20;

/// Which data goes through the page cache.
pub struct PageCache {
    reads: AtomicBool,
    writes: AtomicBool,
    /// Size of the largest object that is kept, in bytes.
    object_bytes_max: AtomicU64,
    /// Size of the largest object that is kept for being read again and again, in bytes.
    hot_bytes_max: AtomicU64,
}

impl Default for PageCache {
    fn default() -> PageCache {
        let off = || AtomicBool::new(false);
        PageCache {
            reads: off(),
            writes: off(),
            object_bytes_max: AtomicU64::new(u64::MAX),
            hot_bytes_max: AtomicU64::new(HOT_BYTES_MAX),
        }
    }
}

impl PageCache {
    /// The way of what is read of an object of `size` bytes, of which `read` bytes in all were read since it was changed.
    pub fn of_read(&self, size: u64, read: u64) -> Via {
        let is_hot = size <= self.hot_bytes_max() && read / HOT_READS >= size;
        self.way(self.keeps_reads() || is_hot, size)
    }

    /// The way of what is written to an object that has `size` bytes behind it.
    pub fn of_write(&self, size: u64) -> Via {
        self.way(self.keeps_writes(), size)
    }

    fn way(&self, is_kept: bool, size: u64) -> Via {
        if is_kept && size <= self.object_bytes_max() { Via::PageCache } else { Via::Disk }
    }

    /// Whether it keeps what is read, however much it is at a time. First it keeps only what small reads bring.
    pub fn keeps_reads(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
    }

    /// Has it keep what is read, or no more. What is there stays until the machine needs its memory.
    pub fn keep_reads(&self, enabled: bool) {
        self.reads.store(enabled, Ordering::Relaxed);
    }

    /// Whether it keeps what is written, however much it is at a time. First it keeps only small writes.
    pub fn keeps_writes(&self) -> bool {
        self.writes.load(Ordering::Relaxed)
    }

    /// Has it keep what is written, or no more.
    pub fn keep_writes(&self, enabled: bool) {
        self.writes.store(enabled, Ordering::Relaxed);
    }

    /// Size of the largest object of which anything is kept, in bytes.
    pub fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max.load(Ordering::Relaxed)
    }

    /// Size of the largest object that it keeps although it keeps no reads, because it is read again and again, in bytes; 0: none.
    pub fn hot_bytes_max(&self) -> u64 {
        self.hot_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets [`PageCache::hot_bytes_max`].
    pub fn set_hot_bytes_max(&self, bytes: u64) {
        self.hot_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Sets [`PageCache::object_bytes_max`].
    pub fn set_object_bytes_max(&self, bytes: u64) {
        self.object_bytes_max.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_until_somebody_asks_for_it() {
        let cache = PageCache::default();
        assert_eq!((cache.of_read(1, 0), cache.of_write(0)), (Via::Disk, Via::Disk));
        cache.keep_reads(true);
        assert_eq!((cache.of_read(u64::MAX, 0), cache.of_write(0)), (Via::PageCache, Via::Disk));
        cache.keep_writes(true);
        cache.keep_reads(false);
        assert_eq!((cache.of_read(1, 0), cache.of_write(u64::MAX)), (Via::Disk, Via::PageCache));
    }

    #[test]
    fn a_larger_object_goes_past_it() {
        let cache = PageCache::default();
        cache.keep_reads(true);
        cache.keep_writes(true);
        cache.set_object_bytes_max(100);
        assert_eq!((cache.of_read(100, 0), cache.of_write(100)), (Via::PageCache, Via::PageCache));
        assert_eq!((cache.of_read(101, 0), cache.of_write(101)), (Via::Disk, Via::Disk));
    }

    #[test]
    fn what_is_read_again_and_again_is_kept() {
        let cache = PageCache::default();
        assert_eq!([cache.of_read(100, 199), cache.of_read(100, 200)], [Via::Disk, Via::PageCache]);
        let large = HOT_BYTES_MAX + 1;
        assert_eq!(cache.of_read(large, u64::MAX), Via::Disk);
        cache.set_hot_bytes_max(large);
        assert_eq!(cache.of_read(large, u64::MAX), Via::PageCache);
        cache.set_object_bytes_max(99);
        assert_eq!(cache.of_read(100, 200), Via::Disk, "readcache_max_filesize bounds it too");
        cache.set_object_bytes_max(u64::MAX);
        cache.set_hot_bytes_max(0);
        assert_eq!(cache.of_read(100, 200), Via::Disk);
    }
}
