//! The bytes of one file: what a reader sees, and what a crash may leave of it.
//!
//! Contents are pages that share the writers' memory, so a large file that nobody wrote costs nothing. A page that
//! was written since the last sync remembers what is durable and what was written in between: after a crash each
//! sector holds any one of them.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::rng::Rng;

/// Bytes of a page, the unit of memory.
pub(super) const PAGE: u64 = 4_096;
/// Bytes of a sector, the unit that a disk writes at once.
pub(super) const SECTOR: usize = 512;

/// States of an unsynced page that are remembered between the durable and the newest one; others are forgotten.
const BETWEEN_MAX: usize = 3;

/// A whole page, or `None` for zeros.
type Page = Option<Bytes>;

#[derive(Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Bytes>,
    dirty: BTreeMap<u64, Dirty>,
    len: u64,
    durable_len: u64,
    /// Pages that have space, as [first, end).
    space: BTreeMap<u64, u64>,
    space_pages: u64,
    /// Number of the last change.
    change: u64,
    /// Syncs under way: what they will make durable must not be forgotten.
    syncs: u32,
}

/// How far a file was when a sync began.
#[derive(Clone, Copy)]
pub(super) struct Point {
    change: u64,
    len: u64,
}

struct Dirty {
    durable: Page,
    /// Later states, oldest first, without the present one.
    between: Vec<(u64, Page)>,
    /// Number of the change that made the present state.
    change: u64,
    /// A sync failed: the disk forgot that the page must be written, so only a new write can make it durable.
    forgotten: bool,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of space that the file takes.
    pub(super) fn space_bytes(&self) -> u64 {
        self.space_pages * PAGE
    }

    /// Bytes of new space that `[offset, offset + len)` needs.
    pub(super) fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        let (first, end) = page_range(offset, len);
        let mut missing = end - first;
        let before = self.space.range(..first).next_back();
        for (&start, &stop) in before.into_iter().chain(self.space.range(first..end)) {
            missing -= stop.min(end).saturating_sub(start.max(first));
        }
        missing * PAGE
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let end = self.len.min(offset.saturating_add(len as u64));
        if offset >= end {
            return Bytes::new();
        }
        let (page, within) = (offset / PAGE, (offset % PAGE) as usize);
        let len = (end - offset) as usize;
        if within + len <= PAGE as usize
            && let Some(content) = self.pages.get(&page)
        {
            return content.slice(within..within + len);
        }
        let mut result = vec![0; len];
        let (first, last) = page_range(offset, len as u64);
        for (&page, content) in self.pages.range(first..last) {
            let start = (page * PAGE).max(offset);
            let stop = ((page + 1) * PAGE).min(end);
            let source = (start - page * PAGE) as usize..(stop - page * PAGE) as usize;
            result[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(&content[source]);
        }
        Bytes::from(result)
    }

    pub(super) fn write(&mut self, offset: u64, slices: &[Bytes]) {
        let len: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        if len == 0 {
            return;
        }
        self.change += 1;
        self.take_space(offset, len);
        let mut source = Source { slices, within: 0 };
        let mut position = offset;
        while position < offset + len {
            let (page, within) = (position / PAGE, (position % PAGE) as usize);
            let count = (PAGE as usize - within).min((offset + len - position) as usize);
            let content = source.next_page(count, within, self.pages.get(&page));
            self.replace(page, Some(content));
            position += count as u64;
        }
        self.grow(offset + len);
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        self.change += 1;
        self.take_space(offset, len);
        self.grow(offset + len);
    }

    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        self.change += 1;
        let end = offset + len;
        let (first, last) = page_range(offset, len);
        let pages: Vec<u64> = self.pages.range(first..last).map(|(page, _)| *page).collect();
        for page in pages {
            let start = (page * PAGE).max(offset) - page * PAGE;
            let stop = ((page + 1) * PAGE).min(end) - page * PAGE;
            if stop - start == PAGE {
                self.replace(page, None);
            } else {
                let mut content = self.pages[&page].to_vec();
                content[start as usize..stop as usize].fill(0);
                self.replace(page, Some(Bytes::from(content)));
            }
        }
        self.give_space(offset.div_ceil(PAGE), end / PAGE);
    }

    fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    fn replace(&mut self, page: u64, content: Page) {
        let before = match content {
            Some(content) => self.pages.insert(page, content),
            None => self.pages.remove(&page),
        };
        let Some(dirty) = self.dirty.get_mut(&page) else {
            let fresh = Dirty { durable: before, between: Vec::new(), change: self.change, forgotten: false };
            self.dirty.insert(page, fresh);
            return;
        };
        if dirty.change != self.change {
            dirty.between.push((dirty.change, before));
            dirty.change = self.change;
        }
        dirty.forgotten = false;
        if self.syncs == 0 && dirty.between.len() > BETWEEN_MAX {
            dirty.between.remove(self.change as usize % BETWEEN_MAX);
        }
    }

    /// Begins a sync; gives what [`Image::end_sync`] wants.
    pub(super) fn begin_sync(&mut self) -> Point {
        self.syncs += 1;
        Point { change: self.change, len: self.len }
    }

    /// A sync ended that has done nothing.
    pub(super) fn forget_sync(&mut self) {
        self.syncs = self.syncs.saturating_sub(1);
    }

    /// Everything up to `point` is durable now.
    pub(super) fn end_sync(&mut self, point: Point) {
        // A writer may have failed meanwhile, and taken what it wrote along.
        self.syncs = self.syncs.saturating_sub(1);
        let Point { change, len } = point;
        self.durable_len = self.durable_len.max(len).min(self.len);
        self.dirty.retain(|_, dirty| {
            if dirty.forgotten {
                return true;
            }
            if dirty.change <= change {
                return false;
            }
            let synced = dirty.between.iter().take_while(|(number, _)| *number <= change).count();
            if let Some((_, durable)) = dirty.between.drain(..synced).next_back() {
                dirty.durable = durable;
            }
            true
        });
    }

    /// A sync failed: each sector up to `point` is durable or will never be, unless it is written again. What a
    /// reader sees is the one or the other.
    pub(super) fn fail_sync(&mut self, point: Point, rng: &mut Rng) {
        self.syncs = self.syncs.saturating_sub(1);
        for (page, dirty) in &mut self.dirty {
            if dirty.change > point.change || dirty.forgotten {
                continue;
            }
            let present = self.pages.get(page).cloned();
            dirty.durable = dirty.survivor(present, rng, 500_000).0;
            dirty.between.clear();
            dirty.forgotten = true;
            if rng.one_in(2) {
                match dirty.durable.clone() {
                    Some(durable) => self.pages.insert(*page, durable),
                    None => self.pages.remove(page),
                };
            }
        }
    }

    /// Power fails; of each unsynced sector the newest state is kept with `keep` parts per million. Gives the
    /// number of sectors that are not the newest.
    pub(super) fn crash(&mut self, rng: &mut Rng, keep: u32) -> u64 {
        let mut lost = 0;
        for (page, dirty) in std::mem::take(&mut self.dirty) {
            let present = self.pages.get(&page).cloned();
            let (survivor, sectors) = dirty.survivor(present, rng, keep);
            lost += sectors;
            match survivor {
                Some(content) => self.pages.insert(page, content),
                None => self.pages.remove(&page),
            };
        }
        if self.len != self.durable_len && !kept(rng, keep) {
            self.len = rng.between(self.durable_len, self.len);
            if rng.one_in(2) {
                self.len = self.durable_len;
            }
        }
        self.cut_behind_end();
        self.durable_len = self.len;
        self.syncs = 0;
        lost
    }

    /// Nothing lies behind the end, so that a later growth shows zeros.
    fn cut_behind_end(&mut self) {
        let end = self.len.div_ceil(PAGE);
        drop(self.pages.split_off(&end));
        let within = (self.len % PAGE) as usize;
        if within > 0
            && let Some(content) = self.pages.get_mut(&(self.len / PAGE))
            && content[within..].iter().any(|byte| *byte != 0)
        {
            let mut cut = content.to_vec();
            cut[within..].fill(0);
            *content = Bytes::from(cut);
        }
        self.give_space(end, u64::MAX);
    }

    fn take_space(&mut self, offset: u64, len: u64) {
        let (mut first, mut end) = page_range(offset, len);
        let before = self.space.range(..=first).next_back().filter(|(_, stop)| **stop >= first);
        if let Some((&start, &stop)) = before {
            if stop >= end {
                return;
            }
            first = start;
        }
        let merged: Vec<u64> = self.space.range(first..=end).map(|(start, _)| *start).collect();
        for start in merged {
            let stop = self.space.remove(&start).expect("it was just seen");
            self.space_pages -= stop - start;
            end = end.max(stop);
        }
        self.space.insert(first, end);
        self.space_pages += end - first;
    }

    fn give_space(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let before = self.space.range(..first).next_back().map(|(start, _)| *start);
        let touched: Vec<u64> =
            before.into_iter().chain(self.space.range(first..end).map(|(start, _)| *start)).collect();
        for start in touched {
            let stop = self.space.remove(&start).expect("it was just seen");
            self.space_pages -= stop - start;
            for (left, right) in [(start, stop.min(first)), (start.max(end), stop)] {
                if left < right {
                    self.space.insert(left, right);
                    self.space_pages += right - left;
                }
            }
        }
    }
}

impl Dirty {
    /// What a crash leaves of the page, and how many sectors are not the newest.
    fn survivor(&self, present: Page, rng: &mut Rng, keep: u32) -> (Page, u64) {
        let sectors = PAGE as usize / SECTOR;
        if self.forgotten {
            return (self.durable.clone(), sectors as u64);
        }
        if keep == 0 {
            return (self.durable.clone(), sectors as u64);
        }
        if keep >= 1_000_000 {
            return (present, 0);
        }
        let mut content = vec![0; PAGE as usize];
        let mut lost = 0;
        for sector in content.chunks_mut(SECTOR).enumerate() {
            let (index, sector) = sector;
            let state = if kept(rng, keep) {
                &present
            } else {
                lost += 1;
                match rng.below(self.between.len() as u64 + 1) {
                    0 => &self.durable,
                    number => &self.between[number as usize - 1].1,
                }
            };
            if let Some(state) = state {
                sector.copy_from_slice(&state[index * SECTOR..(index + 1) * SECTOR]);
            }
        }
        (Some(Bytes::from(content)), lost)
    }
}

fn kept(rng: &mut Rng, keep: u32) -> bool {
    rng.below(1_000_000) < u64::from(keep)
}

fn page_range(offset: u64, len: u64) -> (u64, u64) {
    if len == 0 {
        return (offset / PAGE, offset / PAGE);
    }
    (offset / PAGE, (offset + len).div_ceil(PAGE))
}

/// Slices as one row of bytes.
struct Source<'a> {
    slices: &'a [Bytes],
    within: usize,
}

impl Source<'_> {
    /// The next `count` bytes, put at `within` of a page that held `before`. A whole page from one slice is shared.
    fn next_page(&mut self, count: usize, within: usize, before: Option<&Bytes>) -> Bytes {
        while self.slices[0].len() == self.within {
            self.slices = &self.slices[1..];
            self.within = 0;
        }
        if count == PAGE as usize && self.slices[0].len() - self.within >= count {
            let page = self.slices[0].slice(self.within..self.within + count);
            self.within += count;
            return page;
        }
        let mut page = before.map_or_else(|| vec![0; PAGE as usize], |before| before.to_vec());
        let mut position = within;
        while position < within + count {
            if self.slices[0].len() == self.within {
                self.slices = &self.slices[1..];
                self.within = 0;
                continue;
            }
            let part = &self.slices[0][self.within..];
            let part = &part[..part.len().min(within + count - position)];
            page[position..position + part.len()].copy_from_slice(part);
            position += part.len();
            self.within += part.len();
        }
        Bytes::from(page)
    }
}
