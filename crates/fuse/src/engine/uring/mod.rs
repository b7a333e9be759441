//! The engine that speaks FUSE over io_uring (Linux 6.14 and later): one queue for each processor, carried by the ring of that
//! processor's core, so that a request is served where it was made, by the thread that also does its I/O.
//!
//! A queue has entries, each with memory for one request and its answer. Committing an answer fetches the next request
//! into the same entry. A request that waits (for a lock, for a server) keeps its entry, so a queue gets more entries
//! as they run out. FORGET, INTERRUPT and notifications stay on /dev/fuse.

mod slot;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use io_uring::{opcode, squeue, types};
use parking_lot::Mutex;
use rt::os::reactor::{Attached, Goes, Reactors, Ring, Source};
use zerocopy::IntoBytes;

use self::slot::Slot;
use super::{Ending, Reply, Serve};
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
/// Bytes of the command area of a submission.
const COMMAND_BYTES: usize = 80;
/// Whether the administrator permits it; why not, else.
pub fn usable() -> Result<(), String> {
    let enabled = std::fs::read_to_string(ENABLED)
        .map_err(|_| "this kernel has no FUSE over io_uring (Linux 6.14 and later have)".to_owned())?;
    if !matches!(enabled.trim(), "Y" | "1") {
        return Err(format!("it is switched off; have root run \"echo Y > {ENABLED}\""));
    }
    Ok(())
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

/// An answered entry.
struct Commit {
    index: u32,
    commit_id: u64,
    /// Kept until the kernel has the answer.
    held: Option<Held>,
}

/// What the core of a queue shares with those who answer its requests.
pub struct Queue {
    number: u16,
    answered: Mutex<Vec<Commit>>,
    core: OnceLock<Attached>,
    ended: AtomicBool,
}

impl Queue {
    /// The queue of processor `number`.
    pub fn new(number: u16) -> Queue {
        Queue { number, answered: Mutex::default(), core: OnceLock::new(), ended: AtomicBool::new(false) }
    }

    /// The connection is gone: nothing is committed any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // The kernel has nothing any more that an answer could reach: nobody is to wait for these.
        let in_vain = std::mem::take(&mut *self.answered.lock());
        drop(in_vain);
        self.wake();
    }

    /// An entry holds an answer.
    fn commit(&self, commit: Commit) {
        let mut answered = self.answered.lock();
        // Looked at under the lock: `end` takes what came before.
        if self.ended.load(Ordering::Acquire) {
            drop(answered);
            return drop(commit);
        }
        let is_first = answered.is_empty();
        answered.push(commit);
        drop(answered);
        if is_first {
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
        if let Some(core) = self.core.get() {
            core.wake();
        }
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

/// What a queue needs for serving.
pub(super) struct Serving {
    /// The connection.
    pub device: Arc<OwnedFd>,
    /// What serves the requests.
    pub serve: Arc<dyn Serve>,
    /// How requests look.
    pub dialect: Dialect,
    /// Is told when no entry is left in the ring.
    pub ending: Arc<Ending>,
    /// Is told how the registration went.
    pub ready: Ready,
}

/// Whoever is told how the registration of a queue went.
type Ready = Box<dyn FnOnce(Result<(), Unready>) + Send>;

/// Why a queue has no entry.
pub(super) enum Unready {
    /// There is no memory for one. The kernel waits for it.
    NoMemory(io::Error),
    /// The kernel has refused them, and goes on without io_uring.
    Refused(io::Error),
}

impl Unready {
    fn of_memory(error: io::Error) -> Unready {
        let why = format!(
            "no memory for the kernel's requests over io_uring, mount with -o fuse_engine=dev: {error}"
        );
        Unready::NoMemory(io::Error::new(error.kind(), why))
    }
}

/// A queue, as the core has it that carries it.
struct Entries {
    queue: Arc<Queue>,
    device: Arc<OwnedFd>,
    serve: Arc<dyn Serve>,
    dialect: Dialect,
    ending: Arc<Ending>,
    ready: Option<Ready>,
    slots: Vec<Arc<Slot>>,
    /// Entries that the kernel has: they wait for a request, or their answers are being committed.
    in_kernel: u32,
    /// Entries whose requests are being served.
    held: u32,
    /// Answered entries that are being committed.
    commits: Vec<Commit>,
}

/// Has the cores carry `queue`.
pub(super) fn attach(reactors: &Reactors, queue: &Arc<Queue>, serving: Serving) {
    let Serving { device, serve, dialect, ending, ready } = serving;
    ending.begins();
    let (slots, commits, ready) = (Vec::new(), Vec::new(), Some(ready));
    let (in_kernel, held) = (0, 0);
    let entries = Entries {
        queue: queue.clone(),
        device,
        serve,
        dialect,
        ending,
        ready,
        slots,
        in_kernel,
        held,
        commits,
    };
    let number = usize::from(queue.number);
    // With fewer threads than processors, none of them belongs to one processor.
    let processor = Some(number).filter(|number| *number < reactors.count());
    let _ = queue.core.set(reactors.attach(number, processor, Box::new(entries)));
    // For what was answered before.
    queue.wake();
}

impl Source for Entries {
    fn begin(&mut self, ring: &mut Ring) {
        let begun = self.add_slots(ring, SLOTS_START).map_err(Unready::of_memory).and_then(|()| {
            // A refused registration completes at once. With one that is not refused the kernel counts on this queue.
            match ring.failures() {
                (count, Some(error)) if count >= self.slots.len() => Err(Unready::Refused(error)),
                _ => Ok(()),
            }
        });
        if let Some(ready) = self.ready.take() {
            ready(begun);
        }
    }

    fn completed(&mut self, name: u64, result: i32) {
        self.in_kernel = self.in_kernel.saturating_sub(1);
        let slot = usize::try_from(name).ok().and_then(|index| self.slots.get(index).cloned());
        let Some(slot) = slot else { return };
        if result >= 0 {
            self.held += 1;
            return self.hand_over(&slot);
        }
        match -result {
            // The connection ends; the device says so too.
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => {}
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                tracing::error!(%error, queue = self.queue.number, "the kernel refuses a ring entry");
            }
        }
    }

    fn submit(&mut self, ring: &mut Ring) -> io::Result<Goes> {
        if self.queue.ended.load(Ordering::Acquire) {
            return Ok(if self.in_kernel == 0 { Goes::Away } else { Goes::On });
        }
        self.push_commits(ring)?;
        self.keep_spare(ring)?;
        Ok(Goes::On)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.ending.ends(Ok(()), &*self.serve);
    }
}

impl Entries {
    /// Registers more slots; fewer, but one at least, if there is no memory for them.
    fn add_slots(&mut self, ring: &mut Ring, count: u32) -> io::Result<()> {
        for _ in 0..count {
            let index = self.slots.len() as u32;
            let slot = match Slot::new(self.queue.clone(), index, WRITE_BYTES_MAX as usize) {
                Ok(slot) => Arc::new(slot),
                Err(error) if self.slots.is_empty() => return Err(error),
                // Requests wait for the entries that there are.
                Err(error) => {
                    tracing::debug!(%error, queue = self.queue.number, slots = index, "no memory for more entries");
                    break;
                }
            };
            let (vectors, count) = slot.vectors();
            let command = self.command(abi::URING_CMD_REGISTER, 0).addr(Some(vectors.addr() as u64));
            let entry = with_len(command.build(), count);
            self.slots.push(slot);
            self.push(ring, &entry, index)?;
        }
        ring.submit()
    }

    #[allow(unsafe_code)]
    fn push(&mut self, ring: &mut Ring, entry: &squeue::Entry128, index: u32) -> io::Result<()> {
        self.in_kernel += 1;
        // SAFETY: the entry refers to the device and to memory of a slot, which this value keeps until the kernel has given all
        // entries back (`submit`).
        unsafe { ring.push(entry, index.into()) }
    }

    fn command(&self, operation: u32, commit_id: u64) -> opcode::UringCmd80 {
        let request = UringCmdReq { flags: 0, commit_id, qid: self.queue.number, padding: [0; 6] };
        let mut area = [0; COMMAND_BYTES];
        area[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation).cmd(area)
    }

    fn push_commits(&mut self, ring: &mut Ring) -> io::Result<()> {
        let mut commits = std::mem::take(&mut self.commits);
        self.queue.take_answered(&mut commits);
        for Commit { index, commit_id, .. } in &commits {
            let (index, commit_id) = (*index, *commit_id);
            let command = self.command(abi::URING_CMD_COMMIT_AND_FETCH, commit_id);
            self.push(ring, &command.build(), index)?;
            self.held = self.held.saturating_sub(1);
        }
        if commits.iter().any(|commit| commit.held.is_some()) {
            ring.submit()?;
        }
        commits.clear();
        self.commits = commits;
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

    fn keep_spare(&mut self, ring: &mut Ring) -> io::Result<()> {
        let count = self.slots.len() as u32;
        let waiting = self.in_kernel + self.queue.answered.lock().len() as u32;
        if waiting >= SLOTS_SPARE_MIN || count >= SLOTS_MAX {
            return Ok(());
        }
        self.add_slots(ring, SLOTS_SPARE_MIN)
    }
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
    fn nobody_waits_for_an_answer_that_no_kernel_takes() {
        let queue = Queue::new(0);
        let on_its_way: Held = Arc::new(());
        let held = || Commit { held: Some(on_its_way.clone()), ..commit(1) };
        queue.commit(held());
        assert_eq!(Arc::strong_count(&on_its_way), 2, "until the kernel has it");
        queue.end();
        assert_eq!(Arc::strong_count(&on_its_way), 1, "the connection is gone");
        queue.commit(held());
        assert_eq!((Arc::strong_count(&on_its_way), queue.take_commits().len()), (1, 0));
    }

    #[test]
    fn answers_of_other_threads_wake_and_those_of_the_core_do_not() {
        let node = rt::os::Node::start(1).expect("a node");
        let Some(reactors) = node.reactors() else { return };
        let queue = Arc::new(Queue::new(0));
        let (seen, submitted) = std::sync::mpsc::channel();
        let source = Taking { queue: queue.clone(), seen };
        assert!(queue.core.set(reactors.attach(0, None, Box::new(source))).is_ok());
        queue.commit(commit(2));
        assert_eq!(submitted.recv().expect("it was woken"), [(2, 2)]);
        let before = reactors.wakes();
        let (own, other) = (queue.clone(), queue.clone());
        let (done, was_done) = std::sync::mpsc::channel();
        rt::Rt::os(node.clone()).spawn(async move {
            own.commit(commit(3));
            let _ = done.send(());
        });
        was_done.recv().expect("the task runs");
        assert_eq!(submitted.recv().expect("the core looks by itself"), [(3, 3)]);
        assert!(reactors.wakes() - before <= 1, "the task came from another thread, the answer did not");
        other.commit(commit(4));
        assert_eq!(submitted.recv().expect("it was woken"), [(4, 4)]);
    }

    /// Says what was answered.
    struct Taking {
        queue: Arc<Queue>,
        seen: std::sync::mpsc::Sender<Vec<(u32, u64)>>,
    }

    impl Source for Taking {
        fn begin(&mut self, _ring: &mut Ring) {}

        fn completed(&mut self, _name: u64, _result: i32) {}

        fn submit(&mut self, _ring: &mut Ring) -> io::Result<Goes> {
            let commits = self.queue.take_commits();
            if !commits.is_empty() {
                let _ = self.seen.send(commits);
            }
            Ok(Goes::On)
        }
    }
}
