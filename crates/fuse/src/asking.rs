//! Threads of applications that are about to use attributes that the kernel has asked for.
//!
//! To decide about an access, or where a file ends, the kernel asks for the attributes if it may not use those that it has
//! (`fuse_perm_getattr` in fs/fuse/dir.c, `fuse_cache_read_iter` in fs/fuse/file.c). If it is told to forget anything of the
//! inode before the thread that asked has run, it drops what it was answered, and goes on with mode, owner and size of before:
//! it refuses what is permitted since long, and reads an end where there is none. So a notification waits for that thread
//! ([`crate::progress`]).
//!
//! Only files are looked after whose attributes have changed since the kernel heard them, or may have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::{Fid, Shards};
use rt::Time;

use crate::progress::Answered;

/// How long a thread is waited for that has no answer yet: the answer may be waiting for the notification in its turn, as it does while
/// an MDT restarts. Then it may go on with what the kernel had before.
const PATIENCE: Duration = Duration::from_secs(1);
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

/// How far a question is.
#[derive(Debug)]
enum Stage {
    Asked(Time),
    /// The answer is on its way.
    Answering,
    /// The answer has reached the kernel.
    Answered(Answered),
}

/// A thread that asked.
#[derive(Debug)]
struct Asker {
    thread: u32,
    stage: Stage,
}

impl Asker {
    fn is_done(&mut self, now: Time) -> bool {
        match &mut self.stage {
            Stage::Asked(at) => now - *at > PATIENCE,
            Stage::Answering => false,
            Stage::Answered(answered) => answered.has_run(now),
        }
    }
}

/// Whose attributes have changed, and who asks for them.
pub struct Asking {
    places: Shards<AtomicU8, PLACES>,
    askers: Mutex<BTreeMap<Fid, Vec<Asker>>>,
}

/// To be held until the answer to a thread has reached the kernel.
pub struct OnItsWay {
    asking: Arc<Asking>,
    fid: Fid,
    thread: u32,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let answered = Stage::Answered(Answered::new(self.thread));
        self.asking.is_at(self.fid, self.thread, answered);
    }
}

impl Default for Asking {
    fn default() -> Asking {
        Asking { places: Shards::new(|| AtomicU8::new(CURRENT)), askers: Mutex::default() }
    }
}

impl Asking {
    fn place(&self, fid: Fid) -> &AtomicU8 {
        self.places.of(&fid)
    }

    fn is_current(&self, fid: Fid) -> bool {
        self.place(fid).load(Ordering::Relaxed) == CURRENT
    }

    /// A thread asks for the attributes of `fid`.
    pub fn asked(&self, fid: Fid, thread: u32, now: Time) {
        if thread == 0 || self.is_current(fid) {
            return;
        }
        let mut files = self.askers.lock();
        if files.len() >= FILES_MAX && !files.contains_key(&fid) {
            files.retain(|_, askers| !are_done(askers, now));
            if files.len() >= FILES_MAX {
                return;
            }
        }
        let heard = self.place(fid).load(Ordering::Relaxed) == HEARD;
        let askers = files.entry(fid).or_default();
        // Who asks again has run.
        askers.retain(|asker| asker.thread != thread);
        if askers.len() >= THREADS_MAX {
            are_done(askers, now);
        }
        if heard && askers.is_empty() {
            files.remove(&fid);
            self.place(fid).store(CURRENT, Ordering::Relaxed);
        } else if askers.len() < THREADS_MAX {
            askers.push(Asker { thread, stage: Stage::Asked(now) });
        }
    }

    /// It is about to be answered, or refused.
    pub fn answers(self: &Arc<Self>, fid: Fid, thread: u32) -> Option<OnItsWay> {
        let is_asker = !self.is_current(fid) && self.is_at(fid, thread, Stage::Answering);
        is_asker.then(|| OnItsWay { asking: self.clone(), fid, thread })
    }

    /// Whether such a thread asked.
    fn is_at(&self, fid: Fid, thread: u32, stage: Stage) -> bool {
        let mut files = self.askers.lock();
        let asker =
            files.get_mut(&fid).and_then(|askers| askers.iter_mut().find(|asker| asker.thread == thread));
        asker.map(|asker| asker.stage = stage).is_some()
    }

    /// An answer tells the attributes of `fid`, and lets the kernel keep them or not.
    pub fn told(&self, fid: Fid, keeps: bool) {
        let place = self.place(fid);
        match (keeps, place.load(Ordering::Relaxed)) {
            // The answer to a lookup may be dropped too; then the kernel asks again, and that counts.
            (true, OUTDATED | UNKNOWN) if self.is_answering(fid) => place.store(HEARD, Ordering::Relaxed),
            (false, CURRENT | OUTDATED | HEARD) => place.store(UNKNOWN, Ordering::Relaxed),
            _ => {}
        }
    }

    fn is_answering(&self, fid: Fid) -> bool {
        let files = self.askers.lock();
        let answering = |asker: &Asker| !matches!(asker.stage, Stage::Asked(_));
        files.get(&fid).is_some_and(|askers| askers.iter().any(answering))
    }

    /// Whether a thread has asked for the attributes of `fid` and not used them.
    pub fn is_waited_for(&self, fid: Fid, now: Time) -> bool {
        if self.is_current(fid) {
            return false;
        }
        let mut files = self.askers.lock();
        let Some(askers) = files.get_mut(&fid) else { return false };
        let done = are_done(askers, now);
        if done {
            files.remove(&fid);
        }
        !done
    }

    /// The kernel is about to forget the attributes of `fid`.
    pub fn forgets(&self, fid: Fid) {
        self.place(fid).store(OUTDATED, Ordering::Relaxed);
    }
}

/// Lets go of who is done; whether all are.
fn are_done(askers: &mut Vec<Asker>, now: Time) -> bool {
    askers.retain_mut(|asker| !asker.is_done(now));
    askers.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1);
    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn only_what_has_changed_is_waited_for() {
        let asking = Asking::default();
        let own = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        asking.asked(FID, own, NOW);
        assert!(!asking.is_waited_for(FID, NOW), "what the kernel knows is current");
        asking.forgets(FID);
        assert!(!asking.is_waited_for(FID, NOW), "nobody asks");
        asking.asked(FID, own, NOW);
        assert!(asking.is_waited_for(FID, NOW));
    }

    #[test]
    fn a_thread_is_waited_for_until_it_has_run() {
        let asking = Arc::new(Asking::default());
        // It runs all the time.
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        asking.forgets(FID);
        asking.asked(FID, own, NOW);
        let answer = asking.answers(FID, own);
        assert!(answer.is_some(), "it asked");
        asking.told(FID, true);
        for _ in 0..1000 {
            assert!(asking.is_waited_for(FID, NOW), "its answer is on its way");
        }
        drop(answer);
        while asking.is_waited_for(FID, NOW) {}
        asking.asked(FID, own, NOW);
        assert!(!asking.is_waited_for(FID, NOW), "the kernel has heard of it");
        assert!(asking.answers(FID, own).is_none());
        asking.told(FID, false);
        asking.asked(FID, own, NOW);
        assert!(asking.is_waited_for(FID, NOW), "it is not told if that changes");
    }

    #[test]
    fn few_are_remembered() {
        let asking = Asking::default();
        asking.forgets(FID);
        (1..=2 * THREADS_MAX as u32).for_each(|thread| asking.asked(FID, u32::MAX - thread, NOW));
        assert_eq!(asking.askers.lock()[&FID].len(), THREADS_MAX);
        for oid in 0..2 * FILES_MAX as u32 {
            asking.forgets(Fid { oid, ..FID });
            asking.asked(Fid { oid, ..FID }, 1, NOW);
        }
        assert_eq!(asking.askers.lock().len(), FILES_MAX);
    }
}
