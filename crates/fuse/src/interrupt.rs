//! Operations that wait, and the signals that end them.
//!
//! The kernel tells of a signal once for each request, whatever the signal; and only when the request is answered does
//! the process come back. What that means depends on the operation:
//!
//! - A wait for a lock ends with EINTR at any signal, as flock(2) and fcntl(2) say.
//! - An operation that only reads is abandoned when the process is about to die. Any other signal has to wait: no
//!   application expects EINTR from stat(2). The signal that kills may come later and is not told of, so an interrupted
//!   operation that goes on waiting is looked after.
//! - An operation that opens is answered, and what it opens is closed when it has come to its end.
//! - An operation that changes something runs to its end.
//!
//! Only operations that did not end in their first poll are here. A signal can be told of before that: it is
//! remembered.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rt::sync::Notify;

use crate::proc;

/// Most remembered interrupts of requests that do not wait (yet). Most of them come too late, for requests that were
/// just answered.
const EARLY_MAX: usize = 1024;

/// Which signals end a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Any that the kernel tells of.
    AnySignal,
    /// One that kills the process.
    Death,
}

/// Whether the thread `pid` is about to die of a signal. One that cannot be seen from here counts as dying: it may be
/// in a PID namespace of its own, and nobody could end its wait else.
pub fn is_dying(pid: u32) -> bool {
    if pid == 0 {
        return true;
    }
    match proc::read(pid, "status") {
        Ok(status) => has_fatal_signal(&status),
        Err(_) => true,
    }
}

/// Whether the thread `pid` can be seen to be about to die of a signal.
fn is_seen_dying(pid: u32) -> bool {
    let status = proc::read(pid, "status");
    pid != 0 && status.is_ok_and(|status| has_fatal_signal(&status))
}

/// Whether the thread `pid` has a signal to take. Over io_uring, Linux (6.18 and before) does not tell of a signal that
/// came before the request was handed over: the thread would wait for its lock as if nobody had called it.
fn is_signalled(pid: u32) -> bool {
    pid != 0 && proc::read(pid, "status").is_ok_and(|status| has_signal(&status))
}

/// Whether /proc/PID/status tells of a pending signal that is not blocked.
fn has_signal(status: &str) -> bool {
    (mask(status, "SigPnd") | mask(status, "ShdPnd")) & !mask(status, "SigBlk") != 0
}

/// A set of signals in /proc/PID/status.
fn mask(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
}

/// Signals that do nothing unless they are caught: SIGCHLD, SIGCONT, SIGURG, SIGWINCH, and those that stop.
const HARMLESS: u64 = bit(libc::SIGCHLD)
    | bit(libc::SIGCONT)
    | bit(libc::SIGURG)
    | bit(libc::SIGWINCH)
    | bit(libc::SIGSTOP)
    | bit(libc::SIGTSTP)
    | bit(libc::SIGTTIN)
    | bit(libc::SIGTTOU);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether /proc/PID/status tells of a pending signal that is neither blocked nor caught nor ignored nor harmless. The
/// kernel gives SIGKILL to every thread of a process that is killed, by whatever signal.
fn has_fatal_signal(status: &str) -> bool {
    let mask = |name| mask(status, name);
    let pending = mask("SigPnd") | mask("ShdPnd");
    let handled = mask("SigBlk") | mask("SigIgn") | mask("SigCgt") | HARMLESS;
    pending & (!handled | bit(libc::SIGKILL)) != 0
}

/// When to look again after those who wait.
pub enum Look {
    /// Soon.
    Again,
    /// Nobody waits: once there is news.
    Rest(Arc<Notify>),
    /// Never: the connection is gone.
    Over,
}

/// The waiting operations of a mount.
#[derive(Default)]
pub struct Interrupts {
    table: Mutex<Table>,
    /// Somebody waits, or nobody ever will again.
    waits: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Arc<Waiter>>,
    early: BTreeSet<u64>,
    over: bool,
    /// Nobody waits, and whoever looks after them sleeps.
    rests: bool,
}

/// A waiting operation.
pub struct Waiter {
    ends: Ends,
    pid: u32,
    ended: AtomicBool,
    /// It waited already when somebody looked after everybody.
    seen: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Waiter {
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Ends the wait if the process is dying.
    pub fn end_if_dying(&self) -> bool {
        let dying = is_dying(self.pid);
        if dying {
            self.end();
        }
        dying
    }

    /// Whether nobody waits any more.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// What an interrupt does to a request.
pub enum Told {
    /// Nothing more is to be done.
    Done,
    /// The operation goes on; its process may die yet, and nobody will tell.
    Watch(Arc<Waiter>),
}

impl Interrupts {
    /// The kernel tells of a signal to the process of request `unique`.
    pub fn interrupt(&self, unique: u64) -> Told {
        let mut table = self.table.lock();
        let waiter = table.waiting.get(&unique).cloned();
        match waiter {
            Some(waiter) => {
                drop(table);
                signalled(waiter)
            }
            None => {
                table.early.insert(unique);
                if table.early.len() > EARLY_MAX {
                    // Numbers grow, so this is the oldest.
                    table.early.pop_first();
                }
                Told::Done
            }
        }
    }

    /// Lets request `unique` of thread `pid` wait with `future`, and what its signal that came before means.
    pub fn wait<F: Future + Unpin>(
        self: &Arc<Self>,
        unique: u64,
        pid: u32,
        ends: Ends,
        future: F,
    ) -> (Waiting<F>, Told) {
        let waiter = Arc::new(Waiter {
            ends,
            pid,
            ended: AtomicBool::new(false),
            seen: AtomicBool::new(false),
            waker: Mutex::new(None),
        });
        let mut table = self.table.lock();
        let was_early = table.early.remove(&unique);
        let is_over = table.over;
        table.waiting.insert(unique, waiter.clone());
        let rests = std::mem::take(&mut table.rests);
        drop(table);
        if rests {
            self.waits.notify_one();
        }
        if is_over {
            waiter.end();
        }
        let was_early = was_early || (ends == Ends::AnySignal && is_signalled(pid));
        let told = if was_early { signalled(waiter.clone()) } else { Told::Done };
        (Waiting { unique, future: Some(future), waiter, interrupts: self.clone() }, told)
    }

    /// Ends the waits of those who waited at the last look already, and whose signal was not told of: over io_uring that
    /// happens to one that comes before the request is handed over.
    pub fn look_after_all(&self) -> Look {
        let mut table = self.table.lock();
        if table.over {
            return Look::Over;
        }
        if table.waiting.is_empty() {
            table.rests = true;
            return Look::Rest(self.waits.clone());
        }
        let seen = table.waiting.values().filter(|waiter| waiter.seen.swap(true, Ordering::Relaxed));
        let seen: Vec<_> = seen.cloned().collect();
        drop(table);
        for waiter in seen {
            match waiter.ends {
                Ends::AnySignal if is_signalled(waiter.pid) => waiter.end(),
                Ends::AnySignal => {}
                // Nobody has told of a signal: a process that cannot be seen from here may be well.
                Ends::Death if is_seen_dying(waiter.pid) => waiter.end(),
                Ends::Death => {}
            }
        }
        Look::Again
    }

    /// The connection is gone: whoever can be abandoned is. Whether there was anybody.
    pub fn end_all(&self) -> bool {
        let mut table = self.table.lock();
        table.over = true;
        self.waits.notify_one();
        let waiting: Vec<_> = table.waiting.values().cloned().collect();
        drop(table);
        waiting.iter().for_each(|waiter| waiter.end());
        !waiting.is_empty()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.waits.notify_one();
    }
}

fn signalled(waiter: Arc<Waiter>) -> Told {
    match waiter.ends {
        Ends::AnySignal => waiter.end(),
        Ends::Death => {
            if !waiter.end_if_dying() {
                return Told::Watch(waiter);
            }
        }
    }
    Told::Done
}

/// A wait that can end early: gives the operation back then.
pub struct Waiting<F> {
    unique: u64,
    future: Option<F>,
    waiter: Arc<Waiter>,
    interrupts: Arc<Interrupts>,
}

/// How a wait ended.
pub enum Outcome<F: Future> {
    /// The operation is done.
    Done(F::Output),
    /// It was interrupted.
    Interrupted(F),
}

impl<F: Future + Unpin> Future for Waiting<F> {
    type Output = Outcome<F>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<F>> {
        *self.waiter.waker.lock() = Some(cx.waker().clone());
        let future = self.future.as_mut().expect("a future is not polled after its end");
        if let Poll::Ready(output) = Pin::new(future).poll(cx) {
            return Poll::Ready(Outcome::Done(output));
        }
        if !self.waiter.is_over() {
            return Poll::Pending;
        }
        let future = self.future.take().expect("it was there above");
        Poll::Ready(Outcome::Interrupted(future))
    }
}

impl<F> Drop for Waiting<F> {
    fn drop(&mut self) {
        self.waiter.ended.store(true, Ordering::Release);
        self.interrupts.table.lock().waiting.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    fn poll<F: Future + Unpin>(waiting: &mut Waiting<F>) -> Poll<Outcome<F>> {
        pin!(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_wait_for_a_lock_ends_at_any_signal() {
        let interrupts = Arc::new(Interrupts::default());
        let me = std::process::id();
        let (mut first, _) = interrupts.wait(1, me, Ends::AnySignal, pending::<()>());
        let (mut second, _) = interrupts.wait(2, me, Ends::AnySignal, pending::<()>());
        assert!(poll(&mut first).is_pending());
        interrupts.interrupt(1);
        assert!(matches!(poll(&mut first), Poll::Ready(Outcome::Interrupted(_))));
        assert!(poll(&mut second).is_pending(), "another request is not concerned");
    }

    #[test]
    fn who_waits_for_long_is_looked_after_and_left_alone_if_well() {
        let interrupts = Arc::new(Interrupts::default());
        let (mut well, _) = interrupts.wait(1, std::process::id(), Ends::Death, pending::<()>());
        let (mut unseen, _) = interrupts.wait(2, 0, Ends::Death, pending::<()>());
        for _ in 0..3 {
            assert!(matches!(interrupts.look_after_all(), Look::Again));
            assert!(poll(&mut well).is_pending() && poll(&mut unseen).is_pending());
        }
        interrupts.end_all();
        assert!(matches!(interrupts.look_after_all(), Look::Over));
    }

    #[test]
    fn while_nobody_waits_nobody_is_looked_after() {
        let interrupts = Arc::new(Interrupts::default());
        let Look::Rest(waits) = interrupts.look_after_all() else { panic!("nobody waits") };
        let mut told = pin!(waits.notified());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(told.as_mut().poll(&mut cx).is_pending());
        let (_waiting, _) = interrupts.wait(1, 1, Ends::Death, pending::<()>());
        assert!(told.as_mut().poll(&mut cx).is_ready());
        assert!(matches!(interrupts.look_after_all(), Look::Again));
        let mut gone = pin!(waits.notified());
        assert!(gone.as_mut().poll(&mut cx).is_pending());
        interrupts.end_all();
        assert!(gone.as_mut().poll(&mut cx).is_ready(), "whoever rests comes to an end");
    }

    #[test]
    fn a_signal_that_was_not_told_of_is_seen() {
        let status = |pending, blocked| {
            format!("Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\n")
        };
        assert!(has_signal(&status(0x200, 0x100)));
        assert!(!has_signal(&status(0x200, 0x200)));
        assert!(!has_signal(&status(0, 0)));
        assert!(!has_signal("nonsense"));
    }

    #[test]
    fn a_signal_may_come_first() {
        let interrupts = Arc::new(Interrupts::default());
        interrupts.interrupt(1);
        let (mut waiting, _) = interrupts.wait(1, 1, Ends::AnySignal, pending::<()>());
        assert!(matches!(poll(&mut waiting), Poll::Ready(Outcome::Interrupted(_))));
        let (mut done, _) = interrupts.wait(2, 1, Ends::AnySignal, ready(7));
        interrupts.interrupt(2);
        assert!(matches!(poll(&mut done), Poll::Ready(Outcome::Done(7))), "what is done is done");
    }

    #[test]
    fn a_reader_that_is_not_dying_is_watched() {
        let interrupts = Arc::new(Interrupts::default());
        let (mut waiting, _) = interrupts.wait(1, std::process::id(), Ends::Death, pending::<()>());
        assert!(matches!(interrupts.interrupt(1), Told::Watch(_)));
        assert!(poll(&mut waiting).is_pending());
        let (mut gone, _) = interrupts.wait(2, 0, Ends::Death, pending::<()>());
        assert!(matches!(interrupts.interrupt(2), Told::Done));
        assert!(matches!(poll(&mut gone), Poll::Ready(Outcome::Interrupted(_))));
    }

    #[test]
    fn the_end_ends_all_and_what_comes_later() {
        let interrupts = Arc::new(Interrupts::default());
        let (mut waiting, _) = interrupts.wait(1, 1, Ends::Death, pending::<()>());
        assert!(interrupts.end_all());
        assert!(matches!(poll(&mut waiting), Poll::Ready(Outcome::Interrupted(_))));
        let (mut late, _) = interrupts.wait(2, 1, Ends::Death, pending::<()>());
        assert!(matches!(poll(&mut late), Poll::Ready(Outcome::Interrupted(_))));
    }

    #[test]
    fn early_signals_are_bounded() {
        let interrupts = Arc::new(Interrupts::default());
        (0..3 * EARLY_MAX as u64).for_each(|unique| {
            interrupts.interrupt(unique);
        });
        assert_eq!(interrupts.table.lock().early.len(), EARLY_MAX);
    }

    #[test]
    fn nothing_stays_of_a_wait_that_is_over() {
        let interrupts = Arc::new(Interrupts::default());
        let (waiting, _) = interrupts.wait(1, 1, Ends::Death, pending::<()>());
        drop(waiting);
        assert!(interrupts.table.lock().waiting.is_empty());
    }

    #[test]
    fn fatal_signals_are_told_from_others() {
        let status = |pending: u64, blocked: u64, ignored: u64, caught: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\n\
                 SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
            )
        };
        let (int, kill, alarm) = (bit(libc::SIGINT), bit(libc::SIGKILL), bit(libc::SIGALRM));
        assert!(!has_fatal_signal(&status(0, 0, 0, 0)));
        assert!(has_fatal_signal(&status(int, 0, 0, 0)));
        assert!(!has_fatal_signal(&status(int, 0, 0, int)), "caught");
        assert!(!has_fatal_signal(&status(int, 0, int, 0)), "ignored");
        assert!(!has_fatal_signal(&status(int, int, 0, 0)), "blocked");
        assert!(!has_fatal_signal(&status(bit(libc::SIGCHLD), 0, 0, 0)), "harmless");
        assert!(has_fatal_signal(&status(kill | alarm, !0, 0, alarm)), "nothing keeps SIGKILL away");
    }
}
