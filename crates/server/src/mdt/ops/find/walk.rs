//! The walk of a search: where it is in each directory from the start down, and what it takes of what the jobs come by, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::find::{Verdict, last_part};
use proto::limits::NAME_BYTES_MAX;
use proto::wire::messages::{FIND_ENTRY, Find, FindPlace, Found};
use proto::{Code, Fid, FileKind, Name};
use service::code_of;

use super::candidate::{Candidates, Directory, Place};
use super::job::{Job, Looked, run_all, run_rows};
use super::search::Search;
use super::{DEPTH_MAX, JOB_ENTRIES, JOBS_MAX, after, name_in, path_below_start};
use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, keys};

/// Directories that are looked at together at most.
const DIRS_MAX: usize = 16 * JOBS_MAX;
/// Directories of one directory that are known ahead.
const AHEAD_MAX: usize = 256;
/// Entries that are passed in one step to find them.
const PASSED_MAX: usize = 16_384;

/// How far it has come.
pub(super) struct Walk {
    search: Arc<Search>,
    /// From the start down.
    levels: Vec<Level>,
    /// The start itself, if it is one of those that are searched, and whether the caller may not look into it.
    start: (Option<Found>, bool),
    /// Entries that were looked at.
    visited: u64,
    /// All that it looked at: entries, directories, and entries once more for the directories among them.
    work: u64,
    /// What was come by lately and may be searched, and what the caller may not look into; bytes of memory that both may take.
    candidates: Vec<Candidates>,
    hidden: Vec<Hidden>,
    bytes: u64,
    /// Directories that are looked at together.
    dirs: usize,
}

/// How far a walk goes at a time.
#[derive(Clone, Copy)]
pub(super) struct Enough {
    /// What is looked at.
    pub(super) work: u64,
    /// What is come by, in bytes of memory.
    pub(super) bytes: u64,
}

/// A directory that the caller may not look into.
pub(super) struct Hidden {
    /// Its path below the start.
    pub(super) below: Bytes,
    pub(super) at: HiddenAt,
}

/// Where that is.
pub(super) struct HiddenAt {
    /// Where it lies among the candidates.
    pub(super) before: Place,
    /// Entries that were looked at before.
    pub(super) visited: u64,
    /// Where a page goes on that ends with it.
    pub(super) place: FindPlace,
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
    pub(super) fn new(search: Arc<Search>) -> Walk {
        Walk {
            search,
            levels: Vec::new(),
            start: (None, false),
            visited: 0,
            work: 0,
            candidates: Vec::new(),
            hidden: Vec::new(),
            bytes: 0,
            dirs: JOBS_MAX,
        }
    }

    /// What is searched.
    pub(super) fn search(&self) -> &Arc<Search> {
        &self.search
    }

    /// What was asked.
    pub(super) fn request(&self) -> &Find {
        &self.search.request
    }

    /// Entries that were looked at.
    pub(super) fn visited(&self) -> u64 {
        self.visited
    }

    /// All that it looked at.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Where the walk is; `None` at its end.
    pub(super) fn place(&self) -> Option<FindPlace> {
        let level = self.levels.last()?;
        Some(FindPlace { dir: level.dir.fid, descends: level.descends, name: level.after.clone() })
    }

    /// The start, if it is one of those that are searched, and whether the caller may not look into it.
    pub(super) fn take_start(&mut self) -> (Option<Found>, bool) {
        std::mem::take(&mut self.start)
    }

    /// What it has come by, and what the caller may not look into.
    pub(super) fn take(&mut self) -> (Vec<Candidates>, Vec<Hidden>) {
        self.bytes = 0;
        (std::mem::take(&mut self.candidates), std::mem::take(&mut self.hidden))
    }

    /// Walks on until that is enough, about, or up to what cannot be read: that is refused once nothing lies before it. A step that fails
    /// leaves the walk where it was.
    pub(super) async fn go_on(&mut self, mdt: &Mdt, enough: Enough) -> Result<(), Code> {
        let (before, until) = (self.work, self.work + enough.work);
        while self.work < until && self.bytes < enough.bytes && !self.levels.is_empty() {
            match self.step(mdt).await {
                Err(code) if self.work > before && is_damage(code) => break,
                done => done?,
            }
        }
        Ok(())
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
        self.visited = 1;
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
            self.start.0 = found;
        }
        if !start.is_dir() || search.request.depth_max == 0 {
            return Ok(());
        }
        match search.may_read(start) {
            Err(Code::AccessDenied) => self.start.1 = true,
            other => {
                other?;
                let has_dirs = search.looks_below(start, 1);
                let dir = Directory::new(start.fid, Vec::new());
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
            let mut level = Level::new(Arc::new(Directory::new(fid, below.clone())), has_dirs);
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

    /// One step: a few jobs, and what comes of them.
    async fn step(&mut self, mdt: &Mdt) -> Result<(), Code> {
        let depth = self.levels.len() as u32;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if !level.descends {
            let jobs = level.ranges(&self.search, depth);
            let looked = run_all(mdt, jobs).await?;
            self.take_entries(looked);
            return Ok(());
        }
        if level.ahead.is_empty() && !level.ahead_is_all {
            let after = level.after.clone();
            let (search, dir) = (self.search.clone(), level.dir.fid);
            let ahead = mdt.rt.offload(move || look_ahead(&search, dir, after)).await?;
            level.know(&mut self.work, ahead);
            return Ok(());
        }
        let next = level.ahead.iter().take(self.dirs);
        let mut jobs = next.map(|(name, fid)| Job {
            search: self.search.clone(),
            dir: Arc::new(Directory::new(*fid, path_below_start(&level.dir.below, name.as_bytes()))),
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
            return Ok(());
        }
        let looked = run_rows(mdt, rows, JOB_ENTRIES).await?;
        self.take_dirs(looked, asked);
        Ok(())
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
            self.work += part.visited;
            if !candidates.is_empty() {
                self.bytes += candidates.memory(self.search.request.wants & FIND_ENTRY != 0);
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
            self.work += 1;
            if part.is_hidden {
                let place = FindPlace { dir: level.dir.fid, descends: true, name: level.after.clone() };
                let before = Place::first_of(self.candidates.len());
                let below = Bytes::copy_from_slice(&part.candidates.dir.below);
                self.bytes += (below.len() + size_of::<Hidden>() + NAME_BYTES_MAX) as u64;
                self.hidden.push(Hidden { below, at: HiddenAt { before, visited: self.visited, place } });
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
}

/// Directories of a directory that come next.
struct Ahead {
    dirs: VecDeque<(Name, Fid)>,
    /// The last name that was looked at; `None` at the end of the directory.
    last: Option<Name>,
    /// Entries that were passed.
    passed: usize,
}

/// Finds the directories among the entries behind `after`.
fn look_ahead(search: &Search, dir: Fid, after_name: Option<Name>) -> Result<Ahead, Code> {
    let from = match &after_name {
        Some(name) => after(&keys::entry(dir, name)),
        None => keys::entries_from(dir, 0),
    };
    let (mut passed, mut last, mut is_damaged) = (0, None, false);
    let mut dirs = VecDeque::new();
    let scan = search.snapshot.scan(&from, &keys::entries_end(dir), &mut |key, value, _| {
        passed += 1;
        let (name, entry) = (
            || name_in(key).and_then(|name| Name::new(Bytes::copy_from_slice(name)).ok()),
            keys::entry_of(value),
        );
        match entry {
            Some((fid, FileKind::Dir)) => match name() {
                Some(name) => dirs.push_back((name, fid)),
                None => is_damaged = true,
            },
            Some(_) => {}
            None => is_damaged = true,
        }
        let is_enough = dirs.len() >= AHEAD_MAX || passed >= PASSED_MAX;
        last = if is_enough { name() } else { None };
        !is_enough && !is_damaged
    });
    scan.map_err(|error| code_of(&error))?;
    if is_damaged { Err(Code::Corrupt) } else { Ok(Ahead { dirs, last, passed }) }
}

/// Whether that is no matter of who asks or when.
pub(super) fn is_damage(code: Code) -> bool {
    matches!(code, Code::Corrupt | Code::Io | Code::NameTooLong)
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

    fn know(&mut self, work: &mut u64, Ahead { dirs, last, passed }: Ahead) {
        *work += passed as u64;
        match last {
            None => self.ahead_is_all = true,
            // None of those that were passed was one.
            Some(last) if dirs.is_empty() => self.after = Some(last),
            Some(_) => {}
        }
        self.ahead = dirs;
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
