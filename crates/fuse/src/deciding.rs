//! Threads that the kernel is about to permit something, or refuse it, by an answer that they have not used yet.
//!
//! To decide, the kernel asks for the attributes if it may not use what it has (`fuse_perm_getattr` in fs/fuse/dir.c). If it
//! is told to forget them before the thread that asked has run, it drops what it was answered, and decides by mode and
//! owner of before: it refuses what is permitted since long. So a notification waits for that thread, if mode or owner have
//! changed since the kernel has heard them. That a thread has run is seen in /proc: how often it was scheduled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::Fid;

/// How long a thread is waited for; then it may be refused what is permitted.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files whose rights may be known to have changed; those that share a place are taken for each other.
const PLACES: usize = 4096;
/// Files with threads that ask, at most; more are not looked after.
const FILES_MAX: usize = 1024;
/// Threads of one file, at most.
const THREADS_MAX: usize = 64;

/// The kernel knows mode and owner, and it is told when they change.
const CURRENT: u8 = 0;
/// They have changed since it heard them.
const OUTDATED: u8 = 1;
/// They may have: it heard them last in an answer that it may not keep.
const UNKNOWN: u8 = 2;

/// A thread that asked for attributes.
#[derive(Debug)]
struct Asker {
    thread: u32,
    asked: Instant,
    /// How often it had been scheduled when it was answered.
    answered: Option<u64>,
}

impl Asker {
    fn has_decided(&self) -> bool {
        if self.asked.elapsed() > PATIENCE {
            return true;
        }
        self.answered.is_some_and(|before| scheduled(self.thread) != Some(before))
    }
}

/// How often a thread was scheduled; `None` if it is gone, or the kernel does not count.
fn scheduled(thread: u32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    counts.split_whitespace().nth(2)?.parse().ok()
}

/// Whose rights have changed, and who asks for them.
pub struct Deciding {
    rights: Box<[AtomicU8]>,
    askers: Mutex<BTreeMap<Fid, Vec<Asker>>>,
}

impl Default for Deciding {
    fn default() -> Deciding {
        Deciding { rights: (0..PLACES).map(|_| AtomicU8::new(CURRENT)).collect(), askers: Mutex::default() }
    }
}

impl Deciding {
    fn rights(&self, fid: Fid) -> &AtomicU8 {
        let mixed = (fid.seq ^ u64::from(fid.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.rights[(mixed >> 40) as usize % PLACES]
    }

    fn is_outdated(&self, fid: Fid) -> bool {
        self.rights(fid).load(Ordering::Relaxed) != CURRENT
    }

    /// A thread asks for the attributes of `fid`.
    pub fn asked(&self, fid: Fid, thread: u32) {
        if thread == 0 || !self.is_outdated(fid) {
            return;
        }
        let mut files = self.askers.lock();
        if files.len() >= FILES_MAX {
            files.retain(|_, askers| !askers.iter().all(Asker::has_decided));
        }
        if files.len() < FILES_MAX || files.contains_key(&fid) {
            let askers = files.entry(fid).or_default();
            if askers.len() < THREADS_MAX {
                askers.push(Asker { thread, asked: Instant::now(), answered: None });
            }
        }
    }

    /// It is about to be answered, or refused.
    pub fn answers(&self, fid: Fid, thread: u32) {
        if !self.is_outdated(fid) {
            return;
        }
        let mut files = self.askers.lock();
        let Some(askers) = files.get_mut(&fid) else { return };
        match scheduled(thread) {
            Some(count) => {
                let asks = askers.iter_mut().filter(|asker| asker.thread == thread);
                asks.for_each(|asker| asker.answered = Some(count));
            }
            None => askers.retain(|asker| asker.thread != thread),
        }
    }

    /// Whether a thread has asked for the attributes of `fid` and not used them.
    pub fn is_waited_for(&self, fid: Fid) -> bool {
        if !self.is_outdated(fid) {
            return false;
        }
        let files = self.askers.lock();
        files.get(&fid).is_some_and(|askers| !askers.iter().all(Asker::has_decided))
    }

    /// An answer tells of `fid`, and lets the kernel keep it or not.
    pub fn told(&self, fid: Fid, keeps: bool) {
        let rights = self.rights(fid);
        match (keeps, rights.load(Ordering::Relaxed)) {
            (true, UNKNOWN) => rights.store(OUTDATED, Ordering::Relaxed),
            (false, CURRENT | OUTDATED) => rights.store(UNKNOWN, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The kernel is about to forget the attributes of `fid`, of which mode or owner change if `change`.
    pub fn forgets(&self, fid: Fid, change: bool) {
        let rights = self.rights(fid);
        if rights.load(Ordering::Relaxed) != CURRENT {
            let askers = self.askers.lock().remove(&fid).unwrap_or_default();
            if askers.iter().any(|asker| asker.answered.is_some()) {
                let _ = rights.compare_exchange(OUTDATED, CURRENT, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        if change {
            let _ = rights.compare_exchange(CURRENT, OUTDATED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn only_new_rights_are_waited_for() {
        let deciding = Deciding::default();
        let own = std::process::id();
        deciding.asked(FID, own);
        assert!(!deciding.is_waited_for(FID), "what the kernel knows is current");
        deciding.forgets(FID, false);
        deciding.asked(FID, own);
        assert!(!deciding.is_waited_for(FID), "times alone do not count");
        deciding.forgets(FID, true);
        assert!(!deciding.is_waited_for(FID), "nobody asks");
        deciding.asked(FID, own);
        assert!(deciding.is_waited_for(FID));
    }

    #[test]
    fn a_thread_has_decided_when_it_has_run() {
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
            let _ = waits.recv();
            // It lives until it is seen.
            let _ = waits.recv();
        });
        let id = told.recv().expect("its number");
        let sleeps = || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
            status.lines().any(|line| line.starts_with("State:\tS"))
        };
        while !sleeps() {
            std::thread::yield_now();
        }
        let deciding = Deciding::default();
        deciding.forgets(FID, true);
        deciding.asked(FID, id);
        deciding.answers(FID, id);
        assert!(deciding.is_waited_for(FID), "it sleeps");
        go.send(()).expect("it waits");
        let begun = Instant::now();
        while deciding.is_waited_for(FID) {
            assert!(begun.elapsed() < PATIENCE / 2, "it is seen to run");
            std::thread::yield_now();
        }
        deciding.forgets(FID, false);
        deciding.asked(FID, id);
        assert!(!deciding.is_waited_for(FID), "the kernel has heard of it");
        deciding.told(FID, false);
        deciding.asked(FID, id);
        assert!(deciding.is_waited_for(FID), "it is not told if that changes");
        drop(go);
        thread.join().expect("it ends");
    }
}
