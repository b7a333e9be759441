//! Requests that begin at the same time, in few frames.
//!
//! While a task begins many calls, what they send gathers; then the requests of each session go out as batches
//! (`docs/wire.md#batches`). That is all: each request has its own number and slot, waits for a slot if there is none,
//! and is sent again and replayed by itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use proto::session::Message;
use proto::session::machine::Outgoing;
use proto::wire::Header;

use crate::session::Link;

/// What gathers, of all sessions of a process.
#[derive(Default)]
pub(crate) struct Gathering {
    /// How many tasks begin calls right now.
    open: AtomicUsize,
    waiting: Mutex<Vec<(Arc<Link>, Outgoing)>>,
}

/// From here on requests gather; they go out when it is dropped.
struct Open<'a>(&'a Gathering);

impl Gathering {
    /// Sends a request over `link`, or keeps it until others are there: if a task is beginning many calls, and it may
    /// travel with others.
    pub(crate) fn send(&self, link: &Arc<Link>, header: Header, message: &Arc<Message>) {
        let may_gather = self.open.load(Ordering::Acquire) > 0 && message.bulk.is_empty();
        if may_gather {
            let mut waiting = self.waiting.lock();
            // Who ends the gathering says so under the lock, and takes what is there by then.
            if self.open.load(Ordering::Acquire) > 0 {
                waiting.push((link.clone(), (header, message.clone())));
                return;
            }
        }
        link.send(header, message);
    }

    fn open(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(self)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        let mut rest = std::mem::take(&mut *waiting);
        drop(waiting);
        while let Some((link, _)) = rest.first() {
            let link = link.clone();
            let of_link = rest.extract_if(.., |(other, _)| Arc::ptr_eq(other, &link));
            let outgoing = of_link.map(|(_, outgoing)| outgoing).collect();
            link.send_all(outgoing);
        }
    }
}

/// Runs futures at the same time on one task, so that what they send goes out together. Their results are in order.
///
/// Only those that were woken are polled.
pub(crate) struct Together<F: Future> {
    places: Vec<Place<F>>,
    /// The first that has not begun.
    next: usize,
    under_way: usize,
    under_way_max: usize,
    woken: Arc<Woken>,
}

enum Place<F: Future> {
    Running(Pin<Box<F>>, Waker),
    Waiting(Pin<Box<F>>),
    Done(F::Output),
    Taken,
}

/// Which of the futures were woken, and whom that wakes.
struct Woken {
    list: Mutex<WokenList>,
}

#[derive(Default)]
struct WokenList {
    places: Vec<usize>,
    waker: Option<Waker>,
}

/// Wakes one of them.
struct WakePlace {
    woken: Arc<Woken>,
    place: usize,
}

impl Wake for WakePlace {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = {
            let mut list = self.woken.list.lock();
            list.places.push(self.place);
            list.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<F: Future> Together<F> {
    pub(crate) fn new(futures: Vec<F>, under_way_max: usize) -> Together<F> {
        Together {
            places: futures.into_iter().map(|future| Place::Waiting(Box::pin(future))).collect(),
            next: 0,
            under_way: 0,
            under_way_max,
            woken: Arc::new(Woken { list: Mutex::default() }),
        }
    }

    /// Polls those that were woken and begins others; the results when all are there.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, gathering: &Gathering) -> Poll<Vec<F::Output>> {
        let mut due = {
            let mut list = self.woken.list.lock();
            list.waker = Some(cx.waker().clone());
            std::mem::take(&mut list.places)
        };
        due.sort_unstable();
        due.dedup();
        let mut due = due.into_iter();
        loop {
            // What was begun goes out now and then: the first need not wait for the last.
            let open = gathering.open();
            for _ in 0..proto::limits::BATCH_MAX {
                let Some(place) = due.next().or_else(|| self.begin()) else {
                    drop(open);
                    return self.end();
                };
                self.poll_place(place);
            }
        }
    }

    fn begin(&mut self) -> Option<usize> {
        if self.next == self.places.len() || self.under_way == self.under_way_max {
            return None;
        }
        let place = self.next;
        self.next += 1;
        self.under_way += 1;
        let at = self.places.get_mut(place)?;
        if let Place::Waiting(future) = std::mem::replace(at, Place::Taken) {
            let waker = Arc::new(WakePlace { woken: self.woken.clone(), place }).into();
            *at = Place::Running(future, waker);
        }
        Some(place)
    }

    fn poll_place(&mut self, place: usize) {
        let Some(at) = self.places.get_mut(place) else { return };
        // It may have been woken again after its end.
        let Place::Running(future, waker) = at else { return };
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            *at = Place::Done(output);
            self.under_way -= 1;
        }
    }

    fn end(&mut self) -> Poll<Vec<F::Output>> {
        if self.under_way > 0 || self.next < self.places.len() {
            return Poll::Pending;
        }
        let outputs = std::mem::take(&mut self.places).into_iter();
        Poll::Ready(
            outputs
                .map(|place| match place {
                    Place::Done(output) => output,
                    Place::Running(..) | Place::Waiting(_) | Place::Taken => {
                        panic!("all have ended, and none was taken before")
                    }
                })
                .collect(),
        )
    }
}
