//! A ring entry: memory that the kernel and this process hand to each other.
//!
//! Who may touch the memory: the kernel, from the moment that the entry is registered or its answer committed until the
//! completion that brings a request; then the queue's thread, while it takes the request apart and while the request's
//! payload is lent to the one who serves it; then whoever holds the one [`Reply`](crate::engine::Reply) of that
//! request. An answer that is given while the payload is still lent is put aside and copied by the queue's thread,
//! which ends the loan: so no shared slice of the payload is ever written to.

#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Commit, Queue};
use crate::kernel::abi::{InHeader, OutHeader, URING_HEADER_PART_BYTES, UringEntInOut, UringReqHeader};
use crate::kernel::reply::Held;

/// Room for the header of an entry, a page of its own in front of the payload.
const HEADER_BYTES: usize = 4096;
/// What the kernel reads at the registration: where the header and the payload are. At the end of the header's page.
type Vectors = [libc::iovec; 2];
const VECTORS_AT: usize = HEADER_BYTES - size_of::<Vectors>();
const _: () =
    assert!(size_of::<UringReqHeader>() <= VECTORS_AT && VECTORS_AT.is_multiple_of(align_of::<Vectors>()));

/// Memory of one entry: the header and the payload, from the kernel and page by page only when touched.
struct Memory {
    start: NonNull<u8>,
    payload_bytes: usize,
}

// SAFETY: the memory belongs to this value alone, and the module's rule says who may touch it when.
unsafe impl Send for Memory {}
// SAFETY: as above; every access is made under the slot's lock or by the core's thread while the slot is its own.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(payload_bytes: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), HEADER_BYTES + payload_bytes, protection, flags, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory { start, payload_bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn header(&self) -> *mut UringReqHeader {
        self.start.as_ptr().cast()
    }

    fn payload(&self) -> *mut u8 {
        // SAFETY: the mapping has HEADER_BYTES and then the payload.
        unsafe { self.start.as_ptr().add(HEADER_BYTES) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and nothing refers to it any more: the queue
        // keeps its slots until the kernel has given all entries back, and lent slices end before.
        unsafe { libc::munmap(self.start.as_ptr().cast(), HEADER_BYTES + self.payload_bytes) };
    }
}

/// One entry of a queue.
pub struct Slot {
    queue: Arc<Queue>,
    index: u32,
    memory: Memory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commit_id: u64,
    lent: bool,
    aside: Option<Aside>,
}

/// An answer that waits for the end of the loan.
struct Aside {
    errno: i32,
    bytes: Vec<u8>,
    held: Option<Held>,
}

/// A request as the kernel left it in an entry.
pub struct Fetched {
    /// Its header.
    pub header: InHeader,
    /// The operation's first structure, with old bytes behind it.
    pub fixed: [u8; URING_HEADER_PART_BYTES],
    payload_bytes: usize,
}

impl Slot {
    /// Makes the entry `index` of `queue`.
    pub fn new(queue: Arc<Queue>, index: u32, payload_bytes: usize) -> io::Result<Slot> {
        Ok(Slot { queue, index, memory: Memory::new(payload_bytes)?, state: Mutex::default() })
    }

    /// Where the kernel reads at the registration where header and payload are, and how many parts that has. It stays there: a submission
    /// may be taken later. Only before the registration.
    pub fn vectors(&self) -> (*const libc::iovec, u32) {
        let vectors: Vectors = [
            libc::iovec { iov_base: self.memory.header().cast(), iov_len: size_of::<UringReqHeader>() },
            libc::iovec { iov_base: self.memory.payload().cast(), iov_len: self.memory.payload_bytes },
        ];
        // SAFETY: the header's page has room for them there, aligned as checked above, and nobody else has the memory yet.
        unsafe {
            let place = self.memory.start.as_ptr().add(VECTORS_AT).cast::<Vectors>();
            place.write(vectors);
            (place.cast(), vectors.len() as u32)
        }
    }

    /// What the kernel put into the entry. Only for the queue's thread, after the completion of this entry's command.
    pub fn fetch(&self) -> Fetched {
        // SAFETY: the kernel gave the entry back with the completion and there is no reply to it yet, so nobody writes.
        // The type is plain bytes and the mapping is page aligned.
        let header = unsafe { ptr::read(self.memory.header()) };
        self.state.lock().commit_id = header.entry.commit_id;
        let payload_bytes = (header.entry.payload_sz as usize).min(self.memory.payload_bytes);
        let in_header =
            InHeader::read_from_prefix(&header.in_out).map_or_else(|_| InHeader::new_zeroed(), |(it, _)| it);
        Fetched { header: in_header, fixed: header.op_in, payload_bytes }
    }

    /// Lends the payload of a request to `use_it`; answers that come meanwhile are taken care of. Only for the queue's
    /// thread, once for each request.
    pub fn lend(self: &Arc<Self>, fetched: &Fetched, use_it: impl FnOnce(&[u8])) {
        if fetched.payload_bytes == 0 {
            // Nothing is lent, so an answer, which may be large, goes straight to its place.
            return use_it(&[]);
        }
        self.state.lock().lent = true;
        // SAFETY: the first bytes of the mapping's payload, which nobody writes to while `lent` is set.
        use_it(unsafe { std::slice::from_raw_parts(self.memory.payload(), fetched.payload_bytes) });
        let mut state = self.state.lock();
        state.lent = false;
        if let Some(Aside { errno, bytes, held }) = state.aside.take() {
            self.fill(&state, errno, &[&bytes], held);
        }
    }

    /// Answers the request of this entry. Only for the holder of the request's reply.
    pub fn answer(&self, errno: i32, pieces: &[&[u8]], held: Option<Held>) {
        let mut state = self.state.lock();
        if state.lent {
            state.aside = Some(Aside { errno, bytes: pieces.concat(), held });
        } else {
            self.fill(&state, errno, pieces, held);
        }
    }

    fn fill(&self, state: &State, errno: i32, pieces: &[&[u8]], held: Option<Held>) {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let (errno, pieces, len) =
            if len <= self.memory.payload_bytes { (errno, pieces, len) } else { (libc::EIO, &[][..], 0) };
        let mut at = self.memory.payload();
        for piece in pieces {
            // SAFETY: the pieces fit into the payload by the check above, they lie elsewhere (nothing of the payload is
            // lent), and the entry is this process's until the commit below.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len());
                at = at.add(piece.len());
            }
        }
        let commit_id = state.commit_id;
        let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -errno, unique: commit_id };
        let entry = UringEntInOut { commit_id, payload_sz: len as u32, ..UringEntInOut::default() };
        let bytes = out.as_bytes();
        // SAFETY: the header's parts lie in the mapping's first page, and the entry is this process's until the commit.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                (&raw mut (*self.memory.header()).in_out).cast(),
                bytes.len(),
            );
            ptr::write(&raw mut (*self.memory.header()).entry, entry);
        }
        self.queue.commit(Commit { index: self.index, commit_id, held });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Arc<Slot> {
        let queue = Arc::new(Queue::new(0));
        Arc::new(Slot::new(queue, 5, 8192).expect("memory"))
    }

    /// What the kernel would put into the entry.
    fn request(slot: &Slot, commit_id: u64, payload: &[u8]) {
        let entry = UringEntInOut { commit_id, payload_sz: payload.len() as u32, ..UringEntInOut::default() };
        // SAFETY: the test is the only one that knows the slot.
        unsafe {
            ptr::write(&raw mut (*slot.memory.header()).entry, entry);
            ptr::copy_nonoverlapping(payload.as_ptr(), slot.memory.payload(), payload.len());
        }
    }

    fn answered(slot: &Slot) -> (OutHeader, Vec<u8>) {
        // SAFETY: as above.
        let header = unsafe { ptr::read(slot.memory.header()) };
        let (out, _) = OutHeader::read_from_prefix(&header.in_out).expect("a header");
        let mut bytes = vec![0; header.entry.payload_sz as usize];
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(slot.memory.payload(), bytes.as_mut_ptr(), bytes.len()) };
        (out, bytes)
    }

    #[test]
    fn an_answer_waits_for_the_end_of_the_loan() {
        let slot = slot();
        request(&slot, 9, b"a name");
        let fetched = slot.fetch();
        slot.lend(&fetched, |payload| {
            slot.answer(0, &[b"ANS", b"WER"], None);
            assert_eq!(payload, b"a name", "what is lent does not change");
            assert!(slot.queue.take_commits().is_empty());
        });
        assert_eq!(slot.queue.take_commits(), [(5, 9)]);
        assert_eq!(answered(&slot), (OutHeader { len: 22, error: 0, unique: 9 }, b"ANSWER".to_vec()));
    }

    #[test]
    fn without_a_payload_the_answer_goes_to_its_place_at_once() {
        let slot = slot();
        request(&slot, 10, b"");
        let fetched = slot.fetch();
        slot.lend(&fetched, |_| {
            slot.answer(libc::ENOENT, &[], None);
            assert_eq!(slot.queue.take_commits(), [(5, 10)]);
        });
        assert_eq!(answered(&slot).0.error, -libc::ENOENT);
    }

    #[test]
    fn an_answer_that_does_not_fit_is_an_error() {
        let slot = slot();
        request(&slot, 11, b"");
        slot.fetch();
        slot.answer(0, &[&[1; 8000], &[2; 193]], None);
        assert_eq!(answered(&slot), (OutHeader { len: 16, error: -libc::EIO, unique: 11 }, Vec::new()));
    }
}
