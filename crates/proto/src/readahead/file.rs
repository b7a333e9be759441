//! Read-ahead of one file: what its handles read, and what is ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::pages::PageWindow;
use super::spans::{Cut, Owner, Spans};
use super::stream::Fit;
use super::streams::Streams;
use super::{Counter, Mount, PAGE_BYTES, Settings, Unit, pages_of, pieces};

/// What was fetched because the file is small belongs to no stream and stays until the handle is closed.
const WHOLE_FILE: u64 = u64::MAX;

/// All that fill the kernel's page cache are one: its pages are those of the file, whichever handle has them filled. No handle has this number.
const FILLERS: u64 = u64::MAX;

/// What the client has to do now, the last field first. Ranges are in bytes of the file; no two of one field overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// To be fetched while the reader goes on, each by a request of its own: within the file, nothing of it asked for before.
    pub fetch: Vec<Range<u64>>,
    /// Was to be ahead, and nobody will read it: what is there can go, and what is on its way need not come.
    pub give_up: Vec<Range<u64>>,
}

/// Why bytes are not ahead any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The cache had no room for them any more: less is read ahead from now on.
    Dropped,
    /// A lock was called back, or the bytes were written or cut off: the window begins anew.
    Taken,
    /// There was no lock to be had for them.
    NoLock,
    /// There was no memory to fetch them into.
    NoMemory,
    /// The request failed, or the OST had less than the size of the file promised.
    Failed,
}

/// How one handle reads.
#[derive(Debug)]
enum Reader {
    Bytes(Streams),
    Pages(PageWindow),
}

/// Read-ahead of a file, by all handles of this client. Handles are told apart by the caller's numbers.
#[derive(Debug)]
pub struct File {
    spans: Spans,
    readers: BTreeMap<u64, Reader>,
    /// Handles that had the kernel's pages filled.
    fillers: BTreeSet<u64>,
    /// Targets that answer at the same time.
    width: u64,
}

impl Default for File {
    fn default() -> File {
        File { spans: Spans::default(), readers: BTreeMap::new(), fillers: BTreeSet::new(), width: 1 }
    }
}

/// What of a read was ahead.
struct Seen {
    read: Range<u64>,
    /// What had not been asked for, in order.
    gaps: Vec<Range<u64>>,
}

impl Reader {
    fn new(unit: Unit, reader: u64) -> Reader {
        match unit {
            Unit::Bytes if reader == FILLERS => Reader::Bytes(Streams::of_pages()),
            Unit::Bytes => Reader::Bytes(Streams::default()),
            Unit::Pages => Reader::Pages(PageWindow::default()),
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Reader::Bytes(_) => Unit::Bytes,
            Reader::Pages(_) => Unit::Pages,
        }
    }
}

impl Seen {
    /// Pages of the read, and those of them that were missed. The first page does not count if a read in sequence has counted it.
    fn pages(&self, continues: bool) -> (u64, u64) {
        let shared = continues && !self.read.start.is_multiple_of(PAGE_BYTES);
        let first = self.read.start / PAGE_BYTES + u64::from(shared);
        let pages = ((self.read.end - 1) / PAGE_BYTES + 1).saturating_sub(first);
        let (mut missed, mut from) = (0, first);
        for gap in &self.gaps {
            let end = (gap.end - 1) / PAGE_BYTES + 1;
            missed += end.saturating_sub(from.max(gap.start / PAGE_BYTES));
            from = from.max(end);
        }
        (pages, missed)
    }
}

impl File {
    /// The file lies on so many targets, which answer at the same time; 1 at first.
    pub fn set_width(&mut self, targets: u64) {
        self.width = targets.max(1);
    }

    /// The kernel fills pages for the handle: [`File::read`], but all that do so are one reader. Records that several programs read in turns are
    /// one sequence for the kernel, which reads ahead by what pages the file has.
    pub fn fill(&mut self, mount: &mut Mount, handle: u64, read: Range<u64>, size: u64) -> Decision {
        self.fillers.insert(handle);
        self.read(mount, FILLERS, read, size)
    }

    /// The handle reads `read`, bytes of a file that has `size` bytes. To be called when the read begins: what of it is ahead is used
    /// with this call, and the caller waits for what of that has not arrived. The rest of the read is the caller's to fetch.
    pub fn read(&mut self, mount: &mut Mount, handle: u64, read: Range<u64>, size: u64) -> Decision {
        let mut decision = Decision::default();
        let read = read.start..read.end.min(size);
        if size == 0 {
            mount.stats.add(Counter::ZeroLength, 1);
            return decision;
        }
        if read.is_empty() {
            return decision;
        }
        let seen = self.take(mount, &read, &mut decision);
        if mount.settings.is_off() {
            mount.stats.sample(Counter::ForcereadPages, pages_of(&read));
            return decision;
        }
        let unit = mount.settings.unit;
        if self.readers.get(&handle).is_some_and(|reader| reader.unit() != unit) {
            decision.give_up.extend(self.forget(mount, handle));
        }
        let mut reader = self.readers.remove(&handle).unwrap_or_else(|| Reader::new(unit, handle));
        match &mut reader {
            Reader::Bytes(streams) => self.read_bytes(mount, handle, streams, (&seen, size), &mut decision),
            Reader::Pages(window) => self.read_pages(mount, handle, window, (&seen, size), &mut decision),
        }
        self.readers.insert(handle, reader);
        decision
    }

    /// Bytes that were to be fetched are there. Returns what of them is to be kept for readers to come: the rest was read or given up
    /// meanwhile.
    pub fn arrived(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        self.spans.arrive(range)
    }

    /// What is ahead and has arrived, in order.
    pub fn arrived_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.spans.arrived()
    }

    /// Bytes are not ahead any more, if they were.
    pub fn lost(&mut self, mount: &mut Mount, range: Range<u64>, why: Why) {
        let cuts = self.spans.cut(range, |_| true);
        if cuts.is_empty() {
            return;
        }
        let rpc_bytes = mount.settings.rpc();
        for cut in &cuts {
            mount.budget.drop_bytes(cut.len());
            if matches!(why, Why::Dropped | Why::Taken) {
                mount.stats.add(Counter::Discarded, pages_of(&cut.range));
            }
            let Some(Reader::Bytes(streams)) = self.readers.get_mut(&cut.owner.handle) else { continue };
            let Some(stream) = streams.get_mut(cut.owner.stream) else { continue };
            match why {
                Why::Dropped | Why::NoMemory => stream.shrink(rpc_bytes),
                // What fails may fail again, as behind the end of the objects of a sparse file: not for a whole window with each read.
                Why::Taken | Why::NoLock | Why::Failed => stream.restart(rpc_bytes),
            }
        }
        match why {
            Why::Dropped | Why::Taken => {}
            Why::NoLock => mount.stats.add(Counter::NoLock, 1),
            Why::NoMemory => mount.stats.add(Counter::NoMemory, 1),
            Why::Failed => mount.stats.add(Counter::FailedToReachEnd, 1),
        }
    }

    /// The handle is closed, or rests and what is ahead of it is to make room: a read that comes later begins anew. Returns what was
    /// ahead, which nobody will read.
    pub fn closed(&mut self, mount: &mut Mount, handle: u64) -> Vec<Range<u64>> {
        let mut given_up = self.forget(mount, handle);
        if self.fillers.remove(&handle) && self.fillers.is_empty() {
            given_up.extend(self.forget(mount, FILLERS));
        }
        given_up
    }

    /// A reader begins anew. Returns what was ahead of it.
    fn forget(&mut self, mount: &mut Mount, reader: u64) -> Vec<Range<u64>> {
        self.readers.remove(&reader);
        let mut given_up = Vec::new();
        self.give_up(mount, 0..u64::MAX, |owner| owner.handle == reader, &mut given_up);
        given_up
    }

    /// No handle has read, or all are closed: the state can go.
    pub fn is_idle(&self) -> bool {
        self.readers.is_empty() && self.spans.is_empty()
    }

    /// Bytes of this file that are ahead, asked for or there.
    pub fn ahead_bytes(&self) -> u64 {
        self.spans.bytes()
    }

    /// What of the read is ahead is used now.
    fn take(&mut self, mount: &mut Mount, read: &Range<u64>, decision: &mut Decision) -> Seen {
        let cuts = self.spans.cut(read.clone(), |_| true);
        mount.budget.use_bytes(cuts.iter().map(Cut::len).sum());
        // A read from the middle of a span leaves two.
        if self.spans.is_full() && read.start > 0 {
            let before = self.spans.touched(read.start - 1..read.start);
            self.give_up(mount, before, |_| true, &mut decision.give_up);
        }
        let mut gaps = Vec::new();
        let mut at = read.start;
        for cut in &cuts {
            if at < cut.range.start {
                gaps.push(at..cut.range.start);
            }
            at = cut.range.end;
        }
        if at < read.end {
            gaps.push(at..read.end);
        }
        let waits = !gaps.is_empty() || cuts.iter().any(|cut| !cut.arrived);
        if waits && !mount.settings.is_off() {
            mount.stats.add(Counter::FailedFastRead, 1);
        }
        Seen { read: read.clone(), gaps }
    }

    fn read_bytes(
        &mut self,
        mount: &mut Mount,
        handle: u64,
        streams: &mut Streams,
        (seen, size): (&Seen, u64),
        decision: &mut Decision,
    ) {
        let noted = streams.note(&seen.read, self.width, &mount.settings);
        let owner = |stream| Owner { handle, stream };
        for number in noted.joined {
            self.spans.hand_over(owner(number), owner(noted.number));
        }
        for number in noted.given_up {
            self.give_up(mount, 0..u64::MAX, |of| of == owner(number), &mut decision.give_up);
        }
        if !matches!(noted.fit, Some(Fit::Next | Fit::Near | Fit::Again)) {
            mount.stats.add(Counter::NotConsecutive, 1);
        }
        let (pages, missed) = seen.pages(noted.fit == Some(Fit::Next));
        mount.stats.add(Counter::Misses, missed);
        mount.stats.add(Counter::Hits, pages - missed);
        let whole = streams.reads() >= 2 && size <= mount.settings.whole_bytes_max && streams.take_whole();
        let wanted = whole.then(|| whole_file(streams, &mount.settings, size));
        let Some(stream) = streams.get_mut(noted.number) else { return };
        if noted.fit != Some(Fit::Again) && seen.gaps.iter().any(|gap| gap.start < noted.asked) {
            mount.stats.add(Counter::MissInsideWindow, missed);
            stream.ask_again();
        }
        if let Some(left) = stream.left_behind(mount.settings.rpc()) {
            self.give_up(mount, left, |of| of == owner(noted.number), &mut decision.give_up);
        }
        if let Some(wanted) = wanted {
            self.fetch(mount, wanted, owner(WHOLE_FILE), size, decision);
        } else if stream.has_window() {
            let (wanted, end) = stream.window(&mount.settings, size);
            let cut_at = self.fetch(mount, wanted, owner(noted.number), size, decision);
            stream.asked_to(cut_at.unwrap_or(end));
        } else {
            mount.stats.add(Counter::ZeroWindow, 1);
        }
    }

    fn read_pages(
        &mut self,
        mount: &mut Mount,
        handle: u64,
        window: &mut PageWindow,
        (seen, size): (&Seen, u64),
        decision: &mut Decision,
    ) {
        let owner = Owner { handle, stream: 0 };
        let noted = window.read(&seen.read, &seen.gaps, (&mount.settings, size));
        mount.stats.add(Counter::NotConsecutive, noted.jumps);
        mount.stats.add(Counter::MissInsideWindow, noted.missed_inside);
        let (pages, missed) = seen.pages(noted.continues);
        mount.stats.add(Counter::Misses, missed);
        mount.stats.add(Counter::Hits, pages - missed);
        let wanted = window.wanted(&seen.read, (&mount.settings, size));
        if wanted.is_empty() {
            mount.stats.add(Counter::ZeroWindow, 1);
            return;
        }
        // What is ahead of a window that was given up would keep this one from reading ahead.
        if window.take_moved() {
            self.give_up(mount, 0..u64::MAX, |of| of == owner, &mut decision.give_up);
        }
        self.fetch(mount, wanted, owner, size, decision);
    }

    /// Has what is missing of `wanted` fetched, in this order and as far as there is room. Returns where it ends for want of that.
    fn fetch(
        &mut self,
        mount: &mut Mount,
        wanted: Vec<Range<u64>>,
        owner: Owner,
        size: u64,
        decision: &mut Decision,
    ) -> Option<u64> {
        let settings = &mount.settings;
        let first = decision.fetch.len();
        let mut cut_at = None;
        let missing = wanted.into_iter().flat_map(|range| self.spans.missing(range)).collect::<Vec<_>>();
        for range in missing {
            let len = range.end - range.start;
            let fits =
                !self.spans.is_full() && self.spans.bytes().saturating_add(len) <= settings.window_max();
            if !fits || mount.is_short || !mount.budget.grant(len, settings.mount_bytes_max) {
                cut_at = Some(range.start);
                break;
            }
            self.spans.ask(range.clone(), owner);
            decision.fetch.push(range);
        }
        let asked = decision.fetch.get(first..).unwrap_or_default();
        if !asked.is_empty() {
            mount.stats.add(Counter::Async, 1);
            mount.stats.sample(Counter::ReadaheadPages, asked.iter().map(pages_of).sum());
            mount.stats.add(Counter::ToEof, u64::from(asked.iter().any(|range| range.end == size)));
        }
        if cut_at.is_some() {
            mount.stats.add(Counter::HitMax, 1);
            mount.stats.add(Counter::FailedToReachEnd, 1);
        }
        cut_at
    }

    fn give_up(
        &mut self,
        mount: &mut Mount,
        range: Range<u64>,
        which: impl Fn(Owner) -> bool,
        given_up: &mut Vec<Range<u64>>,
    ) {
        for cut in self.spans.cut(range, which) {
            mount.budget.drop_bytes(cut.len());
            mount.stats.add(Counter::Discarded, pages_of(&cut.range));
            given_up.push(cut.range);
        }
    }
}

/// What of a small file was not read yet, as far as is known.
fn whole_file(streams: &Streams, settings: &Settings, size: u64) -> Vec<Range<u64>> {
    let (mut wanted, mut at) = (Vec::new(), 0);
    for run in streams.runs() {
        wanted.extend(pieces(at..run.start.max(at), settings.rpc()));
        at = at.max(run.end);
    }
    wanted.extend(pieces(at..size.max(at), settings.rpc()));
    wanted
}
