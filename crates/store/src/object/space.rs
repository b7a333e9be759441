//! Which blocks of the data files are free. Pure.
//!
//! Blocks are taken only from files of the current boot. Freed blocks are given back when the change that freed
//! them is durable and nobody who saw the old extents still reads: those of current files can be taken again,
//! those of former files are holes to be punched. Whether nothing of a former file is used is seen by others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::Transno;

use super::extent::{FileId, Run};

/// Runs of free blocks of one file: first block and count.
#[derive(Debug, Default)]
struct FreeMap {
    runs: BTreeMap<u32, u32>,
    free: u32,
    /// Blocks of the file.
    blocks: u32,
    /// Blocks that were given back to the file system: they are not taken again.
    given: u32,
    /// Where the search for free blocks starts.
    cursor: u32,
}

impl FreeMap {
    fn fits(&self, count: u32) -> bool {
        self.free >= count && self.runs.values().any(|len| *len >= count)
    }

    /// Takes `count` consecutive blocks; the first that fit from the cursor on, then from the start.
    fn take(&mut self, count: u32) -> Option<u32> {
        let fits = |(start, len): (&u32, &u32)| (*len >= count).then_some(*start);
        let start = self
            .runs
            .range(self.cursor..)
            .find_map(fits)
            .or_else(|| self.runs.range(..self.cursor).find_map(fits))?;
        self.take_at(start, count);
        Some(start)
    }

    /// Takes up to `count` consecutive blocks from the largest run.
    fn take_some(&mut self, count: u32) -> Option<(u32, u32)> {
        let (start, len) = self.runs.iter().max_by_key(|(start, len)| (**len, u32::MAX - **start))?;
        let (start, taken) = (*start, count.min(*len));
        self.take_at(start, taken);
        Some((start, taken))
    }

    fn take_at(&mut self, start: u32, count: u32) {
        self.cut_front(start, count);
        self.cursor = start + count;
    }

    fn cut_front(&mut self, start: u32, count: u32) {
        let len = self.runs.remove(&start).expect("the caller found the run");
        if len > count {
            self.runs.insert(start + count, len - count);
        }
        self.free -= count;
    }

    /// Whether nothing in the file is used.
    fn is_unused(&self) -> bool {
        self.free + self.given == self.blocks
    }

    fn give(&mut self, start: u32, count: u32) {
        let (mut from, mut len) = (start, count);
        if let Some((before, before_len)) = self.runs.range(..=start).next_back() {
            assert!(before + before_len <= start, "blocks are freed once");
            if before + before_len == start {
                (from, len) = (*before, before_len + count);
            }
        }
        if let Some((next, next_len)) = self.runs.range(start + 1..).next() {
            assert!(start + count <= *next, "blocks are freed once");
            if start + count == *next {
                let (next, next_len) = (*next, *next_len);
                self.runs.remove(&next);
                len += next_len;
            }
        }
        self.runs.insert(from, len);
        self.free += count;
    }
}

/// Blocks that a change freed.
#[derive(Debug)]
struct Pending {
    /// The freeing change is durable when this is.
    until: Transno,
    /// Readers with a smaller ticket may still read the blocks.
    ticket: u64,
    what: Freed,
    runs: Vec<Run>,
}

/// What was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// Blocks that were used until now.
    Blocks,
    /// Blocks of a file of a former boot that were not used before.
    Holes,
    /// All of such a file.
    File,
}

/// What has to be done to files, by someone who may wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Holes to punch into former files.
    pub punch: Vec<Run>,
    /// Files that nothing refers to.
    pub remove: Vec<FileId>,
}

/// The blocks of all data files.
#[derive(Debug, Default)]
pub struct Space {
    current: BTreeMap<FileId, FreeMap>,
    /// Current files by their number of free blocks.
    roomy: BTreeSet<(u32, FileId)>,
    /// The free blocks of all current files.
    free: u64,
    /// The file that blocks are taken from first.
    active: Option<FileId>,
    /// Used blocks of each file of a former boot.
    former: BTreeMap<FileId, u64>,
    pending: VecDeque<Pending>,
    work: Work,
    readers: BTreeSet<u64>,
    next_ticket: u64,
}

/// How many files are looked at for a run of free blocks before a new one is made.
const FILES_SEARCHED_MAX: usize = 8;
/// Shortest hole that is punched into a file that is written: shorter runs are used again.
const HOLE_BLOCKS_MIN: u32 = 16;

impl Space {
    /// Adds a current file of `blocks` free blocks.
    pub fn add_current(&mut self, file: FileId, blocks: u32) {
        let map = FreeMap { runs: BTreeMap::from([(0, blocks)]), free: blocks, blocks, ..FreeMap::default() };
        self.roomy.insert((blocks, file));
        self.free += u64::from(blocks);
        self.current.insert(file, map);
    }

    /// Adds a file of a former boot of which `used` blocks are used.
    pub fn add_former(&mut self, file: FileId, used: u64) {
        self.former.insert(file, used);
    }

    /// The files of former boots, and how many blocks of each are used.
    pub fn former(&self) -> Vec<(FileId, u64)> {
        self.former.iter().map(|(file, used)| (*file, *used)).collect()
    }

    /// Has a file of a former boot get holes at `gaps`, or go if it is all gap, once nobody reads there any more. What is durable up
    /// to `committed` does not refer to them.
    pub fn give_gaps(&mut self, committed: Transno, file: FileId, blocks: u32, gaps: &[(u32, u32)]) {
        let run = |(block, count): &(u32, u32)| Run { file, block: *block, count: *count };
        let all = (0, blocks);
        let (what, runs) = if gaps == [all] || blocks == 0 {
            (Freed::File, vec![run(&all)])
        } else {
            (Freed::Holes, gaps.iter().map(run).collect())
        };
        let (until, ticket) = (committed, self.next_ticket);
        self.pending.push_back(Pending { until, ticket, what, runs });
    }

    fn with_current<T>(&mut self, file: FileId, change: impl FnOnce(&mut FreeMap) -> T) -> Option<T> {
        let map = self.current.get_mut(&file)?;
        self.roomy.remove(&(map.free, file));
        let before = u64::from(map.free);
        let result = change(map);
        self.roomy.insert((map.free, file));
        self.free = self.free + u64::from(map.free) - before;
        Some(result)
    }

    /// Takes `count` consecutive blocks.
    pub fn take(&mut self, count: u32) -> Option<Run> {
        for file in self.searched(count) {
            if let Some(Some(block)) = self.with_current(file, |map| map.take(count)) {
                self.active = Some(file);
                return Some(Run { file, block, count });
            }
        }
        None
    }

    /// Whether `count` consecutive blocks can be taken.
    pub fn fits(&self, count: u32) -> bool {
        self.searched(count).iter().any(|file| self.current[file].fits(count))
    }

    /// Files in which `count` consecutive blocks are looked for.
    fn searched(&self, count: u32) -> Vec<FileId> {
        let roomy = self.roomy.range((count, FileId { boot: 0, seq: 0 })..).rev().map(|(_, file)| *file);
        self.active.into_iter().chain(roomy.take(FILES_SEARCHED_MAX)).collect()
    }

    /// Takes `count` blocks, wherever there are any.
    pub fn take_scattered(&mut self, count: u32) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        let mut left = count;
        while left > 0 {
            let largest = self.roomy.last().map(|(_, file)| *file);
            let found =
                largest.and_then(|file| Some((file, self.with_current(file, |m| m.take_some(left))??)));
            let Some((file, (block, count))) = found else {
                self.give_back(&runs);
                return None;
            };
            left -= count;
            runs.push(Run { file, block, count });
        }
        Some(runs)
    }

    /// Gives blocks back that nothing ever referred to.
    pub fn give_back(&mut self, runs: &[Run]) {
        for run in runs {
            self.with_current(run.file, |map| map.give(run.block, run.count)).expect("a current file stays");
        }
    }

    /// Blocks that a change freed which is durable when `until` is.
    pub fn free(&mut self, until: Transno, runs: Vec<Run>) {
        if !runs.is_empty() {
            self.pending.push_back(Pending { until, ticket: self.next_ticket, what: Freed::Blocks, runs });
        }
    }

    /// Releases what was freed by changes up to `committed`, as far as nobody reads it.
    pub fn release(&mut self, committed: Transno) {
        let oldest = self.oldest_reader();
        while self.pending.front().is_some_and(|p| p.until <= committed && p.ticket <= oldest) {
            let freed = self.pending.pop_front().expect("there is a front");
            match freed.what {
                Freed::Blocks => freed.runs.into_iter().for_each(|run| self.release_run(run)),
                Freed::Holes => self.work.punch.extend(freed.runs),
                Freed::File => freed.runs.iter().for_each(|run| {
                    self.work.punch.retain(|hole| hole.file != run.file);
                    self.work.remove.push(run.file);
                }),
            }
        }
    }

    /// Whether the oldest of what was freed by changes up to `committed` is read. The rest of it waits, too.
    pub fn is_read(&self, committed: Transno) -> bool {
        let oldest = self.oldest_reader();
        self.pending.front().is_some_and(|p| p.until <= committed && p.ticket > oldest)
    }

    /// The ticket of the reader who began first.
    fn oldest_reader(&self) -> u64 {
        self.readers.first().copied().unwrap_or(u64::MAX)
    }

    fn release_run(&mut self, run: Run) {
        if self.with_current(run.file, |map| map.give(run.block, run.count)).is_some() {
            return;
        }
        let Some(used) = self.former.get_mut(&run.file) else {
            return;
        };
        *used = used.saturating_sub(u64::from(run.count));
        self.work.punch.push(run);
    }

    /// Takes what is to be done to files. Files to be removed are forgotten.
    pub fn take_work(&mut self) -> Work {
        let work = std::mem::take(&mut self.work);
        for file in &work.remove {
            self.former.remove(file);
        }
        work
    }

    /// Whether there is something to do to files.
    pub fn has_work(&self) -> bool {
        self.work != Work::default()
    }

    /// Forgets current files without used blocks, but `keep_free` free blocks; they are to be removed.
    pub fn drop_unused(&mut self, keep_free: u64) -> Vec<FileId> {
        let mut dropped = Vec::new();
        let mut free = self.free_blocks();
        let unused: Vec<(FileId, u32)> = self
            .current
            .iter()
            .filter(|(_, map)| map.is_unused())
            .map(|(file, map)| (*file, map.free))
            .collect();
        for (file, blocks) in unused {
            if free < keep_free + u64::from(blocks) || (self.active == Some(file) && keep_free > 0) {
                continue;
            }
            free -= u64::from(blocks);
            self.current.remove(&file);
            self.active = self.active.filter(|active| *active != file);
            self.roomy.remove(&(blocks, file));
            self.free -= u64::from(blocks);
            dropped.push(file);
        }
        dropped
    }

    /// Takes free blocks of current files for good, but for `keep_free` of all, up to `most`: holes are to be punched there. The
    /// longest runs first; what is short stays.
    pub fn give_surplus(&mut self, keep_free: u64, most: u64) -> Vec<Run> {
        let mut left = self.free_blocks().saturating_sub(keep_free).min(most);
        let mut runs: Vec<Run> = Vec::new();
        for (file, map) in self.current.iter().filter(|(_, map)| !map.is_unused()) {
            let long = map.runs.iter().filter(|(_, count)| **count >= HOLE_BLOCKS_MIN);
            runs.extend(long.map(|(block, count)| Run { file: *file, block: *block, count: *count }));
        }
        runs.sort_by_key(|run| (std::cmp::Reverse(run.count), run.file, run.block));
        let mut given = Vec::new();
        for run in runs {
            let count = u64::from(run.count).min(left) as u32;
            if count < HOLE_BLOCKS_MIN {
                break;
            }
            self.with_current(run.file, |map| {
                map.cut_front(run.block, count);
                map.given += count;
            });
            left -= u64::from(count);
            given.push(Run { count, ..run });
        }
        given
    }

    /// A reader's ticket: what is freed from now on stays until it is given to [`Space::leave`].
    pub fn enter(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.readers.insert(ticket);
        ticket
    }

    /// The reader with `ticket` is done.
    pub fn leave(&mut self, ticket: u64) {
        self.readers.remove(&ticket);
    }

    /// Whether freed blocks wait for a commit or for a reader.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Blocks that can be taken now.
    pub fn free_blocks(&self) -> u64 {
        let sum = || -> u64 { self.roomy.iter().map(|(free, _)| u64::from(*free)).sum() };
        debug_assert_eq!(self.free, sum(), "every change of a file is counted");
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: FileId = FileId { boot: 1, seq: 0 };
    const NEW: FileId = FileId { boot: 2, seq: 0 };

    fn run(file: FileId, block: u32, count: u32) -> Run {
        Run { file, block, count }
    }

    #[test]
    fn takes_in_order_and_gives_back() {
        let mut space = Space::default();
        space.add_current(NEW, 10);
        assert_eq!(space.take(4), Some(run(NEW, 0, 4)));
        assert_eq!(space.take(4), Some(run(NEW, 4, 4)));
        assert_eq!(space.take(4), None);
        space.give_back(&[run(NEW, 0, 4)]);
        assert_eq!(space.free_blocks(), 6);
        assert_eq!(space.take_scattered(7), None);
        assert_eq!(space.free_blocks(), 6, "a failed try keeps nothing");
        assert_eq!(space.take_scattered(6), Some(vec![run(NEW, 0, 4), run(NEW, 8, 2)]));
        space.give_back(&[run(NEW, 3, 1), run(NEW, 1, 1), run(NEW, 2, 1)]);
        assert_eq!(space.take(3), Some(run(NEW, 1, 3)), "neighbours become one run");
    }

    #[test]
    fn freed_blocks_wait_for_the_commit_and_for_readers() {
        let mut space = Space::default();
        space.add_current(NEW, 4);
        let taken = space.take(4).expect("the file is empty");
        let early = space.enter();
        space.free(Transno(7), vec![taken]);
        let late = space.enter();
        space.release(Transno(6));
        assert_eq!(space.take(1), None);
        space.release(Transno(7));
        assert_eq!(space.take(1), None, "a reader that saw the blocks still reads");
        assert!(space.is_read(Transno(7)) && !space.is_read(Transno(6)));
        space.leave(early);
        assert!(!space.is_read(Transno(7)), "it can be released");
        space.release(Transno(7));
        assert_eq!(space.take(1), Some(run(NEW, 0, 1)), "the later reader cannot have seen them");
        space.leave(late);
    }

    #[test]
    fn former_files_get_holes_and_go_when_empty() {
        let mut space = Space::default();
        space.add_former(OLD, 4);
        let reader = space.enter();
        space.give_gaps(Transno(0), OLD, 10, &[(0, 2), (5, 2), (8, 2)]);
        space.release(Transno(0));
        assert_eq!(space.take_work(), Work::default(), "what goes may have gone a moment ago");
        space.leave(reader);
        space.release(Transno(0));
        let holes = vec![run(OLD, 0, 2), run(OLD, 5, 2), run(OLD, 8, 2)];
        assert_eq!(space.take_work(), Work { punch: holes, remove: vec![] });
        space.free(Transno(1), vec![run(OLD, 2, 3)]);
        space.release(Transno(1));
        assert_eq!(space.take_work(), Work { punch: vec![run(OLD, 2, 3)], remove: vec![] });
        space.free(Transno(2), vec![run(OLD, 7, 1)]);
        space.release(Transno(2));
        // Its name goes when it was seen that nothing refers to it.
        assert_eq!(space.take_work(), Work { punch: vec![run(OLD, 7, 1)], remove: vec![] });
        assert_eq!(space.former(), [(OLD, 0)]);
        space.give_gaps(Transno(2), OLD, 10, &[(0, 10)]);
        space.release(Transno(2));
        assert_eq!(space.take_work(), Work { punch: vec![], remove: vec![OLD] });
        assert!(!space.has_work() && !space.has_pending() && space.former().is_empty());
    }

    #[test]
    fn what_is_free_beyond_a_margin_is_given_back_for_good() {
        let mut space = Space::default();
        space.add_current(NEW, 200);
        let taken = space.take(200).expect("the file is empty");
        let part = |block, count| Run { block, count, ..taken };
        space.free(Transno(1), vec![part(0, 100), part(110, 10), part(150, 40)]);
        space.release(Transno(0));
        assert_eq!(space.give_surplus(20, 1000), vec![], "the commit that freed it is not durable");
        space.release(Transno(1));
        assert_eq!(space.give_surplus(150, 1000), vec![]);
        assert_eq!(space.give_surplus(20, 60), vec![part(0, 60)], "at most so much at a time");
        assert_eq!(space.give_surplus(20, 1000), vec![part(60, 40), part(150, 30)]);
        assert_eq!(space.give_surplus(0, 1000), vec![], "what is short is used again");
        assert_eq!(space.free_blocks(), 20);
        assert_eq!(space.take(21), None);
        assert!(!space.has_pending());
        // With its last used block the file goes.
        space.free(Transno(2), vec![part(100, 10), part(120, 30), part(190, 10)]);
        space.release(Transno(2));
        assert_eq!(space.drop_unused(0), vec![NEW]);
        assert_eq!(space.free_blocks(), 0);
    }

    #[test]
    fn unused_current_files_are_dropped() {
        let mut space = Space::default();
        space.add_current(NEW, 10);
        space.add_current(FileId { boot: 2, seq: 1 }, 10);
        let taken = space.take(1).expect("there is room");
        assert_eq!(taken.file.seq, 1);
        assert_eq!(space.drop_unused(15), vec![]);
        assert_eq!(space.drop_unused(5), vec![NEW]);
        assert_eq!(space.drop_unused(0), vec![]);
    }
}
