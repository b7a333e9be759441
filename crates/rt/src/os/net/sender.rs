//! The sending half of a connection.
//!
//! Frames wait in a bounded queue. Whoever adds to an idle connection writes by itself, which saves waking a task
//! for each message; if the socket is full or the frame long, the connection's task takes over. A core writes short frames at the end of
//! its turn, so that those of one turn are one call of the system.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::sync::{Notify, Semaphore};

use super::super::driver::Driver;
use super::super::reactor::{AtTurnEnd, at_turn_end};
use super::prefix::{PREFIX_BYTES, Prefix};
use super::socket::Socket;
use crate::net::{Frame, Seal};
use crate::wait::unless;

/// Most bytes that wait in one connection.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Most frames that wait in one connection.
const QUEUE_FRAMES_MAX: usize = 4096;
/// Frames go into one batch until it has this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Slices of one system call.
const SLICES_MAX: usize = 64;
/// Slices up to this length are copied together: that costs less than another slice of a system call.
const COPY_BYTES_MAX: usize = 4096;
/// Frames up to this length are written together, in bytes.
const SHORT_BYTES_MAX: usize = 16 << 10;
/// Time that the peer has for taking what was queued when the connection was closed.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Sends frames. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    ends: Arc<Ends>,
}

/// Held by all senders and the receiver of a connection; closes it when the last is gone.
pub(super) struct Ends {
    link: Arc<Link>,
}

/// A connection's socket and what waits for it.
pub(super) struct Link {
    driver: Driver,
    socket: Socket,
    /// The connection's task was spawned.
    is_served: AtomicBool,
    out: Mutex<Out>,
    /// Taken by the owner of the turn only, so frames are sealed in the order in which they are written.
    seal: Mutex<Option<Box<dyn Seal>>>,
    /// Places in the queue, in bytes.
    places: Semaphore,
    /// Wakes the connection's task.
    task: Notify,
    /// Changed only under the lock of `out`.
    closed: AtomicBool,
    /// The error of a write that failed.
    broke: OnceLock<io::ErrorKind>,
    /// Calls of the system that wrote something.
    #[cfg(test)]
    calls: std::sync::atomic::AtomicUsize,
}

#[derive(Default)]
struct Out {
    queue: VecDeque<Queued>,
    /// Whether what is queued from now on is sealed.
    sealing: bool,
    /// What the socket did not take of the last batch; goes before the queue.
    rest: Batch,
    turn: Turn,
}

/// Whose turn it is to write. Only its owner takes batches, so frames never mix.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Nobody's: nothing waits, and whoever sends next writes.
    #[default]
    Free,
    /// A thread that sends.
    Sender,
    /// The connection's task.
    Task,
    /// Nobody's any more.
    Broken,
}

/// A frame that waits for its turn.
struct Queued {
    frame: Frame,
    sealed: bool,
}

/// Frames on their way into the kernel.
#[derive(Default)]
struct Batch {
    slices: VecDeque<Bytes>,
    /// Places of the queue that become free when it is written.
    places: usize,
}

impl Sender {
    pub(super) fn new(ends: Arc<Ends>) -> Sender {
        Sender { ends }
    }

    /// Queues `frame`; waits while the queue is full.
    pub async fn send(&self, frame: Frame) -> io::Result<()> {
        let link = &self.ends.link;
        Prefix::new(frame.head.len(), bulk_bytes(&frame))?;
        let places = u32::try_from(places_of(&frame)).map_err(io::Error::other)?;
        let Ok(permit) = link.places.acquire_many(places).await else { return Err(gone()) };
        // Given back when the frame is written.
        permit.forget();
        link.push(frame)
    }

    /// How often the system was called to write.
    #[cfg(test)]
    pub(super) fn calls(&self) -> usize {
        self.ends.link.calls.load(Ordering::Relaxed)
    }

    /// Protects every frame that is queued from now on.
    pub fn seal_with(&self, seal: Box<dyn Seal>) {
        let link = &self.ends.link;
        *link.seal.lock() = Some(seal);
        link.out.lock().sealing = true;
    }

    /// Ends the connection for both directions. What was queued is still sent if the peer takes it soon.
    pub fn close(&self) {
        self.ends.link.close();
    }
}

impl Ends {
    pub(super) fn new(link: Arc<Link>) -> Ends {
        Ends { link }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Has the connection's task run, beside whoever receives.
    pub(super) fn serve(&self) {
        self.link.begin();
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl Link {
    pub(super) fn new(driver: Driver, socket: Socket) -> Link {
        Link {
            driver,
            socket,
            is_served: AtomicBool::new(false),
            out: Mutex::default(),
            seal: Mutex::new(None),
            places: Semaphore::new(QUEUE_BYTES_MAX),
            task: Notify::new(),
            closed: AtomicBool::new(false),
            broke: OnceLock::new(),
            #[cfg(test)]
            calls: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Has the connection's task run where the caller is, if it does not yet.
    fn begin(self: &Arc<Self>) {
        if !self.is_served.swap(true, Ordering::AcqRel) {
            self.driver.spawn(Box::pin(serve(self.clone())));
        }
    }

    /// Tells the connection's task that there is something to do.
    fn wake_task(self: &Arc<Self>) {
        self.begin();
        self.task.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Why nothing can be received from a closed connection.
    pub(super) fn ending(&self) -> io::Error {
        match self.broke.get() {
            Some(kind) => io::Error::new(*kind, "the connection broke while it was written"),
            None => io::Error::new(io::ErrorKind::NotConnected, "the connection is closed"),
        }
    }

    /// Ends both directions for this side. The task writes what is queued and tells the peer.
    pub(super) fn close(self: &Arc<Self>) {
        let mut out = self.out.lock();
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if out.turn == Turn::Free {
            out.turn = Turn::Task;
        }
        drop(out);
        self.places.close();
        // Wakes the receiver. An error means that there is no connection any more.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
        self.wake_task();
    }

    fn push(self: &Arc<Self>, frame: Frame) -> io::Result<()> {
        let bytes = frame.head.len() + bulk_bytes(&frame);
        let (in_place, is_short) = (bytes <= self.driver.in_place_bytes_max(), bytes <= SHORT_BYTES_MAX);
        let mut out = self.out.lock();
        if self.is_closed() {
            return Err(gone());
        }
        let sealed = out.sealing;
        out.queue.push_back(Queued { frame, sealed });
        if out.turn != Turn::Free {
            return Ok(());
        }
        out.turn = if in_place { Turn::Sender } else { Turn::Task };
        drop(out);
        if in_place && is_short && at_turn_end(|| self.clone()) {
            return Ok(());
        }
        if in_place {
            self.write_in_place();
        } else {
            self.wake_task();
        }
        Ok(())
    }

    /// Writes one batch; what the socket does not take, and what came meanwhile, is left to the task.
    fn write_in_place(self: &Arc<Self>) {
        let written = self.next_batch(Turn::Sender).and_then(|batch| match batch {
            Some(mut batch) => self.write_now(&mut batch).map(|()| Some(batch)),
            None => Ok(None),
        });
        let batch = match written {
            Ok(Some(batch)) => batch,
            Ok(None) => return,
            Err(error) => return self.break_off(&error),
        };
        let mut out = self.out.lock();
        if out.turn != Turn::Sender {
            return;
        }
        out.rest = batch;
        if out.rest.slices.is_empty() && out.queue.is_empty() && !self.is_closed() {
            out.turn = Turn::Free;
        } else {
            out.turn = Turn::Task;
            drop(out);
            self.wake_task();
        }
    }

    /// The next batch, if it is `turn`'s turn; else, or if there is nothing to write, `None`.
    fn next_batch(&self, turn: Turn) -> io::Result<Option<Batch>> {
        let mut out = self.out.lock();
        if out.turn != turn {
            return Ok(None);
        }
        let mut batch = std::mem::take(&mut out.rest);
        if !batch.slices.is_empty() {
            return Ok(Some(batch));
        }
        let frames = take_frames(&mut out.queue);
        if frames.is_empty() {
            if !self.is_closed() {
                out.turn = Turn::Free;
            }
            return Ok(None);
        }
        // Whoever has the turn is the only one who does this, and nobody else has to wait for it.
        drop(out);
        batch.fill(frames, &mut self.seal.lock())?;
        Ok(Some(batch))
    }

    /// Writes as much of `batch` as the socket takes now.
    fn write_now(&self, batch: &mut Batch) -> io::Result<()> {
        while !batch.slices.is_empty() {
            #[cfg(test)]
            self.calls.fetch_add(1, Ordering::Relaxed);
            match send_slices(&self.socket, &batch.slices) {
                Ok(count) => batch.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.places.add_permits(std::mem::take(&mut batch.places));
        Ok(())
    }

    fn break_off(self: &Arc<Self>, error: &io::Error) {
        tracing::debug!(%error, "a connection broke while it was written");
        // Of an error the kernel tells once, and whoever reads wants to know it as well.
        let _ = self.broke.set(error.kind());
        let mut out = self.out.lock();
        self.closed.store(true, Ordering::Release);
        *out = Out { turn: Turn::Broken, ..Out::default() };
        drop(out);
        self.places.close();
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.wake_task();
    }
}

impl AtTurnEnd for Link {
    fn turn_ends(self: Arc<Self>) {
        self.write_in_place();
    }
}

impl Batch {
    fn fill(&mut self, frames: Vec<Queued>, seal: &mut Option<Box<dyn Seal>>) -> io::Result<()> {
        let mut small = Vec::with_capacity(PREFIX_BYTES + 512);
        let mut behind = Vec::new();
        for Queued { mut frame, sealed } in frames {
            self.places += places_of(&frame);
            behind.clear();
            if let (true, Some(seal)) = (sealed, seal.as_mut()) {
                seal.seal(&mut frame, &mut behind)?;
            }
            let prefix = Prefix::new(frame.head.len() + behind.len(), bulk_bytes(&frame))?;
            small.extend_from_slice(&prefix.encode());
            self.add(&mut small, frame.head);
            small.extend_from_slice(&behind);
            for slice in frame.bulk {
                self.add(&mut small, slice);
            }
        }
        if !small.is_empty() {
            self.slices.push_back(small.into());
        }
        Ok(())
    }

    /// Adds a slice behind those before, which `small` ends.
    fn add(&mut self, small: &mut Vec<u8>, slice: Bytes) {
        if slice.len() <= COPY_BYTES_MAX {
            small.extend_from_slice(&slice);
            return;
        }
        if !small.is_empty() {
            self.slices.push_back(std::mem::take(small).into());
        }
        self.slices.push_back(slice);
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.slices.front_mut() {
            if first.len() > count {
                return first.advance(count);
            }
            count -= first.len();
            self.slices.pop_front();
        }
    }
}

/// The task of a connection: writes what senders leave to it, and ends the socket when it is closed.
pub(super) async fn serve(link: Arc<Link>) {
    let mut deadline = None;
    loop {
        loop {
            let written = match link.next_batch(Turn::Task) {
                Ok(Some(mut batch)) => write_all(&link, &mut batch, &mut deadline).await,
                Ok(None) => break,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                link.break_off(&error);
            }
        }
        if link.is_closed() && link.out.lock().turn != Turn::Sender {
            // An error means that there is no connection any more.
            let _ = rustix::net::shutdown(&link.socket, Shutdown::Write);
            return;
        }
        link.task.notified().await;
    }
}

/// Writes all of `batch`; within the patience for a closed connection if it is one.
async fn write_all(link: &Link, batch: &mut Batch, deadline: &mut Option<Instant>) -> io::Result<()> {
    loop {
        link.write_now(batch)?;
        if batch.slices.is_empty() {
            return Ok(());
        }
        if link.is_closed() {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + CLOSE_PATIENCE);
            match link.driver.until(deadline, link.socket.writable()).await {
                Some(result) => result?,
                None => {
                    // Without this the kernel would keep what the peer does not take for minutes.
                    socket2::SockRef::from(&link.socket).set_linger(Some(Duration::ZERO))?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        } else {
            // A close must be seen here, because from then on there is a deadline.
            unless(link.task.notified(), link.socket.writable()).await.transpose()?;
        }
    }
}

fn send_slices(socket: &Socket, slices: &VecDeque<Bytes>) -> io::Result<usize> {
    let mut vectors = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for (vector, slice) in vectors.iter_mut().zip(slices) {
        *vector = IoSlice::new(slice);
        count += 1;
    }
    // No signal: this may be a library in a process that does not ignore SIGPIPE.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &vectors[..count], &mut SendAncillaryBuffer::default(), flags) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// The frames of the next batch.
fn take_frames(queue: &mut VecDeque<Queued>) -> Vec<Queued> {
    let (mut frames, mut bytes, mut slices) = (Vec::new(), 0, 0);
    while bytes < BATCH_BYTES && slices < SLICES_MAX {
        let Some(queued) = queue.pop_front() else { break };
        bytes += PREFIX_BYTES + queued.frame.head.len() + bulk_bytes(&queued.frame);
        // With what stands before it.
        let large = queued.frame.bulk.iter().filter(|slice| slice.len() > COPY_BYTES_MAX).count();
        slices += 2 * large + usize::from(queued.frame.head.len() > COPY_BYTES_MAX);
        frames.push(queued);
    }
    frames
}

fn bulk_bytes(frame: &Frame) -> usize {
    frame.bulk.iter().map(Bytes::len).sum()
}

/// Places that `frame` takes in the queue: its bytes, but so many at least that there are never too many frames,
/// and no more than there are.
fn places_of(frame: &Frame) -> usize {
    let bytes = PREFIX_BYTES + frame.head.len() + bulk_bytes(frame);
    bytes.clamp(QUEUE_BYTES_MAX / QUEUE_FRAMES_MAX, QUEUE_BYTES_MAX)
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}
