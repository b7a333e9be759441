//! Threads of applications that are about to use attributes that the kernel has asked for.
//!
//! To decide about an access, or where a file ends, the kernel asks for the attributes if it may not use those that it has
//! (`fuse_perm_getattr` in fs/fuse/dir.c, `fuse_cache_read_iter` in fs/fuse/file.c). If it is told to forget anything of the
//! inode before the thread that asked has run, it drops what it was answered, and goes on with mode, owner and size of before:
//! it refuses what is permitted since long, and reads an end where there is none. So a notification waits for that thread. That
//! it has run is seen in /proc: how often it was scheduled.
//!
//! Only files are looked after whose attributes have changed since the kernel heard them, or may have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::Fid;

/// How long a thread is waited for that has no answer yet: the answer may be waiting for the notification in its turn, as it does while
/// an MDT restarts. Then it may go on with what the kernel had before.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for one that was answered, and needs nothing but a processor.
const PATIENCE_TO_RUN: Duration = Duration::from_secs(30);
/// Files whose attributes may be known to have changed; those that share a place are taken for each other.
const PLACES: usize = 4096;
/// Files with threads that ask, at most; more are not looked after.
const FILES_MAX: usize = 1024;
/// Threads of one file, at most.
const THREADS_MAX: usize = 64;

/// The kernel knows the attributes, and it is told when they change.
const CURRENT: u8 = 0;
/// They have changed since it heard them.
const OUTDATED: u8 = 1;
/// It was answered, and may keep the answer.
const HEARD: u8 = 2;
/// It heard them last in an answer that it may not keep.
const UNKNOWN: u8 = 3;

/// A thread that asked.
#[derive(Debug)]
struct Asker {
    thread: u32,
    asked: Instant,
    /// How often it had been scheduled when it was answered.
    answered: Option<u64>,
}

impl Asker {
    /// `scheduled` is how often a thread was scheduled.
    fn is_done(&self, scheduled: impl FnOnce(u32) -> Option<u64>) -> bool {
        let Some(before) = self.answered else { return self.asked.elapsed() > PATIENCE };
        scheduled(self.thread) != Some(before) || self.asked.elapsed() > PATIENCE_TO_RUN
    }
}

/// How often a thread was scheduled; `None` if it is gone, or the kernel does not count.
fn scheduled(thread: u32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    counts.split_whitespace().nth(2)?.parse().ok()
}

fn are_done(askers: &[Asker]) -> bool {
    askers.iter().all(|asker| asker.is_done(scheduled))
}

/// Lets go of files whose threads have all run. Each thread is looked at once: one that makes files may have asked about all of
/// them.
fn let_go_of_done(files: &mut BTreeMap<Fid, Vec<Asker>>) {
    let mut seen = BTreeMap::new();
    let mut count = |thread: u32| *seen.entry(thread).or_insert_with(|| scheduled(thread));
    files.retain(|_, askers| !askers.iter().all(|asker| asker.is_done(&mut count)));
}

/// Whose attributes have changed, and who asks for them.
pub struct Asking {
    places: Box<[AtomicU8]>,
    askers: Mutex<BTreeMap<Fid, Vec<Asker>>>,
}

impl Default for Asking {
    fn default() -> Asking {
        Asking { places: (0..PLACES).map(|_| AtomicU8::new(CURRENT)).collect(), askers: Mutex::default() }
    }
}

impl Asking {
    fn place(&self, fid: Fid) -> &AtomicU8 {
        let mixed = (fid.seq ^ u64::from(fid.oid)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.places[(mixed >> 40) as usize % PLACES]
    }

    fn is_current(&self, fid: Fid) -> bool {
        self.place(fid).load(Ordering::Relaxed) == CURRENT
    }

    /// A thread asks for the attributes of `fid`.
    pub fn asked(&self, fid: Fid, thread: u32) {
        if thread == 0 || self.is_current(fid) {
            return;
        }
        let mut files = self.askers.lock();
        let heard = self.place(fid).load(Ordering::Relaxed) == HEARD;
        if heard && files.get(&fid).is_none_or(|askers| are_done(askers)) {
            files.remove(&fid);
            self.place(fid).store(CURRENT, Ordering::Relaxed);
            return;
        }
        if files.len() >= FILES_MAX {
            let_go_of_done(&mut files);
        }
        if files.len() < FILES_MAX || files.contains_key(&fid) {
            let askers = files.entry(fid).or_default();
            askers.retain(|asker| !asker.is_done(scheduled));
            if askers.len() < THREADS_MAX {
                askers.push(Asker { thread, asked: Instant::now(), answered: None });
            }
        }
    }

    /// It is about to be answered, or refused.
    pub fn answers(&self, fid: Fid, thread: u32) {
        if self.is_current(fid) {
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

    /// An answer tells the attributes of `fid`, and lets the kernel keep them or not.
    pub fn told(&self, fid: Fid, keeps: bool) {
        let place = self.place(fid);
        match (keeps, place.load(Ordering::Relaxed)) {
            // The answer to a lookup may be dropped too; then the kernel asks again, and that counts.
            (true, OUTDATED | UNKNOWN) if self.is_answered(fid) => place.store(HEARD, Ordering::Relaxed),
            (false, CURRENT | OUTDATED | HEARD) => place.store(UNKNOWN, Ordering::Relaxed),
            _ => {}
        }
    }

    fn is_answered(&self, fid: Fid) -> bool {
        let files = self.askers.lock();
        files.get(&fid).is_some_and(|askers| askers.iter().any(|asker| asker.answered.is_some()))
    }

    /// Whether a thread has asked for the attributes of `fid` and not used them.
    pub fn is_waited_for(&self, fid: Fid) -> bool {
        !self.is_current(fid) && self.askers.lock().get(&fid).is_some_and(|askers| !are_done(askers))
    }

    /// The kernel is about to forget the attributes of `fid`.
    pub fn forgets(&self, fid: Fid) {
        self.place(fid).store(OUTDATED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn only_what_has_changed_is_waited_for() {
        let asking = Asking::default();
        let own = std::process::id();
        asking.asked(FID, own);
        assert!(!asking.is_waited_for(FID), "what the kernel knows is current");
        asking.forgets(FID);
        assert!(!asking.is_waited_for(FID), "nobody asks");
        asking.asked(FID, own);
        assert!(asking.is_waited_for(FID));
    }

    #[test]
    fn a_thread_is_waited_for_until_it_has_run() {
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
        let asking = Asking::default();
        asking.forgets(FID);
        asking.asked(FID, id);
        asking.answers(FID, id);
        asking.told(FID, true);
        assert!(asking.is_waited_for(FID), "it sleeps");
        go.send(()).expect("it waits");
        let begun = Instant::now();
        while asking.is_waited_for(FID) {
            assert!(begun.elapsed() < PATIENCE / 2, "it is seen to run");
            std::thread::yield_now();
        }
        asking.asked(FID, id);
        assert!(!asking.is_waited_for(FID), "the kernel has heard of it");
        asking.told(FID, false);
        asking.asked(FID, id);
        assert!(asking.is_waited_for(FID), "it is not told if that changes");
        drop(go);
        thread.join().expect("it ends");
    }
}
