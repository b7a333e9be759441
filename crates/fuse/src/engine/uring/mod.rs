//! The engine that speaks FUSE over io_uring (Linux 6.14 and later): one queue for each processor, and one thread for
//! each queue that stays on it, so that a request is served where it was made.
//!
//! A queue has entries, each with memory for one request and its answer. Committing an answer fetches the next request
//! into the same entry. A request that waits (for a lock, for a server) keeps its entry, so a queue gets more entries
//! as they run out. FORGET, INTERRUPT and notifications stay on /dev/fuse.

mod slot;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::thread::CpuSet;
use zerocopy::IntoBytes;

use self::slot::Slot;
use super::{Reply, Serve};
use crate::kernel::abi::{self, UringCmdReq};
use crate::kernel::init::WRITE_BYTES_MAX;
use crate::kernel::reply::Held;
use crate::kernel::request::{Dialect, Request};
use client::posix::Errno;

/// Where the administrator permits FUSE over io_uring.
pub const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Where the kernel says which processors there can be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Entries of a queue at its start.
const SLOTS_START: u32 = 16;
/// Fewest entries that wait in the kernel for a request; with fewer, more are made.
const SLOTS_SPARE_MIN: u32 = 8;
/// Most entries of a queue. Their memory is used only where large requests have touched it.
const SLOTS_MAX: u32 = 4096;
/// Entries of the submission queue.
const SUBMISSIONS: u32 = 128;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 2 * SLOTS_MAX;
/// Bytes of the command area of a submission.
const COMMAND_BYTES: usize = 80;
/// The completion that says that something is to be committed, or that the engine ends.
const WOKEN: u64 = u64::MAX;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Whether the administrator permits it and this process can make such rings; why not, else.
pub fn usable() -> Result<(), String> {
    let enabled = std::fs::read_to_string(ENABLED)
        .map_err(|_| "this kernel has no FUSE over io_uring (Linux 6.14 and later have)".to_owned())?;
    if !matches!(enabled.trim(), "Y" | "1") {
        return Err(format!("it is switched off; have root run \"echo Y > {ENABLED}\""));
    }
    ring().map(|_| ()).map_err(|error| format!("io_uring cannot be used here: {error}"))
}

/// How many queues the kernel wants: one for each processor that there can be.
pub fn queue_count() -> io::Result<u16> {
    let text = std::fs::read_to_string(POSSIBLE)?;
    count_of(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{POSSIBLE}: {text}")))
}

/// The size of a set like `0-3,8`.
fn count_of(set: &str) -> Option<u16> {
    let sizes = set.split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    sizes.sum::<Option<u16>>().filter(|count| *count > 0)
}

fn ring() -> io::Result<Ring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
}

/// An answered entry.
struct Commit {
    index: u32,
    commit_id: u64,
    /// Kept until the kernel has the answer.
    held: Option<Held>,
}

/// What the thread of a queue shares with those who answer its requests.
pub struct Queue {
    number: u16,
    answered: Mutex<Vec<Commit>>,
    wake: OwnedFd,
    thread: OnceLock<ThreadId>,
    ended: AtomicBool,
}

impl Queue {
    /// The queue of processor `number`.
    pub fn new(number: u16) -> io::Result<Queue> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Queue {
            number,
            answered: Mutex::default(),
            wake,
            thread: OnceLock::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// The processor whose requests it has.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The connection is gone: the thread is to end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    /// An entry holds an answer.
    fn commit(&self, commit: Commit) {
        let mut answered = self.answered.lock();
        let is_first = answered.is_empty();
        answered.push(commit);
        drop(answered);
        if is_first && self.thread.get() != Some(&std::thread::current().id()) {
            self.wake();
        }
    }

    /// Moves what was answered into `taken`, which is empty.
    fn take_answered(&self, taken: &mut Vec<Commit>) {
        std::mem::swap(&mut *self.answered.lock(), taken);
    }

    #[cfg(test)]
    fn take_commits(&self) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        self.take_answered(&mut taken);
        taken.iter().map(|commit| (commit.index, commit.commit_id)).collect()
    }

    fn wake(&self) {
        // The counter cannot be full: each wake-up that is seen empties it.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The obligation to answer the request of an entry.
pub struct SlotReply(Arc<Slot>);

impl SlotReply {
    /// Answers.
    pub fn send(&self, errno: i32, pieces: &[&[u8]], held: Option<Held>) {
        self.0.answer(errno, pieces, held);
    }
}

/// The thread of a queue.
pub struct Worker<'a> {
    /// Its queue.
    pub queue: Arc<Queue>,
    /// The connection.
    pub device: &'a OwnedFd,
    /// What serves the requests.
    pub serve: &'a dyn Serve,
    /// How requests look.
    pub dialect: Dialect,
}

/// What the thread alone has.
struct Entries {
    ring: Ring,
    slots: Vec<Arc<Slot>>,
    /// Entries that are not in the kernel: their requests are being served.
    held: u32,
    /// Completions that were seen and not yet looked at.
    completions: Vec<(u64, i32)>,
    /// Answered entries that are being committed.
    commits: Vec<Commit>,
}

impl Entries {
    fn new() -> io::Result<Entries> {
        let (completions, commits) = (Vec::new(), Vec::new());
        Ok(Entries { ring: ring()?, slots: Vec::new(), held: 0, completions, commits })
    }

    fn collect(&mut self) {
        self.completions.extend(self.ring.completion().map(|done| (done.user_data(), done.result())));
    }
}

impl Worker<'_> {
    /// Registers the queue, says to `ready` how that went, and serves until the connection is gone.
    pub fn run(&self, ready: impl FnOnce(io::Result<()>)) -> io::Result<()> {
        let _ = self.queue.thread.set(std::thread::current().id());
        self.stay_on_processor();
        let mut entries = match self.register() {
            Ok(entries) => entries,
            Err(error) => {
                ready(Err(error));
                return Ok(());
            }
        };
        ready(Ok(()));
        while !self.queue.ended.load(Ordering::Acquire) {
            self.push_commits(&mut entries)?;
            match entries.ring.submit_and_wait(1) {
                Ok(_) => {}
                // Interrupted, or the completion queue has to be emptied first.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
                Err(error) => return Err(error),
            }
            entries.collect();
            let mut completions = std::mem::take(&mut entries.completions);
            for (what, result) in completions.drain(..) {
                self.completed(&mut entries, what, result)?;
            }
            entries.completions = completions;
            self.keep_spare(&mut entries)?;
        }
        Ok(())
    }

    /// A thread elsewhere serves as well, only slower.
    fn stay_on_processor(&self) {
        let mut set = CpuSet::new();
        set.set(self.queue.number.into());
        if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
            tracing::debug!(%error, processor = self.queue.number, "a queue's thread is not bound");
        }
    }

    fn register(&self) -> io::Result<Entries> {
        let mut entries = Entries::new()?;
        self.add_slots(&mut entries, SLOTS_START)?;
        // A refused registration completes at once.
        entries.collect();
        match entries.completions.iter().find(|(_, result)| *result < 0) {
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
            None => self.push_wake(&mut entries).map(|()| entries),
        }
    }

    fn add_slots(&self, entries: &mut Entries, count: u32) -> io::Result<()> {
        for _ in 0..count {
            let index = entries.slots.len() as u32;
            let slot = Arc::new(Slot::new(self.queue.clone(), index, WRITE_BYTES_MAX as usize)?);
            let vectors = slot.vectors();
            let command = self.command(abi::URING_CMD_REGISTER, 0).addr(Some(vectors.as_ptr().addr() as u64));
            let entry = with_len(command.build(), vectors.len() as u32).user_data(index.into());
            push(&mut entries.ring, &entry)?;
            // The kernel reads the two vectors while it takes the submission.
            entries.ring.submit()?;
            entries.slots.push(slot);
        }
        Ok(())
    }

    fn command(&self, operation: u32, commit_id: u64) -> opcode::UringCmd80 {
        let request = UringCmdReq { flags: 0, commit_id, qid: self.queue.number, padding: [0; 6] };
        let mut area = [0; COMMAND_BYTES];
        area[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation).cmd(area)
    }

    fn push_commits(&self, entries: &mut Entries) -> io::Result<()> {
        let mut commits = std::mem::take(&mut entries.commits);
        self.queue.take_answered(&mut commits);
        for Commit { index, commit_id, .. } in &commits {
            let (index, commit_id) = (*index, *commit_id);
            let command = self.command(abi::URING_CMD_COMMIT_AND_FETCH, commit_id);
            push(&mut entries.ring, &command.build().user_data(index.into()))?;
            entries.held = entries.held.saturating_sub(1);
        }
        let is_held = commits.iter().any(|commit| commit.held.is_some());
        if is_held {
            entries.ring.submit()?;
        }
        commits.clear();
        entries.commits = commits;
        Ok(())
    }

    fn push_wake(&self, entries: &mut Entries) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.queue.wake.as_raw_fd()), libc::POLLIN as u32);
        push(&mut entries.ring, &squeue::Entry128::from(poll.build()).user_data(WOKEN))
    }

    fn completed(&self, entries: &mut Entries, what: u64, result: i32) -> io::Result<()> {
        if what == WOKEN {
            let mut count = [0; 8];
            // Nothing to read: another wake-up was faster.
            let _ = rustix::io::read(&self.queue.wake, &mut count);
            return self.push_wake(entries);
        }
        let slot = usize::try_from(what).ok().and_then(|index| entries.slots.get(index).cloned());
        let Some(slot) = slot else { return Ok(()) };
        entries.held += 1;
        if result >= 0 {
            self.hand_over(&slot);
            return Ok(());
        }
        match -result {
            // The connection ends; the device says so too.
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => {}
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                tracing::error!(%error, queue = self.queue.number, "the kernel refuses a ring entry");
            }
        }
        Ok(())
    }

    fn hand_over(&self, slot: &Arc<Slot>) {
        let fetched = slot.fetch();
        slot.lend(&fetched, |payload| {
            let reply = Reply::slot(fetched.header.unique, SlotReply(slot.clone()));
            match Request::parse_split(&fetched.header, &fetched.fixed, payload, self.dialect) {
                Ok(request) => self.serve.serve(request, reply),
                Err(error) => {
                    tracing::warn!(%error, len = payload.len(), "the kernel sent what is no request");
                    reply.send(Err(Errno::IO));
                }
            }
        });
    }

    fn keep_spare(&self, entries: &mut Entries) -> io::Result<()> {
        let count = entries.slots.len() as u32;
        let waiting = count.saturating_sub(entries.held) + self.queue.answered.lock().len() as u32;
        if waiting >= SLOTS_SPARE_MIN || count >= SLOTS_MAX {
            return Ok(());
        }
        self.add_slots(entries, SLOTS_SPARE_MIN)
    }
}

/// Puts a submission into the queue, which is emptied if it is full.
#[allow(unsafe_code)]
fn push(ring: &mut Ring, entry: &squeue::Entry128) -> io::Result<()> {
    // SAFETY: what the entry refers to (descriptors, and memory of slots, which the worker keeps until its ring is
    // closed) outlives the operation; the vectors of a registration are read before `add_slots` goes on.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

/// Sets the field `len` of a submission, which the library has no setter for.
#[allow(unsafe_code)]
fn with_len(mut entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    /// Where the kernel's `struct io_uring_sqe` has it.
    const LEN_AT: usize = 24;
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    // SAFETY: the type is the kernel's structure followed by the rest of the command area, 128 plain bytes as checked
    // above, and any value is valid for the four bytes of the field.
    unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write_unaligned(len) };
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_of("0-1"), Some(2));
        assert_eq!(count_of("0"), Some(1));
        assert_eq!(count_of("0-3,8,10-11"), Some(7));
        assert_eq!(count_of(""), None);
        assert_eq!(count_of("3-1"), None);
    }

    #[test]
    fn the_length_is_where_the_kernel_looks() {
        let plain = opcode::Read::new(types::Fd(0), std::ptr::null_mut(), 77).build();
        let with = with_len(opcode::Read::new(types::Fd(0), std::ptr::null_mut(), 0).build().into(), 77);
        assert_eq!(format!("{:?}", squeue::Entry128::from(plain)), format!("{with:?}"));
    }

    fn commit(index: u32) -> Commit {
        Commit { index, commit_id: index.into(), held: None }
    }

    #[test]
    fn only_the_first_answer_of_another_thread_wakes() {
        let queue = Arc::new(Queue::new(0).expect("a queue"));
        queue.thread.set(std::thread::current().id()).expect("a new queue");
        queue.commit(commit(1));
        let mut count = [0; 8];
        assert!(rustix::io::read(&queue.wake, &mut count).is_err(), "the queue's own thread looks by itself");
        queue.take_commits();
        let other = queue.clone();
        let thread = std::thread::spawn(move || {
            other.commit(commit(2));
            other.commit(commit(3));
        });
        thread.join().expect("a thread that ends");
        assert_eq!(rustix::io::read(&queue.wake, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
        assert_eq!(queue.take_commits(), [(2, 2), (3, 3)]);
    }
}
