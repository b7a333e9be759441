//! The walk of a page: where it is in each directory from the start down, and what it takes of what the jobs find, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Verdict, last_part};
use proto::wire::messages::{FindPlace, Found, FoundPage};
use proto::{Code, Fid, FileKind, Name};
use service::code_of;

use super::candidate::{Candidates, Directory, Place, end_at, judge_all};
use super::job::{Job, Looked, run_all, run_rows};
use super::search::Search;
use super::{DEPTH_MAX, JOB_ENTRIES, JOBS_MAX, after, bytes_of, name_in, path_below_start};
use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, keys};

/// Files that one page looks at, about: a request is done in a fraction of a second.
const VISITS_MAX: u64 = 200_000;
/// Files that are looked at before it is known how many of them are found.
const BATCH_MIN: u64 = 4 * JOB_ENTRIES as u64;
/// Directories that are looked at together at most.
const DIRS_MAX: usize = 16 * JOBS_MAX;
/// Directories of one directory that are known ahead.
const AHEAD_MAX: usize = 256;
/// Entries that are passed in one step to find them.
const PASSED_MAX: usize = 16_384;

/// How far a page has come.
pub(super) struct Walk {
    search: Arc<Search>,
    /// From the start down.
    levels: Vec<Level>,
    page: FoundPage,
    bytes: usize,
    /// Entries that were looked at.
    visited: u64,
    /// Those whose inodes were not looked at yet, and what the caller may not look into, each with where it lies among them.
    candidates: Vec<Candidates>,
    hidden: Vec<(Place, Bytes)>,
    /// Where the next page begins, if this one has no room for all that was found.
    cut: Option<FindPlace>,
    /// Directories that are looked at together.
    dirs: usize,
}

/// Where the walk is in one directory.
struct Level {
    dir: Arc<Directory>,
    /// Whether it has directories that are looked into, so that its entries are passed once more.
    has_dirs: bool,
    descends: bool,
    /// The last name that is done.
    after: Option<Name>,
    /// The first key that is not, while it looks at entries.
    from: Vec<u8>,
    /// How much of the range of hashes a job takes; 0 as long as that is not known.
    stride: u64,
    /// The directories that come next, and whether there are no others.
    ahead: VecDeque<(Name, Fid)>,
    ahead_is_all: bool,
}

impl Walk {
    /// A walk that has not begun.
    pub(super) fn new(search: Arc<Search>, snapshot: u64) -> Walk {
        let page = FoundPage { snapshot, found: Vec::new(), visited: 0, hidden: Vec::new(), next: None };
        Walk {
            search,
            levels: Vec::new(),
            page,
            bytes: 0,
            visited: 0,
            candidates: Vec::new(),
            hidden: Vec::new(),
            cut: None,
            dirs: JOBS_MAX,
        }
    }

    /// What it found, and where the next page begins.
    pub(super) fn page(self) -> FoundPage {
        let next = match self.cut {
            Some(place) => Some(place),
            None => self.place(),
        };
        FoundPage { next, ..self.page }
    }

    /// Whether the page is done.
    pub(super) fn is_done(&self) -> bool {
        self.cut.is_some() || self.levels.is_empty() || self.is_full()
    }

    fn is_full(&self) -> bool {
        self.page.visited >= VISITS_MAX || self.bytes >= self.search.bytes_max
    }

    /// Where the walk is.
    fn place(&self) -> Option<FindPlace> {
        let level = self.levels.last()?;
        Some(FindPlace { dir: level.dir.fid, descends: level.descends, name: level.after.clone() })
    }

    /// Walks on for a while, and judges what it came by.
    pub(super) async fn go_on(mut self, mdt: &Mdt) -> Result<Walk, Code> {
        let until = (self.visited + self.batch()).min(VISITS_MAX);
        while self.visited < until && !self.levels.is_empty() {
            self = self.step(mdt).await?;
        }
        let candidates = Arc::new(std::mem::take(&mut self.candidates));
        let found = judge_all(mdt, &self.search, &candidates).await?;
        self.take_all(&candidates, found)?;
        Ok(self)
    }

    /// How many entries are looked at next: about as many as the page has room for, as far as that can be known.
    fn batch(&self) -> u64 {
        if self.visited == 0 {
            return BATCH_MIN;
        }
        let room = self.search.bytes_max.saturating_sub(self.bytes) as u64;
        let for_room = self.visited.saturating_mul(room) / (self.bytes as u64).max(1);
        for_room.min(16 * self.visited).max(BATCH_MIN)
    }

    /// Takes what was found, in order, as far as there is room.
    fn take_all(&mut self, candidates: &[Candidates], found: Vec<(Place, Found)>) -> Result<(), Code> {
        let mut hidden = std::mem::take(&mut self.hidden).into_iter().peekable();
        for (at, found) in found {
            while let Some((_, below)) = hidden.next_if(|(before, _)| *before <= at) {
                self.hide(below);
            }
            self.take(found);
            if self.bytes >= self.search.bytes_max {
                let (visited, next) = end_at(candidates, at)?;
                (self.page.visited, self.cut) = (visited, Some(next));
                return Ok(());
            }
        }
        hidden.for_each(|(_, below)| self.hide(below));
        self.page.visited = self.visited;
        Ok(())
    }

    fn hide(&mut self, below: Bytes) {
        self.bytes += below.len();
        self.page.hidden.push(below);
    }

    /// Goes to where the request says.
    pub(super) fn begun(mut self) -> Result<Walk, Code> {
        let search = self.search.clone();
        let start = search.inode(search.request.start)?.ok_or(Code::Stale)?;
        search.may_reach(&start)?;
        match &search.request.behind {
            Some(place) => self.go_to(place)?,
            None => self.begin_at(&start)?,
        }
        Ok(self)
    }

    fn begin_at(&mut self, start: &Inode) -> Result<(), Code> {
        let search = self.search.clone();
        (self.visited, self.page.visited) = (1, 1);
        if search.request.depth_min == 0 {
            let path = &search.request.path;
            let subject = search.subject(last_part(path), path, start.kind());
            let found = match search.query.judge(&subject) {
                Verdict::No => None,
                early if search.needs_inode(early, start.kind()) => {
                    search.judge_by_key(subject, start.fid, Bytes::new)?
                }
                _ => Some(search.by_name(start.fid, start.kind(), Bytes::new())),
            };
            found.into_iter().for_each(|found| self.take(found));
        }
        if !start.is_dir() || search.request.depth_max == 0 {
            return Ok(());
        }
        match search.may_read(start) {
            Err(Code::AccessDenied) => self.page.hidden.push(Bytes::new()),
            other => {
                other?;
                let has_dirs = search.looks_below(start, 1);
                let dir = Directory::new(&search, start.fid, Vec::new());
                self.levels.push(Level::new(Arc::new(dir), has_dirs));
            }
        }
        Ok(())
    }

    /// Goes down from the start to where the last page ended.
    fn go_to(&mut self, place: &FindPlace) -> Result<(), Code> {
        let search = self.search.clone();
        let mut dirs = vec![(place.dir, place.name.clone())];
        while let Some((at, _)) = dirs.last().filter(|(at, _)| *at != search.request.start) {
            let (above, name) = search.links(*at, 1)?.pop().ok_or(Code::Stale)?;
            if dirs.len() > DEPTH_MAX {
                return Err(Code::NameTooLong);
            }
            dirs.push((above, Some(name)));
        }
        let mut below = Vec::new();
        while let Some((fid, name)) = dirs.pop() {
            let dir = search.inode(fid)?.filter(Inode::is_dir).ok_or(Code::Stale)?;
            search.may_read(&dir)?;
            let has_dirs = search.looks_below(&dir, self.levels.len() as u32 + 1);
            let mut level = Level::new(Arc::new(Directory::new(&search, fid, below.clone())), has_dirs);
            if let Some(name) = &name {
                level.from = after(&keys::entry(fid, name));
                below = path_below_start(&below, name.as_bytes());
            }
            level.descends = place.descends || !dirs.is_empty();
            level.after = name;
            self.levels.push(level);
        }
        Ok(())
    }

    fn take(&mut self, found: Found) {
        self.bytes += bytes_of(&found);
        self.page.found.push(found);
    }

    /// One step: a few jobs, and what comes of them.
    async fn step(mut self, mdt: &Mdt) -> Result<Walk, Code> {
        let depth = self.levels.len() as u32;
        let Some(level) = self.levels.last() else { return Ok(self) };
        if !level.descends {
            let jobs = level.ranges(&self.search, depth);
            let looked = run_all(mdt, jobs).await?;
            self.take_entries(looked);
            return Ok(self);
        }
        if level.ahead.is_empty() && !level.ahead_is_all {
            return mdt.rt.offload(move || self.looked_ahead()).await;
        }
        let next = level.ahead.iter().take(self.dirs);
        let mut jobs = next.map(|(name, fid)| Job {
            search: self.search.clone(),
            dir: Arc::new(Directory::new(
                &self.search,
                *fid,
                path_below_start(&level.dir.below, name.as_bytes()),
            )),
            depth: depth + 1,
            from: keys::entries_from(*fid, 0),
            until: keys::entries_end(*fid),
            count_max: JOB_ENTRIES,
            enters: true,
        });
        let asked = level.ahead.len().min(self.dirs);
        let of_row = asked.div_ceil(JOBS_MAX);
        let mut rows: Vec<Vec<Job>> = Vec::with_capacity(JOBS_MAX);
        loop {
            let row: Vec<Job> = jobs.by_ref().take(of_row).collect();
            if row.is_empty() {
                break;
            }
            rows.push(row);
        }
        if rows.is_empty() {
            self.levels.pop();
            return Ok(self);
        }
        let looked = run_rows(mdt, rows, JOB_ENTRIES).await?;
        self.take_dirs(looked, asked);
        Ok(self)
    }

    /// Takes the entries of the directory that were looked at, in order.
    fn take_entries(&mut self, looked: Vec<Looked>) {
        for part in looked {
            let Some(level) = self.levels.last_mut() else { return };
            let end = keys::entries_end(level.dir.fid);
            if let Some(last) = part.last.as_ref().filter(|_| part.visited > 1) {
                let width = last.hash().saturating_sub(part.first_hash);
                level.stride = (width / part.visited).saturating_mul(JOB_ENTRIES as u64).max(1);
            }
            level.after = part.last.or(level.after.take());
            level.from = part.from;
            let mut candidates = part.candidates;
            candidates.before = self.visited;
            self.visited += part.visited;
            if !candidates.is_empty() {
                self.candidates.push(candidates);
            }
            if part.is_all && level.from == end {
                (level.descends, level.after) = (true, None);
                if !level.has_dirs {
                    self.levels.pop();
                }
                return;
            }
            if !part.is_all {
                // There was more than expected: what comes behind it was not looked at in order.
                return;
            }
        }
    }

    /// Takes what was found in the directories that come next, in order, until one of them has more. So many were asked for.
    fn take_dirs(&mut self, looked: Vec<Looked>, asked: usize) {
        let (depth, count, before) = (self.levels.len(), looked.len(), self.visited);
        for (done, part) in looked.into_iter().enumerate() {
            let Some(level) = self.levels.last_mut() else { return };
            let Some((name, _)) = level.ahead.pop_front() else { return };
            level.after = Some(name);
            if part.is_hidden {
                let below = part.candidates.dir.below.clone().into();
                self.hidden.push((Place::first_of(self.candidates.len()), below));
                continue;
            }
            self.levels.push(Level::new(part.candidates.dir.clone(), part.has_dirs));
            self.take_entries(vec![part]);
            if self.levels.len() > depth {
                // It goes on in there. What was looked at behind it was for nothing, so less is looked at together.
                self.dirs = done.max(1);
                return;
            }
        }
        let is_enough = self.visited - before >= 2 * JOB_ENTRIES as u64;
        let dirs = match count < asked {
            true => count,
            false if is_enough => self.dirs,
            false => 2 * self.dirs,
        };
        self.dirs = dirs.clamp(1, DIRS_MAX);
    }

    /// Finds the directories among the entries of the directory that come next.
    fn looked_ahead(mut self) -> Result<Walk, Code> {
        let Some(level) = self.levels.last_mut() else { return Ok(self) };
        let from = match &level.after {
            Some(name) => after(&keys::entry(level.dir.fid, name)),
            None => keys::entries_from(level.dir.fid, 0),
        };
        let (mut passed, mut last, mut is_damaged) = (0, None, false);
        let ahead = &mut level.ahead;
        let scan =
            self.search.snapshot.scan(&from, &keys::entries_end(level.dir.fid), &mut |key, value, _| {
                passed += 1;
                let (name, entry) = (
                    || name_in(key).and_then(|name| Name::new(Bytes::copy_from_slice(name)).ok()),
                    keys::entry_of(value),
                );
                match entry {
                    Some((fid, FileKind::Dir)) => match name() {
                        Some(name) => ahead.push_back((name, fid)),
                        None => is_damaged = true,
                    },
                    Some(_) => {}
                    None => is_damaged = true,
                }
                let is_enough = ahead.len() >= AHEAD_MAX || passed >= PASSED_MAX;
                last = if is_enough { name() } else { None };
                !is_enough && !is_damaged
            });
        scan.map_err(|error| code_of(&error))?;
        if is_damaged {
            return Err(Code::Corrupt);
        }
        match last {
            None => level.ahead_is_all = true,
            // None of those that were passed was one.
            Some(last) if level.ahead.is_empty() => level.after = Some(last),
            Some(_) => {}
        }
        Ok(self)
    }
}

impl Level {
    fn new(dir: Arc<Directory>, has_dirs: bool) -> Level {
        let from = keys::entries_from(dir.fid, 0);
        Level {
            dir,
            has_dirs,
            descends: false,
            after: None,
            from,
            stride: 0,
            ahead: VecDeque::new(),
            ahead_is_all: false,
        }
    }

    /// The next parts of its entries. Hashes are spread evenly, so each is about as large.
    fn ranges(&self, search: &Arc<Search>, depth: u32) -> Vec<Job> {
        let end = keys::entries_end(self.dir.fid);
        let count = if self.stride == 0 { 1 } else { JOBS_MAX };
        let mut hash = keys::entry_hash(&self.from).unwrap_or(u64::MAX);
        let (mut jobs, mut from) = (Vec::new(), self.from.clone());
        while jobs.len() < count && from < end {
            hash = hash.saturating_add(self.stride);
            // Hashes have 63 bits.
            let is_last = self.stride == 0 || hash > u64::MAX >> 1;
            let until = if is_last { end.clone() } else { keys::entries_from(self.dir.fid, hash) };
            jobs.push(Job {
                search: search.clone(),
                dir: self.dir.clone(),
                depth,
                from: std::mem::replace(&mut from, until.clone()),
                until,
                count_max: if self.stride == 0 { JOB_ENTRIES } else { 4 * JOB_ENTRIES },
                enters: false,
            });
        }
        jobs
    }
}
