//! The memory of a process: how much it may hold, how much it holds, who holds it, and the shares that its parts take.
//!
//! Parts have bounds of their own, which are parts of [`Memory::bytes`]. Together they may still come to more than the limit. Then
//! caches give back, shares count half, and writers wait: whoever adds something asks [`Memory::excess`] first. Nobody who frees
//! memory asks, so nobody waits in a circle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::sync::Notify;

/// What every process of a simulation may use, in bytes: so much that no limit depends on it.
pub(crate) const SIM_BYTES: u64 = 64 << 30;
/// The part of the machine's memory, or of the memory group's, that a process may hold at first. The allocator, threads, the kernel
/// and its page cache of the disks need memory besides.
const LIMIT_PART: u64 = 2;
/// The part of the limit that is kept free for what is under way when the rest is taken.
const SLACK_PART: u64 = 8;
/// The least that a process may be limited to, in bytes.
pub const LIMIT_BYTES_MIN: u64 = 32 << 20;

/// How much is held and the most that ever was, in bytes.
pub(crate) type Meter = fn() -> (u64, u64);

/// The memory of a process. Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

struct Inner {
    /// The machine's, or the memory group's.
    total: u64,
    limit: AtomicU64,
    changed: Notify,
    shares: AtomicUsize,
    /// Counts all that is allocated, where something does.
    meter: Option<Meter>,
    users: Mutex<BTreeMap<&'static str, Arc<AtomicU64>>>,
    /// What the users hold together, and the most that this was.
    held: AtomicU64,
    held_max: AtomicU64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("limit", &self.limit()).field("used", &self.used()).finish()
    }
}

impl Memory {
    /// That of a machine, or of a memory group, with `total` bytes, of which nobody has a share.
    pub(crate) fn new(total: u64, meter: Option<Meter>) -> Memory {
        let inner = Inner {
            total,
            limit: AtomicU64::new(total / LIMIT_PART),
            changed: Notify::new(),
            shares: AtomicUsize::new(0),
            meter,
            users: Mutex::default(),
            held: AtomicU64::new(0),
            held_max: AtomicU64::new(0),
        };
        Memory { inner: Arc::new(inner) }
    }

    /// The machine's memory, or the smallest limit of the memory groups of the process, in bytes.
    pub fn total(&self) -> u64 {
        self.inner.total
    }

    /// Most that the process may hold, in bytes.
    pub fn limit(&self) -> u64 {
        self.inner.limit.load(Ordering::Relaxed)
    }

    /// What the limit is at first, in bytes.
    pub fn limit_default(&self) -> u64 {
        self.inner.total / LIMIT_PART
    }

    /// What bounds are parts of, in bytes: twice the limit, for what all of them could take together is never taken at once.
    pub fn bytes(&self) -> u64 {
        self.limit().saturating_mul(LIMIT_PART).min(self.inner.total)
    }

    /// Changes the limit, to at least [`LIMIT_BYTES_MIN`] and at most what there is. Whoever has a bound that follows from it is told.
    pub fn set_limit(&self, bytes: u64) {
        let most = self.inner.total.max(LIMIT_BYTES_MIN);
        self.inner.limit.store(bytes.clamp(LIMIT_BYTES_MIN, most), Ordering::Relaxed);
        self.inner.changed.notify_waiters();
    }

    /// Waits until the limit is another one than `known`, and gives it.
    pub async fn changed(&self, known: u64) -> u64 {
        loop {
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            let limit = self.limit();
            if limit != known {
                return limit;
            }
            changed.await;
        }
    }

    /// What the process holds, in bytes: all that is allocated where that is counted, else what users account for.
    pub fn used(&self) -> u64 {
        self.measured().0
    }

    /// The most that it ever held, in bytes.
    pub fn used_max(&self) -> u64 {
        self.measured().1
    }

    fn measured(&self) -> (u64, u64) {
        let inner = &self.inner;
        let counted = inner.meter.map(|meter| meter()).filter(|(_, most)| *most > 0);
        counted
            .unwrap_or_else(|| (inner.held.load(Ordering::Relaxed), inner.held_max.load(Ordering::Relaxed)))
    }

    /// How much more is held than should be, in bytes.
    pub fn excess(&self) -> u64 {
        let limit = self.limit();
        self.used().saturating_sub(limit - limit / SLACK_PART)
    }

    /// Whether more is held than should be.
    pub fn is_short(&self) -> bool {
        self.excess() > 0
    }

    /// One who will account for what it holds, under a name that others may have too.
    pub fn user(&self, name: &'static str) -> User {
        let of_name = self.inner.users.lock().entry(name).or_default().clone();
        User { memory: self.clone(), of_name, held: AtomicU64::new(0) }
    }

    /// What the users of each name hold, in bytes, by name.
    pub fn users(&self) -> Vec<(&'static str, u64)> {
        let users = self.inner.users.lock();
        users.iter().map(|(name, held)| (*name, held.load(Ordering::Relaxed))).collect()
    }

    /// A share of all, equal to those of others.
    pub(crate) fn share(&self) -> Share {
        self.inner.shares.fetch_add(1, Ordering::Relaxed);
        Share { memory: self.clone() }
    }
}

/// Somebody who accounts for what it holds; holds nothing any more when dropped.
#[derive(Debug)]
pub struct User {
    memory: Memory,
    of_name: Arc<AtomicU64>,
    held: AtomicU64,
}

impl User {
    /// The memory that it is part of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What it holds, in bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// It holds so many bytes more.
    pub fn add(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.of_name.fetch_add(bytes, Ordering::Relaxed);
        let inner = &self.memory.inner;
        let all = inner.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > inner.held_max.load(Ordering::Relaxed) {
            inner.held_max.fetch_max(all, Ordering::Relaxed);
        }
    }

    /// It holds so many bytes less.
    pub fn sub(&self, bytes: u64) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what is given back was held");
        self.of_name.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.inner.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// It held `before` bytes of something, and holds `now`.
    pub fn changed(&self, before: u64, now: u64) {
        match now.checked_sub(before) {
            Some(0) => {}
            Some(more) => self.add(more),
            None => self.sub(before - now),
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.sub(self.held());
    }
}

/// A share of a process's memory, the same for everybody who has one; given back when dropped.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
}

impl Share {
    /// All of `bytes`, for somebody alone.
    pub fn of(bytes: u64) -> Share {
        Memory::new(bytes, None).share()
    }

    /// How much it is now, in bytes: less when somebody else gets one, and half as long as the process holds too much.
    pub fn bytes(&self) -> u64 {
        let shares = self.memory.inner.shares.load(Ordering::Relaxed).max(1) as u64;
        let all = self.memory.bytes() / shares;
        if self.memory.is_short() { all / 2 } else { all }
    }

    /// The memory that it is part of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.inner.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_go_back() {
        let memory = Memory::new(1200, None);
        let one = memory.share();
        assert_eq!(one.bytes(), 1200);
        let two = memory.share();
        assert_eq!((one.bytes(), two.bytes()), (600, 600));
        drop(one);
        assert_eq!(two.bytes(), 1200);
    }

    #[test]
    fn users_hold_what_they_say_together() {
        let memory = Memory::new(2 << 30, None);
        let (read, written) = (memory.user("read"), memory.user("written"));
        let others = memory.user("read");
        read.add(100);
        others.changed(0, 50);
        written.add(30);
        assert_eq!(memory.users(), [("read", 150), ("written", 30)]);
        assert_eq!((memory.used(), memory.used_max()), (180, 180));
        others.changed(50, 20);
        drop(read);
        assert_eq!(memory.users(), [("read", 20), ("written", 30)]);
        assert_eq!((memory.used(), memory.used_max()), (50, 180));
    }

    #[test]
    fn above_the_limit_everybody_gives_back() {
        let memory = Memory::new(1 << 30, None);
        assert_eq!((memory.limit(), memory.bytes(), memory.total()), (512 << 20, 1 << 30, 1 << 30));
        memory.set_limit(64 << 20);
        assert_eq!((memory.limit(), memory.bytes()), (64 << 20, 128 << 20));
        let (share, user) = (memory.share(), memory.user("data"));
        user.add(56 << 20);
        assert!(!memory.is_short());
        assert_eq!(share.bytes(), 128 << 20);
        user.add(5);
        assert_eq!((memory.excess(), share.bytes()), (5, 64 << 20));
        user.sub(5);
        assert_eq!((memory.excess(), share.bytes()), (0, 128 << 20));
        memory.set_limit(1);
        assert_eq!(memory.limit(), LIMIT_BYTES_MIN);
        memory.set_limit(u64::MAX);
        assert_eq!((memory.limit(), memory.bytes()), (1 << 30, 1 << 30), "not more than there is");
    }
}
