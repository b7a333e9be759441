//! Which files a rule acts on next: found in the MDT, and kept in bounded memory.
//!
//! The MDT keeps the moment of a search for a minute, and acting takes longer. So a batch of files is collected first, quickly, and then
//! acted on. Without an order one search gives all batches: where it was, it goes on, with the file system as it is then. With an order each
//! batch is the first files of a search of its own, behind the last file of the batch before it.

use std::collections::{BTreeSet, BinaryHeap};

use proto::wire::messages::{Found, FoundPage};
use proto::{Fid, FileKind, Timestamp};

use super::rule::{Action, Order, Rule};
use super::stop::Stop;
use super::there::Wanted;
use crate::lfs::find::{Error, Search};

/// How often a search begins again whose place in the tree has gone.
const RESTARTS_MAX: u32 = 100;
/// Directories that could not be looked into and are named.
const HIDDEN_MAX: usize = 20;
/// What one file takes besides its fields and its path, in bytes.
const OVERHEAD: usize = 16;

/// A file to act on. Ordered as they come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// What the rule orders by: less comes first.
    pub key: (i64, u32),
    /// The file.
    pub fid: Fid,
    /// Its path below the start.
    pub below: Box<[u8]>,
    /// Bytes of its data: holes do not count.
    pub bytes: u64,
    /// Bytes that are freed where the rule measures when the file has gone from there.
    pub frees: u64,
}

/// How much one batch may have.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of memory, about.
    pub memory: usize,
    /// Bytes that are to be freed; no more files than it takes.
    pub frees: Option<u64>,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Tally {
    /// Files that match.
    pub matched: u64,
    /// Of those the ones that lie where they are to be.
    pub there: u64,
    /// Bytes of the files that match and do not lie there.
    pub bytes: u64,
    /// Directories that may not be looked into.
    pub hidden: u64,
    /// The first of them, as paths below the start.
    pub hidden_named: Vec<Vec<u8>>,
}

/// What a file has to be like.
pub struct Filter<'a> {
    /// Whose files are looked for.
    pub rule: &'a Rule,
    /// Where they are to lie, for a rule that moves them.
    pub wanted: Option<&'a Wanted<'a>>,
    /// The OSTs that are measured: who has nothing there is left alone.
    pub measured: Option<BTreeSet<u32>>,
}

/// What comes of a file that was found.
enum Seen {
    Candidate(Candidate),
    There,
    /// It has nothing where the rule measures.
    Elsewhere,
}

/// A search, page by page.
pub trait Pages {
    /// As [`Search::next_page`].
    fn next_page(&mut self) -> Result<Option<FoundPage>, Error>;
}

impl Pages for Search {
    fn next_page(&mut self) -> Result<Option<FoundPage>, Error> {
        Search::next_page(self)
    }
}

/// Gives batch after batch.
pub struct Collector<'a> {
    filter: Filter<'a>,
    begin: Box<dyn Fn() -> Box<dyn Pages> + 'a>,
    search: Option<Box<dyn Pages>>,
    restarts: u32,
    /// With an order: the last file of the batch before.
    last: Option<Candidate>,
    is_over: bool,
    /// What was seen so far.
    pub tally: Tally,
}

impl Filter<'_> {
    fn see(&self, found: Found) -> Seen {
        let entry = found.entry.as_ref();
        let attr = entry.map(|entry| &entry.attr);
        let layout = entry.and_then(|entry| entry.layout.as_ref());
        let mut frees = attr.map_or(0, |attr| attr.blocks.saturating_mul(512));
        if let Some(measured) = &self.measured {
            // Another name keeps the data of a file that is removed.
            let stays = self.rule.action == Action::Purge && attr.is_some_and(|attr| attr.nlink > 1);
            let osts: Vec<u32> =
                layout.map(|layout| layout.osts().map(|ost| ost.0).collect()).unwrap_or_default();
            let on = osts.iter().filter(|ost| measured.contains(ost)).count() as u128;
            let share = (u128::from(frees) * on).checked_div(osts.len() as u128).unwrap_or(0);
            frees = if stays { 0 } else { u64::try_from(share).unwrap_or(u64::MAX) };
            if frees == 0 {
                return Seen::Elsewhere;
            }
        }
        if let (Some(wanted), Some(layout)) = (self.wanted, layout)
            && wanted.has(layout)
        {
            return Seen::There;
        }
        let time = |time: Timestamp| (time.secs, time.nanos);
        let key = match (self.rule.order, attr) {
            (Some(Order::Accessed), Some(attr)) => time(attr.atime),
            (Some(Order::Modified), Some(attr)) => time(attr.mtime),
            (Some(Order::Size), Some(attr)) => (i64::try_from(attr.size).map_or(i64::MIN, |size| -size), 0),
            _ => (0, 0),
        };
        // What a directory or a link says of its size are no bytes of anybody.
        let is_file = FileKind::from_mode(found.mode) == Some(FileKind::File);
        let bytes = attr.filter(|_| is_file).map_or(0, |attr| attr.size.min(attr.blocks.saturating_mul(512)));
        Seen::Candidate(Candidate { key, fid: found.fid, below: found.path.to_vec().into(), bytes, frees })
    }
}

impl Candidate {
    fn memory(&self) -> usize {
        size_of::<Candidate>() + self.below.len() + OVERHEAD
    }
}

impl<'a> Collector<'a> {
    /// Of what a search finds that `begin` begins.
    pub fn new(filter: Filter<'a>, begin: impl Fn() -> Box<dyn Pages> + 'a) -> Collector<'a> {
        Collector {
            filter,
            begin: Box::new(begin),
            search: None,
            restarts: 0,
            last: None,
            is_over: false,
            tally: Tally::default(),
        }
    }

    /// Whether all that match were given.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The files that come next, in order; none at the end, or when it was stopped.
    pub fn next_batch(&mut self, room: Room, stop: &Stop) -> Result<Vec<Candidate>, String> {
        if self.is_over {
            return Ok(Vec::new());
        }
        if self.filter.rule.order.is_some() {
            self.first_in_order(room, stop)
        } else {
            self.next_found(room, stop)
        }
    }

    /// Until there is no more room.
    fn next_found(&mut self, room: Room, stop: &Stop) -> Result<Vec<Candidate>, String> {
        let (mut batch, mut memory, mut frees) = (Vec::new(), 0, 0u64);
        while memory < room.memory && room.frees.is_none_or(|goal| frees < goal) && !stop.is_told() {
            let Some(found) = self.next_page()? else {
                self.is_over = true;
                break;
            };
            for found in found {
                if let Some(candidate) = self.sorted_out(found) {
                    memory += candidate.memory();
                    frees = frees.saturating_add(candidate.frees);
                    batch.push(candidate);
                }
            }
        }
        Ok(batch)
    }

    /// The first of all of those that come behind the last batch. What does not fit in comes later.
    fn first_in_order(&mut self, room: Room, stop: &Stop) -> Result<Vec<Candidate>, String> {
        let (mut first, mut memory, mut frees) = (BinaryHeap::new(), 0, 0u64);
        let mut is_whole = true;
        self.search = None;
        while let Some(found) = self.next_page()? {
            if stop.is_told() {
                return Ok(Vec::new());
            }
            for found in found {
                let candidate = self.sorted_out(found);
                let Some(candidate) = candidate.filter(|of| self.last.as_ref().is_none_or(|last| of > last))
                else {
                    continue;
                };
                memory += candidate.memory();
                frees = frees.saturating_add(candidate.frees);
                first.push(candidate);
                while let Some(last) = first.peek()
                    && is_too_much(last, (memory, frees), first.len(), room)
                {
                    memory -= last.memory();
                    frees -= last.frees;
                    first.pop();
                    is_whole = false;
                }
            }
        }
        self.is_over = is_whole;
        let mut batch = first.into_sorted_vec();
        // A search that went on at another moment may find a file twice.
        batch.dedup();
        self.last = batch.last().cloned().or(self.last.take());
        Ok(batch)
    }

    fn sorted_out(&mut self, found: Found) -> Option<Candidate> {
        let seen = self.filter.see(found);
        let counts = u64::from(self.is_first_search());
        match seen {
            Seen::Candidate(candidate) => {
                self.tally.matched += counts;
                self.tally.bytes = self.tally.bytes.saturating_add(candidate.bytes * counts);
                Some(candidate)
            }
            Seen::There => {
                self.tally.matched += counts;
                self.tally.there += counts;
                None
            }
            Seen::Elsewhere => None,
        }
    }

    /// Later ones find again what is counted already.
    fn is_first_search(&self) -> bool {
        self.last.is_none()
    }

    /// What the search finds next; `None` at its end.
    fn next_page(&mut self) -> Result<Option<Vec<Found>>, String> {
        loop {
            let search = self.search.get_or_insert_with(&self.begin);
            match search.next_page() {
                Ok(None) => return Ok(None),
                // It is counted already.
                Ok(Some(page)) if !self.is_first_search() => return Ok(Some(page.found)),
                Ok(Some(page)) => {
                    self.tally.hidden += page.hidden.len() as u64;
                    let room = HIDDEN_MAX.saturating_sub(self.tally.hidden_named.len());
                    self.tally.hidden_named.extend(page.hidden.iter().take(room).map(|path| path.to_vec()));
                    return Ok(Some(page.found));
                }
                // Acting took longer than the MDT keeps a moment. It goes on with how things are by now; what was moved to where the
                // search has been already, the next run finds.
                Err(Error::Ended) => {}
                // A directory was removed that it was in. What was done does not match any more.
                Err(Error::Gone) if self.restarts < RESTARTS_MAX => {
                    self.restarts += 1;
                    self.search = None;
                }
                Err(error) => return Err(error.sentence()),
            }
        }
    }
}

/// Whether there is enough without the last of so many.
fn is_too_much(last: &Candidate, (memory, frees): (usize, u64), count: usize, room: Room) -> bool {
    let enough = room.frees.is_some_and(|goal| frees - last.frees >= goal);
    count > 1 && (memory > room.memory || enough)
}

#[cfg(test)]
mod tests;
