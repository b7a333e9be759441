//! The ring of a core.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};

/// Entries of the submission queue. More are submitted in several calls.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 8192;
/// Where a name has the number of the source that gave it; below are the source's own names.
const SOURCE_SHIFT: u32 = 48;
/// Of the names that a source may give.
const NAMES: u64 = (1 << SOURCE_SHIFT) - 1;

/// A completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The source whose entry it is.
    pub source: usize,
    /// What the source calls it.
    pub name: u64,
    pub result: i32,
    /// Others of the same entry follow.
    pub more: bool,
}

/// The ring of a core, as one of those sees it who have entries in it.
pub struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    seen: Vec<Seen>,
    /// The source that it is lent to.
    source: usize,
}

impl Ring {
    /// A ring for the calling thread alone.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Says that completions wait to be made: without it a call that need not wait does not look at them.
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        Ok(Ring { ring, seen: Vec::new(), source: 0 })
    }

    /// Lends it to a source.
    pub(super) fn of(&mut self, source: usize) -> &mut Ring {
        self.source = source;
        self
    }

    /// The name of an entry in the ring, for whoever cancels it.
    pub(super) fn whole_name(source: usize, name: u64) -> u64 {
        (source as u64) << SOURCE_SHIFT | name & NAMES
    }

    /// Puts an entry into the queue, which is submitted if it is full. Completions come with `name`, of which the lower 48
    /// bits count.
    ///
    /// # Safety
    /// What the entry refers to (memory, descriptors) must stay as it is until its last completion was seen, or be leaked.
    pub unsafe fn push(&mut self, entry: &squeue::Entry128, name: u64) -> io::Result<()> {
        let entry = entry.clone().user_data(Ring::whole_name(self.source, name));
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.submit()?;
        }
        Ok(())
    }

    /// Submits what is in the queue now.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_for_later(&error) => {
                self.collect();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// How many entries of this source failed already, and the error of the first.
    pub fn failures(&mut self) -> (usize, Option<io::Error>) {
        self.collect();
        let failed = self.seen.iter().filter(|seen| seen.source == self.source && seen.result < 0);
        let error = failed.clone().next().map(|seen| io::Error::from_raw_os_error(-seen.result));
        (failed.count(), error)
    }

    /// Submits, and waits for a completion, at most for so long; not at all if one was seen already.
    pub(super) fn wait(&mut self, longest: Option<Duration>) -> io::Result<()> {
        let longest = if self.seen.is_empty() { longest } else { Some(Duration::ZERO) };
        let result = match longest {
            None => self.ring.submit_and_wait(1),
            Some(longest) => {
                let time = types::Timespec::from(longest);
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(usize::from(!longest.is_zero()), &args)
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) || is_for_later(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves completions to `into`, which is empty.
    pub(super) fn take_seen(&mut self, into: &mut Vec<Seen>) {
        self.collect();
        std::mem::swap(&mut self.seen, into);
    }

    fn collect(&mut self) {
        self.seen.extend(self.ring.completion().map(|done| Seen {
            source: (done.user_data() >> SOURCE_SHIFT) as usize,
            name: done.user_data() & NAMES,
            result: done.result(),
            more: cqueue::more(done.flags()),
        }));
    }
}

/// Interrupted, or completions have to be taken first.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
