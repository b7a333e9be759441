//! Files that are gone when the kernel opens them.
//!
//! The kernel opens a file in two requests: it looks its name up, and opens what that means. A file that loses its name in between
//! may be gone. The kernel then does both again, but only once, and tells its caller ESTALE if the second file is gone too: so it goes
//! with names that others replace all the time, and a local file system knows no such error. So a file that a thread looks up after
//! its open has failed is opened together with that ([`client::posix::Posix::open_name`]), and kept open for the open that follows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Caller, Handle};
use parking_lot::Mutex;
use proto::Fid;

use crate::names::Place;

/// How long after a failure the kernel's second try counts, and how long a file is kept open for it.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Threads that try again at the same time, at most; further ones go without.
const THREADS_MAX: usize = 1024;
/// How often a name means the file that is kept open. The kernel looks again when it knew the name to mean another file, and as often as
/// other threads have it mean theirs meanwhile.
const LOOKS_MAX: u32 = 16;

/// A thread, and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opener {
    thread: u32,
    uid: u32,
    gid: u32,
}

impl Opener {
    /// `thread`, which is 0 if it cannot be seen from here, with the caller's ids.
    pub fn new(thread: u32, caller: &Caller) -> Opener {
        Opener { thread, uid: caller.uid, gid: caller.gid }
    }
}

/// A file that is kept open.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    place: Place,
    fid: Fid,
    handle: Handle,
    looks: u32,
}

/// How far a thread is with its second try.
#[derive(Debug)]
struct Try {
    /// Flags of the open.
    flags: u32,
    until: Instant,
    /// `None`: its file was gone, and nothing was looked up yet.
    kept: Option<Kept>,
}

/// What a look-up is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing else.
    Plainly,
    /// If it finds a regular file, it is opened with these flags.
    Opening(u32),
    /// The name means this file: it is kept open.
    Kept(Fid),
}

/// Threads whose file was gone when they opened it.
#[derive(Debug, Default)]
pub struct Reopens {
    tries: Mutex<HashMap<Opener, Try>>,
    count: AtomicUsize,
}

impl Reopens {
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<Opener, Try>) -> T) -> T {
        let mut tries = self.tries.lock();
        let done = change(&mut tries);
        self.count.store(tries.len(), Ordering::Release);
        done
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The file that `opener` opened with `flags` is gone.
    pub fn was_gone(&self, opener: Opener, flags: u32, now: Instant) {
        if opener.thread == 0 {
            return;
        }
        self.change(|tries| {
            tries.retain(|_, given| given.kept.is_some() || now < given.until);
            // What is kept its timer lets go of.
            if tries.len() < THREADS_MAX && !tries.contains_key(&opener) {
                tries.insert(opener, Try { flags, until: now + PATIENCE, kept: None });
            }
        });
    }

    /// `opener` looks a name up.
    pub fn look(&self, opener: Opener, place: &Place, now: Instant) -> Look {
        if self.is_empty() {
            return Look::Plainly;
        }
        let mut tries = self.tries.lock();
        let Some(given) = tries.get_mut(&opener).filter(|given| now < given.until) else {
            return Look::Plainly;
        };
        match &mut given.kept {
            None => Look::Opening(given.flags),
            Some(kept) if kept.place == *place && kept.looks < LOOKS_MAX => {
                kept.looks += 1;
                Look::Kept(kept.fid)
            }
            Some(_) => Look::Plainly,
        }
    }

    /// The name at `place` was found to mean `fid`, which is open. Whether it is kept so until [`Reopens::take`] or [`Reopens::expire`]:
    /// else the caller closes it.
    pub fn keep(&self, opener: Opener, (place, fid, handle): (Place, Fid, Handle), now: Instant) -> bool {
        let mut tries = self.tries.lock();
        let Some(given) = tries.get_mut(&opener).filter(|given| given.kept.is_none()) else { return false };
        given.until = now + PATIENCE;
        given.kept = Some(Kept { place, fid, handle, looks: 0 });
        true
    }

    /// `opener` opens `fid`: the handle that is kept for it.
    pub fn take(&self, opener: Opener, fid: Fid, flags: u32) -> Option<Handle> {
        if self.is_empty() {
            return None;
        }
        self.change(|tries| {
            let is_it = |given: &Try| {
                given.flags == flags && given.kept.as_ref().is_some_and(|kept| kept.fid == fid)
            };
            tries.get(&opener).filter(|given| is_it(given))?;
            Some(tries.remove(&opener)?.kept?.handle)
        })
    }

    /// The time of a file that was kept is over; whether nobody has taken it.
    pub fn expire(&self, opener: Opener, handle: Handle) -> bool {
        self.change(|tries| {
            let is_it = |given: &Try| given.kept.as_ref().is_some_and(|kept| kept.handle == handle);
            tries.get(&opener).is_some_and(is_it) && tries.remove(&opener).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const OPENER: Opener = Opener { thread: 5, uid: 1, gid: 1 };

    fn fid(oid: u32) -> Fid {
        Fid { seq: 0x2_0000_0400, oid, ver: 0 }
    }

    fn place(name: &'static str) -> Place {
        (1, Bytes::from_static(name.as_bytes()))
    }

    #[test]
    fn what_is_looked_up_after_a_failure_is_open_for_the_open_that_follows() {
        let (reopens, now) = (Reopens::default(), Instant::now());
        assert_eq!(reopens.look(OPENER, &place("a"), now), Look::Plainly);
        reopens.was_gone(OPENER, 2, now);
        assert_eq!(reopens.look(Opener { uid: 2, ..OPENER }, &place("a"), now), Look::Plainly, "another user");
        assert_eq!(reopens.look(OPENER, &place("a"), now), Look::Opening(2));
        assert!(reopens.keep(OPENER, (place("a"), fid(7), Handle(9)), now));
        assert!(!reopens.keep(OPENER, (place("a"), fid(8), Handle(10)), now), "one at a time");
        assert_eq!(reopens.look(OPENER, &place("b"), now), Look::Plainly);
        for _ in 0..LOOKS_MAX {
            assert_eq!(reopens.look(OPENER, &place("a"), now), Look::Kept(fid(7)));
        }
        assert_eq!(reopens.look(OPENER, &place("a"), now), Look::Plainly, "not for ever");
        assert_eq!(reopens.take(OPENER, fid(7), 0), None, "another open");
        assert_eq!(reopens.take(OPENER, fid(8), 2), None, "another file");
        assert_eq!(reopens.take(OPENER, fid(7), 2), Some(Handle(9)));
        assert_eq!(reopens.take(OPENER, fid(7), 2), None, "once");
        assert!(reopens.is_empty() && !reopens.expire(OPENER, Handle(9)));
    }

    #[test]
    fn nothing_is_kept_for_long() {
        let (reopens, now) = (Reopens::default(), Instant::now());
        reopens.was_gone(OPENER, 2, now);
        assert_eq!(reopens.look(OPENER, &place("a"), now + PATIENCE), Look::Plainly);
        reopens.was_gone(Opener { thread: 6, ..OPENER }, 2, now + PATIENCE);
        assert_eq!(reopens.tries.lock().len(), 1, "what is over goes");
        reopens.was_gone(OPENER, 2, now);
        assert!(reopens.keep(OPENER, (place("a"), fid(7), Handle(9)), now));
        assert_eq!(reopens.look(OPENER, &place("a"), now + PATIENCE), Look::Plainly);
        assert!(reopens.expire(OPENER, Handle(9)));
        assert_eq!(reopens.take(OPENER, fid(7), 2), None);
        (0..2000).for_each(|thread| reopens.was_gone(Opener { thread, ..OPENER }, 2, now));
        assert_eq!(reopens.tries.lock().len(), THREADS_MAX);
    }
}
