//! Inodes that the kernel may be about to make: nothing of them can be forgotten before.
//!
//! The kernel makes an inode of an answer in the thread that asked ([`crate::progress`]). Until then it knows no such inode when it is told
//! to forget its attributes, and would go on with what the answer said.

use std::time::Duration;

use parking_lot::Mutex;
use proto::{Fid, Shards};
use rt::Time;

use crate::progress::Answered;

/// How long after an answer a thread is waited for that cannot be seen from here: it is in no PID namespace of the mount's.
const UNSEEN: Duration = Duration::from_millis(20);
/// Places for files; those that share one are taken for each other.
const PLACES: usize = 1024;
/// Threads of one place, at most; the first goes first.
const THREADS_MAX: usize = 8;

/// Who was told of some files.
#[derive(Debug, Default)]
struct Place {
    threads: Vec<Answered>,
    /// When one was told that cannot be seen.
    unseen: Option<Time>,
}

/// Which threads were told of which inodes that the kernel may keep.
#[derive(Default)]
pub struct Settling {
    places: Shards<Mutex<Place>, PLACES>,
}

impl Settling {
    /// An answer to `thread` lets the kernel keep attributes of `fid`; 0 if the thread cannot be seen.
    pub fn told(&self, fid: Fid, thread: u32, now: Time) {
        let mut place = self.places.of(&fid).lock();
        if thread == 0 {
            place.unseen = Some(now);
            return;
        }
        // Who asks again has run.
        place.threads.retain(|answered| answered.thread() != thread);
        if place.threads.len() == THREADS_MAX {
            place.threads.remove(0);
        }
        place.threads.push(Answered::new(thread));
    }

    /// Whether the kernel may be making the inode right now. Answers that told of it have reached the kernel.
    pub fn is_making(&self, fid: Fid, now: Time) -> bool {
        let mut place = self.places.of(&fid).lock();
        place.threads.retain_mut(|answered| !answered.has_run(now));
        place.unseen = place.unseen.filter(|told| now - *told <= UNSEEN);
        !place.threads.is_empty() || place.unseen.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

    #[test]
    fn an_inode_settles_until_who_was_told_has_run() {
        let (settling, now) = (Settling::default(), Time::default());
        assert!(!settling.is_making(FID, now));
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        settling.told(FID, own, now);
        assert!(settling.is_making(FID, now), "it has not been seen to run yet");
        // It runs all the time.
        while settling.is_making(FID, now) {}
    }

    #[test]
    fn who_cannot_be_seen_is_waited_for_a_while() {
        let (settling, now) = (Settling::default(), Time::default());
        settling.told(FID, 0, now);
        assert!(settling.is_making(FID, now + UNSEEN));
        assert!(!settling.is_making(FID, now + 2 * UNSEEN));
    }

    #[test]
    fn few_threads_are_remembered() {
        let settling = Settling::default();
        (1..100).for_each(|thread| settling.told(FID, thread, Time::default()));
        assert_eq!(settling.places.of(&FID).lock().threads.len(), THREADS_MAX);
    }
}
