//! Writes past the kernel's pages, for as long as they are under way: no page that one concerns is filled meanwhile.
//!
//! A page that is filled with the bytes of before, and changed through a mapping, is written back as a whole. So a write past the
//! pages has the kernel write back and forget its pages first, and then changes the bytes; and between the two no page comes
//! back (`docs/locks.md#past-pages`).

use std::ops::Range;

use smallvec::SmallVec;

use super::state::FileState;

/// Bytes of the smallest page.
const PAGE_BYTES: u64 = 4096;

/// The writes under way.
#[derive(Debug, Default)]
pub(crate) struct Past {
    last: u64,
    writes: SmallVec<[(u64, Range<u64>); 2]>,
}

impl Past {
    fn concerns(&self, range: &Range<u64>) -> bool {
        self.writes.iter().any(|(_, pages)| pages.start < range.end && range.start < pages.end)
    }
}

/// A write past the pages that is under way.
pub(crate) struct Passing<'a> {
    file: &'a FileState,
    number: u64,
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.file.inner.lock().past.writes.retain(|(number, _)| *number != self.number);
        self.file.passed.notify_waiters();
    }
}

impl FileState {
    /// From now on no page of a range of bytes is filled. To be called before it is asked which pages the kernel has.
    pub(crate) fn write_past(&self, range: &Range<u64>) -> Passing<'_> {
        let past = &mut self.inner.lock().past;
        past.last += 1;
        let end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        past.writes.push((past.last, range.start / PAGE_BYTES * PAGE_BYTES..end));
        Passing { file: self, number: past.last }
    }

    /// Whether pages of a range are being written past. To be asked after it was noted that the kernel gets them.
    pub(crate) fn is_written_past(&self, range: &Range<u64>) -> bool {
        self.inner.lock().past.concerns(range)
    }

    /// Waits until no page of a range is written past.
    pub(crate) async fn until_passed(&self, range: &Range<u64>) {
        loop {
            let mut passed = std::pin::pin!(self.passed.notified());
            passed.as_mut().enable();
            if !self.is_written_past(range) {
                return;
            }
            passed.await;
        }
    }
}
