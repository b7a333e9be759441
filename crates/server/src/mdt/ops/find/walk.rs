//! The walk of a page: where it is in each directory from the start down, and what it takes of what the jobs find, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::find::last_part;
use proto::wire::messages::{FindPlace, Found, FoundPage};
use proto::{Code, Fid, FileKind, Name};
use service::code_of;

use super::job::{Job, Looked, run_all};
use super::search::Search;
use super::{DEPTH_MAX, JOB_ENTRIES, after, bytes_of, name_in, path_below_start};
use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, keys};

/// Files that one page looks at, about: a request is done in a fraction of a second.
const VISITS_MAX: u64 = 200_000;
/// Jobs at the same time.
const JOBS_MAX: usize = 4;
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
    /// Directories that are looked at together.
    jobs: usize,
}

/// Where the walk is in one directory.
struct Level {
    dir: Fid,
    /// Its path below the start.
    below: Vec<u8>,
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
        Walk { search, levels: Vec::new(), page, bytes: 0, jobs: JOBS_MAX }
    }

    /// What it found, and where the next page begins.
    pub(super) fn page(self) -> FoundPage {
        let next = self.place();
        FoundPage { next, ..self.page }
    }

    pub(super) fn is_done(&self) -> bool {
        self.levels.is_empty() || self.is_full()
    }

    fn is_full(&self) -> bool {
        self.page.visited >= VISITS_MAX || self.bytes >= self.search.bytes_max
    }

    /// Where the next page begins.
    fn place(&self) -> Option<FindPlace> {
        let level = self.levels.last()?;
        Some(FindPlace { dir: level.dir, descends: level.descends, name: level.after.clone() })
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
        self.page.visited = 1;
        if search.request.depth_min == 0 {
            let path = &search.request.path;
            let subject = search.subject(last_part(path), path, start.kind());
            let early = search.query.judge(&subject);
            let found = search.judge(subject, early, start.fid, &[], Bytes::new)?;
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
                self.levels.push(Level::new(start.fid, Vec::new(), has_dirs));
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
            let mut level = Level::new(fid, below.clone(), has_dirs);
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
    pub(super) async fn step(mut self, mdt: &Mdt) -> Result<Walk, Code> {
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
        let next = level.ahead.iter().take(self.jobs);
        let jobs = next.map(|(name, fid)| Job {
            search: self.search.clone(),
            dir: *fid,
            below: path_below_start(&level.below, name.as_bytes()),
            depth: depth + 1,
            from: keys::entries_from(*fid, 0),
            until: keys::entries_end(*fid),
            count_max: JOB_ENTRIES,
            enters: true,
        });
        let jobs: Vec<Job> = jobs.collect();
        if jobs.is_empty() {
            self.levels.pop();
            return Ok(self);
        }
        let looked = run_all(mdt, jobs).await?;
        self.take_dirs(looked);
        Ok(self)
    }

    /// Takes what was found among the entries of the directory, in order, as far as there is room.
    fn take_entries(&mut self, looked: Vec<Looked>) {
        for part in looked {
            let Some(level) = self.levels.last_mut() else { return };
            let end = keys::entries_end(level.dir);
            if let Some(last) = part.last.as_ref().filter(|_| part.visited > 1) {
                let width = last.hash().saturating_sub(part.first_hash);
                level.stride = (width / part.visited).saturating_mul(JOB_ENTRIES as u64).max(1);
            }
            let (last, from, is_all) = (part.last.clone(), part.from.clone(), part.is_all);
            if !self.take_found(part) {
                return;
            }
            let Some(level) = self.levels.last_mut() else { return };
            level.after = last.or(level.after.take());
            level.from = from;
            if is_all && level.from == end {
                (level.descends, level.after) = (true, None);
                if !level.has_dirs {
                    self.levels.pop();
                }
                return;
            }
            if !is_all {
                // There was more than expected: what comes behind it was not looked at in order.
                return;
            }
        }
    }

    /// Takes what a job has found as far as there is room; whether that is all.
    fn take_found(&mut self, looked: Looked) -> bool {
        let before = self.page.visited;
        for (seen, found) in looked.found {
            if self.is_full() {
                return false;
            }
            let name = Name::new(Bytes::copy_from_slice(last_part(&found.path))).ok();
            self.take(found);
            self.page.visited = before + seen;
            if let Some(level) = self.levels.last_mut() {
                level.after = name;
            }
        }
        self.page.visited = before + looked.visited;
        true
    }

    /// Takes what was found in the directories that come next, in order, until one of them has more.
    fn take_dirs(&mut self, looked: Vec<Looked>) {
        let depth = self.levels.len();
        for (done, part) in looked.into_iter().enumerate() {
            if self.is_full() {
                return;
            }
            let Some(level) = self.levels.last_mut() else { return };
            let Some((name, dir)) = level.ahead.pop_front() else { return };
            let below = path_below_start(&level.below, name.as_bytes());
            level.after = Some(name);
            if part.is_hidden {
                self.bytes += below.len();
                self.page.hidden.push(below.into());
                continue;
            }
            self.levels.push(Level::new(dir, below, part.has_dirs));
            self.take_entries(vec![part]);
            if self.levels.len() > depth {
                // It goes on in there. What was looked at behind it was for nothing, so less is looked at together.
                self.jobs = done.max(1);
                return;
            }
        }
        self.jobs = (2 * self.jobs).min(JOBS_MAX);
    }

    /// Finds the directories among the entries of the directory that come next.
    fn looked_ahead(mut self) -> Result<Walk, Code> {
        let Some(level) = self.levels.last_mut() else { return Ok(self) };
        let from = match &level.after {
            Some(name) => after(&keys::entry(level.dir, name)),
            None => keys::entries_from(level.dir, 0),
        };
        let (mut passed, mut last, mut is_damaged) = (0, None, false);
        let ahead = &mut level.ahead;
        let scan = self.search.snapshot.scan(&from, &keys::entries_end(level.dir), &mut |key, value, _| {
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
    fn new(dir: Fid, below: Vec<u8>, has_dirs: bool) -> Level {
        Level {
            dir,
            below,
            has_dirs,
            descends: false,
            after: None,
            from: keys::entries_from(dir, 0),
            stride: 0,
            ahead: VecDeque::new(),
            ahead_is_all: false,
        }
    }

    /// The next parts of its entries. Hashes are spread evenly, so each is about as large.
    fn ranges(&self, search: &Arc<Search>, depth: u32) -> Vec<Job> {
        let end = keys::entries_end(self.dir);
        let count = if self.stride == 0 { 1 } else { JOBS_MAX };
        let mut hash = keys::entry_hash(&self.from).unwrap_or(u64::MAX);
        let (mut jobs, mut from) = (Vec::new(), self.from.clone());
        while jobs.len() < count && from < end {
            hash = hash.saturating_add(self.stride);
            // Hashes have 63 bits.
            let is_last = self.stride == 0 || hash > u64::MAX >> 1;
            let until = if is_last { end.clone() } else { keys::entries_from(self.dir, hash) };
            jobs.push(Job {
                search: search.clone(),
                dir: self.dir,
                below: self.below.clone(),
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
