//! How Lustre detected patterns before LU-12518: in pages, with one pattern for each handle.
//!
//! It is there to be compared with. A record that does not fill whole pages touches now one page more and now one less, and so
//! does the gap behind it: no two steps look alike, no stride is ever found, and each record begins a new window.

use std::ops::Range;

use super::stride::Stride;
use super::{PAGE_BYTES, Settings, pieces};

/// A page that is so near to the last one still counts as read in sequence.
const NEAR_PAGES: u64 = 8;

/// The one window of a handle. Everything is counted in pages.
#[derive(Debug, Default)]
pub(super) struct PageWindow {
    requests: u64,
    /// The last page that was read, and where in the file the last read ended, in bytes.
    last: u64,
    last_end: u64,
    /// Reads in sequence, and pages in sequence.
    run_requests: u64,
    run_pages: u64,
    /// Where the window begins, how long it is, and what of it is to be fetched next.
    start: u64,
    len: u64,
    next: u64,
    /// The last record and the gap behind it, and how often it was met again.
    stride: Option<Stride>,
    steps: u32,
    /// The window is elsewhere than it was.
    moved: bool,
}

/// What a read means.
#[derive(Debug, Default)]
pub(super) struct PagesNoted {
    /// Pages that were not near the one before.
    pub(super) jumps: u64,
    /// Pages that were missed in the window.
    pub(super) missed_inside: u64,
    /// The read begins where the last one has ended.
    pub(super) continues: bool,
}

/// A page that is read.
struct PageRead {
    page: u64,
    /// It is there.
    hit: bool,
    /// It is the first one of a read.
    first: bool,
}

impl PageWindow {
    /// The application reads; `gaps` were not ahead.
    pub(super) fn read(
        &mut self,
        read: &Range<u64>,
        gaps: &[Range<u64>],
        (settings, size): (&Settings, u64),
    ) -> PagesNoted {
        let mut noted = PagesNoted { continues: read.start == self.last_end, ..PagesNoted::default() };
        self.requests += 1;
        self.run_requests += 1;
        self.last_end = read.end;
        if self.requests == 2 && size <= settings.whole_bytes_max {
            (self.start, self.len, self.next) = (0, size.div_ceil(PAGE_BYTES), 0);
            return noted;
        }
        let shared = noted.continues && !read.start.is_multiple_of(PAGE_BYTES);
        let (first, end) = (read.start / PAGE_BYTES + u64::from(shared), read.end.div_ceil(PAGE_BYTES));
        let mut gaps = gaps.iter().peekable();
        for page in first..end {
            while gaps.next_if(|gap| gap.end <= page * PAGE_BYTES).is_some() {}
            let hit = gaps.peek().is_none_or(|gap| gap.start >= (page + 1) * PAGE_BYTES);
            self.read_page(PageRead { page, hit, first: page == first }, settings, &mut noted);
        }
        // The window has the read itself at least.
        self.len = self.len.max(end.saturating_sub(self.start));
        noted
    }

    /// Whether the window has moved since the last call.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    fn read_page(&mut self, read: PageRead, settings: &Settings, noted: &mut PagesNoted) {
        let PageRead { page, hit, first } = read;
        let step = settings.rpc() / PAGE_BYTES;
        let mut found = false;
        if page.abs_diff(self.last) > NEAR_PAGES {
            noted.jumps += 1;
            if !self.is_stride(page) {
                self.watch(page, first);
                return self.restart(page, step);
            }
            (self.run_pages, self.run_requests) = (0, 0);
            self.steps += 1;
            found = self.steps == 2;
        } else if !hit && page < self.next && (self.start..self.start + self.len).contains(&page) {
            noted.missed_inside += 1;
            if self.steps < 2 || !self.is_stride(page) {
                (self.stride, self.steps) = (None, 0);
            }
            return self.restart(page, step);
        } else if self.steps > 1 && !self.is_stride(page) {
            (self.stride, self.steps) = (None, 0);
            (self.len, self.next) = (0, page);
        }
        self.run_pages += 1;
        self.last = page;
        self.start = page - page % step;
        self.next = if hit || self.steps > 1 { self.next.max(self.start) } else { page + 1 };
        if found && let Some(stride) = &mut self.stride {
            (stride.origin, self.len) = (page, step);
        }
        if first && (self.run_requests > 1 || self.steps > 1) {
            self.len = (self.len + step).min(settings.window_max() / PAGE_BYTES);
        }
    }

    /// Everything but the stride begins anew.
    fn restart(&mut self, page: u64, step: u64) {
        (self.last, self.run_pages, self.run_requests) = (page, 1, 0);
        (self.start, self.len, self.next) = (page - page % step, 0, page + 1);
        self.moved = true;
    }

    /// Whether the page is the next one of the stride.
    fn is_stride(&self, page: u64) -> bool {
        let (Some(stride), Some(gap)) = (self.stride, page.checked_sub(self.last + 1)) else { return false };
        match gap {
            0 => self.run_pages < stride.bytes,
            _ => gap == stride.length - stride.bytes && self.run_pages == stride.bytes,
        }
    }

    /// A jump: it may be the first step of a stride.
    fn watch(&mut self, page: u64, first: bool) {
        let gap = page.checked_sub(self.last + 1);
        (self.stride, self.steps) = match gap {
            Some(gap) if self.steps == 0 && first && self.run_pages > 0 => {
                let (bytes, length) = (self.run_pages, gap + self.run_pages);
                (Some(Stride { origin: page, bytes, length }), 1)
            }
            _ => (None, 0),
        };
    }

    /// What of the window is to be fetched now: bytes, in order and cut into requests.
    pub(super) fn wanted(
        &mut self,
        read: &Range<u64>,
        (settings, size): (&Settings, u64),
    ) -> Vec<Range<u64>> {
        let bytes = |pages: Range<u64>| pages.start * PAGE_BYTES..(pages.end * PAGE_BYTES).min(size);
        let mut wanted = Vec::new();
        if self.requests == 2 && size <= settings.whole_bytes_max {
            wanted.extend(pieces(bytes(0..read.start / PAGE_BYTES), settings.rpc()));
        }
        let from = self.next.max(read.end.div_ceil(PAGE_BYTES));
        let end = match self.stride.filter(|_| self.steps > 1) {
            None => {
                let end = self.start + self.len;
                let aligned = end - end % (settings.rpc() / PAGE_BYTES);
                let end = if aligned > from { aligned } else { end }.min(size.div_ceil(PAGE_BYTES));
                wanted.extend(pieces(bytes(from..end), settings.rpc()));
                end
            }
            Some(stride) => {
                let now = stride.index(self.last).unwrap_or(0);
                let last = now + self.len.div_ceil(stride.bytes);
                for index in now..=last {
                    let record = stride.record(index);
                    wanted.extend(pieces(bytes(record.start.max(from)..record.end), settings.rpc()));
                }
                stride.record(last).end
            }
        };
        self.next = self.next.max(end);
        wanted
    }
}
