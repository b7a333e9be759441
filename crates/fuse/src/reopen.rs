//! Files that are gone when the kernel comes back to them.
//!
//! The kernel opens a file in two or three requests: it looks its name up, asks for attributes, and opens what the name meant. A file that
//! loses its name in between may be gone. The kernel then does all of it again, but only once, and tells its caller ESTALE if the second
//! file is gone too: so it goes with names that others replace all the time, and a local file system knows no such error. So the file
//! that a thread looks up next after it was told ESTALE is held open for a moment ([`client::posix::Posix::hold_name`]): it is there
//! for whatever the thread asks then. The same goes for stat(2) and others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::Handle;
use parking_lot::Mutex;
use proto::Fid;
use rt::Time;

use crate::names::Place;

/// How long after a failure the kernel's second try counts, and how long a file is held for it.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Threads that try again at the same time, at most; further ones go without.
const THREADS_MAX: usize = 1024;
/// How often in a row a name means the file that is held. The kernel looks again when it knew the name to mean another file, and as often
/// as other threads have it mean theirs meanwhile.
const LOOKS_MAX: u32 = 16;

/// How far a thread is with its second try.
#[derive(Debug)]
enum Stage {
    /// Its file was gone, and nothing was looked up yet.
    Gone,
    /// A name means a file that is held. After so many more look-ups it is looked up again.
    Held { place: Place, fid: Fid, handle: Handle, looks: u32 },
}

/// What a look-up is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing else.
    Plainly,
    /// If it finds a regular file, it holds that.
    Holding,
    /// The name means this file: it is held.
    Held(Fid),
}

/// Threads whose file was gone.
#[derive(Debug, Default)]
pub struct Reopens {
    threads: Mutex<HashMap<u32, (Stage, Time)>>,
    count: AtomicUsize,
}

impl Reopens {
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<u32, (Stage, Time)>) -> T) -> T {
        let mut threads = self.threads.lock();
        let done = change(&mut threads);
        self.count.store(threads.len(), Ordering::Release);
        done
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// `thread`, which is 0 if it cannot be seen from here, is told that its file is gone.
    pub fn was_gone(&self, thread: u32, now: Time) {
        if thread == 0 {
            return;
        }
        self.change(|threads| {
            threads.retain(|_, (_, until)| now < *until);
            if threads.len() < THREADS_MAX || threads.contains_key(&thread) {
                threads.insert(thread, (Stage::Gone, now + PATIENCE));
            }
        });
    }

    /// `thread` looks a name up.
    pub fn look(&self, thread: u32, place: &Place, now: Time) -> Look {
        if self.is_empty() {
            return Look::Plainly;
        }
        self.change(|threads| match threads.get_mut(&thread) {
            Some((Stage::Gone, until)) if now < *until => Look::Holding,
            Some((Stage::Held { place: held, fid, looks, .. }, until))
                if held == place && *looks > 0 && now < *until =>
            {
                *looks -= 1;
                Look::Held(*fid)
            }
            _ => {
                threads.remove(&thread);
                Look::Plainly
            }
        })
    }

    /// The name at `place` was found to mean `fid`, which the caller holds for [`PATIENCE`].
    pub fn holds(&self, thread: u32, (place, fid, handle): (Place, Fid, Handle), now: Time) {
        self.change(|threads| {
            if let Some(stage) = threads.get_mut(&thread) {
                *stage = (Stage::Held { place, fid, handle, looks: LOOKS_MAX }, now + PATIENCE);
            }
        });
    }

    /// `thread` asks for something else than a name, about `of` if that is given: it is done with a name that means `of`, or with all.
    pub fn goes_on(&self, thread: u32, of: Option<Fid>) {
        if !self.is_empty() {
            let is_done =
                |stage: &Stage| matches!(stage, Stage::Held { fid, .. } if of.is_none_or(|of| of == *fid));
            self.change(|threads| {
                if threads.get(&thread).is_some_and(|(stage, _)| is_done(stage)) {
                    threads.remove(&thread);
                }
            });
        }
    }

    /// What was held is held no more.
    pub fn lets_go(&self, thread: u32, of: Handle) {
        self.change(|threads| {
            let is_it = |stage: &Stage| matches!(stage, Stage::Held { handle, .. } if *handle == of);
            if threads.get(&thread).is_some_and(|(stage, _)| is_it(stage)) {
                threads.remove(&thread);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { seq: 0x2_0000_0400, oid, ver: 0 }
    }

    fn place(name: &'static str) -> Place {
        (1, Bytes::from_static(name.as_bytes()))
    }

    fn held(name: &'static str, oid: u32) -> (Place, Fid, Handle) {
        (place(name), fid(oid), Handle(oid.into()))
    }

    #[test]
    fn what_is_looked_up_after_a_failure_is_held() {
        let (reopens, now) = (Reopens::default(), Time::default());
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly);
        reopens.holds(5, held("a", 7), now);
        assert!(reopens.is_empty(), "nothing was gone");
        reopens.was_gone(5, now);
        assert_eq!(reopens.look(6, &place("a"), now), Look::Plainly, "another thread");
        reopens.goes_on(5, None);
        assert_eq!(reopens.look(5, &place("dir"), now), Look::Holding);
        assert_eq!(reopens.look(5, &place("a"), now), Look::Holding);
        reopens.holds(5, held("a", 7), now);
        for _ in 0..LOOKS_MAX {
            assert_eq!(reopens.look(5, &place("a"), now), Look::Held(fid(7)));
        }
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly, "not for ever");
        assert!(reopens.is_empty());
    }

    #[test]
    fn a_name_means_what_is_held_until_something_else_is_asked() {
        let (reopens, now) = (Reopens::default(), Time::default());
        let hold = || {
            reopens.was_gone(5, now);
            reopens.holds(5, held("a", 7), now);
        };
        hold();
        reopens.goes_on(5, Some(fid(1)));
        assert_eq!(reopens.look(5, &place("a"), now), Look::Held(fid(7)), "about the directory");
        reopens.goes_on(5, Some(fid(7)));
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly);
        hold();
        reopens.goes_on(5, None);
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly);
        hold();
        assert_eq!(reopens.look(5, &place("b"), now), Look::Plainly, "another name");
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly);
        hold();
        reopens.lets_go(5, Handle(8));
        assert_eq!(reopens.look(5, &place("a"), now), Look::Held(fid(7)));
        reopens.lets_go(5, Handle(7));
        assert_eq!(reopens.look(5, &place("a"), now), Look::Plainly);
        hold();
        assert_eq!(reopens.look(5, &place("a"), now + PATIENCE), Look::Plainly, "too late");
    }

    #[test]
    fn few_threads_are_remembered() {
        let (reopens, now) = (Reopens::default(), Time::default());
        (0..2 * THREADS_MAX as u32).for_each(|thread| reopens.was_gone(thread, now));
        assert_eq!(reopens.threads.lock().len(), THREADS_MAX);
        reopens.was_gone(7, now + PATIENCE);
        assert_eq!(reopens.threads.lock().len(), 1, "what is over goes");
    }
}
