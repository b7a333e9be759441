//! When a socket can be read or written.
//!
//! One entry of the ring watches both directions for as long as the socket is used. The kernel says when something
//! changes; so whoever reads or writes does it until it would block, and waits only then.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use super::Reactors;
use super::core::{Core, Order};
use super::op::{self, Direction, NO_NAME, Pending};

/// What is watched: both directions, the end of either, errors.
const EVENTS: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
/// What makes a direction ready for good.
const IN_END: i32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as i32;
const OUT_END: i32 = (libc::POLLHUP | libc::POLLERR) as i32;

/// Watches a socket. Armed at the first wait, on the core that waits.
pub(in crate::os) struct Watch {
    reactors: Arc<Reactors>,
    fd: Arc<OwnedFd>,
    armed: Mutex<Option<(Arc<Core>, Arc<Shared>)>>,
}

struct Shared {
    /// Open as long as the entry is in the ring.
    fd: Arc<OwnedFd>,
    name: AtomicU64,
    into: Ready,
    out: Ready,
    /// The kernel has ended the watch: it has to be armed again.
    is_over: AtomicBool,
}

/// One direction.
#[derive(Default)]
struct Ready {
    is_ready: AtomicBool,
    /// It stays so.
    is_end: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Ready {
    fn set(&self, is_end: bool) {
        if is_end {
            self.is_end.store(true, Ordering::Release);
        }
        self.is_ready.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was ready; not any more until the kernel says so again.
    fn take(&self) -> bool {
        self.is_end.load(Ordering::Acquire) || self.is_ready.swap(false, Ordering::AcqRel)
    }
}

impl Watch {
    pub(in crate::os) fn new(reactors: Arc<Reactors>, fd: Arc<OwnedFd>) -> Watch {
        Watch { reactors, fd, armed: Mutex::new(None) }
    }

    /// Waits until `direction` may be ready. Call after an attempt that would have blocked.
    pub(in crate::os) async fn wait(&self, direction: Direction) {
        poll_fn(|cx| {
            let shared = self.arm();
            let ready = match direction {
                Direction::In => &shared.into,
                Direction::Out => &shared.out,
            };
            if ready.take() {
                return Poll::Ready(());
            }
            *ready.waker.lock() = Some(cx.waker().clone());
            // It may have become ready before the waker was there.
            if ready.take() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn arm(&self) -> Arc<Shared> {
        let mut armed = self.armed.lock();
        if let Some((_, shared)) = &*armed
            && !shared.is_over.load(Ordering::Acquire)
        {
            return shared.clone();
        }
        let (into, out, is_over) = (Ready::default(), Ready::default(), AtomicBool::new(false));
        // Whoever waited for the watch that is over tries again, and waits with the new one.
        let shared =
            Arc::new(Shared { fd: self.fd.clone(), name: AtomicU64::new(NO_NAME), into, out, is_over });
        let core = self.reactors.here().clone();
        let entry = op::watching(&shared.fd, EVENTS.cast_unsigned().into());
        core.order(Order::Submit { entry, pending: shared.clone() });
        *armed = Some((core, shared.clone()));
        shared
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((core, shared)) = self.armed.get_mut().take() {
            core.order(Order::Cancel(shared));
        }
    }
}

impl Pending for Shared {
    fn completed(&self, result: i32, more: bool) {
        if result == -libc::ECANCELED {
            // The core has ended, or nobody watches any more: to try again would be in vain.
            return;
        }
        if !more {
            self.is_over.store(true, Ordering::Release);
        }
        // An error of the watch itself is found by whoever tries to read or write.
        let has = |event: i16| result < 0 || !more || result & i32::from(event) != 0;
        let end = |events: i32| result > 0 && result & events != 0;
        if has(libc::POLLIN) || end(IN_END) {
            self.into.set(end(IN_END));
        }
        if has(libc::POLLOUT) || end(OUT_END) {
            self.out.set(end(OUT_END));
        }
    }

    fn name(&self) -> &AtomicU64 {
        &self.name
    }
}
