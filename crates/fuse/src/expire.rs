//! Has the kernel expire names when their lock goes.
//!
//! The kernel takes the lock of the directory to expire a name, and a change that holds it may be waiting for us. So each
//! name is expired by a thread of its own, and whoever waits for it waits until the time of the name is over at the longest:
//! from then on the kernel asks by itself. See [`crate::names`].

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use proto::Fid;
use rt::sync::oneshot;
use rt::{Rt, Time};

use crate::names::{Kept, Names, Place, TO_USE_MAX};
use crate::progress;
use crate::threads::{self, Threads};

/// Threads that expire names, at most: each may wait for the lock of a directory.
const THREADS_MAX: usize = 64;
/// How often a thread is looked at that was told of a name and may not have used that yet.
const TO_USE_TICK: Duration = Duration::from_micros(100);

/// Expires one name in the kernel; done when the kernel does not use it any more without asking.
pub type Expire = Box<dyn Fn(&Place) + Send + Sync>;

/// Who waits until something is forgotten is told by the end of this.
type Done = Arc<oneshot::Sender<()>>;

/// It has no bound, for nobody who has something forgotten may wait here; there are few messages for each name that the kernel keeps.
#[allow(clippy::disallowed_types)]
type Sender = mpsc::Sender<Message>;

enum Message {
    /// The names of a file have to go.
    Forget(Fid, Done),
    /// The time of one is over earlier than was to be feared.
    Used(Fid),
    /// One was expired.
    Expired(Fid, Kept),
}

/// The threads that expire names. They end with this value.
pub struct Expirer {
    rt: Rt,
    names: Arc<Mutex<Names>>,
    messages: Arc<Sender>,
}

impl Expirer {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(rt: Rt, names: Arc<Mutex<Names>>, expire: Expire) -> io::Result<Expirer> {
        let (messages, inbox) = mpsc::channel();
        let messages = Arc::new(messages);
        let (clock, told, back) = (rt.clone(), names.clone(), Arc::downgrade(&messages));
        let threads = Threads::start("weft-expire", THREADS_MAX, move |(fid, kept): (Fid, Kept)| {
            until_used(&clock, &kept);
            told.lock().used(&kept.place, kept.number, clock.now());
            let _ = Weak::upgrade(&back).map(|back| back.send(Message::Used(fid)));
            expire(&kept.place);
            // Nobody waits if the connection is gone.
            let _ = Weak::upgrade(&back).map(|back| back.send(Message::Expired(fid, kept)));
        })?;
        let (files, ends) = (HashMap::new(), BTreeSet::new());
        let mut waiting = Waiting { rt: rt.clone(), names: names.clone(), threads, files, ends };
        threads::start("weft-names", move || waiting.run(&inbox))?;
        Ok(Expirer { rt, names, messages })
    }

    /// Has the kernel forget the names of `fid`, or of all files. `None`: it keeps none.
    pub fn forget(&self, fid: Option<Fid>) -> Option<oneshot::Receiver<()>> {
        let fids: Vec<Fid> = {
            let (names, now) = (self.names.lock(), self.rt.now());
            let fids = fid.map_or_else(|| names.files(), |fid| vec![fid]);
            fids.into_iter().filter(|fid| names.is_kept(*fid, now).is_some()).collect()
        };
        if fids.is_empty() {
            return None;
        }
        let (done, wait) = oneshot::channel();
        let done = Arc::new(done);
        for fid in fids {
            // A thread that is gone: the connection is, and all copies with it.
            let _ = self.messages.send(Message::Forget(fid, done.clone()));
        }
        Some(wait)
    }
}

/// What one file waits for.
#[derive(Default)]
struct Waiter {
    done: Vec<Done>,
    /// Names that threads are expiring: the number of each, and its directory.
    under_way: HashMap<u64, u64>,
}

/// Files whose names have to go.
struct Waiting {
    rt: Rt,
    names: Arc<Mutex<Names>>,
    threads: Threads<(Fid, Kept)>,
    files: HashMap<Fid, Waiter>,
    ends: BTreeSet<(Time, Fid)>,
}

impl Waiting {
    fn run(&mut self, inbox: &mpsc::Receiver<Message>) {
        loop {
            let next = self.ends.first().map(|(end, _)| *end - self.rt.now());
            let message = match next {
                Some(pause) => inbox.recv_timeout(pause),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Forget(fid, done)) => {
                    self.files.entry(fid).or_default().done.push(done);
                    self.look_at(fid);
                }
                Ok(Message::Expired(fid, kept)) => {
                    // Both here: what is expired is not late.
                    self.names.lock().expired(&kept.place, kept.number);
                    if let Some(waiter) = self.files.get_mut(&fid) {
                        waiter.under_way.remove(&kept.number);
                        self.look_at(fid);
                    }
                }
                Ok(Message::Used(fid)) => self.look_at(fid),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((_, fid)) = self.ends.pop_first() {
                        self.look_at(fid);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Begins what is to be done for a file, or ends it.
    fn look_at(&mut self, fid: Fid) {
        let Some(waiter) = self.files.get_mut(&fid) else { return };
        let now = self.rt.now();
        let mut names = self.names.lock();
        if let Some(until) = names.is_kept(fid, now) {
            for kept in names.expire(fid, now) {
                waiter.under_way.insert(kept.number, kept.place.0);
                self.threads.give((fid, kept));
            }
            self.ends.insert((until, fid));
            return;
        }
        for dir in waiter.under_way.values() {
            names.is_late(*dir, now);
        }
        self.files.remove(&fid);
    }
}

/// Waits until the threads that were told of a name of late have used what they were told: the kernel counts from then on, and
/// what is expired before is kept.
fn until_used(rt: &Rt, kept: &Kept) {
    for (thread, told) in &kept.threads {
        // Who has been answered neither sleeps nor is gone before it has used the answer.
        let begun = progress::ready(*thread);
        while rt.now() - *told < TO_USE_MAX && begun.is_some() && progress::ready(*thread) == begun {
            threads::pause(TO_USE_TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    // Threads are looked at, in real time.
    #![allow(clippy::disallowed_methods, clippy::disallowed_types)]

    use std::sync::mpsc::{Receiver, Sender};
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };
    const DIR: u64 = 1;
    const KEPT: Duration = Duration::from_millis(250);

    fn place(name: &'static str) -> Place {
        (DIR, Bytes::from_static(name.as_bytes()))
    }

    fn keep(names: &Mutex<Names>, name: &'static str, thread: u32, now: Time) -> bool {
        !names.lock().keep(FILE, place(name), KEPT, thread, now).is_zero()
    }

    fn rt() -> Rt {
        Rt::os(rt::os::Node::start_without_rings(1).expect("a node"))
    }

    fn names() -> Arc<Mutex<Names>> {
        Arc::default()
    }

    /// The number of a thread that has been answered, and sleeps.
    fn asleep() -> (u32, Sender<()>) {
        let (go, waits) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
            let _ = waits.recv();
        });
        let thread = told.recv().expect("its number");
        until(|| progress::ready(thread).is_none());
        (thread, go)
    }

    /// A kernel whose directories are locked until each is let go.
    fn locked() -> (Expire, Receiver<Place>, Sender<()>) {
        let (asked, asks) = mpsc::channel();
        let (unlock, lock) = mpsc::channel::<()>();
        let lock = Mutex::new(lock);
        let expire = move |place: &Place| {
            let _ = asked.send(place.clone());
            let _ = lock.lock().recv();
        };
        (Box::new(expire), asks, unlock)
    }

    fn is_done(wait: &mut oneshot::Receiver<()>) -> bool {
        !matches!(wait.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it comes to that");
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_goes_on_when_each_name_is_expired() {
        let (rt, names, (expire, asks, unlock), (thread, _go)) = (rt(), names(), locked(), asleep());
        let expirer = Expirer::start(rt.clone(), names.clone(), expire).expect("threads");
        assert!(expirer.forget(Some(FILE)).is_none(), "nothing is kept");
        assert!(keep(&names, "a", thread, rt.now()));
        let mut wait = expirer.forget(Some(FILE)).expect("a name is kept");
        assert_eq!(asks.recv().expect("it is expired"), place("a"));
        // A change under way that had the lock moves the name meanwhile.
        names.lock().moved(&place("a"), &place("b"), false);
        assert!(!is_done(&mut wait));
        unlock.send(()).expect("it waits");
        assert_eq!(asks.recv().expect("it is expired too"), place("b"));
        assert!(!is_done(&mut wait));
        unlock.send(()).expect("it waits");
        until(|| is_done(&mut wait));
        assert!(keep(&names, "a", thread, rt.now()), "the directory is not busy");
    }

    /// The lock of the directory is held by who waits for the answer that waits for this.
    #[test]
    fn nobody_waits_for_a_lock_longer_than_a_name_is_kept() {
        let (rt, names, (expire, asks, _unlock), (thread, _go)) = (rt(), names(), locked(), asleep());
        let expirer = Expirer::start(rt.clone(), names.clone(), expire).expect("threads");
        let told = rt.now();
        assert!(keep(&names, "a", thread, told));
        let mut wait = expirer.forget(None).expect("a name is kept");
        asks.recv().expect("it is tried");
        until(|| is_done(&mut wait));
        assert!(rt.now() - told >= KEPT, "the kernel uses it until then");
        assert!(rt.now() - told < KEPT + TO_USE_MAX, "the thread has been seen to sleep");
        assert!(!keep(&names, "b", thread, rt.now()), "the directory is busy");
    }

    #[test]
    fn a_thread_that_was_told_is_let_run_first() {
        let (sleeps, _go) = asleep();
        assert_eq!(progress::ready(sleeps), None);
        let runs = std::thread::spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            let before = progress::ready(thread);
            assert!(before.is_some(), "it runs");
            until(|| progress::ready(thread) != before);
        });
        runs.join().expect("it is seen to go on");
    }
}
